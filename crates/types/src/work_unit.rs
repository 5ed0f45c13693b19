//! Work units: numbered groups of jobs that choose a site once and end as a whole.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The status of a work unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkUnitStatus {
    /// Not started.
    #[default]
    Waiting,
    /// Started, and not all jobs have ended.
    Active,
    /// All its jobs are completed or disabled.
    Completed,
    /// No job can run any more, and at least one failed.
    Failed,
    /// No job runs any more, because of a user's command.
    Canceled,
}

impl WorkUnitStatus {
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Active, Self::Completed, Self::Failed, Self::Canceled];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether it changes only by a command.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

impl fmt::Display for WorkUnitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of work units by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkUnitStatusCounts {
    pub waiting: u64,
    pub active: u64,
    pub completed: u64,
    pub failed: u64,
    pub canceled: u64,
}

impl WorkUnitStatusCounts {
    pub const fn count_mut(&mut self, status: WorkUnitStatus) -> &mut u64 {
        match status {
            WorkUnitStatus::Waiting => &mut self.waiting,
            WorkUnitStatus::Active => &mut self.active,
            WorkUnitStatus::Completed => &mut self.completed,
            WorkUnitStatus::Failed => &mut self.failed,
            WorkUnitStatus::Canceled => &mut self.canceled,
        }
    }

    pub const fn total(&self) -> u64 {
        self.waiting + self.active + self.completed + self.failed + self.canceled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_names_round_trip() {
        for status in WorkUnitStatus::ALL {
            assert_eq!(WorkUnitStatus::from_name(status.name()), Some(status));
        }
        assert_eq!(WorkUnitStatus::from_name("pending"), None);
    }
}
