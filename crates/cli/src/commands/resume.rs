//! `windlass resume`: continues a workflow that was interrupted, killed, or ended with failures.

use crate::args::run::ResumeArgs;
use crate::changes::ComparisonSettings;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::failure_commands;
use crate::local_run::{EarlierFailuresPolicy, run_locally};
use crate::object_selection;
use crate::rerun;
use crate::ui::run_summary;
use windlass_types::JobStatus;

pub(crate) fn run(ctx: &CliContext, args: &ResumeArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    if row.is_canceled && !args.retry_failed {
        return Err(CliError::refused(format!("workflow {} ({}) was canceled", row.id, row.name))
            .with_hint("`windlass resume --retry-failed` reruns its canceled and failed jobs"));
    }
    let ended_badly = row.counts.unsuccessful() + row.counts.get(JobStatus::PendingFailed) > 0;
    let starts_anew = args.retry_failed && (row.is_canceled || ended_badly);
    if !starts_anew && run_summary::is_over(&row) {
        let headline = format!("nothing to do: workflow {} ({}) has ended", row.id, row.name);
        return run_summary::report_already_over(ctx, &*store, row.id, &headline, "");
    }
    if starts_anew {
        failure_commands::refuse_agent_rerun(&*store, &row, |_| true)?;
        failure_commands::record_agent_action(ctx, &*store, row.id, "failed and canceled jobs run again")?;
    }
    let failed = if starts_anew { EarlierFailuresPolicy::RunAgain } else { EarlierFailuresPolicy::Keep };
    let changed = rerun::start_next_run_if_changed(
        ctx,
        &*store,
        &row,
        ComparisonSettings::default(),
        failed,
        &args.machine,
    )?;
    let Some(headline) = changed else { return run_locally(ctx, &store, row.id, failed, &args.machine) };
    ctx.ui.print_note(&format!("workflow {} has changed: {headline}", row.id));
    // Failed jobs were reset together with the others.
    run_locally(ctx, &store, row.id, EarlierFailuresPolicy::Keep, &args.machine)
}
