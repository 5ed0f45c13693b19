//! Workflows as a whole.

use super::Answer;
use super::page::Page;
use crate::desk::{Desk, Trouble};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_insight::{State, is_run_by_somebody};
use windlass_store::model::{JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::JobStatus;

/// So many jobs are named in an overview; the counts say how many there are.
const NAMED: u64 = 20;
/// Results that are read at once.
const PAGE: u64 = 2000;
/// So many of the longest jobs are named.
const LONGEST: usize = 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListWorkflows {
    /// Only names that contain this.
    name_contains: Option<String>,
    /// Only of this user.
    user: Option<String>,
    /// Only in this state: created, running, interrupted, needs_decision, completed, failed or canceled.
    state: Option<String>,
    /// Also archived ones.
    #[serde(default)]
    include_archived: bool,
    /// At most so many (50; never more than 500).
    limit: Option<u64>,
    offset: Option<u64>,
}

pub(super) fn list(desk: &Desk, args: &ListWorkflows) -> Answer {
    let mut rows = desk.books.workflows()?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    let state = |row: &WorkflowRow| State::of(row, is_run_by_somebody(&*desk.books, row));
    rows.retain(|row| args.include_archived || !row.is_archived);
    rows.retain(|row| args.user.as_ref().is_none_or(|user| *user == row.user));
    rows.retain(|row| args.name_contains.as_ref().is_none_or(|part| row.name.contains(part)));
    rows.retain(|row| args.state.as_ref().is_none_or(|wanted| state(row).name() == wanted));
    Ok(Page::new(args.offset, args.limit).of_all(rows, |row| brief(desk, &row)))
}

/// What a list says of a workflow.
fn brief(desk: &Desk, row: &WorkflowRow) -> Value {
    let state = State::of(row, is_run_by_somebody(&*desk.books, row));
    json!({
        "workflow_id": row.id, "name": row.name, "user": row.user, "state": state, "run_id": row.run_id,
        "created_at": row.created_at, "started_at": row.started_at, "ended_at": row.ended_at,
        "jobs": counts(row),
    })
}

/// Only states that jobs are in.
fn counts(row: &WorkflowRow) -> Value {
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
pub(super) struct OneWorkflow {
    /// Its id.
    workflow_id: i64,
}

pub(super) fn status(desk: &Desk, args: &OneWorkflow) -> Answer {
    let row = desk.workflow(args.workflow_id)?;
    let mut view = brief(desk, &row);
    let more = json!({
        "description": row.description,
        "use_pending_failed": row.settings.use_pending_failed,
        "running": named(desk, &row, &[JobStatus::Running])?,
        "failed": named(desk, &row, &[JobStatus::Failed, JobStatus::Terminated])?,
        "waiting_for_a_decision": named(desk, &row, &[JobStatus::PendingFailed])?,
        "next": next(&row),
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    Ok(view)
}

fn named(desk: &Desk, row: &WorkflowRow, statuses: &[JobStatus]) -> Result<Vec<Value>, Trouble> {
    if statuses.iter().all(|status| row.counts.get(*status) == 0) {
        return Ok(Vec::new());
    }
    let filter = JobFilter { status: statuses.to_vec(), limit: Some(NAMED), ..JobFilter::default() };
    let view = |job: JobRow| {
        let told = json!({
            "job_id": job.id, "name": job.name, "status": job.status, "attempt_id": job.attempt_id,
            "return_code": job.return_code, "reason": job.reason, "started_at": job.started_at,
        });
        (job.id, told)
    };
    desk.told_of(row.id, desk.books.jobs(row.id, &filter)?.into_iter().map(view).collect())
}

/// What is worth looking at next.
fn next(row: &WorkflowRow) -> Vec<&'static str> {
    let has = |status| row.counts.get(status) > 0;
    let mut next = Vec::new();
    if has(JobStatus::PendingFailed) {
        next.push("list_pending_failed_jobs: jobs wait for a decision");
    }
    if has(JobStatus::Failed) || has(JobStatus::Terminated) {
        next.push("list_failed_jobs, then explain_job for one of a group");
    }
    if has(JobStatus::Ready) && !has(JobStatus::Running) {
        next.push("explain_job for a ready job: nobody runs it");
    }
    next
}

/// What the attempts of a workflow add up to.
#[derive(Default)]
struct Sum {
    attempts: u64,
    failed: u64,
    wall: f64,
    cpu: f64,
    largest_memory: Option<(u64, String)>,
    longest: Vec<(f64, String)>,
}

impl Sum {
    fn add(&mut self, row: &ResultRow) {
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
        if place < LONGEST {
            self.longest.insert(place, (seconds, row.job_name.clone()));
            self.longest.truncate(LONGEST);
        }
    }
}

pub(super) fn summary(desk: &Desk, args: &OneWorkflow) -> Answer {
    let row = desk.workflow(args.workflow_id)?;
    if row.counts.settled() < row.counts.total() {
        return Err(Trouble::refused(format!("workflow {} is not over", row.id))
            .with_hint("get_workflow_status says where it stands"));
    }
    let (mut sum, mut after) = (Sum::default(), None);
    loop {
        let filter = ResultFilter { after, limit: Some(PAGE), ..ResultFilter::default() };
        let page = desk.books.results(row.id, &filter)?;
        let Some(last) = page.last().map(|row| row.key) else { break };
        for row in &page {
            sum.add(row);
        }
        after = Some((last.job_id, last.run_id, last.attempt_id));
    }
    let elapsed = row.started_at.zip(row.ended_at).map(|(start, end)| end.since(start).as_secs_f64());
    let mut view = brief(desk, &row);
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
