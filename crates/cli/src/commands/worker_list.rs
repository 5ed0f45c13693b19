//! `windlass worker list`: the workers of a server, or of a run on this machine.

use crate::args::worker_subcommands::{WorkerSubcommand, WorkersListArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use std::time::Duration;
use windlass_client::WorkerInfo;
use windlass_store::model::WorkerRow;
use windlass_types::{Bytes, WorkerId};

const FIELDS: &[ListField<WorkerInfo>] = &[
    ListField::new("id", |w: &WorkerInfo| w.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("kind", |w: &WorkerInfo| (&w.kind).into()).column(TableColumn::text("KIND")),
    ListField::new("user", |w: &WorkerInfo| (&w.user).into()).column(TableColumn::text("USER")),
    // Empty: all workflows that the user may run.
    ListField::new("workflow_id", |w: &WorkerInfo| w.workflow_id.map(|id| id.0).into())
        .column(TableColumn::number("WORKFLOW")),
    ListField::new("host", |w: &WorkerInfo| (&w.host).into()).column(TableColumn::text("HOST")),
    ListField::new("pid", |w: &WorkerInfo| w.pid.into()).column(TableColumn::number("PID")),
    ListField::new("held_jobs", |w: &WorkerInfo| w.held_jobs.into()).column(TableColumn::number("JOBS")),
    ListField::new("silence_seconds", |w: &WorkerInfo| w.silence_seconds.map(seconds_to_duration).into())
        .column(TableColumn::number("SILENT")),
    ListField::new("site", |w: &WorkerInfo| w.site.clone().into()).column(TableColumn::text("SITE")),
    ListField::new("labels", |w: &WorkerInfo| serde_json::json!(w.labels).into()),
    ListField::table_only(TableColumn::text("LABELS"), |w: &WorkerInfo| w.labels.join(",").into()),
    ListField::new("cpus", |w: &WorkerInfo| w.num_cpus.into()).column(TableColumn::number("CPUS")),
    ListField::new("memory_bytes", |w: &WorkerInfo| Bytes(w.memory_bytes).into())
        .column(TableColumn::number("MEMORY")),
    ListField::new("gpus", |w: &WorkerInfo| w.num_gpus.into()).column(TableColumn::number("GPUS")),
    ListField::new("max_jobs", |w: &WorkerInfo| w.max_jobs.into()).column(TableColumn::number("MAX")),
    ListField::new("time_left_seconds", |w: &WorkerInfo| w.time_left_seconds.map(seconds_to_duration).into())
        .column(TableColumn::number("LEFT")),
    ListField::new("is_draining", |w: &WorkerInfo| w.is_draining.into())
        .column(TableColumn::text("DRAINING")),
    ListField::new("standing", |w: &WorkerInfo| w.standing.clone().into()),
    ListField::new("quarantined_until", |w: &WorkerInfo| FieldValue::from(w.quarantined_until)),
    ListField::new("quarantine_reason", |w: &WorkerInfo| w.quarantine_reason.clone().into()),
    // Empty: accepts all jobs that fit.
    ListField::table_only(TableColumn::text("QUARANTINE"), render_standing),
    ListField::new("started_at", |w: &WorkerInfo| w.started_at.into()).column(TableColumn::text("SINCE")),
    ListField::new("ended_at", |w: &WorkerInfo| FieldValue::from(w.ended_at)),
];

/// Why its node gets no jobs, or few.
fn render_standing(worker: &WorkerInfo) -> FieldValue {
    let why = worker.quarantine_reason.as_deref().unwrap_or_default();
    match (worker.standing.as_deref(), worker.quarantined_until) {
        (Some("quarantined" | "set_aside"), Some(until)) => format!("until {until}: {why}").into(),
        (Some("on_probation"), _) => format!("on probation: {why}").into(),
        _ => "".into(),
    }
}

fn seconds_to_duration(seconds: f64) -> Duration {
    Duration::from_secs(seconds as u64)
}

pub(crate) fn run(ctx: &CliContext, verb: &WorkerSubcommand) -> Result<CliExit, CliError> {
    match verb {
        WorkerSubcommand::List(args) => list_workers(ctx, args),
        WorkerSubcommand::Show(args) => show_worker(ctx, args.worker),
        WorkerSubcommand::Drain(args) => {
            ctx.require_server()?.drain_worker(args.worker)?;
            ctx.ui.print_note(&format!("worker {} is draining: it finishes its jobs and exits", args.worker));
            Ok(CliExit::Success)
        }
        WorkerSubcommand::Retire(args) => {
            ctx.require_server()?.retire_worker(args.worker)?;
            ctx.ui.print_note(&format!("worker {} is retired; its jobs are queued again", args.worker));
            Ok(CliExit::Success)
        }
        WorkerSubcommand::Start(args) => super::worker::run(ctx, args),
        WorkerSubcommand::Nodes(args) => super::nodes::run(ctx, args),
        WorkerSubcommand::Remote(args) => super::remote::run(ctx, &args.verb),
    }
}

fn list_workers(ctx: &CliContext, args: &WorkersListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow =
        args.workflow.as_ref().map(|of| object_selection::find_workflow(&*store, of)).transpose()?;
    let workflow = workflow.map(|row| row.id);
    let workers: Vec<WorkerInfo> = match ctx.server()? {
        Some(client) => client.workers(workflow)?,
        None => store.active_workers(workflow)?.into_iter().map(worker_from_row).collect(),
    };
    if workers.is_empty() {
        ctx.ui.print_note("no workers; `windlass worker` starts one");
    }
    ctx.ui.print_list(&ListFields::new(FIELDS), workers)?;
    Ok(CliExit::Success)
}

fn show_worker(ctx: &CliContext, worker: WorkerId) -> Result<CliExit, CliError> {
    let found = if let Some(client) = ctx.server()? {
        client.worker(worker)?
    } else {
        let row = ctx.open_read()?.worker(worker)?;
        worker_from_row(row.ok_or(windlass_store::StoreError::NoSuchWorker(worker))?)
    };
    ctx.ui.print_record(&ListFields::new(FIELDS), found)?;
    Ok(CliExit::Success)
}

/// A worker of a run on this machine: only that run knows its present load.
fn worker_from_row(row: WorkerRow) -> WorkerInfo {
    let WorkerRow { id, worker, started_at, ended_at, is_draining } = row;
    WorkerInfo {
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
        quarantine_reason: None,
        quarantined_until: None,
    }
}
