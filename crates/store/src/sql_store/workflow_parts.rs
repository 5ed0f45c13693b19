//! Reads shared parts of workflows: requirements, job groups, failure handlers, schedulers, files, user data;
//! and actions.

use super::apply_changes::current_run;
use super::query_builder::SqlQuery;
use super::torc_lists::read_action_run_row;
use super::{column_decoding, job_loading};
use crate::StoreError;
use crate::db::{SqlConnection, SqlRow};
use crate::error::SqlError;
use crate::model::{
    ActionRow, DataFilter, FailureHandlerRow, JobFileRow, JobGroupRow, JobRelations, JobUserDataRow,
    RequirementsRow, SlurmSchedulerRow, UserDataRow, WorkflowFileRow,
};
use crate::sql::common as sql;
use crate::sql::workers_and_parts::{RUNS_OF_ACTION, SELECT_COUNT_OF_FILES, SELECT_COUNT_OF_USER_DATA};
use windlass_types::settings::FailureHandler;
use windlass_types::{
    FileId, JobGroup, JobGroupId, JobId, JobSettings, RequirementsId, Timestamp, UserDataId, WorkflowId,
};

pub(crate) fn list_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<RequirementsRow>, SqlError> {
    list_of_workflow(db, sql::REQUIREMENTS, workflow, |row| {
        Ok(RequirementsRow {
            id: RequirementsId(row.get(0)?),
            name: row.get(6)?,
            resources: job_loading::read_resources(row)?,
        })
    })
}

/// Returns one of them, and its workflow.
pub(crate) fn find_requirements(
    db: &impl SqlConnection,
    id: RequirementsId,
) -> Result<Option<(WorkflowId, RequirementsRow)>, SqlError> {
    db.query_optional(sql::REQUIREMENTS_OF, [id.0], |row| {
        let found = RequirementsRow { id, name: row.get(6)?, resources: job_loading::read_resources(row)? };
        Ok((WorkflowId(row.get(7)?), found))
    })
}

pub(crate) fn list_job_groups(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<JobGroupRow>, SqlError> {
    list_of_workflow(db, sql::JOB_GROUPS, workflow, |row| {
        Ok(JobGroupRow {
            id: JobGroupId(row.get(4)?),
            group: JobGroup {
                name: row.get(5)?,
                env: column_decoding::read_env(row, 0)?,
                invocation_script: row.get(1)?,
                settings: JobSettings {
                    stdio: column_decoding::read_stdio(row, 2)?,
                    supports_termination: row.get(6)?,
                    failure_handler: row.get(7)?,
                    scheduler: row.get(8)?,
                    labels: column_decoding::read_required_json(row, 9)?,
                    sites: column_decoding::read_json(row, 11)?.unwrap_or_default(),
                    limit: row.get(12)?,
                },
                parameters: column_decoding::read_required_json(row, 10)?,
                elects_site: column_decoding::read_flag(row, 13)?,
            },
        })
    })
}

pub(crate) fn list_handlers(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<FailureHandlerRow>, SqlError> {
    list_of_workflow(db, sql::HANDLERS, workflow, |row| {
        let handler =
            FailureHandler { name: row.get(1)?, rules: column_decoding::read_required_json(row, 2)? };
        Ok(FailureHandlerRow { id: row.get(0)?, handler })
    })
}

pub(crate) fn list_schedulers(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<SlurmSchedulerRow>, SqlError> {
    list_of_workflow(db, sql::SCHEDULERS, workflow, |row| {
        Ok(SlurmSchedulerRow { id: row.get(0)?, scheduler: column_decoding::read_required_json(row, 1)? })
    })
}

pub(crate) fn list_actions(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<ActionRow>, SqlError> {
    let mut actions = list_of_workflow(db, sql::ACTIONS, workflow, |row| {
        Ok(ActionRow {
            id: row.get(0)?,
            action: column_decoding::read_required_json(row, 1)?,
            jobs: Vec::new(),
            trigger_count: row.get(2)?,
            armed_after: row.get(3)?,
            is_recovery: column_decoding::read_flag(row, 4)?,
            runs: Vec::new(),
        })
    })?;
    for action in &mut actions {
        action.runs = db.query_all(RUNS_OF_ACTION, [action.id], read_action_run_row)?;
        action.jobs = db.query_all(sql::ACTION_JOBS, [action.id], |row| row.get(0).map(JobId))?;
    }
    Ok(actions)
}

pub(crate) fn list_files(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: &DataFilter,
) -> Result<Vec<WorkflowFileRow>, SqlError> {
    current_run(db, workflow)?;
    let mut query = SqlQuery::new(sql::SELECT_FILES, vec![]);
    push_file_conditions(&mut query, workflow, filter);
    query.push_order(filter.sort.as_ref(), SORTABLE_FILES, "f.id")?;
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, read_file_row)
}

pub(crate) fn count_files(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: &DataFilter,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    let mut query = SqlQuery::new(SELECT_COUNT_OF_FILES, vec![]);
    push_file_conditions(&mut query, workflow, filter);
    query.read_count(db)
}

const SORTABLE_FILES: &[(&str, &str)] = &[
    ("id", "f.id"),
    ("workflow_id", "f.workflow_id"),
    ("name", "f.name"),
    ("path", "f.path"),
    ("st_mtime", "f.mtime_ns"),
];

pub(crate) fn find_file(db: &impl SqlConnection, id: FileId) -> Result<Option<WorkflowFileRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_FILES, vec![]);
    query.push("f.id = ?", vec![Box::new(id.0)]);
    Ok(query.read_rows(db, read_file_row)?.pop())
}

fn push_file_conditions(query: &mut SqlQuery, workflow: WorkflowId, filter: &DataFilter) {
    query.push("f.workflow_id = ?", vec![Box::new(workflow.0)]);
    if let Some(name) = &filter.name {
        query.push(" AND f.name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(part) = &filter.name_contains {
        query.push_contains(" AND ", "f.name", part);
    }
    if let Some(part) = &filter.path_contains {
        query.push_contains(" AND ", "f.path", part);
    }
    for (job, condition) in [
        (filter.job, " AND f.id IN (SELECT file_id FROM job_file WHERE job_id = ?)"),
        (filter.producer, " AND f.id IN (SELECT file_id FROM job_file WHERE job_id = ? AND is_output = 1)"),
        (filter.consumer, " AND f.id IN (SELECT file_id FROM job_file WHERE job_id = ? AND is_output = 0)"),
    ] {
        if let Some(job) = job {
            query.push(condition, vec![Box::new(job.0)]);
        }
    }
    if let Some(is_output) = filter.is_output {
        let not = if is_output { "" } else { "NOT " };
        let written = format!(
            " AND f.id {not}IN (SELECT r.file_id FROM job_block b CROSS JOIN job_file r WHERE b.workflow_id = ? \
             AND r.job_id >= b.first_job_id AND r.job_id < b.first_job_id + b.job_count AND r.is_output = 1)"
        );
        query.push(&written, vec![Box::new(workflow.0)]);
    }
}

pub(crate) fn list_user_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: &DataFilter,
) -> Result<Vec<UserDataRow>, SqlError> {
    current_run(db, workflow)?;
    let mut query = SqlQuery::new(sql::SELECT_USER_DATA, vec![]);
    push_user_data_conditions(&mut query, workflow, filter);
    query.push_order(filter.sort.as_ref(), SORTABLE_USER_DATA, "u.id")?;
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, read_user_data_row)
}

pub(crate) fn count_user_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: &DataFilter,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    let mut query = SqlQuery::new(SELECT_COUNT_OF_USER_DATA, vec![]);
    push_user_data_conditions(&mut query, workflow, filter);
    query.read_count(db)
}

const SORTABLE_USER_DATA: &[(&str, &str)] = &[
    ("id", "u.id"),
    ("workflow_id", "u.workflow_id"),
    ("name", "u.name"),
    ("data", "u.data"),
    ("is_ephemeral", "u.is_ephemeral"),
];

fn push_user_data_conditions(query: &mut SqlQuery, workflow: WorkflowId, filter: &DataFilter) {
    query.push("u.workflow_id = ?", vec![Box::new(workflow.0)]);
    if let Some(name) = &filter.name {
        query.push(" AND u.name = ?", vec![Box::new(name.clone())]);
    }
    if let Some(part) = &filter.name_contains {
        query.push_contains(" AND ", "u.name", part);
    }
    if let Some(is_ephemeral) = filter.is_ephemeral {
        query.push(" AND u.is_ephemeral = ?", vec![Box::new(i64::from(is_ephemeral))]);
    }
    for (job, rest) in [
        (filter.job, ")"),
        (filter.producer, " AND is_output = 1)"),
        (filter.consumer, " AND is_output = 0)"),
    ] {
        if let Some(job) = job {
            query.push(
                &format!(" AND u.id IN (SELECT user_data_id FROM job_user_data WHERE job_id = ?{rest}"),
                vec![Box::new(job.0)],
            );
        }
    }
}

pub(crate) fn find_user_data(
    db: &impl SqlConnection,
    id: UserDataId,
) -> Result<Option<UserDataRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_USER_DATA, vec![]);
    query.push("u.id = ?", vec![Box::new(id.0)]);
    Ok(query.read_rows(db, read_user_data_row)?.pop())
}

pub(crate) fn list_job_files(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<JobFileRow>, SqlError> {
    list_of_workflow(db, sql::JOB_FILES, workflow, |row| {
        Ok(JobFileRow {
            job_id: JobId(row.get(0)?),
            is_output: column_decoding::read_flag(row, 1)?,
            file_id: FileId(row.get(2)?),
        })
    })
}

pub(crate) fn load_job_relations(db: &impl SqlConnection, job: JobId) -> Result<JobRelations, SqlError> {
    let workflow: Option<i64> = db.query_optional(sql::WORKFLOW_OF_JOB, [job.0], |row| row.get(0))?;
    let workflow = workflow.ok_or(StoreError::NoSuchJob(job))?;
    let waits_for = db.query_all(sql::EDGES_OF_JOB, [workflow, job.0], |row| row.get(0).map(JobId))?;
    let mut relations = JobRelations { waits_for, ..Default::default() };
    db.query_each(sql::FILES_OF_JOB, [job.0], |row| {
        let JobRelations { input_files, output_files, .. } = &mut relations;
        let list = if column_decoding::read_flag(row, 1)? { output_files } else { input_files };
        list.push(FileId(row.get(0)?));
        Ok(())
    })?;
    db.query_each(sql::USER_DATA_OF_JOB, [job.0], |row| {
        let JobRelations { input_user_data, output_user_data, .. } = &mut relations;
        let list = if column_decoding::read_flag(row, 1)? { output_user_data } else { input_user_data };
        list.push(UserDataId(row.get(0)?));
        Ok(())
    })?;
    Ok(relations)
}

pub(crate) fn list_job_user_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<JobUserDataRow>, SqlError> {
    list_of_workflow(db, sql::JOB_USER_DATA, workflow, |row| {
        Ok(JobUserDataRow {
            job_id: JobId(row.get(0)?),
            is_output: column_decoding::read_flag(row, 1)?,
            user_data_id: UserDataId(row.get(2)?),
        })
    })
}

/// Returns all rows of a statement whose only parameter is the workflow, which must exist.
fn list_of_workflow<T>(
    db: &impl SqlConnection,
    sql: &str,
    workflow: WorkflowId,
    row: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
) -> Result<Vec<T>, SqlError> {
    current_run(db, workflow)?;
    db.query_all(sql, [workflow.0], row)
}

fn read_file_row(row: &SqlRow<'_>) -> Result<WorkflowFileRow, SqlError> {
    Ok(WorkflowFileRow {
        id: FileId(row.get(0)?),
        workflow_id: WorkflowId(row.get(1)?),
        name: row.get(2)?,
        path: row.get(3)?,
        identifier: row.get(4)?,
        mtime_ns: row.get(5)?,
        size: column_decoding::read_size(row, 6)?,
    })
}

fn read_user_data_row(row: &SqlRow<'_>) -> Result<UserDataRow, SqlError> {
    Ok(UserDataRow {
        id: UserDataId(row.get(0)?),
        workflow_id: WorkflowId(row.get(1)?),
        name: row.get(2)?,
        data: column_decoding::read_json(row, 3)?,
        is_ephemeral: column_decoding::read_flag(row, 4)?,
        changed_at: Timestamp(row.get(5)?),
    })
}
