//! Stores failures, and the values that later attempts inherit.

use super::apply_changes::{current_run, to_micros, to_sql_bytes};
use super::column_decoding;
use super::job_loading::JobIdBlocks;
use super::query_builder::SqlQuery;
use crate::ChangeBatch;
use crate::db::{SqlConnection, SqlRow, StatementPipeline, values};
use crate::error::SqlError;
use crate::model::{FailedAttempt, FailureFilter, FailureGroup, FailureRow, LoadedJobs};
use crate::sql::common as sql;
use std::collections::HashMap;
use std::time::Duration;
use windlass_core::workflow_state::{AttemptFailure, NextAttempt};
use windlass_types::settings::FailureHandler;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    Attempt, Bytes, FailureClass, JobId, JobStatus, Resources, RunId, Timestamp, WorkerId, WorkflowId,
};

/// Maximum number of bytes kept from the end of the output.
const MAX_LOG_EXCERPT: usize = 4096;

/// Stores the classification of a failure.
pub(super) fn insert_failure(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    key: &AttemptKey,
    failure: &AttemptFailure,
) -> Result<(), SqlError> {
    let AttemptFailure { diagnosis, next, reason: why, log_tail: last_words } = failure;
    let values = values![
        key.job.0,
        key.run.0,
        key.attempt.0,
        key.workflow.0,
        diagnosis.class.as_str(),
        diagnosis.rule,
        diagnosis.signature.key,
        diagnosis.signature.message,
        diagnosis.log_line,
        last_words.as_deref().map(|words| last_bytes(words, MAX_LOG_EXCERPT)),
        next.as_str(),
        why
    ];
    // One by one: each takes the next sequence number.
    pipe.send(number, sql::INSERT_FAILURE, &values)
}

/// Truncates to this number of bytes from the end.
fn last_bytes(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

/// Stores everything that the next attempt of a ready job inherits.
pub(super) fn save_next_attempt(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    batch: &ChangeBatch,
    job: JobId,
    inherited: Option<&NextAttempt>,
) -> Result<(), SqlError> {
    let nothing = NextAttempt::default();
    let inherited = inherited.unwrap_or(&nothing);
    let recovery = inherited.recovery.as_ref().map(column_decoding::render_json).transpose()?;
    let values = values![
        job.0,
        batch.workflow.0,
        batch.run.0,
        inherited.not_before.map(|at| at.0),
        recovery,
        inherited.excused,
        inherited.delay.map(|delay| i64::try_from(delay.as_micros()).unwrap_or(i64::MAX))
    ];
    pipe.send(number, sql::SAVE_NEXT_ATTEMPT, &values)?;
    inherited
        .resources
        .as_ref()
        .map_or(Ok(()), |resources| set_job_resources(pipe, number, batch.workflow, job, resources))
}

/// Resets retry counters for a requested retry from attempt `next` on: earlier attempts count for no rule, and
/// no recovery script is pending.
pub(super) fn reset_retry_counts(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    batch: &ChangeBatch,
    job: JobId,
    next: Attempt,
) -> Result<(), SqlError> {
    if next <= Attempt::FIRST {
        return Ok(());
    }
    let inherited = NextAttempt { excused: next.0 - 1, ..NextAttempt::default() };
    save_next_attempt(pipe, number, batch, job, Some(&inherited))
}

/// Changes the requirements of a single job. Sets with the same values are shared by name.
pub(super) fn set_job_resources(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    workflow: WorkflowId,
    job: JobId,
    resources: &Resources,
) -> Result<(), SqlError> {
    let name = requirements_name(resources);
    let values = values![
        workflow.0,
        name,
        resources.cpus,
        to_sql_bytes(resources.memory),
        resources.gpus,
        resources.nodes,
        resources.runtime.map(to_micros)
    ];
    pipe.send(number, sql::ADD_REQUIREMENTS_IF_MISSING, &values)?;
    pipe.send(number, sql::SET_JOB_REQUIREMENTS_BY_NAME, &values![workflow.0, name, job.0])
}

/// `adjusted:4cpus:12884901888B:3600s`: all values of the set, exactly, so that equal names mean equal sets.
fn requirements_name(resources: &Resources) -> String {
    let Resources { cpus, memory, gpus, nodes, runtime } = *resources;
    let mut name = format!("adjusted:{cpus}cpus:{}B", memory.0);
    let parts = [
        (gpus > 0).then(|| format!(":{gpus}gpus")),
        (nodes > 1).then(|| format!(":{nodes}nodes")),
        runtime.map(|runtime| format!(":{}s", runtime.as_secs_f64())),
    ];
    name.extend(parts.into_iter().flatten());
    name
}

/// Loads values inherited from earlier attempts, and the retry counters of handlers.
pub(super) fn load_next_attempts(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    run: RunId,
    blocks: &JobIdBlocks,
    loaded: &mut LoadedJobs,
) -> Result<(), SqlError> {
    db.query_each(sql::LOAD_NEXT_ATTEMPTS, [workflow.0, run.0], |row| {
        let status = column_decoding::read_status(row, 1)?;
        let is_ready = status == JobStatus::Ready;
        let not_before = row.get::<Option<i64>>(2)?.filter(|_| is_ready).map(Timestamp);
        let delay = row.get::<Option<i64>>(5)?.filter(|_| not_before.is_some());
        let delay = delay.map(|us| Duration::from_micros(us.unsigned_abs()));
        let recovery =
            if is_ready || status.is_active() { column_decoding::read_json(row, 3)? } else { None };
        let inherited = NextAttempt { not_before, delay, recovery, excused: row.get(4)?, resources: None };
        if inherited != NextAttempt::default() {
            loaded.inherited.push((blocks.job_index(row.get(0)?), inherited));
        }
        Ok(())
    })?;
    db.query_each(sql::LOAD_IGNORED, [workflow.0, run.0], |row| {
        loaded.ignored.push(blocks.job_index(row.get(0)?));
        Ok(())
    })?;
    let granted: i64 = db.query_one(sql::COUNT_RETRIES, [workflow.0, run.0], |row| row.get(0))?;
    loaded.retries_granted = granted.unsigned_abs();
    Ok(())
}

/// Loads the failure handlers of a workflow, and a map from the job group's id to its handler: its index plus
/// one.
pub(super) fn load_handlers(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<(Vec<FailureHandler>, HashMap<i64, u32>), SqlError> {
    let (mut handlers, mut index) = (Vec::new(), HashMap::new());
    db.query_each(sql::HANDLERS, [workflow.0], |row| {
        handlers
            .push(FailureHandler { name: row.get(1)?, rules: column_decoding::read_required_json(row, 2)? });
        index.insert(row.get::<i64>(0)?, handlers.len() as u32);
        Ok(())
    })?;
    let mut job_groups = HashMap::new();
    if !handlers.is_empty() {
        db.query_each(sql::LOAD_GROUPS_WITH_HANDLER, [workflow.0], |row| {
            if let Some(&handler) = index.get(&row.get::<i64>(1)?) {
                job_groups.insert(row.get(0)?, handler);
            }
            Ok(())
        })?;
    }
    Ok((handlers, job_groups))
}

pub(super) fn list_failure_groups(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<FailureGroup>, SqlError> {
    let run = current_run(db, workflow)?;
    let count = |row: &SqlRow<'_>, column| Ok::<_, SqlError>(row.get::<i64>(column)?.unsigned_abs());
    db.query_all(sql::FAILURE_GROUPS, [workflow.0, run.0], |row| {
        Ok(FailureGroup {
            signature: row.get(0)?,
            class: parse_class(&row.get::<String>(1)?)?,
            message: row.get(2)?,
            line: row.get(3)?,
            attempts: count(row, 4)?,
            jobs: count(row, 5)?,
            failed: count(row, 6)?,
            pending: count(row, 7)?,
            retried: count(row, 8)?,
            example: JobId(row.get(9)?),
        })
    })
}

pub(super) fn list_failures(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: &FailureFilter,
) -> Result<Vec<FailureRow>, SqlError> {
    let run = filter.run.map_or_else(|| current_run(db, workflow), Ok)?;
    let mut query = SqlQuery::new(sql::SELECT_FAILURES, vec![]);
    query.push("f.workflow_id = ? AND f.run_id = ?", vec![Box::new(workflow.0), Box::new(run.0)]);
    if let Some(signature) = &filter.signature {
        query.push(" AND f.signature = ?", vec![Box::new(signature.clone())]);
    }
    if let Some(job) = filter.job {
        query.push(" AND f.job_id = ?", vec![Box::new(job.0)]);
    }
    if filter.open_only {
        query.push(" AND f.attempt_id = j.attempt_id AND j.status IN (6, 8, 10)", vec![]);
    }
    if !filter.status.is_empty() {
        let codes: Vec<String> = filter.status.iter().map(|status| status.code().to_string()).collect();
        query.push(&format!(" AND j.status IN ({})", codes.join(", ")), vec![]);
    }
    query.push(" ORDER BY f.job_id, f.attempt_id", vec![]);
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, |row| {
        Ok(FailureRow {
            job_id: JobId(row.get(0)?),
            job_name: row.get(1)?,
            job_status: column_decoding::read_status(row, 2)?,
            run_id: RunId(row.get(3)?),
            attempt_id: Attempt(row.get(4)?),
            class: parse_class(&row.get::<String>(5)?)?,
            rule: row.get(6)?,
            signature: row.get(7)?,
            message: row.get(8)?,
            line: row.get(9)?,
            last_words: row.get(10)?,
            next: row.get(11)?,
            why: row.get(12)?,
            return_code: row.get(13)?,
            signal: row.get(14)?,
            out_of_memory: column_decoding::read_flag(row, 15)?,
            ended_at: Timestamp(row.get(16)?),
            worker_id: WorkerId(row.get(17)?),
            host: row.get(18)?,
        })
    })
}

/// Returns the first `most` failures with sequence numbers above `after`.
pub(super) fn list_failures_after(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    after: i64,
    most: usize,
) -> Result<Vec<FailedAttempt>, SqlError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    db.query_all(sql::FAILURES_AFTER, [workflow.0, after, most], |row| {
        let memory: Option<i64> = row.get(10)?;
        Ok(FailedAttempt {
            seq: row.get(0)?,
            job_name: row.get(1)?,
            run_id: RunId(row.get(2)?),
            attempt_id: Attempt(row.get(3)?),
            class: parse_class(&row.get::<String>(4)?)?,
            signature: row.get(5)?,
            message: row.get(6)?,
            last_words: row.get(7)?,
            is_final: row.get::<String>(8)? == "final",
            return_code: row.get(9)?,
            peak_memory: memory.map(|bytes| Bytes(bytes.unsigned_abs())),
            ended_at: Timestamp(row.get(11)?),
            site: row.get(12)?,
        })
    })
}

pub(super) fn parse_class(word: &str) -> Result<FailureClass, SqlError> {
    word.parse().map_err(|_| SqlError::damage(format!("unknown failure class `{word}`")))
}
