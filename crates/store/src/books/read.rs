//! Queries. Every one of them runs in one read transaction and sees one state of the books.

use super::apply::current_run;
use super::query::{Query, list};
use super::{column, runs};
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{AttemptKeyRow, HeldJob, JobFilter, JobRow, Origin, ResultFilter, ResultRow, WorkflowRow};
use crate::sql::common::{self as sql, From};
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
    db.all(sql::HELD_JOBS, [workflow.0], |row| {
        Ok(HeldJob {
            id: JobId(row.get(0)?),
            status: column::status(row, 1)?,
            attempt: Attempt(row.get(2)?),
            worker: WorkerId(row.get(3)?),
            pid: row.get(4)?,
            started_at: column::time(row, 5)?,
        })
    })
}

pub(crate) fn jobs(db: &impl Db, workflow: WorkflowId, filter: &JobFilter) -> Result<Vec<JobRow>, Fault> {
    let run = current_run(db, workflow)?;
    jobs_query(workflow, run, filter).run(db, job_row)
}

pub(crate) fn results(
    db: &impl Db,
    workflow: WorkflowId,
    filter: &ResultFilter,
) -> Result<Vec<ResultRow>, Fault> {
    current_run(db, workflow)?;
    results_query(workflow, filter).run(db, result_row)
}

/// States that the partial index `job_watched` holds.
const fn is_watched(status: JobStatus) -> bool {
    status.is_active() || status.is_unsuccessful() || matches!(status, JobStatus::PendingFailed)
}

pub(crate) fn jobs_query(workflow: WorkflowId, run: RunId, filter: &JobFilter) -> Query {
    let watched = !filter.status.is_empty() && filter.status.iter().copied().all(is_watched);
    let named = filter.name.is_some() || filter.name_prefix.is_some();
    let by_block = !named && filter.ids.is_empty() && !watched;
    let from = if by_block { From::Blocks } else { From::Anywhere };
    let mut query = Query::new(&sql::select_jobs(from), vec![Box::new(run.0)]);
    if by_block {
        let least = filter.after.map_or(0, |after| after.0 + 1);
        query.push(sql::JOBS_IN_BLOCKS, vec![Box::new(workflow.0), Box::new(least), Box::new(least)]);
    } else {
        query.push("j.workflow_id = ?", vec![Box::new(workflow.0)]);
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
    if let Some(after) = filter.after.filter(|_| !by_block) {
        query.push(" AND j.id > ?", vec![Box::new(after.0)]);
    }
    if !filter.ids.is_empty() {
        let list = list(filter.ids.iter().map(|id| id.0));
        query.push(&format!(" AND j.id IN ({list})"), vec![]);
    }
    if watched && filter.ids.is_empty() && !named {
        // Word for word the condition of the index: only then may it be used.
        query.push(" AND j.status >= 3 AND j.status <> 5 AND j.status <> 9", vec![]);
    }
    if !filter.status.is_empty() {
        let list = list(filter.status.iter().map(|status| i64::from(status.code())));
        query.push(&format!(" AND j.status IN ({list})"), vec![]);
    }
    query.push(if by_block { " ORDER BY b.first_job_id, j.id" } else { " ORDER BY j.id" }, vec![]);
    query.push_page(filter.offset, filter.limit);
    query
}

pub(crate) fn results_query(workflow: WorkflowId, filter: &ResultFilter) -> Query {
    let from = if filter.job.is_some() { From::Anywhere } else { From::Blocks };
    let mut query = Query::new(&sql::select_results(from), vec![]);
    if let Some(job) = filter.job {
        query.push("r.job_id = ? AND j.workflow_id = ?", vec![Box::new(job.0), Box::new(workflow.0)]);
    } else {
        let least = filter.after.map_or(0, |(job, _, _)| job.0);
        query.push(sql::RESULTS_IN_BLOCKS, vec![Box::new(workflow.0), Box::new(least), Box::new(least)]);
    }
    match filter.run {
        Some(run) => query.push(" AND r.run_id = ?", vec![Box::new(run.0)]),
        None if filter.all_runs => {}
        None => {
            query.push(" AND r.run_id = (SELECT MAX(run_id) FROM result WHERE job_id = r.job_id)", vec![]);
        }
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
    if let Some((job, run, attempt)) = filter.after {
        let condition = " AND (r.job_id, r.run_id, r.attempt_id) > (?, ?, ?)";
        query.push(condition, vec![Box::new(job.0), Box::new(run.0), Box::new(attempt.0)]);
    }
    let block = if from == From::Blocks { "b.first_job_id, " } else { "" };
    query.push(&format!(" ORDER BY {block}r.job_id, r.run_id, r.attempt_id"), vec![]);
    query.push_page(filter.offset, filter.limit);
    query
}

fn with_counts(db: &impl Db, mut row: WorkflowRow) -> Result<WorkflowRow, Fault> {
    row.counts = runs::counts(db, row.id)?;
    Ok(row)
}

fn workflow_row(row: &Row<'_>) -> Result<WorkflowRow, Fault> {
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

fn job_row(row: &Row<'_>) -> Result<JobRow, Fault> {
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
    })
}
