//! `windlass submit` of a workflow for which the server asks Slurm for allocations.

use crate::args::slurm::SubmitSlurmArgs;
use crate::clusters;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::packing;
use crate::plan::SpecFile;
use windlass_core::slurm::profile::Profile;

/// The spec asks something of Slurm, or whoever submits it does.
pub(super) fn is_wanted(file: &SpecFile, args: &SubmitSlurmArgs) -> Result<bool, CliError> {
    Ok(args.slurm || packing::is_scheduled(&file.load()?))
}

/// What would be asked for; nothing is created.
pub(super) fn show(ctx: &Context, file: &SpecFile, args: &SubmitSlurmArgs) -> Result<Exit, CliError> {
    let workflow = file.load()?;
    ctx.ui.spec_warnings(workflow.all_warnings());
    let profile = clusters::find(ctx, args.packing.profile.profile.as_deref())?;
    crate::commands::slurm::show(ctx, &workflow, &profile, &args.packing, true)?;
    ctx.ui.note("nothing was created");
    Ok(Exit::Success)
}

/// A server that asks nothing of Slurm would have it wait for ever.
pub(super) fn require_steward(ctx: &Context) -> Result<(), CliError> {
    let client = ctx.require_server()?;
    if client.slurm_status()?.steward.is_some() {
        return Ok(());
    }
    let what =
        format!("the server at {} asks nothing of Slurm, and this workflow waits for it", client.url());
    Err(CliError::user(what).with_hint("where Slurm is, `windlass serve --slurm` starts one that does"))
}

/// The spec with all that it asks of Slurm, which the cluster can give.
pub(super) fn scheduled(
    ctx: &Context,
    file: &SpecFile,
    args: &SubmitSlurmArgs,
) -> Result<SpecFile, CliError> {
    let workflow = file.load()?;
    if packing::is_scheduled(&workflow) {
        if let Some(profile) = profile_to_check_by(ctx, args)? {
            packing::check(&workflow, &profile)?;
        }
        return Ok(file.clone());
    }
    let profile = clusters::find(ctx, args.packing.profile.profile.as_deref())?;
    let demands = packing::demands(&workflow);
    let proposals = packing::proposals(&workflow, &demands, &profile, &args.packing)?;
    packing::scheduled(file, &workflow, &demands, &proposals, true)
}

/// The server may be at the cluster, and this machine may not: then what the spec says is taken as it is.
fn profile_to_check_by(ctx: &Context, args: &SubmitSlurmArgs) -> Result<Option<Profile>, CliError> {
    match clusters::find(ctx, args.packing.profile.profile.as_deref()) {
        Ok(profile) => Ok(Some(profile)),
        Err(error) if args.packing.profile.profile.is_none() => {
            ctx.ui.warn(&format!("whether its schedulers fit the cluster was not checked: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
