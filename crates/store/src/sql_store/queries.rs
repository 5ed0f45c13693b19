//! Queries. Each of them runs in one read transaction and sees one snapshot.

use super::apply_changes::current_run;
use super::query_builder::{SqlQuery, render_id_list};
use super::{column_decoding, failures, runs, workflow_parts};
use crate::StoreError;
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{
    AttemptKeyRow, HeldJob, JobFilter, JobOrigin, JobRow, ResultFilter, ResultRow, WorkflowRow,
};
use crate::sql::common::{self as sql, JobColumns, RowLookup};
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{Attempt, JobId, JobStatus, ResultId, RunId, Timestamp, WorkerId, WorkflowId};

pub(crate) fn list_workflows(db: &impl SqlConnection) -> Result<Vec<WorkflowRow>, SqlError> {
    let rows = db.query_all(sql::WORKFLOWS, values![], read_workflow_row)?;
    rows.into_iter().map(|row| load_counts(db, row)).collect()
}

pub(crate) fn find_workflow(
    db: &impl SqlConnection,
    id: WorkflowId,
) -> Result<Option<WorkflowRow>, SqlError> {
    let row = db.query_optional(sql::WORKFLOW, [id.0], read_workflow_row)?;
    row.map(|row| load_counts(db, row)).transpose()
}

pub(crate) fn find_workflow_by_digest(
    db: &impl SqlConnection,
    digest: &str,
    submission_dir: &str,
) -> Result<Option<WorkflowRow>, SqlError> {
    let newest: Option<i64> =
        db.query_one(sql::NEWEST_BY_DIGEST, [digest, submission_dir], |row| row.get(0))?;
    newest.map_or(Ok(None), |id| find_workflow(db, WorkflowId(id)))
}

pub(crate) fn load_job_names(db: &impl SqlConnection, jobs: &[JobId]) -> Result<Vec<String>, SqlError> {
    let mut names = Vec::with_capacity(jobs.len());
    for id in jobs {
        names.push(db.query_optional(sql::JOB_NAME, [id.0], |row| row.get(0))?.unwrap_or_default());
    }
    Ok(names)
}

pub(crate) fn list_held_jobs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<HeldJob>, SqlError> {
    db.query_all(sql::HELD_JOBS, [workflow.0], read_held_row)
}

pub(crate) fn find_held_job(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    job: JobId,
) -> Result<Option<HeldJob>, SqlError> {
    db.query_optional(sql::HELD_JOB, [workflow.0, job.0], read_held_row)
}

fn read_held_row(row: &SqlRow<'_>) -> Result<HeldJob, SqlError> {
    Ok(HeldJob {
        id: JobId(row.get(0)?),
        status: column_decoding::read_status(row, 1)?,
        attempt: Attempt(row.get(2)?),
        worker: WorkerId(row.get(3)?),
        pid: row.get(4)?,
        started_at: column_decoding::read_time(row, 5)?,
    })
}

pub(crate) fn list_jobs<D: SqlConnection>(
    db: &D,
    workflow: WorkflowId,
    filter: &JobFilter,
) -> Result<Vec<JobRow>, SqlError> {
    let run = current_run(db, workflow)?;
    let labels = label_condition(db, workflow, filter)?;
    jobs_query::<D>(workflow, run, filter, JobColumns::Row, labels.as_deref())?.read_rows(db, read_job_row)
}

/// Returns a condition for the job groups that a worker with the labels of the filter accepts.
pub(crate) fn label_condition(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: &JobFilter,
) -> Result<Option<String>, SqlError> {
    let Some(of_worker) = &filter.for_labels else { return Ok(None) };
    let takes = |labels: &[String]| {
        labels.is_empty() == of_worker.is_empty() && labels.iter().all(|label| of_worker.contains(label))
    };
    let job_groups = workflow_parts::list_job_groups(db, workflow)?;
    let taken = job_groups.iter().filter(|row| takes(&row.group.settings.labels)).map(|row| row.id.0);
    // No job group has the id 0, but PostgreSQL rejects an empty list.
    let taken = render_id_list(std::iter::once(0).chain(taken));
    let nameless = if takes(&[]) { "j.job_group_id IS NULL OR " } else { "" };
    Ok(Some(format!(" AND ({nameless}j.job_group_id IN ({taken}))")))
}

pub(crate) fn list_results<D: SqlConnection>(
    db: &D,
    workflow: WorkflowId,
    filter: &ResultFilter,
) -> Result<Vec<ResultRow>, SqlError> {
    current_run(db, workflow)?;
    results_query::<D>(workflow, filter)?.read_rows(db, read_result_row)
}

pub(crate) fn find_result(db: &impl SqlConnection, id: ResultId) -> Result<Option<ResultRow>, SqlError> {
    let mut query = SqlQuery::new(&sql::select_results(RowLookup::Anywhere), vec![]);
    query.push("r.id = ?", vec![Box::new(id.0)]);
    Ok(query.read_rows(db, read_result_row)?.pop())
}

/// States that the partial index `job_watched` holds.
const fn is_watched(status: JobStatus) -> bool {
    status.is_active() || status.is_unsuccessful() || matches!(status, JobStatus::PendingFailed)
}

/// The states in the partial index `job_watched`.
struct JobScan {
    from: RowLookup,
    /// Through the index of active and failed jobs.
    uses_watched_index: bool,
}

impl JobScan {
    fn for_filter<D: SqlConnection>(filter: &JobFilter) -> Self {
        let status_is_watched = !filter.status.is_empty() && filter.status.iter().copied().all(is_watched);
        let watched = status_is_watched || filter.worker.is_some();
        let named = filter.name.is_some() || filter.name_prefix.is_some();
        let by_block = !named && filter.ids.is_empty() && !watched;
        let from = if by_block { D::ORDERED_SCAN } else { RowLookup::Anywhere };
        Self { from, uses_watched_index: watched && !named && filter.ids.is_empty() }
    }
}

/// `labels` is the result of [`label_condition`].
pub(crate) fn jobs_query<D: SqlConnection>(
    workflow: WorkflowId,
    run: RunId,
    filter: &JobFilter,
    detail: JobColumns,
    labels: Option<&str>,
) -> Result<SqlQuery, StoreError> {
    let way = JobScan::for_filter::<D>(filter);
    let mut query = SqlQuery::new(&sql::select_jobs(way.from, detail), vec![Box::new(run.0)]);
    push_job_conditions(&mut query, &way, workflow, filter, labels);
    match &filter.sort {
        None if way.from == RowLookup::Blocks => query.push(" ORDER BY b.first_job_id, j.id", vec![]),
        sort => query.push_order(sort.as_ref(), SORTABLE_JOBS, "j.id")?,
    }
    query.push_page(filter.offset, filter.limit);
    Ok(query)
}

pub(crate) fn count_jobs<D: SqlConnection>(
    db: &D,
    workflow: WorkflowId,
    filter: &JobFilter,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    let labels = label_condition(db, workflow, filter)?;
    let way = JobScan::for_filter::<D>(filter);
    let mut query = SqlQuery::new(&sql::count_jobs(way.from), vec![]);
    push_job_conditions(&mut query, &way, workflow, filter, labels.as_deref());
    query.read_count(db)
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
    query: &mut SqlQuery,
    way: &JobScan,
    workflow: WorkflowId,
    filter: &JobFilter,
    labels: Option<&str>,
) {
    let least = filter.after.map_or(0, |after| after.0 + 1);
    match way.from {
        RowLookup::Blocks => push_block(query, sql::JOBS_IN_BLOCKS, workflow, least),
        RowLookup::Span => push_span(query, sql::JOBS_IN_SPAN, workflow, least),
        RowLookup::Anywhere => query.push("j.workflow_id = ?", vec![Box::new(workflow.0)]),
    }
    if let Some(job_group) = filter.kind {
        query.push(" AND j.job_group_id = ?", vec![Box::new(job_group.0)]);
    }
    if let Some(name) = &filter.name {
        query.push(" AND j.name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(prefix) = &filter.name_prefix {
        // A range, so that the index on names is used; no name continues with the last Unicode character.
        let end = format!("{prefix}{}", char::MAX);
        query.push(" AND j.name >= ? AND j.name < ?", vec![Box::new(prefix.clone()), Box::new(end)]);
    }
    if let Some(after) = filter.after.filter(|_| way.from == RowLookup::Anywhere) {
        query.push(" AND j.id > ?", vec![Box::new(after.0)]);
    }
    if !filter.ids.is_empty() {
        let list = render_id_list(filter.ids.iter().map(|id| id.0));
        query.push(&format!(" AND j.id IN ({list})"), vec![]);
    }
    if way.uses_watched_index {
        // Literally the condition of the index: only then can it be used.
        query.push(" AND j.status >= 3 AND j.status <> 5 AND j.status <> 9", vec![]);
    }
    if !filter.status.is_empty() {
        let list = render_id_list(filter.status.iter().map(|status| i64::from(status.code())));
        query.push(&format!(" AND j.status IN ({list})"), vec![]);
    }
    if let Some(labels) = labels {
        query.push(labels, vec![]);
    }
    push_more_conditions(query, filter);
}

/// Conditions without an index.
fn push_more_conditions(query: &mut SqlQuery, filter: &JobFilter) {
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
            WHERE e.workflow_id = j.workflow_id AND e.job_id = j.id AND e.depends_on = ?) \
            OR EXISTS (SELECT 1 FROM job_dependency_group g \
                JOIN dependency_group_member m ON m.workflow_id = g.workflow_id AND m.group_number = g.group_number \
                WHERE g.workflow_id = j.workflow_id AND g.job_id = j.id AND m.job_id = ?))";
        query.push(waits, vec![Box::new(upstream.0), Box::new(upstream.0)]);
    }
}

/// Parameters of [`sql::JOBS_IN_BLOCKS`] and similar statements.
fn push_block(query: &mut SqlQuery, condition: &str, workflow: WorkflowId, least: i64) {
    query.push(condition, vec![Box::new(workflow.0), Box::new(least), Box::new(least)]);
}

/// The same for [`sql::JOBS_IN_SPAN`].
fn push_span(query: &mut SqlQuery, condition: &str, workflow: WorkflowId, least: i64) {
    let id = || Box::new(workflow.0);
    query.push(condition, vec![id(), id(), Box::new(least), id()]);
}

pub(crate) fn results_query<D: SqlConnection>(
    workflow: WorkflowId,
    filter: &ResultFilter,
) -> Result<SqlQuery, StoreError> {
    let from = results_from::<D>(filter);
    let mut query = SqlQuery::new(&sql::select_results(from), vec![]);
    push_result_conditions(&mut query, from, workflow, filter);
    if let Some(sort) = &filter.sort {
        query.push_order(Some(sort), SORTABLE_RESULTS, "r.id")?;
    } else {
        let block = if from == RowLookup::Blocks { "b.first_job_id, " } else { "" };
        query.push(&format!(" ORDER BY {block}r.job_id, r.run_id, r.attempt_id"), vec![]);
    }
    query.push_page(filter.offset, filter.limit);
    Ok(query)
}

pub(crate) fn count_results<D: SqlConnection>(
    db: &D,
    workflow: WorkflowId,
    filter: &ResultFilter,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    let from = results_from::<D>(filter);
    let mut query = SqlQuery::new(&sql::count_results(from), vec![]);
    push_result_conditions(&mut query, from, workflow, filter);
    query.read_count(db)
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

const fn results_from<D: SqlConnection>(filter: &ResultFilter) -> RowLookup {
    if filter.job.is_some() { RowLookup::Anywhere } else { D::ORDERED_SCAN }
}

fn push_result_conditions(
    query: &mut SqlQuery,
    from: RowLookup,
    workflow: WorkflowId,
    filter: &ResultFilter,
) {
    let least = filter.after.map_or(0, |(job, _, _)| job.0);
    match from {
        RowLookup::Blocks => push_block(query, sql::RESULTS_IN_BLOCKS, workflow, least),
        RowLookup::Span => push_span(query, sql::RESULTS_IN_SPAN, workflow, least),
        RowLookup::Anywhere => {
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
        let list = render_id_list(filter.status.iter().map(|status| i64::from(status.code())));
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

pub(crate) fn load_counts(db: &impl SqlConnection, mut row: WorkflowRow) -> Result<WorkflowRow, SqlError> {
    row.counts = runs::load_status_counts(db, row.id)?;
    Ok(row)
}

pub(crate) fn read_workflow_row(row: &SqlRow<'_>) -> Result<WorkflowRow, SqlError> {
    Ok(WorkflowRow {
        id: WorkflowId(row.get(0)?),
        uuid: row.get(1)?,
        name: row.get(2)?,
        user: row.get(3)?,
        description: row.get(4)?,
        created_at: Timestamp(row.get(5)?),
        run_id: RunId(row.get(6)?),
        is_canceled: column_decoding::read_flag(row, 7)?,
        submission_dir: row.get(8)?,
        output_dir: row.get(9)?,
        spec_path: row.get(10)?,
        spec_digest: row.get(11)?,
        env: column_decoding::read_env(row, 12)?,
        stdio: StdioSettings {
            mode: column_decoding::read_stdio_mode(row, 13)?,
            delete_on_success: column_decoding::read_flag(row, 14)?,
        },
        counts: windlass_types::StatusCounts::default(),
        started_at: column_decoding::read_time(row, 15)?,
        ended_at: column_decoding::read_time(row, 16)?,
        is_archived: column_decoding::read_flag(row, 17)?,
        settings: column_decoding::read_required_json(row, 18)?,
        file_count: row.get::<i64>(19)?.unsigned_abs(),
    })
}

pub(crate) fn read_job_row(row: &SqlRow<'_>) -> Result<JobRow, SqlError> {
    Ok(JobRow {
        id: JobId(row.get(0)?),
        workflow_id: WorkflowId(row.get(1)?),
        name: row.get(2)?,
        command: row.get(3)?,
        status: column_decoding::read_status(row, 4)?,
        attempt_id: Attempt(row.get(5)?),
        priority: row.get(6)?,
        cancel_on_blocking_job_failure: column_decoding::read_flag(row, 7)?,
        resource_requirements: row.get(8)?,
        pid: row.get(9)?,
        started_at: column_decoding::read_time(row, 10)?,
        return_code: row.get(11)?,
        reason: row.get(12)?,
        kind: row.get(13)?,
        params: column_decoding::read_json(row, 14)?.unwrap_or_default(),
        origin: read_origin(row, 15)?,
        reused_from: row.get::<Option<i64>>(16)?.map(JobId),
        options: column_decoding::read_json(row, 17)?.unwrap_or_default(),
    })
}

pub(crate) fn read_origin(row: &SqlRow<'_>, index: usize) -> Result<Option<JobOrigin>, SqlError> {
    Ok(match row.get_text(index)? {
        Some("retry") => Some(JobOrigin::Retry),
        Some("spawn") => Some(JobOrigin::Spawn),
        _ => None,
    })
}

fn read_result_row(row: &SqlRow<'_>) -> Result<ResultRow, SqlError> {
    Ok(ResultRow {
        id: ResultId(row.get(0)?),
        key: AttemptKeyRow {
            workflow_id: WorkflowId(row.get(1)?),
            job_id: JobId(row.get(2)?),
            run_id: RunId(row.get(3)?),
            attempt_id: Attempt(row.get(4)?),
        },
        job_name: row.get(5)?,
        status: column_decoding::read_status(row, 6)?,
        return_code: row.get(7)?,
        signal: row.get(8)?,
        out_of_memory: column_decoding::read_flag(row, 9)?,
        reason: row.get(10)?,
        worker_id: WorkerId(row.get(11)?),
        started_at: column_decoding::read_time(row, 12)?,
        ended_at: Timestamp(row.get(13)?),
        wall: column_decoding::read_duration(row, 14)?.unwrap_or_default(),
        cpu_time: column_decoding::read_duration(row, 15)?.unwrap_or_default(),
        peak_memory_bytes: column_decoding::read_size(row, 16)?,
        avg_memory_bytes: column_decoding::read_size(row, 17)?,
        peak_cpu_percent: row.get(18)?,
        avg_cpu_percent: row.get(19)?,
        files: column_decoding::read_json(row, 20)?,
        recovered: column_decoding::read_json(row, 21)?,
        class: row.get::<Option<String>>(22)?.as_deref().map(failures::parse_class).transpose()?,
        signature: row.get(23)?,
    })
}
