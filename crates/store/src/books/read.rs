//! Queries. Every one of them runs in one read transaction and sees one state of the books.

use super::apply::current_run;
use super::query::{Query, list};
use super::{column, failures, parts, runs};
use crate::Error;
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{AttemptKeyRow, HeldJob, JobFilter, JobRow, Origin, ResultFilter, ResultRow, WorkflowRow};
use crate::sql::common::{self as sql, Detail, From};
use windlass_types::work::Stdio;
use windlass_types::{Attempt, JobId, JobStatus, ResultId, RunId, Timestamp, WorkerId, WorkflowId};

pub(crate) fn workflows(db: &impl Db) -> Result<Vec<WorkflowRow>, Fault> {
    let rows = db.all(sql::WORKFLOWS, values![], workflow_row)?;
    rows.into_iter().map(|row| with_counts(db, row)).collect()
}

pub(crate) fn workflow(db: &impl Db, id: WorkflowId) -> Result<Option<WorkflowRow>, Fault> {
    let row = db.optional(sql::WORKFLOW, [id.0], workflow_row)?;
    row.map(|row| with_counts(db, row)).transpose()
}

pub(crate) fn find_by_digest(
    db: &impl Db,
    digest: &str,
    submission_dir: &str,
) -> Result<Option<WorkflowRow>, Fault> {
    let newest: Option<i64> = db.one(sql::NEWEST_BY_DIGEST, [digest, submission_dir], |row| row.get(0))?;
    newest.map_or(Ok(None), |id| workflow(db, WorkflowId(id)))
}

pub(crate) fn job_names(db: &impl Db, jobs: &[JobId]) -> Result<Vec<String>, Fault> {
    let mut names = Vec::with_capacity(jobs.len());
    for id in jobs {
        names.push(db.optional(sql::JOB_NAME, [id.0], |row| row.get(0))?.unwrap_or_default());
    }
    Ok(names)
}

pub(crate) fn held_jobs(db: &impl Db, workflow: WorkflowId) -> Result<Vec<HeldJob>, Fault> {
    db.all(sql::HELD_JOBS, [workflow.0], held_row)
}

pub(crate) fn held_job(db: &impl Db, workflow: WorkflowId, job: JobId) -> Result<Option<HeldJob>, Fault> {
    db.optional(sql::HELD_JOB, [workflow.0, job.0], held_row)
}

fn held_row(row: &Row<'_>) -> Result<HeldJob, Fault> {
    Ok(HeldJob {
        id: JobId(row.get(0)?),
        status: column::status(row, 1)?,
        attempt: Attempt(row.get(2)?),
        worker: WorkerId(row.get(3)?),
        pid: row.get(4)?,
        started_at: column::time(row, 5)?,
    })
}

pub(crate) fn jobs<D: Db>(db: &D, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, Fault> {
    let run = current_run(db, workflow)?;
    let labels = label_condition(db, workflow, filter)?;
    jobs_query::<D>(workflow, run, filter, Detail::Row, labels.as_deref())?.run(db, job_row)
}

/// Which kinds of jobs a worker with the labels of the filter takes, as a condition.
pub(crate) fn label_condition(
    db: &impl Db,
    workflow: WorkflowId,
    filter: &JobFilter,
) -> Result<Option<String>, Fault> {
    let Some(of_worker) = &filter.for_labels else { return Ok(None) };
    let takes = |labels: &[String]| {
        labels.is_empty() == of_worker.is_empty() && labels.iter().all(|label| of_worker.contains(label))
    };
    let kinds = parts::kinds(db, workflow)?;
    let taken = kinds.iter().filter(|kind| takes(&kind.labels)).map(|kind| kind.id.0);
    // No kind has the number 0, but PostgreSQL takes no empty list.
    let taken = list(std::iter::once(0).chain(taken));
    let nameless = if takes(&[]) { "j.kind_id IS NULL OR " } else { "" };
    Ok(Some(format!(" AND ({nameless}j.kind_id IN ({taken}))")))
}

pub(crate) fn results<D: Db>(
    db: &D,
    workflow: WorkflowId,
    filter: &ResultFilter,
) -> Result<Vec<ResultRow>, Fault> {
    current_run(db, workflow)?;
    results_query::<D>(workflow, filter)?.run(db, result_row)
}

pub(crate) fn result(db: &impl Db, id: ResultId) -> Result<Option<ResultRow>, Fault> {
    let mut query = Query::new(&sql::select_results(From::Anywhere), vec![]);
    query.push("r.id = ?", vec![Box::new(id.0)]);
    Ok(query.run(db, result_row)?.pop())
}

/// States that the partial index `job_watched` holds.
const fn is_watched(status: JobStatus) -> bool {
    status.is_active() || status.is_unsuccessful() || matches!(status, JobStatus::PendingFailed)
}

/// How the jobs of a filter are found.
struct Way {
    from: From,
    /// By the index of the few that are held or in trouble.
    watched: bool,
}

impl Way {
    fn to<D: Db>(filter: &JobFilter) -> Self {
        let status_is_watched = !filter.status.is_empty() && filter.status.iter().copied().all(is_watched);
        let watched = status_is_watched || filter.worker.is_some();
        let named = filter.name.is_some() || filter.name_prefix.is_some();
        let by_block = !named && filter.ids.is_empty() && !watched;
        let from = if by_block { D::IN_ORDER } else { From::Anywhere };
        Self { from, watched: watched && !named && filter.ids.is_empty() }
    }
}

/// `labels` is what [`label_condition`] says.
pub(crate) fn jobs_query<D: Db>(
    workflow: WorkflowId,
    run: RunId,
    filter: &JobFilter,
    detail: Detail,
    labels: Option<&str>,
) -> Result<Query, Error> {
    let way = Way::to::<D>(filter);
    let mut query = Query::new(&sql::select_jobs(way.from, detail), vec![Box::new(run.0)]);
    push_job_conditions(&mut query, &way, workflow, filter, labels);
    match &filter.sort {
        None if way.from == From::Blocks => query.push(" ORDER BY b.first_job_id, j.id", vec![]),
        sort => query.push_order(sort.as_ref(), SORTABLE_JOBS, "j.id")?,
    }
    query.push_page(filter.offset, filter.limit);
    Ok(query)
}

pub(crate) fn count_jobs<D: Db>(db: &D, workflow: WorkflowId, filter: &JobFilter) -> Result<u64, Fault> {
    current_run(db, workflow)?;
    let labels = label_condition(db, workflow, filter)?;
    let way = Way::to::<D>(filter);
    let mut query = Query::new(&sql::count_jobs(way.from), vec![]);
    push_job_conditions(&mut query, &way, workflow, filter, labels.as_deref());
    query.count(db)
}

const SORTABLE_JOBS: &[(&str, &str)] = &[
    ("id", "j.id"),
    ("workflow_id", "j.workflow_id"),
    ("name", "j.name"),
    ("command", "j.command"),
    ("status", "j.status"),
    ("attempt_id", "j.attempt_id"),
    ("priority", "j.priority"),
    ("origin", "j.origin"),
    ("start_time", "j.started_at"),
    ("compute_node_id", "j.worker_id"),
    ("invocation_script", "j.invocation_script"),
    ("cancel_on_blocking_job_failure", "j.cancel_on_blocking_job_failure"),
    ("supports_termination", "k.supports_termination"),
    ("resource_requirements_id", "j.requirements_id"),
    ("scheduler_id", "k.scheduler_id"),
    ("failure_handler_id", "k.failure_handler_id"),
];

fn push_job_conditions(
    query: &mut Query,
    way: &Way,
    workflow: WorkflowId,
    filter: &JobFilter,
    labels: Option<&str>,
) {
    let least = filter.after.map_or(0, |after| after.0 + 1);
    match way.from {
        From::Blocks => push_block(query, sql::JOBS_IN_BLOCKS, workflow, least),
        From::Span => push_span(query, sql::JOBS_IN_SPAN, workflow, least),
        From::Anywhere => query.push("j.workflow_id = ?", vec![Box::new(workflow.0)]),
    }
    if let Some(kind) = filter.kind {
        query.push(" AND j.kind_id = ?", vec![Box::new(kind.0)]);
    }
    if let Some(name) = &filter.name {
        query.push(" AND j.name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(prefix) = &filter.name_prefix {
        // A range, so that the index on names serves; no name goes on with the last character that there is.
        let end = format!("{prefix}{}", char::MAX);
        query.push(" AND j.name >= ? AND j.name < ?", vec![Box::new(prefix.clone()), Box::new(end)]);
    }
    if let Some(after) = filter.after.filter(|_| way.from == From::Anywhere) {
        query.push(" AND j.id > ?", vec![Box::new(after.0)]);
    }
    if !filter.ids.is_empty() {
        let list = list(filter.ids.iter().map(|id| id.0));
        query.push(&format!(" AND j.id IN ({list})"), vec![]);
    }
    if way.watched {
        // Word for word the condition of the index: only then may it be used.
        query.push(" AND j.status >= 3 AND j.status <> 5 AND j.status <> 9", vec![]);
    }
    if !filter.status.is_empty() {
        let list = list(filter.status.iter().map(|status| i64::from(status.code())));
        query.push(&format!(" AND j.status IN ({list})"), vec![]);
    }
    if let Some(labels) = labels {
        query.push(labels, vec![]);
    }
    push_more_conditions(query, filter);
}

/// What no index leads to.
fn push_more_conditions(query: &mut Query, filter: &JobFilter) {
    if let Some(worker) = filter.worker {
        query.push(" AND j.worker_id = ?", vec![Box::new(worker.0)]);
    }
    if let Some(part) = &filter.name_contains {
        query.push_contains(" AND ", "j.name", part);
    }
    if let Some(part) = &filter.command_contains {
        query.push_contains(" AND ", "j.command", part);
    }
    match filter.has_origin {
        Some(true) => query.push(" AND j.origin IS NOT NULL", vec![]),
        Some(false) => query.push(" AND j.origin IS NULL", vec![]),
        None => {}
    }
    if let Some(file) = filter.needs_file {
        let reads = " AND EXISTS (SELECT 1 FROM job_file f \
            WHERE f.job_id = j.id AND f.is_output = 0 AND f.file_id = ?)";
        query.push(reads, vec![Box::new(file.0)]);
    }
    if let Some(upstream) = filter.upstream {
        let waits = " AND (EXISTS (SELECT 1 FROM job_edge e \
            WHERE e.workflow_id = j.workflow_id AND e.job_id = j.id AND e.waits_for = ?) \
            OR EXISTS (SELECT 1 FROM job_gate g \
                JOIN gate_member m ON m.workflow_id = g.workflow_id AND m.gate = g.gate \
                WHERE g.workflow_id = j.workflow_id AND g.job_id = j.id AND m.job_id = ?))";
        query.push(waits, vec![Box::new(upstream.0), Box::new(upstream.0)]);
    }
}

/// What [`sql::JOBS_IN_BLOCKS`] and its like are to be given.
fn push_block(query: &mut Query, condition: &str, workflow: WorkflowId, least: i64) {
    query.push(condition, vec![Box::new(workflow.0), Box::new(least), Box::new(least)]);
}

/// The same for [`sql::JOBS_IN_SPAN`].
fn push_span(query: &mut Query, condition: &str, workflow: WorkflowId, least: i64) {
    let id = || Box::new(workflow.0);
    query.push(condition, vec![id(), id(), Box::new(least), id()]);
}

pub(crate) fn results_query<D: Db>(workflow: WorkflowId, filter: &ResultFilter) -> Result<Query, Error> {
    let from = results_from::<D>(filter);
    let mut query = Query::new(&sql::select_results(from), vec![]);
    push_result_conditions(&mut query, from, workflow, filter);
    if let Some(sort) = &filter.sort {
        query.push_order(Some(sort), SORTABLE_RESULTS, "r.id")?;
    } else {
        let block = if from == From::Blocks { "b.first_job_id, " } else { "" };
        query.push(&format!(" ORDER BY {block}r.job_id, r.run_id, r.attempt_id"), vec![]);
    }
    query.push_page(filter.offset, filter.limit);
    Ok(query)
}

pub(crate) fn count_results<D: Db>(
    db: &D,
    workflow: WorkflowId,
    filter: &ResultFilter,
) -> Result<u64, Fault> {
    current_run(db, workflow)?;
    let from = results_from::<D>(filter);
    let mut query = Query::new(&sql::count_results(from), vec![]);
    push_result_conditions(&mut query, from, workflow, filter);
    query.count(db)
}

const SORTABLE_RESULTS: &[(&str, &str)] = &[
    ("id", "r.id"),
    ("job_id", "r.job_id"),
    ("job_name", "j.name"),
    ("workflow_id", "j.workflow_id"),
    ("run_id", "r.run_id"),
    ("attempt_id", "r.attempt_id"),
    ("compute_node_id", "r.worker_id"),
    ("return_code", "r.return_code"),
    ("exec_time_minutes", "r.wall_us"),
    ("completion_time", "r.ended_at"),
    ("status", "r.status"),
    ("peak_memory_bytes", "r.peak_memory_bytes"),
    ("avg_memory_bytes", "r.avg_memory_bytes"),
    ("peak_cpu_percent", "r.peak_cpu_percent"),
    ("avg_cpu_percent", "r.avg_cpu_percent"),
];

const fn results_from<D: Db>(filter: &ResultFilter) -> From {
    if filter.job.is_some() { From::Anywhere } else { D::IN_ORDER }
}

fn push_result_conditions(query: &mut Query, from: From, workflow: WorkflowId, filter: &ResultFilter) {
    let least = filter.after.map_or(0, |(job, _, _)| job.0);
    match from {
        From::Blocks => push_block(query, sql::RESULTS_IN_BLOCKS, workflow, least),
        From::Span => push_span(query, sql::RESULTS_IN_SPAN, workflow, least),
        From::Anywhere => {
            let job = filter.job.map_or(0, |job| job.0);
            query.push("r.job_id = ? AND j.workflow_id = ?", vec![Box::new(job), Box::new(workflow.0)]);
        }
    }
    match filter.run {
        Some(run) => query.push(" AND r.run_id = ?", vec![Box::new(run.0)]),
        None if filter.all_runs => {}
        None => {
            query.push(" AND r.run_id = (SELECT MAX(run_id) FROM result WHERE job_id = r.job_id)", vec![]);
        }
    }
    if filter.last_only {
        query.push(sql::LAST_ATTEMPT, vec![]);
    }
    if filter.failed_only {
        query.push(" AND r.status <> 5", vec![]);
    }
    if !filter.status.is_empty() {
        let list = list(filter.status.iter().map(|status| i64::from(status.code())));
        query.push(&format!(" AND r.status IN ({list})"), vec![]);
    }
    if let Some(code) = filter.return_code {
        query.push(" AND r.return_code = ?", vec![Box::new(code)]);
    }
    if let Some(worker) = filter.worker {
        query.push(" AND r.worker_id = ?", vec![Box::new(worker.0)]);
    }
    if let Some((job, run, attempt)) = filter.after {
        let condition = " AND (r.job_id, r.run_id, r.attempt_id) > (?, ?, ?)";
        query.push(condition, vec![Box::new(job.0), Box::new(run.0), Box::new(attempt.0)]);
    }
}

pub(crate) fn with_counts(db: &impl Db, mut row: WorkflowRow) -> Result<WorkflowRow, Fault> {
    row.counts = runs::counts(db, row.id)?;
    Ok(row)
}

pub(crate) fn workflow_row(row: &Row<'_>) -> Result<WorkflowRow, Fault> {
    Ok(WorkflowRow {
        id: WorkflowId(row.get(0)?),
        uuid: row.get(1)?,
        name: row.get(2)?,
        user: row.get(3)?,
        description: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
        run_id: RunId(row.get(6)?),
        is_canceled: column::flag(row, 7)?,
        submission_dir: row.get(8)?,
        output_dir: row.get(9)?,
        spec_path: row.get(10)?,
        spec_digest: row.get(11)?,
        env: column::env(row, 12)?,
        stdio: Stdio { mode: column::stdio_mode(row, 13)?, delete_on_success: column::flag(row, 14)? },
        counts: windlass_types::StatusCounts::default(),
        started_at: column::time(row, 15)?,
        ended_at: column::time(row, 16)?,
        is_archived: column::flag(row, 17)?,
        settings: column::required_json(row, 18)?,
        file_count: row.get::<i64>(19)?.unsigned_abs(),
    })
}

pub(crate) fn job_row(row: &Row<'_>) -> Result<JobRow, Fault> {
    Ok(JobRow {
        id: JobId(row.get(0)?),
        workflow_id: WorkflowId(row.get(1)?),
        name: row.get(2)?,
        command: row.get(3)?,
        status: column::status(row, 4)?,
        attempt_id: Attempt(row.get(5)?),
        priority: row.get(6)?,
        cancel_on_blocking_job_failure: column::flag(row, 7)?,
        resource_requirements: row.get(8)?,
        pid: row.get(9)?,
        started_at: column::time(row, 10)?,
        return_code: row.get(11)?,
        reason: row.get(12)?,
        kind: row.get(13)?,
        params: column::json(row, 14)?.unwrap_or_default(),
        origin: origin(row, 15)?,
        reused_from: row.get::<Option<i64>>(16)?.map(JobId),
    })
}

pub(crate) fn origin(row: &Row<'_>, index: usize) -> Result<Option<Origin>, Fault> {
    Ok(match row.text(index)? {
        Some("retry") => Some(Origin::Retry),
        Some("spawn") => Some(Origin::Spawn),
        _ => None,
    })
}

fn result_row(row: &Row<'_>) -> Result<ResultRow, Fault> {
    Ok(ResultRow {
        id: ResultId(row.get(0)?),
        key: AttemptKeyRow {
            workflow_id: WorkflowId(row.get(1)?),
            job_id: JobId(row.get(2)?),
            run_id: RunId(row.get(3)?),
            attempt_id: Attempt(row.get(4)?),
        },
        job_name: row.get(5)?,
        status: column::status(row, 6)?,
        return_code: row.get(7)?,
        signal: row.get(8)?,
        out_of_memory: column::flag(row, 9)?,
        reason: row.get(10)?,
        worker_id: WorkerId(row.get(11)?),
        started_at: column::time(row, 12)?,
        ended_at: Timestamp(row.get(13)?),
        wall: column::duration(row, 14)?.unwrap_or_default(),
        cpu_time: column::duration(row, 15)?.unwrap_or_default(),
        peak_memory_bytes: column::size(row, 16)?,
        avg_memory_bytes: column::size(row, 17)?,
        peak_cpu_percent: row.get(18)?,
        avg_cpu_percent: row.get(19)?,
        files: column::json(row, 20)?,
        recovered: column::json(row, 21)?,
        class: row.get::<Option<String>>(22)?.as_deref().map(failures::class).transpose()?,
        signature: row.get(23)?,
    })
}
