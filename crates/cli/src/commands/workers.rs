//! `windlass workers`: those who work for a server.

use crate::args::workers::{WorkersArgs, WorkersListArgs, WorkersVerb};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use windlass_store::model::WorkerRow;
use windlass_types::{WorkerId, WorkflowId};

const FIELDS: &[Field<WorkerRow>] = &[
    Field::new("id", |w: &WorkerRow| w.id.0.into()).column(Column::number("ID")),
    Field::new("kind", |w: &WorkerRow| w.worker.kind.name().into()).column(Column::text("KIND")),
    Field::new("user", |w: &WorkerRow| (&w.worker.user).into()).column(Column::text("USER")),
    // Empty: for all that its user may run.
    Field::new("workflow_id", |w: &WorkerRow| w.worker.workflow.map(|id| id.0).into())
        .column(Column::number("WORKFLOW")),
    Field::new("host", |w: &WorkerRow| (&w.worker.host).into()).column(Column::text("HOST")),
    Field::new("pid", |w: &WorkerRow| w.worker.pid.into()).column(Column::number("PID")),
    Field::new("labels", |w: &WorkerRow| w.worker.labels.join(",").into()).column(Column::text("LABELS")),
    Field::new("cpus", |w: &WorkerRow| w.worker.capacity.cpus.into()).column(Column::number("CPUS")),
    Field::new("memory_bytes", |w: &WorkerRow| w.worker.capacity.memory.into())
        .column(Column::number("MEMORY")),
    Field::new("gpus", |w: &WorkerRow| w.worker.capacity.gpus.into()).column(Column::number("GPUS")),
    Field::new("is_draining", |w: &WorkerRow| w.is_draining.into()).column(Column::text("DRAINING")),
    Field::new("started_at", |w: &WorkerRow| w.started_at.into()).column(Column::text("SINCE")),
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
    let workers = ctx.open_read()?.active_workers(args.workflow.map(WorkflowId))?;
    if workers.is_empty() {
        ctx.ui.note("nobody works here now; `windlass worker` starts a worker");
    }
    ctx.ui.print_list(&Listing::new(FIELDS), workers)?;
    Ok(Exit::Success)
}

fn show(ctx: &Context, worker: WorkerId) -> Result<Exit, CliError> {
    let found = ctx.open_read()?.active_workers(None)?.into_iter().find(|row| row.id == worker);
    let row = found.ok_or(windlass_store::Error::NoSuchWorker(worker))?;
    ctx.ui.print_record(&Listing::new(FIELDS), row)?;
    Ok(Exit::Success)
}
