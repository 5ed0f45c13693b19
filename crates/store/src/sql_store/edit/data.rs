//! Adds, changes and deletes files and requirements; deletes results and events.

use super::{jobs, record_field_change, refuse_held_jobs, render_changes};
use crate::StoreError;
use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::model::{FieldChange, FileUpdate, RequirementsRow, RequirementsUpdate, WorkflowFileRow};
use crate::sql::common as sql;
use crate::sql_store::apply_changes::current_run;
use crate::sql_store::create::{IdCounter, duplicate_in_workflow, insert_requirements, next_id, set_next_id};
use crate::sql_store::workflow_parts;
use crate::sql_store::workflow_updates::{AuditContext, write_requirements};
use serde_json::json;
use windlass_types::{EventId, FileId, RequirementsId, Resources, ResultId, Timestamp, WorkflowId};

const FILES_CATEGORY: &str = "files";
const REQUIREMENTS_CATEGORY: &str = "resource requirements";

pub(crate) fn add_file(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    name: &str,
    path: &str,
    by: AuditContext<'_>,
) -> Result<FileId, SqlError> {
    current_run(db, workflow)?;
    let id = next_id(db, IdCounter::File)?;
    let values = values![id, workflow.0, name, path, None::<&str>, None::<i64>];
    let inserted = db.execute(sql::INSERT_FILE, values);
    inserted.map_err(|error| duplicate_in_workflow(error, FILES_CATEGORY, name))?;
    set_next_id(db, IdCounter::File, id + 1)?;
    db.execute(sql::ADD_FILE_COUNT, [1, workflow.0])?;
    let told = json!({ "file_id": id, "name": name, "path": path });
    by.record_event(db, workflow, "files", format!("added file `{name}` ({path})"), told)?;
    Ok(FileId(id))
}

/// The recorded state of the file at the old path is invalid for the new path.
pub(crate) fn update_file(
    db: &impl SqlConnection,
    id: FileId,
    update: &FileUpdate,
    by: AuditContext<'_>,
) -> Result<Vec<FieldChange>, SqlError> {
    let old = workflow_parts::find_file(db, id)?.ok_or(StoreError::NoSuchFile(id))?;
    refuse_held_jobs(db, old.workflow_id)?;
    let name = update.name.as_ref().unwrap_or(&old.name);
    let path = update.path.as_ref().unwrap_or(&old.path);
    let mut changes = Vec::new();
    record_field_change(&mut changes, "name", &old.name, name);
    record_field_change(&mut changes, "path", &old.path, path);
    record_field_change(&mut changes, "mtime_ns", &old.mtime_ns, &update.mtime_ns.or(old.mtime_ns));
    if changes.is_empty() {
        return Ok(changes);
    }
    let seen = (old.path == *path)
        .then_some((old.mtime_ns, old.size.map(crate::sql_store::apply_changes::to_sql_bytes)));
    let (mtime, size) = seen.unwrap_or_default();
    let mtime = update.mtime_ns.or(mtime);
    let written = db.execute(sql::UPDATE_FILE, values![name, path, mtime, size, id.0]);
    written.map_err(|error| duplicate_in_workflow(error, FILES_CATEGORY, name))?;
    let message = format!("changed file `{}`: {}", old.name, render_changes(&changes));
    by.record_event(db, old.workflow_id, "files", message, json!({ "file_id": id, "changes": changes }))?;
    Ok(changes)
}

pub(crate) fn delete_file(db: &impl SqlConnection, id: FileId, by: AuditContext<'_>) -> Result<(), SqlError> {
    let WorkflowFileRow { workflow_id: workflow, name, path, .. } =
        workflow_parts::find_file(db, id)?.ok_or(StoreError::NoSuchFile(id))?;
    let user = db.query_optional(sql::USER_OF_FILE, [workflow.0, id.0], |row| {
        Ok((row.get::<i64>(0)?, row.get::<String>(1)?))
    })?;
    if let Some((job, job_name)) = user {
        let what = format!("file {id} (`{name}`)");
        return Err(
            StoreError::InUse { what, by: format!("job {job} (`{job_name}`) reads or writes it") }.into()
        );
    }
    db.execute(sql::DELETE_FILE, [id.0])?;
    db.execute(sql::ADD_FILE_COUNT, [-1, workflow.0])?;
    let told = json!({ "file_id": id, "name": name, "path": path });
    by.record_event(db, workflow, "files", format!("deleted file `{name}` from the workflow"), told)
}

pub(crate) fn add_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    name: &str,
    resources: &Resources,
    by: AuditContext<'_>,
) -> Result<RequirementsId, SqlError> {
    check_resources(resources)?;
    current_run(db, workflow)?;
    let id = insert_requirements(db, workflow, name, resources)
        .map_err(|fault| duplicate_in_workflow(fault, REQUIREMENTS_CATEGORY, name))?;
    let told = json!({ "name": name, "resources": resources });
    by.record_event(db, workflow, "requirements", format!("added resource requirements `{name}`"), told)?;
    Ok(RequirementsId(id))
}

/// Clients may send anything, and jobs that no machine can run would wait forever.
fn check_resources(resources: &Resources) -> Result<(), StoreError> {
    resources.check().map_err(|error| StoreError::OutOfRange { what: error.to_string() })
}

pub(crate) fn update_requirements(
    db: &impl SqlConnection,
    id: RequirementsId,
    update: &RequirementsUpdate,
    by: AuditContext<'_>,
) -> Result<Vec<FieldChange>, SqlError> {
    let (workflow, old) =
        workflow_parts::find_requirements(db, id)?.ok_or(StoreError::NoSuchRequirementsId(id))?;
    refuse_held_jobs(db, workflow)?;
    let RequirementsRow { name: old_name, resources: old, .. } = old;
    let name = update.name.as_ref().unwrap_or(&old_name);
    let new = update.resources.unwrap_or(old);
    update.resources.as_ref().map_or(Ok(()), check_resources)?;
    let seconds = |of: Resources| of.runtime.map(|runtime| runtime.as_secs_f64());
    let mut changes = Vec::new();
    record_field_change(&mut changes, "name", &old_name, name);
    record_field_change(&mut changes, "num_cpus", &old.cpus, &new.cpus);
    record_field_change(&mut changes, "memory_bytes", &old.memory.0, &new.memory.0);
    record_field_change(&mut changes, "num_gpus", &old.gpus, &new.gpus);
    record_field_change(&mut changes, "num_nodes", &old.nodes, &new.nodes);
    record_field_change(&mut changes, "runtime_seconds", &seconds(old), &seconds(new));
    if changes.is_empty() {
        return Ok(changes);
    }
    write_requirements(db, id.0, &new)?;
    let renamed = db.execute(sql::RENAME_REQUIREMENTS, values![name, id.0]);
    renamed.map_err(|error| duplicate_in_workflow(error, REQUIREMENTS_CATEGORY, name))?;
    let message = format!("changed resource requirements `{old_name}`: {}", render_changes(&changes));
    by.record_event(
        db,
        workflow,
        "requirements",
        message,
        json!({ "id": id, "name": name, "changes": changes }),
    )?;
    Ok(changes)
}

pub(crate) fn delete_requirements(
    db: &impl SqlConnection,
    id: RequirementsId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let (workflow, row) =
        workflow_parts::find_requirements(db, id)?.ok_or(StoreError::NoSuchRequirementsId(id))?;
    if let Some((job, job_name)) = jobs::find_requirements_user(db, workflow, id, None)? {
        let what = format!("resource requirements {id} (`{}`)", row.name);
        return Err(StoreError::InUse { what, by: format!("job {job} (`{job_name}`) uses them") }.into());
    }
    db.execute(sql::DELETE_REQUIREMENTS, [id.0])?;
    let told = json!({ "id": id, "name": row.name, "resources": row.resources });
    by.record_event(
        db,
        workflow,
        "requirements",
        format!("deleted resource requirements `{}`", row.name),
        told,
    )
}

/// Returns the workflow of a result.
pub(crate) fn workflow_of_result(
    db: &impl SqlConnection,
    id: ResultId,
) -> Result<Option<WorkflowId>, SqlError> {
    db.query_optional(sql::RESULT_KEY, [id.0], |row| row.get(0).map(WorkflowId))
}

/// The job stays as it is.
pub(crate) fn delete_result(
    db: &impl SqlConnection,
    id: ResultId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let found = db.query_optional(sql::RESULT_KEY, [id.0], |row| {
        let numbers: [i64; 4] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
        Ok((numbers, row.get::<String>(4)?))
    });
    let ([workflow, job, run, attempt], name) = found?.ok_or(StoreError::NoSuchResult(id))?;
    db.execute(sql::DELETE_RESULT, [id.0])?;
    let message = format!("deleted the result of attempt {attempt} of job `{name}` in run {run}");
    let told = json!({ "result_id": id, "job_id": job, "run_id": run, "attempt_id": attempt });
    by.record_event(db, WorkflowId(workflow), "results", message, told)
}

/// Deletes an event that a client added; the deletion is itself recorded. Events recorded by Windlass cannot be
/// deleted: they are the audit log.
pub(crate) fn delete_event(
    db: &impl SqlConnection,
    id: EventId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let found = db.query_optional(sql::DELETE_EVENT, [id.0], |row| {
        Ok((row.get::<Option<i64>>(0)?, row.get::<String>(1)?, Timestamp(row.get(2)?)))
    });
    let Some((workflow, category, at)) = found? else {
        let is_there = crate::sql_store::events::find_event(db, id)?.is_some();
        return Err(if is_there { StoreError::EventIsRecord(id) } else { StoreError::NoSuchEvent(id) }.into());
    };
    let event = crate::model::NewEvent {
        workflow: workflow.map(WorkflowId),
        job: None,
        severity: crate::model::EventSeverity::Info,
        category: "events".to_owned(),
        message: format!("deleted event {id} ({category}, {at})"),
        data: Some(json!({ "event_id": id, "category": category, "at": at })),
    };
    crate::sql_store::events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}
