//! `windlass workers`: those who work for a server.

use crate::args::workers::{WorkersArgs, WorkersListArgs, WorkersVerb};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use windlass_store::Store;
use windlass_store::model::WorkerRow;
use windlass_types::{WorkerId, WorkflowId};

/// A worker and the workflow that it works for.
struct Works {
    workflow: WorkflowId,
    row: WorkerRow,
}

const FIELDS: &[Field<Works>] = &[
    Field::new("id", |w: &Works| w.row.id.0.into()).column(Column::number("ID")),
    Field::new("workflow_id", |w: &Works| w.workflow.0.into()).column(Column::number("WORKFLOW")),
    Field::new("host", |w: &Works| (&w.row.worker.host).into()).column(Column::text("HOST")),
    Field::new("pid", |w: &Works| w.row.worker.pid.into()).column(Column::number("PID")),
    Field::new("cpus", |w: &Works| w.row.worker.capacity.cpus.into()).column(Column::number("CPUS")),
    Field::new("memory_bytes", |w: &Works| w.row.worker.capacity.memory.into())
        .column(Column::number("MEMORY")),
    Field::new("gpus", |w: &Works| w.row.worker.capacity.gpus.into()).column(Column::number("GPUS")),
    Field::new("started_at", |w: &Works| w.row.started_at.into()).column(Column::text("SINCE")),
];

pub(crate) fn run(ctx: &Context, args: &WorkersArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, &args.list),
        Some(WorkersVerb::List(args)) => list(ctx, args),
        Some(WorkersVerb::Show(args)) => show(ctx, args.worker),
        Some(WorkersVerb::Drain(args)) => {
            ctx.require_server()?.drain_worker(args.worker)?;
            ctx.ui.note(&format!("worker {} finishes what it has, and leaves", args.worker));
            Ok(Exit::Success)
        }
        Some(WorkersVerb::Retire(args)) => {
            ctx.require_server()?.retire_worker(args.worker)?;
            ctx.ui.note(&format!("worker {} is noted as gone; what it held runs again", args.worker));
            Ok(Exit::Success)
        }
    }
}

fn list(ctx: &Context, args: &WorkersListArgs) -> Result<Exit, CliError> {
    let workers = active(&*ctx.open_read()?, args.workflow.map(WorkflowId))?;
    if workers.is_empty() {
        ctx.ui.note("nobody works here now; `windlass worker` starts a worker");
    }
    ctx.ui.print_list(&Listing::new(FIELDS), workers)?;
    Ok(Exit::Success)
}

fn show(ctx: &Context, worker: WorkerId) -> Result<Exit, CliError> {
    let found = active(&*ctx.open_read()?, None)?.into_iter().find(|works| works.row.id == worker);
    let works = found.ok_or(windlass_store::Error::NoSuchWorker(worker))?;
    ctx.ui.print_record(&Listing::new(FIELDS), works)?;
    Ok(Exit::Success)
}

/// Who works for one workflow, or for any that is under way.
fn active(store: &dyn Store, only: Option<WorkflowId>) -> Result<Vec<Works>, CliError> {
    let is_under_way =
        store.workflows()?.into_iter().filter(|row| row.started_at.is_some() && row.ended_at.is_none());
    let workflows = is_under_way.map(|row| row.id).filter(|id| only.is_none_or(|only| only == *id));
    let mut workers = Vec::new();
    for workflow in workflows {
        workers.extend(store.active_workers(Some(workflow))?.into_iter().map(|row| Works { workflow, row }));
    }
    workers.sort_by_key(|works| works.row.id);
    Ok(workers)
}
