//! `windlass watch`: follows a workflow until it has ended, optionally recovers it, and reports the outcome by
//! its exit code.

mod allocation_watch;
mod workflow_updates;

use crate::args::recover::WatchArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_run::{EarlierFailuresPolicy, run_with_observer};
use crate::recovery::{self, RecoveryVerbosity};
use crate::ui::run_summary;
use crate::ui::text;
use crate::workflow_view::{self, WorkflowPhase};
use crate::{object_selection, rerun};
use allocation_watch::{AllocationWatcher, WorkerExpectation};
use std::sync::Arc;
use windlass_scheduler::{RunEnd, is_retry_budget_spent};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{JobStatus, WorkflowId};
use workflow_updates::WorkflowUpdates;

pub(crate) fn run(ctx: &CliContext, args: &WatchArgs) -> Result<CliExit, CliError> {
    let acts =
        args.recover || args.recovery.ai.is_asked || args.slurm.auto_schedule || args.wait_for_decisions;
    let store = if acts { ctx.open_write()? } else { ctx.open_read()? };
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let watcher = AllocationWatcher::for_workflow(ctx, &*store, row.id, args)?;
    let has_waited = false;
    let mut watch = WorkflowWatch {
        ctx,
        store,
        workflow: row.id,
        args,
        recoveries: 0,
        allocation_watcher: watcher,
        has_waited_for_decision: has_waited,
    };
    let state = watch.follow_until_done()?;
    run_summary::report_followed_run(ctx, &*watch.store, row.id)?;
    watch.print_reason(state)?;
    Ok(exit_for_state(state))
}

const fn exit_for_state(state: WorkflowPhase) -> CliExit {
    match state {
        WorkflowPhase::Completed => CliExit::Success,
        WorkflowPhase::Failed | WorkflowPhase::Canceled => CliExit::JobsFailed,
        WorkflowPhase::NeedsDecision => CliExit::NeedsDecision,
        WorkflowPhase::Created | WorkflowPhase::Running | WorkflowPhase::Interrupted => CliExit::Interrupted,
    }
}

struct WorkflowWatch<'a> {
    ctx: &'a CliContext,
    store: Arc<dyn Store>,
    workflow: WorkflowId,
    args: &'a WatchArgs,
    recoveries: u32,
    /// Watches the allocations of a workflow on Slurm.
    allocation_watcher: Option<AllocationWatcher<'a>>,
    /// Set after waiting for a decision: the workflow can continue.
    has_waited_for_decision: bool,
}

impl WorkflowWatch<'_> {
    /// Follows, recovers and continues until nothing more can be done here.
    fn follow_until_done(&mut self) -> Result<WorkflowPhase, CliError> {
        loop {
            let state = self.follow_until_stopped()?;
            let goes_on = match state {
                WorkflowPhase::Failed | WorkflowPhase::NeedsDecision if self.recover_failures(state)? => true,
                WorkflowPhase::NeedsDecision
                    if self.args.wait_for_decisions && self.count_undecided()? > 0 =>
                {
                    self.wait_for_decisions()?;
                    continue;
                }
                WorkflowPhase::Created | WorkflowPhase::Interrupted
                    if std::mem::take(&mut self.has_waited_for_decision) =>
                {
                    true
                }
                // If only allocations are missing, restarting does not bring any.
                WorkflowPhase::Interrupted if self.lacks_nodes() => false,
                // Counted like a recovery, because the workflow may stop each time: a retry budget may be
                // spent again and again.
                WorkflowPhase::Created | WorkflowPhase::Interrupted => {
                    self.args.recover && self.may_recover_again()
                }
                WorkflowPhase::Failed
                | WorkflowPhase::NeedsDecision
                | WorkflowPhase::Running
                | WorkflowPhase::Completed
                | WorkflowPhase::Canceled => false,
            };
            if !goes_on {
                return Ok(state);
            }
            if !self.continue_workflow()? {
                return Ok(WorkflowPhase::Interrupted);
            }
        }
    }

    /// Waits until the workflow has stopped.
    fn follow_until_stopped(&mut self) -> Result<WorkflowPhase, CliError> {
        let row = rerun::load_workflow_row(&*self.store, self.workflow)?;
        let mut state = self.load_state(&row)?;
        if state != WorkflowPhase::Running {
            return Ok(state);
        }
        self.ctx.ui.print_note(&format!("following workflow {} ({})", row.id, text::one_line(&row.name)));
        let mut updates = WorkflowUpdates::open(self.ctx, &*self.store, &row)?;
        while state == WorkflowPhase::Running {
            let row = updates.next_state(&mut self.store)?;
            state = self.load_state(&row)?;
            if let Some(watcher) =
                self.allocation_watcher.as_mut().filter(|_| state == WorkflowPhase::Running)
                && watcher.check_allocations(&*self.store, &row)? == WorkerExpectation::Absent
            {
                return Ok(WorkflowPhase::Interrupted);
            }
        }
        Ok(state)
    }

    /// Waits for decisions about all `pending_failed` jobs.
    fn wait_for_decisions(&mut self) -> Result<(), CliError> {
        let row = rerun::load_workflow_row(&*self.store, self.workflow)?;
        let before = row.counts.get(JobStatus::PendingFailed);
        let (id, jobs) = (row.id, text::render_count(before, "job"));
        self.ctx.ui.print_note(&format!(
            "{jobs} of workflow {id} are waiting for a decision (list them with `windlass failures pending {id}`); waiting"
        ));
        let mut updates = WorkflowUpdates::open(self.ctx, &*self.store, &row)?;
        loop {
            let row = updates.next_state(&mut self.store)?;
            if self.load_state(&row)? != WorkflowPhase::NeedsDecision
                || row.counts.get(JobStatus::PendingFailed) < before
            {
                self.has_waited_for_decision = true;
                return Ok(());
            }
        }
    }

    fn load_state(&self, row: &WorkflowRow) -> Result<WorkflowPhase, CliError> {
        let state = WorkflowPhase::from_row(row, workflow_view::has_active_process(&*self.store, row));
        let stands_still =
            row.counts.active() == 0 && matches!(state, WorkflowPhase::Running | WorkflowPhase::Interrupted);
        let is_held = stands_still && is_retry_budget_spent(&*self.store, row)?;
        Ok(if is_held { WorkflowPhase::NeedsDecision } else { state })
    }

    fn lacks_nodes(&self) -> bool {
        self.allocation_watcher.as_ref().is_some_and(AllocationWatcher::has_given_up)
    }

    /// Counts a recovery, and warns when the limit is reached.
    fn may_recover_again(&mut self) -> bool {
        let most = self.args.max_retries;
        if self.recoveries >= most {
            let times = text::render_count(u64::from(most), "time");
            self.ctx
                .ui
                .print_warning(&format!("the workflow was recovered {times}, the limit of --max-retries"));
            return false;
        }
        self.recoveries += 1;
        true
    }

    /// Returns whether jobs run again.
    fn recover_failures(&mut self, state: WorkflowPhase) -> Result<bool, CliError> {
        let (ctx, args, workflow) = (self.ctx, self.args, self.workflow);
        let asks_only = !args.recover && state == WorkflowPhase::NeedsDecision && args.recovery.ai.is_asked;
        if !(args.recover || asks_only) || !self.may_recover_again() {
            return Ok(false);
        }
        let before = self.count_undecided()?;
        if asks_only {
            let row = rerun::load_workflow_row(&*self.store, workflow)?;
            recovery::agent::run_agent(ctx, &*self.store, &row, &args.recovery.ai)?;
            return Ok(self.count_undecided()? < before);
        }
        let (round, most) = (self.recoveries, args.max_retries);
        ctx.ui.print_note(&format!(
            "workflow {workflow} stopped with failures; recovering it ({round} of {most})"
        ));
        let talk = if ctx.ui.wants_json() { RecoveryVerbosity::Brief } else { RecoveryVerbosity::Full };
        let done =
            recovery::recover_workflow(ctx, &*self.store, workflow, &args.recovery, &args.machine, talk)?;
        Ok(done.rerun_count > 0 || self.count_undecided()? < before)
    }

    fn count_undecided(&self) -> Result<u64, CliError> {
        Ok(rerun::load_workflow_row(&*self.store, self.workflow)?.counts.get(JobStatus::PendingFailed))
    }

    /// A server has its own workers; otherwise runs the workflow here, unless another process does. Returns
    /// whether it continued.
    fn continue_workflow(&self) -> Result<bool, CliError> {
        let Self { ctx, store, workflow, args, .. } = self;
        if let Some(client) = ctx.server()? {
            client.start_workflow(*workflow)?;
            return Ok(true);
        }
        let row = rerun::load_workflow_row(&**store, *workflow)?;
        if workflow_view::has_active_process(&**store, &row) {
            return Ok(true);
        }
        let observer = ctx.ui.observer(row.counts.total());
        let run =
            run_with_observer(ctx, store, *workflow, EarlierFailuresPolicy::Keep, &args.machine, observer)?;
        Ok(run.end != RunEnd::Interrupted)
    }

    /// Explains the exit code.
    fn print_reason(&self, state: WorkflowPhase) -> Result<(), CliError> {
        let (ui, id) = (&self.ctx.ui, self.workflow);
        match state {
            WorkflowPhase::NeedsDecision => match self.count_undecided()? {
                0 => ui.print_note(&format!(
                    "its retry budget is used up; `windlass resume {id}` continues anyway"
                )),
                n => {
                    let jobs = text::render_count(n, "job");
                    ui.print_note(&format!(
                        "{jobs} of workflow {id} are waiting for a decision (pending_failed)"
                    ));
                    ui.print_note(&format!(
                        "next: windlass watch {id} --wait-for-decisions   (wait for decisions, then continue)"
                    ));
                }
            },
            WorkflowPhase::Failed if !self.args.recover => {
                ui.print_note(&format!(
                    "      windlass watch {id} --recover   (recover from the failures, then continue)"
                ));
            }
            WorkflowPhase::Interrupted if self.lacks_nodes() => {
                ui.print_note(&format!(
                    "jobs of workflow {id} are ready, but no allocation is left: `windlass slurm regenerate {id} --submit` requests \
                     new ones; --auto-schedule does so automatically"
                ));
            }
            WorkflowPhase::Created | WorkflowPhase::Interrupted => {
                ui.print_note(&format!("workflow {id} is not running; continue with `windlass resume {id}`"));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workflow_phase_has_exit_code() {
        assert_eq!(exit_for_state(WorkflowPhase::Completed), CliExit::Success);
        assert_eq!(exit_for_state(WorkflowPhase::NeedsDecision), CliExit::NeedsDecision);
        for state in [WorkflowPhase::Failed, WorkflowPhase::Canceled] {
            assert_eq!(exit_for_state(state), CliExit::JobsFailed);
        }
        for state in [WorkflowPhase::Created, WorkflowPhase::Interrupted, WorkflowPhase::Running] {
            assert_eq!(exit_for_state(state), CliExit::Interrupted);
        }
    }
}
