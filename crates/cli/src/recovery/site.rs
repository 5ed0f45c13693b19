//! Where a workflow that is recovered runs: on Slurm there is as much room as the cluster has, and what runs again needs
//! allocations.

use super::allocations::{self, Asked, Rescheduled};
use crate::args::regenerate::AllocationArgs;
use crate::clusters;
use crate::context::Context;
use crate::error::CliError;
use crate::rerun;
use windlass_core::slurm::profile::Profile;
use windlass_insight::allocating::{self, is_on_slurm};
use windlass_insight::recovery::{Plan, Room};
use windlass_store::Store;
use windlass_types::settings::Settings;
use windlass_types::{JobId, JobStatus, WorkflowId};

pub(crate) enum Site {
    /// Its workers come from elsewhere.
    Elsewhere,
    /// On this cluster.
    Slurm(Profile),
    /// On Slurm, and nobody here can tell what the cluster has: why.
    Unseen(String),
}

impl Site {
    pub(crate) fn of(
        ctx: &Context,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &AllocationArgs,
    ) -> Result<Self, CliError> {
        if !is_on_slurm(store, workflow)? {
            return Ok(Self::Elsewhere);
        }
        let named = args.profile.profile.as_deref();
        match clusters::find(ctx, named) {
            Ok(profile) => Ok(Self::Slurm(profile)),
            Err(error) if named.is_none() => Ok(Self::Unseen(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// What the cluster has. Workers that are there now say less: new allocations may be larger.
    pub(super) fn room(&self, args: &AllocationArgs, settings: &Settings) -> Option<Room> {
        match self {
            Self::Slurm(profile) => Some(allocating::room(profile, args.partition.as_deref(), settings)),
            Self::Elsewhere | Self::Unseen(_) => None,
        }
    }

    /// Asks for allocations for what is left.
    pub(super) fn ask(
        &self,
        ctx: &Context,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &AllocationArgs,
    ) -> Result<Option<Rescheduled>, CliError> {
        let Some(profile) = self.profile(ctx, workflow) else { return Ok(None) };
        let row = rerun::row(store, workflow)?;
        let account = allocations::default_account(&row);
        let asked = Asked {
            options: args.options(account.as_deref()),
            include: Vec::new(),
            submit: true,
            dry_run: false,
        };
        allocations::ask(ctx, store, &row, profile, &asked).map(Some)
    }

    /// Whether jobs that did not fail wait for nodes that nobody asks for: their allocations were cancelled, preempted or lost.
    pub(super) fn is_wanting(
        &self,
        store: &dyn Store,
        workflow: WorkflowId,
        args: &AllocationArgs,
    ) -> Result<bool, CliError> {
        let row = rerun::row(store, workflow)?;
        match self {
            Self::Elsewhere => Ok(false),
            Self::Unseen(_) => {
                let waits =
                    row.counts.get(JobStatus::Ready) > 0 && allocating::depends_on_allocations(store, &row)?;
                Ok(waits && !allocating::is_served(store, workflow)?)
            }
            Self::Slurm(profile) => {
                let account = allocations::default_account(&row);
                let options = args.options(account.as_deref());
                allocating::is_wanting(store, &row, profile, &options)
                    .map_err(|error| allocations::unscheduled(error, profile))
            }
        }
    }

    /// What would be asked for, if the plan were carried out and `lost` were ready again.
    pub(super) fn rehearse(
        &self,
        store: &dyn Store,
        plan: &Plan,
        lost: &[JobId],
        args: &AllocationArgs,
    ) -> Result<Option<Rescheduled>, CliError> {
        let Self::Slurm(profile) = self else { return Ok(None) };
        let then = plan.asked_then();
        let account = allocations::default_account(&plan.row);
        let asked = Asked {
            options: args.options(account.as_deref()),
            include: plan.again().map(|patient| patient.remedy.job).chain(lost.iter().copied()).collect(),
            submit: true,
            dry_run: true,
        };
        allocations::rehearse(store, &plan.row, profile, &asked, &|job| then.get(&job).copied()).map(Some)
    }

    fn profile(&self, ctx: &Context, workflow: WorkflowId) -> Option<&Profile> {
        self.warn_unseen(ctx, workflow);
        match self {
            Self::Slurm(profile) => Some(profile),
            Self::Elsewhere | Self::Unseen(_) => None,
        }
    }

    /// Where nodes are needed, and nobody here can ask for them.
    pub(super) fn warn_unseen(&self, ctx: &Context, workflow: WorkflowId) {
        if let Self::Unseen(why) = self {
            ctx.ui.warn(&format!("no allocations are asked for: {why}"));
            ctx.ui.note(&format!(
                "next, on a login node of the cluster: windlass slurm regenerate {workflow} --submit"
            ));
        }
    }
}
