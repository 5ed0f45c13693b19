//! Creates, changes and deletes single parts of workflows: user data, failure handlers, schedulers, actions,
//! results, events, records.

use super::apply_changes::{current_run, find_job_state, to_micros};
use super::create::{IdCounter, duplicate_in_workflow, next_id, set_next_id};
use super::edit::add_data_edges;
use super::job_loading::JobIdBlocks;
use super::query_builder::SqlQuery;
use super::workflow_updates::AuditContext;
use super::{column_decoding, events, queries, torc_lists, workflow_parts};
use crate::StoreError;
use crate::db::{BulkLoader as _, SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{
    AddFile, AddUserData, ClientRecordRow, ClientResult, EventSeverity, NewAllocationAction, NewEvent,
    SettingsUpdate, UserDataRow, UserDataUpdate, WorkflowPartId,
};
use crate::sql::{allocations, common, tables, workers_and_parts as sql};
use serde_json::{Value, json};
use windlass_types::settings::{FailureHandler, SlurmScheduler};
use windlass_types::{EventId, FileId, JobId, ResultId, Timestamp, UserDataId, WorkflowId};

// ---- workflows, files, user data ----

pub(crate) fn update_settings(
    db: &impl SqlConnection,
    id: WorkflowId,
    update: &SettingsUpdate,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let row = queries::find_workflow(db, id)?.ok_or(StoreError::NoSuchWorkflow(id))?;
    let settings = column_decoding::render_json(update.settings.as_ref().unwrap_or(&row.settings))?;
    let env = column_decoding::render_env(update.env.as_ref().unwrap_or(&row.env));
    let directory = update.submission_dir.as_ref().unwrap_or(&row.submission_dir);
    db.execute(sql::UPDATE_SETTINGS, values![settings, env, directory, id.0])?;
    by.record_event(db, id, "workflow", "changed the settings".to_owned(), json!({}))
}

pub(crate) fn add_files(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    files: &[AddFile],
    by: AuditContext<'_>,
) -> Result<Vec<FileId>, SqlError> {
    current_run(db, workflow)?;
    let first = next_id(db, IdCounter::File)?;
    let mut rows = db.open_loader(&tables::FILE)?;
    for (id, file) in (first..).zip(files) {
        let values = values![id, workflow.0, file.name, file.path, None::<&str>, file.mtime_ns];
        rows.push(&values).map_err(|fault| duplicate_in_workflow(fault, "files", &file.name))?;
    }
    rows.finish().map_err(|fault| duplicate_in_workflow(fault, "files", "?"))?;
    set_next_id(db, IdCounter::File, first + files.len() as i64)?;
    db.execute(common::ADD_FILE_COUNT, [files.len() as i64, workflow.0])?;
    let told = json!({ "first_file_id": first, "files": files.len() });
    by.record_event(db, workflow, "files", format!("added {} files", files.len()), told)?;
    Ok((first..).take(files.len()).map(FileId).collect())
}

pub(crate) fn add_user_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    list: &[AddUserData],
    by: AuditContext<'_>,
) -> Result<Vec<UserDataId>, SqlError> {
    current_run(db, workflow)?;
    let first = next_id(db, IdCounter::UserData)?;
    let ids: Vec<UserDataId> = (first..).take(list.len()).map(UserDataId).collect();
    for (id, new) in ids.iter().zip(list) {
        let text = new.data.as_ref().map(column_decoding::render_json).transpose()?;
        let values = values![id.0, workflow.0, new.name, text, i64::from(new.is_ephemeral), by.now.0];
        let inserted = db.execute(common::INSERT_USER_DATA, values);
        inserted.map_err(|error| duplicate_in_workflow(error, "user data entries", &new.name))?;
        for (jobs, is_output) in [(&new.consumers, 0), (&new.producers, 1)] {
            for &job in jobs {
                find_job_state(db, workflow, job)?.ok_or(StoreError::NoSuchJob(job))?;
                db.execute(sql::ADD_USER_DATA_RELATION, [job.0, is_output, id.0])?;
            }
        }
    }
    set_next_id(db, IdCounter::UserData, first + list.len() as i64)?;
    let pairs = list.iter().flat_map(|new| {
        new.consumers.iter().flat_map(|reader| new.producers.iter().map(|writer| (*reader, *writer)))
    });
    add_data_edges(db, workflow, pairs)?;
    let message = match list {
        [one] => format!("added user data `{}`", one.name),
        several => format!("added {} user data entries", several.len()),
    };
    let told = json!({ "first_user_data_id": first, "pieces": list.len() });
    by.record_event(db, workflow, "user_data", message, told)?;
    Ok(ids)
}

/// The event records the old value.
pub(crate) fn update_user_data(
    db: &impl SqlConnection,
    id: UserDataId,
    update: &UserDataUpdate,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let old = workflow_parts::find_user_data(db, id)?.ok_or(StoreError::NoSuchUserData(id))?;
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
    let text = new.data.as_ref().map(column_decoding::render_json).transpose()?;
    let values = values![new.name, text, i64::from(new.is_ephemeral), changed_at.0, id.0];
    let written = db.execute(sql::UPDATE_USER_DATA, values);
    written.map_err(|error| duplicate_in_workflow(error, "user data entries", &new.name))?;
    let told = json!({ "user_data_id": id, "name": new.name, "old": old.data, "new": new.data });
    by.record_event(db, old.workflow_id, "user_data", format!("set user data `{}`", new.name), told)
}

pub(crate) fn clear_ephemeral_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    let cleared = db.execute(sql::CLEAR_EPHEMERAL, [by.now.0, workflow.0])? as u64;
    if cleared > 0 {
        let message = format!("cleared {cleared} ephemeral user data entries");
        by.record_event(db, workflow, "user_data", message, json!({ "pieces": cleared }))?;
    }
    Ok(cleared)
}

// ---- failure handlers, schedulers, actions ----

const HANDLER_LABEL: &str = "failure handler";
const SCHEDULER_LABEL: &str = "scheduler";
const ACTION_LABEL: &str = "action";

pub(crate) fn add_handler(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    handler: &FailureHandler,
    by: AuditContext<'_>,
) -> Result<i64, SqlError> {
    current_run(db, workflow)?;
    let rules = column_decoding::render_json(&handler.rules)?;
    let values = values![workflow.0, handler.name, rules];
    let inserted = db.query_one(common::INSERT_HANDLER, values, |row| row.get(0));
    let id = inserted.map_err(|error| duplicate_in_workflow(error, "failure handlers", &handler.name))?;
    record_part_event(db, workflow, "added", HANDLER_LABEL, id, &handler.name, by)?;
    Ok(id)
}

pub(crate) fn update_handler(
    db: &impl SqlConnection,
    id: i64,
    handler: &FailureHandler,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let workflow = find_owner(db, WorkflowPartId::Handler(id), HANDLER_LABEL, id)?;
    let rules = column_decoding::render_json(&handler.rules)?;
    let values = values![handler.name, rules, id];
    let written = db.execute(sql::UPDATE_HANDLER, values);
    written.map_err(|error| duplicate_in_workflow(error, "failure handlers", &handler.name))?;
    record_part_event(db, workflow, "changed", HANDLER_LABEL, id, &handler.name, by)
}

pub(crate) fn delete_handler(db: &impl SqlConnection, id: i64, by: AuditContext<'_>) -> Result<(), SqlError> {
    let workflow = find_owner(db, WorkflowPartId::Handler(id), HANDLER_LABEL, id)?;
    let name: String = db.query_one(sql::NAME_OF_HANDLER, [id], |row| row.get(0))?;
    refuse_while_used(db, sql::USER_OF_HANDLER, workflow, id, &format!("failure handler `{name}`"))?;
    db.execute(sql::CLEAR_HANDLER, [workflow.0, id])?;
    db.execute(sql::DELETE_HANDLER, [id])?;
    record_part_event(db, workflow, "deleted", HANDLER_LABEL, id, &name, by)
}

pub(crate) fn add_scheduler(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    scheduler: &SlurmScheduler,
    by: AuditContext<'_>,
) -> Result<i64, SqlError> {
    current_run(db, workflow)?;
    let text = column_decoding::render_json(scheduler)?;
    let values = values![workflow.0, scheduler.name, text];
    let inserted = db.query_one(common::INSERT_SCHEDULER, values, |row| row.get(0));
    let id = inserted.map_err(|error| duplicate_in_workflow(error, "schedulers", &scheduler.name))?;
    record_part_event(db, workflow, "added", SCHEDULER_LABEL, id, &scheduler.name, by)?;
    Ok(id)
}

pub(crate) fn update_scheduler(
    db: &impl SqlConnection,
    id: i64,
    scheduler: &SlurmScheduler,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let workflow = find_owner(db, WorkflowPartId::Scheduler(id), SCHEDULER_LABEL, id)?;
    let text = column_decoding::render_json(scheduler)?;
    let values = values![scheduler.name, text, id];
    let written = db.execute(sql::UPDATE_SCHEDULER, values);
    written.map_err(|error| duplicate_in_workflow(error, "schedulers", &scheduler.name))?;
    record_part_event(db, workflow, "changed", SCHEDULER_LABEL, id, &scheduler.name, by)
}

pub(crate) fn delete_scheduler(
    db: &impl SqlConnection,
    id: i64,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let workflow = find_owner(db, WorkflowPartId::Scheduler(id), SCHEDULER_LABEL, id)?;
    let name: String = db.query_one(sql::NAME_OF_SCHEDULER, [id], |row| row.get(0))?;
    refuse_while_used(db, sql::USER_OF_SCHEDULER, workflow, id, &format!("scheduler `{name}`"))?;
    db.execute(sql::CLEAR_SCHEDULER, [workflow.0, id])?;
    db.execute(allocations::CLEAR_SCHEDULER, [workflow.0, id])?;
    db.execute(sql::DELETE_SCHEDULER, [id])?;
    record_part_event(db, workflow, "deleted", SCHEDULER_LABEL, id, &name, by)
}

pub(crate) fn add_action(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    new: &NewAllocationAction,
    by: AuditContext<'_>,
) -> Result<i64, SqlError> {
    current_run(db, workflow)?;
    let text = column_decoding::render_json(&new.action)?;
    let values = values![workflow.0, text];
    let id = db.query_one(common::INSERT_ACTION, values, |row| row.get(0))?;
    if new.is_recovery {
        db.execute(sql::MARK_RECOVERY, [id])?;
    }
    insert_action_jobs(db, workflow, id, &new.jobs)?;
    record_action_event(db, workflow, "added", id, Some(new), by)?;
    Ok(id)
}

pub(crate) fn update_action(
    db: &impl SqlConnection,
    id: i64,
    new: &NewAllocationAction,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let workflow = find_owner(db, WorkflowPartId::Action(id), ACTION_LABEL, id)?;
    let text = column_decoding::render_json(&new.action)?;
    let values = values![text, i64::from(new.is_recovery), id];
    db.execute(sql::UPDATE_ACTION, values)?;
    db.execute(sql::DELETE_ACTION_JOBS, [id])?;
    insert_action_jobs(db, workflow, id, &new.jobs)?;
    record_action_event(db, workflow, "changed", id, Some(new), by)
}

pub(crate) fn delete_action(db: &impl SqlConnection, id: i64, by: AuditContext<'_>) -> Result<(), SqlError> {
    let workflow = find_owner(db, WorkflowPartId::Action(id), ACTION_LABEL, id)?;
    for statement in
        [allocations::CLEAR_ACTION, sql::DELETE_ACTION_RUNS, sql::DELETE_ACTION_JOBS, sql::DELETE_ACTION]
    {
        db.execute(statement, [id])?;
    }
    record_action_event(db, workflow, "deleted", id, None, by)
}

fn insert_action_jobs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: i64,
    jobs: &[JobId],
) -> Result<(), SqlError> {
    for job in jobs.iter().collect::<std::collections::BTreeSet<_>>() {
        find_job_state(db, workflow, *job)?.ok_or(StoreError::NoSuchJob(*job))?;
        db.execute(sql::ADD_ACTION_JOB, [id, job.0])?;
    }
    Ok(())
}

/// Returns the workflow that has it, for the event.
fn find_owner(
    db: &impl SqlConnection,
    part: WorkflowPartId,
    what: &'static str,
    id: i64,
) -> Result<WorkflowId, SqlError> {
    torc_lists::workflow_of(db, part)?.ok_or_else(|| StoreError::NoSuch { what: what.into(), id }.into())
}

fn refuse_while_used(
    db: &impl SqlConnection,
    user: &str,
    workflow: WorkflowId,
    id: i64,
    what: &str,
) -> Result<(), SqlError> {
    let row = |row: &SqlRow<'_>| Ok((row.get::<i64>(0)?, row.get::<String>(1)?));
    match db.query_optional(user, [workflow.0, id], row)? {
        None => Ok(()),
        Some((job, name)) => {
            Err(StoreError::InUse { what: what.to_owned(), by: format!("job {job} (`{name}`) refers to it") }
                .into())
        }
    }
}

fn record_part_event(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    did: &str,
    what: &str,
    id: i64,
    name: &str,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    by.record_event(
        db,
        workflow,
        "workflow",
        format!("{did} {what} `{name}`"),
        json!({ "id": id, "name": name }),
    )
}

fn record_action_event(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    did: &str,
    id: i64,
    action: Option<&NewAllocationAction>,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let told = json!({ "action_id": id, "action": action.map(|new| &new.action) });
    by.record_event(db, workflow, "action", format!("{did} action {id}"), told)
}

// ---- results and events ----

pub(crate) fn add_result(
    db: &impl SqlConnection,
    result: &ClientResult,
    by: AuditContext<'_>,
) -> Result<ResultId, SqlError> {
    let workflow = require_attempt(db, result)?;
    let values = values![
        result.job.0,
        result.run.0,
        result.attempt.0,
        result.worker.0,
        result.status.code(),
        result.return_code,
        result.ended_at.0,
        to_micros(result.wall),
        result.peak_memory_bytes,
        result.avg_memory_bytes,
        result.peak_cpu_percent,
        result.avg_cpu_percent,
    ];
    let id = ResultId(db.query_one(sql::INSERT_CLIENT_RESULT, values, |row| row.get(0))?);
    record_result_event(db, workflow, "stated", id, result, by)?;
    Ok(id)
}

pub(crate) fn update_result(
    db: &impl SqlConnection,
    id: ResultId,
    result: &ClientResult,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let workflow = require_attempt(db, result)?;
    let values = values![
        result.job.0,
        result.run.0,
        result.attempt.0,
        result.worker.0,
        result.status.code(),
        result.return_code,
        result.ended_at.0,
        to_micros(result.wall),
        result.peak_memory_bytes,
        result.avg_memory_bytes,
        result.peak_cpu_percent,
        result.avg_cpu_percent,
        id.0,
    ];
    match db.execute(sql::UPDATE_RESULT, values)? {
        0 => Err(StoreError::NoSuchResult(id).into()),
        _ => record_result_event(db, workflow, "changed", id, result, by),
    }
}

fn require_attempt(db: &impl SqlConnection, result: &ClientResult) -> Result<WorkflowId, SqlError> {
    let workflow = torc_lists::workflow_of(db, WorkflowPartId::Job(result.job))?
        .ok_or(StoreError::NoSuchJob(result.job))?;
    super::workers::find_worker(db, result.worker)?.ok_or(StoreError::NoSuchWorker(result.worker))?;
    Ok(workflow)
}

fn record_result_event(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    did: &str,
    id: ResultId,
    result: &ClientResult,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let ClientResult { job, run, attempt, status, return_code, .. } = result;
    let message = format!("{did} the result of attempt {attempt} of job {job} in run {run}: {status}");
    let told = json!({ "result_id": id, "job_id": job, "run_id": run, "return_code": return_code });
    by.record_event(db, workflow, "results", message, told)
}

pub(crate) fn delete_results(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<u64, SqlError> {
    let mut deleted = 0;
    for block in JobIdBlocks::load(db, workflow)?.iter() {
        deleted += db.execute(sql::DELETE_RESULTS, [block.first, block.end()])? as u64;
    }
    let message = format!("deleted all {deleted} results");
    by.record_event(db, workflow, "results", message, json!({ "results": deleted }))?;
    Ok(deleted)
}

pub(crate) fn add_events(
    db: &impl SqlConnection,
    list: &[NewEvent],
    by: AuditContext<'_>,
) -> Result<Vec<EventId>, SqlError> {
    list.iter().map(|event| events::insert_event(db, by.actor, event, by.now)).collect()
}

pub(crate) fn update_event(
    db: &impl SqlConnection,
    id: EventId,
    data: &Value,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let old = events::find_event(db, id)?.ok_or(StoreError::NoSuchEvent(id))?;
    let text = column_decoding::render_json(data)?;
    if db.execute(sql::UPDATE_EVENT, values![text, id.0])? == 0 {
        return Err(StoreError::EventIsRecord(id).into());
    }
    let told = json!({ "event_id": id, "old": old.data });
    record_events_event(db, old.workflow_id, format!("changed event {id} ({})", old.category), told, by)
}

/// Only events added by clients: those recorded by Windlass are kept.
pub(crate) fn delete_events(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    let deleted = db.execute(sql::DELETE_EVENTS, [workflow.0])? as u64;
    let message = format!("deleted the {deleted} events added by clients");
    record_events_event(db, Some(workflow), message, json!({ "events": deleted }), by)?;
    Ok(deleted)
}

fn record_events_event(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
    message: String,
    data: Value,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let (category, data) = ("events".to_owned(), Some(data));
    let event = NewEvent { workflow, job: None, severity: EventSeverity::Info, category, message, data };
    events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}

// ---- records ----

pub(crate) fn add_record(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
    kind: &str,
    name: Option<&str>,
    data: &Value,
    by: AuditContext<'_>,
) -> Result<i64, SqlError> {
    if let Some(workflow) = workflow {
        current_run(db, workflow)?;
    }
    let text = column_decoding::render_json(data)?;
    let values = values![workflow.map(|id| id.0), kind, name, text, by.now.0, by.now.0];
    let inserted = db.query_one(sql::INSERT_RECORD, values, |row| row.get(0));
    let id = inserted.map_err(|error| duplicate_in_workflow(error, "records", name.unwrap_or_default()))?;
    record_record_event(db, workflow, format!("{kind}_created"), id, data, by)?;
    Ok(id)
}

pub(crate) fn list_records(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
    kind: &str,
) -> Result<Vec<ClientRecordRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_RECORDS, vec![]);
    query.push("r.kind = ?", vec![Box::new(kind.to_owned())]);
    if let Some(workflow) = workflow {
        current_run(db, workflow)?;
        query.push(" AND r.workflow_id = ?", vec![Box::new(workflow.0)]);
    }
    query.push(" ORDER BY r.id", vec![]);
    query.read_rows(db, read_record_row)
}

pub(crate) fn find_record(db: &impl SqlConnection, id: i64) -> Result<Option<ClientRecordRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_RECORDS, vec![]);
    query.push("r.id = ?", vec![Box::new(id)]);
    Ok(query.read_rows(db, read_record_row)?.pop())
}

pub(crate) fn update_record(
    db: &impl SqlConnection,
    id: i64,
    data: &Value,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let old = find_record(db, id)?.ok_or(StoreError::NoSuch { what: "record".into(), id })?;
    let text = column_decoding::render_json(data)?;
    db.execute(sql::UPDATE_RECORD, values![text, by.now.0, id])?;
    record_record_event(db, old.workflow_id, format!("{}_changed", old.kind), id, data, by)
}

pub(crate) fn delete_record(db: &impl SqlConnection, id: i64, by: AuditContext<'_>) -> Result<(), SqlError> {
    let old = find_record(db, id)?.ok_or(StoreError::NoSuch { what: "record".into(), id })?;
    db.execute(sql::DELETE_RECORD, [id])?;
    record_record_event(db, old.workflow_id, format!("{}_deleted", old.kind), id, &old.data, by)
}

pub(crate) fn delete_records(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    kind: &str,
    by: AuditContext<'_>,
) -> Result<u64, SqlError> {
    current_run(db, workflow)?;
    let deleted = db.execute(sql::DELETE_RECORDS, values![workflow.0, kind])? as u64;
    let category = format!("{kind}_deleted");
    by.record_event(
        db,
        workflow,
        &category,
        format!("deleted all {deleted} records"),
        json!({ "rows": deleted }),
    )?;
    Ok(deleted)
}

fn record_record_event(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
    category: String,
    id: i64,
    data: &Value,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let message = format!("{} {id}", category.replace('_', " "));
    let data = Some(json!({ "id": id, "data": data }));
    let event = NewEvent { workflow, job: None, severity: EventSeverity::Info, category, message, data };
    events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}

fn read_record_row(row: &SqlRow<'_>) -> Result<ClientRecordRow, SqlError> {
    Ok(ClientRecordRow {
        id: row.get(0)?,
        workflow_id: row.get::<Option<i64>>(1)?.map(WorkflowId),
        kind: row.get(2)?,
        name: row.get(3)?,
        data: column_decoding::read_required_json(row, 4)?,
        created_at: Timestamp(row.get(5)?),
        changed_at: Timestamp(row.get(6)?),
    })
}
