//! `windlass recover`: recovers a workflow that stopped with failures.

use crate::args::recover::RecoverArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_run::{EarlierFailuresPolicy, run_locally};
use crate::recovery::{self, RecoverySummary, RecoveryVerbosity};
use crate::workflow_view;
use crate::{object_selection, rerun};
use windlass_insight::allocation_planning;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;

pub(crate) fn run(ctx: &CliContext, args: &RecoverArgs) -> Result<CliExit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    if args.dry_run {
        let found = recovery::plan_recovery(ctx, &*store, row.id, &args.recovery, &args.machine)?;
        return Ok(recovery_exit(found));
    }
    let done = recovery::recover_workflow(
        ctx,
        &*store,
        row.id,
        &args.recovery,
        &args.machine,
        RecoveryVerbosity::Full,
    )?;
    let row = rerun::load_workflow_row(&*store, row.id)?;
    let (served, is_run) = (ctx.server()?.is_some(), workflow_view::has_active_process(&*store, &row));
    let goes_on = done.rerun_count > 0 || done.remaining_jobs > 0;
    if goes_on && args.run && (served || !is_run) {
        return run_locally(ctx, &store, row.id, EarlierFailuresPolicy::Keep, &args.machine);
    }
    if done.proposed_count > 0 {
        ctx.ui.print_note(&format!("approval required: windlass failures pending {}", row.id));
    } else if !goes_on && done.unchanged_count > 0 {
        ctx.ui.print_note("--retry-unknown reruns them unchanged; `windlass why JOB` explains a failure");
    }
    if goes_on && !done.are_nodes_requested && !will_be_run(ctx, &*store, &row, is_run)? {
        ctx.ui.print_note(&format!("next: windlass resume {}", row.id));
    }
    Ok(recovery_exit(done))
}

/// Whether the remaining jobs will be run without another command. A server needs workers for them; Slurm
/// workers are requested on demand.
fn will_be_run(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    is_run: bool,
) -> Result<bool, CliError> {
    let Some(client) = ctx.server()?.filter(|_| is_run) else { return Ok(is_run) };
    Ok(allocation_planning::is_on_slurm(store, row.id)? || !client.workers(Some(row.id))?.is_empty())
}

/// No failed job could be rerun, or only after approval.
const fn recovery_exit(done: RecoverySummary) -> CliExit {
    match done {
        RecoverySummary { rerun_count: 0, proposed_count: 1.., .. } => CliExit::NeedsDecision,
        RecoverySummary { rerun_count: 0, unchanged_count: 1.., .. } => CliExit::JobsFailed,
        _ => CliExit::Success,
    }
}
