//! Adds Slurm schedulers and actions to a spec. They are computed in `insight/src/slurm_planning.rs`.

use crate::args::slurm::SlurmPackingArgs;
use crate::error::{CliError, CliErrorKind};
use crate::spec_file::SpecFile;
use windlass_core::slurm::allocation_groups::AllocationOptions;
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_core::slurm::schedule_generation::SchedulerProposal;
use windlass_insight::slurm_planning::{self as asking, EntryDemand, SlurmPlanError, SpecScheduleError};
use windlass_spec::ResolvedWorkflow;

pub(crate) use windlass_insight::slurm_planning::{check, cluster_title, entry_demands, has_schedulers};

/// A proposal for all its jobs, or an error that names jobs that fit nowhere.
pub(crate) fn plan_packing(
    workflow: &ResolvedWorkflow<'_>,
    demands: &[EntryDemand],
    profile: &ClusterProfile,
    args: &SlurmPackingArgs,
) -> Result<Vec<SchedulerProposal>, CliError> {
    Ok(asking::propose_workflow_schedulers(workflow, demands, profile, &packing_options(workflow, args))?)
}

/// The options of the command line, completed by those of the spec.
pub(crate) fn packing_options(workflow: &ResolvedWorkflow<'_>, args: &SlurmPackingArgs) -> AllocationOptions {
    args.options(asking::default_account(workflow).or(args.default_account.as_deref()))
}

impl From<SlurmPlanError> for CliError {
    fn from(error: SlurmPlanError) -> Self {
        let hint = error.hint();
        Self::new(CliErrorKind::Spec, error.to_string()).with_hint(hint)
    }
}

impl From<SpecScheduleError> for CliError {
    fn from(error: SpecScheduleError) -> Self {
        match error {
            SpecScheduleError::NoAccount => Self::user(error.to_string()).with_hint(
                "use --account NAME, set `account` in the spec's slurm_defaults, or `slurm.account` in the settings",
            ),
            SpecScheduleError::NoPattern(_) => Self::new(CliErrorKind::Spec, error.to_string())
                .with_hint("give the jobs of each entry distinct names, or use --no-actions"),
            SpecScheduleError::Patch(error) => error.into(),
        }
    }
}

/// The spec with schedulers, their assignment to jobs, and the actions that request allocations.
pub(crate) fn add_schedulers(
    file: &SpecFile,
    workflow: &ResolvedWorkflow<'_>,
    demands: &[EntryDemand],
    proposals: &[SchedulerProposal],
    with_actions: bool,
) -> Result<SpecFile, CliError> {
    let waits_for = |text: &str| -> Result<Vec<Vec<u32>>, CliError> {
        let new = file.with_text(text.to_owned());
        Ok(new.load()?.actions().iter().map(|action| action.jobs.clone()).collect())
    };
    asking::write_schedule(file.source(), workflow, demands, proposals, with_actions, waits_for)
        .map(|text| file.with_text(text))
}
