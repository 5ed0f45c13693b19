//! Runs and cancellation: small writes that go through the writer one by one.

use super::apply_changes::{StatusCountDeltas, current_run, find_job_state};
use super::column_decoding;
use super::job_loading::JobIdBlocks;
use super::workflow_updates::AuditContext;
use super::{action_changes, failure_commands, work_units};
use crate::StoreError;
use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::sql::common as sql;
use serde_json::json;
use windlass_types::{JobId, JobStatus, RunId, StatusCounts, WorkflowId};

pub(crate) fn begin_run(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let touched = db.execute(sql::BEGIN_RUN, [by.now.0, workflow.0])?;
    require_touched(touched, workflow)?;
    failure_commands::close_obsolete_proposals(db, workflow, by)?;
    let run = current_run(db, workflow)?;
    by.record_event(db, workflow, "run", format!("run {run} is active"), json!({ "run_id": run }))
}

pub(crate) fn end_run(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    canceled: bool,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let run = current_run(db, workflow)?;
    db.execute(sql::END_CANCEL_REQUEST, [i64::from(canceled), workflow.0])?;
    if db.execute(sql::END_RUN, [by.now.0, workflow.0])? == 0 {
        return Err(StoreError::RunNotBegun { workflow, run }.into());
    }
    if canceled {
        work_units::cancel_open_units(db, workflow, run, by)?;
    }
    let message = format!("run {run} {}", if canceled { "was canceled" } else { "ended" });
    let counts = load_status_counts(db, workflow)?;
    let told = json!({
        "run_id": run, "is_canceled": canceled, "jobs": counts.total(),
        "completed": counts.get(JobStatus::Completed), "failed": counts.get(JobStatus::Failed),
        "terminated": counts.get(JobStatus::Terminated), "canceled": counts.get(JobStatus::Canceled),
    });
    by.record_event(db, workflow, "run", message, told)
}

pub(crate) fn begin_next_run(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    again: &[JobId],
    by: AuditContext<'_>,
) -> Result<RunId, SqlError> {
    let held = load_status_counts(db, workflow)?.active();
    if held > 0 {
        return Err(StoreError::StillActive { workflow, held }.into());
    }
    let advanced = db.query_optional(sql::ADVANCE_RUN, [workflow.0], |row| row.get(0))?;
    let run = advanced.ok_or(StoreError::NoSuchWorkflow(workflow))?;
    reset_jobs(db, workflow, again)?;
    action_changes::rearm_actions_for_run(db, workflow, &load_status_counts(db, workflow)?, by)?;
    for block in JobIdBlocks::load(db, workflow)?.iter() {
        db.execute(sql::RESET_ATTEMPTS, [block.first, block.end()])?;
    }
    db.execute(sql::BEGIN_RUN, [by.now.0, workflow.0])?;
    failure_commands::close_obsolete_proposals(db, workflow, by)?;
    let message = format!("run {run} started; {} jobs will run again", again.len());
    by.record_event(db, workflow, "run", message, json!({ "run_id": run, "again": again.len() }))?;
    Ok(RunId(run))
}

fn reset_jobs(db: &impl SqlConnection, workflow: WorkflowId, jobs: &[JobId]) -> Result<(), SqlError> {
    let mut moved = StatusCountDeltas::default();
    for &job in jobs {
        let from = find_job_state(db, workflow, job)?.ok_or(StoreError::NoSuchJob(job))?.status;
        db.execute(sql::RESET_JOB, values![job.0, workflow.0, from.code()])?;
        moved.record_move(from, JobStatus::Uninitialized);
    }
    moved.write_counts(db, workflow)
}

pub(crate) fn request_cancel(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let touched = db.execute(sql::REQUEST_CANCEL, [by.now.0, workflow.0])?;
    require_touched(touched, workflow)?;
    by.record_event(db, workflow, "run", "cancellation requested".to_owned(), json!({}))
}

pub(crate) fn is_cancel_requested(db: &impl SqlConnection, workflow: WorkflowId) -> Result<bool, SqlError> {
    let found =
        db.query_optional(sql::CANCEL_REQUESTED, [workflow.0], |row| column_decoding::read_flag(row, 0))?;
    found.ok_or_else(|| StoreError::NoSuchWorkflow(workflow).into())
}

/// From the stored counts, without counting.
pub(crate) fn load_status_counts(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<StatusCounts, SqlError> {
    let mut counts = StatusCounts::default();
    db.query_each(sql::COUNTS, [workflow.0], |row| {
        let status: JobStatus = column_decoding::read_status(row, 0)?;
        counts.add(status, row.get::<i64>(1)?.unsigned_abs());
        Ok(())
    })?;
    Ok(counts)
}

fn require_touched(touched: usize, workflow: WorkflowId) -> Result<(), SqlError> {
    if touched == 0 { Err(StoreError::NoSuchWorkflow(workflow).into()) } else { Ok(()) }
}
