//! Applies decided changes. Every change names the state it expects; a mismatch is rejected with details.

use super::job_events::{self, JobEvent};
use super::workflow_updates::AuditContext;
use super::{action_changes, allocations, column_decoding, events, failure_commands, failures, work_units};
use crate::db::{SqlConnection, StatementPipeline, values};
use crate::error::{JobAttemptState, SqlError};
use crate::model::{EventSeverity, NewEvent};
use crate::sql::common as sql;
use crate::{ChangeBatch, StoreError};
use std::time::Duration;
use windlass_core::change::{AttemptResult, WorkflowChange};
use windlass_types::worker_messages::{AttemptFiles, AttemptKey, ProcessExit};
use windlass_types::{Attempt, Bytes, JobId, JobStatus, RunId, SystemClock, Timestamp, WorkflowId};

/// Applies all of the batch or, after a rollback by the caller, nothing.
pub(crate) fn apply_batch(db: &impl SqlConnection, batch: &ChangeBatch, actor: &str) -> Result<(), SqlError> {
    let now = SystemClock.now();
    // Pipelined, because a round trip to a remote database costs more than a change.
    let sent = db.pipeline(|pipe| {
        pipe.require(RUN_STATEMENT, sql::IS_CURRENT_RUN, &values![batch.workflow.0, batch.run.0])?;
        let mut moved = StatusCountDeltas::default();
        for (number, change) in batch.changes.iter().enumerate() {
            if let Some((from, to)) = send_change(pipe, number, batch, change, now)? {
                moved.record_move(from, to);
            }
        }
        let events = batch.changes.iter().filter_map(|change| job_events::job_event(change, batch.run));
        job_events::send_job_events(pipe, batch.workflow, actor, now, &events.collect::<Vec<JobEvent>>())?;
        moved.send_counts(pipe, batch.changes.len(), batch.workflow)
    });
    match sent {
        Err(SqlError::NoRowAffected(number)) => return Err(explain_untouched(db, batch, number)?),
        other => other?,
    }
    record_files(db, batch)?;
    action_changes::record_action_events(db, batch.workflow, &batch.changes, AuditContext { actor, now })?;
    let waited = |change: &WorkflowChange| {
        expected_state(change).is_some_and(|(_, was)| was.status == JobStatus::PendingFailed)
    };
    if batch.changes.iter().any(waited) {
        failure_commands::close_obsolete_proposals(db, batch.workflow, AuditContext { actor, now })?;
    }
    for change in &*batch.changes {
        if let WorkflowChange::End { result, .. } = change {
            allocations::record_known_end(db, result)?;
        }
    }
    record_recovery_failures(db, batch, AuditContext { actor, now })?;
    record_retry_alarms(db, batch, AuditContext { actor, now })
}

/// The job was retried anyway; the event tells the author of the script that it failed.
fn record_recovery_failures(
    db: &impl SqlConnection,
    batch: &ChangeBatch,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    for change in &*batch.changes {
        let WorkflowChange::End { result, .. } = change else { continue };
        let Some(how) = result.recovered.as_deref().filter(|how| !how.succeeded()) else { continue };
        let AttemptKey { job, attempt, .. } = result.key;
        let message = format!("the recovery script before attempt {attempt} of job {job} {how}");
        let event = NewEvent {
            workflow: Some(batch.workflow),
            job: Some(job),
            severity: EventSeverity::Warning,
            category: "recovery_script".to_owned(),
            message,
            data: Some(serde_json::json!({ "attempt": attempt, "recovered": how })),
        };
        events::insert_event(db, by.actor, &event, by.now)?;
    }
    Ok(())
}

fn record_retry_alarms(
    db: &impl SqlConnection,
    batch: &ChangeBatch,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    for change in &*batch.changes {
        let WorkflowChange::RaiseAlarm(alarm) = change else { continue };
        let event = NewEvent {
            workflow: Some(batch.workflow),
            job: None,
            severity: EventSeverity::Error,
            category: alarm.category.clone(),
            message: alarm.message.clone(),
            data: Some(alarm.data.clone()),
        };
        events::insert_event(db, by.actor, &event, by.now)?;
    }
    Ok(())
}

/// Number of the statement about the run; changes have their index as number, and the counts follow them.
const RUN_STATEMENT: usize = usize::MAX;

/// Returns the error for the statement `number`, which affected no row.
fn explain_untouched(
    db: &impl SqlConnection,
    batch: &ChangeBatch,
    number: usize,
) -> Result<SqlError, SqlError> {
    let workflow = batch.workflow;
    if number == RUN_STATEMENT {
        // A batch decided in an earlier run is rejected as a whole.
        let found = current_run(db, workflow)?;
        return Ok(StoreError::StaleRun { workflow, expected: batch.run, found }.into());
    }
    match batch.changes.get(number) {
        Some(change) => conflict_error(db, batch, change),
        None => Ok(missing_count(workflow, number - batch.changes.len())),
    }
}

fn missing_count(workflow: WorkflowId, status: usize) -> SqlError {
    SqlError::damage(format!("workflow {workflow} has no job count for state {status}"))
}

pub(crate) fn current_run(db: &impl SqlConnection, workflow: WorkflowId) -> Result<RunId, SqlError> {
    let run = db.query_optional(sql::CURRENT_RUN, [workflow.0], |row| row.get(0))?;
    run.map(RunId).ok_or_else(|| StoreError::NoSuchWorkflow(workflow).into())
}

/// Sends a change; returns the old and the new state of its job, if it changes one.
fn send_change(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    batch: &ChangeBatch,
    change: &WorkflowChange,
    now: Timestamp,
) -> Result<Option<(JobStatus, JobStatus)>, SqlError> {
    let workflow = batch.workflow.0;
    match *change {
        // Claims have columns that a plain change of state would not set or clear.
        WorkflowChange::Status { job, from, to } if from.is_active() || to.is_active() => {
            let what = format!("plain change of job {job} from `{from}` to `{to}`");
            return Err(StoreError::OutOfRange { what }.into());
        }
        WorkflowChange::Status { job, from, to } => {
            pipe.send_row(
                number,
                Some(job.0),
                sql::SET_STATUS,
                &values![to.code(), job.0, workflow, from.code()],
            )?;
        }
        WorkflowChange::Claim { job, attempt, worker } => {
            pipe.send_row(
                number,
                Some(job.0),
                sql::CLAIM_JOB,
                &values![worker.0, job.0, workflow, attempt.0],
            )?;
        }
        WorkflowChange::Start { job, attempt, worker, at, pid } => {
            let values = values![at.0, pid, job.0, workflow, attempt.0, worker.0];
            pipe.send_row(number, Some(job.0), sql::START_JOB, &values)?;
        }
        WorkflowChange::End { from, to, ref result, next_attempt, orphaned, ref failure, ref inherited } => {
            send_end(pipe, number, batch, from, to, result, next_attempt, orphaned)?;
            if let Some(failure) = failure {
                failures::insert_failure(pipe, number, &result.key, failure)?;
            }
            if to == JobStatus::Ready {
                failures::save_next_attempt(pipe, number, batch, result.key.job, inherited.as_deref())?;
            }
        }
        WorkflowChange::ReturnClaim { job, worker } => {
            pipe.send_row(number, Some(job.0), sql::RELEASE_CLAIM, &values![job.0, workflow, worker.0])?;
        }
        WorkflowChange::ReassignClaim { job, from, to } => {
            pipe.send_row(number, Some(job.0), sql::TRANSFER_CLAIM, &values![to.0, job.0, workflow, from.0])?;
        }
        WorkflowChange::Retry { job, from, .. } | WorkflowChange::Reset { job, from, .. }
            if from.is_active() =>
        {
            let what = format!("new attempt of job {job}, which is `{from}`");
            return Err(StoreError::OutOfRange { what }.into());
        }
        WorkflowChange::Retry { job, from, attempt } => {
            let values = values![attempt.next().0, job.0, workflow, from.code(), attempt.0];
            pipe.send_row(number, Some(job.0), sql::RETRY_JOB, &values)?;
            failures::reset_retry_counts(pipe, number, batch, job, attempt.next())?;
        }
        WorkflowChange::Reset { job, from, attempt } => {
            let values = values![attempt.0, job.0, workflow, from.code()];
            pipe.send_row(number, Some(job.0), sql::RESET_JOB_IN_RUN, &values)?;
            failures::reset_retry_counts(pipe, number, batch, job, attempt)?;
        }
        WorkflowChange::Action(ref change) => {
            action_changes::send_action_change(pipe, number, batch.workflow, batch.run, change)?;
        }
        WorkflowChange::Ignore { job, attempt } => {
            pipe.send(number, sql::IGNORE_FAILURE, &values![job.0, workflow, batch.run.0, attempt.0])?;
        }
        WorkflowChange::Unit(ref change) => {
            work_units::send_unit_change(pipe, number, (batch.workflow, batch.run), change, now)?;
        }
        WorkflowChange::CountSiteAttempts { ref site, ref handler, attempts } => {
            work_units::send_site_count(pipe, number, batch.workflow, (site, handler), attempts)?;
        }
        // Recorded after everything else.
        WorkflowChange::RaiseAlarm(_) => {}
    }
    Ok(expected_state(change).map(|(_, found)| found.status).zip(target_status(change)))
}

/// The job of a change and its required state.
fn expected_state(change: &WorkflowChange) -> Option<(JobId, JobAttemptState)> {
    let (job, status, attempt) = match *change {
        WorkflowChange::Status { job, from, .. } | WorkflowChange::Reset { job, from, .. } => {
            (job, from, None)
        }
        WorkflowChange::Claim { job, attempt, .. } => (job, JobStatus::Ready, Some(attempt)),
        WorkflowChange::Start { job, attempt, .. } => (job, JobStatus::Pending, Some(attempt)),
        WorkflowChange::End { from, ref result, .. } => (result.key.job, from, Some(result.key.attempt)),
        WorkflowChange::ReturnClaim { job, .. } | WorkflowChange::ReassignClaim { job, .. } => {
            (job, JobStatus::Pending, None)
        }
        WorkflowChange::Retry { job, from, attempt } => (job, from, Some(attempt)),
        WorkflowChange::Ignore { job, attempt } => (job, JobStatus::Failed, Some(attempt)),
        WorkflowChange::Action(_)
        | WorkflowChange::Unit(_)
        | WorkflowChange::CountSiteAttempts { .. }
        | WorkflowChange::RaiseAlarm(_) => return None,
    };
    Some((job, JobAttemptState { status, attempt }))
}

/// Returns the new state.
const fn target_status(change: &WorkflowChange) -> Option<JobStatus> {
    Some(match *change {
        WorkflowChange::Status { to, .. } | WorkflowChange::End { to, .. } => to,
        WorkflowChange::Claim { .. } | WorkflowChange::ReassignClaim { .. } => JobStatus::Pending,
        WorkflowChange::Start { .. } => JobStatus::Running,
        WorkflowChange::ReturnClaim { .. } | WorkflowChange::Retry { .. } => JobStatus::Ready,
        WorkflowChange::Reset { .. } => JobStatus::Uninitialized,
        WorkflowChange::Action(_)
        | WorkflowChange::Ignore { .. }
        | WorkflowChange::Unit(_)
        | WorkflowChange::CountSiteAttempts { .. }
        | WorkflowChange::RaiseAlarm(_) => return None,
    })
}

/// Returns the error for a change whose required state was not found.
fn conflict_error(
    db: &impl SqlConnection,
    batch: &ChangeBatch,
    change: &WorkflowChange,
) -> Result<SqlError, SqlError> {
    let workflow = batch.workflow;
    if let WorkflowChange::Unit(change) = change {
        return Ok(work_units::conflict_error(workflow, change));
    }
    let Some((job, expected)) = expected_state(change) else {
        return Ok(action_changes::conflict_error(change));
    };
    let found = find_job_state(db, workflow, job)?;
    Ok(StoreError::Conflict { workflow, job, expected, found }.into())
}

#[expect(clippy::too_many_arguments, reason = "the fields of one change")]
fn send_end(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    batch: &ChangeBatch,
    from: JobStatus,
    to: JobStatus,
    result: &AttemptResult,
    next_attempt: Attempt,
    orphaned: bool,
) -> Result<(), SqlError> {
    let key = result.key;
    if key.workflow != batch.workflow || key.run != batch.run {
        return Err(StoreError::OutOfRange { what: format!("result of {key} in this batch") }.into());
    }
    if !from.is_active() {
        return Err(StoreError::OutOfRange { what: format!("end of {key} from `{from}`") }.into());
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
    pipe.send_row(number, Some(key.job.0), sql::END_ATTEMPT, &values)?;
    if to == JobStatus::Ready && next_attempt > key.attempt && !orphaned {
        pipe.send_row(number, Some(key.job.0), sql::MARK_RETRIED, &values![key.job.0])?;
    }
    send_result(pipe, number, result)
}

fn send_result(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    result: &AttemptResult,
) -> Result<(), SqlError> {
    let (exit_code, signal) = match result.exit {
        Some(ProcessExit::Code(code)) => (Some(code), None),
        Some(ProcessExit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let usage = &result.usage;
    let files = result.files.as_deref().map(column_decoding::render_json).transpose()?;
    let recovered = result.recovered.as_deref().map(column_decoding::render_json).transpose()?;
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
        to_micros(result.wall),
        to_micros(usage.cpu_time),
        usage.peak_memory.map(to_sql_bytes),
        usage.avg_memory.map(to_sql_bytes),
        usage.peak_cpu_percent,
        usage.avg_cpu_percent,
        result.reason,
        files,
        recovered,
    ];
    // No other change writes a result of this attempt.
    pipe.send_row(number, None, sql::INSERT_RESULT, &values)
}

/// Saves the last state of each file, in the order of the job's files.
fn record_files(db: &impl SqlConnection, batch: &ChangeBatch) -> Result<(), SqlError> {
    let seen: Vec<(JobId, &AttemptFiles)> = batch.changes.iter().filter_map(files_of_change).collect();
    for (job, seen) in seen {
        let (mut inputs, mut outputs) = (seen.inputs.iter(), seen.outputs.iter());
        let files = db.query_all(sql::FILES_OF_JOB, [job.0], |row| {
            Ok((row.get::<i64>(0)?, column_decoding::read_flag(row, 1)?))
        })?;
        db.pipeline(|pipe| {
            for (file, is_output) in files {
                let state = if is_output { outputs.next() } else { inputs.next() };
                if let Some(Some(state)) = state {
                    let size = to_sql_bytes(Bytes(state.size));
                    pipe.send(0, sql::RECORD_FILE_STATE, &values![state.mtime_ns, size, file])?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn files_of_change(change: &WorkflowChange) -> Option<(JobId, &AttemptFiles)> {
    match change {
        WorkflowChange::End { result, .. } => Some((result.key.job, result.files.as_deref()?)),
        _ => None,
    }
}

/// Returns the state of a job, if it exists in the workflow.
pub(crate) fn find_job_state(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    job: JobId,
) -> Result<Option<JobAttemptState>, SqlError> {
    db.query_optional(sql::JOB_STATE, [job.0, workflow.0], |row| {
        Ok(JobAttemptState {
            status: column_decoding::read_status(row, 0)?,
            attempt: Some(Attempt(row.get(1)?)),
        })
    })
}

pub(crate) fn to_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn to_sql_bytes(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

/// Number of jobs that a batch moves into and out of each state, so that it needs a few updates of the counts
/// instead of one per job.
#[derive(Default)]
pub(crate) struct StatusCountDeltas([i64; JobStatus::ALL.len()]);

impl StatusCountDeltas {
    pub(crate) fn record_move(&mut self, from: JobStatus, to: JobStatus) {
        self.0[usize::from(from.code())] -= 1;
        self.0[usize::from(to.code())] += 1;
    }

    /// Counts a new job.
    pub(crate) fn add(&mut self, to: JobStatus) {
        self.0[usize::from(to.code())] += 1;
    }

    /// Counts a deleted job.
    pub(crate) fn remove(&mut self, from: JobStatus) {
        self.0[usize::from(from.code())] -= 1;
    }

    pub(crate) fn write_counts(&self, db: &impl SqlConnection, workflow: WorkflowId) -> Result<(), SqlError> {
        match db.pipeline(|pipe| self.send_counts(pipe, 0, workflow)) {
            Err(SqlError::NoRowAffected(status)) => Err(missing_count(workflow, status)),
            other => other,
        }
    }

    /// Statement numbers are the states, counted from `first`.
    fn send_counts(
        &self,
        pipe: &mut dyn StatementPipeline,
        first: usize,
        workflow: WorkflowId,
    ) -> Result<(), SqlError> {
        for (status, n) in self.0.iter().enumerate().filter(|(_, n)| **n != 0) {
            let values = values![*n, workflow.0, status as i64];
            pipe.send_row(first + status, None, sql::ADD_COUNT, &values)?;
        }
        Ok(())
    }
}
