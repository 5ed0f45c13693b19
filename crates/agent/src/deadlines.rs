//! What the agent does because time goes by: the lease, a worker process that hangs, a server that stays away, its own
//! time, and having nothing to do.

use crate::RemoteWorkerError;
use crate::observer::RemoteWorkerObserver;
use crate::remote_worker::RemoteWorker;
use crate::shutdown::{LeaveReason, ShutdownUrgency};
use std::time::{Duration, Instant};
use windlass_process::process_identity::boot_time;
use windlass_types::worker_messages::{ReturnReason, ToWorker};

impl RemoteWorker {
    pub(crate) fn check_deadlines(
        &mut self,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<(), RemoteWorkerError> {
        self.check_lease(observer);
        self.check_worker_process(observer)?;
        self.check_server()?;
        self.check_time_limit(observer);
        let is_quiet = self.busy_attempts.is_empty() && self.actions.is_empty();
        let now = Instant::now();
        if !is_quiet {
            self.idle_since = now;
        }
        if let Some(leaving) = &mut self.shutdown {
            // An action may come as the answer to the goodbye.
            leaving.ready_since = is_quiet.then(|| leaving.ready_since.unwrap_or(now));
        } else if self.idle_deadline().is_some_and(|deadline| now >= deadline) {
            self.start_leaving(LeaveReason::Idle, ShutdownUrgency::None);
        }
        Ok(())
    }

    pub(crate) fn idle_deadline(&self) -> Option<Instant> {
        // Before the first word of the server nobody can tell whether there is something to do.
        let may_leave = !self.options.persistent && self.shutdown.is_none() && self.was_registered();
        let timeout = self.options.idle_timeout.filter(|_| may_leave)?;
        self.idle_since.checked_add(timeout)
    }

    /// The worker process keeps the same lease by itself; here its jobs are made sure to stand still, and our own.
    fn check_lease(&mut self, observer: &mut dyn RemoteWorkerObserver) {
        let Some(until) = self.lease.expires_at() else { return };
        if self.is_frozen || !self.lease.is_over(boot_time()) {
            return;
        }
        self.is_frozen = true;
        self.actions.freeze_all();
        self.ask_worker_process(&ToWorker::Lease(until));
        if !self.busy_attempts.is_empty() || !self.actions.is_empty() {
            observer
                .on_notice("the server has not been reached for too long: jobs stand still until it answers");
        }
    }

    /// One that does not answer cannot be trusted to have stopped its jobs.
    fn check_worker_process(
        &mut self,
        observer: &mut dyn RemoteWorkerObserver,
    ) -> Result<(), RemoteWorkerError> {
        let asked =
            self.worker_process.as_ref().and_then(|running_worker| running_worker.awaiting_reply_since);
        if asked.is_some_and(|asked| asked.elapsed() >= self.lease.worker_reply_timeout()) {
            self.replace_worker_process(&ReturnReason::WorkerHung, observer)?;
        }
        Ok(())
    }

    fn check_server(&mut self) -> Result<(), RemoteWorkerError> {
        let silence = self.lease.silence(boot_time());
        if !self.was_registered() || silence < self.options.give_up_after {
            return Ok(());
        }
        if self.shutdown.is_none_or(|leaving| leaving.urgency < ShutdownUrgency::Kill) {
            self.start_leaving(LeaveReason::Stopped, ShutdownUrgency::Kill);
        }
        if self.busy_attempts.is_empty() && self.actions.is_empty() {
            return Err(RemoteWorkerError::ServerUnreachable { after: silence, kept: self.state_dir() });
        }
        Ok(())
    }

    fn check_time_limit(&mut self, observer: &mut dyn RemoteWorkerObserver) {
        let Some(until) = self.options.deadline else { return };
        let now = Instant::now();
        let in_a_hurry = self.shutdown.is_some_and(|leaving| leaving.urgency > ShutdownUrgency::None);
        if now >= until.stop_time() && !in_a_hurry {
            if !self.busy_attempts.is_empty() {
                observer.on_notice(
                    "the time of this worker is over; what runs is stopped and goes back to be run again",
                );
            }
            self.options.grace = until.stop_before_end.min(self.options.grace).max(Duration::from_millis(1));
            self.start_leaving(LeaveReason::TimeOver, ShutdownUrgency::Stop);
        }
    }
}
