//! What jobs wrote.

use super::Answer;
use super::page::{self, fitting};
use crate::desk::{Desk, Trouble};
use crate::shown;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::telltale::telling_lines;
use windlass_insight::logs::{self, Stream};
use windlass_insight::tail::{self, Tail};
use windlass_store::model::{JobRow, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::work::AttemptKey;
use windlass_types::{Attempt, JobId, RunId, WorkflowId};

/// Of a log whose length nobody named.
const USUAL_LINES: usize = 100;
pub(super) const MOST_LINES: usize = 2000;
/// However long its lines are.
pub(super) const MOST_BYTES: u64 = 64 << 10;
/// So many failed attempts are searched for telling lines.
const SEARCHED: u64 = 100;
/// Lines that are shown of each log.
const TELLING: usize = 5;
/// Longer lines are data rather than words.
const LONGEST_LINE: usize = 500;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobLogs {
    workflow_id: i64,
    job_id: i64,
    /// Without it, the newest run in which the job ran.
    run_id: Option<i64>,
    /// Without it, the last attempt of that run.
    attempt_id: Option<u32>,
    /// stdout or stderr. Where a job writes both into one file, that one.
    log_type: LogType,
    /// So many of the last lines (100; never more than 2000, nor more than 64 KiB).
    tail_lines: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LogType {
    Stdout,
    Stderr,
}

pub(super) fn get(desk: &Desk, args: &JobLogs) -> Answer {
    let stream = match args.log_type {
        LogType::Stdout => Stream::Stdout,
        LogType::Stderr => Stream::Stderr,
    };
    let lines = args.tail_lines.unwrap_or(USUAL_LINES).clamp(1, MOST_LINES);
    let (run, attempt) = (args.run_id.map(RunId), args.attempt_id.map(Attempt));
    show(desk, args.workflow_id, args.job_id, run, attempt, stream, lines)
}

/// The log that a URI names.
pub(crate) fn log_of(desk: &Desk, key: AttemptKey, stream: Stream) -> Answer {
    let shown = show(desk, key.workflow.0, key.job.0, Some(key.run), Some(key.attempt), stream, MOST_LINES);
    shown.map(Desk::show)
}

fn show(
    desk: &Desk,
    workflow: i64,
    job: i64,
    run: Option<RunId>,
    attempt: Option<Attempt>,
    stream: Stream,
    lines: usize,
) -> Answer {
    let workflow = desk.workflow(workflow)?;
    let job = desk.job_of(&workflow, job)?;
    let key = match (run, attempt) {
        (Some(run), Some(attempt)) => AttemptKey { workflow: workflow.id, job: job.id, run, attempt },
        _ => newest(desk, &workflow, &job, run)?,
    };
    let found = tail_of(desk, &workflow, &job, key, stream, (lines, MOST_BYTES))?;
    let log = found.as_ref().map(|tail| shown::quoted(&tail.text, tail.skipped_lines));
    let why_not = found.is_none().then(|| nothing(&workflow));
    Ok(json!({
        "workflow_id": workflow.id, "job_id": job.id, "name": job.name, "run_id": key.run, "attempt_id": key.attempt,
        "log_type": stream.name(), "bytes": found.map(|tail| tail.bytes), "log": log, "nothing_because": why_not,
    }))
}

fn nothing(workflow: &WorkflowRow) -> String {
    format!(
        "it printed nothing there, its output was not kept, or it lies on the machine where it ran, in {}",
        workflow.output_dir
    )
}

/// The attempt under way, or the last one that ended.
fn newest(
    desk: &Desk,
    workflow: &WorkflowRow,
    job: &JobRow,
    run: Option<RunId>,
) -> Result<AttemptKey, Trouble> {
    let current =
        AttemptKey { workflow: workflow.id, job: job.id, run: workflow.run_id, attempt: job.attempt_id };
    if job.status.is_active() && run.is_none_or(|run| run == workflow.run_id) {
        return Ok(current);
    }
    let filter = ResultFilter { job: Some(job.id), run, ..ResultFilter::default() };
    let rows = desk.books.results(workflow.id, &filter)?.into_iter();
    let last = rows.max_by_key(|row| (row.key.run_id, row.key.attempt_id));
    last.map(|row| row.key.into())
        .ok_or_else(|| Trouble::refused(format!("job {} ({}) has not run", job.id, job.name)))
}

/// The end of one of the logs of an attempt, so many lines and bytes of it, without secrets. Where both streams are in one file, that one.
pub(super) fn tail_of(
    desk: &Desk,
    workflow: &WorkflowRow,
    job: &JobRow,
    key: AttemptKey,
    stream: Stream,
    (lines, bytes): (usize, u64),
) -> Result<Option<Tail>, Trouble> {
    for stream in [stream, Stream::Combined] {
        let path = logs::path(workflow, key, stream);
        let read = tail::read(&path, lines, bytes)
            .map_err(|why| Trouble::refused(format!("its log {} cannot be read: {why}", stream.name())))?;
        if let Some(mut tail) = read {
            tail.text = desk.redactor(job)?.redact(&tail.text).into_owned();
            return Ok(Some(tail));
        }
    }
    Ok(None)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnalyzeLogs {
    workflow_id: i64,
    /// For agents that know Torc: logs are looked for where the workflow keeps them, whatever this says.
    #[expect(dead_code, reason = "whoever asks does not choose what is read")]
    output_dir: Option<String>,
    /// At most so many failed attempts are searched (never more than 100).
    limit: Option<u64>,
}

pub(super) fn analyze(desk: &Desk, args: &AnalyzeLogs) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    let limit = args.limit.unwrap_or(SEARCHED).clamp(1, SEARCHED);
    let filter = ResultFilter {
        failed_only: true,
        last_only: true,
        limit: Some(limit + 1),
        ..ResultFilter::default()
    };
    let mut rows = desk.books.results(workflow.id, &filter)?;
    let has_more = rows.len() as u64 > limit;
    rows.truncate(limit as usize);
    let mut findings = Vec::new();
    let mut searched = 0;
    for row in &rows {
        findings.extend(telling(desk, &workflow, row)?);
        searched += 1;
        if fitting(&findings, page::MOST_BYTES) < findings.len() {
            break;
        }
    }
    findings.truncate(fitting(&findings, page::MOST_BYTES));
    Ok(json!({
        "note": shown::NOTE, "workflow_id": WorkflowId(args.workflow_id), "attempts_searched": searched,
        "has_more": has_more || searched < rows.len(), "findings": findings,
    }))
}

/// What the logs of an attempt say, what speaks loudest first.
fn telling(desk: &Desk, workflow: &WorkflowRow, row: &ResultRow) -> Result<Vec<Value>, Trouble> {
    let job = desk.job_of(workflow, row.key.job_id.0)?;
    let mut found = Vec::new();
    for stream in [Stream::Stderr, Stream::Stdout] {
        let most = (MOST_LINES, MOST_BYTES);
        let Some(tail) = tail_of(desk, workflow, &job, row.key.into(), stream, most)? else { continue };
        let before = tail.skipped_lines.unwrap_or_default();
        found.extend(telling_lines(&tail.text, TELLING).into_iter().map(|finding| {
            json!({
                "job_id": JobId(row.key.job_id.0), "name": job.name, "run_id": row.key.run_id,
                "attempt_id": row.key.attempt_id, "log_type": stream.name(), "line": finding.line + before,
                "text": shown::cut(&finding.text, LONGEST_LINE), "means": finding.means,
            })
        }));
    }
    Ok(found)
}
