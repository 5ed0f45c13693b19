//! `windlass resume`: goes on with a workflow that was interrupted, killed, or left with failures.

use crate::args::run::ResumeArgs;
use crate::changes::Terms;
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::orders;
use crate::rerun;
use crate::select;
use crate::ui::summary;
use windlass_types::JobStatus;

pub(crate) fn run(ctx: &Context, args: &ResumeArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let row = select::workflow(&*store, &args.workflow)?;
    if row.is_canceled && !args.retry_failed {
        return Err(CliError::refused(format!("workflow {} ({}) was canceled", row.id, row.name))
            .with_hint("`windlass resume --retry-failed` starts it again"));
    }
    let ended_badly = row.counts.unsuccessful() + row.counts.get(JobStatus::PendingFailed) > 0;
    let starts_anew = args.retry_failed && (row.is_canceled || ended_badly);
    if !starts_anew && summary::is_over(&row) {
        let news = format!("nothing to do: workflow {} ({}) is over", row.id, row.name);
        return summary::report_over(ctx, &*store, row.id, &news, "");
    }
    if starts_anew {
        orders::refuse_agents(&*store, &row, |_| true)?;
        orders::note_agent(ctx, &*store, row.id, "what had not ended well run again")?;
    }
    let failed = if starts_anew { Failed::RunAgain } else { Failed::Keep };
    let changed = rerun::begin_changed(ctx, &*store, &row, Terms::default(), failed, &args.machine)?;
    let Some(news) = changed else { return drive(ctx, &*store, row.id, failed, &args.machine) };
    ctx.ui.note(&format!("workflow {} has changed: {news}", row.id));
    // What failed went back with the rest.
    drive(ctx, &*store, row.id, Failed::Keep, &args.machine)
}
