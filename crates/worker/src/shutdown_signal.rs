//! The worker's reaction to signals that ask it to end.

use crate::report_outbox::ReportUrgency;
use crate::worker_process::WorkerState;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use windlass_process::signals::TerminationSignal;
use windlass_types::worker_messages::FromWorker;

/// How long the engine has after a signal to decide what happens to the jobs: it is usually signaled at the
/// same moment.
const STOP_ORDER_TIMEOUT: Duration = Duration::from_secs(2);

impl WorkerState {
    /// Starts the thread that waits for SIGTERM and SIGHUP. `link`: this worker's end of the connection to the
    /// engine.
    pub(crate) fn start_termination_thread(
        self: &Arc<Self>,
        termination: TerminationSignal,
        link: UnixStream,
    ) -> io::Result<()> {
        let worker = Arc::downgrade(self);
        let wait = move || wait_for_termination(&worker, &termination, &link);
        thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
    }

    /// Jobs were probably signaled too: those that end from now on are interrupted.
    fn on_termination(&self) {
        self.deliver_certain_ends(ReportUrgency::Now);
        self.outbox.send_now(&FromWorker::Terminated);
    }
}

/// Without a message from the engine the worker hangs up; then everything ends as if the engine had died.
fn wait_for_termination(worker: &Weak<WorkerState>, termination: &TerminationSignal, link: &UnixStream) {
    while termination.wait_for_signal().is_ok() {
        // The worker may have ended in the meantime; a strong reference would keep it alive.
        let Some(()) = worker.upgrade().map(|worker| worker.on_termination()) else { return };
        thread::sleep(STOP_ORDER_TIMEOUT);
        let Some(worker) = worker.upgrade() else { return };
        if !worker.is_told_to_stop.load(Ordering::SeqCst) {
            // An error means that the connection is already closed.
            link.shutdown(Shutdown::Both).ok();
            return;
        }
    }
}
