//! Status values and other enumerations, with the names of the specification.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A name that is not part of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{found}`; known: {known}")]
pub struct ParseEnumNameError {
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
            type Err = ParseEnumNameError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|known| known.name() == text).ok_or_else(|| ParseEnumNameError {
                    what: $what,
                    found: text.to_owned(),
                    known: Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    )*};
}

named! {
    /// The status of a request. Only the reconciler changes it.
    RequestStatus("request status") {
        /// A draft that the requestor still edits; nothing runs.
        New = "new",
        Submitted = "submitted",
        /// Queued.
        Queued = "queued",
        Planning = "planning",
        /// A run is active, or its outputs are being processed.
        Active = "active",
        /// Its run is being stopped cleanly.
        Stopping = "stopping",
        /// Stopped; a run for the remaining work is being prepared.
        Resubmitting = "resubmitting",
        /// Its run ended with failures; it will be rescued or held.
        Partial = "partial",
        /// Waits for an operator. Finished work is kept, and it does not count as active.
        Held = "held",
        Completed = "completed",
        /// Failed for good; only a person can decide this.
        Failed = "failed",
        Aborted = "aborted",
    }

    /// The status of a run of a request (R-013; the API calls it a DAG).
    RequestRunStatus("run status") {
        Planning = "planning",
        /// Planned and prepared, not yet submitted to its backend.
        Ready = "ready",
        Submitted = "submitted",
        Running = "running",
        Completed = "completed",
        /// Ended; some work units failed.
        Partial = "partial",
        /// Ended; no work unit completed.
        Failed = "failed",
        Removed = "removed",
        Halted = "halted",
        /// Stopped on purpose; a later run continues it.
        Stopped = "stopped",
    }

    /// The reason why a run was created (E 7.2): only rescues after failures count against the limit of a
    /// round.
    RequestRunCause("run cause") {
        /// The first run of its round.
        First = "first",
        /// Continues a run that was stopped.
        Stop = "stop",
        /// Continues a run that ended with failures.
        Failure = "failure",
        /// Continues a run that ended with failures, by order of a person.
        Person = "person",
    }

    /// The state of an input file (E 5.2). A file that no round has used is fresh.
    RequestFileState("input file state") {
        /// Part of a work unit that failed; not known to be the cause.
        Attempted = "attempted",
        /// Entirely processed by completed work units.
        Processed = "processed",
        /// Unreadable or excluded; skipped for good.
        Excluded = "excluded",
    }

    /// The status of a work unit.
    RequestUnitStatus("work unit status") {
        Waiting = "waiting",
        Active = "active",
        Completed = "completed",
        Failed = "failed",
        Canceled = "canceled",
    }

    /// The status of a processing block.
    ProcessingBlockStatus("block status") {
        /// More work units will be added.
        Open = "open",
        /// Has all its work units and is closed.
        Complete = "complete",
        /// Its tape rule exists.
        Archived = "archived",
        /// A service rejected requests for too long; needs an operator.
        Failed = "failed",
        Invalidated = "invalidated",
    }

    SiteStatus("site status") {
        Enabled = "enabled",
        Disabled = "disabled",
        /// Finishes its work and gets nothing new.
        Draining = "draining",
        Maintenance = "maintenance",
    }

    /// What to do with the outputs of a request once a later version of it has completed.
    CleanupPolicy("cleanup policy") {
        KeepUntilReplaced = "keep_until_replaced",
        ImmediateCleanup = "immediate_cleanup",
    }

    NodeRole("node role") {
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
    /// Whether the status is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Aborted)
    }
}

impl RequestRunStatus {
    /// Whether the request counts toward the limit of active requests. A halted one does: its started work
    /// continues.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Submitted | Self::Running | Self::Halted)
    }

    /// Whether nothing of the run is active any more; remaining work is left to another run.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed | Self::Removed | Self::Stopped)
    }
}
