//! Where a workflow that is recovered runs: on Slurm there is as much room as the cluster has, and what runs again needs
//! allocations.

use super::allocations::{self, Asked, Rescheduled};
use super::carry::asked_then;
use crate::args::regenerate::AllocationArgs;
use crate::clusters;
use crate::context::Context;
use crate::error::CliError;
use crate::rerun;
use windlass_core::slurm::profile::Profile;
use windlass_insight::allocating::{self, is_on_slurm};
use windlass_insight::recovery::{Plan, Room};
use windlass_store::Store;
use windlass_types::WorkflowId;

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
    pub(super) fn room(&self, args: &AllocationArgs) -> Option<Room> {
        match self {
            Self::Slurm(profile) => Some(allocating::room(profile, args.partition.as_deref())),
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

    /// What would be asked for, if the plan were carried out.
    pub(super) fn rehearse(
        &self,
        ctx: &Context,
        store: &dyn Store,
        plan: &Plan,
        args: &AllocationArgs,
    ) -> Result<Option<Rescheduled>, CliError> {
        let Some(profile) = self.profile(ctx, plan.row.id).filter(|_| plan.runs_something()) else {
            return Ok(None);
        };
        let account = allocations::default_account(&plan.row);
        let asked = Asked {
            options: args.options(account.as_deref()),
            include: plan.again().map(|patient| patient.remedy.job).collect(),
            submit: true,
            dry_run: true,
        };
        let then = |job| {
            let patient = plan.again().find(|patient| patient.remedy.job == job)?;
            asked_then(patient).or(patient.found.case.asked)
        };
        allocations::rehearse(store, &plan.row, profile, &asked, &then).map(Some)
    }

    fn profile(&self, ctx: &Context, workflow: WorkflowId) -> Option<&Profile> {
        match self {
            Self::Elsewhere => None,
            Self::Slurm(profile) => Some(profile),
            Self::Unseen(why) => {
                ctx.ui.warn(&format!("no allocations are asked for: {why}"));
                ctx.ui.note(&format!(
                    "next, on a login node of the cluster: windlass slurm regenerate {workflow} --submit"
                ));
                None
            }
        }
    }
}
