//! Why and how a remote worker leaves.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Why it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// The workflow that it served has ended, or the server did not need it any more.
    Dismissed,
    /// It was idle for the idle timeout.
    Idle,
    /// It was asked to drain.
    Drained,
    /// Its time limit was reached.
    TimeOver,
    /// It was asked to stop: running jobs were stopped, and run again elsewhere.
    Stopped,
}

/// The summary of a worker that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteWorkerSummary {
    pub reason: LeaveReason,
    pub succeeded: u64,
    pub failed: u64,
    /// Stopped because it left; they run again elsewhere.
    pub stopped: u64,
    /// Results that the server did not get; kept here for the next worker on this machine.
    pub undelivered: usize,
    pub kept: Option<PathBuf>,
}

/// The urgency of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownUrgency {
    /// Running jobs may complete.
    None,
    /// Running jobs are asked to stop, and killed after the grace period.
    Stop,
    Kill,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ShutdownState {
    pub(crate) reason: LeaveReason,
    pub(crate) urgency: ShutdownUrgency,
    /// Since when it only waits for the server.
    pub(crate) ready_since: Option<Instant>,
}

/// For the last message, if the worker holds nothing and has no results.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// For results: those undelivered after this time stay in the journal.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(5);
/// The same, where the worker has to be gone soon.
const URGENT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

impl ShutdownState {
    /// How long an unreachable server is waited for before leaving.
    pub(crate) fn server_timeout(&self, has_undelivered_results: bool, give_up_after: Duration) -> Duration {
        let max_wait = match self.urgency {
            _ if !has_undelivered_results => RETIRE_TIMEOUT,
            ShutdownUrgency::None => DELIVERY_TIMEOUT,
            ShutdownUrgency::Stop | ShutdownUrgency::Kill => URGENT_DELIVERY_TIMEOUT,
        };
        max_wait.min(give_up_after)
    }
}

/// Slurm warns up to a minute early, and clocks differ.
const WARNING_TOLERANCE: Duration = Duration::from_secs(90);

/// Whether a warning with this much time left is the one for the known time limit, and not one of an unexpected
/// end, such as preemption or a shortened time limit.
pub(crate) fn is_warning_expected(left: Option<Duration>, warning: Option<Duration>) -> bool {
    left.zip(warning).is_some_and(|(left, warning)| left <= warning.saturating_add(WARNING_TOLERANCE))
}

/// The effect of the next interrupt: first drain, then stop, then kill.
pub(crate) fn next_urgency(leaving: Option<&ShutdownState>) -> ShutdownUrgency {
    match leaving.map(|leaving| leaving.urgency) {
        None => ShutdownUrgency::None,
        Some(ShutdownUrgency::None) => ShutdownUrgency::Stop,
        Some(ShutdownUrgency::Stop | ShutdownUrgency::Kill) => ShutdownUrgency::Kill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_the_known_time_limit_is_expected() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (left, warning, expected) in [
            (seconds(180), seconds(180), true),
            (seconds(240), seconds(180), true),
            (seconds(3), seconds(180), true),
            (seconds(271), seconds(180), false),
            (seconds(3600), seconds(180), false),
            (None, seconds(180), false),
            (seconds(180), None, false),
        ] {
            assert_eq!(is_warning_expected(left, warning), expected, "{left:?} {warning:?}");
        }
    }

    #[test]
    fn a_worker_without_results_does_not_wait_long_for_the_server() {
        let day = Duration::from_hours(24);
        let table = [
            (ShutdownUrgency::None, false, RETIRE_TIMEOUT),
            (ShutdownUrgency::Stop, false, RETIRE_TIMEOUT),
            (ShutdownUrgency::None, true, DELIVERY_TIMEOUT),
            (ShutdownUrgency::Stop, true, URGENT_DELIVERY_TIMEOUT),
            (ShutdownUrgency::Kill, true, URGENT_DELIVERY_TIMEOUT),
        ];
        for (shutdown_urgency, owes, expected) in table {
            let leaving =
                ShutdownState { reason: LeaveReason::Drained, urgency: shutdown_urgency, ready_since: None };
            assert_eq!(leaving.server_timeout(owes, day), expected, "{shutdown_urgency:?} {owes}");
            assert_eq!(leaving.server_timeout(owes, Duration::from_secs(1)), Duration::from_secs(1));
        }
    }
}
