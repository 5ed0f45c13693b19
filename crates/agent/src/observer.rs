//! What people see of an agent while it works.

use windlass_types::worker_messages::AttemptEndReport;

/// Told what happens, on the agent's own thread: be quick.
pub trait RemoteWorkerObserver {
    /// Something that somebody should know.
    fn on_notice(&mut self, text: &str);
    /// How things stand, whenever that has changed.
    fn on_progress(&mut self, progress: &RemoteWorkerProgress);
    /// An attempt ended here.
    fn on_attempt_ended(&mut self, _ended: &AttemptEndReport) {}
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteWorkerProgress {
    /// As the server calls it, once it does.
    pub worker: Option<i64>,
    /// Attempts that it has and that are not over.
    pub held_attempts: usize,
    /// Ended with exit code 0, and otherwise.
    pub succeeded: u64,
    pub failed: u64,
    /// Results that the server has not got yet.
    pub undelivered: usize,
    /// The server does not answer.
    pub is_server_away: bool,
    /// The lease is over and jobs stand still.
    pub is_frozen: bool,
    /// It takes nothing more.
    pub is_leaving: bool,
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentObserver;

impl RemoteWorkerObserver for SilentObserver {
    fn on_notice(&mut self, _text: &str) {}
    fn on_progress(&mut self, _progress: &RemoteWorkerProgress) {}
}
