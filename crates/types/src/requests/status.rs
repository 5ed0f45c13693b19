//! The states and other closed lists of words, with the names that the specification gives them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A word that is not in a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is no {what}; it is one of {known}")]
pub struct ParseNameError {
    pub what: &'static str,
    pub found: String,
    pub known: String,
}

macro_rules! named {
    ($($(#[$doc:meta])* $name:ident($what:literal) {$($(#[$vdoc:meta])* $variant:ident = $text:literal,)*})*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = ParseNameError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|known| known.name() == text).ok_or_else(|| ParseNameError {
                    what: $what,
                    found: text.to_owned(),
                    known: Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    )*};
}

named! {
    /// Where a request stands. Only the reconciler changes it.
    RequestStatus("status of a request") {
        /// The requestor still works on it; nothing happens.
        New = "new",
        Submitted = "submitted",
        /// Waits for its turn.
        Queued = "queued",
        Planning = "planning",
        /// A run of it is under way, or its outputs are being seen to.
        Active = "active",
        /// Its run is being stopped cleanly.
        Stopping = "stopping",
        /// Stopped; what is left is being prepared to go on.
        Resubmitting = "resubmitting",
        /// Its run ended with failures; about to be rescued or held.
        Partial = "partial",
        /// A person is to decide. Keeps what is done and takes no place among the active ones.
        Held = "held",
        Completed = "completed",
        /// Given up, by a person only.
        Failed = "failed",
        Aborted = "aborted",
    }

    /// Where a run of a request stands (R-013; the API calls it a DAG).
    RequestRunStatus("status of a run") {
        Planning = "planning",
        /// Planned and prepared; not given to its backend.
        Ready = "ready",
        Submitted = "submitted",
        Running = "running",
        Completed = "completed",
        /// Over; some work units failed.
        Partial = "partial",
        /// Over; nothing was completed.
        Failed = "failed",
        Removed = "removed",
        Halted = "halted",
        /// Stopped on purpose; goes on in a later run.
        Stopped = "stopped",
    }

    /// Why there is a run (E 7.2): only those after failures count against what a round may have of them.
    RequestRunCause("cause of a run") {
        /// The first of its round.
        First = "first",
        /// Goes on with one that was stopped.
        Stop = "stop",
        /// Goes on with one that ended with failures.
        Failure = "failure",
        /// The same, because a person said so.
        Person = "person",
    }

    /// What became of an input file (E 5.2). One that no round has touched is fresh.
    RequestFileState("state of an input file") {
        /// Was in a work unit that failed, and is not known to be the cause.
        Attempted = "attempted",
        /// All of it is in work units that are completed.
        Processed = "processed",
        /// Cannot be read, or is not to be: it is left out for good.
        Excluded = "excluded",
    }

    /// Where a work unit stands.
    RequestUnitStatus("status of a work unit") {
        Waiting = "waiting",
        Active = "active",
        Completed = "completed",
        Failed = "failed",
        Canceled = "canceled",
    }

    /// Where a processing block stands.
    ProcessingBlockStatus("status of a block") {
        /// Work units of it are still to come.
        Open = "open",
        /// All its work units are in it and it is closed.
        Complete = "complete",
        /// Its tape rule exists.
        Archived = "archived",
        /// A service kept refusing for too long; a person has to look.
        Failed = "failed",
        Invalidated = "invalidated",
    }

    SiteStatus("status of a site") {
        Enabled = "enabled",
        Disabled = "disabled",
        /// Finishes what it has and gets nothing new.
        Draining = "draining",
        Maintenance = "maintenance",
    }

    /// What becomes of the outputs of a request once a later version of it has completed.
    CleanupPolicy("cleanup policy") {
        KeepUntilReplaced = "keep_until_replaced",
        ImmediateCleanup = "immediate_cleanup",
    }

    NodeRole("role of a node") {
        Landing = "Landing",
        Processing = "Processing",
        Merge = "Merge",
        Cleanup = "Cleanup",
    }

    SplittingAlgo("splitting algorithm") {
        FileBased = "FileBased",
        EventBased = "EventBased",
        LumiBased = "LumiBased",
        EventAwareLumiBased = "EventAwareLumiBased",
    }
}

impl RequestStatus {
    /// Nothing more will happen to it.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Aborted)
    }
}

impl RequestRunStatus {
    /// It takes a place among those that may be active at once. So does one that is halted: what it began goes on.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Submitted | Self::Running | Self::Halted)
    }

    /// Nothing of it runs any more; what is left, if anything, is for another run.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed | Self::Removed | Self::Stopped)
    }
}
