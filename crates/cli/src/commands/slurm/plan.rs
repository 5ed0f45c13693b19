//! `windlass slurm plan`: the allocations that the jobs of a spec would share, and their estimated start.

use crate::args::slurm::{SlurmPackingArgs, SlurmPlanArgs};
use crate::cluster_profiles;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::slurm_packing::packing_options;
use crate::spec_discovery;
use crate::spec_file::SpecFile;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_core::slurm::core_hours::format_hours;
use windlass_core::slurm::schedule_generation::format_walltime;
use windlass_insight::slurm_planning::{self, PlannedAllocations};
use windlass_slurm::cluster_discovery;
use windlass_slurm::parse::cluster::StartEstimate;
use windlass_slurm::slurm_client::SlurmClient;
use windlass_spec::ResolvedWorkflow;
use windlass_types::format_duration;

struct AllocationPlanRow {
    planned: PlannedAllocations,
    start: Option<EstimatedStart>,
}

// The table is limited to 80 columns; JSON and CSV have all columns.
const FIELDS: &[ListField<AllocationPlanRow>] = &[
    ListField::new("scheduler", |row: &AllocationPlanRow| (&row.planned.scheduler.name).into())
        .column(TableColumn::flexible("SCHEDULER")),
    ListField::new("partition", |row: &AllocationPlanRow| row.planned.partition.clone().into())
        .column(TableColumn::flexible("PARTITION")),
    ListField::new("jobs", |row: &AllocationPlanRow| row.planned.jobs.into())
        .column(TableColumn::number("JOBS")),
    ListField::new("allocations", |row: &AllocationPlanRow| row.planned.allocations.into())
        .column(TableColumn::number("ALLOCS")),
    ListField::new("nodes", |row: &AllocationPlanRow| row.planned.scheduler.nodes.into())
        .column(TableColumn::number("NODES")),
    ListField::new("walltime", |row: &AllocationPlanRow| row.planned.walltime.map(format_walltime).into()),
    ListField::table_only(TableColumn::number("TIME"), |row: &AllocationPlanRow| {
        row.planned.walltime.map(format_duration).into()
    }),
    ListField::new("mem", |row: &AllocationPlanRow| row.planned.scheduler.mem.clone().into()),
    ListField::new("gres", |row: &AllocationPlanRow| row.planned.scheduler.gres.clone().into()),
    ListField::new("extra", |row: &AllocationPlanRow| row.planned.scheduler.extra.clone().into()),
    ListField::new("core_hours", |row: &AllocationPlanRow| row.planned.core_hours.into()),
    ListField::table_only(TableColumn::number("CORE-H"), |row: &AllocationPlanRow| {
        row.planned.core_hours.map(format_hours).into()
    }),
    ListField::new("is_deferred", |row: &AllocationPlanRow| row.planned.is_deferred.into()),
    ListField::new("start", |row: &AllocationPlanRow| {
        row.start.as_ref().map(EstimatedStart::to_long_text).into()
    }),
    ListField::table_only(TableColumn::text("START"), |row: &AllocationPlanRow| {
        row.start.as_ref().map(EstimatedStart::to_short_text).into()
    }),
];

enum EstimatedStart {
    /// When its first jobs are ready.
    Deferred,
    Slurm(StartEstimate),
}

impl EstimatedStart {
    fn to_long_text(&self) -> String {
        match self {
            Self::Deferred => "when jobs are ready".to_owned(),
            Self::Slurm(start) => start.to_string(),
        }
    }

    fn to_short_text(&self) -> String {
        match self {
            Self::Deferred => "when ready".to_owned(),
            // Of `2026-11-16T14:22:05`, year and seconds are left out.
            Self::Slurm(StartEstimate::At(at)) => {
                at.get(5..16).map_or_else(|| at.clone(), |short| short.replace('T', " "))
            }
            Self::Slurm(StartEstimate::Never(_)) => "never".to_owned(),
        }
    }
}

pub(crate) fn run(ctx: &CliContext, args: &SlurmPlanArgs) -> Result<CliExit, CliError> {
    let file = SpecFile::read(&ctx.cwd, &spec_discovery::resolve_spec_path(args.spec.as_ref(), &ctx.cwd)?)?;
    let workflow = file.load()?;
    let profile = cluster_profiles::find_profile(ctx, args.packing.profile.profile.as_deref())?;
    show_plan(ctx, &workflow, &profile, &args.packing, args.offline)?;
    Ok(CliExit::Success)
}

/// Plans the allocations and checks them against the cluster.
pub(crate) fn show_plan(
    ctx: &CliContext,
    workflow: &ResolvedWorkflow<'_>,
    profile: &ClusterProfile,
    packing_args: &SlurmPackingArgs,
    offline: bool,
) -> Result<(), CliError> {
    let planned =
        slurm_planning::plan_allocations(workflow, profile, &packing_options(workflow, packing_args))?;
    let mut rows: Vec<AllocationPlanRow> =
        planned.into_iter().map(|planned| AllocationPlanRow { planned, start: None }).collect();
    if rows.is_empty() {
        ctx.ui.print_note("no allocations are needed");
    }
    if !offline {
        let slurm = SlurmClient::unlimited();
        for row in &mut rows {
            row.start = Some(estimate_start(&slurm, workflow, &row.planned)?);
        }
    }
    let never = rows.iter().filter_map(|row| match &row.start {
        Some(EstimatedStart::Slurm(StartEstimate::Never(why))) => {
            Some(format!("allocations of {} would never start: {why}", row.planned.scheduler.name))
        }
        _ => None,
    });
    let never: Vec<String> = never.collect();
    ctx.ui.print_list(&ListFields::new(FIELDS), rows)?;
    for why in never {
        ctx.ui.print_warning(&why);
    }
    Ok(())
}

/// Estimated start of one of its allocations.
fn estimate_start(
    slurm: &SlurmClient,
    workflow: &ResolvedWorkflow<'_>,
    planned: &PlannedAllocations,
) -> Result<EstimatedStart, CliError> {
    if planned.is_deferred {
        return Ok(EstimatedStart::Deferred);
    }
    let request = planned.request(workflow).map_err(CliError::user)?;
    Ok(EstimatedStart::Slurm(cluster_discovery::estimate_start(slurm, &request)?))
}
