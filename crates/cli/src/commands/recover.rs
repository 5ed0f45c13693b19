//! `windlass recover`: brings a workflow back that stopped with failures.

use crate::args::recover::RecoverArgs;
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::recovery::{self, Recovered, Talk};
use crate::select;
use crate::view;

pub(crate) fn run(ctx: &Context, args: &RecoverArgs) -> Result<Exit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let row = select::workflow(&*store, &args.workflow)?;
    if args.dry_run {
        let found = recovery::rehearse(ctx, &*store, row.id, &args.how, &args.machine)?;
        return Ok(exit_of(found));
    }
    let done = recovery::recover(ctx, &*store, row.id, &args.how, &args.machine, Talk::Fully)?;
    let is_run = ctx.server()?.is_some() || view::is_run_by_somebody(&*store, &row);
    match (done.again, is_run) {
        (0, _) if done.staying > 0 => {
            ctx.ui.note("--retry-unknown runs them again as they are; `windlass why JOB` explains one");
        }
        (0, _) => {}
        _ if args.run => return drive(ctx, &*store, row.id, Failed::Keep, &args.machine),
        (_, true) => {}
        (_, false) => ctx.ui.note(&format!("next: windlass resume {}", row.id)),
    }
    Ok(exit_of(done))
}

/// Nothing could be done about what failed.
const fn exit_of(done: Recovered) -> Exit {
    if done.again == 0 && done.staying > 0 { Exit::JobsFailed } else { Exit::Success }
}
