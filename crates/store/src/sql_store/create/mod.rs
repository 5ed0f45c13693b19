//! Creates a workflow with all its jobs in one transaction, streaming them from the caller.
//!
//! On a connection of its own: the caller's jobs are borrowed and may take long to produce, and the writer
//! continues when this is done. Memory is limited to the page cache, however many jobs there are.

mod data;
mod jobs;
mod shared;

use super::{column_decoding, events};
use crate::StoreError;
use crate::db::{BulkLoader as _, SqlConnection, values};
use crate::error::SqlError;
use crate::model::{EventSeverity, FirstIds, JobSource, NewEvent, NewWorkflow};
use crate::sql::{common as sql, tables};
use std::borrow::Cow;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_types::{JobStatus, StatusCounts, Timestamp, WorkflowId};

pub(crate) use data::{duplicate_in_workflow, duplicate_name};
pub(crate) use jobs::{JobRowWriter, NewJobRow};
pub(crate) use shared::{insert_job_group, insert_requirements};

/// One transaction. After an error, dropping the connection rolls it back.
pub(crate) fn create_workflow(
    db: &impl SqlConnection,
    workflow: &NewWorkflow<'_>,
    source: &mut dyn JobSource,
    actor: &str,
    now: Timestamp,
) -> Result<WorkflowId, SqlError> {
    let id = insert_all(db, workflow, source, now)?;
    let jobs = super::runs::load_status_counts(db, id)?.total();
    events::insert_event(db, actor, &created_event(id, workflow, jobs), now)?;
    Ok(id)
}

fn created_event(id: WorkflowId, workflow: &NewWorkflow<'_>, jobs: u64) -> NewEvent {
    NewEvent {
        workflow: Some(id),
        job: None,
        severity: EventSeverity::Info,
        category: "workflow".to_owned(),
        message: format!("created `{}` with {jobs} jobs", workflow.name),
        data: Some(serde_json::json!({ "jobs": jobs, "spec_path": workflow.spec_path })),
    }
}

/// Everything except the transaction.
pub(crate) fn insert_all(
    db: &impl SqlConnection,
    workflow: &NewWorkflow<'_>,
    source: &mut dyn JobSource,
    now: Timestamp,
) -> Result<WorkflowId, SqlError> {
    let first = FirstIds {
        job: next_id(db, IdCounter::Job)?,
        file: next_id(db, IdCounter::File)?,
        user_data: next_id(db, IdCounter::UserData)?,
    };
    let id = insert_workflow(db, workflow, now)?;
    let shared = shared::insert_shared(db, id, workflow)?;
    source.set_first_ids(first);
    let files = data::insert_files(db, id, first.file, source)?;
    let user_data = data::insert_user_data(db, id, first.user_data, source, now)?;
    let numbers = jobs::DataNumbering { first, files, user_data };
    let (counts, units) = jobs::insert_jobs(db, id, &shared, numbers, source)?;
    units.insert_units(db, id, now)?;
    let job_count = counts.total() as i64;
    insert_edges(db, id, first.job, counts.total(), workflow.edges)?;
    shared::insert_actions(db, id, workflow.actions, first.job, job_count)?;
    insert_status_counts(db, id, &counts)?;
    if job_count > 0 {
        db.execute(sql::INSERT_JOB_BLOCK, [id.0, first.job, job_count])?;
    }
    db.execute(sql::ADD_FILE_COUNT, [files, id.0])?;
    set_next_id(db, IdCounter::Job, first.job + job_count)?;
    set_next_id(db, IdCounter::File, first.file + files)?;
    set_next_id(db, IdCounter::UserData, first.user_data + user_data)?;
    Ok(id)
}

/// Assigns the globally unique ids.
#[derive(Clone, Copy)]
pub(crate) enum IdCounter {
    Job,
    File,
    UserData,
}

impl IdCounter {
    const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::File => "file",
            Self::UserData => "user_data",
        }
    }
}

pub(crate) fn next_id(db: &impl SqlConnection, counter: IdCounter) -> Result<i64, SqlError> {
    db.query_one(sql::NEXT_ID, [counter.name()], |row| row.get(0))
}

pub(crate) fn set_next_id(db: &impl SqlConnection, counter: IdCounter, next: i64) -> Result<(), SqlError> {
    db.execute(sql::SET_NEXT_ID, values![next, counter.name()])?;
    Ok(())
}

fn insert_workflow(
    db: &impl SqlConnection,
    workflow: &NewWorkflow<'_>,
    now: Timestamp,
) -> Result<WorkflowId, SqlError> {
    let uuid = uuid::Uuid::new_v4().to_string();
    let settings = workflow.settings.map_or_else(|| Ok("{}".to_owned()), column_decoding::render_json)?;
    let env = column_decoding::render_env(workflow.env);
    let id = db.query_one(
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
            column_decoding::stdio_name(workflow.stdio.mode),
            i64::from(workflow.stdio.delete_on_success),
            settings,
        ],
        |row| row.get(0),
    )?;
    Ok(WorkflowId(id))
}

fn insert_edges(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    first_job: i64,
    job_count: u64,
    edges: &DependencyEdges,
) -> Result<(), SqlError> {
    let job_id = |index: u32| {
        if u64::from(index) < job_count {
            Ok(first_job + i64::from(index))
        } else {
            Err(StoreError::OutOfRange { what: format!("dependency on job index {index} of {job_count}") })
        }
    };
    let mut rows = db.open_loader(&tables::JOB_EDGE)?;
    for &(job, waits_for) in sorted_copy(&edges.direct).iter() {
        rows.push(&values![workflow.0, job_id(job)?, job_id(waits_for)?])?;
    }
    rows.finish()?;
    let mut rows = db.open_loader(&tables::DEPENDENCY_GROUP_MEMBER)?;
    for (group, members) in (0i64..).zip(&edges.groups) {
        for &member in sorted_copy(members).iter() {
            rows.push(&values![workflow.0, group, job_id(member)?])?;
        }
    }
    rows.finish()?;
    let mut rows = db.open_loader(&tables::JOB_DEPENDENCY_GROUP)?;
    for &(job, group) in sorted_copy(&edges.waits).iter() {
        if group as usize >= edges.groups.len() {
            return Err(StoreError::OutOfRange {
                what: format!("dependency group {group} of {}", edges.groups.len()),
            }
            .into());
        }
        rows.push(&values![workflow.0, job_id(job)?, group])?;
    }
    rows.finish()
}

/// Rows that arrive in key order are appended. They usually are sorted already.
pub(crate) fn sorted_copy<T: Ord + Clone>(list: &[T]) -> Cow<'_, [T]> {
    if list.is_sorted() {
        return Cow::Borrowed(list);
    }
    let mut list = list.to_vec();
    list.sort_unstable();
    Cow::Owned(list)
}

/// All eleven, so that later changes only update existing rows.
fn insert_status_counts(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    counts: &StatusCounts,
) -> Result<(), SqlError> {
    for status in JobStatus::ALL {
        db.execute(sql::INSERT_COUNT, values![workflow.0, status.code(), counts.get(status) as i64])?;
    }
    Ok(())
}
