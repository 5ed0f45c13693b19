//! Puts decided changes on disk. Every change names what it expects to find; what does not fit is refused by name.

use super::column;
use super::writer::Request;
use crate::error::{Fault, JobState};
use crate::sql::common as sql;
use crate::{Batch, Done, Error};
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;
use windlass_core::change::{AttemptResult, Change};
use windlass_types::work::{Exit, FilesSeen};
use windlass_types::{Attempt, Bytes, JobId, JobStatus, RunId, WorkflowId};

/// A batch and the one who waits for it.
pub(crate) struct Submission {
    pub(crate) batch: Batch,
    pub(crate) done: Done,
}

impl Request for Submission {
    fn apply(&mut self, conn: &Connection) -> Result<(), Fault> {
        apply(conn, &self.batch)
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        (self.done)(outcome);
    }
}

fn apply(conn: &Connection, batch: &Batch) -> Result<(), Fault> {
    check_run(conn, batch)?;
    let mut moved = Moved::default();
    for change in batch.changes.iter() {
        apply_change(conn, batch, change, &mut moved)?;
    }
    moved.write(conn, batch.workflow)
}

/// A batch that was decided in an earlier run changes nothing.
fn check_run(conn: &Connection, batch: &Batch) -> Result<(), Fault> {
    let found = current_run(conn, batch.workflow)?;
    if found != batch.run {
        return Err(Error::StaleRun { workflow: batch.workflow, expected: batch.run, found }.into());
    }
    Ok(())
}

pub(crate) fn current_run(conn: &Connection, workflow: WorkflowId) -> Result<RunId, Fault> {
    let run = conn.prepare_cached(sql::CURRENT_RUN)?.query_row([workflow.0], |row| row.get(0)).optional()?;
    run.map(RunId).ok_or_else(|| Error::NoSuchWorkflow(workflow).into())
}

fn apply_change(conn: &Connection, batch: &Batch, change: &Change, moved: &mut Moved) -> Result<(), Fault> {
    let workflow = batch.workflow;
    let (job, from, to, attempt, touched) = match *change {
        // Being held by a worker leaves traces that a plain change of state would not make or clear.
        Change::Status { job, from, to } if from.is_active() || to.is_active() => {
            let what = format!("a plain change of job {job} from `{from}` to `{to}`");
            return Err(Error::OutOfRange { what }.into());
        }
        Change::Status { job, from, to } => {
            let touched = conn.prepare_cached(sql::SET_STATUS)?.execute(params![
                to.code(),
                job.0,
                workflow.0,
                from.code()
            ])?;
            (job, from, to, None, touched)
        }
        Change::Claim { job, attempt, worker } => {
            let touched =
                conn.prepare_cached(sql::CLAIM)?.execute(params![worker.0, job.0, workflow.0, attempt.0])?;
            (job, JobStatus::Ready, JobStatus::Pending, Some(attempt), touched)
        }
        Change::Start { job, attempt, worker, at, pid } => {
            let touched = conn
                .prepare_cached(sql::START)?
                .execute(params![at.0, pid, job.0, workflow.0, attempt.0, worker.0])?;
            (job, JobStatus::Pending, JobStatus::Running, Some(attempt), touched)
        }
        Change::End { from, to, ref result, next_attempt, orphaned } => {
            let touched = end(conn, batch, from, to, result, next_attempt, orphaned)?;
            (result.key.job, from, to, Some(result.key.attempt), touched)
        }
        Change::GiveBack { job, worker } => {
            let touched =
                conn.prepare_cached(sql::GIVE_BACK)?.execute(params![job.0, workflow.0, worker.0])?;
            (job, JobStatus::Pending, JobStatus::Ready, None, touched)
        }
    };
    if touched == 0 {
        let expected = JobState { status: from, attempt };
        let found = find_job(conn, workflow, job)?;
        return Err(Error::Conflict { workflow, job, expected, found }.into());
    }
    moved.note(from, to);
    Ok(())
}

fn end(
    conn: &Connection,
    batch: &Batch,
    from: JobStatus,
    to: JobStatus,
    result: &AttemptResult,
    next_attempt: Attempt,
    orphaned: bool,
) -> Result<usize, Fault> {
    let key = result.key;
    if key.workflow != batch.workflow || key.run != batch.run {
        return Err(Error::OutOfRange { what: format!("the result of {key} in this batch") }.into());
    }
    if !from.is_active() {
        return Err(Error::OutOfRange { what: format!("the end of {key} from `{from}`") }.into());
    }
    let touched = conn.prepare_cached(sql::END)?.execute(params![
        to.code(),
        next_attempt.0,
        i64::from(orphaned),
        key.job.0,
        key.workflow.0,
        from.code(),
        key.attempt.0,
        result.worker.0
    ])?;
    if touched > 0 {
        insert_result(conn, result)?;
        if let Some(files) = &result.files {
            note_files(conn, key.job, files)?;
        }
    }
    Ok(touched)
}

fn insert_result(conn: &Connection, result: &AttemptResult) -> Result<(), Fault> {
    let (exit_code, signal) = match result.exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let usage = &result.usage;
    conn.prepare_cached(sql::INSERT_RESULT)?.execute(params![
        result.key.job.0,
        result.key.run.0,
        result.key.attempt.0,
        result.worker.0,
        result.status.code(),
        result.return_code,
        exit_code,
        signal,
        i64::from(result.out_of_memory),
        result.started_at.map(|at| at.0),
        result.ended_at.0,
        micros(result.wall),
        micros(usage.cpu_time),
        usage.peak_memory.map(bytes),
        usage.avg_memory.map(bytes),
        usage.peak_cpu_percent,
        usage.avg_cpu_percent,
        result.reason,
        result.files.as_deref().map(column::json_text).transpose()?,
    ])?;
    Ok(())
}

/// Keeps with each file how it was last seen. What was seen is in the order of the job's files.
fn note_files(conn: &Connection, job: JobId, seen: &FilesSeen) -> Result<(), Fault> {
    let mut files = conn.prepare_cached(sql::FILES_OF_JOB)?;
    let mut note = conn.prepare_cached(sql::FILE_SEEN)?;
    let (mut inputs, mut outputs) = (seen.inputs.iter(), seen.outputs.iter());
    let mut rows = files.query([job.0])?;
    while let Some(row) = rows.next()? {
        let state = if column::flag(row, 1)? { outputs.next() } else { inputs.next() };
        if let Some(Some(state)) = state {
            let size = bytes(Bytes(state.size));
            note.execute(params![state.mtime_ns, size, row.get::<_, i64>(0)?])?;
        }
    }
    Ok(())
}

/// How a job stands, if there is one of that number in the workflow.
pub(crate) fn find_job(
    conn: &Connection,
    workflow: WorkflowId,
    job: JobId,
) -> Result<Option<JobState>, Fault> {
    let found = conn.prepare_cached(sql::FOUND_JOB)?.query_row([job.0, workflow.0], |row| {
        Ok(JobState { status: column::status(row, 0)?, attempt: Some(Attempt(row.get(1)?)) })
    });
    Ok(found.optional()?)
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn bytes(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

/// How many jobs a batch moved into and out of each state, so that a batch costs a few updates of the counts and not
/// one per job.
#[derive(Default)]
pub(crate) struct Moved([i64; JobStatus::ALL.len()]);

impl Moved {
    pub(crate) fn note(&mut self, from: JobStatus, to: JobStatus) {
        self.0[usize::from(from.code())] -= 1;
        self.0[usize::from(to.code())] += 1;
    }

    /// A job that was not there before.
    pub(crate) fn add(&mut self, to: JobStatus) {
        self.0[usize::from(to.code())] += 1;
    }

    /// A job that is no more.
    pub(crate) fn remove(&mut self, from: JobStatus) {
        self.0[usize::from(from.code())] -= 1;
    }

    pub(crate) fn write(&self, conn: &Connection, workflow: WorkflowId) -> Result<(), Fault> {
        let mut statement = conn.prepare_cached(sql::ADD_COUNT)?;
        for (status, n) in self.0.iter().enumerate().filter(|(_, n)| **n != 0) {
            let touched = statement.execute(params![n, workflow.0, status as i64])?;
            if touched != 1 {
                return Err(rusqlite::Error::StatementChangedRows(touched).into());
            }
        }
        Ok(())
    }
}
