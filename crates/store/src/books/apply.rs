//! Puts decided changes on disk. Every change names what it expects to find; what does not fit is refused by name.

use super::job_events::{self, JobEvent};
use super::manage::By;
use super::{action_changes, allocations, column, events, failures, orders, units};
use crate::db::{Db, Pipeline, values};
use crate::error::{Fault, JobState};
use crate::model::{NewEvent, Severity};
use crate::sql::common as sql;
use crate::{Batch, Error};
use std::time::Duration;
use windlass_core::change::{AttemptResult, Change};
use windlass_types::work::{AttemptKey, Exit, FilesSeen};
use windlass_types::{Attempt, Bytes, Clock, JobId, JobStatus, RunId, Timestamp, WorkflowId};

/// All of the batch or, with the savepoint or transaction around it undone, nothing.
pub(crate) fn apply(db: &impl Db, batch: &Batch, actor: &str) -> Result<(), Fault> {
    let now = Clock.now();
    // In one go, because each time that somebody far away is waited for costs more than a change.
    let sent = db.pipeline(|pipe| {
        pipe.require(OF_RUN, sql::IS_CURRENT_RUN, &values![batch.workflow.0, batch.run.0])?;
        let mut moved = Moved::default();
        for (number, change) in batch.changes.iter().enumerate() {
            if let Some((from, to)) = send(pipe, number, batch, change, now)? {
                moved.note(from, to);
            }
        }
        let events = batch.changes.iter().filter_map(|change| job_events::told(change, batch.run));
        job_events::send(pipe, batch.workflow, actor, now, &events.collect::<Vec<JobEvent>>())?;
        moved.send(pipe, batch.changes.len(), batch.workflow)
    });
    match sent {
        Err(Fault::Untouched(number)) => return Err(unfit(db, batch, number)?),
        other => other?,
    }
    note_files(db, batch)?;
    action_changes::note(db, batch.workflow, &batch.changes, By { actor, now })?;
    let waited =
        |change: &Change| expected(change).is_some_and(|(_, was)| was.status == JobStatus::PendingFailed);
    if batch.changes.iter().any(waited) {
        orders::close_overtaken(db, batch.workflow, By { actor, now })?;
    }
    for change in &*batch.changes {
        if let Change::End { result, .. } = change {
            allocations::name_known_end(db, result)?;
        }
    }
    note_recoveries(db, batch, By { actor, now })?;
    note_alarms(db, batch, By { actor, now })
}

/// The job was tried again all the same; whoever wrote the script wants to know that it did not do its work.
fn note_recoveries(db: &impl Db, batch: &Batch, by: By<'_>) -> Result<(), Fault> {
    for change in &*batch.changes {
        let Change::End { result, .. } = change else { continue };
        let Some(how) = result.recovered.as_deref().filter(|how| !how.succeeded()) else { continue };
        let AttemptKey { job, attempt, .. } = result.key;
        let message = format!("the recovery script before attempt {attempt} of job {job} {how}");
        let event = NewEvent {
            workflow: Some(batch.workflow),
            job: Some(job),
            severity: Severity::Warning,
            category: "recovery_script".to_owned(),
            message,
            data: Some(serde_json::json!({ "attempt": attempt, "recovered": how })),
        };
        events::note(db, by.actor, &event, by.now)?;
    }
    Ok(())
}

fn note_alarms(db: &impl Db, batch: &Batch, by: By<'_>) -> Result<(), Fault> {
    for change in &*batch.changes {
        let Change::Alarm(alarm) = change else { continue };
        let event = NewEvent {
            workflow: Some(batch.workflow),
            job: None,
            severity: Severity::Error,
            category: alarm.category.clone(),
            message: alarm.message.clone(),
            data: Some(alarm.data.clone()),
        };
        events::note(db, by.actor, &event, by.now)?;
    }
    Ok(())
}

/// What is called so belongs to the run; the changes are called by their numbers, and the counts come after them.
const OF_RUN: usize = usize::MAX;

/// Why the batch cannot be: what is called `number` was not there.
fn unfit(db: &impl Db, batch: &Batch, number: usize) -> Result<Fault, Fault> {
    let workflow = batch.workflow;
    if number == OF_RUN {
        // A batch that was decided in an earlier run changes nothing.
        let found = current_run(db, workflow)?;
        return Ok(Error::StaleRun { workflow, expected: batch.run, found }.into());
    }
    match batch.changes.get(number) {
        Some(change) => conflict(db, batch, change),
        None => Ok(no_count(workflow, number - batch.changes.len())),
    }
}

fn no_count(workflow: WorkflowId, status: usize) -> Fault {
    Fault::damage(format!("workflow {workflow} has no count of state {status}"))
}

pub(crate) fn current_run(db: &impl Db, workflow: WorkflowId) -> Result<RunId, Fault> {
    let run = db.optional(sql::CURRENT_RUN, [workflow.0], |row| row.get(0))?;
    run.map(RunId).ok_or_else(|| Error::NoSuchWorkflow(workflow).into())
}

/// From which state to which it brings its job, if it is about one.
fn send(
    pipe: &mut dyn Pipeline,
    number: usize,
    batch: &Batch,
    change: &Change,
    now: Timestamp,
) -> Result<Option<(JobStatus, JobStatus)>, Fault> {
    let workflow = batch.workflow.0;
    match *change {
        // Being held by a worker leaves traces that a plain change of state would not make or clear.
        Change::Status { job, from, to } if from.is_active() || to.is_active() => {
            let what = format!("a plain change of job {job} from `{from}` to `{to}`");
            return Err(Error::OutOfRange { what }.into());
        }
        Change::Status { job, from, to } => {
            pipe.send_row(
                number,
                Some(job.0),
                sql::SET_STATUS,
                &values![to.code(), job.0, workflow, from.code()],
            )?;
        }
        Change::Claim { job, attempt, worker } => {
            pipe.send_row(number, Some(job.0), sql::CLAIM, &values![worker.0, job.0, workflow, attempt.0])?;
        }
        Change::Start { job, attempt, worker, at, pid } => {
            let values = values![at.0, pid, job.0, workflow, attempt.0, worker.0];
            pipe.send_row(number, Some(job.0), sql::START, &values)?;
        }
        Change::End { from, to, ref result, next_attempt, orphaned, ref failure, ref carried } => {
            send_end(pipe, number, batch, from, to, result, next_attempt, orphaned)?;
            if let Some(failure) = failure {
                failures::note(pipe, number, &result.key, failure)?;
            }
            if to == JobStatus::Ready {
                failures::carry(pipe, number, batch, result.key.job, carried.as_deref())?;
            }
        }
        Change::GiveBack { job, worker } => {
            pipe.send_row(number, Some(job.0), sql::GIVE_BACK, &values![job.0, workflow, worker.0])?;
        }
        Change::HandOver { job, from, to } => {
            pipe.send_row(number, Some(job.0), sql::HAND_OVER, &values![to.0, job.0, workflow, from.0])?;
        }
        Change::Retry { job, from, .. } | Change::Reset { job, from, .. } if from.is_active() => {
            let what = format!("another attempt of job {job}, which is `{from}`");
            return Err(Error::OutOfRange { what }.into());
        }
        Change::Retry { job, from, attempt } => {
            let values = values![attempt.next().0, job.0, workflow, from.code(), attempt.0];
            pipe.send_row(number, Some(job.0), sql::RETRY, &values)?;
            failures::begin_to_count_anew(pipe, number, batch, job, attempt.next())?;
        }
        Change::Reset { job, from, attempt } => {
            let values = values![attempt.0, job.0, workflow, from.code()];
            pipe.send_row(number, Some(job.0), sql::RESET, &values)?;
            failures::begin_to_count_anew(pipe, number, batch, job, attempt)?;
        }
        Change::Action(ref change) => {
            action_changes::send(pipe, number, batch.workflow, batch.run, change)?;
        }
        Change::Ignore { job, attempt } => {
            pipe.send(number, sql::IGNORE, &values![job.0, workflow, batch.run.0, attempt.0])?;
        }
        Change::Unit(ref change) => units::send(pipe, number, (batch.workflow, batch.run), change, now)?,
        Change::EndedAt { ref site, ref handler, attempts } => {
            units::count_at_site(pipe, number, batch.workflow, (site, handler), attempts)?;
        }
        // Noted when all else has been.
        Change::Alarm(_) => {}
    }
    Ok(expected(change).map(|(_, found)| found.status).zip(to(change)))
}

/// The job of a change and how it must be for the change to be made.
fn expected(change: &Change) -> Option<(JobId, JobState)> {
    let (job, status, attempt) = match *change {
        Change::Status { job, from, .. } | Change::Reset { job, from, .. } => (job, from, None),
        Change::Claim { job, attempt, .. } => (job, JobStatus::Ready, Some(attempt)),
        Change::Start { job, attempt, .. } => (job, JobStatus::Pending, Some(attempt)),
        Change::End { from, ref result, .. } => (result.key.job, from, Some(result.key.attempt)),
        Change::GiveBack { job, .. } | Change::HandOver { job, .. } => (job, JobStatus::Pending, None),
        Change::Retry { job, from, attempt } => (job, from, Some(attempt)),
        Change::Ignore { job, attempt } => (job, JobStatus::Failed, Some(attempt)),
        Change::Action(_) | Change::Unit(_) | Change::EndedAt { .. } | Change::Alarm(_) => return None,
    };
    Some((job, JobState { status, attempt }))
}

/// The state a change leads to.
const fn to(change: &Change) -> Option<JobStatus> {
    Some(match *change {
        Change::Status { to, .. } | Change::End { to, .. } => to,
        Change::Claim { .. } | Change::HandOver { .. } => JobStatus::Pending,
        Change::Start { .. } => JobStatus::Running,
        Change::GiveBack { .. } | Change::Retry { .. } => JobStatus::Ready,
        Change::Reset { .. } => JobStatus::Uninitialized,
        Change::Action(_)
        | Change::Ignore { .. }
        | Change::Unit(_)
        | Change::EndedAt { .. }
        | Change::Alarm(_) => return None,
    })
}

/// Something else was found than what the change was decided on.
fn conflict(db: &impl Db, batch: &Batch, change: &Change) -> Result<Fault, Fault> {
    let workflow = batch.workflow;
    if let Change::Unit(change) = change {
        return Ok(units::conflict(workflow, change));
    }
    let Some((job, expected)) = expected(change) else { return Ok(action_changes::conflict(change)) };
    let found = find_job(db, workflow, job)?;
    Ok(Error::Conflict { workflow, job, expected, found }.into())
}

#[expect(clippy::too_many_arguments, reason = "the fields of one change")]
fn send_end(
    pipe: &mut dyn Pipeline,
    number: usize,
    batch: &Batch,
    from: JobStatus,
    to: JobStatus,
    result: &AttemptResult,
    next_attempt: Attempt,
    orphaned: bool,
) -> Result<(), Fault> {
    let key = result.key;
    if key.workflow != batch.workflow || key.run != batch.run {
        return Err(Error::OutOfRange { what: format!("the result of {key} in this batch") }.into());
    }
    if !from.is_active() {
        return Err(Error::OutOfRange { what: format!("the end of {key} from `{from}`") }.into());
    }
    let values = values![
        to.code(),
        next_attempt.0,
        i64::from(orphaned),
        key.job.0,
        key.workflow.0,
        from.code(),
        key.attempt.0,
        result.worker.0
    ];
    pipe.send_row(number, Some(key.job.0), sql::END, &values)?;
    if to == JobStatus::Ready && next_attempt > key.attempt && !orphaned {
        pipe.send_row(number, Some(key.job.0), sql::MARK_RETRIED, &values![key.job.0])?;
    }
    send_result(pipe, number, result)
}

fn send_result(pipe: &mut dyn Pipeline, number: usize, result: &AttemptResult) -> Result<(), Fault> {
    let (exit_code, signal) = match result.exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let usage = &result.usage;
    let files = result.files.as_deref().map(column::json_text).transpose()?;
    let recovered = result.recovered.as_deref().map(column::json_text).transpose()?;
    let values = values![
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
        files,
        recovered,
    ];
    // Nobody else writes a result of this attempt.
    pipe.send_row(number, None, sql::INSERT_RESULT, &values)
}

/// Keeps with each file how it was last seen. What was seen is in the order of the job's files.
fn note_files(db: &impl Db, batch: &Batch) -> Result<(), Fault> {
    let seen: Vec<(JobId, &FilesSeen)> = batch.changes.iter().filter_map(files_seen).collect();
    for (job, seen) in seen {
        let (mut inputs, mut outputs) = (seen.inputs.iter(), seen.outputs.iter());
        let files =
            db.all(sql::FILES_OF_JOB, [job.0], |row| Ok((row.get::<i64>(0)?, column::flag(row, 1)?)))?;
        db.pipeline(|pipe| {
            for (file, is_output) in files {
                let state = if is_output { outputs.next() } else { inputs.next() };
                if let Some(Some(state)) = state {
                    let size = bytes(Bytes(state.size));
                    pipe.send(0, sql::FILE_SEEN, &values![state.mtime_ns, size, file])?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn files_seen(change: &Change) -> Option<(JobId, &FilesSeen)> {
    match change {
        Change::End { result, .. } => Some((result.key.job, result.files.as_deref()?)),
        _ => None,
    }
}

/// How a job stands, if there is one of that number in the workflow.
pub(crate) fn find_job(db: &impl Db, workflow: WorkflowId, job: JobId) -> Result<Option<JobState>, Fault> {
    db.optional(sql::FOUND_JOB, [job.0, workflow.0], |row| {
        Ok(JobState { status: column::status(row, 0)?, attempt: Some(Attempt(row.get(1)?)) })
    })
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

    pub(crate) fn write(&self, db: &impl Db, workflow: WorkflowId) -> Result<(), Fault> {
        match db.pipeline(|pipe| self.send(pipe, 0, workflow)) {
            Err(Fault::Untouched(status)) => Err(no_count(workflow, status)),
            other => other,
        }
    }

    /// Each is called by its state, counted from `first`.
    fn send(&self, pipe: &mut dyn Pipeline, first: usize, workflow: WorkflowId) -> Result<(), Fault> {
        for (status, n) in self.0.iter().enumerate().filter(|(_, n)| **n != 0) {
            let values = values![*n, workflow.0, status as i64];
            pipe.send_row(first + status, None, sql::ADD_COUNT, &values)?;
        }
        Ok(())
    }
}
