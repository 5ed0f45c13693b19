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

impl Leaving {
    /// How long the server may be away before it goes without a goodbye.
    pub(crate) fn patience(&self, give_up_after: Duration) -> Duration {
        match self.hurry {
            Hurry::None => give_up_after,
            Hurry::Stop | Hurry::Kill => Duration::from_secs(10).min(give_up_after),
        }
    }
}

/// What the next interrupt means: first drain, then stop, then kill.
pub(crate) fn next_hurry(leaving: Option<&Leaving>) -> Hurry {
    match leaving.map(|leaving| leaving.hurry) {
        None => Hurry::None,
        Some(Hurry::None) => Hurry::Stop,
        Some(Hurry::Stop | Hurry::Kill) => Hurry::Kill,
    }
}
