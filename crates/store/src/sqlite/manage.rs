//! What users do to a workflow that is there: rename, archive, change its data and requirements, delete it.

use super::apply::{bytes, current_run, micros};
use super::create::{Counter, insert_requirements, next_id, set_next_id, taken};
use super::edit::refuse_while_held;
use super::load::Blocks;
use super::writer::tend_log;
use super::{column, events, parts, read, runs};
use crate::Error;
use crate::error::Fault;
use crate::model::{
    NewEvent, RequirementsChange, Severity, UsedBy, UserDataRow, WorkflowRow, WorkflowUpdate,
};
use crate::sql::common as sql;
use crate::sql::sqlite::{BEGIN_WRITE, COMMIT};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use windlass_types::{JobId, RequirementsId, Resources, Timestamp, UserDataId, WorkflowId};

/// Who does it and when, for the note that is made of it.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) actor: &'a str,
    pub(crate) now: Timestamp,
}

impl By<'_> {
    pub(crate) fn note(
        self,
        conn: &Connection,
        workflow: WorkflowId,
        category: &str,
        message: String,
        data: Value,
    ) -> Result<(), Fault> {
        let event = NewEvent {
            workflow: Some(workflow),
            severity: Severity::Info,
            category: category.to_owned(),
            message,
            data: Some(data),
        };
        events::note(conn, self.actor, &event, self.now)?;
        Ok(())
    }
}

pub(crate) fn update_workflow(
    conn: &Connection,
    id: WorkflowId,
    update: &WorkflowUpdate,
    by: By<'_>,
) -> Result<(), Fault> {
    let row = read::workflow(conn, id)?.ok_or(Error::NoSuchWorkflow(id))?;
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
    let values = params![name, user, description, column::json_text(&settings)?, id.0];
    conn.prepare_cached(sql::UPDATE_WORKFLOW)?.execute(values)?;
    let message =
        format!("changed {}", if changed.is_empty() { "nothing".into() } else { changed.join(", ") });
    by.note(conn, id, "workflow", message, json!({ "fields": changed }))
}

pub(crate) fn archive(
    conn: &Connection,
    ids: &[WorkflowId],
    is_archived: bool,
    by: By<'_>,
) -> Result<(), Fault> {
    for &id in ids {
        let touched = conn.prepare_cached(sql::ARCHIVE)?.execute([i64::from(is_archived), id.0])?;
        if touched == 0 {
            return Err(Error::NoSuchWorkflow(id).into());
        }
        let message = if is_archived { "archived" } else { "taken out of the archive" };
        by.note(conn, id, "workflow", message.to_owned(), json!({ "is_archived": is_archived }))?;
    }
    Ok(())
}

/// The ids of the changed sets, in the order asked for.
pub(crate) fn change_requirements(
    conn: &Connection,
    workflow: WorkflowId,
    changes: &[RequirementsChange],
    by: By<'_>,
) -> Result<Vec<RequirementsId>, Fault> {
    current_run(conn, workflow)?;
    refuse_while_held(conn, workflow)?;
    let mut ids = Vec::with_capacity(changes.len());
    for change in changes {
        let id = set_requirements(conn, workflow, change)?;
        let jobs = use_requirements(conn, workflow, id, &change.used_by)?;
        let message = match change.used_by {
            UsedBy::AsBefore => format!("changed resource requirements `{}`", change.name),
            UsedBy::Kind(_) | UsedBy::Jobs(_) => {
                format!("changed resource requirements `{}`, used by {jobs} more jobs", change.name)
            }
        };
        let data = json!({ "name": change.name, "resources": change.resources, "jobs": jobs });
        by.note(conn, workflow, "requirements", message, data)?;
        ids.push(RequirementsId(id));
    }
    Ok(ids)
}

fn set_requirements(
    conn: &Connection,
    workflow: WorkflowId,
    change: &RequirementsChange,
) -> Result<i64, Fault> {
    let RequirementsChange { name, resources, .. } = change;
    let found: Option<i64> = conn
        .prepare_cached(sql::REQUIREMENTS_NAMED)?
        .query_row(params![workflow.0, name], |row| row.get(0))
        .optional()?;
    let Some(id) = found else { return insert_requirements(conn, workflow, name, resources) };
    write_requirements(conn, id, resources)?;
    Ok(id)
}

pub(crate) fn write_requirements(conn: &Connection, id: i64, resources: &Resources) -> Result<(), Fault> {
    conn.prepare_cached(sql::UPDATE_REQUIREMENTS)?.execute(params![
        resources.cpus,
        bytes(resources.memory),
        resources.gpus,
        resources.nodes,
        resources.runtime.map(micros),
        id,
    ])?;
    Ok(())
}

/// How many jobs were pointed at it.
fn use_requirements(
    conn: &Connection,
    workflow: WorkflowId,
    id: i64,
    used_by: &UsedBy,
) -> Result<usize, Fault> {
    match used_by {
        UsedBy::AsBefore => Ok(0),
        UsedBy::Kind(kind) => {
            let mut statement = conn.prepare_cached(sql::USE_REQUIREMENTS_IN_KIND)?;
            let mut touched = 0;
            for block in Blocks::read(conn, workflow)?.iter() {
                touched += statement.execute([id, block.first, block.end(), kind.0])?;
            }
            Ok(touched)
        }
        UsedBy::Jobs(jobs) => {
            let mut statement = conn.prepare_cached(sql::USE_REQUIREMENTS)?;
            for &JobId(job) in jobs {
                if statement.execute([id, job, workflow.0])? == 0 {
                    return Err(Error::NoSuchJob(JobId(job)).into());
                }
            }
            Ok(jobs.len())
        }
    }
}

pub(crate) fn add_user_data(
    conn: &Connection,
    workflow: WorkflowId,
    name: &str,
    data: Option<&Value>,
    is_ephemeral: bool,
    by: By<'_>,
) -> Result<UserDataId, Fault> {
    current_run(conn, workflow)?;
    let id = next_id(conn, Counter::UserData)?;
    let text = data.map(column::json_text).transpose()?;
    let values = params![id, workflow.0, name, text, i64::from(is_ephemeral), by.now.0];
    let inserted = conn.prepare_cached(sql::INSERT_USER_DATA)?.execute(values);
    inserted.map_err(|error| taken(error, "pieces of user data", name))?;
    set_next_id(conn, Counter::UserData, id + 1)?;
    by.note(conn, workflow, "user_data", format!("added user data `{name}`"), json!({ "user_data_id": id }))?;
    Ok(UserDataId(id))
}

/// The note keeps what was there before.
pub(crate) fn set_user_data(
    conn: &Connection,
    id: UserDataId,
    data: Option<&Value>,
    by: By<'_>,
) -> Result<(), Fault> {
    let UserDataRow { workflow_id, name, data: old, .. } =
        parts::user_data_piece(conn, id)?.ok_or(Error::NoSuchUserData(id))?;
    if old.as_ref() == data {
        return Ok(());
    }
    let text = data.map(column::json_text).transpose()?;
    conn.prepare_cached(sql::SET_USER_DATA)?.execute(params![text, by.now.0, id.0])?;
    let told = json!({ "user_data_id": id, "name": name, "old": old, "new": data });
    by.note(conn, workflow_id, "user_data", format!("set user data `{name}`"), told)
}

pub(crate) fn delete_user_data(conn: &Connection, id: UserDataId, by: By<'_>) -> Result<(), Fault> {
    let row = parts::user_data_piece(conn, id)?.ok_or(Error::NoSuchUserData(id))?;
    for block in Blocks::read(conn, row.workflow_id)?.iter() {
        conn.prepare_cached(sql::UNRELATE_USER_DATA)?.execute([block.first, block.end(), id.0])?;
    }
    conn.prepare_cached(sql::DELETE_USER_DATA)?.execute([id.0])?;
    let told = json!({ "user_data_id": id, "name": row.name, "old": row.data });
    by.note(conn, row.workflow_id, "user_data", format!("deleted user data `{}`", row.name), told)
}

/// Jobs that one statement deletes with all that hangs on them.
pub(crate) const JOBS_AT_ONCE: usize = 10_000;

/// One transaction, on a connection of its own that does not look for references: everything that refers to a row
/// goes with it.
pub(crate) fn delete_workflow(conn: &Connection, id: WorkflowId, by: By<'_>) -> Result<(), Fault> {
    conn.execute_batch(BEGIN_WRITE)?;
    let row = read::workflow(conn, id)?.ok_or(Error::NoSuchWorkflow(id))?;
    refuse_while_held(conn, id)?;
    let workers = runs::active_workers(conn, id)?.len();
    if workers > 0 {
        return Err(Error::NotBuried { workflow: id, workers }.into());
    }
    for block in Blocks::read(conn, id)?.iter() {
        for first in (block.first..block.end()).step_by(JOBS_AT_ONCE) {
            let end = block.end().min(first + JOBS_AT_ONCE as i64);
            for sql in sql::DELETE_JOBS {
                conn.prepare_cached(sql)?.execute([first, end])?;
            }
        }
    }
    for sql in sql::DELETE_OF_WORKFLOW {
        conn.execute(sql, [id.0])?;
    }
    let jobs = row.counts.total();
    let event = NewEvent {
        workflow: None,
        severity: Severity::Info,
        category: "workflow".to_owned(),
        message: format!("deleted workflow {id} (`{}`) with {jobs} jobs", row.name),
        data: Some(json!({ "workflow_id": id, "name": row.name, "uuid": row.uuid, "jobs": jobs })),
    };
    events::note(conn, by.actor, &event, by.now)?;
    conn.execute_batch(COMMIT)?;
    // It is gone; what remains is housekeeping.
    drop(tend_log(conn));
    Ok(())
}
