//! Runs and cancellation: small writes that go through the writer one by one.

use super::apply::{Moved, current_run, find_job};
use super::column;
use super::load::Blocks;
use super::manage::By;
use super::{action_changes, orders, units};
use crate::Error;
use crate::db::{Db, values};
use crate::error::Fault;
use crate::sql::common as sql;
use serde_json::json;
use windlass_types::{JobId, JobStatus, RunId, StatusCounts, WorkflowId};

pub(crate) fn begin_run(db: &impl Db, workflow: WorkflowId, by: By<'_>) -> Result<(), Fault> {
    let touched = db.execute(sql::BEGIN_RUN, [by.now.0, workflow.0])?;
    require(touched, workflow)?;
    orders::close_overtaken(db, workflow, by)?;
    let run = current_run(db, workflow)?;
    by.note(db, workflow, "run", format!("run {run} is under way"), json!({ "run_id": run }))
}

pub(crate) fn end_run(db: &impl Db, workflow: WorkflowId, canceled: bool, by: By<'_>) -> Result<(), Fault> {
    let run = current_run(db, workflow)?;
    db.execute(sql::ANSWER_CANCEL, [i64::from(canceled), workflow.0])?;
    if db.execute(sql::END_RUN, [by.now.0, workflow.0])? == 0 {
        return Err(Error::RunNotBegun { workflow, run }.into());
    }
    if canceled {
        units::cancel_open(db, workflow, run, by)?;
    }
    let message = format!("run {run} {}", if canceled { "was canceled" } else { "is over" });
    let counts = counts(db, workflow)?;
    let told = json!({
        "run_id": run, "is_canceled": canceled, "jobs": counts.total(),
        "completed": counts.get(JobStatus::Completed), "failed": counts.get(JobStatus::Failed),
    });
    by.note(db, workflow, "run", message, told)
}

pub(crate) fn begin_next_run(
    db: &impl Db,
    workflow: WorkflowId,
    again: &[JobId],
    by: By<'_>,
) -> Result<RunId, Fault> {
    let held = counts(db, workflow)?.active();
    if held > 0 {
        return Err(Error::StillActive { workflow, held }.into());
    }
    let advanced = db.optional(sql::ADVANCE_RUN, [workflow.0], |row| row.get(0))?;
    let run = advanced.ok_or(Error::NoSuchWorkflow(workflow))?;
    reset_jobs(db, workflow, again)?;
    action_changes::rearm_for_run(db, workflow, &counts(db, workflow)?, by)?;
    for block in Blocks::read(db, workflow)?.iter() {
        db.execute(sql::RESET_ATTEMPTS, [block.first, block.end()])?;
    }
    db.execute(sql::BEGIN_RUN, [by.now.0, workflow.0])?;
    orders::close_overtaken(db, workflow, by)?;
    let message = format!("run {run} begins; {} jobs are to run again", again.len());
    by.note(db, workflow, "run", message, json!({ "run_id": run, "again": again.len() }))?;
    Ok(RunId(run))
}

fn reset_jobs(db: &impl Db, workflow: WorkflowId, jobs: &[JobId]) -> Result<(), Fault> {
    let mut moved = Moved::default();
    for &job in jobs {
        let from = find_job(db, workflow, job)?.ok_or(Error::NoSuchJob(job))?.status;
        db.execute(sql::RESET_JOB, values![job.0, workflow.0, from.code()])?;
        moved.note(from, JobStatus::Uninitialized);
    }
    moved.write(db, workflow)
}

pub(crate) fn request_cancel(db: &impl Db, workflow: WorkflowId, by: By<'_>) -> Result<(), Fault> {
    let touched = db.execute(sql::REQUEST_CANCEL, [by.now.0, workflow.0])?;
    require(touched, workflow)?;
    by.note(db, workflow, "run", "asked to cancel".to_owned(), json!({}))
}

pub(crate) fn cancel_requested(db: &impl Db, workflow: WorkflowId) -> Result<bool, Fault> {
    let found = db.optional(sql::CANCEL_REQUESTED, [workflow.0], |row| column::flag(row, 0))?;
    found.ok_or_else(|| Error::NoSuchWorkflow(workflow).into())
}

/// From the counts that every transaction keeps, not by counting.
pub(crate) fn counts(db: &impl Db, workflow: WorkflowId) -> Result<StatusCounts, Fault> {
    let mut counts = StatusCounts::default();
    db.for_each(sql::COUNTS, [workflow.0], |row| {
        let status: JobStatus = column::status(row, 0)?;
        counts.add(status, row.get::<i64>(1)?.unsigned_abs());
        Ok(())
    })?;
    Ok(counts)
}

fn require(touched: usize, workflow: WorkflowId) -> Result<(), Fault> {
    if touched == 0 { Err(Error::NoSuchWorkflow(workflow).into()) } else { Ok(()) }
}
