//! The nodes of a unit, or of a DAG without units, as they are now; those that are held or failed; where their logs are.
//!
//! All of it is found out when somebody asks: nothing about single nodes is remembered. The status file names all nodes
//! and is some seconds old, the job state log says what happened since, the event log where and why.

use super::LAST_WORDS;
use super::files::{ending, there, whole};
use crate::layout;
use crate::read::events::{self, Hold, What};
use crate::read::jobstate::{self, Entry, NodeLine, Step};
use crate::read::{dagman_out, status};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use windlass_types::requests::UnitName;

/// The attribute that `ulog_execute_attrs` of our submit files asks for.
pub const SITE_ATTRIBUTE: &str = "GLIDEIN_CMSSite";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeView {
    pub name: String,
    pub state: NodeState,
    /// How often it was begun, earlier runs of the same DAG included.
    pub attempts: u32,
    /// The id of its last job in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<u64>,
    /// Where that job ran last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Why it is held, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Hold>,
    /// What DAGMan says about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
    /// Unix time of the last that happened to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// For others, for its turn, or for its next attempt.
    Waiting,
    /// Its PRE script runs.
    Pre,
    /// Its job is in the queue.
    Idle,
    Running,
    Held,
    /// Its POST script runs.
    Post,
    Done,
    Failed,
    /// The DAG was ended while it was under way.
    Stopped,
    /// It waits for one that failed.
    Futile,
}

impl NodeState {
    pub const ALL: [Self; 10] = [
        Self::Waiting,
        Self::Pre,
        Self::Idle,
        Self::Running,
        Self::Held,
        Self::Post,
        Self::Done,
        Self::Failed,
        Self::Stopped,
        Self::Futile,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Pre => "pre",
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Held => "held",
            Self::Post => "post",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Futile => "futile",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldNode {
    /// `None` in a DAG without units.
    pub unit: Option<u32>,
    pub node: String,
    pub hold: Hold,
}

/// A node that failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedNode {
    pub unit: Option<u32>,
    pub node: String,
    /// What DAGMan says about it.
    pub details: String,
    /// What its POST script wrote about the last attempt, if it got so far.
    pub report: Option<PathBuf>,
}

/// Where the logs of a node are. Those that are not there yet are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeLogs {
    pub output: Option<PathBuf>,
    pub error: Option<PathBuf>,
    /// What its POST script found.
    pub report: Option<PathBuf>,
    /// The events of all nodes of its DAG.
    pub events: Option<PathBuf>,
    /// What DAGMan says.
    pub dagman: Option<PathBuf>,
}

/// The nodes inside a unit, or those of the DAG itself: units, or the jobs of a workflow spec.
pub fn nodes(run: &Path, unit: Option<u32>) -> io::Result<Vec<NodeView>> {
    let dag = Dag::of(run, unit);
    // In this order: what is read later is newer.
    let status = dag.status()?;
    let log = whole(&dag.jobstate)?;
    let lives = Lives::of(&log);
    let places = Places::of(&whole(&dag.events)?);
    let mut views: Vec<NodeView> =
        status.iter().flat_map(|status| &status.nodes).map(view_of_status).collect();
    let known: BTreeSet<String> = views.iter().map(|view| view.name.clone()).collect();
    views.extend(lives.names().into_iter().filter(|name| !known.contains(*name)).map(NodeView::new));
    for view in &mut views {
        if let Some(life) = lives.0.get(view.name.as_str()) {
            life.refine(view);
        }
        places.refine(view);
    }
    Ok(views)
}

/// Nodes that failed, with what is known about why. Those that were stopped with their DAG are not among them.
pub fn failures(run: &Path) -> io::Result<Vec<FailedNode>> {
    let mut failures = Vec::new();
    for outer in failed_in(run, None)? {
        let Some(unit) = layout::unit_number(&outer.node) else {
            failures.push(outer);
            continue;
        };
        let inside = failed_in(run, Some(unit))?;
        if inside.is_empty() {
            failures.push(failed_itself(run, unit, outer)?);
        }
        failures.extend(inside);
    }
    Ok(failures)
}

/// A unit of which no node failed: its DAG was not accepted, say. Its DAGMan may have said why.
fn failed_itself(run: &Path, unit: u32, mut outer: FailedNode) -> io::Result<FailedNode> {
    let words = dagman_out::last_run(&ending(&Dag::of(run, Some(unit)).words, LAST_WORDS)?);
    if !words.errors.is_empty() {
        outer.details = format!("{}: {}", outer.details, words.errors.join("; "));
    }
    Ok(outer)
}

/// Where the logs of a node of a unit are, or of a DAG without units.
pub fn logs(run: &Path, unit: Option<u32>, node: &str) -> NodeLogs {
    let dag = Dag::of(run, unit);
    let existing = |path: PathBuf| path.exists().then_some(path);
    NodeLogs {
        output: existing(dag.directory.join(format!("{node}.out"))),
        error: existing(dag.directory.join(format!("{node}.err"))),
        report: existing(layout::post_report(&dag.directory, node)),
        events: existing(dag.events),
        dagman: existing(dag.words),
    }
}

/// Those that are held now.
pub(super) fn held_nodes(directory: &Path, unit: Option<u32>) -> io::Result<Vec<HeldNode>> {
    let run = match unit {
        Some(_) => directory.parent().unwrap_or(directory),
        None => directory,
    };
    let held = nodes(run, unit)?.into_iter().filter(|node| node.state == NodeState::Held);
    Ok(held.map(|node| HeldNode { unit, node: node.name, hold: node.held.unwrap_or_default() }).collect())
}

fn failed_in(run: &Path, unit: Option<u32>) -> io::Result<Vec<FailedNode>> {
    let dag = Dag::of(run, unit);
    let status = dag.status()?.unwrap_or_default();
    let failed =
        status.nodes.into_iter().filter(|node| node.state == status::NodeState::Error && !node.was_stopped());
    let failed = failed.map(|node| {
        let report = layout::post_report(&dag.directory, &node.name);
        FailedNode { unit, report: report.exists().then_some(report), node: node.name, details: node.details }
    });
    Ok(failed.collect())
}

/// The files of one DAGMan.
struct Dag {
    directory: PathBuf,
    status: PathBuf,
    jobstate: PathBuf,
    events: PathBuf,
    words: PathBuf,
}

impl Dag {
    fn of(run: &Path, unit: Option<u32>) -> Self {
        let (directory, dag, status, jobstate) = match unit {
            Some(unit) => (
                run.join(UnitName(unit).to_string()),
                layout::GROUP_DAG,
                layout::GROUP_STATUS,
                layout::GROUP_JOBSTATE,
            ),
            None => (run.to_owned(), layout::OUTER_DAG, layout::OUTER_STATUS, layout::OUTER_JOBSTATE),
        };
        Self {
            status: directory.join(status),
            jobstate: directory.join(jobstate),
            events: directory.join(format!("{dag}{}", layout::NODES_LOG)),
            words: directory.join(format!("{dag}{}", layout::DAGMAN_OUT)),
            directory,
        }
    }

    fn status(&self) -> io::Result<Option<status::Status>> {
        Ok(there(std::fs::read(&self.status))?.and_then(|file| status::parse(&file)))
    }
}

impl NodeView {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: NodeState::Waiting,
            attempts: 0,
            cluster: None,
            site: None,
            held: None,
            details: String::new(),
            since: None,
        }
    }
}

fn view_of_status(node: &status::Node) -> NodeView {
    let state = match node.state {
        status::NodeState::NotReady | status::NodeState::Ready => NodeState::Waiting,
        status::NodeState::Pre => NodeState::Pre,
        status::NodeState::Submitted if node.held_jobs > 0 => NodeState::Held,
        status::NodeState::Submitted if node.details == "idle" => NodeState::Idle,
        status::NodeState::Submitted => NodeState::Running,
        status::NodeState::Post => NodeState::Post,
        status::NodeState::Done => NodeState::Done,
        status::NodeState::Error if node.was_stopped() => NodeState::Stopped,
        status::NodeState::Error => NodeState::Failed,
        status::NodeState::Futile => NodeState::Futile,
    };
    NodeView { state, details: node.details.clone(), ..NodeView::new(&node.name) }
}

/// What the job state log says about each node.
struct Lives<'a>(HashMap<&'a str, Life>);

#[derive(Clone, Copy, Default)]
struct Life {
    /// Of its first line, for the order.
    first: usize,
    state: Option<NodeState>,
    attempts: u32,
    sequence: Option<u64>,
    cluster: Option<u64>,
    since: i64,
}

impl<'a> Lives<'a> {
    fn of(log: &'a [u8]) -> Self {
        let mut lives: HashMap<&str, Life> = HashMap::new();
        let mut dagman = None;
        for (number, line) in jobstate::parse(log).enumerate() {
            match line.entry {
                // A rescue may number its attempts from 1 again.
                Entry::Started { cluster } if dagman.replace(cluster) != Some(cluster) => {
                    for life in lives.values_mut() {
                        life.sequence = None;
                    }
                }
                Entry::Node(node) => {
                    let life = lives.entry(node.node).or_insert(Life { first: number, ..Life::default() });
                    life.take(&node, line.at);
                }
                _ => {}
            }
        }
        Self(lives)
    }

    /// In the order in which they began.
    fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = self.0.keys().copied().collect();
        names.sort_unstable_by_key(|name| self.0[name].first);
        names
    }
}

impl Life {
    fn take(&mut self, line: &NodeLine<'_>, at: i64) {
        if self.sequence.replace(line.sequence) != Some(line.sequence) {
            self.attempts += 1;
        }
        self.cluster = line.cluster.or(self.cluster);
        self.since = at;
        self.state = match line.step {
            Step::PreStarted => Some(NodeState::Pre),
            Step::Submitted | Step::Evicted | Step::Released => Some(NodeState::Idle),
            Step::Executing => Some(NodeState::Running),
            Step::Held => Some(NodeState::Held),
            Step::PostStarted => Some(NodeState::Post),
            Step::PostSucceeded => Some(NodeState::Done),
            // After a failure perhaps for the next attempt: the status file knows what has failed for good.
            Step::PreSucceeded | Step::SubmitFailed | Step::PreFailed | Step::PostFailed => {
                Some(NodeState::Waiting)
            }
            Step::Terminated | Step::Aborted | Step::JobSucceeded | Step::JobFailed(_) | Step::Other => {
                self.state
            }
        };
    }

    /// The log is newer than the status file, except that only the status file knows the end of what was stopped, of
    /// what will not be tried again, and of what a recovery of DAGMan left out of the log.
    fn refine(self, view: &mut NodeView) {
        view.attempts = self.attempts;
        view.cluster = self.cluster;
        view.since = Some(self.since);
        let ended = matches!(
            view.state,
            NodeState::Done | NodeState::Failed | NodeState::Stopped | NodeState::Futile
        );
        if let Some(state) = self.state.filter(|_| !ended) {
            view.state = state;
        }
    }
}

/// Where jobs ran last, and why they were held, by cluster.
struct Places(HashMap<u64, Place>);

#[derive(Default)]
struct Place {
    site: Option<String>,
    hold: Option<Hold>,
}

impl Places {
    fn of(log: &[u8]) -> Self {
        let mut places: HashMap<u64, Place> = HashMap::new();
        for event in events::parse(log) {
            match event.what {
                What::Executing { mut attributes, .. } => {
                    places.entry(event.cluster).or_default().site = attributes.remove(SITE_ATTRIBUTE);
                }
                What::Held(hold) => places.entry(event.cluster).or_default().hold = Some(hold),
                _ => {}
            }
        }
        Self(places)
    }

    fn refine(&self, view: &mut NodeView) {
        let Some(place) = view.cluster.and_then(|cluster| self.0.get(&cluster)) else { return };
        view.site.clone_from(&place.site);
        if view.state == NodeState::Held {
            view.held.clone_from(&place.hold);
        }
    }
}

#[cfg(test)]
mod tests;
