//! Tools for failures that wait for a decision: list them, and decide.
//!
//! Decisions of an agent are checked before anything is done: the workflow must use pending_failed, the job
//! must wait for a decision, the amounts must be valid, and quoted lines must be in the log. Each job is
//! decided on its own: a refused decision does not affect the others.

use super::ToolResult;
use super::jobs::{failure_json, load_last_failed_attempt, load_last_failure};
use super::logs::{MAX_LINES, MAX_LOG_BYTES, read_redacted_tail};
use super::page::PageRange;
use crate::agent_session::{AgentSession, ToolError};
use crate::output_redaction;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::failure_commands::is_quoted;
use windlass_insight::logs::LogStream;
use windlass_store::model::{JobFilter, JobRow, ResultRow, WorkflowRow};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome,
    FailureCommandStatus as Given, RequestedJobChanges,
};
use windlass_types::{JobStatus, ParseAmountError, parse_duration};

/// Number of stderr lines shown per job.
const TAIL_LINES: usize = 50;
/// Maximum bytes of all excerpts together, and minimum per job.
const TAIL_BYTES_IN_ALL: u64 = 128 << 10;
const MIN_TAIL_BYTES: u64 = 1 << 10;
const MAX_COMMAND: usize = 2000;
/// Maximum number of decisions per call, so that they can be reviewed.
const MAX_CLASSIFICATIONS: usize = 200;

const GUIDANCE: &str = "For each job decide whether another attempt can help. Retry transient failures (networks, busy \
services, nodes, locks), and failures from lack of memory or time with more of it. Fail jobs that would fail again each time (syntax errors, \
missing modules, wrong input); failing cancels their dependents. Quote the log lines that support your decision as evidence, \
word for word. If the log does not show the cause, leave the job to your user and give the reason. Then call \
classify_and_resolve_failures, first with dry_run, then with confirm: true.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingFailedInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Maximum number of jobs. Default: 20, maximum: 500.
    limit: Option<u64>,
    /// Number of jobs to skip. Default: 0.
    offset: Option<u64>,
}

pub(super) fn list_pending_failed_jobs(session: &AgentSession, args: &PendingFailedInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let page = PageRange::new(args.offset, args.limit.or(Some(20)));
    let filter = JobFilter {
        status: vec![JobStatus::PendingFailed],
        offset: page.offset,
        limit: Some(page.fetch_limit()),
        ..JobFilter::default()
    };
    let jobs = session.store.jobs(workflow.id, &filter)?;
    let each = (TAIL_BYTES_IN_ALL / (jobs.len() as u64).max(1)).clamp(MIN_TAIL_BYTES, MAX_LOG_BYTES);
    let views = jobs
        .iter()
        .map(|job| Ok::<_, ToolError>((job.id, pending_failed_json(session, &workflow, job, each)?)))
        .collect::<Result<_, _>>()?;
    let mut shown = page.render_page(session.redact_values(workflow.id, views)?, |view| view);
    let items = shown["items"].take();
    let more = json!({
        "workflow_id": workflow.id, "use_pending_failed": workflow.settings.use_pending_failed,
        "total": workflow.counts.get(JobStatus::PendingFailed), "note": output_redaction::OUTPUT_NOTICE, "guidance": GUIDANCE, "jobs": items,
    });
    if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
        shown.remove("items");
        shown.extend(more);
    }
    Ok(shown)
}

/// `most`: maximum bytes of its output.
fn pending_failed_json(
    session: &AgentSession,
    workflow: &WorkflowRow,
    job: &JobRow,
    most: u64,
) -> Result<Value, ToolError> {
    let row = load_last_failed_attempt(session, workflow, job)?;
    let row = row.as_ref();
    let failure = load_last_failure(session, workflow, job)?.map(|row| failure_json(&row));
    let stderr = row.map(|row| {
        read_redacted_tail(session, workflow, job, row.key.into(), LogStream::Stderr, (TAIL_LINES, most))
    });
    let (tail, error) = match stderr {
        Some(Ok(tail)) => (tail.map(|tail| tail.text), None),
        Some(Err(why)) => (None, Some(why.message)),
        None => (None, Some("no attempt of the job is recorded".to_owned())),
    };
    Ok(json!({
        "job_id": job.id, "name": job.name, "command": output_redaction::truncate_text(&job.command, MAX_COMMAND),
        "run_id": row.map(|row| row.key.run_id), "attempt_id": job.attempt_id,
        "return_code": row.map(|row| row.return_code).or(job.return_code), "signal": row.and_then(|row| row.signal),
        "out_of_memory": row.is_some_and(|row| row.out_of_memory),
        "exec_time_minutes": row.map(|row| row.wall.as_secs_f64() / 60.0),
        "peak_memory_bytes": row.and_then(|row| row.peak_memory_bytes),
        "reason": job.reason, "stderr_tail": tail, "stderr_read_error": error,
        "rules_say": failure,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveFailuresInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// One decision per job, at most 200.
    classifications: Vec<ClassificationInput>,
    /// Only report what would be done.
    #[serde(default)]
    dry_run: bool,
    /// Apply the decisions. Default: only report what would be done.
    #[serde(default)]
    confirm: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClassificationInput {
    /// Id of the job.
    job_id: i64,
    /// retry the job, or fail it, which cancels its dependents.
    action: ClassifiedAction,
    /// Memory for the next attempt, for example `8g`. Only with retry.
    memory: Option<String>,
    /// Runtime limit for the next attempt, for example `PT2H` or `90m`. Only with retry.
    runtime: Option<String>,
    /// Name of another Slurm scheduler of the workflow for the next attempt. Only with retry.
    scheduler: Option<String>,
    /// Another Slurm partition for the next attempt. Only with retry.
    partition: Option<String>,
    /// Reason in one sentence; it is recorded.
    reason: Option<String>,
    /// Confidence of the decision, from 0 to 1.
    confidence: Option<f64>,
    /// Lines of the job's log that support the decision, word for word. The decision is refused if a line is
    /// not in the log.
    #[serde(default)]
    evidence: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ClassifiedAction {
    Retry,
    Fail,
}

pub(super) fn resolve_failures(session: &AgentSession, args: &ResolveFailuresInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    if !workflow.settings.use_pending_failed {
        return Err(ToolError::new(format!(
            "failures of workflow {} cannot be decided: its spec does not set `use_pending_failed: true`",
            workflow.id
        )));
    }
    if args.classifications.len() > MAX_CLASSIFICATIONS {
        return Err(ToolError::new(format!("at most {MAX_CLASSIFICATIONS} jobs per call")));
    }
    let checked_commands: Vec<Result<FailureCommand, ToolError>> =
        args.classifications.iter().map(|one| parse_command(session, &workflow, one)).collect();
    let orders: Vec<FailureCommand> =
        checked_commands.iter().filter_map(|one| one.as_ref().ok().cloned()).collect();
    let dry_run = args.dry_run || !args.confirm;
    let outcomes = if orders.is_empty() {
        Vec::new()
    } else {
        // Checked here, where the logs are; the database keeps only their last lines.
        let agent = Some(session.agent.clone());
        let given = FailureCommandBatch { agent, dry_run, is_looked_up: true, orders };
        session.submit_failure_commands(workflow.id, given)?
    };
    let mut outcomes = outcomes.into_iter();
    let results: Vec<Value> = std::iter::zip(&args.classifications, checked_commands)
        .map(|(text, checked_commands)| match checked_commands {
            Ok(_) => outcomes.next().map_or(Value::Null, |outcome| outcome_json(&outcome, dry_run)),
            Err(why) => json!({
                "job_id": text.job_id, "action": text.action.to_command_action().as_str(), "status": "error",
                "error": why.message, "hint": why.hint,
            }),
        })
        .collect();
    let errors = results.iter().filter(|result| result["status"] == "error").count();
    let next = (!args.dry_run && !args.confirm)
        .then_some("nothing was done: to apply this, call again with confirm: true");
    Ok(json!({
        "workflow_id": workflow.id, "dry_run": dry_run, "resolved": results.len() - errors, "errors": errors,
        "results": results, "next": next,
    }))
}

/// The result of one decision.
fn outcome_json(outcome: &FailureCommandOutcome, dry_run: bool) -> Value {
    let (job, action) = (outcome.job, outcome.kind.as_str());
    let status = match outcome.answer {
        Given::Done if dry_run => "would_apply",
        Given::Done => "applied",
        Given::Proposed => "waits_for_a_person",
        Given::Refused => {
            return json!({ "job_id": job, "action": action, "status": "error", "error": outcome.words });
        }
    };
    json!({ "job_id": job, "action": action, "status": status, "message": outcome.words })
}

impl ClassifiedAction {
    const fn to_command_action(self) -> FailureCommandKind {
        match self {
            Self::Retry => FailureCommandKind::Retry,
            Self::Fail => FailureCommandKind::Fail,
        }
    }
}

/// Checks a decision and converts it to a failure command.
fn parse_command(
    session: &AgentSession,
    workflow: &WorkflowRow,
    text: &ClassificationInput,
) -> Result<FailureCommand, ToolError> {
    let job = session.load_workflow_job(workflow, text.job_id)?;
    if job.status != JobStatus::PendingFailed {
        return Err(ToolError::new(format!("job {} is {}, not pending_failed", job.id, job.status)));
    }
    let kind = text.action.to_command_action();
    if kind == FailureCommandKind::Fail && (text.memory.is_some() || text.runtime.is_some()) {
        return Err(ToolError::new("memory and runtime apply to another attempt: use them with retry only"));
    }
    if text.confidence.is_some_and(|sure| !(0.0..=1.0).contains(&sure)) {
        return Err(ToolError::new("confidence must be a number from 0 to 1"));
    }
    let memory = text.memory.as_deref().map(str::parse).transpose();
    let runtime = text.runtime.as_deref().map(parse_duration).transpose();
    let changes = RequestedJobChanges {
        memory_bytes: memory.map_err(|why: ParseAmountError| ToolError::new(format!("memory: {why}")))?,
        runtime_seconds: runtime
            .map_err(|why| ToolError::new(format!("runtime: {why}")))?
            .map(|time| time.as_secs_f64()),
        scheduler: text.scheduler.clone(),
        partition: text.partition.clone(),
        ..RequestedJobChanges::default()
    };
    check_evidence(session, workflow, &job, &text.evidence)?;
    Ok(FailureCommand {
        job: job.id,
        kind,
        changes,
        reason: text.reason.clone().unwrap_or_default(),
        confidence: text.confidence,
        evidence: text.evidence.clone(),
    })
}

/// Checks that every quoted line is in the output of the job's last attempt: its logs, or the excerpt in the
/// database.
fn check_evidence(
    session: &AgentSession,
    workflow: &WorkflowRow,
    job: &JobRow,
    evidence: &[String],
) -> Result<(), ToolError> {
    if evidence.is_empty() {
        return Ok(());
    }
    let Some(row) = load_last_failed_attempt(session, workflow, job)? else {
        return Err(ToolError::new(format!(
            "no attempt of job {} is recorded, so no lines can be quoted",
            job.id
        )));
    };
    let text = load_output_texts(session, workflow, job, &row)?;
    let text: Vec<&str> = text.iter().map(String::as_str).collect();
    match evidence.iter().find(|quote| !is_quoted(&text, quote)) {
        None => Ok(()),
        Some(quote) => Err(ToolError::new(format!(
            "this line is not in the log of job {}: {:?}",
            job.id,
            quote.trim()
        ))
        .with_hint(
            "quote whole lines of its log, or at least ten characters of one, word for word, without line numbers or quotation marks",
        )),
    }
}

fn load_output_texts(
    session: &AgentSession,
    workflow: &WorkflowRow,
    job: &JobRow,
    row: &ResultRow,
) -> Result<Vec<String>, ToolError> {
    let streams = [LogStream::Stderr, LogStream::Stdout].into_iter();
    let most = (MAX_LINES, MAX_LOG_BYTES);
    let tails =
        streams.map(|stream| read_redacted_tail(session, workflow, job, row.key.into(), stream, most));
    let mut text: Vec<String> =
        tails.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().map(|tail| tail.text).collect();
    if let Some(kept) = load_last_failure(session, workflow, job)? {
        text.extend([kept.line, kept.last_words].into_iter().flatten());
    }
    Ok(text)
}
