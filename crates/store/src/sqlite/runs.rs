//! Runs, cancellation and workers: small writes that go through the writer one by one.

use super::apply::{Moved, bytes, current_run, find_job};
use super::column;
use super::load::Blocks;
use super::manage::By;
use crate::Error;
use crate::error::Fault;
use crate::model::{NewWorker, WorkerRow};
use crate::sql::common as sql;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;
use windlass_types::{
    Bytes, Capacity, JobId, JobStatus, RunId, StatusCounts, Timestamp, WorkerId, WorkflowId,
};

pub(crate) fn begin_run(conn: &Connection, workflow: WorkflowId, by: By<'_>) -> Result<(), Fault> {
    let touched = conn.prepare_cached(sql::BEGIN_RUN)?.execute([by.now.0, workflow.0])?;
    require(touched, workflow)?;
    let run = current_run(conn, workflow)?;
    by.note(conn, workflow, "run", format!("run {run} is under way"), json!({ "run_id": run }))
}

pub(crate) fn end_run(
    conn: &Connection,
    workflow: WorkflowId,
    canceled: bool,
    by: By<'_>,
) -> Result<(), Fault> {
    let run = current_run(conn, workflow)?;
    conn.prepare_cached(sql::ANSWER_CANCEL)?.execute([i64::from(canceled), workflow.0])?;
    if conn.prepare_cached(sql::END_RUN)?.execute([by.now.0, workflow.0])? == 0 {
        return Err(Error::RunNotBegun { workflow, run }.into());
    }
    let message = format!("run {run} {}", if canceled { "was canceled" } else { "is over" });
    let counts = counts(conn, workflow)?;
    let told = json!({
        "run_id": run, "is_canceled": canceled, "jobs": counts.total(),
        "completed": counts.get(JobStatus::Completed), "failed": counts.get(JobStatus::Failed),
    });
    by.note(conn, workflow, "run", message, told)
}

pub(crate) fn begin_next_run(
    conn: &Connection,
    workflow: WorkflowId,
    again: &[JobId],
    by: By<'_>,
) -> Result<RunId, Fault> {
    let held = counts(conn, workflow)?.active();
    if held > 0 {
        return Err(Error::StillActive { workflow, held }.into());
    }
    let advanced =
        conn.prepare_cached(sql::ADVANCE_RUN)?.query_row([workflow.0], |row| row.get(0)).optional()?;
    let run = advanced.ok_or(Error::NoSuchWorkflow(workflow))?;
    reset_jobs(conn, workflow, again)?;
    for block in Blocks::read(conn, workflow)?.iter() {
        conn.prepare_cached(sql::RESET_ATTEMPTS)?.execute([block.first, block.end()])?;
    }
    conn.prepare_cached(sql::BEGIN_RUN)?.execute([by.now.0, workflow.0])?;
    let message = format!("run {run} begins; {} jobs are to run again", again.len());
    by.note(conn, workflow, "run", message, json!({ "run_id": run, "again": again.len() }))?;
    Ok(RunId(run))
}

fn reset_jobs(conn: &Connection, workflow: WorkflowId, jobs: &[JobId]) -> Result<(), Fault> {
    let mut moved = Moved::default();
    let mut reset = conn.prepare_cached(sql::RESET_JOB)?;
    for &job in jobs {
        let from = find_job(conn, workflow, job)?.ok_or(Error::NoSuchJob(job))?.status;
        reset.execute(params![job.0, workflow.0, from.code()])?;
        moved.note(from, JobStatus::Uninitialized);
    }
    moved.write(conn, workflow)
}

pub(crate) fn request_cancel(conn: &Connection, workflow: WorkflowId, by: By<'_>) -> Result<(), Fault> {
    let touched = conn.prepare_cached(sql::REQUEST_CANCEL)?.execute([by.now.0, workflow.0])?;
    require(touched, workflow)?;
    by.note(conn, workflow, "run", "asked to cancel".to_owned(), json!({}))
}

pub(crate) fn cancel_requested(conn: &Connection, workflow: WorkflowId) -> Result<bool, Fault> {
    let found = conn
        .prepare_cached(sql::CANCEL_REQUESTED)?
        .query_row([workflow.0], |row| column::flag(row, 0))
        .optional()?;
    found.ok_or_else(|| Error::NoSuchWorkflow(workflow).into())
}

pub(crate) fn add_worker(conn: &Connection, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, Fault> {
    current_run(conn, worker.workflow)?;
    let capacity = &worker.capacity;
    let id = conn.prepare_cached(sql::INSERT_WORKER)?.query_row(
        params![
            worker.workflow.0,
            worker.run.0,
            worker.host,
            worker.boot_id,
            worker.pid,
            worker.pid_start_ticks.cast_signed(),
            worker.token,
            worker.ledger_path,
            capacity.cpus,
            bytes(capacity.memory),
            capacity.gpus,
            capacity.nodes,
            capacity.max_jobs,
            now.0,
        ],
        |row| row.get(0),
    )?;
    Ok(WorkerId(id))
}

pub(crate) fn active_workers(conn: &Connection, workflow: WorkflowId) -> Result<Vec<WorkerRow>, Fault> {
    let mut statement = conn.prepare_cached(sql::ACTIVE_WORKERS)?;
    let rows = statement.query_map([workflow.0], worker_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn retire_worker(conn: &Connection, worker: WorkerId, now: Timestamp) -> Result<(), Fault> {
    match conn.prepare_cached(sql::RETIRE_WORKER)?.execute([now.0, worker.0])? {
        0 => Err(Error::NoSuchWorker(worker).into()),
        _ => Ok(()),
    }
}

/// From the counts that every transaction keeps, not by counting.
pub(crate) fn counts(conn: &Connection, workflow: WorkflowId) -> Result<StatusCounts, Fault> {
    let mut counts = StatusCounts::default();
    let mut statement = conn.prepare_cached(sql::COUNTS)?;
    let mut rows = statement.query([workflow.0])?;
    while let Some(row) = rows.next()? {
        let status: JobStatus = column::status(row, 0)?;
        counts.add(status, row.get::<_, i64>(1)?.unsigned_abs());
    }
    Ok(counts)
}

fn require(touched: usize, workflow: WorkflowId) -> Result<(), Fault> {
    if touched == 0 { Err(Error::NoSuchWorkflow(workflow).into()) } else { Ok(()) }
}

fn worker_row(row: &Row<'_>) -> rusqlite::Result<WorkerRow> {
    Ok(WorkerRow {
        id: WorkerId(row.get(0)?),
        worker: NewWorker {
            workflow: WorkflowId(row.get(1)?),
            run: RunId(row.get(2)?),
            host: row.get(3)?,
            boot_id: row.get(4)?,
            pid: row.get(5)?,
            pid_start_ticks: row.get::<_, i64>(6)?.cast_unsigned(),
            token: row.get(7)?,
            ledger_path: row.get(8)?,
            capacity: Capacity {
                cpus: row.get(9)?,
                memory: Bytes(row.get::<_, i64>(10)?.unsigned_abs()),
                gpus: row.get(11)?,
                nodes: row.get(12)?,
                max_jobs: row.get(13)?,
            },
        },
        started_at: Timestamp(row.get(14)?),
    })
}
