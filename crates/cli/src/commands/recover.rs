//! `windlass recover`: brings a workflow back that stopped with failures.

use crate::args::recover::RecoverArgs;
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::recovery::{self, Recovered, Talk};
use crate::view;
use crate::{rerun, select};
use windlass_insight::allocating;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;

pub(crate) fn run(ctx: &Context, args: &RecoverArgs) -> Result<Exit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = select::workflow(&*store, &args.workflow)?;
    if args.dry_run {
        let found = recovery::rehearse(ctx, &*store, row.id, &args.how, &args.machine)?;
        return Ok(exit_of(found));
    }
    let done = recovery::recover(ctx, &*store, row.id, &args.how, &args.machine, Talk::Fully)?;
    let row = rerun::row(&*store, row.id)?;
    let (served, is_run) = (ctx.server()?.is_some(), view::is_run_by_somebody(&*store, &row));
    let goes_on = done.again > 0 || done.left > 0;
    if goes_on && args.run && (served || !is_run) {
        return drive(ctx, &*store, row.id, Failed::Keep, &args.machine);
    }
    if done.proposed > 0 {
        ctx.ui.note(&format!("a person has to agree first: windlass triage -w {}", row.id));
    } else if !goes_on && done.staying > 0 {
        ctx.ui.note("--retry-unknown runs them again as they are; `windlass why JOB` explains one");
    }
    if goes_on && !done.is_served && !is_seen_to(ctx, &*store, &row, is_run)? {
        ctx.ui.note(&format!("next: windlass resume {}", row.id));
    }
    Ok(exit_of(done))
}

/// Whether somebody is there to do what is left. A server has it done by its workers, if it has any; those of Slurm come when
/// they are asked for.
fn is_seen_to(ctx: &Context, store: &dyn Store, row: &WorkflowRow, is_run: bool) -> Result<bool, CliError> {
    let Some(client) = ctx.server()?.filter(|_| is_run) else { return Ok(is_run) };
    Ok(allocating::is_on_slurm(store, row.id)? || !client.workers(Some(row.id))?.is_empty())
}

/// Nothing could be done about what failed, or not before somebody agrees.
const fn exit_of(done: Recovered) -> Exit {
    match done {
        Recovered { again: 0, proposed: 1.., .. } => Exit::NeedsDecision,
        Recovered { again: 0, staying: 1.., .. } => Exit::JobsFailed,
        _ => Exit::Success,
    }
}
