//! Applies commands of users for failed and waiting jobs while the workflow runs: they are stored as pending
//! commands in the database, and only the process that runs the workflow may apply them.
//!
//! The workflow state cannot be rolled back, so it is rebuilt from the rows. For that no commit may be under
//! way: no more jobs are claimed until all changes are committed.

use super::Dispatcher;
use crate::{SchedulerError, crash_suspects, recovery_at_start};
use std::time::{Duration, Instant};

/// How often to check for commands from other machines, which cannot send a signal.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What is known about pending commands.
pub(super) struct PendingCommands {
    /// At least one is pending.
    pub(super) is_any_pending: bool,
    checked_at: Instant,
}

impl PendingCommands {
    pub(super) fn new(now: Instant) -> Self {
        Self { is_any_pending: false, checked_at: now }
    }
}

impl Dispatcher<'_> {
    /// Checks for pending commands at an interval.
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

    /// Applies pending commands, if no commit is under way.
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
        for command in self.retry_until_done(|store| store.open_pending_commands(id))? {
            self.retry_until_done(|store| store.apply_pending_command(id, command, now))?;
        }
        self.reload_workflow_state()
    }

    /// Rebuilds the workflow state from the rows. The held jobs are the same in both.
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
