//! Tools for workflows.

use super::ToolResult;
use super::page::PageRange;
use crate::agent_session::{AgentSession, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_insight::{WorkflowPhase, has_active_process};
use windlass_store::model::{JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::JobStatus;

/// Maximum number of jobs named in an overview; the counts cover all.
const MAX_NAMED: u64 = 20;
/// Number of results read at once.
const RESULT_PAGE: u64 = 2000;
/// Number of longest jobs that are named.
const MAX_LONGEST: usize = 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListWorkflowsInput {
    /// Only workflows whose name contains this text.
    name_contains: Option<String>,
    /// Only workflows of this user.
    user: Option<String>,
    /// Only workflows in this state: created, running, interrupted, needs_decision, completed, failed or
    /// canceled.
    state: Option<String>,
    /// Include archived workflows.
    #[serde(default)]
    include_archived: bool,
    /// Maximum number of workflows. Default: 50, maximum: 500.
    limit: Option<u64>,
    /// Number of workflows to skip. Default: 0.
    offset: Option<u64>,
}

pub(super) fn list_workflows(session: &AgentSession, args: &ListWorkflowsInput) -> ToolResult {
    let mut rows = session.store.workflows()?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    let state = |row: &WorkflowRow| WorkflowPhase::from_row(row, has_active_process(&*session.store, row));
    rows.retain(|row| args.include_archived || !row.is_archived);
    rows.retain(|row| args.user.as_ref().is_none_or(|user| *user == row.user));
    rows.retain(|row| args.name_contains.as_ref().is_none_or(|part| row.name.contains(part)));
    rows.retain(|row| args.state.as_ref().is_none_or(|wanted| state(row).name() == wanted));
    Ok(PageRange::new(args.offset, args.limit).render_slice(rows, |row| workflow_summary(session, &row)))
}

/// A workflow in a list.
fn workflow_summary(session: &AgentSession, row: &WorkflowRow) -> Value {
    let state = WorkflowPhase::from_row(row, has_active_process(&*session.store, row));
    json!({
        "workflow_id": row.id, "name": row.name, "user": row.user, "state": state, "run_id": row.run_id,
        "created_at": row.created_at, "started_at": row.started_at, "ended_at": row.ended_at,
        "jobs": status_counts(row),
    })
}

/// Only statuses that jobs are in.
fn status_counts(row: &WorkflowRow) -> Value {
    let mut all: serde_json::Map<String, Value> = row
        .counts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(status, n)| (status.name().to_owned(), json!(n)))
        .collect();
    all.insert("total".to_owned(), json!(row.counts.total()));
    Value::Object(all)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkflowInput {
    /// Id of the workflow.
    workflow_id: i64,
}

pub(super) fn get_workflow_status(session: &AgentSession, args: &WorkflowInput) -> ToolResult {
    let row = session.load_workflow(args.workflow_id)?;
    let mut view = workflow_summary(session, &row);
    let more = json!({
        "description": row.description,
        "use_pending_failed": row.settings.use_pending_failed,
        "running": list_named_jobs(session, &row, &[JobStatus::Running])?,
        "failed": list_named_jobs(session, &row, &[JobStatus::Failed, JobStatus::Terminated])?,
        "waiting_for_a_decision": list_named_jobs(session, &row, &[JobStatus::PendingFailed])?,
        "next": next_steps(&row),
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    Ok(view)
}

fn list_named_jobs(
    session: &AgentSession,
    row: &WorkflowRow,
    statuses: &[JobStatus],
) -> Result<Vec<Value>, ToolError> {
    if statuses.iter().all(|status| row.counts.get(*status) == 0) {
        return Ok(Vec::new());
    }
    let filter = JobFilter { status: statuses.to_vec(), limit: Some(MAX_NAMED), ..JobFilter::default() };
    let view = |job: JobRow| {
        let summary = json!({
            "job_id": job.id, "name": job.name, "status": job.status, "attempt_id": job.attempt_id,
            "return_code": job.return_code, "reason": job.reason, "started_at": job.started_at,
        });
        (job.id, summary)
    };
    session.redact_values(row.id, session.store.jobs(row.id, &filter)?.into_iter().map(view).collect())
}

/// Suggests the next tool to call.
fn next_steps(row: &WorkflowRow) -> Vec<&'static str> {
    let has = |status| row.counts.get(status) > 0;
    let mut next = Vec::new();
    if has(JobStatus::PendingFailed) {
        next.push("list_pending_failed_jobs: jobs wait for a decision");
    }
    if has(JobStatus::Failed) || has(JobStatus::Terminated) {
        next.push("list_failed_jobs, then explain_job for one job of each group");
    }
    if has(JobStatus::Ready) && !has(JobStatus::Running) {
        next.push("explain_job for a ready job: no process runs the workflow");
    }
    next
}

/// Totals over the attempts of a workflow.
#[derive(Default)]
struct ResultTotals {
    attempts: u64,
    failed: u64,
    wall: f64,
    cpu: f64,
    largest_memory: Option<(u64, String)>,
    longest: Vec<(f64, String)>,
}

impl ResultTotals {
    fn add_result(&mut self, row: &ResultRow) {
        self.attempts += 1;
        self.failed += u64::from(row.status != JobStatus::Completed);
        let seconds = row.wall.as_secs_f64();
        self.wall += seconds;
        self.cpu += row.cpu_time.as_secs_f64();
        if let Some(peak) = row.peak_memory_bytes
            && self.largest_memory.as_ref().is_none_or(|(most, _)| peak.0 > *most)
        {
            self.largest_memory = Some((peak.0, row.job_name.clone()));
        }
        let place = self.longest.partition_point(|(longer, _)| *longer >= seconds);
        if place < MAX_LONGEST {
            self.longest.insert(place, (seconds, row.job_name.clone()));
            self.longest.truncate(MAX_LONGEST);
        }
    }
}

pub(super) fn get_workflow_summary(session: &AgentSession, args: &WorkflowInput) -> ToolResult {
    let row = session.load_workflow(args.workflow_id)?;
    if row.counts.settled() < row.counts.total() {
        return Err(ToolError::new(format!("workflow {} has not ended", row.id))
            .with_hint("use get_workflow_status for its progress"));
    }
    let (mut sum, mut after) = (ResultTotals::default(), None);
    loop {
        let filter = ResultFilter { after, limit: Some(RESULT_PAGE), ..ResultFilter::default() };
        let page = session.store.results(row.id, &filter)?;
        let Some(last) = page.last().map(|row| row.key) else { break };
        for row in &page {
            sum.add_result(row);
        }
        after = Some((last.job_id, last.run_id, last.attempt_id));
    }
    let elapsed = row.started_at.zip(row.ended_at).map(|(start, end)| end.since(start).as_secs_f64());
    let mut view = workflow_summary(session, &row);
    let more = json!({
        "elapsed_seconds": elapsed,
        "attempts": sum.attempts,
        "failed_attempts": sum.failed,
        "sum_of_job_seconds": sum.wall,
        "cpu_seconds": sum.cpu,
        "largest_memory_bytes": sum.largest_memory.as_ref().map(|(bytes, _)| bytes),
        "largest_memory_job": sum.largest_memory.map(|(_, name)| name),
        "longest": sum.longest.into_iter().map(|(seconds, name)| json!({"name": name, "seconds": seconds})).collect::<Vec<_>>(),
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    Ok(view)
}
