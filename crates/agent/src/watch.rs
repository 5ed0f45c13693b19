//! What the agent does because time goes by: the lease, a worker process that hangs, a server that stays away, its own
//! time, and having nothing to do.

use crate::Error;
use crate::agent::Agent;
use crate::leaving::{End, Hurry};
use crate::observe::Observer;
use std::time::{Duration, Instant};
use windlass_proc::identity::boot_time;
use windlass_types::work::{ReturnReason, ToWorker};

impl Agent {
    pub(crate) fn look_around(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        self.watch_lease(observer);
        self.watch_crew(observer)?;
        self.watch_server()?;
        self.watch_own_time(observer);
        let is_quiet = self.busy.is_empty() && self.actions.is_empty();
        let now = Instant::now();
        if !is_quiet {
            self.idle_since = now;
        }
        if let Some(leaving) = &mut self.leaving {
            // An action may come as the answer to the goodbye.
            leaving.ready_since = is_quiet.then(|| leaving.ready_since.unwrap_or(now));
        } else if self.idle_deadline().is_some_and(|deadline| now >= deadline) {
            self.leave(End::Idle, Hurry::None);
        }
        Ok(())
    }

    pub(crate) fn idle_deadline(&self) -> Option<Instant> {
        // Before the first word of the server nobody can tell whether there is something to do.
        let may_leave = !self.options.persistent && self.leaving.is_none() && self.was_welcome();
        let timeout = self.options.idle_timeout.filter(|_| may_leave)?;
        self.idle_since.checked_add(timeout)
    }

    /// The worker process keeps the same lease by itself; here its jobs are made sure to stand still, and our own.
    fn watch_lease(&mut self, observer: &mut dyn Observer) {
        let Some(until) = self.lease.until() else { return };
        if self.is_frozen || !self.lease.is_over(boot_time()) {
            return;
        }
        self.is_frozen = true;
        self.actions.freeze();
        self.ask_crew(&ToWorker::Lease(until));
        if !self.busy.is_empty() || !self.actions.is_empty() {
            observer
                .notice("the server has not been reached for too long: jobs stand still until it answers");
        }
    }

    /// One that does not answer cannot be trusted to have stopped its jobs.
    fn watch_crew(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let asked = self.crew.as_ref().and_then(|crew| crew.asked);
        if asked.is_some_and(|asked| asked.elapsed() >= self.lease.worker_patience()) {
            self.replace_crew(&ReturnReason::WorkerHung, observer)?;
        }
        Ok(())
    }

    fn watch_server(&mut self) -> Result<(), Error> {
        let silence = self.lease.silence(boot_time());
        if !self.was_welcome() || silence < self.options.give_up_after {
            return Ok(());
        }
        if self.leaving.is_none_or(|leaving| leaving.hurry < Hurry::Kill) {
            self.leave(End::Stopped, Hurry::Kill);
        }
        if self.busy.is_empty() && self.actions.is_empty() {
            return Err(Error::GaveUp { after: silence, kept: self.state_dir() });
        }
        Ok(())
    }

    fn watch_own_time(&mut self, observer: &mut dyn Observer) {
        let Some(until) = self.options.until else { return };
        let now = Instant::now();
        let in_a_hurry = self.leaving.is_some_and(|leaving| leaving.hurry > Hurry::None);
        if now >= until.stop() && !in_a_hurry {
            if !self.busy.is_empty() {
                observer.notice(
                    "the time of this worker is over; what runs is stopped and goes back to be run again",
                );
            }
            self.options.grace = until.lead.min(self.options.grace).max(Duration::from_millis(1));
            self.leave(End::TimeOver, Hurry::Stop);
        }
    }
}
