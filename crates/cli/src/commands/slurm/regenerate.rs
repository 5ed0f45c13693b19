//! `windlass slurm regenerate`: new schedulers and allocations for the remaining jobs of a workflow.

use crate::args::regenerate::RegenerateArgs;
use crate::cluster_profiles;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::recovery::allocations::{self, AllocationRescheduleOptions};

pub(crate) fn run(ctx: &CliContext, args: &RegenerateArgs) -> Result<CliExit, CliError> {
    let store = if args.dry_run { ctx.open_read()? } else { ctx.open_write()? };
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let profile = cluster_profiles::find_profile(ctx, args.packing.profile.profile.as_deref())?;
    let account = allocations::default_account(&workflow);
    if args.submit && !args.dry_run && allocations::is_without_slurm(ctx)? {
        return Err(CliError::refused("the server was started without --slurm and submits no allocations")
            .with_hint(
                "start it with `windlass serve --slurm`; without --submit the allocations are only planned",
            ));
    }
    let asked = AllocationRescheduleOptions {
        options: args.options(account.as_deref()),
        include: args.include(),
        submit: args.submit,
        dry_run: args.dry_run,
    };
    let done = allocations::reschedule(ctx, &*store, &workflow, &profile, &asked)?;
    allocations::print_result(ctx, &workflow, &done)?;
    Ok(CliExit::Success)
}
