//! Why and how an agent goes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Why it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// The workflow that it worked for is over, or the server had no more use for it.
    Dismissed,
    /// There was nothing to do for so long.
    Idle,
    /// Somebody asked it to finish what it had, and go.
    Drained,
    /// Its own time was over.
    TimeOver,
    /// Somebody asked twice: jobs that ran were stopped, and go back to be run again.
    Stopped,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteWorkerSummary {
    pub reason: LeaveReason,
    pub succeeded: u64,
    pub failed: u64,
    /// Stopped because it left; they run again elsewhere.
    pub stopped: u64,
    /// Results that the server did not get; they are kept here, for the next agent on this machine.
    pub undelivered: usize,
    pub kept: Option<PathBuf>,
}

/// How much of a hurry it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownUrgency {
    /// What runs may end by itself.
    None,
    /// It is asked to stop, and killed after the grace period.
    Stop,
    Kill,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ShutdownState {
    pub(crate) reason: LeaveReason,
    pub(crate) urgency: ShutdownUrgency,
    /// Since when it has nothing left but to say goodbye.
    pub(crate) ready_since: Option<Instant>,
}

/// For a goodbye: one that holds nothing and owes nothing is not missed.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);
/// For results: those that nobody gets in this time stay in the journal.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(5);
/// The same, where somebody waits for it to be gone.
const URGENT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

impl ShutdownState {
    /// How long the server may be away before it goes all the same.
    pub(crate) fn server_timeout(&self, owes_results: bool, give_up_after: Duration) -> Duration {
        let patience = match self.urgency {
            _ if !owes_results => GOODBYE_TIMEOUT,
            ShutdownUrgency::None => DELIVERY_TIMEOUT,
            ShutdownUrgency::Stop | ShutdownUrgency::Kill => URGENT_DELIVERY_TIMEOUT,
        };
        patience.min(give_up_after)
    }
}

/// Slurm warns up to a minute early, and clocks differ.
const WARNING_TOLERANCE: Duration = Duration::from_secs(90);

/// Whether a warning that comes with so much time left is the one that was to come, and not one of an end that nobody knows of:
/// somebody else wants the node, or has shortened its time.
pub(crate) fn is_warning_expected(left: Option<Duration>, warning: Option<Duration>) -> bool {
    left.zip(warning).is_some_and(|(left, warning)| left <= warning.saturating_add(WARNING_TOLERANCE))
}

/// What the next interrupt means: first drain, then stop, then kill.
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
    fn a_warning_of_an_end_that_is_known_is_no_news() {
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
    fn nobody_waits_long_for_a_server_that_is_owed_nothing() {
        let day = Duration::from_hours(24);
        let table = [
            (ShutdownUrgency::None, false, GOODBYE_TIMEOUT),
            (ShutdownUrgency::Stop, false, GOODBYE_TIMEOUT),
            (ShutdownUrgency::None, true, DELIVERY_TIMEOUT),
            (ShutdownUrgency::Stop, true, URGENT_DELIVERY_TIMEOUT),
            (ShutdownUrgency::Kill, true, URGENT_DELIVERY_TIMEOUT),
        ];
        for (hurry, owes, expected) in table {
            let leaving = ShutdownState { reason: LeaveReason::Drained, urgency: hurry, ready_since: None };
            assert_eq!(leaving.server_timeout(owes, day), expected, "{hurry:?} {owes}");
            assert_eq!(leaving.server_timeout(owes, Duration::from_secs(1)), Duration::from_secs(1));
        }
    }
}
