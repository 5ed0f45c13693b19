//! Tools for jobs and their attempts.

use super::ToolResult;
use super::page::PageRange;
use crate::agent_session::{AgentSession, ToolError};
use crate::output_redaction;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass_insight::explain::{self, ExplainContext};
use windlass_store::model::{
    FailureFilter, FailureRow, JobFilter, JobRow, ResultFilter, ResultRow, SortBy, WorkflowRow,
};
use windlass_types::{JobId, JobStatus, RunId, matching_statuses};

/// Maximum length of a command that is shown.
const MAX_COMMAND: usize = 2000;
/// Maximum number of attempts of a job that are shown.
const MAX_ATTEMPTS: u64 = 50;
/// Maximum number of dependencies that are named.
const MAX_RELATED: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsByStatusInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Status of the jobs: uninitialized, blocked, ready, pending, running, completed, failed, canceled,
    /// terminated, disabled or pending_failed. `failed` includes terminated.
    status: String,
    /// Only jobs whose name contains this text.
    name_contains: Option<String>,
    /// Maximum number of jobs. Default: 50, maximum: 500.
    limit: Option<u64>,
    /// Number of jobs to skip. Default: 0.
    offset: Option<u64>,
}

pub(super) fn list_jobs_by_status(session: &AgentSession, args: &JobsByStatusInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let statuses = parse_statuses(Some(&args.status))?;
    let page = PageRange::new(args.offset, args.limit);
    let filter = JobFilter {
        status: statuses.clone(),
        name_contains: args.name_contains.clone(),
        offset: page.offset,
        limit: Some(page.fetch_limit()),
        ..JobFilter::default()
    };
    let jobs = session.store.jobs(workflow.id, &filter)?;
    let rendered = jobs.iter().map(|job| (job.id, job_summary(job))).collect();
    let mut shown = page.render_page(session.redact_values(workflow.id, rendered)?, |view| view);
    let total: u64 = statuses.iter().map(|status| workflow.counts.get(*status)).sum();
    shown["total_in_status"] = json!(total);
    Ok(shown)
}

pub(super) fn parse_status(text: &str) -> Result<JobStatus, ToolError> {
    text.parse().map_err(|why: windlass_types::ParseStatusError| ToolError::new(why.to_string()))
}

/// The states that a filter selects.
fn parse_statuses(text: Option<&str>) -> Result<Vec<JobStatus>, ToolError> {
    let asked: Vec<JobStatus> = text.map(parse_status).transpose()?.into_iter().collect();
    Ok(matching_statuses(&asked))
}

fn job_summary(job: &JobRow) -> Value {
    json!({
        "job_id": job.id, "name": job.name, "status": job.status, "attempt_id": job.attempt_id,
        "return_code": job.return_code, "reason": job.reason, "command": output_redaction::truncate_text(&job.command, MAX_COMMAND),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobInput {
    /// Id of the job, unique in the whole database.
    job_id: i64,
}

pub(super) fn get_job_details(session: &AgentSession, args: &JobInput) -> ToolResult {
    let (workflow, job) = session.load_job(args.job_id)?;
    let relations = job_relations(session, &job)?;
    let asked = session.store.requirements(workflow.id)?.into_iter();
    let asked = asked
        .filter(|set| Some(&set.name) == job.resource_requirements.as_ref())
        .map(|set| requirements_json(&set))
        .next();
    let filter = ResultFilter {
        job: Some(job.id),
        all_runs: true,
        limit: Some(MAX_ATTEMPTS),
        ..ResultFilter::default()
    };
    let attempts: Vec<Value> =
        session.store.results(workflow.id, &filter)?.iter().map(attempt_json).collect();
    let mut view = job_summary(&job);
    let more = json!({
        "workflow_id": workflow.id,
        "workflow_name": workflow.name,
        "priority": job.priority,
        "cancel_on_blocking_job_failure": job.cancel_on_blocking_job_failure,
        "resource_requirements": asked,
        "params": job.params,
        "origin": job.origin,
        "relations": relations,
        "attempts": attempts,
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    session.load_redactor(&job).map(|redactor| output_redaction::redact_strings(view, &redactor))
}

/// Adds dependencies, inputs and outputs; long lists are cut.
fn job_relations(session: &AgentSession, job: &JobRow) -> Result<Value, ToolError> {
    let mut all = session.store.job_relations(job.id)?;
    let waits_for = all.waits_for.len();
    all.waits_for.truncate(MAX_RELATED);
    all.input_files.truncate(MAX_RELATED);
    all.output_files.truncate(MAX_RELATED);
    all.input_user_data.truncate(MAX_RELATED);
    all.output_user_data.truncate(MAX_RELATED);
    Ok(json!({ "waits_for_count": waits_for, "first": all }))
}

fn requirements_json(set: &windlass_store::model::RequirementsRow) -> Value {
    let asked = &set.resources;
    json!({
        "name": set.name, "num_cpus": asked.cpus, "memory": asked.memory.to_string(), "memory_bytes": asked.memory,
        "num_gpus": asked.gpus, "num_nodes": asked.nodes, "runtime_seconds": asked.runtime.map(|time| time.as_secs_f64()),
    })
}

/// Describes an attempt that has ended.
fn attempt_json(row: &ResultRow) -> Value {
    json!({
        "job_id": row.key.job_id, "job_name": row.job_name, "run_id": row.key.run_id, "attempt_id": row.key.attempt_id,
        "status": row.status, "return_code": row.return_code, "signal": row.signal,
        "out_of_memory": row.out_of_memory, "reason": row.reason, "ended_at": row.ended_at,
        "exec_time_minutes": row.wall.as_secs_f64() / 60.0, "cpu_seconds": row.cpu_time.as_secs_f64(),
        "peak_memory_bytes": row.peak_memory_bytes, "peak_cpu_percent": row.peak_cpu_percent,
        "worker_id": row.worker_id,
    })
}

pub(super) fn explain_job(session: &AgentSession, args: &JobInput) -> ToolResult {
    let (workflow, job) = session.load_job(args.job_id)?;
    let workers = session.actions.available_workers(&*session.store, workflow.id)?;
    let asker = ExplainContext {
        now: AgentSession::now(),
        is_on_server: session.is_on_server(),
        workers: &workers,
        name_file: &|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let explanation = explain::explain_job(&*session.store, &workflow, &job, asker)?;
    let explanation = serde_json::to_value(&explanation).map_err(|e| ToolError::new(e.to_string()))?;
    let explanation = output_redaction::redact_strings(explanation, &session.load_redactor(&job)?);
    Ok(
        json!({ "note": output_redaction::OUTPUT_NOTICE, "workflow_id": workflow.id, "explanation": explanation }),
    )
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailedJobsInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Maximum number of jobs to examine. Default: 50, maximum: 500.
    limit: Option<u64>,
    /// Number of jobs to skip. Default: 0.
    offset: Option<u64>,
}

/// A failure shared by several jobs.
struct SharedFailure {
    failure: Value,
    jobs: Vec<Value>,
}

pub(super) fn list_failed_jobs(session: &AgentSession, args: &FailedJobsInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let page = PageRange::new(args.offset, args.limit);
    let statuses = vec![JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
    let total: u64 = statuses.iter().map(|status| workflow.counts.get(*status)).sum();
    let filter = JobFilter {
        status: statuses,
        offset: page.offset,
        limit: Some(page.fetch_limit()),
        ..JobFilter::default()
    };
    let mut jobs = session.store.jobs(workflow.id, &filter)?;
    let has_more = jobs.len() as u64 > page.limit;
    jobs.truncate(page.limit as usize);
    let mut groups: BTreeMap<String, SharedFailure> = BTreeMap::new();
    for job in &jobs {
        let Some(row) = load_last_failure(session, &workflow, job)? else { continue };
        let rendered = json!({
            "job_id": job.id, "name": job.name, "run_id": row.run_id, "attempt_id": row.attempt_id,
            "status": job.status, "return_code": row.return_code, "signal": row.signal, "why": row.why,
        });
        let redactor = session.load_redactor(job)?;
        let group = groups.entry(row.signature.clone());
        let group = group.or_insert_with(|| SharedFailure {
            failure: output_redaction::redact_strings(failure_json(&row), &redactor),
            jobs: Vec::new(),
        });
        group.jobs.push(output_redaction::redact_strings(rendered, &redactor));
    }
    let mut groups: Vec<SharedFailure> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.jobs.len()));
    let view = |group: SharedFailure| json!({ "failure": group.failure, "count": group.jobs.len(), "jobs": group.jobs });
    Ok(json!({
        "note": output_redaction::OUTPUT_NOTICE, "total": total, "waiting_for_a_decision": workflow.counts.get(JobStatus::PendingFailed),
        "count": jobs.len(), "has_more": has_more,
        "next_offset": has_more.then(|| page.offset + jobs.len() as u64),
        "groups": groups.into_iter().map(view).collect::<Vec<_>>(),
    }))
}

/// Returns the failure class recorded by the classification rules.
pub(super) fn failure_json(row: &FailureRow) -> Value {
    json!({
        "class": row.class, "rule": row.rule, "signature": row.signature, "message": row.message, "line": row.line,
    })
}

/// Returns the newest failure of a job: of the current run, or of the last run in which the job ran.
pub(super) fn load_last_failure(
    session: &AgentSession,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Option<FailureRow>, ToolError> {
    let of_run = |run: Option<RunId>| {
        let filter = FailureFilter { run, job: Some(job.id), ..FailureFilter::default() };
        let rows = session.store.failures(workflow.id, &filter)?.into_iter();
        Ok::<_, ToolError>(rows.max_by_key(|row| row.attempt_id))
    };
    if let Some(found) = of_run(None)? {
        return Ok(Some(found));
    }
    let earlier = load_last_failed_attempt(session, workflow, job)?.map(|row| row.key.run_id);
    earlier.map_or(Ok(None), |run| of_run(Some(run)))
}

/// Returns the newest failed attempt.
pub(super) fn load_last_failed_attempt(
    session: &AgentSession,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Option<ResultRow>, ToolError> {
    let filter = ResultFilter { job: Some(job.id), failed_only: true, ..ResultFilter::default() };
    let rows = session.store.results(workflow.id, &filter)?.into_iter();
    Ok(rows.max_by_key(|row| (row.key.run_id, row.key.attempt_id)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultsInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Only attempts of this job.
    job_id: Option<i64>,
    /// Only attempts of this run. Default: the newest run of each job.
    run_id: Option<i64>,
    /// Only attempts with this exit code.
    return_code: Option<i32>,
    /// Only attempts that did not complete.
    #[serde(default)]
    failed_only: bool,
    /// Only attempts that ended with this status. `failed` includes terminated.
    status: Option<String>,
    /// Maximum number of attempts. Default: 50, maximum: 500.
    limit: Option<u64>,
    /// Number of attempts to skip. Default: 0.
    offset: Option<u64>,
    /// Field to sort by: id, job_id, run_id, return_code, exec_time_minutes, completion_time, peak_memory_bytes
    /// or status.
    sort_by: Option<String>,
    /// Sort in descending order.
    #[serde(default)]
    reverse_sort: bool,
}

pub(super) fn list_results(session: &AgentSession, args: &ResultsInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let page = PageRange::new(args.offset, args.limit);
    let filter = ResultFilter {
        job: args.job_id.map(JobId),
        run: args.run_id.map(RunId),
        return_code: args.return_code,
        failed_only: args.failed_only,
        status: parse_statuses(args.status.as_deref())?,
        sort: args.sort_by.clone().map(|field| SortBy { field, descending: args.reverse_sort }),
        offset: page.offset,
        limit: Some(page.fetch_limit()),
        ..ResultFilter::default()
    };
    let rows = session.store.results(workflow.id, &filter)?;
    let rendered = rows.iter().map(|row| (row.key.job_id, attempt_json(row))).collect();
    Ok(page.render_page(session.redact_values(workflow.id, rendered)?, |view| view))
}
