//! Tools for logs of jobs.

use super::ToolResult;
use super::page::{self, count_fitting};
use crate::agent_session::{AgentSession, ToolError};
use crate::output_redaction;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::log_excerpt::excerpt_lines;
use windlass_insight::log_tail::{self, LogFileTail};
use windlass_insight::logs::{self, LogStream};
use windlass_store::model::{JobRow, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{Attempt, JobId, RunId, WorkflowId};

/// Default number of lines.
const DEFAULT_LINES: usize = 100;
pub(super) const MAX_LINES: usize = 2000;
/// Maximum number of bytes.
pub(super) const MAX_LOG_BYTES: u64 = 64 << 10;
/// Maximum number of failed attempts that are searched.
const MAX_SEARCHED_ATTEMPTS: u64 = 100;
/// Maximum number of lines shown per log.
const MAX_EXCERPT_LINES: usize = 5;
/// Longer lines are skipped: they are data, not messages.
const MAX_LINE_LENGTH: usize = 500;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobLogsInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Id of the job.
    job_id: i64,
    /// Id of the run. Default: the newest run in which the job ran.
    run_id: Option<i64>,
    /// Number of the attempt. Default: the last attempt of the run.
    attempt_id: Option<u32>,
    /// stdout or stderr. If the job writes both to one file, that file is returned.
    log_type: JobLogType,
    /// Number of lines from the end. Default: 100, maximum: 2000 lines and 64 KiB.
    tail_lines: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum JobLogType {
    Stdout,
    Stderr,
}

pub(super) fn get_job_logs(session: &AgentSession, args: &JobLogsInput) -> ToolResult {
    let stream = match args.log_type {
        JobLogType::Stdout => LogStream::Stdout,
        JobLogType::Stderr => LogStream::Stderr,
    };
    let lines = args.tail_lines.unwrap_or(DEFAULT_LINES).clamp(1, MAX_LINES);
    let (run, attempt) = (args.run_id.map(RunId), args.attempt_id.map(Attempt));
    read_job_log(session, args.workflow_id, args.job_id, run, attempt, stream, lines)
}

/// Reads the log that a resource URI names.
pub(crate) fn read_log(session: &AgentSession, key: AttemptKey, stream: LogStream) -> ToolResult {
    let shown =
        read_job_log(session, key.workflow.0, key.job.0, Some(key.run), Some(key.attempt), stream, MAX_LINES);
    shown.map(AgentSession::redact_output)
}

fn read_job_log(
    session: &AgentSession,
    workflow: i64,
    job: i64,
    run: Option<RunId>,
    attempt: Option<Attempt>,
    stream: LogStream,
    lines: usize,
) -> ToolResult {
    let workflow = session.load_workflow(workflow)?;
    let job = session.load_workflow_job(&workflow, job)?;
    let key = match (run, attempt) {
        (Some(run), Some(attempt)) => AttemptKey { workflow: workflow.id, job: job.id, run, attempt },
        _ => load_newest_attempt(session, &workflow, &job, run)?,
    };
    let found = read_redacted_tail(session, &workflow, &job, key, stream, (lines, MAX_LOG_BYTES))?;
    let log = found.as_ref().map(|tail| output_redaction::quote_output(&tail.text, tail.skipped_lines));
    let why_not = found.is_none().then(|| no_output_message(&workflow));
    Ok(json!({
        "workflow_id": workflow.id, "job_id": job.id, "name": job.name, "run_id": key.run, "attempt_id": key.attempt,
        "log_type": stream.name(), "bytes": found.map(|tail| tail.bytes), "log": log, "nothing_because": why_not,
    }))
}

fn no_output_message(workflow: &WorkflowRow) -> String {
    format!(
        "the job printed nothing there, its output was not kept, or the log is on the machine where it ran, in {}",
        workflow.output_dir
    )
}

/// Returns the running attempt, or the last one that ended.
fn load_newest_attempt(
    session: &AgentSession,
    workflow: &WorkflowRow,
    job: &JobRow,
    run: Option<RunId>,
) -> Result<AttemptKey, ToolError> {
    let current =
        AttemptKey { workflow: workflow.id, job: job.id, run: workflow.run_id, attempt: job.attempt_id };
    if job.status.is_active() && run.is_none_or(|run| run == workflow.run_id) {
        return Ok(current);
    }
    let filter = ResultFilter { job: Some(job.id), run, ..ResultFilter::default() };
    let rows = session.store.results(workflow.id, &filter)?.into_iter();
    let last = rows.max_by_key(|row| (row.key.run_id, row.key.attempt_id));
    last.map(|row| row.key.into())
        .ok_or_else(|| ToolError::new(format!("job {} ({}) has not run yet", job.id, job.name)))
}

/// Reads the end of a log of an attempt, limited in lines and bytes, with secrets redacted. If both streams are
/// in one file, reads that.
pub(super) fn read_redacted_tail(
    session: &AgentSession,
    workflow: &WorkflowRow,
    job: &JobRow,
    key: AttemptKey,
    stream: LogStream,
    (lines, bytes): (usize, u64),
) -> Result<Option<LogFileTail>, ToolError> {
    for stream in [stream, LogStream::Combined] {
        let path = logs::log_path(workflow, key, stream);
        let read = log_tail::read_log_tail(&path, lines, bytes)
            .map_err(|why| ToolError::new(format!("cannot read its log {}: {why}", stream.name())))?;
        if let Some(mut tail) = read {
            tail.text = session.load_redactor(job)?.redact(&tail.text).into_owned();
            return Ok(Some(tail));
        }
    }
    Ok(None)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnalyzeLogsInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Ignored; accepted for compatibility with Torc. Logs are read from the directory of the workflow.
    #[expect(dead_code, reason = "the caller must not choose which files are read")]
    output_dir: Option<String>,
    /// Maximum number of failed attempts to search. Default and maximum: 100.
    limit: Option<u64>,
}

pub(super) fn analyze_logs(session: &AgentSession, args: &AnalyzeLogsInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let limit = args.limit.unwrap_or(MAX_SEARCHED_ATTEMPTS).clamp(1, MAX_SEARCHED_ATTEMPTS);
    let filter = ResultFilter {
        failed_only: true,
        last_only: true,
        limit: Some(limit + 1),
        ..ResultFilter::default()
    };
    let mut rows = session.store.results(workflow.id, &filter)?;
    let has_more = rows.len() as u64 > limit;
    rows.truncate(limit as usize);
    let mut findings = Vec::new();
    let mut searched = 0;
    for row in &rows {
        findings.extend(log_excerpts(session, &workflow, row)?);
        searched += 1;
        if count_fitting(&findings, page::MAX_PAGE_BYTES) < findings.len() {
            break;
        }
    }
    findings.truncate(count_fitting(&findings, page::MAX_PAGE_BYTES));
    Ok(json!({
        "note": output_redaction::OUTPUT_NOTICE, "workflow_id": WorkflowId(args.workflow_id), "attempts_searched": searched,
        "has_more": has_more || searched < rows.len(), "findings": findings,
    }))
}

/// Returns findings in the logs of an attempt, most significant first.
fn log_excerpts(
    session: &AgentSession,
    workflow: &WorkflowRow,
    row: &ResultRow,
) -> Result<Vec<Value>, ToolError> {
    let job = session.load_workflow_job(workflow, row.key.job_id.0)?;
    let mut found = Vec::new();
    for stream in [LogStream::Stderr, LogStream::Stdout] {
        let most = (MAX_LINES, MAX_LOG_BYTES);
        let Some(tail) = read_redacted_tail(session, workflow, &job, row.key.into(), stream, most)? else {
            continue;
        };
        let before = tail.skipped_lines.unwrap_or_default();
        found.extend(excerpt_lines(&tail.text, MAX_EXCERPT_LINES).into_iter().map(|finding| {
            json!({
                "job_id": JobId(row.key.job_id.0), "name": job.name, "run_id": row.key.run_id,
                "attempt_id": row.key.attempt_id, "log_type": stream.name(), "line": finding.line + before,
                "text": output_redaction::truncate_text(&finding.text, MAX_LINE_LENGTH), "means": finding.means,
            })
        }));
    }
    Ok(found)
}
