//! Creates a workflow with all its jobs in one transaction, streaming them from the caller.
//!
//! On a connection of its own: the caller's jobs are borrowed and may take long to come, and the writer goes on when
//! this is done. Memory stays that of the page cache, however many jobs there are.

mod data;
mod jobs;
mod shared;

use super::writer::tend_log;
use super::{column, events};
use crate::Error;
use crate::error::Fault;
use crate::model::{FirstIds, JobSource, NewEvent, NewWorkflow, Severity};
use crate::sql::common as sql;
use crate::sql::sqlite::{BEGIN_WRITE, COMMIT};
use rusqlite::{Connection, params};
use std::borrow::Cow;
use windlass_core::edges::Edges;
use windlass_types::{JobStatus, StatusCounts, Timestamp, WorkflowId};

pub(crate) use data::taken;
pub(crate) use jobs::JobRows;
pub(crate) use shared::{insert_kind, insert_requirements};

/// Pages beyond this go to the log before the commit. Large enough for the index of names in any order.
const CACHE_KIB: i64 = 64 * 1024;

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
    source: &mut dyn JobSource,
    actor: &str,
    now: Timestamp,
) -> Result<WorkflowId, Fault> {
    conn.execute_batch(BEGIN_WRITE)?;
    let id = insert(conn, workflow, source, now)?;
    let jobs = super::runs::counts(conn, id)?.total();
    events::note(conn, actor, &created(id, workflow, jobs), now)?;
    conn.execute_batch(COMMIT)?;
    // The workflow is there; what remains is housekeeping that the writer does too.
    drop(tend_log(conn));
    Ok(id)
}

fn created(id: WorkflowId, workflow: &NewWorkflow<'_>, jobs: u64) -> NewEvent {
    NewEvent {
        workflow: Some(id),
        severity: Severity::Info,
        category: "workflow".to_owned(),
        message: format!("created `{}` with {jobs} jobs", workflow.name),
        data: Some(serde_json::json!({ "jobs": jobs, "spec_path": workflow.spec_path })),
    }
}

/// Everything but the transaction around it.
pub(crate) fn insert(
    conn: &Connection,
    workflow: &NewWorkflow<'_>,
    source: &mut dyn JobSource,
    now: Timestamp,
) -> Result<WorkflowId, Fault> {
    let first = FirstIds {
        job: next_id(conn, Counter::Job)?,
        file: next_id(conn, Counter::File)?,
        user_data: next_id(conn, Counter::UserData)?,
    };
    let id = insert_workflow(conn, workflow, now)?;
    let shared = shared::insert(conn, id, workflow)?;
    source.start(first);
    let files = data::insert_files(conn, id, first.file, source)?;
    let user_data = data::insert_user_data(conn, id, first.user_data, source, now)?;
    let numbers = jobs::Numbers { first, files, user_data };
    let counts = jobs::insert(conn, id, &shared, numbers, source)?;
    let job_count = counts.total() as i64;
    insert_edges(conn, id, first.job, counts.total(), workflow.edges)?;
    shared::insert_actions(conn, id, workflow.actions, first.job, job_count)?;
    insert_counts(conn, id, &counts)?;
    if job_count > 0 {
        conn.execute(sql::INSERT_BLOCK, [id.0, first.job, job_count])?;
    }
    conn.execute(sql::ADD_FILE_COUNT, [files, id.0])?;
    set_next_id(conn, Counter::Job, first.job + job_count)?;
    set_next_id(conn, Counter::File, first.file + files)?;
    set_next_id(conn, Counter::UserData, first.user_data + user_data)?;
    Ok(id)
}

/// What is numbered once and for ever.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Job,
    File,
    UserData,
}

impl Counter {
    const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::File => "file",
            Self::UserData => "user_data",
        }
    }
}

pub(crate) fn next_id(conn: &Connection, counter: Counter) -> Result<i64, Fault> {
    Ok(conn.prepare_cached(sql::NEXT_ID)?.query_row([counter.name()], |row| row.get(0))?)
}

pub(crate) fn set_next_id(conn: &Connection, counter: Counter, next: i64) -> Result<(), Fault> {
    conn.prepare_cached(sql::SET_NEXT_ID)?.execute(params![next, counter.name()])?;
    Ok(())
}

fn insert_workflow(
    conn: &Connection,
    workflow: &NewWorkflow<'_>,
    now: Timestamp,
) -> Result<WorkflowId, Fault> {
    let uuid = uuid::Uuid::new_v4().to_string();
    let settings = workflow.settings.map_or_else(|| Ok("{}".to_owned()), column::json_text)?;
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
            settings,
        ],
        |row| row.get(0),
    )?;
    Ok(WorkflowId(id))
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
pub(crate) fn sorted<T: Ord + Clone>(list: &[T]) -> Cow<'_, [T]> {
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
