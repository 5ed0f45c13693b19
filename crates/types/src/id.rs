//! Typed ids: integers internally and in the Torc contract; a `JobId` cannot be passed where a `WorkflowId` is
//! expected.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! define_id {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    )*};
}

define_id! {
    /// A graph of jobs.
    WorkflowId(i64);
    /// One submission of a workflow to a backend: 1, 2, … within its workflow.
    RunId(i64);
    /// A command with resources. Unique in the whole database, not only in its workflow.
    JobId(i64);
    /// One execution of a job within a run, from 1.
    Attempt(u32);
    /// A row of the result table.
    ResultId(i64);
    /// A process that claims and executes jobs.
    WorkerId(i64);
    /// A job group: the jobs made from one entry of a spec.
    JobGroupId(i64);
    /// A named set of requirements of a workflow.
    RequirementsId(i64);
    /// A file that jobs of a workflow read or write.
    FileId(i64);
    /// A piece of data that jobs of a workflow read or write.
    UserDataId(i64);
    /// An event of a workflow.
    EventId(i64);
    /// A Slurm job that hosts workers. (A scheduled compute node in the Torc contract.)
    AllocationId(i64);
}

impl Attempt {
    pub const FIRST: Self = Self(1);

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
