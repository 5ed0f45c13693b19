//! Creates a workflow with all its jobs in one transaction, streaming them from the caller.
//!
//! On a connection of its own: the caller's jobs are borrowed and may take long to come, and the writer goes on when
//! this is done. Memory stays that of the page cache, however many jobs there are.

mod data;
mod jobs;
mod shared;

use super::{column, events};
use crate::Error;
use crate::db::{Db, Loader as _, values};
use crate::error::Fault;
use crate::model::{FirstIds, JobSource, NewEvent, NewWorkflow, Severity};
use crate::sql::{common as sql, tables};
use std::borrow::Cow;
use windlass_core::edges::Edges;
use windlass_types::{JobStatus, StatusCounts, Timestamp, WorkflowId};

pub(crate) use data::{name_taken, taken};
pub(crate) use jobs::JobRows;
pub(crate) use shared::{insert_kind, insert_requirements};

/// One transaction. Whoever drops the connection after an error has undone everything.
pub(crate) fn create(
    db: &impl Db,
    workflow: &NewWorkflow<'_>,
    source: &mut dyn JobSource,
    actor: &str,
    now: Timestamp,
) -> Result<WorkflowId, Fault> {
    let id = insert(db, workflow, source, now)?;
    let jobs = super::runs::counts(db, id)?.total();
    events::note(db, actor, &created(id, workflow, jobs), now)?;
    Ok(id)
}

fn created(id: WorkflowId, workflow: &NewWorkflow<'_>, jobs: u64) -> NewEvent {
    NewEvent {
        workflow: Some(id),
        job: None,
        severity: Severity::Info,
        category: "workflow".to_owned(),
        message: format!("created `{}` with {jobs} jobs", workflow.name),
        data: Some(serde_json::json!({ "jobs": jobs, "spec_path": workflow.spec_path })),
    }
}

/// Everything but the transaction around it.
pub(crate) fn insert(
    db: &impl Db,
    workflow: &NewWorkflow<'_>,
    source: &mut dyn JobSource,
    now: Timestamp,
) -> Result<WorkflowId, Fault> {
    let first = FirstIds {
        job: next_id(db, Counter::Job)?,
        file: next_id(db, Counter::File)?,
        user_data: next_id(db, Counter::UserData)?,
    };
    let id = insert_workflow(db, workflow, now)?;
    let shared = shared::insert(db, id, workflow)?;
    source.start(first);
    let files = data::insert_files(db, id, first.file, source)?;
    let user_data = data::insert_user_data(db, id, first.user_data, source, now)?;
    let numbers = jobs::Numbers { first, files, user_data };
    let (counts, units) = jobs::insert(db, id, &shared, numbers, source)?;
    units.insert(db, id, now)?;
    let job_count = counts.total() as i64;
    insert_edges(db, id, first.job, counts.total(), workflow.edges)?;
    shared::insert_actions(db, id, workflow.actions, first.job, job_count)?;
    insert_counts(db, id, &counts)?;
    if job_count > 0 {
        db.execute(sql::INSERT_BLOCK, [id.0, first.job, job_count])?;
    }
    db.execute(sql::ADD_FILE_COUNT, [files, id.0])?;
    set_next_id(db, Counter::Job, first.job + job_count)?;
    set_next_id(db, Counter::File, first.file + files)?;
    set_next_id(db, Counter::UserData, first.user_data + user_data)?;
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

pub(crate) fn next_id(db: &impl Db, counter: Counter) -> Result<i64, Fault> {
    db.one(sql::NEXT_ID, [counter.name()], |row| row.get(0))
}

pub(crate) fn set_next_id(db: &impl Db, counter: Counter, next: i64) -> Result<(), Fault> {
    db.execute(sql::SET_NEXT_ID, values![next, counter.name()])?;
    Ok(())
}

fn insert_workflow(db: &impl Db, workflow: &NewWorkflow<'_>, now: Timestamp) -> Result<WorkflowId, Fault> {
    let uuid = uuid::Uuid::new_v4().to_string();
    let settings = workflow.settings.map_or_else(|| Ok("{}".to_owned()), column::json_text)?;
    let env = column::env_text(workflow.env);
    let id = db.one(
        sql::INSERT_WORKFLOW,
        values![
            uuid,
            workflow.name,
            workflow.user,
            workflow.description,
            now.0,
            workflow.submission_dir,
            workflow.output_dir,
            workflow.spec_path,
            workflow.spec_digest,
            env,
            column::stdio_name(workflow.stdio.mode),
            i64::from(workflow.stdio.delete_on_success),
            settings,
        ],
        |row| row.get(0),
    )?;
    Ok(WorkflowId(id))
}

fn insert_edges(
    db: &impl Db,
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
    let mut rows = db.load_into(&tables::JOB_EDGE)?;
    for &(job, waits_for) in sorted(&edges.direct).iter() {
        rows.push(&values![workflow.0, job_id(job)?, job_id(waits_for)?])?;
    }
    rows.finish()?;
    let mut rows = db.load_into(&tables::GATE_MEMBER)?;
    for (gate, members) in (0i64..).zip(&edges.gates) {
        for &member in sorted(members).iter() {
            rows.push(&values![workflow.0, gate, job_id(member)?])?;
        }
    }
    rows.finish()?;
    let mut rows = db.load_into(&tables::JOB_GATE)?;
    for &(job, gate) in sorted(&edges.waits).iter() {
        if gate as usize >= edges.gates.len() {
            return Err(Error::OutOfRange { what: format!("gate {gate} of {}", edges.gates.len()) }.into());
        }
        rows.push(&values![workflow.0, job_id(job)?, gate])?;
    }
    rows.finish()
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
fn insert_counts(db: &impl Db, workflow: WorkflowId, counts: &StatusCounts) -> Result<(), Fault> {
    for status in JobStatus::ALL {
        db.execute(sql::INSERT_COUNT, values![workflow.0, status.code(), counts.get(status) as i64])?;
    }
    Ok(())
}
