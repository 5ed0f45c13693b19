//! `windlass slurm allocations`, `cancel`, `schedule-nodes`: what is asked of Slurm, and how far that is. Only the books are
//! written here; the server talks to Slurm.

use super::schedulers::one_of;
use crate::args::allocations::{AllocationsArgs, CancelAllocationsArgs, ScheduleNodesArgs};
use crate::commands::parts::{json, print};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use std::collections::BTreeMap;
use windlass_core::slurm::book::NewAllocation;
use windlass_core::slurm::reasons::{self, Explained};
use windlass_core::slurm::request::{Crew, request};
use windlass_store::model::AllocationFilter;
use windlass_types::slurm::{Allocation, AllocationState, SlurmState};

const FIELDS: &[Field<Allocation>] = &[
    Field::new("id", |a: &Allocation| a.id.0.into()).column(Column::number("ID")),
    Field::new("workflow_id", |a: &Allocation| a.workflow.0.into()),
    Field::new("is_ours", |a: &Allocation| a.is_ours.into()),
    Field::new("scheduler", |a: &Allocation| (&a.request.scheduler).into())
        .column(Column::elastic("SCHEDULER")),
    Field::new("scheduler_id", |a: &Allocation| a.scheduler.into()),
    Field::new("state", |a: &Allocation| a.state.name().into()).column(Column::text("STATE")),
    Field::new("slurm_job_id", |a: &Allocation| job_id(a).into()).column(Column::number("SLURM JOB")),
    Field::new("tag", |a: &Allocation| (&a.tag).into()),
    Field::new("request", |a: &Allocation| json(&a.request)),
    Field::new("nodes", |a: &Allocation| a.nodes.as_ref().into()).column(Column::text("NODES")),
    Field::new("asked_by", |a: &Allocation| (&a.by).into()),
    Field::new("action_id", |a: &Allocation| a.action.map(|(action, ..)| action).into()),
    Field::new("created_at", |a: &Allocation| a.created_at.into()),
    Field::new("submitted_at", |a: &Allocation| a.submitted_at.into()),
    Field::new("started_at", |a: &Allocation| a.started_at.into()).column(Column::text("STARTED")),
    Field::new("ends_at", |a: &Allocation| a.ends_at.into()),
    Field::new("ended_at", |a: &Allocation| a.ended_at.into()),
    Field::shown(Column::text("ENDS"), |a: &Allocation| a.ended_at.or(a.ends_at).into()),
    Field::new("end", |a: &Allocation| a.end.map(SlurmState::name).into()),
    Field::new("exit_code", |a: &Allocation| a.exit_code.as_ref().into()),
    Field::new("reason", |a: &Allocation| a.reason.as_ref().into()),
    // Slurm's reason in plain words, while it waits.
    Field::new("explanation", |a: &Allocation| waits(a).map(|known| known.words).into()),
    Field::new("needs_human", |a: &Allocation| waits(a).is_some_and(|known| known.needs_human).into()),
    Field::new("unwanted", |a: &Allocation| a.unwanted.as_ref().into()),
    Field::shown(Column::elastic("WHY"), |a: &Allocation| why(a).into()),
];

fn job_id(row: &Allocation) -> Option<i64> {
    row.job_id.and_then(|job| i64::try_from(job).ok())
}

fn waits(row: &Allocation) -> Option<Explained> {
    let reason = row.reason.as_deref().filter(|_| row.state == AllocationState::Pending);
    reason.and_then(reasons::explain)
}

/// What the reasons mean for which allocations wait; each once, since hundreds may wait for the same.
fn explained(rows: &[Allocation]) -> Vec<String> {
    let mut known: BTreeMap<&str, (Vec<&Allocation>, Explained)> = BTreeMap::new();
    for row in rows {
        if let (Some(reason), Some(explained)) = (&row.reason, waits(row)) {
            known.entry(reason).or_insert_with(|| (Vec::new(), explained)).0.push(row);
        }
    }
    let tell = |(reason, (rows, explained)): (&str, (Vec<&Allocation>, Explained))| {
        let who = match rows.as_slice() {
            [row] => format!("allocation {} waits", row.id),
            rows => format!("{} wait", text::count(rows.len() as u64, "allocation")),
        };
        let help = if explained.needs_human { "; waiting alone does not help" } else { "" };
        format!("{who} ({reason}): {}{help}", explained.words)
    };
    known.into_iter().map(tell).collect()
}

/// How it ended, why it waits, that nobody wants it any more: what is most worth knowing.
fn why(row: &Allocation) -> Option<String> {
    let unwanted = row.unwanted.as_ref().filter(|_| !row.state.is_over());
    let unwanted = unwanted.map(|why| format!("to be canceled: {why}"));
    let end = row.end.map(|end| match &row.reason {
        Some(reason) => format!("{end}: {reason}"),
        None => end.to_string(),
    });
    unwanted.or(end).or_else(|| row.reason.clone())
}

pub(crate) fn list(ctx: &Context, args: &AllocationsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let filter = AllocationFilter {
        workflow: Some(workflow.id),
        is_open: args.open.then_some(true),
        states: args.state.into_iter().collect(),
        ..AllocationFilter::default()
    };
    let rows = store.allocations(&filter)?;
    let notes = if ctx.ui.json_wanted() { Vec::new() } else { explained(&rows) };
    let exit = print(ctx, &workflow, Listing::new(FIELDS), rows, &args.page)?;
    for note in notes {
        ctx.ui.note(&note);
    }
    Ok(exit)
}

pub(crate) fn cancel(ctx: &Context, args: &CancelAllocationsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let rows = store.discard_allocations(&args.allocations, &args.reason, ctx.clock.now())?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_list(&Listing::new(FIELDS), rows)?;
        return Ok(Exit::Success);
    }
    for row in rows {
        let told = match row.state {
            AllocationState::Withdrawn => "is withdrawn: Slurm never hears of it".to_owned(),
            state if state.is_over() => format!("is over already: {state}"),
            state => format!("is {state}; the server has Slurm cancel it"),
        };
        ctx.ui.note(&format!("allocation {} {told}", row.id));
    }
    Ok(Exit::Success)
}

pub(crate) fn schedule_nodes(ctx: &Context, args: &ScheduleNodesArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let scheduler = one_of(&*store, &workflow, args.scheduler.as_deref())?;
    let crew = Crew {
        one_worker_per_node: args.start_one_worker_per_node,
        max_parallel_jobs: args.max_parallel_jobs,
    };
    let request = request(&scheduler.scheduler, &workflow.settings.slurm_defaults, crew).map_err(|why| {
        CliError::user(why)
            .with_hint(format!("`windlass slurm update {}` changes the scheduler", scheduler.id))
    })?;
    let new = NewAllocation {
        workflow: workflow.id,
        scheduler: Some(scheduler.id),
        tag: String::new(),
        request,
        action: None,
        by: workflow.user.clone(),
    };
    let ids = store.add_allocations(&vec![new; args.count as usize], ctx.clock.now())?;
    if ctx.ui.json_wanted() {
        let filter = AllocationFilter { ids, ..AllocationFilter::default() };
        ctx.ui.print_list(&Listing::new(FIELDS), store.allocations(&filter)?)?;
        return Ok(Exit::Success);
    }
    for id in &ids {
        ctx.ui.print_line(&format!("allocation {id}"))?;
    }
    let nobody = match ctx.server()? {
        None => Some("nobody serves this database"),
        Some(client) if client.slurm_status()?.steward.is_none() => {
            Some("the server of this database asks nothing of Slurm")
        }
        Some(_) => None,
    };
    if let Some(nobody) = nobody {
        ctx.ui.note(&format!("{nobody}: they are submitted when `windlass serve --slurm` does"));
    }
    Ok(Exit::Success)
}
