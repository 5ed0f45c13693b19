//! `windlass workers`: those who work for a server, or for a run on this machine.

use crate::args::workers::{WorkersArgs, WorkersListArgs, WorkersVerb};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use std::time::Duration;
use windlass_client::Worker;
use windlass_store::model::WorkerRow;
use windlass_types::{Bytes, WorkerId};

const FIELDS: &[Field<Worker>] = &[
    Field::new("id", |w: &Worker| w.id.0.into()).column(Column::number("ID")),
    Field::new("kind", |w: &Worker| (&w.kind).into()).column(Column::text("KIND")),
    Field::new("user", |w: &Worker| (&w.user).into()).column(Column::text("USER")),
    // Empty: for all that its user may run.
    Field::new("workflow_id", |w: &Worker| w.workflow_id.map(|id| id.0).into())
        .column(Column::number("WORKFLOW")),
    Field::new("host", |w: &Worker| (&w.host).into()).column(Column::text("HOST")),
    Field::new("pid", |w: &Worker| w.pid.into()).column(Column::number("PID")),
    Field::new("held_jobs", |w: &Worker| w.held_jobs.into()).column(Column::number("JOBS")),
    Field::new("silence_seconds", |w: &Worker| w.silence_seconds.map(seconds).into())
        .column(Column::number("SILENT")),
    Field::new("site", |w: &Worker| w.site.clone().into()).column(Column::text("SITE")),
    Field::new("labels", |w: &Worker| serde_json::json!(w.labels).into()),
    Field::shown(Column::text("LABELS"), |w: &Worker| w.labels.join(",").into()),
    Field::new("cpus", |w: &Worker| w.num_cpus.into()).column(Column::number("CPUS")),
    Field::new("memory_bytes", |w: &Worker| Bytes(w.memory_bytes).into()).column(Column::number("MEMORY")),
    Field::new("gpus", |w: &Worker| w.num_gpus.into()).column(Column::number("GPUS")),
    Field::new("max_jobs", |w: &Worker| w.max_jobs.into()).column(Column::number("MAX")),
    Field::new("time_left_seconds", |w: &Worker| w.time_left_seconds.map(seconds).into())
        .column(Column::number("LEFT")),
    Field::new("is_draining", |w: &Worker| w.is_draining.into()).column(Column::text("DRAINING")),
    Field::new("standing", |w: &Worker| w.standing.clone().into()),
    Field::new("set_aside_until", |w: &Worker| Datum::from(w.set_aside_until)),
    Field::new("set_aside_because", |w: &Worker| w.set_aside_because.clone().into()),
    // Empty: it gets all that fits.
    Field::shown(Column::text("RESTS"), rest),
    Field::new("started_at", |w: &Worker| w.started_at.into()).column(Column::text("SINCE")),
    Field::new("ended_at", |w: &Worker| Datum::from(w.ended_at)),
];

/// Why its node gets nothing, or little.
fn rest(worker: &Worker) -> Datum {
    let why = worker.set_aside_because.as_deref().unwrap_or_default();
    match (worker.standing.as_deref(), worker.set_aside_until) {
        (Some("set_aside"), Some(until)) => format!("until {until}: {why}").into(),
        (Some("on_probation"), _) => format!("on probation: {why}").into(),
        _ => "".into(),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs(seconds as u64)
}

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
    let store = ctx.open_read()?;
    let workflow = args.workflow.as_ref().map(|of| select::workflow(&*store, of)).transpose()?;
    let workflow = workflow.map(|row| row.id);
    let workers: Vec<Worker> = match ctx.server()? {
        Some(client) => client.workers(workflow)?,
        None => store.active_workers(workflow)?.into_iter().map(from_row).collect(),
    };
    if workers.is_empty() {
        ctx.ui.note("nobody works here now; `windlass worker` starts a worker");
    }
    ctx.ui.print_list(&Listing::new(FIELDS), workers)?;
    Ok(Exit::Success)
}

fn show(ctx: &Context, worker: WorkerId) -> Result<Exit, CliError> {
    let found = if let Some(client) = ctx.server()? {
        client.worker(worker)?
    } else {
        let row = ctx.open_read()?.worker(worker)?;
        from_row(row.ok_or(windlass_store::Error::NoSuchWorker(worker))?)
    };
    ctx.ui.print_record(&Listing::new(FIELDS), found)?;
    Ok(Exit::Success)
}

/// One of a run on this machine: what changes all the time only that run knows.
fn from_row(row: WorkerRow) -> Worker {
    let WorkerRow { id, worker, started_at, ended_at, is_draining } = row;
    Worker {
        id,
        kind: worker.kind.name().to_owned(),
        user: worker.user,
        host: worker.host,
        pid: worker.pid,
        workflow_id: worker.workflow,
        site: worker.site,
        labels: worker.labels,
        num_cpus: worker.capacity.cpus,
        memory_bytes: worker.capacity.memory.0,
        num_gpus: worker.capacity.gpus,
        max_jobs: worker.capacity.max_jobs,
        started_at,
        ended_at,
        is_draining,
        held_jobs: None,
        silence_seconds: None,
        time_left_seconds: None,
        standing: None,
        set_aside_because: None,
        set_aside_until: None,
    }
}
