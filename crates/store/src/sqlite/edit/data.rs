//! Files and requirements that a user adds, changes or deletes; results and events that a user deletes.

use super::{compare, in_words, jobs, refuse_while_held};
use crate::Error;
use crate::error::Fault;
use crate::model::{FieldChange, FileRow, FileUpdate, RequirementsRow, RequirementsUpdate};
use crate::sql::common as sql;
use crate::sqlite::apply::current_run;
use crate::sqlite::create::{Counter, insert_requirements, next_id, set_next_id, taken};
use crate::sqlite::manage::{By, write_requirements};
use crate::sqlite::parts;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use windlass_types::{EventId, FileId, RequirementsId, Resources, ResultId, Timestamp, WorkflowId};

const FILES: &str = "files";
const REQUIREMENTS: &str = "resource requirements";

pub(crate) fn add_file(
    conn: &Connection,
    workflow: WorkflowId,
    name: &str,
    path: &str,
    by: By<'_>,
) -> Result<FileId, Fault> {
    current_run(conn, workflow)?;
    let id = next_id(conn, Counter::File)?;
    let values = params![id, workflow.0, name, path, None::<&str>, None::<i64>];
    let inserted = conn.prepare_cached(sql::INSERT_FILE)?.execute(values);
    inserted.map_err(|error| taken(error, FILES, name))?;
    set_next_id(conn, Counter::File, id + 1)?;
    conn.prepare_cached(sql::ADD_FILE_COUNT)?.execute([1, workflow.0])?;
    let told = json!({ "file_id": id, "name": name, "path": path });
    by.note(conn, workflow, "files", format!("added file `{name}` ({path})"), told)?;
    Ok(FileId(id))
}

/// What was seen of the file at an old path says nothing about the one at the new path.
pub(crate) fn update_file(
    conn: &Connection,
    id: FileId,
    update: &FileUpdate,
    by: By<'_>,
) -> Result<Vec<FieldChange>, Fault> {
    let old = parts::file(conn, id)?.ok_or(Error::NoSuchFile(id))?;
    refuse_while_held(conn, old.workflow_id)?;
    let name = update.name.as_ref().unwrap_or(&old.name);
    let path = update.path.as_ref().unwrap_or(&old.path);
    let mut changes = Vec::new();
    compare(&mut changes, "name", &old.name, name);
    compare(&mut changes, "path", &old.path, path);
    if changes.is_empty() {
        return Ok(changes);
    }
    let seen = (old.path == *path).then_some((old.mtime_ns, old.size.map(crate::sqlite::apply::bytes)));
    let (mtime, size) = seen.unwrap_or_default();
    let written = conn.prepare_cached(sql::UPDATE_FILE)?.execute(params![name, path, mtime, size, id.0]);
    written.map_err(|error| taken(error, FILES, name))?;
    let message = format!("changed file `{}`: {}", old.name, in_words(&changes));
    by.note(conn, old.workflow_id, "files", message, json!({ "file_id": id, "changes": changes }))?;
    Ok(changes)
}

pub(crate) fn delete_file(conn: &Connection, id: FileId, by: By<'_>) -> Result<(), Fault> {
    let FileRow { workflow_id: workflow, name, path, .. } =
        parts::file(conn, id)?.ok_or(Error::NoSuchFile(id))?;
    let user = conn
        .prepare_cached(sql::USER_OF_FILE)?
        .query_row([workflow.0, id.0], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    if let Some((job, job_name)) = user {
        let what = format!("file {id} (`{name}`)");
        return Err(Error::InUse { what, by: format!("job {job} (`{job_name}`) reads or writes it") }.into());
    }
    conn.prepare_cached(sql::DELETE_FILE)?.execute([id.0])?;
    conn.prepare_cached(sql::ADD_FILE_COUNT)?.execute([-1, workflow.0])?;
    let told = json!({ "file_id": id, "name": name, "path": path });
    by.note(conn, workflow, "files", format!("deleted file `{name}` from the workflow"), told)
}

pub(crate) fn add_requirements(
    conn: &Connection,
    workflow: WorkflowId,
    name: &str,
    resources: &Resources,
    by: By<'_>,
) -> Result<RequirementsId, Fault> {
    current_run(conn, workflow)?;
    let id = insert_requirements(conn, workflow, name, resources).map_err(|fault| match fault {
        Fault::Sqlite(error) => taken(error, REQUIREMENTS, name),
        told @ Fault::Told(_) => told,
    })?;
    let told = json!({ "name": name, "resources": resources });
    by.note(conn, workflow, "requirements", format!("added resource requirements `{name}`"), told)?;
    Ok(RequirementsId(id))
}

pub(crate) fn update_requirements(
    conn: &Connection,
    id: RequirementsId,
    update: &RequirementsUpdate,
    by: By<'_>,
) -> Result<Vec<FieldChange>, Fault> {
    let (workflow, old) = parts::requirements_row(conn, id)?.ok_or(Error::NoSuchRequirementsId(id))?;
    refuse_while_held(conn, workflow)?;
    let RequirementsRow { name: old_name, resources: old, .. } = old;
    let name = update.name.as_ref().unwrap_or(&old_name);
    let new = update.resources.unwrap_or(old);
    let seconds = |of: Resources| of.runtime.map(|runtime| runtime.as_secs_f64());
    let mut changes = Vec::new();
    compare(&mut changes, "name", &old_name, name);
    compare(&mut changes, "num_cpus", &old.cpus, &new.cpus);
    compare(&mut changes, "memory_bytes", &old.memory.0, &new.memory.0);
    compare(&mut changes, "num_gpus", &old.gpus, &new.gpus);
    compare(&mut changes, "num_nodes", &old.nodes, &new.nodes);
    compare(&mut changes, "runtime_seconds", &seconds(old), &seconds(new));
    if changes.is_empty() {
        return Ok(changes);
    }
    write_requirements(conn, id.0, &new)?;
    let renamed = conn.prepare_cached(sql::RENAME_REQUIREMENTS)?.execute(params![name, id.0]);
    renamed.map_err(|error| taken(error, REQUIREMENTS, name))?;
    let message = format!("changed resource requirements `{old_name}`: {}", in_words(&changes));
    by.note(conn, workflow, "requirements", message, json!({ "id": id, "name": name, "changes": changes }))?;
    Ok(changes)
}

pub(crate) fn delete_requirements(conn: &Connection, id: RequirementsId, by: By<'_>) -> Result<(), Fault> {
    let (workflow, row) = parts::requirements_row(conn, id)?.ok_or(Error::NoSuchRequirementsId(id))?;
    if let Some((job, job_name)) = jobs::user_of_requirements(conn, workflow, id, None)? {
        let what = format!("the resource requirements {id} (`{}`)", row.name);
        return Err(Error::InUse { what, by: format!("job {job} (`{job_name}`) has them") }.into());
    }
    conn.prepare_cached(sql::DELETE_REQUIREMENTS)?.execute([id.0])?;
    let told = json!({ "id": id, "name": row.name, "resources": row.resources });
    by.note(conn, workflow, "requirements", format!("deleted resource requirements `{}`", row.name), told)
}

/// The workflow that a result belongs to.
pub(crate) fn workflow_of_result(conn: &Connection, id: ResultId) -> Result<Option<WorkflowId>, Fault> {
    let found = conn.prepare_cached(sql::RESULT_KEY)?.query_row([id.0], |row| row.get(0).map(WorkflowId));
    Ok(found.optional()?)
}

/// The job stays as it is.
pub(crate) fn delete_result(conn: &Connection, id: ResultId, by: By<'_>) -> Result<(), Fault> {
    let found = conn.prepare_cached(sql::RESULT_KEY)?.query_row([id.0], |row| {
        let numbers: [i64; 4] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
        Ok((numbers, row.get::<_, String>(4)?))
    });
    let ([workflow, job, run, attempt], name) = found.optional()?.ok_or(Error::NoSuchResult(id))?;
    conn.prepare_cached(sql::DELETE_RESULT)?.execute([id.0])?;
    let message = format!("deleted the result of attempt {attempt} of job `{name}` in run {run}");
    let told = json!({ "result_id": id, "job_id": job, "run_id": run, "attempt_id": attempt });
    by.note(conn, WorkflowId(workflow), "results", message, told)
}

/// That something was deleted is itself noted: the list of what happened has no gaps that nobody knows of.
pub(crate) fn delete_event(conn: &Connection, id: EventId, by: By<'_>) -> Result<(), Fault> {
    let found = conn.prepare_cached(sql::DELETE_EVENT)?.query_row([id.0], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, String>(1)?, Timestamp(row.get(2)?)))
    });
    let (workflow, category, at) = found.optional()?.ok_or(Error::NoSuchEvent(id))?;
    let event = crate::model::NewEvent {
        workflow: workflow.map(WorkflowId),
        severity: crate::model::Severity::Info,
        category: "events".to_owned(),
        message: format!("deleted event {id} ({category}, {at})"),
        data: Some(json!({ "event_id": id, "category": category, "at": at })),
    };
    crate::sqlite::events::note(conn, by.actor, &event, by.now)?;
    Ok(())
}
