//! Adds jobs to a workflow, and changes them.

use super::{record_field_change, render_changes};
use crate::StoreError;
use crate::db::{BulkLoader as _, SqlConnection, values};
use crate::error::SqlError;
use crate::model::{AddJob, FieldChange, JobUpdate, WorkflowPartId};
use crate::sql::{common as sql, tables};
use crate::sql_store::apply_changes::{StatusCountDeltas, current_run};
use crate::sql_store::create::{
    IdCounter, JobRowWriter, NewJobRow, duplicate_in_workflow, insert_job_group, insert_requirements,
    next_id, set_next_id,
};
use crate::sql_store::failure_commands::manual_revisions;
use crate::sql_store::job_loading::{JobIdBlocks, load_jobs};
use crate::sql_store::torc_lists::workflow_of;
use crate::sql_store::workflow_updates::{AuditContext, write_requirements};
use crate::sql_store::{column_decoding, workflow_parts};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use windlass_core::dependency_graph::JobDependencyGraph;
use windlass_core::failure_commands::is_applicable;
use windlass_types::failure_commands::FailureCommandKind;
use windlass_types::{
    Bytes, FileId, JobDefinition, JobGroup, JobId, JobSettings, JobStatus, RequirementsId, Resources,
    UserDataId, WorkflowId,
};

/// Returns the ids of the new jobs, in the order given.
pub(crate) fn add_jobs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    jobs: &[AddJob],
    by: AuditContext<'_>,
) -> Result<Vec<JobId>, SqlError> {
    current_run(db, workflow)?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    for job in jobs {
        require_references(db, workflow, job)?;
    }
    let first = next_id(db, IdCounter::Job)?;
    extend_blocks(db, workflow, first, jobs.len() as i64)?;
    let edges = find_edges(db, first, jobs)?;
    let blocked: BTreeSet<i64> = edges.iter().map(|(job, _)| *job).collect();
    insert_rows(db, workflow, first, jobs, &blocked)?;
    insert_relations(db, first, jobs)?;
    let mut rows = db.open_loader(&tables::JOB_EDGE)?;
    for (job, on) in &edges {
        rows.push(&values![workflow.0, job, on])?;
    }
    rows.finish()?;
    if edges.iter().any(|(job, _)| *job < first) {
        refuse_cycles(db, workflow)?;
    }
    let ids: Vec<JobId> = (first..).take(jobs.len()).map(JobId).collect();
    let message = match jobs {
        [one] => format!("added job `{}`", one.definition.name),
        several => format!("added {} jobs", several.len()),
    };
    by.record_event(db, workflow, "jobs", message, json!({ "first_job_id": first, "jobs": jobs.len() }))?;
    Ok(ids)
}

fn require_references(db: &impl SqlConnection, workflow: WorkflowId, job: &AddJob) -> Result<(), SqlError> {
    let JobDefinition { resource_requirements, settings, .. } = &job.definition;
    if let Some(id) = *resource_requirements {
        find_requirements(db, workflow, RequirementsId(id))?;
    }
    for &id in &job.waits_for {
        crate::sql_store::apply_changes::find_job_state(db, workflow, id)?
            .ok_or(StoreError::NoSuchJob(id))?;
    }
    for &FileId(id) in job.input_files.iter().chain(&job.output_files) {
        if !db.exists(sql::FILE_OF, [id, workflow.0])? {
            return Err(StoreError::NoSuchFile(FileId(id)).into());
        }
    }
    let of_workflow = |part| Ok::<_, SqlError>(workflow_of(db, part)? == Some(workflow));
    for &id in job.input_user_data.iter().chain(&job.output_user_data) {
        if !of_workflow(WorkflowPartId::UserData(id))? {
            return Err(StoreError::NoSuchUserData(id).into());
        }
    }
    require_handler_and_scheduler(db, workflow, settings.failure_handler, settings.scheduler)
}

/// Shared objects that a job refers to must belong to its workflow.
fn require_handler_and_scheduler(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    handler: Option<i64>,
    scheduler: Option<i64>,
) -> Result<(), SqlError> {
    let named = [
        handler.map(|id| (WorkflowPartId::Handler(id), "failure handler", id)),
        scheduler.map(|id| (WorkflowPartId::Scheduler(id), "scheduler", id)),
    ];
    for (part, what, id) in named.into_iter().flatten() {
        if workflow_of(db, part)? != Some(workflow) {
            return Err(StoreError::NoSuch { what: what.into(), id }.into());
        }
    }
    Ok(())
}

/// Extends the last block if its ids are adjacent, so that jobs added one by one do not create a block each.
fn extend_blocks(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    first: i64,
    count: i64,
) -> Result<(), SqlError> {
    let last = db.query_optional(sql::LAST_BLOCK, [workflow.0], |row| {
        let spawned_by: Option<i64> = row.get(2)?;
        Ok((row.get::<i64>(0)?, row.get::<i64>(1)?, spawned_by))
    })?;
    match last {
        Some((start, length, None)) if start + length == first => {
            db.execute(sql::SET_BLOCK_LENGTH, [length + count, workflow.0, start])?;
        }
        _ => {
            db.execute(sql::INSERT_JOB_BLOCK, [workflow.0, first, count])?;
        }
    }
    Ok(())
}

/// Returns new dependencies as `(job, dependency)`: explicit ones, and those through files and user data.
fn find_edges(
    db: &impl SqlConnection,
    first: i64,
    jobs: &[AddJob],
) -> Result<BTreeSet<(i64, i64)>, SqlError> {
    let mut edges = BTreeSet::new();
    let mut uses: HashMap<DataObject, DataUses> = HashMap::new();
    for (id, job) in (first..).zip(jobs) {
        edges.extend(job.waits_for.iter().map(|on| (id, on.0)));
        for thing in data_objects(&job.input_files, &job.input_user_data) {
            uses.entry(thing).or_default().readers.push(id);
        }
        for thing in data_objects(&job.output_files, &job.output_user_data) {
            uses.entry(thing).or_default().writers.push(id);
        }
    }
    for (thing, uses) in &mut uses {
        load_earlier_uses(db, *thing, uses)?;
    }
    for DataUses { readers, writers } in uses.values() {
        let pairs = readers.iter().flat_map(|reader| writers.iter().map(move |writer| (*reader, *writer)));
        // Existing jobs already have edges between them.
        edges.extend(pairs.filter(|(job, on)| job != on && (*job >= first || *on >= first)));
    }
    Ok(edges)
}

/// Dependencies between producers and consumers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum DataObject {
    File(FileId),
    UserData(UserDataId),
}

fn data_objects<'a>(
    files: &'a [FileId],
    user_data: &'a [UserDataId],
) -> impl Iterator<Item = DataObject> + 'a {
    let files = files.iter().copied().map(DataObject::File);
    files.chain(user_data.iter().copied().map(DataObject::UserData))
}

/// Producers and consumers of a file or user data.
#[derive(Default)]
struct DataUses {
    readers: Vec<i64>,
    writers: Vec<i64>,
}

/// Looks up only what the new jobs use: clients add jobs one by one, and the total time must not be quadratic.
fn load_earlier_uses(
    db: &impl SqlConnection,
    thing: DataObject,
    uses: &mut DataUses,
) -> Result<(), SqlError> {
    let (sql, id) = match thing {
        DataObject::File(FileId(id)) => (sql::JOBS_OF_FILE, id),
        DataObject::UserData(UserDataId(id)) => (sql::JOBS_OF_USER_DATA, id),
    };
    db.query_each(sql, [id], |row| {
        let list = if column_decoding::read_flag(row, 1)? { &mut uses.writers } else { &mut uses.readers };
        list.push(row.get(0)?);
        Ok(())
    })
}

/// Whether dependents are really blocked is decided when the workflow runs.
fn insert_rows(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    first: i64,
    jobs: &[AddJob],
    blocked: &BTreeSet<i64>,
) -> Result<(), SqlError> {
    let mut rows = JobRowWriter::new(db, workflow, first);
    let mut moved = StatusCountDeltas::default();
    let mut job_groups = HashMap::new();
    for (id, job) in (first..).zip(jobs) {
        let status = match (job.is_uninitialized, blocked.contains(&id)) {
            (true, _) => JobStatus::Uninitialized,
            (false, true) => JobStatus::Blocked,
            (false, false) => JobStatus::Ready,
        };
        let settings = &job.definition.settings;
        let job_group = match job_groups.get(settings) {
            _ if *settings == JobSettings::default() => None,
            Some(known) => Some(*known),
            None => {
                let created = find_or_create_group(db, workflow, settings)?;
                job_groups.insert(settings, created);
                Some(created)
            }
        };
        let requirements = job.definition.resource_requirements;
        rows.push(&job.definition, &NewJobRow::new(status, job_group, requirements))?;
        moved.add(status);
    }
    rows.finish()?;
    moved.write_counts(db, workflow)?;
    set_next_id(db, IdCounter::Job, first + jobs.len() as i64)
}

/// Returns the unnamed job group of jobs that were added individually with these settings.
fn find_or_create_group(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    settings: &JobSettings<i64>,
) -> Result<i64, SqlError> {
    let JobSettings { stdio, supports_termination, failure_handler, scheduler, labels, sites, limit } =
        settings;
    let text = column_decoding::render_json(labels)?;
    let sites = (!sites.is_empty()).then(|| column_decoding::render_json(sites)).transpose()?;
    let same = values![
        workflow.0,
        text,
        supports_termination.map(i64::from),
        failure_handler,
        scheduler,
        stdio.map(|stdio| column_decoding::stdio_name(stdio.mode)),
        stdio.map(|stdio| i64::from(stdio.delete_on_success)),
        sites,
        limit,
    ];
    match db.query_optional(sql::FIND_UNNAMED_GROUP, same, |row| row.get(0))? {
        Some(job_group) => Ok(job_group),
        None => {
            insert_job_group(db, workflow, &JobGroup { settings: settings.clone(), ..JobGroup::default() })
        }
    }
}

fn insert_relations(db: &impl SqlConnection, first: i64, jobs: &[AddJob]) -> Result<(), SqlError> {
    let mut files = db.open_loader(&tables::JOB_FILE)?;
    for (id, job) in (first..).zip(jobs) {
        for (list, is_output) in [(&job.input_files, 0i64), (&job.output_files, 1)] {
            for file in list.iter().collect::<BTreeSet<_>>() {
                files.push(&values![id, is_output, file.0])?;
            }
        }
    }
    files.finish()?;
    let mut user_data = db.open_loader(&tables::JOB_USER_DATA)?;
    for (id, job) in (first..).zip(jobs) {
        for (list, is_output) in [(&job.input_user_data, 0i64), (&job.output_user_data, 1)] {
            for piece in list.iter().collect::<BTreeSet<_>>() {
                user_data.push(&values![id, is_output, piece.0])?;
            }
        }
    }
    user_data.finish()?;
    for (id, job) in (first..).zip(jobs) {
        if !job.input_files.is_empty() || !job.output_files.is_empty() {
            db.execute(sql::HAS_FILES, [id])?;
        }
    }
    Ok(())
}

/// Only an edge to a new job can close a cycle, so the check is rarely needed.
pub(super) fn refuse_cycles(db: &impl SqlConnection, workflow: WorkflowId) -> Result<(), SqlError> {
    let table = load_jobs(db, workflow)?;
    let Err(cycle) = JobDependencyGraph::new(table.ids.len() as u32, &table.edges) else { return Ok(()) };
    let ids: Vec<JobId> = cycle.0.iter().map(|number| table.ids[*number as usize]).collect();
    Err(StoreError::Circle { jobs: crate::sql_store::queries::load_job_names(db, &ids)? }.into())
}

/// The changeable columns of a job.
#[derive(Clone)]
struct EditableJob {
    name: String,
    command: String,
    priority: i32,
    requirements: Option<i64>,
    job_group: Option<i64>,
    completed_command: Option<String>,
    invocation_script: Option<String>,
    cancel_on_blocking_job_failure: bool,
}

/// Returns the changes; empty if all values were the same.
pub(crate) fn update_job(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: JobId,
    update: &JobUpdate,
    by: AuditContext<'_>,
) -> Result<Vec<FieldChange>, SqlError> {
    let (status, old) = read_job(db, workflow, id)?;
    if status.is_active() {
        return Err(StoreError::JobIsHeld { job: id, name: old.name }.into());
    }
    // Before requirements that only this job uses are changed in place.
    let before = manual_revisions::load_job_patch(db, old.requirements, &old.command, old.priority)?;
    let mut changes = Vec::new();
    let mut new = EditableJob {
        name: update.name.clone().unwrap_or_else(|| old.name.clone()),
        command: update.command.clone().unwrap_or_else(|| old.command.clone()),
        priority: update.priority.unwrap_or(old.priority),
        invocation_script: update.invocation_script.clone().unwrap_or_else(|| old.invocation_script.clone()),
        cancel_on_blocking_job_failure: update
            .cancel_on_blocking_job_failure
            .unwrap_or(old.cancel_on_blocking_job_failure),
        ..old.clone()
    };
    record_field_change(&mut changes, "name", &old.name, &new.name);
    record_field_change(&mut changes, "command", &old.command, &new.command);
    record_field_change(&mut changes, "priority", &old.priority, &new.priority);
    record_field_change(&mut changes, "invocation_script", &old.invocation_script, &new.invocation_script);
    record_field_change(
        &mut changes,
        "cancel_on_blocking_job_failure",
        &old.cancel_on_blocking_job_failure,
        &new.cancel_on_blocking_job_failure,
    );
    if status == JobStatus::Completed {
        let done_with = old.completed_command.clone().unwrap_or_else(|| old.command.clone());
        new.completed_command = Some(done_with).filter(|done| *done != new.command);
    }
    if let Some(requirements) = update.requirements {
        find_requirements(db, workflow, requirements)?;
        new.requirements = Some(requirements.0);
        let name =
            |id: Option<i64>| id.map(|id| find_requirements(db, workflow, RequirementsId(id))).transpose();
        let name = |id| name(id).map(|found| found.map(|found| found.name));
        record_field_change(
            &mut changes,
            "resource_requirements",
            &name(old.requirements)?,
            &name(new.requirements)?,
        );
    }
    if let Some(runtime) = update.runtime {
        new.requirements = set_runtime(db, workflow, id, &new, runtime, &mut changes)?;
    }
    new.job_group = group_with_update(db, workflow, &new, update, &mut changes)?;
    if update.disable && status != JobStatus::Disabled {
        record_field_change(&mut changes, "status", &status, &JobStatus::Disabled);
        disable_job(db, workflow, id, status)?;
    }
    if changes.is_empty() {
        return Ok(changes);
    }
    write_job(db, id, &new)?;
    if is_applicable(FailureCommandKind::Change, status) {
        let after = manual_revisions::load_job_patch(db, new.requirements, &new.command, new.priority)?;
        manual_revisions::record_revision(db, workflow, id, (before, after), by)?;
    }
    let name = &new.name;
    let message = format!("changed job `{}`: {}", old.name, render_changes(&changes));
    by.record_event(
        db,
        workflow,
        "jobs",
        message,
        json!({ "job_id": id, "name": name, "changes": changes }),
    )?;
    Ok(changes)
}

fn write_job(db: &impl SqlConnection, id: JobId, job: &EditableJob) -> Result<(), SqlError> {
    let EditableJob {
        name, command, priority, requirements, job_group, completed_command: done_with, ..
    } = job;
    let values = values![name, command, priority, requirements, job_group, done_with, id.0];
    let written = db.execute(sql::EDIT_JOB, values);
    written.map_err(|error| duplicate_in_workflow(error, "jobs", name))?;
    let values = values![job.invocation_script, i64::from(job.cancel_on_blocking_job_failure), id.0];
    db.execute(sql::EDIT_JOB_MORE, values)?;
    Ok(())
}

/// Skipped: its dependents do not wait for it.
fn disable_job(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: JobId,
    from: JobStatus,
) -> Result<(), SqlError> {
    let values = values![JobStatus::Disabled.code(), id.0, workflow.0, from.code()];
    db.execute(sql::SET_STATUS, values)?;
    let mut moved = StatusCountDeltas::default();
    moved.record_move(from, JobStatus::Disabled);
    moved.write_counts(db, workflow)
}

fn read_job(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: JobId,
) -> Result<(JobStatus, EditableJob), SqlError> {
    let found = db.query_optional(sql::EDITED_JOB, [id.0, workflow.0], |row| {
        let job = EditableJob {
            name: row.get(1)?,
            command: row.get(2)?,
            priority: row.get(3)?,
            requirements: row.get(4)?,
            job_group: row.get(5)?,
            completed_command: row.get(6)?,
            invocation_script: row.get(7)?,
            cancel_on_blocking_job_failure: column_decoding::read_flag(row, 8)?,
        };
        Ok((column_decoding::read_status(row, 0)?, job))
    })?;
    found.ok_or_else(|| StoreError::NoSuchJob(id).into())
}

/// An existing set of requirements of the workflow.
fn find_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: RequirementsId,
) -> Result<crate::model::RequirementsRow, SqlError> {
    let found = workflow_parts::find_requirements(db, id)?.filter(|(of, _)| *of == workflow);
    found.map(|(_, row)| row).ok_or_else(|| StoreError::NoSuchRequirementsId(id).into())
}

/// Changes the requirements of the job in place if no other job uses them, else creates new ones.
fn set_runtime(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: JobId,
    job: &EditableJob,
    runtime: std::time::Duration,
    changes: &mut Vec<FieldChange>,
) -> Result<Option<i64>, SqlError> {
    let current =
        job.requirements.map(|id| find_requirements(db, workflow, RequirementsId(id))).transpose()?;
    let old = current.as_ref().map_or(NO_REQUIREMENTS, |row| row.resources);
    if old.runtime == Some(runtime) {
        return Ok(job.requirements);
    }
    let seconds = |runtime: Option<std::time::Duration>| runtime.map(|runtime| runtime.as_secs_f64());
    record_field_change(changes, "runtime_seconds", &seconds(old.runtime), &Some(runtime.as_secs_f64()));
    let resources = Resources { runtime: Some(runtime), ..old };
    if let Some(row) = &current
        && find_requirements_user(db, workflow, row.id, Some(id))?.is_none()
    {
        write_requirements(db, row.id.0, &resources)?;
        return Ok(job.requirements);
    }
    let name = current.map_or_else(|| job.name.clone(), |row| format!("{}_{}", row.name, job.name));
    let inserted = insert_requirements(db, workflow, &name, &resources);
    inserted.map(Some).map_err(|fault| duplicate_in_workflow(fault, "resource requirements", &name))
}

/// Used if memory was not set: every stored value is a limit, and none was requested.
const NO_REQUIREMENTS: Resources = Resources { memory: Bytes(0), ..Resources::DEFAULT };

/// Returns a job other than `except` that uses the requirements.
pub(super) fn find_requirements_user(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: RequirementsId,
    except: Option<JobId>,
) -> Result<Option<(JobId, String)>, SqlError> {
    for block in JobIdBlocks::load(db, workflow)?.iter() {
        let values = [block.first, block.end(), id.0, except.map_or(0, |job| job.0)];
        let found = db
            .query_optional(sql::USER_OF_REQUIREMENTS, values, |row| Ok((JobId(row.get(0)?), row.get(1)?)))?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Labels, handlers and schedulers are stored in the job group: the job gets a copy of its job group with these
/// changed.
fn group_with_update(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    job: &EditableJob,
    update: &JobUpdate,
    changes: &mut Vec<FieldChange>,
) -> Result<Option<i64>, SqlError> {
    let old = match job.job_group {
        Some(job_group) => db.query_one(sql::SHARED_BY_GROUP, [job_group], |row| {
            Ok(JobSettings {
                labels: column_decoding::read_required_json(row, 0)?,
                supports_termination: row.get::<Option<i64>>(1)?.map(|flag| flag != 0),
                failure_handler: row.get(2)?,
                scheduler: row.get(3)?,
                ..JobSettings::default()
            })
        })?,
        None => JobSettings::default(),
    };
    let new = JobSettings {
        labels: update.labels.clone().unwrap_or_else(|| old.labels.clone()),
        supports_termination: update.supports_termination.unwrap_or(old.supports_termination),
        failure_handler: update.failure_handler.unwrap_or(old.failure_handler),
        scheduler: update.scheduler.unwrap_or(old.scheduler),
        ..JobSettings::default()
    };
    if new == old {
        return Ok(job.job_group);
    }
    require_handler_and_scheduler(db, workflow, new.failure_handler, new.scheduler)?;
    record_field_change(changes, "labels", &old.labels, &new.labels);
    record_field_change(
        changes,
        "supports_termination",
        &old.supports_termination,
        &new.supports_termination,
    );
    record_field_change(changes, "failure_handler_id", &old.failure_handler, &new.failure_handler);
    record_field_change(changes, "scheduler_id", &old.scheduler, &new.scheduler);
    let Some(job_group) = job.job_group else {
        let named = JobGroup { name: job.name.clone(), settings: new, ..JobGroup::default() };
        return insert_job_group(db, workflow, &named).map(Some);
    };
    let JobSettings { labels, supports_termination, failure_handler: handler, scheduler, .. } = &new;
    let text = column_decoding::render_json(labels)?;
    let terminates = supports_termination.map(i64::from);
    let like = values![job_group, text, terminates, handler, scheduler];
    let known = db.query_optional(sql::FIND_SIMILAR_GROUP, like, |row| row.get(0))?;
    if known.is_some() {
        return Ok(known);
    }
    let copy = values![text, terminates, handler, scheduler, job_group];
    Ok(Some(db.query_one(sql::COPY_JOB_GROUP, copy, |row| row.get(0))?))
}
