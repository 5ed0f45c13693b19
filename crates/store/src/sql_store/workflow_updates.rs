//! Changes of workflows by users: rename, archive, change data and requirements, delete.

use super::apply_changes::{current_run, to_micros, to_sql_bytes};
use super::create::{IdCounter, duplicate_in_workflow, insert_requirements, next_id, set_next_id};
use super::edit::refuse_held_jobs;
use super::job_loading::JobIdBlocks;
use super::{allocations, column_decoding, events, queries, workers, workflow_parts};
use crate::StoreError;
use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::model::{
    EventSeverity, NewEvent, RequirementsChange, RequirementsUsers, UserDataRow, WorkerKind, WorkflowRow,
    WorkflowUpdate,
};
use crate::sql::common as sql;
use serde_json::{Value, json};
use windlass_types::{JobId, RequirementsId, Resources, Timestamp, UserDataId, WorkflowId};

/// Author and time of a change, for its event.
#[derive(Clone, Copy)]
pub(crate) struct AuditContext<'a> {
    pub(crate) actor: &'a str,
    pub(crate) now: Timestamp,
}

impl AuditContext<'_> {
    pub(crate) fn record_event(
        self,
        db: &impl SqlConnection,
        workflow: WorkflowId,
        category: &str,
        message: String,
        data: Value,
    ) -> Result<(), SqlError> {
        let event = NewEvent {
            workflow: Some(workflow),
            job: None,
            severity: EventSeverity::Info,
            category: category.to_owned(),
            message,
            data: Some(data),
        };
        events::insert_event(db, self.actor, &event, self.now)?;
        Ok(())
    }
}

pub(crate) fn update_workflow(
    db: &impl SqlConnection,
    id: WorkflowId,
    update: &WorkflowUpdate,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let row = queries::find_workflow(db, id)?.ok_or(StoreError::NoSuchWorkflow(id))?;
    let WorkflowRow { name, user, description, mut settings, .. } = row;
    let mut changed = Vec::new();
    let mut note = |field: &'static str, is_given: bool| changed.extend(is_given.then_some(field));
    note("name", update.name.is_some());
    note("user", update.user.is_some());
    note("description", update.description.is_some());
    note("project", update.project.is_some());
    note("metadata", update.metadata.is_some());
    if let Some(project) = &update.project {
        settings.project.clone_from(project);
    }
    if let Some(metadata) = &update.metadata {
        settings.metadata.clone_from(metadata);
    }
    let name = update.name.as_ref().unwrap_or(&name);
    let user = update.user.as_ref().unwrap_or(&user);
    let description = update.description.as_ref().unwrap_or(&description);
    let settings = column_decoding::render_json(&settings)?;
    let values = values![name, user, description, settings, id.0];
    db.execute(sql::UPDATE_WORKFLOW, values)?;
    let message =
        format!("changed {}", if changed.is_empty() { "nothing".into() } else { changed.join(", ") });
    by.record_event(db, id, "workflow", message, json!({ "fields": changed }))
}

pub(crate) fn set_archived(
    db: &impl SqlConnection,
    ids: &[WorkflowId],
    is_archived: bool,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    for &id in ids {
        let touched = db.execute(sql::ARCHIVE, [i64::from(is_archived), id.0])?;
        if touched == 0 {
            return Err(StoreError::NoSuchWorkflow(id).into());
        }
        let message = if is_archived { "archived" } else { "removed from the archive" };
        by.record_event(db, id, "workflow", message.to_owned(), json!({ "is_archived": is_archived }))?;
    }
    Ok(())
}

/// Returns the ids of the changed sets, in the order given.
pub(crate) fn change_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    changes: &[RequirementsChange],
    by: AuditContext<'_>,
) -> Result<Vec<RequirementsId>, SqlError> {
    current_run(db, workflow)?;
    refuse_held_jobs(db, workflow)?;
    let mut ids = Vec::with_capacity(changes.len());
    for change in changes {
        let id = upsert_requirements(db, workflow, change)?;
        let jobs = use_requirements(db, workflow, id, &change.used_by)?;
        let message = match change.used_by {
            RequirementsUsers::AsBefore => format!("changed resource requirements `{}`", change.name),
            RequirementsUsers::Kind(_) | RequirementsUsers::Jobs(_) => {
                format!("changed resource requirements `{}`, used by {jobs} more jobs", change.name)
            }
        };
        let data = json!({ "name": change.name, "resources": change.resources, "jobs": jobs });
        by.record_event(db, workflow, "requirements", message, data)?;
        ids.push(RequirementsId(id));
    }
    Ok(ids)
}

/// Returns how many jobs were changed.
pub(crate) fn change_priorities(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    changes: &[(i32, i32)],
    by: AuditContext<'_>,
) -> Result<usize, SqlError> {
    current_run(db, workflow)?;
    let mut all = 0;
    for &(from, to) in changes {
        let mut jobs = 0;
        for block in JobIdBlocks::load(db, workflow)?.iter() {
            jobs += db.execute(sql::CHANGE_PRIORITY, [to.into(), block.first, block.end(), from.into()])?;
        }
        let message = format!("changed the priority of {jobs} jobs from {from} to {to}");
        by.record_event(db, workflow, "priority", message, json!({ "from": from, "to": to, "jobs": jobs }))?;
        all += jobs;
    }
    Ok(all)
}

fn upsert_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    change: &RequirementsChange,
) -> Result<i64, SqlError> {
    let RequirementsChange { name, resources, .. } = change;
    let found: Option<i64> =
        db.query_optional(sql::REQUIREMENTS_NAMED, values![workflow.0, name], |row| row.get(0))?;
    let Some(id) = found else { return insert_requirements(db, workflow, name, resources) };
    write_requirements(db, id, resources)?;
    Ok(id)
}

pub(crate) fn write_requirements(
    db: &impl SqlConnection,
    id: i64,
    resources: &Resources,
) -> Result<(), SqlError> {
    db.execute(
        sql::UPDATE_REQUIREMENTS,
        values![
            resources.cpus,
            to_sql_bytes(resources.memory),
            resources.gpus,
            resources.nodes,
            resources.runtime.map(to_micros),
            id,
        ],
    )?;
    Ok(())
}

/// Returns how many jobs were assigned to it.
fn use_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: i64,
    used_by: &RequirementsUsers,
) -> Result<usize, SqlError> {
    match used_by {
        RequirementsUsers::AsBefore => Ok(0),
        RequirementsUsers::Kind(job_group) => {
            let mut touched = 0;
            for block in JobIdBlocks::load(db, workflow)?.iter() {
                touched +=
                    db.execute(sql::USE_REQUIREMENTS_IN_GROUP, [id, block.first, block.end(), job_group.0])?;
            }
            Ok(touched)
        }
        RequirementsUsers::Jobs(jobs) => {
            for &JobId(job) in jobs {
                if db.execute(sql::USE_REQUIREMENTS, [id, job, workflow.0])? == 0 {
                    return Err(StoreError::NoSuchJob(JobId(job)).into());
                }
            }
            Ok(jobs.len())
        }
    }
}

pub(crate) fn add_user_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    name: &str,
    data: Option<&Value>,
    is_ephemeral: bool,
    by: AuditContext<'_>,
) -> Result<UserDataId, SqlError> {
    current_run(db, workflow)?;
    let id = next_id(db, IdCounter::UserData)?;
    let text = data.map(column_decoding::render_json).transpose()?;
    let values = values![id, workflow.0, name, text, i64::from(is_ephemeral), by.now.0];
    let inserted = db.execute(sql::INSERT_USER_DATA, values);
    inserted.map_err(|error| duplicate_in_workflow(error, "user data entries", name))?;
    set_next_id(db, IdCounter::UserData, id + 1)?;
    by.record_event(
        db,
        workflow,
        "user_data",
        format!("added user data `{name}`"),
        json!({ "user_data_id": id }),
    )?;
    Ok(UserDataId(id))
}

/// The event records the old value.
pub(crate) fn set_user_data(
    db: &impl SqlConnection,
    id: UserDataId,
    data: Option<&Value>,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let UserDataRow { workflow_id, name, data: old, .. } =
        workflow_parts::find_user_data(db, id)?.ok_or(StoreError::NoSuchUserData(id))?;
    if old.as_ref() == data {
        return Ok(());
    }
    let text = data.map(column_decoding::render_json).transpose()?;
    db.execute(sql::SET_USER_DATA, values![text, by.now.0, id.0])?;
    let told = json!({ "user_data_id": id, "name": name, "old": old, "new": data });
    by.record_event(db, workflow_id, "user_data", format!("set user data `{name}`"), told)
}

pub(crate) fn delete_user_data(
    db: &impl SqlConnection,
    id: UserDataId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let row = workflow_parts::find_user_data(db, id)?.ok_or(StoreError::NoSuchUserData(id))?;
    for block in JobIdBlocks::load(db, row.workflow_id)?.iter() {
        db.execute(sql::DELETE_USER_DATA_RELATIONS, [block.first, block.end(), id.0])?;
    }
    db.execute(sql::DELETE_USER_DATA, [id.0])?;
    let told = json!({ "user_data_id": id, "name": row.name, "old": row.data });
    by.record_event(db, row.workflow_id, "user_data", format!("deleted user data `{}`", row.name), told)
}

/// Number of jobs deleted with their relations by one statement.
pub(crate) const JOBS_PER_DELETE: usize = 10_000;

/// One transaction, on a connection without foreign key checks: everything that refers to a deleted row is
/// deleted too.
pub(crate) fn delete_workflow(
    db: &impl SqlConnection,
    id: WorkflowId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let row = queries::find_workflow(db, id)?.ok_or(StoreError::NoSuchWorkflow(id))?;
    refuse_held_jobs(db, id)?;
    // Only local workers can be verified to be dead; jobs held by others were checked above.
    let workers = workers::active_workers(db, Some(id))?;
    let workers = workers.iter().filter(|row| row.worker.kind == WorkerKind::Local).count();
    if workers > 0 {
        return Err(StoreError::WorkersMayBeAlive { workflow: id, workers }.into());
    }
    allocations::refuse_open_allocations(db, id, &format!("workflow {id}"))?;
    for block in JobIdBlocks::load(db, id)?.iter() {
        for first in (block.first..block.end()).step_by(JOBS_PER_DELETE) {
            let end = block.end().min(first + JOBS_PER_DELETE as i64);
            for sql in sql::DELETE_JOBS {
                db.execute(sql, [first, end])?;
            }
        }
    }
    for sql in sql::DELETE_OF_WORKFLOW {
        db.execute(sql, [id.0])?;
    }
    let jobs = row.counts.total();
    let event = NewEvent {
        workflow: None,
        job: None,
        severity: EventSeverity::Info,
        category: "workflow".to_owned(),
        message: format!("deleted workflow {id} (`{}`) with {jobs} jobs", row.name),
        data: Some(json!({ "workflow_id": id, "name": row.name, "uuid": row.uuid, "jobs": jobs })),
    };
    events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}
