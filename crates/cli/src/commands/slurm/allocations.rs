//! `windlass slurm allocations`, `cancel`, `schedule-nodes`: allocation requests and their state. These
//! commands only write to the database; the server calls Slurm.

use super::schedulers::select_scheduler;
use crate::args::allocations::{AllocationsArgs, CancelAllocationsArgs, ScheduleNodesArgs};
use crate::commands::workflow_parts::{json_value, print_objects};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use std::collections::BTreeMap;
use windlass_core::slurm::allocation_request::{AllocationWorkerOptions, build_request};
use windlass_core::slurm::allocation_rows::NewAllocation;
use windlass_core::slurm::pending_reasons::{self, PendingReason};
use windlass_store::model::AllocationFilter;
use windlass_types::slurm::{Allocation, AllocationState, SlurmJobState};

const FIELDS: &[ListField<Allocation>] = &[
    ListField::new("id", |a: &Allocation| a.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("workflow_id", |a: &Allocation| a.workflow.0.into()),
    ListField::new("is_ours", |a: &Allocation| a.is_ours.into()),
    ListField::new("scheduler", |a: &Allocation| (&a.request.scheduler).into())
        .column(TableColumn::flexible("SCHEDULER")),
    ListField::new("scheduler_id", |a: &Allocation| a.scheduler.into()),
    ListField::new("state", |a: &Allocation| a.state.name().into()).column(TableColumn::text("STATE")),
    ListField::new("slurm_job_id", |a: &Allocation| slurm_job_id(a).into())
        .column(TableColumn::number("SLURM JOB")),
    ListField::new("tag", |a: &Allocation| (&a.tag).into()),
    ListField::new("request", |a: &Allocation| json_value(&a.request)),
    ListField::new("nodes", |a: &Allocation| a.nodes.as_ref().into()).column(TableColumn::text("NODES")),
    ListField::new("asked_by", |a: &Allocation| (&a.by).into()),
    ListField::new("action_id", |a: &Allocation| a.action.map(|(action, ..)| action).into()),
    ListField::new("created_at", |a: &Allocation| a.created_at.into()),
    ListField::new("submitted_at", |a: &Allocation| a.submitted_at.into()),
    ListField::new("started_at", |a: &Allocation| a.started_at.into()).column(TableColumn::text("STARTED")),
    ListField::new("ends_at", |a: &Allocation| a.ends_at.into()),
    ListField::new("ended_at", |a: &Allocation| a.ended_at.into()),
    ListField::table_only(TableColumn::text("ENDS"), |a: &Allocation| a.ended_at.or(a.ends_at).into()),
    ListField::new("end", |a: &Allocation| a.end.map(SlurmJobState::name).into()),
    ListField::new("exit_code", |a: &Allocation| a.exit_code.as_ref().into()),
    ListField::new("reason", |a: &Allocation| a.reason.as_ref().into()),
    // An explanation of Slurm's reason while the allocation is pending.
    ListField::new("explanation", |a: &Allocation| explain_wait(a).map(|known| known.text).into()),
    ListField::new("needs_human", |a: &Allocation| {
        explain_wait(a).is_some_and(|known| known.needs_human).into()
    }),
    ListField::new("unwanted", |a: &Allocation| a.unwanted.as_ref().into()),
    ListField::table_only(TableColumn::flexible("WHY"), |a: &Allocation| allocation_reason(a).into()),
];

fn slurm_job_id(row: &Allocation) -> Option<i64> {
    row.job_id.and_then(|job| i64::try_from(job).ok())
}

fn explain_wait(row: &Allocation) -> Option<PendingReason> {
    let reason = row.reason.as_deref().filter(|_| row.state == AllocationState::Pending);
    reason.and_then(pending_reasons::explain_reason)
}

/// Explains pending reasons, once per reason, since hundreds of allocations may wait for the same.
fn explain_wait_reasons(rows: &[Allocation]) -> Vec<String> {
    let mut known: BTreeMap<&str, (Vec<&Allocation>, PendingReason)> = BTreeMap::new();
    for row in rows {
        if let (Some(reason), Some(explained)) = (&row.reason, explain_wait(row)) {
            known.entry(reason).or_insert_with(|| (Vec::new(), explained)).0.push(row);
        }
    }
    let tell = |(reason, (rows, explained)): (&str, (Vec<&Allocation>, PendingReason))| {
        let who = match rows.as_slice() {
            [row] => format!("allocation {} waits", row.id),
            rows => format!("{} wait", text::render_count(rows.len() as u64, "allocation")),
        };
        let help = if explained.needs_human { "; waiting will not help" } else { "" };
        format!("{who} ({reason}): {}{help}", explained.text)
    };
    known.into_iter().map(tell).collect()
}

/// The most important note: the outcome, the pending reason, or the cancellation reason.
fn allocation_reason(row: &Allocation) -> Option<String> {
    let unwanted = row.unwanted.as_ref().filter(|_| !row.state.is_over());
    let unwanted = unwanted.map(|why| format!("to be canceled: {why}"));
    let end = row.end.map(|end| match &row.reason {
        Some(reason) => format!("{end}: {reason}"),
        None => end.to_string(),
    });
    unwanted.or(end).or_else(|| row.reason.clone())
}

pub(crate) fn list_allocations(ctx: &CliContext, args: &AllocationsArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let filter = AllocationFilter {
        workflow: Some(workflow.id),
        is_open: args.open.then_some(true),
        states: args.state.into_iter().collect(),
        ..AllocationFilter::default()
    };
    let rows = store.allocations(&filter)?;
    let notes = if ctx.ui.wants_json() { Vec::new() } else { explain_wait_reasons(&rows) };
    let exit = print_objects(ctx, &workflow, ListFields::new(FIELDS), rows, &args.page)?;
    for note in notes {
        ctx.ui.print_note(&note);
    }
    Ok(exit)
}

pub(crate) fn cancel_allocations(
    ctx: &CliContext,
    args: &CancelAllocationsArgs,
) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let rows = store.discard_allocations(&args.allocations, &args.reason, ctx.clock.now())?;
    if ctx.ui.wants_json() {
        ctx.ui.print_list(&ListFields::new(FIELDS), rows)?;
        return Ok(CliExit::Success);
    }
    for row in rows {
        let told = match row.state {
            AllocationState::Withdrawn => "is withdrawn; it was not submitted to Slurm".to_owned(),
            state if state.is_over() => format!("has already ended: {state}"),
            state => format!("is {state}; the server cancels it in Slurm"),
        };
        ctx.ui.print_note(&format!("allocation {} {told}", row.id));
    }
    Ok(CliExit::Success)
}

pub(crate) fn schedule_nodes(ctx: &CliContext, args: &ScheduleNodesArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let scheduler = select_scheduler(&*store, &workflow, args.scheduler.as_deref())?;
    let worker_options = AllocationWorkerOptions {
        one_worker_per_node: args.start_one_worker_per_node,
        max_parallel_jobs: args.max_parallel_jobs,
    };
    let request = build_request(&scheduler.scheduler, &workflow.settings.slurm_defaults, worker_options)
        .map_err(|why| {
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
    if ctx.ui.wants_json() {
        let filter = AllocationFilter { ids, ..AllocationFilter::default() };
        ctx.ui.print_list(&ListFields::new(FIELDS), store.allocations(&filter)?)?;
        return Ok(CliExit::Success);
    }
    for id in &ids {
        ctx.ui.print_line(&format!("allocation {id}"))?;
    }
    let missing_server = match ctx.server()? {
        None => Some("no server is running for this database"),
        Some(client) if client.slurm_status()?.reconciler.is_none() => {
            Some("the server of this database was started without --slurm")
        }
        Some(_) => None,
    };
    if let Some(why) = missing_server {
        ctx.ui.print_note(&format!(
            "{why}: allocations are submitted when `windlass serve --slurm` is started"
        ));
    }
    Ok(CliExit::Success)
}
