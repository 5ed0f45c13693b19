//! Creates a workflow with all its jobs in one transaction, streaming them from the caller.
//!
//! On a connection of its own: the caller's jobs are borrowed and may take long to come, and the writer goes on when
//! this is done. Memory stays that of the page cache, however many jobs there are.

use super::apply::{bytes, micros};
use super::column;
use super::writer::tend_log;
use crate::Error;
use crate::error::Fault;
use crate::model::{NewJob, NewRequirements, NewWorkflow};
use crate::sql::common as sql;
use crate::sql::sqlite::{BEGIN_WRITE, COMMIT, insert_jobs as insert_jobs_sql};
use rusqlite::{Connection, OptionalExtension, Statement, ToSql, params};
use std::borrow::Cow;
use windlass_core::edges::Edges;
use windlass_types::{JobStatus, StatusCounts, Timestamp, WorkflowId};

/// Pages beyond this go to the log before the commit. Large enough for the index of names in any order.
const CACHE_KIB: i64 = 64 * 1024;

/// Jobs that one statement inserts.
const ROWS_A_STATEMENT: usize = 64;

/// Prepares a connection for one large transaction.
pub(crate) fn prepare(conn: &Connection) -> Result<(), Fault> {
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Every id below is made here, in the same transaction; looking each up again would cost a third more.
    conn.pragma_update(None, "foreign_keys", false)?;
    Ok(())
}

/// One transaction. Whoever drops the connection after an error has undone everything.
pub(crate) fn create(
    conn: &Connection,
    workflow: &NewWorkflow<'_>,
    jobs: &mut dyn Iterator<Item = NewJob<'_>>,
    now: Timestamp,
) -> Result<WorkflowId, Fault> {
    conn.execute_batch(BEGIN_WRITE)?;
    let first_job: i64 = conn.query_row(sql::NEXT_JOB_ID, [], |row| row.get(0))?;
    let id = insert_workflow(conn, workflow, first_job, now)?;
    let requirements = insert_requirements(conn, id, workflow.requirements)?;
    let counts = insert_jobs(conn, id, first_job, &requirements, jobs)?;
    let job_count = counts.total();
    insert_edges(conn, id, first_job, job_count, workflow.edges)?;
    insert_counts(conn, id, &counts)?;
    conn.execute(sql::SET_JOB_COUNT, params![job_count as i64, id.0])?;
    conn.execute(sql::SET_NEXT_JOB_ID, [first_job + job_count as i64])?;
    conn.execute_batch(COMMIT)?;
    // The workflow is there; what remains is housekeeping that the writer does too.
    drop(tend_log(conn));
    Ok(id)
}

fn insert_workflow(
    conn: &Connection,
    workflow: &NewWorkflow<'_>,
    first_job: i64,
    now: Timestamp,
) -> Result<WorkflowId, Fault> {
    let uuid = uuid::Uuid::new_v4().to_string();
    let id = conn.query_row(
        sql::INSERT_WORKFLOW,
        params![
            uuid,
            workflow.name,
            workflow.user,
            workflow.description,
            now.0,
            workflow.submission_dir,
            workflow.output_dir,
            workflow.spec_path,
            workflow.spec_digest,
            column::env_text(workflow.env),
            column::stdio_name(workflow.stdio.mode),
            i64::from(workflow.stdio.delete_on_success),
            first_job,
        ],
        |row| row.get(0),
    )?;
    Ok(WorkflowId(id))
}

/// The ids, in the order given.
fn insert_requirements(
    conn: &Connection,
    workflow: WorkflowId,
    requirements: &[NewRequirements<'_>],
) -> Result<Vec<i64>, Fault> {
    let mut statement = conn.prepare(sql::INSERT_REQUIREMENTS)?;
    let mut ids = Vec::with_capacity(requirements.len());
    for NewRequirements { name, resources } in requirements {
        let values = params![
            workflow.0,
            name,
            resources.cpus,
            bytes(resources.memory),
            resources.gpus,
            resources.nodes,
            resources.runtime.map(micros),
        ];
        ids.push(statement.query_row(values, |row| row.get(0))?);
    }
    Ok(ids)
}

/// Gives the first job its id; SQLite then counts on, because nobody else can write meanwhile.
fn insert_jobs(
    conn: &Connection,
    workflow: WorkflowId,
    first_job: i64,
    requirements: &[i64],
    jobs: &mut dyn Iterator<Item = NewJob<'_>>,
) -> Result<StatusCounts, Fault> {
    let mut counts = StatusCounts::default();
    let Some(first) = jobs.next() else { return Ok(counts) };
    let mut insert = JobInsert { workflow, requirements, statement: conn.prepare(sql::INSERT_FIRST_JOB)? };
    insert.execute(&[first], Some(first_job))?;
    counts.add(first.status, 1);

    let mut insert_many = insert.with(conn.prepare(&insert_jobs_sql(ROWS_A_STATEMENT))?);
    let mut insert_one = insert.with(conn.prepare(&insert_jobs_sql(1))?);
    let mut next_id = first_job + 1;
    loop {
        let rows: Vec<NewJob<'_>> = jobs.take(ROWS_A_STATEMENT).collect();
        let inserted = if rows.len() == ROWS_A_STATEMENT {
            insert_many.execute(&rows, None)
        } else {
            rows.chunks(1).try_for_each(|row| insert_one.execute(row, None))
        };
        if let Err(fault) = inserted {
            return Err(name_the_taken(fault, conn, workflow, next_id, &rows)?);
        }
        next_id += rows.len() as i64;
        for row in &rows {
            counts.add(row.status, 1);
        }
        if rows.len() < ROWS_A_STATEMENT {
            break;
        }
    }
    if conn.last_insert_rowid() == next_id - 1 {
        Ok(counts)
    } else {
        Err(Error::OutOfRange { what: format!("job id {}", conn.last_insert_rowid()) }.into())
    }
}

/// A statement that inserts jobs, one or many: many are faster, because the cursors stay where they are.
struct JobInsert<'a> {
    workflow: WorkflowId,
    /// The ids of the workflow's requirements.
    requirements: &'a [i64],
    statement: Statement<'a>,
}

impl<'a> JobInsert<'a> {
    fn with(&self, statement: Statement<'a>) -> Self {
        Self { statement, ..*self }
    }

    fn execute(&mut self, jobs: &[NewJob<'_>], first_id: Option<i64>) -> Result<(), Fault> {
        let statement = &mut self.statement;
        let mut parameters = 1..;
        let mut bind = |value: &dyn ToSql| {
            let index: usize = parameters.next().unwrap_or_default();
            statement.raw_bind_parameter(index, value)
        };
        bind(&self.workflow.0)?;
        for job in jobs {
            bind(&job.status.code())?;
            bind(&job.priority)?;
            bind(&i64::from(job.cancel_on_blocking_job_failure))?;
            bind(&requirements_id(job, self.requirements)?)?;
            bind(&job.name)?;
            bind(&job.command)?;
            bind(&column::env_text(job.env))?;
        }
        if let Some(id) = first_id {
            bind(&id)?;
        }
        statement.raw_execute()?;
        Ok(())
    }
}

fn requirements_id(job: &NewJob<'_>, requirements: &[i64]) -> Result<Option<i64>, Error> {
    let Some(index) = job.requirements else { return Ok(None) };
    let found = requirements.get(index as usize).copied();
    found
        .map(Some)
        .ok_or_else(|| Error::OutOfRange { what: format!("requirement {index} of job `{}`", job.name) })
}

/// Finds the name that was refused because another job of the workflow has it. SQLite does not say which one it was, but
/// it went no further: it is the first row that is not there under its own id.
fn name_the_taken(
    fault: Fault,
    conn: &Connection,
    workflow: WorkflowId,
    first_id: i64,
    jobs: &[NewJob<'_>],
) -> Result<Fault, Fault> {
    let is_taken = matches!(
        &fault,
        Fault::Sqlite(e) if e.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
    );
    if !is_taken {
        return Ok(fault);
    }
    let mut statement = conn.prepare(sql::JOB_NAMED)?;
    for (id, job) in (first_id..).zip(jobs) {
        let found: Option<i64> =
            statement.query_row(params![workflow.0, job.name], |row| row.get(0)).optional()?;
        if found != Some(id) {
            return Ok(Error::DuplicateJobName { name: job.name.to_owned() }.into());
        }
    }
    Ok(fault)
}

fn insert_edges(
    conn: &Connection,
    workflow: WorkflowId,
    first_job: i64,
    job_count: u64,
    edges: &Edges,
) -> Result<(), Fault> {
    let job_id = |index: u32| {
        if u64::from(index) < job_count {
            Ok(first_job + i64::from(index))
        } else {
            Err(Error::OutOfRange { what: format!("dependency on job number {index} of {job_count}") })
        }
    };
    let mut statement = conn.prepare(sql::INSERT_EDGE)?;
    for &(job, waits_for) in sorted(&edges.direct).iter() {
        statement.execute([workflow.0, job_id(job)?, job_id(waits_for)?])?;
    }
    let mut statement = conn.prepare(sql::INSERT_GATE_MEMBER)?;
    for (gate, members) in (0i64..).zip(&edges.gates) {
        for &member in sorted(members).iter() {
            statement.execute([workflow.0, gate, job_id(member)?])?;
        }
    }
    let mut statement = conn.prepare(sql::INSERT_JOB_GATE)?;
    for &(job, gate) in sorted(&edges.waits).iter() {
        if gate as usize >= edges.gates.len() {
            return Err(Error::OutOfRange { what: format!("gate {gate} of {}", edges.gates.len()) }.into());
        }
        statement.execute([workflow.0, job_id(job)?, i64::from(gate)])?;
    }
    Ok(())
}

/// Rows that arrive in the order of their key are appended. They usually are sorted already.
fn sorted<T: Ord + Clone>(list: &[T]) -> Cow<'_, [T]> {
    if list.is_sorted() {
        return Cow::Borrowed(list);
    }
    let mut list = list.to_vec();
    list.sort_unstable();
    Cow::Owned(list)
}

/// All eleven, so that later changes only ever add to a row that is there.
fn insert_counts(conn: &Connection, workflow: WorkflowId, counts: &StatusCounts) -> Result<(), Fault> {
    let mut statement = conn.prepare(sql::INSERT_COUNT)?;
    for status in JobStatus::ALL {
        statement.execute(params![workflow.0, status.code(), counts.get(status) as i64])?;
    }
    Ok(())
}
