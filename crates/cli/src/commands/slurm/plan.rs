//! `windlass slurm plan`: which allocations a spec's jobs would share, and when they would start.

use crate::args::slurm::{PackingArgs, PlanSlurmArgs};
use crate::clusters;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::packing::options;
use crate::plan::SpecFile;
use crate::spec_files;
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use windlass_core::slurm::generate::write_walltime;
use windlass_core::slurm::profile::Profile;
use windlass_core::slurm::usage::figure;
use windlass_insight::packing::{self, Planned};
use windlass_slurm::calls::Slurm;
use windlass_slurm::discover;
use windlass_slurm::read::cluster::WouldStart;
use windlass_spec::Workflow;
use windlass_types::format_duration;

struct Row {
    planned: Planned,
    start: Option<Start>,
}

// What a person decides by fits into 80 columns; programs get all of it.
const FIELDS: &[Field<Row>] = &[
    Field::new("scheduler", |row: &Row| (&row.planned.scheduler.name).into())
        .column(Column::elastic("SCHEDULER")),
    Field::new("partition", |row: &Row| row.planned.partition.clone().into())
        .column(Column::elastic("PARTITION")),
    Field::new("jobs", |row: &Row| row.planned.jobs.into()).column(Column::number("JOBS")),
    Field::new("allocations", |row: &Row| row.planned.allocations.into()).column(Column::number("ALLOCS")),
    Field::new("nodes", |row: &Row| row.planned.scheduler.nodes.into()).column(Column::number("NODES")),
    Field::new("walltime", |row: &Row| row.planned.walltime.map(write_walltime).into()),
    Field::shown(Column::number("TIME"), |row: &Row| row.planned.walltime.map(format_duration).into()),
    Field::new("mem", |row: &Row| row.planned.scheduler.mem.clone().into()),
    Field::new("gres", |row: &Row| row.planned.scheduler.gres.clone().into()),
    Field::new("extra", |row: &Row| row.planned.scheduler.extra.clone().into()),
    Field::new("core_hours", |row: &Row| row.planned.core_hours.into()),
    Field::shown(Column::number("CORE-H"), |row: &Row| row.planned.core_hours.map(figure).into()),
    Field::new("is_deferred", |row: &Row| row.planned.is_deferred.into()),
    Field::new("start", |row: &Row| row.start.as_ref().map(Start::in_full).into()),
    Field::shown(Column::text("START"), |row: &Row| row.start.as_ref().map(Start::in_short).into()),
];

enum Start {
    /// When its first jobs are ready.
    Later,
    Slurm(WouldStart),
}

impl Start {
    fn in_full(&self) -> String {
        match self {
            Self::Later => "when jobs are ready".to_owned(),
            Self::Slurm(start) => start.to_string(),
        }
    }

    fn in_short(&self) -> String {
        match self {
            Self::Later => "when ready".to_owned(),
            // `2026-11-16T14:22:05`: nobody plans for next year, or by seconds.
            Self::Slurm(WouldStart::At(at)) => {
                at.get(5..16).map_or_else(|| at.clone(), |short| short.replace('T', " "))
            }
            Self::Slurm(WouldStart::Never(_)) => "never".to_owned(),
        }
    }
}

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
    let planned = packing::plan(workflow, profile, &options(workflow, packing_args))?;
    let mut rows: Vec<Row> = planned.into_iter().map(|planned| Row { planned, start: None }).collect();
    if rows.is_empty() {
        ctx.ui.note("nothing is asked of Slurm");
    }
    if !offline {
        let slurm = Slurm::by_hand();
        for row in &mut rows {
            row.start = Some(start(&slurm, workflow, &row.planned)?);
        }
    }
    let never = rows.iter().filter_map(|row| match &row.start {
        Some(Start::Slurm(WouldStart::Never(why))) => {
            Some(format!("allocations of {} would never start: {why}", row.planned.scheduler.name))
        }
        _ => None,
    });
    let never: Vec<String> = never.collect();
    ctx.ui.print_list(&Listing::new(FIELDS), rows)?;
    for why in never {
        ctx.ui.warn(&why);
    }
    Ok(())
}

/// When one of its allocations would start.
fn start(slurm: &Slurm, workflow: &Workflow<'_>, planned: &Planned) -> Result<Start, CliError> {
    if planned.is_deferred {
        return Ok(Start::Later);
    }
    let request = planned.request(workflow).map_err(CliError::user)?;
    Ok(Start::Slurm(discover::would_start(slurm, &request)?))
}
