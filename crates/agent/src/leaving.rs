//! Why and how an agent goes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Why it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
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
pub struct Outcome {
    pub end: End,
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
pub(crate) enum Hurry {
    /// What runs may end by itself.
    None,
    /// It is asked to stop, and killed after the grace period.
    Stop,
    Kill,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub(crate) why: End,
    pub(crate) hurry: Hurry,
    /// Since when it has nothing left but to say goodbye.
    pub(crate) ready_since: Option<Instant>,
}

/// For a goodbye: one that holds nothing and owes nothing is not missed.
const COURTESY: Duration = Duration::from_secs(5);
/// For results: those that nobody gets in this time stay in the journal.
const DELIVERY: Duration = Duration::from_mins(5);
/// The same, where somebody waits for it to be gone.
const HASTE: Duration = Duration::from_secs(10);

impl Leaving {
    /// How long the server may be away before it goes all the same.
    pub(crate) fn patience(&self, owes_results: bool, give_up_after: Duration) -> Duration {
        let patience = match self.hurry {
            _ if !owes_results => COURTESY,
            Hurry::None => DELIVERY,
            Hurry::Stop | Hurry::Kill => HASTE,
        };
        patience.min(give_up_after)
    }
}

/// Slurm warns up to a minute early, and clocks differ.
const EARLY: Duration = Duration::from_secs(90);

/// Whether a warning that comes with so much time left is the one that was to come, and not one of an end that nobody knows of:
/// somebody else wants the node, or has shortened its time.
pub(crate) fn is_expected(left: Option<Duration>, warning: Option<Duration>) -> bool {
    left.zip(warning).is_some_and(|(left, warning)| left <= warning.saturating_add(EARLY))
}

/// What the next interrupt means: first drain, then stop, then kill.
pub(crate) fn next_hurry(leaving: Option<&Leaving>) -> Hurry {
    match leaving.map(|leaving| leaving.hurry) {
        None => Hurry::None,
        Some(Hurry::None) => Hurry::Stop,
        Some(Hurry::Stop | Hurry::Kill) => Hurry::Kill,
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
            assert_eq!(is_expected(left, warning), expected, "{left:?} {warning:?}");
        }
    }

    #[test]
    fn nobody_waits_long_for_a_server_that_is_owed_nothing() {
        let day = Duration::from_hours(24);
        let table = [
            (Hurry::None, false, COURTESY),
            (Hurry::Stop, false, COURTESY),
            (Hurry::None, true, DELIVERY),
            (Hurry::Stop, true, HASTE),
            (Hurry::Kill, true, HASTE),
        ];
        for (hurry, owes, expected) in table {
            let leaving = Leaving { why: End::Drained, hurry, ready_since: None };
            assert_eq!(leaving.patience(owes, day), expected, "{hurry:?} {owes}");
            assert_eq!(leaving.patience(owes, Duration::from_secs(1)), Duration::from_secs(1));
        }
    }
}
