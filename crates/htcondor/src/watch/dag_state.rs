//! PURE: whether a DAG has ended, and with which outcome.
//!
//! The metrics are the best source, but a rejected DAG leaves none, and those of the previous run stay until a
//! rescue ends. So all facts are collected for one cluster, the one that is watched.

use crate::parsers::dagman_out::DagmanLastRun;
use crate::parsers::events::{CondorEvent, CondorEventKind, JobExit, JobHold};
use crate::parsers::metrics::{DagEnd, DagMetrics};
use crate::parsers::node_status;

/// The state of a DAG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DagState {
    /// Nothing is known of it yet.
    NotYet,
    /// It is in the queue; held or not.
    Running,
    Over(DagOutcome),
    /// Its files cannot be read. It may be running.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DagOutcome {
    Completed,
    /// Nodes failed; all others are done or cannot run.
    Failed,
    /// A node aborted the DAG.
    Aborted,
    /// A user removed it.
    Removed,
    /// It was rejected, or ended for a reason other than its nodes.
    Broken(String),
}

/// The schedd's record of the DAGMan job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DagmanQueueState {
    Queued,
    Running,
    Held(JobHold),
    Ended(JobExit),
    Removed,
}

/// The last state of a cluster in the log. `None`: the log does not mention it.
pub(super) fn last_dagman_queue_state(events: &[CondorEvent], cluster: u64) -> Option<DagmanQueueState> {
    let events = events.iter().rev().filter(|event| event.cluster == cluster);
    events.map(|event| &event.kind).find_map(|what| match what {
        CondorEventKind::Submitted { .. } | CondorEventKind::Released { .. } => {
            Some(DagmanQueueState::Queued)
        }
        CondorEventKind::Executing { .. } => Some(DagmanQueueState::Running),
        CondorEventKind::Terminated { exit, .. } => Some(DagmanQueueState::Ended(*exit)),
        CondorEventKind::Aborted { .. } => Some(DagmanQueueState::Removed),
        CondorEventKind::Held(hold) => Some(DagmanQueueState::Held(hold.clone())),
        // It is held, removed or restarted next; that event has the details.
        CondorEventKind::Evicted { .. }
        | CondorEventKind::PostScript { .. }
        | CondorEventKind::Other { .. } => None,
    })
}

/// The cluster that was submitted last.
pub(super) fn last_submitted_cluster(events: &[CondorEvent]) -> Option<u64> {
    events
        .iter()
        .rev()
        .find(|event| matches!(event.kind, CondorEventKind::Submitted { .. }))
        .map(|event| event.cluster)
}

/// All facts about one cluster.
pub(super) struct DagEvidence<'a> {
    pub(super) dagman: Option<DagmanQueueState>,
    /// Its own, not those of an earlier run.
    pub(super) metrics: Option<&'a DagMetrics>,
    /// Its log says that it has started.
    pub(super) has_begun: bool,
    pub(super) status: Option<&'a node_status::DagStatus>,
}

pub(super) enum DagStateDecision {
    State(DagState),
    /// It ended, and only its log for people has the reason. `without_metrics` is the exit of its job, if it
    /// seems to have left no metrics.
    ReadDagmanOut {
        without_metrics: Option<JobExit>,
    },
}

/// DAGMan exits like this when it is held or its machine shuts down: it will be restarted.
pub(super) const RESTART_EXIT_CODE: i32 = 3;

pub(super) fn decide_dag_state(evidence: &DagEvidence<'_>) -> DagStateDecision {
    if let Some(metrics) = evidence.metrics.filter(|metrics| metrics.exit_code != RESTART_EXIT_CODE) {
        return match outcome_from_metrics(metrics.end, metrics.exit_code) {
            Some(outcome) => DagStateDecision::State(DagState::Over(outcome)),
            None => DagStateDecision::ReadDagmanOut { without_metrics: None },
        };
    }
    match &evidence.dagman {
        Some(DagmanQueueState::Removed) => DagStateDecision::State(DagState::Over(DagOutcome::Removed)),
        // No metrics although it ended: rejected, or the disk was full.
        Some(DagmanQueueState::Ended(exit)) => {
            // A status file older than its start belongs to another run.
            let status = evidence.status.filter(|_| evidence.has_begun);
            status
                .and_then(decide_from_status)
                .unwrap_or(DagStateDecision::ReadDagmanOut { without_metrics: Some(*exit) })
        }
        Some(DagmanQueueState::Queued | DagmanQueueState::Running | DagmanQueueState::Held(_)) => {
            DagStateDecision::State(DagState::Running)
        }
        None if evidence.has_begun => DagStateDecision::State(DagState::Running),
        None => DagStateDecision::State(DagState::NotYet),
    }
}

/// Prefers the status over the exit code, which a FINAL node may have changed. `None`: the metrics do not say
/// why.
fn outcome_from_metrics(end: DagEnd, exit: i32) -> Option<DagOutcome> {
    match end {
        DagEnd::Ok if exit == 0 => Some(DagOutcome::Completed),
        DagEnd::NodeFailed => Some(DagOutcome::Failed),
        DagEnd::Aborted => Some(DagOutcome::Aborted),
        DagEnd::Removed => Some(DagOutcome::Removed),
        DagEnd::Cycle => Some(DagOutcome::Broken("its nodes depend on each other in a cycle".to_owned())),
        DagEnd::Ok | DagEnd::Error | DagEnd::Halted | DagEnd::Other(_) => None,
    }
}

/// The status file of a DAG that ended without metrics. Ignored if it was written while the DAG was running.
fn decide_from_status(head: &node_status::DagStatus) -> Option<DagStateDecision> {
    let outcome = match (head.state, head.reason.as_str()) {
        (node_status::CondorNodeState::Done, "success") if head.done == head.total => DagOutcome::Completed,
        (node_status::CondorNodeState::Error, "failed") => DagOutcome::Failed,
        (node_status::CondorNodeState::Error, "aborted") => DagOutcome::Aborted,
        (node_status::CondorNodeState::Error, "removed") => DagOutcome::Removed,
        _ => return None,
    };
    Some(DagStateDecision::State(DagState::Over(outcome)))
}

/// Why DAGMan ended, according to its log. `None` while the log does not agree with the exit of its job: on a
/// shared file system, its last lines may become visible after those of the schedd.
pub(super) fn outcome_from_dagman_out(
    words: &DagmanLastRun,
    without_metrics: Option<JobExit>,
) -> Option<DagOutcome> {
    match without_metrics {
        Some(JobExit::Signal(signal)) => {
            Some(DagOutcome::Broken(format!("DAGMan was killed by signal {signal}")))
        }
        Some(JobExit::Code(_)) if words.exit_code.is_none() || words.has_metrics => None,
        _ if words.errors.is_empty() => {
            let exit = words.exit_code.map_or_else(String::new, |exit| format!(" with status {exit}"));
            Some(DagOutcome::Broken(format!("DAGMan ended{exit} and did not log why")))
        }
        _ => Some(DagOutcome::Broken(words.errors.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::{events, metrics};

    fn state(evidence: &DagEvidence<'_>) -> Option<DagState> {
        match decide_dag_state(evidence) {
            DagStateDecision::State(state) => Some(state),
            DagStateDecision::ReadDagmanOut { .. } => None,
        }
    }

    fn with(metrics: Option<&DagMetrics>, life: Option<DagmanQueueState>) -> Option<DagState> {
        state(&DagEvidence { dagman: life, metrics, has_begun: false, status: None })
    }

    fn ended(end: DagEnd, exit: i32) -> DagMetrics {
        let sample = include_bytes!("../../tests/data/workflow.dag.metrics.failed");
        DagMetrics { exit_code: exit, end, ..metrics::parse_metrics(sample).unwrap() }
    }

    #[test]
    fn metrics_give_the_outcome() {
        let over = |end, exit| with(Some(&ended(end, exit)), Some(DagmanQueueState::Running));
        assert_eq!(over(DagEnd::Ok, 0), Some(DagState::Over(DagOutcome::Completed)));
        assert_eq!(over(DagEnd::NodeFailed, 1), Some(DagState::Over(DagOutcome::Failed)));
        assert_eq!(
            over(DagEnd::NodeFailed, 0),
            Some(DagState::Over(DagOutcome::Failed)),
            "a FINAL node succeeded"
        );
        assert_eq!(over(DagEnd::Aborted, 1), Some(DagState::Over(DagOutcome::Aborted)));
        assert_eq!(over(DagEnd::Removed, 2), Some(DagState::Over(DagOutcome::Removed)));
        assert!(matches!(over(DagEnd::Cycle, 1), Some(DagState::Over(DagOutcome::Broken(_)))));
        assert_eq!(over(DagEnd::Ok, 1), None, "they do not agree");
        assert_eq!(over(DagEnd::Ok, 3), Some(DagState::Running), "held: it continues when it is released");
    }

    #[test]
    fn dagman_events_give_the_state_without_metrics() {
        let hold = JobHold { reason: "via condor_hold".into(), code: 1, subcode: 0 };
        for there in [DagmanQueueState::Queued, DagmanQueueState::Running, DagmanQueueState::Held(hold)] {
            assert_eq!(with(None, Some(there)), Some(DagState::Running));
        }
        assert_eq!(with(None, Some(DagmanQueueState::Removed)), Some(DagState::Over(DagOutcome::Removed)));
        assert_eq!(with(None, Some(DagmanQueueState::Ended(JobExit::Code(1)))), None, "its log is needed");
        assert_eq!(with(None, None), Some(DagState::NotYet));
        let begun = DagEvidence { dagman: None, metrics: None, has_begun: true, status: None };
        assert_eq!(state(&begun), Some(DagState::Running));
    }

    #[test]
    fn status_file_gives_the_outcome_without_metrics() {
        let head = |text: &[u8]| node_status::parse_dag_status(text).unwrap();
        let done = head(include_bytes!("../../tests/data/group.dag.status.done"));
        let removed = head(include_bytes!("../../tests/data/workflow.dag.status.removed"));
        let running = head(include_bytes!("../../tests/data/workflow.dag.status.running"));
        let by = |head, exit| {
            let life = Some(DagmanQueueState::Ended(JobExit::Code(exit)));
            state(&DagEvidence { dagman: life, metrics: None, has_begun: true, status: Some(head) })
        };
        assert_eq!(by(&done, 0), Some(DagState::Over(DagOutcome::Completed)));
        assert_eq!(by(&removed, 2), Some(DagState::Over(DagOutcome::Removed)));
        assert_eq!(by(&running, 0), None, "it is older than the end");
        let half = node_status::DagStatus { done: 1, ..done.clone() };
        assert_eq!(by(&half, 0), None, "never done before all are");
        let life = Some(DagmanQueueState::Ended(JobExit::Code(1)));
        let stale = DagEvidence { dagman: life, metrics: None, has_begun: false, status: Some(&removed) };
        assert_eq!(state(&stale), None, "it belongs to the previous run");
    }

    #[test]
    fn state_of_dagman_follows_its_events() {
        let log = events::parse_events(include_bytes!("../../tests/data/dagman.log.hold-release"));
        let at = |count: usize| last_dagman_queue_state(&log[..count], 54);
        assert_eq!(last_submitted_cluster(&log), Some(54));
        assert_eq!(at(1), Some(DagmanQueueState::Queued));
        assert_eq!(at(2), Some(DagmanQueueState::Running));
        assert_eq!(at(3), Some(DagmanQueueState::Running), "evicted: the next event says why");
        assert!(matches!(at(4), Some(DagmanQueueState::Held(hold)) if hold.code == 1));
        assert_eq!(at(5), Some(DagmanQueueState::Queued));
        assert_eq!(at(log.len()), Some(DagmanQueueState::Removed));
        assert_eq!(last_dagman_queue_state(&log, 55), None);
        let requeued = events::parse_events(include_bytes!("../../tests/data/dagman.log.requeued-43"));
        assert_eq!(
            last_dagman_queue_state(&requeued[..3], 142),
            Some(DagmanQueueState::Running),
            "it was put back into the queue"
        );
    }

    #[test]
    fn reasons_quote_the_dagman_output() {
        let words = |exit, errors: &[&str], wrote_metrics| DagmanLastRun {
            exit_code: exit,
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
            has_metrics: wrote_metrics,
        };
        let broken = |reason: &str| Some(DagOutcome::Broken(reason.to_owned()));
        let one = Some(JobExit::Code(1));
        let refused = words(Some(1), &["a (line 2): ERROR", "Failed to parse a"], false);
        assert_eq!(outcome_from_dagman_out(&refused, one), broken("a (line 2): ERROR; Failed to parse a"));
        let silent = words(Some(1), &[], false);
        assert_eq!(
            outcome_from_dagman_out(&silent, one),
            broken("DAGMan ended with status 1 and did not log why")
        );
        assert_eq!(
            outcome_from_dagman_out(&words(None, &[], false), one),
            None,
            "its last lines are not visible yet"
        );
        assert_eq!(
            outcome_from_dagman_out(&words(Some(0), &[], true), Some(JobExit::Code(0))),
            None,
            "its metrics are not visible yet"
        );
        let odd = words(Some(1), &["ERROR: halted"], true);
        assert_eq!(
            outcome_from_dagman_out(&odd, None),
            broken("ERROR: halted"),
            "they are visible and do not say why"
        );
        assert_eq!(
            outcome_from_dagman_out(&words(None, &[], false), Some(JobExit::Signal(11))),
            broken("DAGMan was killed by signal 11")
        );
    }
}
