//! The events that an observer of a run gets. Always after the commit.

use std::time::Duration;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobId, JobStatus, StatusCounts};

/// The progress of a run.
#[derive(Clone, Debug, Default)]
pub struct RunProgress {
    pub counts: StatusCounts,
    /// The running jobs, the longest first; short jobs may never appear.
    pub running: Vec<RunningJob>,
    pub elapsed: Duration,
    /// Jobs settled per second, over the last seconds.
    pub jobs_per_second: f64,
    /// The problem that blocks progress, if any (a full disk).
    pub problem: Option<String>,
    /// Asked to stop; waiting for running jobs.
    pub is_stopping: bool,
}

#[derive(Clone, Debug)]
pub struct RunningJob {
    pub job: JobId,
    pub name: String,
    pub elapsed: Duration,
}

/// An attempt ended, and the end is committed.
#[derive(Clone, Debug)]
pub struct AttemptEndNotice<'a> {
    pub key: AttemptKey,
    pub name: &'a str,
    /// How the attempt ended.
    pub attempt_status: JobStatus,
    /// The status of the job after it: `ready` if it will run again.
    pub job_status: JobStatus,
    pub return_code: i32,
    pub wall_time: Duration,
    pub reason: Option<&'a str>,
}

/// Observes a run. Called on the scheduler's thread: must return quickly.
pub trait RunObserver: Send {
    /// About ten times a second at most, and once at the end.
    fn on_progress(&mut self, progress: &RunProgress);
    fn on_attempt_ended(&mut self, end: &AttemptEndNotice<'_>);
    /// A notice worth a line: orphans were ended, the disk is full, a worker was replaced.
    fn on_notice(&mut self, text: &str);
}
