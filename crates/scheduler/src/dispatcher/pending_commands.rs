//! What others want done about failed and waiting jobs while the workflow runs: they leave a wish in the books, and only
//! whoever runs the workflow may grant it.
//!
//! The board cannot be wound back, so it is made anew from the rows. For that nothing may be on its way to the disk:
//! nothing more is claimed until all that was decided is there.

use super::Dispatcher;
use crate::{SchedulerError, crash_suspects, recovery_at_start};
use std::time::{Duration, Instant};

/// How long a wish may go unnoticed whose owner cannot send a signal, because he is on another machine.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What is known of wishes.
pub(super) struct PendingCommands {
    /// Somebody waits.
    pub(super) is_any_pending: bool,
    checked_at: Instant,
}

impl PendingCommands {
    pub(super) fn new(now: Instant) -> Self {
        Self { is_any_pending: false, checked_at: now }
    }
}

impl Dispatcher<'_> {
    /// Looks for wishes once in a while.
    pub(super) fn check_pending_commands_if_due(&mut self) -> Result<(), SchedulerError> {
        if self.pending_commands.checked_at.elapsed() < CHECK_INTERVAL {
            Ok(())
        } else {
            self.check_pending_commands()
        }
    }

    pub(super) fn check_pending_commands(&mut self) -> Result<(), SchedulerError> {
        self.pending_commands.checked_at = Instant::now();
        if self.stop_reason.is_none() && !self.pending_commands.is_any_pending {
            let id = self.workflow.id;
            self.pending_commands.is_any_pending =
                !self.retry_until_done(|store| store.open_pending_commands(id))?.is_empty();
        }
        Ok(())
    }

    /// Grants what is wished for, if nothing is on its way to the disk.
    pub(super) fn apply_pending_commands(&mut self) -> Result<(), SchedulerError> {
        let is_quiet =
            self.open_batch.changes.is_empty() && self.in_flight.is_none() && !self.has_attempt_ended;
        if !self.pending_commands.is_any_pending || !is_quiet {
            return Ok(());
        }
        self.pending_commands.is_any_pending = false;
        if self.stop_reason.is_some() {
            return Ok(());
        }
        let (id, now) = (self.workflow.id, self.clock.now());
        for wish in self.retry_until_done(|store| store.open_pending_commands(id))? {
            self.retry_until_done(|store| store.apply_pending_command(id, wish, now))?;
        }
        self.reload_workflow_state()
    }

    /// The rows know better. Who holds what is the same in both.
    fn reload_workflow_state(&mut self) -> Result<(), SchedulerError> {
        let mut state =
            recovery_at_start::load_workflow_state(self.store, &self.workflow, self.host.capacity())?;
        state.on_initialize(&mut self.open_batch.changes);
        if self.state.is_halted() {
            state.on_halt();
        }
        self.crash_suspects = crash_suspects::load_crash_suspects(self.store, &self.workflow, &mut state)?;
        self.state = state;
        self.hold_new_unrunnable_jobs()?;
        if self.state.has_ready() && self.worker.is_none() {
            self.start_worker()?;
        }
        Ok(())
    }
}
