//! Parts of workflows that come, change and go one by one: user data, failure handlers, schedulers, actions, results,
//! events, records.

use super::apply::{current_run, find_job, micros};
use super::create::{Counter, next_id, set_next_id, taken};
use super::edit::edges_of_data;
use super::load::Blocks;
use super::manage::By;
use super::query::Query;
use super::{column, events, lists, parts, read};
use crate::Error;
use crate::db::{Db, Loader as _, Row, values};
use crate::error::Fault;
use crate::model::{
    AddAction, AddFile, AddUserData, NewEvent, Part, RecordRow, SettingsUpdate, Severity, StatedResult,
    UserDataRow, UserDataUpdate,
};
use crate::sql::{allocations, common, server as sql, tables};
use serde_json::{Value, json};
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::{EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkflowId};

// ---- workflows, files, user data ----

pub(crate) fn update_settings(
    db: &impl Db,
    id: WorkflowId,
    update: &SettingsUpdate,
    by: By<'_>,
) -> Result<(), Fault> {
    let row = read::workflow(db, id)?.ok_or(Error::NoSuchWorkflow(id))?;
    let settings = column::json_text(update.settings.as_ref().unwrap_or(&row.settings))?;
    let env = column::env_text(update.env.as_ref().unwrap_or(&row.env));
    let directory = update.submission_dir.as_ref().unwrap_or(&row.submission_dir);
    db.execute(sql::UPDATE_SETTINGS, values![settings, env, directory, id.0])?;
    by.note(db, id, "workflow", "changed its settings".to_owned(), json!({}))
}

pub(crate) fn add_files(
    db: &impl Db,
    workflow: WorkflowId,
    files: &[AddFile],
    by: By<'_>,
) -> Result<Vec<FileId>, Fault> {
    current_run(db, workflow)?;
    let first = next_id(db, Counter::File)?;
    let mut rows = db.load_into(&tables::FILE)?;
    for (id, file) in (first..).zip(files) {
        let values = values![id, workflow.0, file.name, file.path, None::<&str>, file.mtime_ns];
        rows.push(&values).map_err(|fault| taken(fault, "files", &file.name))?;
    }
    rows.finish().map_err(|fault| taken(fault, "files", "?"))?;
    set_next_id(db, Counter::File, first + files.len() as i64)?;
    db.execute(common::ADD_FILE_COUNT, [files.len() as i64, workflow.0])?;
    let told = json!({ "first_file_id": first, "files": files.len() });
    by.note(db, workflow, "files", format!("added {} files", files.len()), told)?;
    Ok((first..).take(files.len()).map(FileId).collect())
}

pub(crate) fn add_user_data(
    db: &impl Db,
    workflow: WorkflowId,
    list: &[AddUserData],
    by: By<'_>,
) -> Result<Vec<UserDataId>, Fault> {
    current_run(db, workflow)?;
    let first = next_id(db, Counter::UserData)?;
    let ids: Vec<UserDataId> = (first..).take(list.len()).map(UserDataId).collect();
    for (id, new) in ids.iter().zip(list) {
        let text = new.data.as_ref().map(column::json_text).transpose()?;
        let values = values![id.0, workflow.0, new.name, text, i64::from(new.is_ephemeral), by.now.0];
        let inserted = db.execute(common::INSERT_USER_DATA, values);
        inserted.map_err(|error| taken(error, "pieces of user data", &new.name))?;
        for (jobs, is_output) in [(&new.consumers, 0), (&new.producers, 1)] {
            for &job in jobs {
                find_job(db, workflow, job)?.ok_or(Error::NoSuchJob(job))?;
                db.execute(sql::RELATE_USER_DATA, [job.0, is_output, id.0])?;
            }
        }
    }
    set_next_id(db, Counter::UserData, first + list.len() as i64)?;
    let pairs = list.iter().flat_map(|new| {
        new.consumers.iter().flat_map(|reader| new.producers.iter().map(|writer| (*reader, *writer)))
    });
    edges_of_data(db, workflow, pairs)?;
    let message = match list {
        [one] => format!("added user data `{}`", one.name),
        several => format!("added {} pieces of user data", several.len()),
    };
    let told = json!({ "first_user_data_id": first, "pieces": list.len() });
    by.note(db, workflow, "user_data", message, told)?;
    Ok(ids)
}

/// The note keeps what was there before.
pub(crate) fn update_user_data(
    db: &impl Db,
    id: UserDataId,
    update: &UserDataUpdate,
    by: By<'_>,
) -> Result<(), Fault> {
    let old = parts::user_data_piece(db, id)?.ok_or(Error::NoSuchUserData(id))?;
    let new = UserDataRow {
        name: update.name.clone().unwrap_or_else(|| old.name.clone()),
        data: update.data.clone().unwrap_or_else(|| old.data.clone()),
        is_ephemeral: update.is_ephemeral.unwrap_or(old.is_ephemeral),
        ..old.clone()
    };
    if new == old {
        return Ok(());
    }
    let changed_at = if new.data == old.data { old.changed_at } else { by.now };
    let text = new.data.as_ref().map(column::json_text).transpose()?;
    let values = values![new.name, text, i64::from(new.is_ephemeral), changed_at.0, id.0];
    let written = db.execute(sql::UPDATE_USER_DATA, values);
    written.map_err(|error| taken(error, "pieces of user data", &new.name))?;
    let told = json!({ "user_data_id": id, "name": new.name, "old": old.data, "new": new.data });
    by.note(db, old.workflow_id, "user_data", format!("set user data `{}`", new.name), told)
}

pub(crate) fn clear_ephemeral(db: &impl Db, workflow: WorkflowId, by: By<'_>) -> Result<u64, Fault> {
    current_run(db, workflow)?;
    let cleared = db.execute(sql::CLEAR_EPHEMERAL, [by.now.0, workflow.0])? as u64;
    if cleared > 0 {
        let message = format!("forgot the data of {cleared} ephemeral pieces of user data");
        by.note(db, workflow, "user_data", message, json!({ "pieces": cleared }))?;
    }
    Ok(cleared)
}

// ---- failure handlers, schedulers, actions ----

const HANDLER: &str = "failure handler";
const SCHEDULER: &str = "scheduler";
const ACTION: &str = "action";

pub(crate) fn add_handler(
    db: &impl Db,
    workflow: WorkflowId,
    handler: &FailureHandler,
    by: By<'_>,
) -> Result<i64, Fault> {
    current_run(db, workflow)?;
    let rules = column::json_text(&handler.rules)?;
    let values = values![workflow.0, handler.name, rules];
    let inserted = db.one(common::INSERT_HANDLER, values, |row| row.get(0));
    let id = inserted.map_err(|error| taken(error, "failure handlers", &handler.name))?;
    note_part(db, workflow, "added", HANDLER, id, &handler.name, by)?;
    Ok(id)
}

pub(crate) fn update_handler(
    db: &impl Db,
    id: i64,
    handler: &FailureHandler,
    by: By<'_>,
) -> Result<(), Fault> {
    let workflow = owner(db, Part::Handler(id), HANDLER, id)?;
    let rules = column::json_text(&handler.rules)?;
    let values = values![handler.name, rules, id];
    let written = db.execute(sql::UPDATE_HANDLER, values);
    written.map_err(|error| taken(error, "failure handlers", &handler.name))?;
    note_part(db, workflow, "changed", HANDLER, id, &handler.name, by)
}

pub(crate) fn delete_handler(db: &impl Db, id: i64, by: By<'_>) -> Result<(), Fault> {
    let workflow = owner(db, Part::Handler(id), HANDLER, id)?;
    let name: String = db.one(sql::NAME_OF_HANDLER, [id], |row| row.get(0))?;
    refuse_while_named(db, sql::USER_OF_HANDLER, workflow, id, &format!("failure handler `{name}`"))?;
    db.execute(sql::FORGET_HANDLER, [workflow.0, id])?;
    db.execute(sql::DELETE_HANDLER, [id])?;
    note_part(db, workflow, "deleted", HANDLER, id, &name, by)
}

pub(crate) fn add_scheduler(
    db: &impl Db,
    workflow: WorkflowId,
    scheduler: &SlurmScheduler,
    by: By<'_>,
) -> Result<i64, Fault> {
    current_run(db, workflow)?;
    let text = column::json_text(scheduler)?;
    let values = values![workflow.0, scheduler.name, text];
    let inserted = db.one(common::INSERT_SCHEDULER, values, |row| row.get(0));
    let id = inserted.map_err(|error| taken(error, "schedulers", &scheduler.name))?;
    note_part(db, workflow, "added", SCHEDULER, id, &scheduler.name, by)?;
    Ok(id)
}

pub(crate) fn update_scheduler(
    db: &impl Db,
    id: i64,
    scheduler: &SlurmScheduler,
    by: By<'_>,
) -> Result<(), Fault> {
    let workflow = owner(db, Part::Scheduler(id), SCHEDULER, id)?;
    let text = column::json_text(scheduler)?;
    let values = values![scheduler.name, text, id];
    let written = db.execute(sql::UPDATE_SCHEDULER, values);
    written.map_err(|error| taken(error, "schedulers", &scheduler.name))?;
    note_part(db, workflow, "changed", SCHEDULER, id, &scheduler.name, by)
}

pub(crate) fn delete_scheduler(db: &impl Db, id: i64, by: By<'_>) -> Result<(), Fault> {
    let workflow = owner(db, Part::Scheduler(id), SCHEDULER, id)?;
    let name: String = db.one(sql::NAME_OF_SCHEDULER, [id], |row| row.get(0))?;
    refuse_while_named(db, sql::USER_OF_SCHEDULER, workflow, id, &format!("scheduler `{name}`"))?;
    db.execute(sql::FORGET_SCHEDULER, [workflow.0, id])?;
    db.execute(allocations::FORGET_SCHEDULER, [workflow.0, id])?;
    db.execute(sql::DELETE_SCHEDULER, [id])?;
    note_part(db, workflow, "deleted", SCHEDULER, id, &name, by)
}

pub(crate) fn add_action(
    db: &impl Db,
    workflow: WorkflowId,
    new: &AddAction,
    by: By<'_>,
) -> Result<i64, Fault> {
    current_run(db, workflow)?;
    let text = column::json_text(&new.action)?;
    let values = values![workflow.0, text];
    let id = db.one(common::INSERT_ACTION, values, |row| row.get(0))?;
    if new.is_recovery {
        db.execute(sql::MARK_RECOVERY, [id])?;
    }
    insert_action_jobs(db, workflow, id, &new.jobs)?;
    note_action(db, workflow, "added", id, Some(new), by)?;
    Ok(id)
}

pub(crate) fn update_action(db: &impl Db, id: i64, new: &AddAction, by: By<'_>) -> Result<(), Fault> {
    let workflow = owner(db, Part::Action(id), ACTION, id)?;
    let text = column::json_text(&new.action)?;
    let values = values![text, i64::from(new.is_recovery), id];
    db.execute(sql::UPDATE_ACTION, values)?;
    db.execute(sql::DELETE_ACTION_JOBS, [id])?;
    insert_action_jobs(db, workflow, id, &new.jobs)?;
    note_action(db, workflow, "changed", id, Some(new), by)
}

pub(crate) fn delete_action(db: &impl Db, id: i64, by: By<'_>) -> Result<(), Fault> {
    let workflow = owner(db, Part::Action(id), ACTION, id)?;
    for statement in
        [allocations::FORGET_ACTION, sql::DELETE_ACTION_RUNS, sql::DELETE_ACTION_JOBS, sql::DELETE_ACTION]
    {
        db.execute(statement, [id])?;
    }
    note_action(db, workflow, "deleted", id, None, by)
}

fn insert_action_jobs(db: &impl Db, workflow: WorkflowId, id: i64, jobs: &[JobId]) -> Result<(), Fault> {
    for job in jobs.iter().collect::<std::collections::BTreeSet<_>>() {
        find_job(db, workflow, *job)?.ok_or(Error::NoSuchJob(*job))?;
        db.execute(sql::RELATE_ACTION, [id, job.0])?;
    }
    Ok(())
}

/// The workflow that has it, which is where it is noted.
fn owner(db: &impl Db, part: Part, what: &'static str, id: i64) -> Result<WorkflowId, Fault> {
    lists::workflow_of(db, part)?.ok_or_else(|| Error::NoSuch { what: what.into(), id }.into())
}

fn refuse_while_named(
    db: &impl Db,
    user: &str,
    workflow: WorkflowId,
    id: i64,
    what: &str,
) -> Result<(), Fault> {
    let row = |row: &Row<'_>| Ok((row.get::<i64>(0)?, row.get::<String>(1)?));
    match db.optional(user, [workflow.0, id], row)? {
        None => Ok(()),
        Some((job, name)) => {
            Err(Error::InUse { what: what.to_owned(), by: format!("job {job} (`{name}`) names it") }.into())
        }
    }
}

fn note_part(
    db: &impl Db,
    workflow: WorkflowId,
    did: &str,
    what: &str,
    id: i64,
    name: &str,
    by: By<'_>,
) -> Result<(), Fault> {
    by.note(db, workflow, "workflow", format!("{did} {what} `{name}`"), json!({ "id": id, "name": name }))
}

fn note_action(
    db: &impl Db,
    workflow: WorkflowId,
    did: &str,
    id: i64,
    action: Option<&AddAction>,
    by: By<'_>,
) -> Result<(), Fault> {
    let told = json!({ "action_id": id, "action": action.map(|new| &new.action) });
    by.note(db, workflow, "action", format!("{did} action {id}"), told)
}

// ---- results and events ----

pub(crate) fn add_result(db: &impl Db, result: &StatedResult, by: By<'_>) -> Result<ResultId, Fault> {
    let workflow = require_attempt(db, result)?;
    let values = values![
        result.job.0,
        result.run.0,
        result.attempt.0,
        result.worker.0,
        result.status.code(),
        result.return_code,
        result.ended_at.0,
        micros(result.wall),
        result.peak_memory_bytes,
        result.avg_memory_bytes,
        result.peak_cpu_percent,
        result.avg_cpu_percent,
    ];
    let id = ResultId(db.one(sql::INSERT_STATED_RESULT, values, |row| row.get(0))?);
    note_result(db, workflow, "stated", id, result, by)?;
    Ok(id)
}

pub(crate) fn update_result(
    db: &impl Db,
    id: ResultId,
    result: &StatedResult,
    by: By<'_>,
) -> Result<(), Fault> {
    let workflow = require_attempt(db, result)?;
    let values = values![
        result.job.0,
        result.run.0,
        result.attempt.0,
        result.worker.0,
        result.status.code(),
        result.return_code,
        result.ended_at.0,
        micros(result.wall),
        result.peak_memory_bytes,
        result.avg_memory_bytes,
        result.peak_cpu_percent,
        result.avg_cpu_percent,
        id.0,
    ];
    match db.execute(sql::UPDATE_RESULT, values)? {
        0 => Err(Error::NoSuchResult(id).into()),
        _ => note_result(db, workflow, "changed", id, result, by),
    }
}

fn require_attempt(db: &impl Db, result: &StatedResult) -> Result<WorkflowId, Fault> {
    let workflow = lists::workflow_of(db, Part::Job(result.job))?.ok_or(Error::NoSuchJob(result.job))?;
    super::fleet::worker(db, result.worker)?.ok_or(Error::NoSuchWorker(result.worker))?;
    Ok(workflow)
}

fn note_result(
    db: &impl Db,
    workflow: WorkflowId,
    did: &str,
    id: ResultId,
    result: &StatedResult,
    by: By<'_>,
) -> Result<(), Fault> {
    let StatedResult { job, run, attempt, status, return_code, .. } = result;
    let message = format!("{did} the result of attempt {attempt} of job {job} in run {run}: {status}");
    let told = json!({ "result_id": id, "job_id": job, "run_id": run, "return_code": return_code });
    by.note(db, workflow, "results", message, told)
}

pub(crate) fn delete_results(db: &impl Db, workflow: WorkflowId, by: By<'_>) -> Result<u64, Fault> {
    let mut deleted = 0;
    for block in Blocks::read(db, workflow)?.iter() {
        deleted += db.execute(sql::DELETE_RESULTS, [block.first, block.end()])? as u64;
    }
    let message = format!("deleted all {deleted} results");
    by.note(db, workflow, "results", message, json!({ "results": deleted }))?;
    Ok(deleted)
}

pub(crate) fn add_events(db: &impl Db, list: &[NewEvent], by: By<'_>) -> Result<Vec<EventId>, Fault> {
    list.iter().map(|event| events::note(db, by.actor, event, by.now)).collect()
}

pub(crate) fn update_event(db: &impl Db, id: EventId, data: &Value, by: By<'_>) -> Result<(), Fault> {
    let old = events::event(db, id)?.ok_or(Error::NoSuchEvent(id))?;
    let text = column::json_text(data)?;
    if db.execute(sql::UPDATE_EVENT, values![text, id.0])? == 0 {
        return Err(Error::EventIsRecord(id).into());
    }
    let told = json!({ "event_id": id, "old": old.data });
    note_events(db, old.workflow_id, format!("changed event {id} ({})", old.category), told, by)
}

/// Only what clients added: the record of what Windlass did stays.
pub(crate) fn delete_events(db: &impl Db, workflow: WorkflowId, by: By<'_>) -> Result<u64, Fault> {
    current_run(db, workflow)?;
    let deleted = db.execute(sql::DELETE_EVENTS, [workflow.0])? as u64;
    let message = format!("deleted the {deleted} events that clients had added");
    note_events(db, Some(workflow), message, json!({ "events": deleted }), by)?;
    Ok(deleted)
}

fn note_events(
    db: &impl Db,
    workflow: Option<WorkflowId>,
    message: String,
    data: Value,
    by: By<'_>,
) -> Result<(), Fault> {
    let (category, data) = ("events".to_owned(), Some(data));
    let event = NewEvent { workflow, job: None, severity: Severity::Info, category, message, data };
    events::note(db, by.actor, &event, by.now)?;
    Ok(())
}

// ---- records ----

pub(crate) fn add_record(
    db: &impl Db,
    workflow: Option<WorkflowId>,
    kind: &str,
    name: Option<&str>,
    data: &Value,
    by: By<'_>,
) -> Result<i64, Fault> {
    if let Some(workflow) = workflow {
        current_run(db, workflow)?;
    }
    let text = column::json_text(data)?;
    let values = values![workflow.map(|id| id.0), kind, name, text, by.now.0, by.now.0];
    let inserted = db.one(sql::INSERT_RECORD, values, |row| row.get(0));
    let id = inserted.map_err(|error| taken(error, "records", name.unwrap_or_default()))?;
    note_record(db, workflow, format!("{kind}_created"), id, data, by)?;
    Ok(id)
}

pub(crate) fn records(
    db: &impl Db,
    workflow: Option<WorkflowId>,
    kind: &str,
) -> Result<Vec<RecordRow>, Fault> {
    let mut query = Query::new(sql::SELECT_RECORDS, vec![]);
    query.push("r.kind = ?", vec![Box::new(kind.to_owned())]);
    if let Some(workflow) = workflow {
        current_run(db, workflow)?;
        query.push(" AND r.workflow_id = ?", vec![Box::new(workflow.0)]);
    }
    query.push(" ORDER BY r.id", vec![]);
    query.run(db, record_row)
}

pub(crate) fn record(db: &impl Db, id: i64) -> Result<Option<RecordRow>, Fault> {
    let mut query = Query::new(sql::SELECT_RECORDS, vec![]);
    query.push("r.id = ?", vec![Box::new(id)]);
    Ok(query.run(db, record_row)?.pop())
}

pub(crate) fn update_record(db: &impl Db, id: i64, data: &Value, by: By<'_>) -> Result<(), Fault> {
    let old = record(db, id)?.ok_or(Error::NoSuch { what: "record".into(), id })?;
    let text = column::json_text(data)?;
    db.execute(sql::UPDATE_RECORD, values![text, by.now.0, id])?;
    note_record(db, old.workflow_id, format!("{}_changed", old.kind), id, data, by)
}

pub(crate) fn delete_record(db: &impl Db, id: i64, by: By<'_>) -> Result<(), Fault> {
    let old = record(db, id)?.ok_or(Error::NoSuch { what: "record".into(), id })?;
    db.execute(sql::DELETE_RECORD, [id])?;
    note_record(db, old.workflow_id, format!("{}_deleted", old.kind), id, &old.data, by)
}

pub(crate) fn delete_records(
    db: &impl Db,
    workflow: WorkflowId,
    kind: &str,
    by: By<'_>,
) -> Result<u64, Fault> {
    current_run(db, workflow)?;
    let deleted = db.execute(sql::DELETE_RECORDS, values![workflow.0, kind])? as u64;
    let category = format!("{kind}_deleted");
    by.note(db, workflow, &category, format!("deleted all {deleted} of them"), json!({ "rows": deleted }))?;
    Ok(deleted)
}

fn note_record(
    db: &impl Db,
    workflow: Option<WorkflowId>,
    category: String,
    id: i64,
    data: &Value,
    by: By<'_>,
) -> Result<(), Fault> {
    let message = format!("{} {id}", category.replace('_', " "));
    let data = Some(json!({ "id": id, "data": data }));
    let event = NewEvent { workflow, job: None, severity: Severity::Info, category, message, data };
    events::note(db, by.actor, &event, by.now)?;
    Ok(())
}

fn record_row(row: &Row<'_>) -> Result<RecordRow, Fault> {
    Ok(RecordRow {
        id: row.get(0)?,
        workflow_id: row.get::<Option<i64>>(1)?.map(WorkflowId),
        kind: row.get(2)?,
        name: row.get(3)?,
        data: column::required_json(row, 4)?,
        created_at: Timestamp(row.get(5)?),
        changed_at: Timestamp(row.get(6)?),
    })
}
