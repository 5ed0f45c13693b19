//! PURE: whether a DAG is over, and how it went.
//!
//! The metrics say it best, but a DAG that was not accepted leaves none, and those of the run before a rescue stay until
//! the rescue ends. So everything is asked about one cluster, the one that is watched.

use crate::read::dagman_out::LastRun;
use crate::read::events::{Event, Exit, Hold, What};
use crate::read::metrics::{End, Metrics};
use crate::read::status;

/// How a DAG is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DagState {
    /// Nothing is known of it yet.
    NotYet,
    /// It is in the queue; held or not.
    Running,
    Over(Outcome),
    /// Its files cannot be read. It may be well.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    /// Nodes failed, all others are done or cannot be.
    Failed,
    /// A node asked for its end.
    Aborted,
    /// Somebody removed it.
    Removed,
    /// It was not accepted, or ended for another reason than its nodes.
    Broken(String),
}

/// What the schedd wrote about the job that DAGMan is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Queued,
    Running,
    Held(Hold),
    Ended(Exit),
    Removed,
}

/// The last that its log says of a cluster. `None`: nothing.
pub(super) fn life(events: &[Event], cluster: u64) -> Option<Life> {
    let events = events.iter().rev().filter(|event| event.cluster == cluster);
    events.map(|event| &event.what).find_map(|what| match what {
        What::Submitted { .. } | What::Released { .. } => Some(Life::Queued),
        What::Executing { .. } => Some(Life::Running),
        What::Terminated { exit, .. } => Some(Life::Ended(*exit)),
        What::Aborted { .. } => Some(Life::Removed),
        What::Held(hold) => Some(Life::Held(hold.clone())),
        // It is held, removed or begun again next, which says more.
        What::Evicted { .. } | What::PostScript { .. } | What::Other { .. } => None,
    })
}

/// The cluster that was submitted last.
pub(super) fn last_submitted(events: &[Event]) -> Option<u64> {
    events.iter().rev().find(|event| matches!(event.what, What::Submitted { .. })).map(|event| event.cluster)
}

/// All that is known about one cluster.
pub(super) struct Evidence<'a> {
    pub(super) life: Option<Life>,
    /// Its own, not those of a run before it.
    pub(super) metrics: Option<&'a Metrics>,
    /// It says that it has begun.
    pub(super) begun: bool,
    pub(super) status: Option<&'a status::Head>,
}

pub(super) enum Verdict {
    State(DagState),
    /// It ended, and only what it said for people tells why. `without_metrics` is how its job ended, where it seems to
    /// have left none.
    ReadItsWords {
        without_metrics: Option<Exit>,
    },
}

/// DAGMan exits so when it is held or its machine goes down: it will be started again.
pub(super) const WILL_GO_ON: i32 = 3;

pub(super) fn judge(evidence: &Evidence<'_>) -> Verdict {
    if let Some(metrics) = evidence.metrics.filter(|metrics| metrics.exit != WILL_GO_ON) {
        return match outcome(metrics.end, metrics.exit) {
            Some(outcome) => Verdict::State(DagState::Over(outcome)),
            None => Verdict::ReadItsWords { without_metrics: None },
        };
    }
    match &evidence.life {
        Some(Life::Removed) => Verdict::State(DagState::Over(Outcome::Removed)),
        // No metrics although it ended: not accepted, or the disk was full.
        Some(Life::Ended(exit)) => {
            // A status file from before it began is that of another run.
            let status = evidence.status.filter(|_| evidence.begun);
            status.and_then(by_status).unwrap_or(Verdict::ReadItsWords { without_metrics: Some(*exit) })
        }
        Some(Life::Queued | Life::Running | Life::Held(_)) => Verdict::State(DagState::Running),
        None if evidence.begun => Verdict::State(DagState::Running),
        None => Verdict::State(DagState::NotYet),
    }
}

/// Trusts the status more than the exit code, which a FINAL node may have changed. `None`: it does not say why.
fn outcome(end: End, exit: i32) -> Option<Outcome> {
    match end {
        End::Ok if exit == 0 => Some(Outcome::Completed),
        End::NodeFailed => Some(Outcome::Failed),
        End::Aborted => Some(Outcome::Aborted),
        End::Removed => Some(Outcome::Removed),
        End::Cycle => Some(Outcome::Broken("its nodes wait for each other in a circle".to_owned())),
        End::Ok | End::Error | End::Halted | End::Other(_) => None,
    }
}

/// The status file of a DAG that ended without metrics. One that was still running when it was written says nothing.
fn by_status(head: &status::Head) -> Option<Verdict> {
    let outcome = match (head.state, head.reason.as_str()) {
        (status::NodeState::Done, "success") if head.done == head.total => Outcome::Completed,
        (status::NodeState::Error, "failed") => Outcome::Failed,
        (status::NodeState::Error, "aborted") => Outcome::Aborted,
        (status::NodeState::Error, "removed") => Outcome::Removed,
        _ => return None,
    };
    Some(Verdict::State(DagState::Over(outcome)))
}

/// Why DAGMan ended, in its own words. `None` while they do not fit what its job did: on a shared file system what it
/// wrote last may be seen after what the schedd wrote about it.
pub(super) fn by_words(words: &LastRun, without_metrics: Option<Exit>) -> Option<Outcome> {
    match without_metrics {
        Some(Exit::Signal(signal)) => Some(Outcome::Broken(format!("DAGMan was ended by signal {signal}"))),
        Some(Exit::Code(_)) if words.exit.is_none() || words.wrote_metrics => None,
        _ if words.errors.is_empty() => {
            let exit = words.exit.map_or_else(String::new, |exit| format!(" with status {exit}"));
            Some(Outcome::Broken(format!("DAGMan ended{exit} and did not say why")))
        }
        _ => Some(Outcome::Broken(words.errors.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{events, metrics};

    fn state(evidence: &Evidence<'_>) -> Option<DagState> {
        match judge(evidence) {
            Verdict::State(state) => Some(state),
            Verdict::ReadItsWords { .. } => None,
        }
    }

    fn with(metrics: Option<&Metrics>, life: Option<Life>) -> Option<DagState> {
        state(&Evidence { life, metrics, begun: false, status: None })
    }

    fn ended(end: End, exit: i32) -> Metrics {
        let sample = include_bytes!("../../tests/data/workflow.dag.metrics.failed");
        Metrics { exit, end, ..metrics::parse(sample).unwrap() }
    }

    #[test]
    fn metrics_say_how_it_went() {
        let over = |end, exit| with(Some(&ended(end, exit)), Some(Life::Running));
        assert_eq!(over(End::Ok, 0), Some(DagState::Over(Outcome::Completed)));
        assert_eq!(over(End::NodeFailed, 1), Some(DagState::Over(Outcome::Failed)));
        assert_eq!(over(End::NodeFailed, 0), Some(DagState::Over(Outcome::Failed)), "a FINAL node succeeded");
        assert_eq!(over(End::Aborted, 1), Some(DagState::Over(Outcome::Aborted)));
        assert_eq!(over(End::Removed, 2), Some(DagState::Over(Outcome::Removed)));
        assert!(matches!(over(End::Cycle, 1), Some(DagState::Over(Outcome::Broken(_)))));
        assert_eq!(over(End::Ok, 1), None, "they do not agree");
        assert_eq!(over(End::Ok, 3), Some(DagState::Running), "held: it goes on when it is released");
    }

    #[test]
    fn without_metrics_its_own_log_says_whether_it_is_there() {
        let hold = Hold { reason: "via condor_hold".into(), code: 1, subcode: 0 };
        for there in [Life::Queued, Life::Running, Life::Held(hold)] {
            assert_eq!(with(None, Some(there)), Some(DagState::Running));
        }
        assert_eq!(with(None, Some(Life::Removed)), Some(DagState::Over(Outcome::Removed)));
        assert_eq!(with(None, Some(Life::Ended(Exit::Code(1)))), None, "its words are asked for");
        assert_eq!(with(None, None), Some(DagState::NotYet));
        let begun = Evidence { life: None, metrics: None, begun: true, status: None };
        assert_eq!(state(&begun), Some(DagState::Running));
    }

    #[test]
    fn a_status_file_helps_where_metrics_are_missing() {
        let head = |text: &[u8]| status::head(text).unwrap();
        let done = head(include_bytes!("../../tests/data/group.dag.status.done"));
        let removed = head(include_bytes!("../../tests/data/workflow.dag.status.removed"));
        let running = head(include_bytes!("../../tests/data/workflow.dag.status.running"));
        let by = |head, exit| {
            let life = Some(Life::Ended(Exit::Code(exit)));
            state(&Evidence { life, metrics: None, begun: true, status: Some(head) })
        };
        assert_eq!(by(&done, 0), Some(DagState::Over(Outcome::Completed)));
        assert_eq!(by(&removed, 2), Some(DagState::Over(Outcome::Removed)));
        assert_eq!(by(&running, 0), None, "it is older than the end");
        let half = status::Head { done: 1, ..done.clone() };
        assert_eq!(by(&half, 0), None, "never done before all are");
        let life = Some(Life::Ended(Exit::Code(1)));
        let stale = Evidence { life, metrics: None, begun: false, status: Some(&removed) };
        assert_eq!(state(&stale), None, "it is that of the run before");
    }

    #[test]
    fn the_life_of_dagman() {
        let log = events::parse(include_bytes!("../../tests/data/dagman.log.hold-release"));
        let at = |count: usize| life(&log[..count], 54);
        assert_eq!(last_submitted(&log), Some(54));
        assert_eq!(at(1), Some(Life::Queued));
        assert_eq!(at(2), Some(Life::Running));
        assert_eq!(at(3), Some(Life::Running), "evicted: what follows says why");
        assert!(matches!(at(4), Some(Life::Held(hold)) if hold.code == 1));
        assert_eq!(at(5), Some(Life::Queued));
        assert_eq!(at(log.len()), Some(Life::Removed));
        assert_eq!(life(&log, 55), None);
        let requeued = events::parse(include_bytes!("../../tests/data/dagman.log.requeued-43"));
        assert_eq!(life(&requeued[..3], 142), Some(Life::Running), "it was put back into the queue");
    }

    #[test]
    fn reasons_are_in_its_words() {
        let words = |exit, errors: &[&str], wrote_metrics| LastRun {
            exit,
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
            wrote_metrics,
        };
        let broken = |reason: &str| Some(Outcome::Broken(reason.to_owned()));
        let one = Some(Exit::Code(1));
        let refused = words(Some(1), &["a (line 2): ERROR", "Failed to parse a"], false);
        assert_eq!(by_words(&refused, one), broken("a (line 2): ERROR; Failed to parse a"));
        let silent = words(Some(1), &[], false);
        assert_eq!(by_words(&silent, one), broken("DAGMan ended with status 1 and did not say why"));
        assert_eq!(by_words(&words(None, &[], false), one), None, "its last words are not to be seen yet");
        assert_eq!(
            by_words(&words(Some(0), &[], true), Some(Exit::Code(0))),
            None,
            "its metrics are not to be seen yet"
        );
        let odd = words(Some(1), &["ERROR: halted"], true);
        assert_eq!(by_words(&odd, None), broken("ERROR: halted"), "they were seen, and do not say why");
        assert_eq!(
            by_words(&words(None, &[], false), Some(Exit::Signal(11))),
            broken("DAGMan was ended by signal 11")
        );
    }
}
