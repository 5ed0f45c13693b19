//! Where a recovered workflow runs: on Slurm the capacity is that of the cluster, and jobs that run again need
//! allocations.

use super::allocations::{self, AllocationRescheduleOptions, AllocationRescheduleResult};
use crate::args::regenerate::AllocationArgs;
use crate::cluster_profiles;
use crate::context::CliContext;
use crate::error::CliError;
use crate::rerun;
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_insight::allocation_planning::{self, is_on_slurm};
use windlass_insight::recovery::{EligibleWorkers, RecoveryPlan};
use windlass_store::Store;
use windlass_types::settings::WorkflowSettings;
use windlass_types::{JobId, JobStatus, WorkflowId};

pub(crate) enum RecoveryCluster {
    /// Not on Slurm.
    Elsewhere,
    /// On this cluster.
    Slurm(ClusterProfile),
    /// On Slurm, but the cluster cannot be queried here, for this reason.
    Unknown(String),
}

impl RecoveryCluster {
    pub(crate) fn find(
        ctx: &CliContext,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &AllocationArgs,
    ) -> Result<Self, CliError> {
        if !is_on_slurm(store, workflow)? {
            return Ok(Self::Elsewhere);
        }
        let named = args.profile.profile.as_deref();
        match cluster_profiles::find_profile(ctx, named) {
            Ok(profile) => Ok(Self::Slurm(profile)),
            Err(error) if named.is_none() => Ok(Self::Unknown(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// The capacity of the cluster. Present workers say less: new allocations may be larger.
    pub(super) fn cluster_capacity(
        &self,
        args: &AllocationArgs,
        settings: &WorkflowSettings,
    ) -> Option<EligibleWorkers> {
        match self {
            Self::Slurm(profile) => {
                Some(allocation_planning::cluster_capacity(profile, args.partition.as_deref(), settings))
            }
            Self::Elsewhere | Self::Unknown(_) => None,
        }
    }

    /// Requests allocations for the remaining jobs.
    pub(super) fn request_allocations(
        &self,
        ctx: &CliContext,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &AllocationArgs,
    ) -> Result<Option<AllocationRescheduleResult>, CliError> {
        let Some(profile) = self.profile(ctx, workflow) else { return Ok(None) };
        let row = rerun::load_workflow_row(store, workflow)?;
        let account = allocations::default_account(&row);
        let asked = AllocationRescheduleOptions {
            options: args.options(account.as_deref()),
            include: Vec::new(),
            submit: true,
            dry_run: false,
        };
        allocations::reschedule(ctx, store, &row, profile, &asked).map(Some)
    }

    /// Whether jobs wait for nodes that are not requested, because their allocations were canceled, preempted
    /// or lost.
    pub(super) fn needs_allocations(
        &self,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &AllocationArgs,
    ) -> Result<bool, CliError> {
        let row = rerun::load_workflow_row(store, workflow)?;
        match self {
            Self::Elsewhere => Ok(false),
            Self::Unknown(_) => {
                let waits = row.counts.get(JobStatus::Ready) > 0
                    && allocation_planning::depends_on_allocations(store, &row)?;
                Ok(waits && !allocation_planning::has_open_or_due_allocation(store, workflow)?)
            }
            Self::Slurm(profile) => {
                let account = allocations::default_account(&row);
                let options = args.options(account.as_deref());
                allocation_planning::needs_allocations(store, &row, profile, &options)
                    .map_err(|error| allocations::schedule_error(error, profile))
            }
        }
    }

    /// The allocations that would be requested if the plan were applied and `lost` were ready again.
    pub(super) fn plan_allocations(
        &self,
        store: &dyn Store,
        plan: &RecoveryPlan,
        lost: &[JobId],
        args: &AllocationArgs,
    ) -> Result<Option<AllocationRescheduleResult>, CliError> {
        let Self::Slurm(profile) = self else { return Ok(None) };
        let then = plan.next_resources();
        let account = allocations::default_account(&plan.row);
        let asked = AllocationRescheduleOptions {
            options: args.options(account.as_deref()),
            include: plan
                .rerun_jobs()
                .map(|failed_job| failed_job.remedy.job)
                .chain(lost.iter().copied())
                .collect(),
            submit: true,
            dry_run: true,
        };
        allocations::plan_reschedule(store, &plan.row, profile, &asked, &|job| then.get(&job).copied())
            .map(Some)
    }

    fn profile(&self, ctx: &CliContext, workflow: WorkflowId) -> Option<&ClusterProfile> {
        self.warn_unknown_cluster(ctx, workflow);
        match self {
            Self::Slurm(profile) => Some(profile),
            Self::Elsewhere | Self::Unknown(_) => None,
        }
    }

    /// Warns if nodes are needed but cannot be requested here.
    pub(super) fn warn_unknown_cluster(&self, ctx: &CliContext, workflow: WorkflowId) {
        if let Self::Unknown(why) = self {
            ctx.ui.print_warning(&format!("no allocations are requested: {why}"));
            ctx.ui.print_note(&format!(
                "next, on a login node of the cluster: windlass slurm regenerate {workflow} --submit"
            ));
        }
    }
}
