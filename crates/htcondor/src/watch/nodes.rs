//! The current nodes of a unit, or of a DAG without units; held and failed nodes; the locations of their logs.
//!
//! All of it is read on request: the states of single nodes are not kept. The status file lists all nodes and is
//! some seconds old, the job state log has the events since then, and the event log the machines and reasons.

use super::DAGMAN_OUT_TAIL_BYTES;
use super::cached_files::{none_if_missing, read_end, read_whole};
use crate::file_layout;
use crate::parsers::events::{self, CondorEventKind, JobHold};
use crate::parsers::jobstate::{self, JobstateEntry, JobstateNodeLine, JobstateStep};
use crate::parsers::{dagman_out, node_status};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use windlass_types::requests::WorkUnitName;

/// The attribute that `ulog_execute_attrs` in the submit files writes to the log.
pub const SITE_ATTRIBUTE: &str = "GLIDEIN_CMSSite";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DagNodeView {
    pub name: String,
    pub state: DagNodeState,
    /// How often it was started, including earlier runs of the same DAG.
    pub attempts: u32,
    /// The id of its last job in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<u64>,
    /// Where that job last ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Why it is held, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<JobHold>,
    /// DAGMan's message about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
    /// Unix time of its last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DagNodeState {
    /// It waits for dependencies, for a limit, or for its next attempt.
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
    /// The DAG was ended while it was active.
    Stopped,
    /// It depends on a failed node.
    Futile,
}

impl DagNodeState {
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
pub struct HeldDagNode {
    /// `None` in a DAG without units.
    pub unit: Option<u32>,
    pub node: String,
    pub hold: JobHold,
}

/// A node that failed for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedDagNode {
    pub unit: Option<u32>,
    pub node: String,
    /// DAGMan's message about it.
    pub details: String,
    /// The report of its POST script about the last attempt, if there is one.
    pub report: Option<PathBuf>,
}

/// The log files of a node, as far as they exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DagNodeLogs {
    pub output: Option<PathBuf>,
    pub error: Option<PathBuf>,
    /// The report of its POST script.
    pub report: Option<PathBuf>,
    /// The events of all nodes of its DAG.
    pub events: Option<PathBuf>,
    /// DAGMan's log.
    pub dagman: Option<PathBuf>,
}

/// The nodes inside a unit, or those of the DAG itself: units, or the jobs of a workflow spec.
pub fn list_nodes(run: &Path, unit: Option<u32>) -> io::Result<Vec<DagNodeView>> {
    let dag = DagmanFiles::for_unit(run, unit);
    // In this order, so that the state read later is newer.
    let status = dag.read_status()?;
    let log = read_whole(&dag.jobstate)?;
    let lives = NodeHistories::from_log(&log);
    let places = JobLocations::from_log(&read_whole(&dag.events)?);
    let mut views: Vec<DagNodeView> =
        status.iter().flat_map(|status| &status.nodes).map(view_from_status).collect();
    let known: BTreeSet<String> = views.iter().map(|view| view.name.clone()).collect();
    views.extend(lives.names().into_iter().filter(|name| !known.contains(*name)).map(DagNodeView::new));
    for view in &mut views {
        if let Some(life) = lives.0.get(view.name.as_str()) {
            life.update_view(view);
        }
        places.update_view(view);
    }
    Ok(views)
}

/// Failed nodes, with what is known about the reasons. Nodes that were stopped with their DAG are not included.
pub fn list_failed_nodes(run: &Path) -> io::Result<Vec<FailedDagNode>> {
    let mut failures = Vec::new();
    for outer in list_failed_in(run, None)? {
        let Some(unit) = file_layout::unit_number(&outer.node) else {
            failures.push(outer);
            continue;
        };
        let inside = list_failed_in(run, Some(unit))?;
        if inside.is_empty() {
            failures.push(describe_failed_unit(run, unit, outer)?);
        }
        failures.extend(inside);
    }
    Ok(failures)
}

/// A failed unit without failed nodes: its DAG may have been rejected. DAGMan's log may have the reason.
fn describe_failed_unit(run: &Path, unit: u32, mut outer: FailedDagNode) -> io::Result<FailedDagNode> {
    let words = dagman_out::parse_last_run(&read_end(
        &DagmanFiles::for_unit(run, Some(unit)).dagman_out,
        DAGMAN_OUT_TAIL_BYTES,
    )?);
    if !words.errors.is_empty() {
        outer.details = format!("{}: {}", outer.details, words.errors.join("; "));
    }
    Ok(outer)
}

/// The locations of the logs of a node of a unit, or of a DAG without units.
pub fn find_node_logs(run: &Path, unit: Option<u32>, node: &str) -> DagNodeLogs {
    let dag = DagmanFiles::for_unit(run, unit);
    let existing = |path: PathBuf| path.exists().then_some(path);
    DagNodeLogs {
        output: existing(dag.directory.join(format!("{node}.out"))),
        error: existing(dag.directory.join(format!("{node}.err"))),
        report: existing(file_layout::post_report_path(&dag.directory, node)),
        events: existing(dag.events),
        dagman: existing(dag.dagman_out),
    }
}

/// The nodes that are held now.
pub(super) fn list_held_nodes(directory: &Path, unit: Option<u32>) -> io::Result<Vec<HeldDagNode>> {
    let run = match unit {
        Some(_) => directory.parent().unwrap_or(directory),
        None => directory,
    };
    let held = list_nodes(run, unit)?.into_iter().filter(|node| node.state == DagNodeState::Held);
    Ok(held.map(|node| HeldDagNode { unit, node: node.name, hold: node.held.unwrap_or_default() }).collect())
}

fn list_failed_in(run: &Path, unit: Option<u32>) -> io::Result<Vec<FailedDagNode>> {
    let dag = DagmanFiles::for_unit(run, unit);
    let status = dag.read_status()?.unwrap_or_default();
    let failed = status
        .nodes
        .into_iter()
        .filter(|node| node.state == node_status::CondorNodeState::Error && !node.was_stopped());
    let failed = failed.map(|node| {
        let report = file_layout::post_report_path(&dag.directory, &node.name);
        FailedDagNode {
            unit,
            report: report.exists().then_some(report),
            node: node.name,
            details: node.details,
        }
    });
    Ok(failed.collect())
}

/// The files of one DAGMan.
struct DagmanFiles {
    directory: PathBuf,
    status: PathBuf,
    jobstate: PathBuf,
    events: PathBuf,
    dagman_out: PathBuf,
}

impl DagmanFiles {
    fn for_unit(run: &Path, unit: Option<u32>) -> Self {
        let (directory, dag, status, jobstate) = match unit {
            Some(unit) => (
                run.join(WorkUnitName(unit).to_string()),
                file_layout::GROUP_DAG,
                file_layout::GROUP_STATUS,
                file_layout::GROUP_JOBSTATE,
            ),
            None => (
                run.to_owned(),
                file_layout::OUTER_DAG,
                file_layout::OUTER_STATUS,
                file_layout::OUTER_JOBSTATE,
            ),
        };
        Self {
            status: directory.join(status),
            jobstate: directory.join(jobstate),
            events: directory.join(format!("{dag}{}", file_layout::NODES_LOG_SUFFIX)),
            dagman_out: directory.join(format!("{dag}{}", file_layout::DAGMAN_OUT_SUFFIX)),
            directory,
        }
    }

    fn read_status(&self) -> io::Result<Option<node_status::DagStatusFile>> {
        Ok(none_if_missing(std::fs::read(&self.status))?
            .and_then(|file| node_status::parse_status_file(&file)))
    }
}

impl DagNodeView {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: DagNodeState::Waiting,
            attempts: 0,
            cluster: None,
            site: None,
            held: None,
            details: String::new(),
            since: None,
        }
    }
}

fn view_from_status(node: &node_status::CondorNodeStatus) -> DagNodeView {
    let state = match node.state {
        node_status::CondorNodeState::NotReady | node_status::CondorNodeState::Ready => DagNodeState::Waiting,
        node_status::CondorNodeState::Pre => DagNodeState::Pre,
        node_status::CondorNodeState::Submitted if node.held_jobs > 0 => DagNodeState::Held,
        node_status::CondorNodeState::Submitted if node.details == "idle" => DagNodeState::Idle,
        node_status::CondorNodeState::Submitted => DagNodeState::Running,
        node_status::CondorNodeState::Post => DagNodeState::Post,
        node_status::CondorNodeState::Done => DagNodeState::Done,
        node_status::CondorNodeState::Error if node.was_stopped() => DagNodeState::Stopped,
        node_status::CondorNodeState::Error => DagNodeState::Failed,
        node_status::CondorNodeState::Futile => DagNodeState::Futile,
    };
    DagNodeView { state, details: node.details.clone(), ..DagNodeView::new(&node.name) }
}

/// The state of each node according to the job state log.
struct NodeHistories<'a>(HashMap<&'a str, NodeHistory>);

#[derive(Clone, Copy, Default)]
struct NodeHistory {
    /// The position of its first line, for sorting.
    first: usize,
    state: Option<DagNodeState>,
    attempts: u32,
    sequence: Option<u64>,
    cluster: Option<u64>,
    since: i64,
}

impl<'a> NodeHistories<'a> {
    fn from_log(log: &'a [u8]) -> Self {
        let mut lives: HashMap<&str, NodeHistory> = HashMap::new();
        let mut dagman = None;
        for (number, line) in jobstate::parse_lines(log).enumerate() {
            match line.entry {
                // A rescue may number its attempts from 1 again.
                JobstateEntry::Started { cluster } if dagman.replace(cluster) != Some(cluster) => {
                    for life in lives.values_mut() {
                        life.sequence = None;
                    }
                }
                JobstateEntry::Node(node) => {
                    let life = lives
                        .entry(node.node)
                        .or_insert(NodeHistory { first: number, ..NodeHistory::default() });
                    life.apply_line(&node, line.at);
                }
                _ => {}
            }
        }
        Self(lives)
    }

    /// In the order in which they started.
    fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = self.0.keys().copied().collect();
        names.sort_unstable_by_key(|name| self.0[name].first);
        names
    }
}

impl NodeHistory {
    fn apply_line(&mut self, line: &JobstateNodeLine<'_>, at: i64) {
        if self.sequence.replace(line.sequence) != Some(line.sequence) {
            self.attempts += 1;
        }
        self.cluster = line.cluster.or(self.cluster);
        self.since = at;
        self.state = match line.step {
            JobstateStep::PreStarted => Some(DagNodeState::Pre),
            JobstateStep::Submitted | JobstateStep::Evicted | JobstateStep::Released => {
                Some(DagNodeState::Idle)
            }
            JobstateStep::Executing => Some(DagNodeState::Running),
            JobstateStep::Held => Some(DagNodeState::Held),
            JobstateStep::PostStarted => Some(DagNodeState::Post),
            JobstateStep::PostSucceeded => Some(DagNodeState::Done),
            // After a failure it may wait for the next attempt: only the status file knows which nodes failed
            // for good.
            JobstateStep::PreSucceeded
            | JobstateStep::SubmitFailed
            | JobstateStep::PreFailed
            | JobstateStep::PostFailed => Some(DagNodeState::Waiting),
            JobstateStep::Terminated
            | JobstateStep::Aborted
            | JobstateStep::JobSucceeded
            | JobstateStep::JobFailed(_)
            | JobstateStep::Other => self.state,
        };
    }

    /// The log is newer than the status file, except that only the status file has the end of stopped nodes, of
    /// nodes that will not be retried, and of nodes that a recovery of DAGMan omitted from the log.
    fn update_view(self, view: &mut DagNodeView) {
        view.attempts = self.attempts;
        view.cluster = self.cluster;
        view.since = Some(self.since);
        let ended = matches!(
            view.state,
            DagNodeState::Done | DagNodeState::Failed | DagNodeState::Stopped | DagNodeState::Futile
        );
        if let Some(state) = self.state.filter(|_| !ended) {
            view.state = state;
        }
    }
}

/// Where jobs last ran, and why they were held, by cluster.
struct JobLocations(HashMap<u64, JobLocation>);

#[derive(Default)]
struct JobLocation {
    site: Option<String>,
    hold: Option<JobHold>,
}

impl JobLocations {
    fn from_log(log: &[u8]) -> Self {
        let mut places: HashMap<u64, JobLocation> = HashMap::new();
        for event in events::parse_events(log) {
            match event.kind {
                CondorEventKind::Executing { mut attributes, .. } => {
                    places.entry(event.cluster).or_default().site = attributes.remove(SITE_ATTRIBUTE);
                }
                CondorEventKind::Held(hold) => places.entry(event.cluster).or_default().hold = Some(hold),
                _ => {}
            }
        }
        Self(places)
    }

    fn update_view(&self, view: &mut DagNodeView) {
        let Some(place) = view.cluster.and_then(|cluster| self.0.get(&cluster)) else { return };
        view.site.clone_from(&place.site);
        if view.state == DagNodeState::Held {
            view.held.clone_from(&place.hold);
        }
    }
}

#[cfg(test)]
mod tests;
