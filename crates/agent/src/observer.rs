//! Progress reports of a remote worker to its user interface.

use windlass_types::log_attempt;
use windlass_types::worker_messages::AttemptEndReport;

/// Callbacks, on the worker's main thread: must return quickly.
pub trait RemoteWorkerObserver {
    /// A notice for the user.
    fn on_notice(&mut self, text: &str);
    /// Called when the progress has changed.
    fn on_progress(&mut self, progress: &RemoteWorkerProgress);
    /// An attempt ended here.
    fn on_attempt_ended(&mut self, _ended: &AttemptEndReport) {}
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteWorkerProgress {
    /// The id that the server assigned, after registration.
    pub worker: Option<i64>,
    /// Attempts assigned and not ended.
    pub held_attempts: usize,
    /// Number of attempts that ended with exit code 0, and of all others.
    pub succeeded: u64,
    pub failed: u64,
    /// Results not yet delivered to the server.
    pub undelivered: usize,
    /// The server does not answer.
    pub is_server_away: bool,
    /// The lease has expired and jobs are frozen.
    pub is_frozen: bool,
    /// It accepts no more jobs.
    pub is_leaving: bool,
}

/// Logs what it passes on.
pub(crate) struct LoggingObserver<'a>(pub(crate) &'a mut dyn RemoteWorkerObserver);

impl RemoteWorkerObserver for LoggingObserver<'_> {
    fn on_notice(&mut self, text: &str) {
        tracing::info!("{text}");
        self.0.on_notice(text);
    }

    fn on_progress(&mut self, progress: &RemoteWorkerProgress) {
        tracing::trace!(?progress);
        self.0.on_progress(progress);
    }

    fn on_attempt_ended(&mut self, ended: &AttemptEndReport) {
        let (cause, exit) = (&ended.cause, ended.exit);
        log_attempt!(debug, ended.key, ?cause, return_code = exit.return_code(), "attempt ended");
        self.0.on_attempt_ended(ended);
    }
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentObserver;

impl RemoteWorkerObserver for SilentObserver {
    fn on_notice(&mut self, _text: &str) {}
    fn on_progress(&mut self, _progress: &RemoteWorkerProgress) {}
}
