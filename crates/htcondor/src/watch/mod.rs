//! Follows a running DAG from where it was last read.
//!
//! [`DagPoller`] reads what DAGMan writes into the directory of a run and runs no commands: polling a run with
//! thousands of nodes costs a few system calls if nothing has happened. The states of single nodes are not kept;
//! `nodes` reads them on request.
//!
//! | file | what it is read for |
//! |---|---|
//! | `workflow.dag.dagman.log` | whether DAGMan is in the queue, held, removed, ended |
//! | `workflow.dag.metrics` | the outcome |
//! | `workflow.jobstate` | which units have ended: read as it grows |
//! | `workflow.status` | units missing from the log, since DAGMan may omit lines when it recovers |
//! | `mg_N/group.status` | how many nodes are done, running, held: the heads of those that run |
//! | `workflow.dag.dagman.out` | why the DAG was rejected |
//! | `attempts.jsonl` | failed attempts, and how many ended at each site: read as it grows |
//!
//! *Sequence numbers* ([`UnitUpdate::seq`]) are derived from the position of a line in the job state log, to
//! which DAGMan only appends, in rescues too. A consumer that stores the last number it has handled loses no
//! update and sees few twice, even if either process dies in between.

mod attempt_reader;
mod cached_files;
mod dag_state;
mod growing_log;
mod nodes;
mod unit_counts;
mod unit_states;

pub use attempt_reader::FailedNodeAttempt;
pub use dag_state::{DagOutcome, DagState};
pub use nodes::{
    DagNodeLogs, DagNodeState, DagNodeView, FailedDagNode, HeldDagNode, SITE_ATTRIBUTE, find_node_logs,
    list_failed_nodes, list_nodes,
};

use self::attempt_reader::AttemptReader;
use self::cached_files::{CachedFile, read_end, read_whole};
use self::dag_state::{DagEvidence, DagStateDecision, DagmanQueueState, decide_dag_state};
use self::growing_log::{GrowingLogItem, GrowingLogReader};
use self::nodes::list_held_nodes;
use self::unit_counts::{UnitCounts, count_failed, node_counts, read_dag_status};
use self::unit_states::UnitStates;
use crate::file_layout;
use crate::parsers::events::{self, CondorEvent, JobHold};
use crate::parsers::metrics::{self, DagMetrics};
use crate::parsers::node_status::{self, DagStatus};
use crate::parsers::{dagman_out, jobstate};
use crate::pause;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use windlass_core::requests::failures::RoleCounts;
use windlass_core::requests::rows::NodeCounts;
use windlass_types::requests::{RequestUnitStatus, WorkUnitName};

/// How much of the end of DAGMan's log is read: it grows while DAGMan runs, and that of a rejected DAG is short.
const DAGMAN_OUT_TAIL_BYTES: u64 = 1024 * 1024;
/// Room between the numbers of two lines for updates without a line.
const SEQUENCE_SHIFT: u32 = 20;

/// Follows the DAG in the directory of a run.
#[derive(Debug)]
pub struct DagPoller {
    run: PathBuf,
    /// The DAGMan to follow. `None`: the one that was submitted last.
    cluster: Option<u64>,
    has_units: bool,
    dagman_events: CachedFile<Vec<CondorEvent>>,
    metrics: CachedFile<DagMetrics>,
    status: CachedFile<DagStatus>,
    tail: GrowingLogReader,
    unit_states: UnitStates,
    unit_counts: UnitCounts,
    /// `None`: attempts are not needed.
    attempts: Option<AttemptReader>,
    unit_updates: Vec<UnitUpdate>,
    /// The number of the last update that was returned, here or before a restart.
    last_reported: i64,
    /// Added to numbers, so that they keep increasing although the log was replaced.
    sequence_offset: i64,
}

/// The current state and the updates since the last poll.
#[derive(Clone, Debug, PartialEq)]
pub struct DagSnapshot {
    pub state: DagState,
    /// The cluster id of the DAGMan.
    pub cluster: Option<u64>,
    /// Why DAGMan itself is held, if it is.
    pub dagman_held: Option<JobHold>,
    /// The run is paused: no more nodes start.
    pub is_paused: bool,
    /// Nodes inside the units that have started; those of other units are not counted here.
    pub counts: NodeCounts,
    /// Units that ended since the last poll, ascending.
    pub units: Vec<UnitUpdate>,
    /// Including those of runs before a rescue.
    pub units_completed: u32,
    /// In this run.
    pub units_failed: u32,
    /// Attempts that failed since the last poll, ascending.
    pub failed_attempts: Vec<FailedNodeAttempt>,
    /// How many attempts have ended at each site, in all runs of this directory.
    pub ended_by_site: BTreeMap<String, RoleCounts>,
    /// Jobs of landed units that run now, by the site of the unit.
    pub running_by_site: BTreeMap<String, u64>,
    /// Nodes that are held now.
    pub held_nodes: Vec<HeldDagNode>,
    /// Why a file could not be read. The other fields are then those of the last poll.
    pub read_error: Option<String>,
}

impl DagSnapshot {
    /// What waits for an operator and why, as text.
    pub fn describe_held(&self) -> Vec<String> {
        let dagman = self.dagman_held.iter().map(|hold| format!("DAGMan is held: {hold}"));
        // Holding DAGMan also pauses the run.
        let is_paused = self.is_paused && self.dagman_held.is_none();
        let paused = is_paused.then(|| "it is paused: none of its nodes start".to_owned());
        let nodes = self.held_nodes.iter().map(|held| {
            let unit = held.unit.map(|unit| format!("{}/", WorkUnitName(unit))).unwrap_or_default();
            format!("{unit}{} is held: {}", held.node, held.hold)
        });
        dagman.chain(paused).chain(nodes).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitUpdate {
    /// Increases with each update, also across restarts and rescues. A completed unit may be reported twice, with
    /// different numbers.
    pub seq: i64,
    pub number: u32,
    /// `Completed` or `Failed`. A rescue may complete a failed unit.
    pub status: RequestUnitStatus,
}

impl DagPoller {
    /// Follows the DAGMan that was last submitted there, from the beginning.
    pub fn new(run: &Path) -> Self {
        Self::for_cluster(run, None, 0)
    }

    /// Follows a certain DAGMan, so that the end of an earlier run is not taken for its own, and returns only
    /// updates after `last_reported`.
    pub fn for_cluster(run: &Path, cluster: Option<u64>, last_reported: i64) -> Self {
        Self {
            run: run.to_owned(),
            cluster,
            has_units: file_layout::unit_directory(run, 0).is_dir(),
            dagman_events: CachedFile::default(),
            metrics: CachedFile::default(),
            status: CachedFile::default(),
            tail: GrowingLogReader::new(run.join(file_layout::OUTER_JOBSTATE)),
            unit_states: UnitStates::default(),
            unit_counts: UnitCounts::new(run),
            attempts: Some(AttemptReader::new(run)),
            unit_updates: Vec::new(),
            last_reported,
            sequence_offset: 0,
        }
    }

    /// Returns only failed attempts after `last_reported`.
    #[must_use]
    pub fn with_failures_after(mut self, last_reported: i64) -> Self {
        if let Some(attempts) = &mut self.attempts {
            attempts.report_after(last_reported);
        }
        self
    }

    /// For callers that need only the state: attempts are not read, of which there may be a hundred thousand.
    #[must_use]
    pub fn without_attempts(mut self) -> Self {
        self.attempts = None;
        self
    }

    /// The units that failed in the last run of this DAG, among those read so far.
    pub(crate) fn failed_units(&self) -> impl Iterator<Item = u32> {
        let is_failed =
            |(unit, status): (u32, RequestUnitStatus)| (status == RequestUnitStatus::Failed).then_some(unit);
        self.unit_states.units().filter_map(is_failed)
    }

    /// Whether the newest rescue file is of the last run: false if that run was removed while held, or was
    /// lost.
    pub(crate) fn has_current_rescue(&self) -> bool {
        self.unit_states.dagman().is_none() || self.unit_states.is_finished()
    }

    /// Reads what has changed. Never fails: unreadable state is `Unknown`, and the next poll tries again.
    pub fn poll(&mut self) -> DagSnapshot {
        let (state, mut problem) = match self.poll_dag() {
            Ok(state) => (state, None),
            Err(error) => (DagState::Unknown, Some(error.to_string())),
        };
        let over = matches!(state, DagState::Over(_));
        let counted = self.count_nodes(over);
        let (counts, held) = counted.unwrap_or_else(|error| {
            problem.get_or_insert(error.to_string());
            (self.unit_counts.counts(), Vec::new())
        });
        // After the state: a DAG that has ended adds no more attempts.
        if let Err(error) = self.read_attempts() {
            problem.get_or_insert(error.to_string());
        }
        let told = self.last_reported;
        self.last_reported = self.unit_updates.iter().map(|update| update.seq).fold(told, i64::max);
        DagSnapshot {
            state,
            cluster: self.current_cluster(),
            dagman_held: self.dagman_held(),
            is_paused: pause::is_paused(&self.run),
            counts,
            units: self.unit_updates.drain(..).filter(|update| update.seq > told).collect(),
            units_completed: self.unit_states.completed(),
            units_failed: self.unit_states.failed(),
            failed_attempts: self.attempts.as_mut().map(AttemptReader::take_new_failures).unwrap_or_default(),
            ended_by_site: self
                .attempts
                .as_ref()
                .map(|attempts| attempts.ended_by_site().clone())
                .unwrap_or_default(),
            running_by_site: self.unit_counts.running_by_site(),
            held_nodes: held,
            read_error: problem,
        }
    }

    fn read_attempts(&mut self) -> io::Result<()> {
        let Some(attempts) = &mut self.attempts else { return Ok(()) };
        attempts.read_new_lines()?;
        let is_over = |unit| {
            matches!(self.unit_states.status(unit), RequestUnitStatus::Completed | RequestUnitStatus::Failed)
        };
        attempts.forget_units(is_over);
        Ok(())
    }

    fn poll_dag(&mut self) -> Result<DagState, UnreadableFile> {
        let file = |suffix: &str| self.run.join(format!("{}{suffix}", file_layout::OUTER_DAG));
        let (log, metrics) = (file(file_layout::DAGMAN_LOG_SUFFIX), file(file_layout::METRICS_SUFFIX));
        let status = self.run.join(file_layout::OUTER_STATUS);
        std::fs::metadata(&self.run).map_err(unreadable_file(&self.run))?;
        self.dagman_events
            .refresh(&log, |path| Ok(Some(events::parse_events(&read_whole(path)?))))
            .map_err(unreadable_file(&log))?;
        self.status.refresh(&status, read_dag_status).map_err(unreadable_file(&status))?;
        self.read_log()?;
        self.metrics
            .refresh(&metrics, |path| Ok(metrics::parse_metrics(&read_whole(path)?)))
            .map_err(unreadable_file(&metrics))?;
        let state = self.decide_state()?;
        if matches!(state, DagState::Over(_)) {
            // Lines that were written between reading the log and the end of the DAG: now the log is complete.
            self.read_log()?;
        }
        self.complete_from_status(&status).map_err(unreadable_file(&status))?;
        self.check_all_reported(&state)?;
        Ok(state)
    }

    fn decide_state(&self) -> Result<DagState, UnreadableFile> {
        let cluster = self.current_cluster();
        let metrics = self.metrics.get().filter(|metrics| cluster.is_some() && metrics.cluster == cluster);
        let evidence = DagEvidence {
            dagman: self.dagman_state(),
            metrics,
            has_begun: cluster.is_some() && self.unit_states.dagman() == cluster,
            status: self.status.get(),
        };
        match decide_dag_state(&evidence) {
            DagStateDecision::State(state) => Ok(state),
            DagStateDecision::ReadDagmanOut { without_metrics } => {
                let path =
                    self.run.join(format!("{}{}", file_layout::OUTER_DAG, file_layout::DAGMAN_OUT_SUFFIX));
                let words = read_end(&path, DAGMAN_OUT_TAIL_BYTES).map_err(unreadable_file(&path))?;
                let outcome =
                    dag_state::outcome_from_dagman_out(&dagman_out::parse_last_run(&words), without_metrics);
                let missing = || io::Error::other("DAGMan has ended; its outcome is not visible yet");
                outcome.map(DagState::Over).ok_or_else(missing).map_err(unreadable_file(&path))
            }
        }
    }

    /// The DAGMan to follow.
    fn current_cluster(&self) -> Option<u64> {
        let submitted = || dag_state::last_submitted_cluster(self.dagman_events.get()?);
        self.cluster.or_else(submitted).or(self.unit_states.dagman())
    }

    fn dagman_state(&self) -> Option<DagmanQueueState> {
        dag_state::last_dagman_queue_state(self.dagman_events.get()?, self.current_cluster()?)
    }

    fn dagman_held(&self) -> Option<JobHold> {
        match self.dagman_state()? {
            DagmanQueueState::Held(hold) => Some(hold),
            _ => None,
        }
    }

    fn read_log(&mut self) -> Result<(), UnreadableFile> {
        let Self {
            tail,
            unit_states: ledger,
            unit_counts: groups,
            unit_updates: updates,
            last_reported: told,
            sequence_offset: shift,
            run,
            ..
        } = self;
        let outcome = tail.read_new(|piece| match piece {
            GrowingLogItem::Replaced => {
                *ledger = UnitStates::default();
                *groups = UnitCounts::new(run);
                *shift = updates.iter().map(|update: &UnitUpdate| update.seq).fold(*told, i64::max);
            }
            GrowingLogItem::Line { end, text } => {
                let over = jobstate::parse_line(text).and_then(|line| ledger.apply_line(&line));
                if let Some((number, status)) = over {
                    updates.push(UnitUpdate {
                        seq: shift.saturating_add(sequence_number(end)),
                        number,
                        status,
                    });
                    if status == RequestUnitStatus::Completed {
                        groups.on_unit_completed(number);
                    }
                }
            }
        });
        outcome.map_err(unreadable_file(self.tail.path()))?;
        self.has_units |= self.unit_states.units().next().is_some();
        self.detect_replaced_log();
        Ok(())
    }

    /// The last reported line lies beyond the end of the log: the log was replaced, and all of it is new.
    fn detect_replaced_log(&mut self) {
        if self.sequence_offset == 0
            && self.tail.offset() > 0
            && self.last_reported >= sequence_number(self.tail.offset() + 1)
        {
            self.sequence_offset = self.last_reported;
            for update in &mut self.unit_updates {
                update.seq = update.seq.saturating_add(self.sequence_offset);
            }
        }
    }

    /// The status file was read before the log. If it has more completed units, lines of the log were lost.
    fn complete_from_status(&mut self, path: &Path) -> io::Result<()> {
        let done = self.status.get().map_or(0, |head| head.done);
        if !self.has_units || done <= u64::from(self.unit_states.completed()) {
            return Ok(());
        }
        let Some(status) = node_status::parse_status_file(&read_whole(path)?) else { return Ok(()) };
        let done = status.nodes.iter().filter(|node| node.state == node_status::CondorNodeState::Done);
        for unit in done.filter_map(|node| file_layout::unit_number(&node.name)) {
            if self.unit_states.mark_completed(unit) {
                self.unit_counts.on_unit_completed(unit);
                let last =
                    self.unit_updates.iter().map(|update| update.seq).fold(self.last_reported, i64::max);
                let seq = last
                    .max(self.sequence_offset.saturating_add(sequence_number(self.tail.offset())))
                    .saturating_add(1);
                self.unit_updates.push(UnitUpdate {
                    seq,
                    number: unit,
                    status: RequestUnitStatus::Completed,
                });
            }
        }
        Ok(())
    }

    /// The end of a DAG is reported only after all of its units.
    fn check_all_reported(&self, state: &DagState) -> Result<(), UnreadableFile> {
        let by_status = || self.status.get().filter(|_| self.has_units).map(|head| head.done);
        let by_metrics = self.metrics.get().map(|metrics| metrics.dags.succeeded);
        let done = by_metrics.or_else(by_status).unwrap_or_default();
        let known = self.unit_states.completed();
        if *state != DagState::Over(DagOutcome::Completed) || done <= u64::from(known) {
            return Ok(());
        }
        let lost = format!("DAGMan reports {done} completed units, but only {known} of them can be found");
        Err(unreadable_file(self.tail.path())(io::Error::other(lost)))
    }

    fn count_nodes(&mut self, over: bool) -> io::Result<(NodeCounts, Vec<HeldDagNode>)> {
        if self.has_units {
            self.unit_counts.refresh(&self.unit_states, over)?;
            return Ok((self.unit_counts.counts(), self.unit_counts.held().cloned().collect()));
        }
        let Some(head) = self.status.get() else { return Ok(Default::default()) };
        let counts = node_counts(head, count_failed(&self.run, file_layout::OUTER_DAG, head)?);
        let held = if counts.held > 0 { list_held_nodes(&self.run, None)? } else { Vec::new() };
        Ok((counts, held))
    }
}

fn sequence_number(end: u64) -> i64 {
    i64::try_from(end).ok().and_then(|end| end.checked_mul(1 << SEQUENCE_SHIFT)).unwrap_or(i64::MAX)
}

/// A file that exists, or should exist, and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
struct UnreadableFile {
    path: PathBuf,
    source: io::Error,
}

fn unreadable_file(path: &Path) -> impl FnOnce(io::Error) -> UnreadableFile {
    let path = path.to_owned();
    move |source| UnreadableFile { path, source }
}

#[cfg(test)]
mod tests;
