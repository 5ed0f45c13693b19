//! Single jobs, and lists of them and of their attempts.

use super::Answer;
use super::page::Page;
use crate::desk::{Desk, Trouble};
use crate::shown;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass_insight::why::{self, Asker};
use windlass_store::model::{
    FailureFilter, FailureRow, JobFilter, JobRow, ResultFilter, ResultRow, SortBy, WorkflowRow,
};
use windlass_types::{JobId, JobStatus, RunId};

/// Commands are shown up to this.
const COMMAND: usize = 2000;
/// So many attempts of one job are shown.
const ATTEMPTS: u64 = 50;
/// So many of those that it depends on are named.
const RELATED: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsByStatus {
    workflow_id: i64,
    /// uninitialized, blocked, ready, pending, running, completed, failed, canceled, terminated, disabled or
    /// pending_failed.
    status: String,
    /// Only names that contain this.
    name_contains: Option<String>,
    /// At most so many (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

pub(super) fn by_status(desk: &Desk, args: &JobsByStatus) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    let status = status(&args.status)?;
    let page = Page::new(args.offset, args.limit);
    let filter = JobFilter {
        status: vec![status],
        name_contains: args.name_contains.clone(),
        offset: page.offset,
        limit: Some(page.asked()),
        ..JobFilter::default()
    };
    let jobs = desk.books.jobs(workflow.id, &filter)?;
    let told = jobs.iter().map(|job| (job.id, brief(job))).collect();
    let mut shown = page.show(desk.told_of(workflow.id, told)?, |view| view);
    shown["total_in_status"] = json!(workflow.counts.get(status));
    Ok(shown)
}

pub(super) fn status(text: &str) -> Result<JobStatus, Trouble> {
    text.parse().map_err(|why: windlass_types::ParseStatusError| Trouble::refused(why.to_string()))
}

fn brief(job: &JobRow) -> Value {
    json!({
        "job_id": job.id, "name": job.name, "status": job.status, "attempt_id": job.attempt_id,
        "return_code": job.return_code, "reason": job.reason, "command": shown::cut(&job.command, COMMAND),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneJob {
    /// Its id, which is a number of its own in the whole database.
    job_id: i64,
}

pub(super) fn details(desk: &Desk, args: &OneJob) -> Answer {
    let (workflow, job) = desk.job(args.job_id)?;
    let relations = relations(desk, &job)?;
    let asked = desk.books.requirements(workflow.id)?.into_iter();
    let asked = asked
        .filter(|set| Some(&set.name) == job.resource_requirements.as_ref())
        .map(|set| requirements(&set))
        .next();
    let filter =
        ResultFilter { job: Some(job.id), all_runs: true, limit: Some(ATTEMPTS), ..ResultFilter::default() };
    let attempts: Vec<Value> = desk.books.results(workflow.id, &filter)?.iter().map(attempt).collect();
    let mut view = brief(&job);
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
    desk.redactor(&job).map(|redactor| shown::redact(view, &redactor))
}

/// What it waits for, reads and writes; long lists are cut.
fn relations(desk: &Desk, job: &JobRow) -> Result<Value, Trouble> {
    let mut all = desk.books.job_relations(job.id)?;
    let waits_for = all.waits_for.len();
    all.waits_for.truncate(RELATED);
    all.input_files.truncate(RELATED);
    all.output_files.truncate(RELATED);
    all.input_user_data.truncate(RELATED);
    all.output_user_data.truncate(RELATED);
    Ok(json!({ "waits_for_count": waits_for, "first": all }))
}

fn requirements(set: &windlass_store::model::RequirementsRow) -> Value {
    let asked = &set.resources;
    json!({
        "name": set.name, "num_cpus": asked.cpus, "memory": asked.memory.to_string(), "memory_bytes": asked.memory,
        "num_gpus": asked.gpus, "num_nodes": asked.nodes, "runtime_seconds": asked.runtime.map(|time| time.as_secs_f64()),
    })
}

/// An attempt that ended.
fn attempt(row: &ResultRow) -> Value {
    json!({
        "job_id": row.key.job_id, "job_name": row.job_name, "run_id": row.key.run_id, "attempt_id": row.key.attempt_id,
        "status": row.status, "return_code": row.return_code, "signal": row.signal,
        "out_of_memory": row.out_of_memory, "reason": row.reason, "ended_at": row.ended_at,
        "exec_time_minutes": row.wall.as_secs_f64() / 60.0, "cpu_seconds": row.cpu_time.as_secs_f64(),
        "peak_memory_bytes": row.peak_memory_bytes, "peak_cpu_percent": row.peak_cpu_percent,
        "worker_id": row.worker_id,
    })
}

pub(super) fn explain(desk: &Desk, args: &OneJob) -> Answer {
    let (workflow, job) = desk.job(args.job_id)?;
    let workers = desk.hands.workers(&*desk.books, workflow.id)?;
    let asker = Asker {
        now: Desk::now(),
        is_served: desk.is_served(),
        workers: &workers,
        name_of: &|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let verdict = why::explain(&*desk.books, &workflow, &job, asker)?;
    let verdict = serde_json::to_value(&verdict).map_err(|e| Trouble::refused(e.to_string()))?;
    let verdict = shown::redact(verdict, &desk.redactor(&job)?);
    Ok(json!({ "note": shown::NOTE, "workflow_id": workflow.id, "verdict": verdict }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailedJobs {
    workflow_id: i64,
    /// At most so many jobs are looked at (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

/// A failure that several jobs share.
struct Group {
    failure: Value,
    jobs: Vec<Value>,
}

pub(super) fn failed(desk: &Desk, args: &FailedJobs) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    let page = Page::new(args.offset, args.limit);
    let statuses = vec![JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
    let total: u64 = statuses.iter().map(|status| workflow.counts.get(*status)).sum();
    let filter = JobFilter {
        status: statuses,
        offset: page.offset,
        limit: Some(page.asked()),
        ..JobFilter::default()
    };
    let mut jobs = desk.books.jobs(workflow.id, &filter)?;
    let has_more = jobs.len() as u64 > page.limit;
    jobs.truncate(page.limit as usize);
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for job in &jobs {
        let Some(row) = last_failure(desk, &workflow, job)? else { continue };
        let told = json!({
            "job_id": job.id, "name": job.name, "run_id": row.run_id, "attempt_id": row.attempt_id,
            "status": job.status, "return_code": row.return_code, "signal": row.signal, "why": row.why,
        });
        let redactor = desk.redactor(job)?;
        let group = groups.entry(row.signature.clone());
        let group = group
            .or_insert_with(|| Group { failure: shown::redact(failure(&row), &redactor), jobs: Vec::new() });
        group.jobs.push(shown::redact(told, &redactor));
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.jobs.len()));
    let view =
        |group: Group| json!({ "failure": group.failure, "count": group.jobs.len(), "jobs": group.jobs });
    Ok(json!({
        "note": shown::NOTE, "total": total, "waiting_for_a_decision": workflow.counts.get(JobStatus::PendingFailed),
        "count": jobs.len(), "has_more": has_more,
        "next_offset": has_more.then(|| page.offset + jobs.len() as u64),
        "groups": groups.into_iter().map(view).collect::<Vec<_>>(),
    }))
}

/// What the rules of classification took it for when it happened.
pub(super) fn failure(row: &FailureRow) -> Value {
    json!({
        "class": row.class, "rule": row.rule, "signature": row.signature, "message": row.message, "line": row.line,
    })
}

/// The newest failure of a job: of this run, or of the last in which it ran.
pub(super) fn last_failure(
    desk: &Desk,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Option<FailureRow>, Trouble> {
    let of_run = |run: Option<RunId>| {
        let filter = FailureFilter { run, job: Some(job.id), ..FailureFilter::default() };
        let rows = desk.books.failures(workflow.id, &filter)?.into_iter();
        Ok::<_, Trouble>(rows.max_by_key(|row| row.attempt_id))
    };
    if let Some(found) = of_run(None)? {
        return Ok(Some(found));
    }
    let earlier = last_failed(desk, workflow, job)?.map(|row| row.key.run_id);
    earlier.map_or(Ok(None), |run| of_run(Some(run)))
}

/// The newest attempt that failed.
pub(super) fn last_failed(
    desk: &Desk,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Option<ResultRow>, Trouble> {
    let filter = ResultFilter { job: Some(job.id), failed_only: true, ..ResultFilter::default() };
    let rows = desk.books.results(workflow.id, &filter)?.into_iter();
    Ok(rows.max_by_key(|row| (row.key.run_id, row.key.attempt_id)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Results {
    workflow_id: i64,
    job_id: Option<i64>,
    /// Without it: of each job, the newest run in which it ran.
    run_id: Option<i64>,
    return_code: Option<i32>,
    /// Only attempts that did not complete.
    #[serde(default)]
    failed_only: bool,
    /// Only attempts that ended in this status.
    status: Option<String>,
    /// At most so many (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
    /// A field of the results: id, job_id, run_id, return_code, exec_time_minutes, completion_time, peak_memory_bytes, status.
    sort_by: Option<String>,
    #[serde(default)]
    reverse_sort: bool,
}

pub(super) fn results(desk: &Desk, args: &Results) -> Answer {
    let workflow = desk.workflow(args.workflow_id)?;
    let page = Page::new(args.offset, args.limit);
    let filter = ResultFilter {
        job: args.job_id.map(JobId),
        run: args.run_id.map(RunId),
        return_code: args.return_code,
        failed_only: args.failed_only,
        status: args.status.as_deref().map(status).transpose()?.into_iter().collect(),
        sort: args.sort_by.clone().map(|field| SortBy { field, descending: args.reverse_sort }),
        offset: page.offset,
        limit: Some(page.asked()),
        ..ResultFilter::default()
    };
    let rows = desk.books.results(workflow.id, &filter)?;
    let told = rows.iter().map(|row| (row.key.job_id, attempt(row))).collect();
    Ok(page.show(desk.told_of(workflow.id, told)?, |view| view))
}
