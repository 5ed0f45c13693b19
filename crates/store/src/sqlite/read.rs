//! Queries. Every one of them runs in one read transaction and sees one state of the books.

use super::{column, runs};
use crate::Error;
use crate::error::Fault;
use crate::model::{
    AttemptKeyRow, HeldJob, JobCommand, JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow,
};
use crate::sql::common as sql;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params_from_iter};
use std::fmt::Write as _;
use windlass_types::work::Stdio;
use windlass_types::{Attempt, JobId, JobStatus, ResultId, RunId, Timestamp, WorkerId, WorkflowId};

/// Where the jobs of a workflow lie, and its current run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) first: i64,
    pub(crate) count: i64,
    pub(crate) run: RunId,
}

impl Block {
    pub(crate) const fn end(self) -> i64 {
        self.first + self.count
    }
}

pub(crate) fn block(conn: &Connection, workflow: WorkflowId) -> Result<Block, Fault> {
    let block = conn
        .prepare_cached(sql::JOB_BLOCK)?
        .query_row([workflow.0], |row| {
            Ok(Block { first: row.get(0)?, count: row.get(1)?, run: RunId(row.get(2)?) })
        })
        .optional()?;
    block.ok_or_else(|| Error::NoSuchWorkflow(workflow).into())
}

pub(crate) fn workflows(conn: &Connection) -> Result<Vec<WorkflowRow>, Fault> {
    let mut statement = conn.prepare_cached(sql::WORKFLOWS)?;
    let rows = statement.query_map([], workflow_row)?.collect::<Result<Vec<_>, _>>()?;
    rows.into_iter().map(|row| with_counts(conn, row)).collect()
}

pub(crate) fn workflow(conn: &Connection, id: WorkflowId) -> Result<Option<WorkflowRow>, Fault> {
    let row = conn.prepare_cached(sql::WORKFLOW)?.query_row([id.0], workflow_row).optional()?;
    row.map(|row| with_counts(conn, row)).transpose()
}

pub(crate) fn find_by_digest(
    conn: &Connection,
    digest: &str,
    submission_dir: &str,
) -> Result<Option<WorkflowRow>, Fault> {
    let newest: Option<i64> =
        conn.prepare_cached(sql::NEWEST_BY_DIGEST)?.query_row([digest, submission_dir], |row| row.get(0))?;
    newest.map_or(Ok(None), |id| workflow(conn, WorkflowId(id)))
}

/// One lookup by primary key per job.
pub(crate) fn commands(conn: &Connection, jobs: &[JobId]) -> Result<Vec<JobCommand>, Fault> {
    let mut statement = conn.prepare_cached(sql::JOB_COMMAND)?;
    let mut commands = Vec::with_capacity(jobs.len());
    for &id in jobs {
        let command = statement
            .query_row([id.0], |row| {
                Ok(JobCommand { id, name: row.get(0)?, command: row.get(1)?, env: column::env(row, 2)? })
            })
            .optional()?;
        commands.push(command.ok_or(Error::NoSuchJob(id))?);
    }
    Ok(commands)
}

pub(crate) fn job_names(conn: &Connection, jobs: &[JobId]) -> Result<Vec<String>, Fault> {
    let mut statement = conn.prepare_cached(sql::JOB_NAME)?;
    let mut names = Vec::with_capacity(jobs.len());
    for id in jobs {
        names.push(statement.query_row([id.0], |row| row.get(0)).optional()?.unwrap_or_default());
    }
    Ok(names)
}

pub(crate) fn held_jobs(conn: &Connection, workflow: WorkflowId) -> Result<Vec<HeldJob>, Fault> {
    let mut statement = conn.prepare_cached(sql::HELD_JOBS)?;
    let rows = statement.query_map([workflow.0], |row| {
        Ok(HeldJob {
            id: JobId(row.get(0)?),
            status: column::status(row, 1)?,
            attempt: Attempt(row.get(2)?),
            worker: WorkerId(row.get(3)?),
            pid: row.get(4)?,
            started_at: column::time(row, 5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn jobs(
    conn: &Connection,
    workflow: WorkflowId,
    filter: &JobFilter,
) -> Result<Vec<JobRow>, Fault> {
    let block = block(conn, workflow)?;
    let query = jobs_query(workflow, block, filter);
    query.run(conn, job_row)
}

pub(crate) fn results(
    conn: &Connection,
    workflow: WorkflowId,
    filter: &ResultFilter,
) -> Result<Vec<ResultRow>, Fault> {
    let block = block(conn, workflow)?;
    let query = results_query(block, filter);
    query.run(conn, result_row)
}

/// A statement that grows condition by condition, with its values in the order of their placeholders.
pub(crate) struct Query {
    pub(crate) sql: String,
    values: Vec<Box<dyn ToSql>>,
}

impl Query {
    fn new(base: &str, values: Vec<Box<dyn ToSql>>) -> Self {
        Self { sql: base.to_owned(), values }
    }

    /// Appends `text`, in which each `?` stands for the next value.
    fn push(&mut self, text: &str, values: Vec<Box<dyn ToSql>>) {
        let mut values = values.into_iter();
        for (i, part) in text.split('?').enumerate() {
            if i > 0 {
                self.values.extend(values.next());
                // Writing to a string cannot fail.
                let _infallible = write!(self.sql, "${}", self.values.len());
            }
            self.sql.push_str(part);
        }
    }

    fn push_page(&mut self, offset: u64, limit: Option<u64>) {
        let at_most = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let limit = limit.map_or(i64::MAX, at_most);
        self.push(" LIMIT ? OFFSET ?", vec![Box::new(limit), Box::new(at_most(offset))]);
    }

    fn run<T>(
        &self,
        conn: &Connection,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut statement = conn.prepare(&self.sql)?;
        let rows = statement.query_map(params_from_iter(&self.values), row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// States that the partial index `job_watched` holds.
const fn is_watched(status: JobStatus) -> bool {
    status.is_active() || status.is_unsuccessful() || matches!(status, JobStatus::PendingFailed)
}

pub(crate) fn jobs_query(workflow: WorkflowId, block: Block, filter: &JobFilter) -> Query {
    let mut query = Query::new(sql::SELECT_JOBS, vec![Box::new(block.run.0)]);
    let watched = !filter.status.is_empty() && filter.status.iter().copied().all(is_watched);
    let named = filter.name.is_some() || filter.name_prefix.is_some();
    if !named && filter.ids.is_empty() && !watched {
        query.push("j.id >= ? AND j.id < ?", vec![Box::new(block.first), Box::new(block.end())]);
    } else {
        query.push("j.workflow_id = ?", vec![Box::new(workflow.0)]);
    }
    if let Some(name) = &filter.name {
        query.push(" AND j.name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(prefix) = &filter.name_prefix {
        // A range, so that the index on names serves; no name goes on with the last character that there is.
        let end = format!("{prefix}{}", char::MAX);
        query.push(" AND j.name >= ? AND j.name < ?", vec![Box::new(prefix.clone()), Box::new(end)]);
    }
    if let Some(after) = filter.after {
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
    query.push(" ORDER BY j.id", vec![]);
    query.push_page(filter.offset, filter.limit);
    query
}

pub(crate) fn results_query(block: Block, filter: &ResultFilter) -> Query {
    let mut query = Query::new(sql::SELECT_RESULTS, vec![]);
    query.push("r.job_id >= ? AND r.job_id < ?", vec![Box::new(block.first), Box::new(block.end())]);
    if let Some(job) = filter.job {
        query.push(" AND r.job_id = ?", vec![Box::new(job.0)]);
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
        let values: Vec<Box<dyn ToSql>> =
            vec![Box::new(job.0), Box::new(job.0), Box::new(run.0), Box::new(attempt.0)];
        let condition = " AND r.job_id >= ? AND (r.job_id, r.run_id, r.attempt_id) > (?, ?, ?)";
        query.push(condition, values);
    }
    query.push(" ORDER BY r.job_id, r.run_id, r.attempt_id", vec![]);
    query.push_page(filter.offset, filter.limit);
    query
}

/// Numbers are written out: there may be more of them than placeholders are allowed.
fn list(numbers: impl Iterator<Item = i64>) -> String {
    numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
}

fn with_counts(conn: &Connection, mut row: WorkflowRow) -> Result<WorkflowRow, Fault> {
    row.counts = runs::counts(conn, row.id)?;
    Ok(row)
}

fn workflow_row(row: &Row<'_>) -> rusqlite::Result<WorkflowRow> {
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
    })
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
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
    })
}

fn result_row(row: &Row<'_>) -> rusqlite::Result<ResultRow> {
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
    })
}
