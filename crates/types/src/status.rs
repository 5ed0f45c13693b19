//! The eleven job states of the Torc contract, with their numbers and names.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The status of a job. The numbers are stored in the database and are part of the REST contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum JobStatus {
    /// Created, not yet evaluated.
    Uninitialized = 0,
    /// Waits for its dependencies.
    Blocked = 1,
    /// May be claimed by a worker.
    Ready = 2,
    /// Claimed: it may have started.
    Pending = 3,
    /// Known to have started.
    Running = 4,
    /// Ended with exit code 0 and all declared outputs in place.
    Completed = 5,
    /// Ended in any other way.
    Failed = 6,
    /// Never ran, or was stopped, because of a user or a failed dependency.
    Canceled = 7,
    /// Ended by Windlass at its time limit.
    Terminated = 8,
    /// Skipped on purpose; its dependents treat it as completed.
    Disabled = 9,
    /// Failed; waits for a decision of a person or an agent.
    PendingFailed = 10,
}

impl JobStatus {
    pub const ALL: [Self; 11] = [
        Self::Uninitialized,
        Self::Blocked,
        Self::Ready,
        Self::Pending,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Terminated,
        Self::Disabled,
        Self::PendingFailed,
    ];

    pub const fn code(self) -> u8 {
        self as u8
    }

    pub const fn from_code(code: u8) -> Option<Self> {
        if (code as usize) < Self::ALL.len() { Some(Self::ALL[code as usize]) } else { None }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Uninitialized => "uninitialized",
            Self::Blocked => "blocked",
            Self::Ready => "ready",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Terminated => "terminated",
            Self::Disabled => "disabled",
            Self::PendingFailed => "pending_failed",
        }
    }

    /// Whether the job has ended in this run: its dependents no longer wait for it.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Terminated)
    }

    /// Whether it ended unsuccessfully: dependents with `cancel_on_blocking_job_failure` are canceled.
    pub const fn is_unsuccessful(self) -> bool {
        matches!(self, Self::Failed | Self::Canceled | Self::Terminated)
    }

    /// Whether it changes only by a command; a workflow with only such jobs is complete.
    pub const fn is_settled(self) -> bool {
        self.has_ended() || matches!(self, Self::Disabled)
    }

    /// Whether a worker holds it.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

/// Returns the states that a filter selects: `failed` includes `terminated`, because a timeout is a failure
/// too.
pub fn matching_statuses(asked: &[JobStatus]) -> Vec<JobStatus> {
    let mut statuses = asked.to_vec();
    if asked.contains(&JobStatus::Failed) && !asked.contains(&JobStatus::Terminated) {
        statuses.push(JobStatus::Terminated);
    }
    statuses
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown job status `{0}`; known: uninitialized, blocked, ready, pending, running, completed, failed, canceled, terminated, disabled, pending_failed"
)]
pub struct ParseStatusError(pub String);

impl std::str::FromStr for JobStatus {
    type Err = ParseStatusError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|s| s.name() == text).ok_or_else(|| ParseStatusError(text.to_owned()))
    }
}

/// The number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StatusCounts([u64; 11]);

impl StatusCounts {
    pub fn get(&self, status: JobStatus) -> u64 {
        self.0[status as usize]
    }

    pub fn add(&mut self, status: JobStatus, n: u64) {
        self.0[status as usize] += n;
    }

    pub fn move_one(&mut self, from: JobStatus, to: JobStatus) {
        debug_assert!(self.get(from) > 0, "no job is {from}");
        self.move_many(from, to, 1);
    }

    /// Moves `n` jobs from `from` to `to`, or all of them if there are fewer.
    pub fn move_many(&mut self, from: JobStatus, to: JobStatus, n: u64) {
        let n = n.min(self.get(from));
        self.0[from as usize] -= n;
        self.0[to as usize] += n;
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn settled(&self) -> u64 {
        self.sum_where(JobStatus::is_settled)
    }

    pub fn unsuccessful(&self) -> u64 {
        self.sum_where(JobStatus::is_unsuccessful)
    }

    pub fn active(&self) -> u64 {
        self.sum_where(JobStatus::is_active)
    }

    /// Number of jobs in the run: all but disabled ones.
    pub fn enabled(&self) -> u64 {
        self.total() - self.get(JobStatus::Disabled)
    }

    pub fn iter(&self) -> impl Iterator<Item = (JobStatus, u64)> + '_ {
        JobStatus::ALL.into_iter().map(|s| (s, self.get(s)))
    }

    fn sum_where(&self, which: impl Fn(JobStatus) -> bool) -> u64 {
        self.iter().filter(|(s, _)| which(*s)).map(|(_, n)| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_for_failed_jobs_includes_timeouts() {
        use JobStatus::{Completed, Failed, Terminated};
        assert_eq!(matching_statuses(&[Failed]), [Failed, Terminated]);
        assert_eq!(matching_statuses(&[Terminated, Failed]), [Terminated, Failed]);
        assert_eq!(matching_statuses(&[Completed]), [Completed]);
        assert_eq!(matching_statuses(&[]), []);
    }

    #[test]
    fn status_numbers_and_names_match_torc() {
        let expected = [
            "uninitialized",
            "blocked",
            "ready",
            "pending",
            "running",
            "completed",
            "failed",
            "canceled",
            "terminated",
            "disabled",
            "pending_failed",
        ];
        for (code, name) in expected.into_iter().enumerate() {
            let status = JobStatus::from_code(code as u8).unwrap();
            assert_eq!(status.code() as usize, code);
            assert_eq!(status.name(), name);
            assert_eq!(name.parse::<JobStatus>().unwrap(), status);
            assert_eq!(format!("{status:<16}|"), format!("{name:<16}|"));
        }
        assert_eq!(JobStatus::from_code(11), None);
        assert!("done".parse::<JobStatus>().is_err());
    }
}
