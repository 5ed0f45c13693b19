//! `windlass submit` of a workflow that needs Slurm allocations.

use crate::args::slurm::SlurmSubmitArgs;
use crate::cluster_profiles;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::slurm_packing;
use crate::spec_file::SpecFile;
use windlass_core::slurm::cluster_profile::ClusterProfile;

/// Whether the spec or the caller asks for Slurm.
pub(super) fn needs_slurm(file: &SpecFile, args: &SlurmSubmitArgs) -> Result<bool, CliError> {
    Ok(args.slurm || slurm_packing::has_schedulers(&file.load()?))
}

/// Prints the allocations that would be requested; creates nothing.
pub(super) fn show_plan(
    ctx: &CliContext,
    file: &SpecFile,
    args: &SlurmSubmitArgs,
) -> Result<CliExit, CliError> {
    let workflow = file.load()?;
    ctx.ui.print_spec_warnings(workflow.warning_diagnostics());
    let profile = cluster_profiles::find_profile(ctx, args.packing.profile.profile.as_deref())?;
    crate::commands::slurm::show_plan(ctx, &workflow, &profile, &args.packing, true)?;
    ctx.ui.print_note("nothing created");
    Ok(CliExit::Success)
}

/// Rejects a server without --slurm, on which the workflow would wait forever.
pub(super) fn require_allocation_reconciler(ctx: &CliContext) -> Result<(), CliError> {
    let client = ctx.require_server()?;
    if client.slurm_status()?.reconciler.is_some() {
        return Ok(());
    }
    let what = format!("the server at {} does not use Slurm, which this workflow needs", client.url());
    Err(CliError::user(what).with_hint("start `windlass serve --slurm` on a host with Slurm"))
}

/// The spec with its Slurm schedulers and actions, checked against the cluster.
pub(super) fn add_allocations(
    ctx: &CliContext,
    file: &SpecFile,
    args: &SlurmSubmitArgs,
) -> Result<SpecFile, CliError> {
    let workflow = file.load()?;
    if slurm_packing::has_schedulers(&workflow) {
        if let Some(profile) = check_profile(ctx, args)? {
            slurm_packing::check(&workflow, &profile)?;
        }
        return Ok(file.clone());
    }
    let profile = cluster_profiles::find_profile(ctx, args.packing.profile.profile.as_deref())?;
    let demands = slurm_packing::entry_demands(&workflow);
    let proposals = slurm_packing::plan_packing(&workflow, &demands, &profile, &args.packing)?;
    slurm_packing::add_schedulers(file, &workflow, &demands, &proposals, true)
}

/// The server may be at the cluster while this machine is not: then the spec is used as it is.
fn check_profile(ctx: &CliContext, args: &SlurmSubmitArgs) -> Result<Option<ClusterProfile>, CliError> {
    match cluster_profiles::find_profile(ctx, args.packing.profile.profile.as_deref()) {
        Ok(profile) => Ok(Some(profile)),
        Err(error) if args.packing.profile.profile.is_none() => {
            ctx.ui.print_warning(&format!("could not check whether its schedulers fit the cluster: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
