//! Commands of users while the workflow runs: they are stored in the database, and only the process that runs
//! the workflow may apply them. As at a server the workflow is suspended for that, and its rows are read again.

use super::LocalRun;
use crate::SchedulerError;
use crate::service::call_types::ExclusiveRequirement;
use crate::service::scheduler_call::{ExclusiveWork, LocalRunEvent, SchedulerCall};
use std::time::{Duration, Instant};
use windlass_store::{Store, StoreError};
use windlass_types::worker_messages::StopReason;
use windlass_types::{Timestamp, WorkflowId};

/// How often to check for commands from other machines, which cannot send a signal.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What is known about pending commands.
pub(super) struct PendingCommands {
    /// At least one is pending.
    pub(super) is_any_pending: bool,
    /// They are being applied.
    is_under_way: bool,
    checked_at: Instant,
}

impl PendingCommands {
    pub(super) const fn new(now: Instant) -> Self {
        Self { is_any_pending: false, is_under_way: false, checked_at: now }
    }
}

impl LocalRun<'_> {
    pub(super) fn check_cancel_request(&mut self) -> Result<(), SchedulerError> {
        let id = self.id();
        if self.stop_reason != Some(StopReason::Canceled)
            && self.retry_until_done(|store| store.cancel_requested(id))?
        {
            self.stop_reason = Some(StopReason::Canceled);
            self.scheduler.cancel_jobs(id);
            self.host.stop_actions(false);
            self.stop_worker(StopReason::Canceled, self.options.grace);
        }
        Ok(())
    }

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
            let id = self.id();
            self.pending_commands.is_any_pending =
                !self.retry_until_done(|store| store.open_pending_commands(id))?.is_empty();
        }
        Ok(())
    }

    /// Applies pending commands as soon as no commit is under way; until then no more jobs are claimed.
    pub(super) fn submit_pending_commands(&mut self) {
        let pending = &mut self.pending_commands;
        if !pending.is_any_pending || pending.is_under_way {
            return;
        }
        if self.stop_reason.is_some() {
            pending.is_any_pending = false;
            return;
        }
        pending.is_under_way = true;
        let (workflow, now, sender) = (self.workflow.id, self.clock.now(), self.events.sender());
        let work: ExclusiveWork = Box::new(move |store| {
            // If the call was rejected, it is repeated.
            let result = store.map_or(Ok(()), |store| apply_pending_commands(store, workflow, now));
            Box::new(move || drop(sender.send(LocalRunEvent::CommandsApplied(result).into())))
        });
        let call = SchedulerCall::Exclusive { workflow, needs: ExclusiveRequirement::NoneRequired, work };
        self.scheduler.handle_call(call, Instant::now());
        self.scheduler.dirty_workflows.insert(workflow);
    }

    pub(super) fn on_commands_applied(
        &mut self,
        result: Result<(), StoreError>,
    ) -> Result<(), SchedulerError> {
        self.pending_commands.is_under_way = false;
        self.pending_commands.is_any_pending = false;
        match result {
            Err(error) if error.is_transient() => {
                self.record_problem(error.to_string());
                Ok(())
            }
            result => Ok(result?),
        }
    }
}

fn apply_pending_commands(store: &dyn Store, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError> {
    for command in store.open_pending_commands(workflow)? {
        store.apply_pending_command(workflow, command, now)?;
    }
    Ok(())
}
