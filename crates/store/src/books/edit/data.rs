//! Files and requirements that a user adds, changes or deletes; results and events that a user deletes.

use super::{compare, in_words, jobs, refuse_while_held};
use crate::Error;
use crate::books::apply::current_run;
use crate::books::create::{Counter, insert_requirements, next_id, set_next_id, taken};
use crate::books::manage::{By, write_requirements};
use crate::books::parts;
use crate::db::{Db, values};
use crate::error::Fault;
use crate::model::{FieldChange, FileRow, FileUpdate, RequirementsRow, RequirementsUpdate};
use crate::sql::common as sql;
use serde_json::json;
use windlass_types::{EventId, FileId, RequirementsId, Resources, ResultId, Timestamp, WorkflowId};

const FILES: &str = "files";
const REQUIREMENTS: &str = "resource requirements";

pub(crate) fn add_file(
    db: &impl Db,
    workflow: WorkflowId,
    name: &str,
    path: &str,
    by: By<'_>,
) -> Result<FileId, Fault> {
    current_run(db, workflow)?;
    let id = next_id(db, Counter::File)?;
    let values = values![id, workflow.0, name, path, None::<&str>, None::<i64>];
    let inserted = db.execute(sql::INSERT_FILE, values);
    inserted.map_err(|error| taken(error, FILES, name))?;
    set_next_id(db, Counter::File, id + 1)?;
    db.execute(sql::ADD_FILE_COUNT, [1, workflow.0])?;
    let told = json!({ "file_id": id, "name": name, "path": path });
    by.note(db, workflow, "files", format!("added file `{name}` ({path})"), told)?;
    Ok(FileId(id))
}

/// What was seen of the file at an old path says nothing about the one at the new path.
pub(crate) fn update_file(
    db: &impl Db,
    id: FileId,
    update: &FileUpdate,
    by: By<'_>,
) -> Result<Vec<FieldChange>, Fault> {
    let old = parts::file(db, id)?.ok_or(Error::NoSuchFile(id))?;
    refuse_while_held(db, old.workflow_id)?;
    let name = update.name.as_ref().unwrap_or(&old.name);
    let path = update.path.as_ref().unwrap_or(&old.path);
    let mut changes = Vec::new();
    compare(&mut changes, "name", &old.name, name);
    compare(&mut changes, "path", &old.path, path);
    compare(&mut changes, "mtime_ns", &old.mtime_ns, &update.mtime_ns.or(old.mtime_ns));
    if changes.is_empty() {
        return Ok(changes);
    }
    let seen = (old.path == *path).then_some((old.mtime_ns, old.size.map(crate::books::apply::bytes)));
    let (mtime, size) = seen.unwrap_or_default();
    let mtime = update.mtime_ns.or(mtime);
    let written = db.execute(sql::UPDATE_FILE, values![name, path, mtime, size, id.0]);
    written.map_err(|error| taken(error, FILES, name))?;
    let message = format!("changed file `{}`: {}", old.name, in_words(&changes));
    by.note(db, old.workflow_id, "files", message, json!({ "file_id": id, "changes": changes }))?;
    Ok(changes)
}

pub(crate) fn delete_file(db: &impl Db, id: FileId, by: By<'_>) -> Result<(), Fault> {
    let FileRow { workflow_id: workflow, name, path, .. } =
        parts::file(db, id)?.ok_or(Error::NoSuchFile(id))?;
    let user = db.optional(sql::USER_OF_FILE, [workflow.0, id.0], |row| {
        Ok((row.get::<i64>(0)?, row.get::<String>(1)?))
    })?;
    if let Some((job, job_name)) = user {
        let what = format!("file {id} (`{name}`)");
        return Err(Error::InUse { what, by: format!("job {job} (`{job_name}`) reads or writes it") }.into());
    }
    db.execute(sql::DELETE_FILE, [id.0])?;
    db.execute(sql::ADD_FILE_COUNT, [-1, workflow.0])?;
    let told = json!({ "file_id": id, "name": name, "path": path });
    by.note(db, workflow, "files", format!("deleted file `{name}` from the workflow"), told)
}

pub(crate) fn add_requirements(
    db: &impl Db,
    workflow: WorkflowId,
    name: &str,
    resources: &Resources,
    by: By<'_>,
) -> Result<RequirementsId, Fault> {
    current_run(db, workflow)?;
    let id = insert_requirements(db, workflow, name, resources)
        .map_err(|fault| taken(fault, REQUIREMENTS, name))?;
    let told = json!({ "name": name, "resources": resources });
    by.note(db, workflow, "requirements", format!("added resource requirements `{name}`"), told)?;
    Ok(RequirementsId(id))
}

pub(crate) fn update_requirements(
    db: &impl Db,
    id: RequirementsId,
    update: &RequirementsUpdate,
    by: By<'_>,
) -> Result<Vec<FieldChange>, Fault> {
    let (workflow, old) = parts::requirements_row(db, id)?.ok_or(Error::NoSuchRequirementsId(id))?;
    refuse_while_held(db, workflow)?;
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
    write_requirements(db, id.0, &new)?;
    let renamed = db.execute(sql::RENAME_REQUIREMENTS, values![name, id.0]);
    renamed.map_err(|error| taken(error, REQUIREMENTS, name))?;
    let message = format!("changed resource requirements `{old_name}`: {}", in_words(&changes));
    by.note(db, workflow, "requirements", message, json!({ "id": id, "name": name, "changes": changes }))?;
    Ok(changes)
}

pub(crate) fn delete_requirements(db: &impl Db, id: RequirementsId, by: By<'_>) -> Result<(), Fault> {
    let (workflow, row) = parts::requirements_row(db, id)?.ok_or(Error::NoSuchRequirementsId(id))?;
    if let Some((job, job_name)) = jobs::user_of_requirements(db, workflow, id, None)? {
        let what = format!("the resource requirements {id} (`{}`)", row.name);
        return Err(Error::InUse { what, by: format!("job {job} (`{job_name}`) has them") }.into());
    }
    db.execute(sql::DELETE_REQUIREMENTS, [id.0])?;
    let told = json!({ "id": id, "name": row.name, "resources": row.resources });
    by.note(db, workflow, "requirements", format!("deleted resource requirements `{}`", row.name), told)
}

/// The workflow that a result belongs to.
pub(crate) fn workflow_of_result(db: &impl Db, id: ResultId) -> Result<Option<WorkflowId>, Fault> {
    db.optional(sql::RESULT_KEY, [id.0], |row| row.get(0).map(WorkflowId))
}

/// The job stays as it is.
pub(crate) fn delete_result(db: &impl Db, id: ResultId, by: By<'_>) -> Result<(), Fault> {
    let found = db.optional(sql::RESULT_KEY, [id.0], |row| {
        let numbers: [i64; 4] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
        Ok((numbers, row.get::<String>(4)?))
    });
    let ([workflow, job, run, attempt], name) = found?.ok_or(Error::NoSuchResult(id))?;
    db.execute(sql::DELETE_RESULT, [id.0])?;
    let message = format!("deleted the result of attempt {attempt} of job `{name}` in run {run}");
    let told = json!({ "result_id": id, "job_id": job, "run_id": run, "attempt_id": attempt });
    by.note(db, WorkflowId(workflow), "results", message, told)
}

/// Deletes an event that a client added; the deletion is itself recorded. Events that Windlass recorded stay: they are the
/// audit log of those who could delete them.
pub(crate) fn delete_event(db: &impl Db, id: EventId, by: By<'_>) -> Result<(), Fault> {
    let found = db.optional(sql::DELETE_EVENT, [id.0], |row| {
        Ok((row.get::<Option<i64>>(0)?, row.get::<String>(1)?, Timestamp(row.get(2)?)))
    });
    let Some((workflow, category, at)) = found? else {
        let is_there = crate::books::events::event(db, id)?.is_some();
        return Err(if is_there { Error::EventIsRecord(id) } else { Error::NoSuchEvent(id) }.into());
    };
    let event = crate::model::NewEvent {
        workflow: workflow.map(WorkflowId),
        job: None,
        severity: crate::model::Severity::Info,
        category: "events".to_owned(),
        message: format!("deleted event {id} ({category}, {at})"),
        data: Some(json!({ "event_id": id, "category": category, "at": at })),
    };
    crate::books::events::note(db, by.actor, &event, by.now)?;
    Ok(())
}
