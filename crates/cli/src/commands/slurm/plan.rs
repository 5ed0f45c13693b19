//! `windlass slurm plan`: which allocations a spec's jobs would share, and when they would start.

use crate::args::slurm::{PackingArgs, PlanSlurmArgs};
use crate::clusters;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::packing;
use crate::plan::SpecFile;
use crate::spec_files;
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use std::time::Duration;
use windlass_core::slurm::generate::{Proposal, write_walltime};
use windlass_core::slurm::profile::Profile;
use windlass_slurm::discover;
use windlass_slurm::read::cluster::WouldStart;
use windlass_slurm::render::words;
use windlass_spec::Workflow;
use windlass_types::settings::{ActionType, SlurmScheduler};

/// Allocations of one scheduler that are asked for together.
struct Row {
    scheduler: SlurmScheduler,
    partition: Option<String>,
    jobs: Option<u64>,
    allocations: u32,
    walltime: Option<Duration>,
    core_hours: Option<f64>,
    is_deferred: bool,
    start: Option<String>,
}

const FIELDS: &[Field<Row>] = &[
    Field::new("scheduler", |row: &Row| (&row.scheduler.name).into()).column(Column::text("SCHEDULER")),
    Field::new("partition", |row: &Row| row.partition.clone().into()).column(Column::text("PARTITION")),
    Field::new("jobs", |row: &Row| row.jobs.into()).column(Column::number("JOBS")),
    Field::new("allocations", |row: &Row| row.allocations.into()).column(Column::number("ALLOCATIONS")),
    Field::new("nodes", |row: &Row| row.scheduler.nodes.into()).column(Column::number("NODES")),
    Field::new("walltime", |row: &Row| row.walltime.map(write_walltime).into())
        .column(Column::number("WALLTIME")),
    Field::new("mem", |row: &Row| row.scheduler.mem.clone().into()).column(Column::number("MEMORY")),
    Field::new("gres", |row: &Row| row.scheduler.gres.clone().into()),
    Field::new("extra", |row: &Row| row.scheduler.extra.clone().into()),
    Field::new("core_hours", |row: &Row| row.core_hours.into()).column(Column::number("CORE-HOURS")),
    Field::new("is_deferred", |row: &Row| row.is_deferred.into()),
    Field::new("start", |row: &Row| row.start.clone().into()).column(Column::text("START")),
];

pub(crate) fn run(ctx: &Context, args: &PlanSlurmArgs) -> Result<Exit, CliError> {
    let file = SpecFile::read(&ctx.cwd, &spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?)?;
    let workflow = file.load()?;
    let profile = clusters::find(ctx, args.packing.profile.profile.as_deref())?;
    show(ctx, &workflow, &profile, &args.packing, args.offline)?;
    Ok(Exit::Success)
}

/// What would be asked for, after it was seen that the cluster can give it.
pub(crate) fn show(
    ctx: &Context,
    workflow: &Workflow<'_>,
    profile: &Profile,
    packing_args: &PackingArgs,
    offline: bool,
) -> Result<(), CliError> {
    let mut rows: Vec<Row> = if packing::is_scheduled(workflow) {
        packing::check(workflow, profile)?;
        written(workflow)
    } else {
        let demands = packing::demands(workflow);
        packing::proposals(workflow, &demands, profile, packing_args)?.into_iter().map(proposed).collect()
    };
    if rows.is_empty() {
        ctx.ui.note("nothing is asked of Slurm");
    }
    if !offline {
        for row in &mut rows {
            row.start =
                Some(if row.is_deferred { "when jobs are ready".to_owned() } else { start(&row.scheduler)? });
        }
    }
    ctx.ui.print_list(&Listing::new(FIELDS), rows)?;
    Ok(())
}

fn proposed(proposal: Proposal) -> Row {
    let core_hours = Some((proposal.core_hours() * 10.0).round() / 10.0);
    let group = proposal.group;
    Row {
        partition: Some(group.partition),
        jobs: Some(group.jobs),
        allocations: group.allocations,
        walltime: Some(group.walltime),
        core_hours,
        is_deferred: group.is_deferred,
        start: None,
        scheduler: proposal.scheduler,
    }
}

/// What the spec says itself.
fn written(workflow: &Workflow<'_>) -> Vec<Row> {
    let asks = workflow.actions().iter().filter(|one| one.action.action_type == ActionType::ScheduleNodes);
    let row = |one: &windlass_spec::ResolvedAction| {
        let name = one.action.scheduler.as_deref()?;
        let scheduler = workflow.schedulers().iter().find(|scheduler| scheduler.name == name)?.clone();
        let waits = |job: &u32| workflow.job(*job as usize).depends_on().any(|list| !list.is_empty());
        Some(Row {
            partition: scheduler.partition.clone(),
            jobs: None,
            allocations: one.action.num_allocations.unwrap_or(1),
            walltime: scheduler.walltime(),
            core_hours: None,
            is_deferred: one.jobs.iter().any(waits),
            start: None,
            scheduler,
        })
    };
    asks.filter_map(row).collect()
}

/// When one of its allocations would start, as Slurm says.
fn start(scheduler: &SlurmScheduler) -> Result<String, CliError> {
    let mut options = words::split(scheduler.extra.as_deref().unwrap_or_default())
        .map_err(|e| CliError::user(format!("`extra` of scheduler `{}`: {e}", scheduler.name)))?;
    let texts = [
        ("account", Some(scheduler.account.as_str()).filter(|account| !account.is_empty())),
        ("partition", scheduler.partition.as_deref()),
        ("qos", scheduler.qos.as_deref()),
        ("mem", scheduler.mem.as_deref()),
        ("gres", scheduler.gres.as_deref()),
        ("tmp", scheduler.tmp.as_deref()),
    ];
    options.extend(texts.iter().filter_map(|(name, value)| Some(format!("--{name}={}", (*value)?))));
    options.push(format!("--nodes={}", scheduler.nodes));
    options.extend(scheduler.ntasks_per_node.map(|tasks| format!("--ntasks-per-node={tasks}")));
    options.extend(scheduler.walltime().map(|walltime| format!("--time={}", write_walltime(walltime))));
    Ok(match discover::would_start(&options)? {
        WouldStart::At(at) => at,
        WouldStart::Never(why) => format!("never: {why}"),
    })
}
