//! Reads what jobs refer to: requirements, kinds, failure handlers, schedulers, files, user data; and actions.

use super::apply::current_run;
use super::query::Query;
use super::{column, load};
use crate::error::Fault;
use crate::model::{
    ActionRow, DataFilter, FileRow, HandlerRow, JobFileRow, JobUserDataRow, KindRow, RequirementsRow,
    SchedulerRow, UserDataRow,
};
use crate::sql::common as sql;
use rusqlite::{Connection, OptionalExtension, Row};
use windlass_types::settings::FailureHandler;
use windlass_types::{FileId, JobId, KindId, RequirementsId, Timestamp, UserDataId, WorkflowId};

pub(crate) fn requirements(conn: &Connection, workflow: WorkflowId) -> Result<Vec<RequirementsRow>, Fault> {
    of_workflow(conn, sql::REQUIREMENTS, workflow, |row| {
        Ok(RequirementsRow {
            id: RequirementsId(row.get(0)?),
            name: row.get(6)?,
            resources: load::resources(row)?,
        })
    })
}

pub(crate) fn kinds(conn: &Connection, workflow: WorkflowId) -> Result<Vec<KindRow>, Fault> {
    of_workflow(conn, sql::KINDS, workflow, |row| {
        Ok(KindRow {
            id: KindId(row.get(4)?),
            name: row.get(5)?,
            env: column::env(row, 0)?,
            invocation_script: row.get(1)?,
            stdio: column::stdio(row, 2)?,
            supports_termination: row.get(6)?,
            failure_handler: row.get(7)?,
            scheduler: row.get(8)?,
            labels: column::required_json(row, 9)?,
            parameters: column::required_json(row, 10)?,
        })
    })
}

pub(crate) fn handlers(conn: &Connection, workflow: WorkflowId) -> Result<Vec<HandlerRow>, Fault> {
    of_workflow(conn, sql::HANDLERS, workflow, |row| {
        let handler = FailureHandler { name: row.get(1)?, rules: column::required_json(row, 2)? };
        Ok(HandlerRow { id: row.get(0)?, handler })
    })
}

pub(crate) fn schedulers(conn: &Connection, workflow: WorkflowId) -> Result<Vec<SchedulerRow>, Fault> {
    of_workflow(conn, sql::SCHEDULERS, workflow, |row| {
        Ok(SchedulerRow { id: row.get(0)?, scheduler: column::required_json(row, 1)? })
    })
}

pub(crate) fn actions(conn: &Connection, workflow: WorkflowId) -> Result<Vec<ActionRow>, Fault> {
    let mut actions = of_workflow(conn, sql::ACTIONS, workflow, |row| {
        Ok(ActionRow { id: row.get(0)?, action: column::required_json(row, 1)?, jobs: Vec::new() })
    })?;
    let mut statement = conn.prepare_cached(sql::ACTION_JOBS)?;
    for action in &mut actions {
        let jobs = statement.query_map([action.id], |row| row.get(0).map(JobId))?;
        action.jobs = jobs.collect::<Result<_, _>>()?;
    }
    Ok(actions)
}

pub(crate) fn files(
    conn: &Connection,
    workflow: WorkflowId,
    filter: &DataFilter,
) -> Result<Vec<FileRow>, Fault> {
    current_run(conn, workflow)?;
    files_query(conn, workflow, filter)?.run(conn, file_row)
}

pub(crate) fn file(conn: &Connection, id: FileId) -> Result<Option<FileRow>, Fault> {
    let mut query = Query::new(sql::SELECT_FILES, vec![]);
    query.push("f.id = ?", vec![Box::new(id.0)]);
    Ok(query.run(conn, file_row)?.pop())
}

/// All of them lie in one block; by name there is an index.
fn files_query(conn: &Connection, workflow: WorkflowId, filter: &DataFilter) -> Result<Query, Fault> {
    let mut query = Query::new(sql::SELECT_FILES, vec![]);
    if let Some(name) = &filter.name {
        query.push("f.workflow_id = ? AND f.name = ?", vec![Box::new(workflow.0), Box::new(name.clone())]);
    } else {
        let block = conn.prepare_cached(sql::FILE_BLOCK)?.query_row([workflow.0], pair).optional()?;
        let (first, count) = block.unwrap_or((0, 0));
        query.push("f.id >= ? AND f.id < ?", vec![Box::new(first), Box::new(first + count)]);
    }
    if let Some(job) = filter.job {
        query.push(" AND f.id IN (SELECT file_id FROM job_file WHERE job_id = ?)", vec![Box::new(job.0)]);
    }
    query.push(" ORDER BY f.id", vec![]);
    query.push_page(filter.offset, filter.limit);
    Ok(query)
}

pub(crate) fn user_data(
    conn: &Connection,
    workflow: WorkflowId,
    filter: &DataFilter,
) -> Result<Vec<UserDataRow>, Fault> {
    current_run(conn, workflow)?;
    let mut query = Query::new(sql::SELECT_USER_DATA, vec![]);
    query.push("u.workflow_id = ?", vec![Box::new(workflow.0)]);
    if let Some(name) = &filter.name {
        query.push(" AND u.name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(job) = filter.job {
        let of_job = " AND u.id IN (SELECT user_data_id FROM job_user_data WHERE job_id = ?)";
        query.push(of_job, vec![Box::new(job.0)]);
    }
    query.push(" ORDER BY u.id", vec![]);
    query.push_page(filter.offset, filter.limit);
    query.run(conn, user_data_row)
}

pub(crate) fn user_data_piece(conn: &Connection, id: UserDataId) -> Result<Option<UserDataRow>, Fault> {
    let mut query = Query::new(sql::SELECT_USER_DATA, vec![]);
    query.push("u.id = ?", vec![Box::new(id.0)]);
    Ok(query.run(conn, user_data_row)?.pop())
}

pub(crate) fn job_files(conn: &Connection, workflow: WorkflowId) -> Result<Vec<JobFileRow>, Fault> {
    of_workflow(conn, sql::JOB_FILES, workflow, |row| {
        Ok(JobFileRow {
            job_id: JobId(row.get(0)?),
            is_output: column::flag(row, 1)?,
            file_id: FileId(row.get(2)?),
        })
    })
}

pub(crate) fn job_user_data(conn: &Connection, workflow: WorkflowId) -> Result<Vec<JobUserDataRow>, Fault> {
    of_workflow(conn, sql::JOB_USER_DATA, workflow, |row| {
        Ok(JobUserDataRow {
            job_id: JobId(row.get(0)?),
            is_output: column::flag(row, 1)?,
            user_data_id: UserDataId(row.get(2)?),
        })
    })
}

/// All rows of a statement whose one parameter is the workflow, which must be there.
fn of_workflow<T>(
    conn: &Connection,
    sql: &str,
    workflow: WorkflowId,
    row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Fault> {
    current_run(conn, workflow)?;
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map([workflow.0], row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn pair(row: &Row<'_>) -> rusqlite::Result<(i64, i64)> {
    Ok((row.get(0)?, row.get(1)?))
}

fn file_row(row: &Row<'_>) -> rusqlite::Result<FileRow> {
    Ok(FileRow {
        id: FileId(row.get(0)?),
        workflow_id: WorkflowId(row.get(1)?),
        name: row.get(2)?,
        path: row.get(3)?,
        identifier: row.get(4)?,
        mtime_ns: row.get(5)?,
        size: column::size(row, 6)?,
    })
}

fn user_data_row(row: &Row<'_>) -> rusqlite::Result<UserDataRow> {
    Ok(UserDataRow {
        id: UserDataId(row.get(0)?),
        workflow_id: WorkflowId(row.get(1)?),
        name: row.get(2)?,
        data: column::json(row, 3)?,
        is_ephemeral: column::flag(row, 4)?,
        changed_at: Timestamp(row.get(5)?),
    })
}
