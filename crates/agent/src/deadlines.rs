//! The deadlines of a worker: its lease, a worker process that hangs, an unreachable server, its time limit,
//! and idleness.

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
            // The last reply before leaving may contain an action.
            leaving.ready_since = is_quiet.then(|| leaving.ready_since.unwrap_or(now));
        } else if self.idle_deadline().is_some_and(|deadline| now >= deadline) {
            self.start_leaving(LeaveReason::Idle, ShutdownUrgency::None);
        }
        Ok(())
    }

    pub(crate) fn idle_deadline(&self) -> Option<Instant> {
        // Before the first contact it is unknown whether there is work.
        let may_leave = !self.options.persistent && self.shutdown.is_none() && self.was_registered();
        let timeout = self.options.idle_timeout.filter(|_| may_leave)?;
        self.idle_since.checked_add(timeout)
    }

    /// Handles an expired lease. The worker process freezes its jobs by itself; this verifies that, and freezes
    /// actions.
    fn check_lease(&mut self, observer: &mut dyn RemoteWorkerObserver) {
        let Some(until) = self.lease.expires_at() else { return };
        if self.is_frozen || !self.lease.is_over(boot_time()) {
            return;
        }
        self.is_frozen = true;
        self.actions.freeze_all();
        self.ask_worker_process(&ToWorker::Lease(until));
        if !self.busy_attempts.is_empty() || !self.actions.is_empty() {
            observer.on_notice("no contact to the server within the lease: jobs are frozen until it answers");
        }
    }

    /// Replaces a worker process that does not answer, since it may not have frozen its jobs.
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
        let is_urgent = self.shutdown.is_some_and(|leaving| leaving.urgency > ShutdownUrgency::None);
        if now >= until.stop_time() && !is_urgent {
            if !self.busy_attempts.is_empty() {
                observer.on_notice(
                    "time limit of this worker reached: stopping the running jobs; they run again elsewhere",
                );
            }
            self.options.grace = until.stop_before_end.min(self.options.grace).max(Duration::from_millis(1));
            self.start_leaving(LeaveReason::TimeOver, ShutdownUrgency::Stop);
        }
    }
}
