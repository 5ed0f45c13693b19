//! `windlass slurm regenerate`: new schedulers and allocations for what is left of a workflow.

use crate::args::regenerate::RegenerateArgs;
use crate::clusters;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::recovery::allocations::{self, Asked};
use crate::select;

pub(crate) fn run(ctx: &Context, args: &RegenerateArgs) -> Result<Exit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let workflow = select::workflow(&*store, &args.workflow)?;
    let profile = clusters::find(ctx, args.packing.profile.profile.as_deref())?;
    let account = allocations::default_account(&workflow);
    if args.submit && !args.dry_run && allocations::is_without_slurm(ctx)? {
        return Err(CliError::refused(
            "the server was started without --slurm, so it submits no allocations",
        )
        .with_hint(
            "start it with `windlass serve --slurm`; without --submit the allocations are only planned",
        ));
    }
    let asked = Asked {
        options: args.options(account.as_deref()),
        include: args.include(),
        submit: args.submit,
        dry_run: args.dry_run,
    };
    let done = allocations::ask(ctx, &*store, &workflow, &profile, &asked)?;
    allocations::show(ctx, &workflow, &done)?;
    Ok(Exit::Success)
}
