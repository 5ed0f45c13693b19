//! What somebody who watches a run is told. Told after the commit, never before.

use std::time::Duration;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobId, JobStatus, StatusCounts};

/// Where a run stands.
#[derive(Clone, Debug, Default)]
pub struct RunProgress {
    pub counts: StatusCounts,
    /// What runs now, the longest first; short jobs may never appear.
    pub running: Vec<RunningJob>,
    pub elapsed: Duration,
    /// Jobs settled per second, over the last seconds.
    pub jobs_per_second: f64,
    /// What stands in the way of going on, if anything (a full disk).
    pub problem: Option<String>,
    /// Asked to stop; waiting for what runs.
    pub is_stopping: bool,
}

#[derive(Clone, Debug)]
pub struct RunningJob {
    pub job: JobId,
    pub name: String,
    pub elapsed: Duration,
}

/// An attempt is over and that is on disk.
#[derive(Clone, Debug)]
pub struct AttemptEndNotice<'a> {
    pub key: AttemptKey,
    pub name: &'a str,
    /// How the attempt ended.
    pub attempt_status: JobStatus,
    /// What became of the job: `ready` if it will run again.
    pub job_status: JobStatus,
    pub return_code: i32,
    pub wall_time: Duration,
    pub reason: Option<&'a str>,
}

/// Watches a run. Called on the dispatcher's thread: be quick.
pub trait RunObserver: Send {
    /// About ten times a second at most, and once at the end.
    fn on_progress(&mut self, progress: &RunProgress);
    fn on_attempt_ended(&mut self, end: &AttemptEndNotice<'_>);
    /// Something worth a line: an orphan was found dead, the disk is full, a worker was replaced.
    fn on_notice(&mut self, text: &str);
}
