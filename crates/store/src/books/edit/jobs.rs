//! Jobs that a user adds to a workflow, or changes in it.

use super::{compare, in_words};
use crate::Error;
use crate::books::apply::{Moved, current_run};
use crate::books::create::{Counter, JobRows, insert_kind, insert_requirements, next_id, set_next_id, taken};
use crate::books::lists::workflow_of;
use crate::books::load::{Blocks, load_jobs};
use crate::books::manage::{By, write_requirements};
use crate::books::orders::by_hand;
use crate::books::{column, parts};
use crate::db::{Db, Loader as _, values};
use crate::error::Fault;
use crate::model::{AddJob, FieldChange, JobUpdate, NewJob, NewKind, Part};
use crate::sql::{common as sql, tables};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use windlass_core::graph::Graph;
use windlass_core::orders::fits;
use windlass_types::orders::Verdict;
use windlass_types::work::Stdio;
use windlass_types::{Bytes, FileId, JobId, JobStatus, RequirementsId, Resources, UserDataId, WorkflowId};

/// The ids of the new jobs, in the order given.
pub(crate) fn add_jobs(
    db: &impl Db,
    workflow: WorkflowId,
    jobs: &[AddJob],
    by: By<'_>,
) -> Result<Vec<JobId>, Fault> {
    current_run(db, workflow)?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    for job in jobs {
        require_what_it_names(db, workflow, job)?;
    }
    let first = next_id(db, Counter::Job)?;
    extend_blocks(db, workflow, first, jobs.len() as i64)?;
    let edges = find_edges(db, first, jobs)?;
    let blocked: BTreeSet<i64> = edges.iter().map(|(job, _)| *job).collect();
    insert_rows(db, workflow, first, jobs, &blocked)?;
    relate(db, first, jobs)?;
    let mut rows = db.load_into(&tables::JOB_EDGE)?;
    for (job, on) in &edges {
        rows.push(&values![workflow.0, job, on])?;
    }
    rows.finish()?;
    if edges.iter().any(|(job, _)| *job < first) {
        refuse_circles(db, workflow)?;
    }
    let ids: Vec<JobId> = (first..).take(jobs.len()).map(JobId).collect();
    let message = match jobs {
        [one] => format!("added job `{}`", one.name),
        several => format!("added {} jobs", several.len()),
    };
    by.note(db, workflow, "jobs", message, json!({ "first_job_id": first, "jobs": jobs.len() }))?;
    Ok(ids)
}

fn require_what_it_names(db: &impl Db, workflow: WorkflowId, job: &AddJob) -> Result<(), Fault> {
    if let Some(id) = job.requirements {
        requirements_of(db, workflow, id)?;
    }
    for &id in &job.waits_for {
        crate::books::apply::find_job(db, workflow, id)?.ok_or(Error::NoSuchJob(id))?;
    }
    for &FileId(id) in job.input_files.iter().chain(&job.output_files) {
        if !db.exists(sql::FILE_OF, [id, workflow.0])? {
            return Err(Error::NoSuchFile(FileId(id)).into());
        }
    }
    let of_workflow = |part| Ok::<_, Fault>(workflow_of(db, part)? == Some(workflow));
    for &id in job.input_user_data.iter().chain(&job.output_user_data) {
        if !of_workflow(Part::UserData(id))? {
            return Err(Error::NoSuchUserData(id).into());
        }
    }
    require_shared(db, workflow, job.failure_handler, job.scheduler)
}

/// What a job names of what several may share must be its workflow's.
fn require_shared(
    db: &impl Db,
    workflow: WorkflowId,
    handler: Option<i64>,
    scheduler: Option<i64>,
) -> Result<(), Fault> {
    let named = [
        handler.map(|id| (Part::Handler(id), "failure handler", id)),
        scheduler.map(|id| (Part::Scheduler(id), "scheduler", id)),
    ];
    for (part, what, id) in named.into_iter().flatten() {
        if workflow_of(db, part)? != Some(workflow) {
            return Err(Error::NoSuch { what: what.into(), id }.into());
        }
    }
    Ok(())
}

/// The last block goes on if nothing came between, so that jobs added one by one do not make a block each.
fn extend_blocks(db: &impl Db, workflow: WorkflowId, first: i64, count: i64) -> Result<(), Fault> {
    let last = db.optional(sql::LAST_BLOCK, [workflow.0], |row| {
        let spawned_by: Option<i64> = row.get(2)?;
        Ok((row.get::<i64>(0)?, row.get::<i64>(1)?, spawned_by))
    })?;
    match last {
        Some((start, length, None)) if start + length == first => {
            db.execute(sql::SET_BLOCK_LENGTH, [length + count, workflow.0, start])?;
        }
        _ => {
            db.execute(sql::INSERT_BLOCK, [workflow.0, first, count])?;
        }
    }
    Ok(())
}

/// Who is to wait for whom, as `(job, the one it waits for)`: what was said, and what follows from files and user data.
fn find_edges(db: &impl Db, first: i64, jobs: &[AddJob]) -> Result<BTreeSet<(i64, i64)>, Fault> {
    let mut edges = BTreeSet::new();
    let mut uses: HashMap<Thing, Uses> = HashMap::new();
    for (id, job) in (first..).zip(jobs) {
        edges.extend(job.waits_for.iter().map(|on| (id, on.0)));
        for thing in things(&job.input_files, &job.input_user_data) {
            uses.entry(thing).or_default().readers.push(id);
        }
        for thing in things(&job.output_files, &job.output_user_data) {
            uses.entry(thing).or_default().writers.push(id);
        }
    }
    for (thing, uses) in &mut uses {
        note_earlier(db, *thing, uses)?;
    }
    for Uses { readers, writers } in uses.values() {
        let pairs = readers.iter().flat_map(|reader| writers.iter().map(move |writer| (*reader, *writer)));
        // Those that were there before have their edges.
        edges.extend(pairs.filter(|(job, on)| job != on && (*job >= first || *on >= first)));
    }
    Ok(edges)
}

/// What one job leaves for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Thing {
    File(FileId),
    UserData(UserDataId),
}

fn things<'a>(files: &'a [FileId], user_data: &'a [UserDataId]) -> impl Iterator<Item = Thing> + 'a {
    let files = files.iter().copied().map(Thing::File);
    files.chain(user_data.iter().copied().map(Thing::UserData))
}

/// Who reads and writes a thing.
#[derive(Default)]
struct Uses {
    readers: Vec<i64>,
    writers: Vec<i64>,
}

/// Only what the new jobs touch is looked up: clients add jobs one by one, and all of them together must not take the
/// square of the time.
fn note_earlier(db: &impl Db, thing: Thing, uses: &mut Uses) -> Result<(), Fault> {
    let (sql, id) = match thing {
        Thing::File(FileId(id)) => (sql::JOBS_OF_FILE, id),
        Thing::UserData(UserDataId(id)) => (sql::JOBS_OF_USER_DATA, id),
    };
    db.for_each(sql, [id], |row| {
        let list = if column::flag(row, 1)? { &mut uses.writers } else { &mut uses.readers };
        list.push(row.get(0)?);
        Ok(())
    })
}

/// Whether those that wait are really blocked is decided when the workflow runs.
fn insert_rows(
    db: &impl Db,
    workflow: WorkflowId,
    first: i64,
    jobs: &[AddJob],
    blocked: &BTreeSet<i64>,
) -> Result<(), Fault> {
    let mut rows = JobRows::new(db, workflow, first);
    let mut moved = Moved::default();
    let mut kinds = HashMap::new();
    for (id, job) in (first..).zip(jobs) {
        let status = match (job.is_uninitialized, blocked.contains(&id)) {
            (true, _) => JobStatus::Uninitialized,
            (false, true) => JobStatus::Blocked,
            (false, false) => JobStatus::Ready,
        };
        let new = NewJob {
            name: &job.name,
            command: &job.command,
            env: &job.env,
            invocation_script: job.invocation_script.as_deref(),
            priority: job.priority,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
            status,
            ..NewJob::default()
        };
        let kind = Shared::of(job).map(|shared| shared.kind(db, workflow, &mut kinds)).transpose()?;
        rows.push(&new, kind, job.requirements.map(|id| id.0))?;
        moved.add(status);
    }
    rows.finish()?;
    moved.write(db, workflow)?;
    set_next_id(db, Counter::Job, first + jobs.len() as i64)
}

/// What jobs have from a kind. Those that are added one by one and share all of it share a kind, which has no name.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Shared {
    labels: Vec<String>,
    supports_termination: Option<bool>,
    handler: Option<i64>,
    scheduler: Option<i64>,
    stdio: Option<Stdio>,
}

impl Shared {
    /// `None` where nothing was said that a kind would be needed for.
    fn of(job: &AddJob) -> Option<Self> {
        let shared = Self {
            labels: job.labels.clone(),
            supports_termination: job.supports_termination,
            handler: job.failure_handler,
            scheduler: job.scheduler,
            stdio: job.stdio,
        };
        let Self { labels, supports_termination, handler, scheduler, stdio } = &shared;
        let says_something = !labels.is_empty()
            || supports_termination.is_some()
            || handler.is_some()
            || scheduler.is_some()
            || stdio.is_some();
        says_something.then_some(shared)
    }

    fn kind(self, db: &impl Db, workflow: WorkflowId, known: &mut HashMap<Self, i64>) -> Result<i64, Fault> {
        if let Some(&kind) = known.get(&self) {
            return Ok(kind);
        }
        let Self { labels, supports_termination, handler, scheduler, stdio } = &self;
        let text = column::json_text(labels)?;
        let same = values![
            workflow.0,
            text,
            supports_termination.map(i64::from),
            handler,
            scheduler,
            stdio.map(|stdio| column::stdio_name(stdio.mode)),
            stdio.map(|stdio| i64::from(stdio.delete_on_success)),
        ];
        let found = db.optional(sql::NAMELESS_KIND, same, |row| row.get(0))?;
        let new = NewKind {
            labels,
            supports_termination: *supports_termination,
            stdio: *stdio,
            ..NewKind::default()
        };
        let kind = match found {
            Some(kind) => kind,
            None => insert_kind(db, workflow, &new, *handler, *scheduler)?,
        };
        known.insert(self, kind);
        Ok(kind)
    }
}

fn relate(db: &impl Db, first: i64, jobs: &[AddJob]) -> Result<(), Fault> {
    let mut files = db.load_into(&tables::JOB_FILE)?;
    for (id, job) in (first..).zip(jobs) {
        for (list, is_output) in [(&job.input_files, 0i64), (&job.output_files, 1)] {
            for file in list.iter().collect::<BTreeSet<_>>() {
                files.push(&values![id, is_output, file.0])?;
            }
        }
    }
    files.finish()?;
    let mut user_data = db.load_into(&tables::JOB_USER_DATA)?;
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

/// Only an edge to a new job can close a circle, so this is asked for rarely.
pub(super) fn refuse_circles(db: &impl Db, workflow: WorkflowId) -> Result<(), Fault> {
    let table = load_jobs(db, workflow)?;
    let Err(cycle) = Graph::new(table.ids.len() as u32, &table.edges) else { return Ok(()) };
    let ids: Vec<JobId> = cycle.0.iter().map(|number| table.ids[*number as usize]).collect();
    Err(Error::Circle { jobs: crate::books::read::job_names(db, &ids)? }.into())
}

/// A job as it can be changed.
#[derive(Clone)]
struct Edited {
    name: String,
    command: String,
    priority: i32,
    requirements: Option<i64>,
    kind: Option<i64>,
    done_with: Option<String>,
    invocation_script: Option<String>,
    cancel_on_blocking_job_failure: bool,
}

/// What it changed, and nothing if all of it was so already.
pub(crate) fn update_job(
    db: &impl Db,
    workflow: WorkflowId,
    id: JobId,
    update: &JobUpdate,
    by: By<'_>,
) -> Result<Vec<FieldChange>, Fault> {
    let (status, old) = read(db, workflow, id)?;
    if status.is_active() {
        return Err(Error::JobIsHeld { job: id, name: old.name }.into());
    }
    // Before a set that is the job's alone is changed in its place.
    let before = by_hand::edition(db, old.requirements, &old.command, old.priority)?;
    let mut changes = Vec::new();
    let mut new = Edited {
        name: update.name.clone().unwrap_or_else(|| old.name.clone()),
        command: update.command.clone().unwrap_or_else(|| old.command.clone()),
        priority: update.priority.unwrap_or(old.priority),
        invocation_script: update.invocation_script.clone().unwrap_or_else(|| old.invocation_script.clone()),
        cancel_on_blocking_job_failure: update
            .cancel_on_blocking_job_failure
            .unwrap_or(old.cancel_on_blocking_job_failure),
        ..old.clone()
    };
    compare(&mut changes, "name", &old.name, &new.name);
    compare(&mut changes, "command", &old.command, &new.command);
    compare(&mut changes, "priority", &old.priority, &new.priority);
    compare(&mut changes, "invocation_script", &old.invocation_script, &new.invocation_script);
    compare(
        &mut changes,
        "cancel_on_blocking_job_failure",
        &old.cancel_on_blocking_job_failure,
        &new.cancel_on_blocking_job_failure,
    );
    if status == JobStatus::Completed {
        let done_with = old.done_with.clone().unwrap_or_else(|| old.command.clone());
        new.done_with = Some(done_with).filter(|done| *done != new.command);
    }
    if let Some(requirements) = update.requirements {
        requirements_of(db, workflow, requirements)?;
        new.requirements = Some(requirements.0);
        let name =
            |id: Option<i64>| id.map(|id| requirements_of(db, workflow, RequirementsId(id))).transpose();
        let name = |id| name(id).map(|found| found.map(|found| found.name));
        compare(&mut changes, "resource_requirements", &name(old.requirements)?, &name(new.requirements)?);
    }
    if let Some(runtime) = update.runtime {
        new.requirements = set_runtime(db, workflow, id, &new, runtime, &mut changes)?;
    }
    new.kind = with_shared(db, workflow, &new, update, &mut changes)?;
    if update.disable && status != JobStatus::Disabled {
        compare(&mut changes, "status", &status, &JobStatus::Disabled);
        disable(db, workflow, id, status)?;
    }
    if changes.is_empty() {
        return Ok(changes);
    }
    write(db, id, &new)?;
    if fits(Verdict::Change, status) {
        let after = by_hand::edition(db, new.requirements, &new.command, new.priority)?;
        by_hand::note(db, workflow, id, (before, after), by)?;
    }
    let name = &new.name;
    let message = format!("changed job `{}`: {}", old.name, in_words(&changes));
    by.note(db, workflow, "jobs", message, json!({ "job_id": id, "name": name, "changes": changes }))?;
    Ok(changes)
}

fn write(db: &impl Db, id: JobId, job: &Edited) -> Result<(), Fault> {
    let Edited { name, command, priority, requirements, kind, done_with, .. } = job;
    let values = values![name, command, priority, requirements, kind, done_with, id.0];
    let written = db.execute(sql::EDIT_JOB, values);
    written.map_err(|error| taken(error, "jobs", name))?;
    let values = values![job.invocation_script, i64::from(job.cancel_on_blocking_job_failure), id.0];
    db.execute(sql::EDIT_JOB_MORE, values)?;
    Ok(())
}

/// Left out: those that wait for it need not.
fn disable(db: &impl Db, workflow: WorkflowId, id: JobId, from: JobStatus) -> Result<(), Fault> {
    let values = values![JobStatus::Disabled.code(), id.0, workflow.0, from.code()];
    db.execute(sql::SET_STATUS, values)?;
    let mut moved = Moved::default();
    moved.note(from, JobStatus::Disabled);
    moved.write(db, workflow)
}

fn read(db: &impl Db, workflow: WorkflowId, id: JobId) -> Result<(JobStatus, Edited), Fault> {
    let found = db.optional(sql::EDITED_JOB, [id.0, workflow.0], |row| {
        let job = Edited {
            name: row.get(1)?,
            command: row.get(2)?,
            priority: row.get(3)?,
            requirements: row.get(4)?,
            kind: row.get(5)?,
            done_with: row.get(6)?,
            invocation_script: row.get(7)?,
            cancel_on_blocking_job_failure: column::flag(row, 8)?,
        };
        Ok((column::status(row, 0)?, job))
    })?;
    found.ok_or_else(|| Error::NoSuchJob(id).into())
}

/// A set of requirements that the workflow has.
fn requirements_of(
    db: &impl Db,
    workflow: WorkflowId,
    id: RequirementsId,
) -> Result<crate::model::RequirementsRow, Fault> {
    let found = parts::requirements_row(db, id)?.filter(|(of, _)| *of == workflow);
    found.map(|(_, row)| row).ok_or_else(|| Error::NoSuchRequirementsId(id).into())
}

/// Changes the set that the job uses if no other job does, else gives it one of its own.
fn set_runtime(
    db: &impl Db,
    workflow: WorkflowId,
    id: JobId,
    job: &Edited,
    runtime: std::time::Duration,
    changes: &mut Vec<FieldChange>,
) -> Result<Option<i64>, Fault> {
    let current = job.requirements.map(|id| requirements_of(db, workflow, RequirementsId(id))).transpose()?;
    let old = current.as_ref().map_or(UNLIMITED, |row| row.resources);
    if old.runtime == Some(runtime) {
        return Ok(job.requirements);
    }
    let seconds = |runtime: Option<std::time::Duration>| runtime.map(|runtime| runtime.as_secs_f64());
    compare(changes, "runtime_seconds", &seconds(old.runtime), &Some(runtime.as_secs_f64()));
    let resources = Resources { runtime: Some(runtime), ..old };
    if let Some(row) = &current
        && user_of_requirements(db, workflow, row.id, Some(id))?.is_none()
    {
        write_requirements(db, row.id.0, &resources)?;
        return Ok(job.requirements);
    }
    let name = current.map_or_else(|| job.name.clone(), |row| format!("{}_{}", row.name, job.name));
    let inserted = insert_requirements(db, workflow, &name, &resources);
    inserted.map(Some).map_err(|fault| taken(fault, "resource requirements", &name))
}

/// For whom nothing was said: what a set holds is a limit, and memory was not asked to be limited.
const UNLIMITED: Resources = Resources { memory: Bytes(0), ..Resources::DEFAULT };

/// A job that uses the set, other than `except`.
pub(super) fn user_of_requirements(
    db: &impl Db,
    workflow: WorkflowId,
    id: RequirementsId,
    except: Option<JobId>,
) -> Result<Option<(JobId, String)>, Fault> {
    for block in Blocks::read(db, workflow)?.iter() {
        let values = [block.first, block.end(), id.0, except.map_or(0, |job| job.0)];
        let found =
            db.optional(sql::USER_OF_REQUIREMENTS, values, |row| Ok((JobId(row.get(0)?), row.get(1)?)))?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Labels, handlers and schedulers belong to a kind: the job gets one that is like its own but for them.
fn with_shared(
    db: &impl Db,
    workflow: WorkflowId,
    job: &Edited,
    update: &JobUpdate,
    changes: &mut Vec<FieldChange>,
) -> Result<Option<i64>, Fault> {
    let old = match job.kind {
        Some(kind) => db.one(sql::SHARED_BY_KIND, [kind], |row| {
            Ok(Shared {
                labels: column::required_json(row, 0)?,
                supports_termination: row.get::<Option<i64>>(1)?.map(|flag| flag != 0),
                handler: row.get(2)?,
                scheduler: row.get(3)?,
                stdio: None,
            })
        })?,
        None => {
            Shared { labels: vec![], supports_termination: None, handler: None, scheduler: None, stdio: None }
        }
    };
    let new = Shared {
        labels: update.labels.clone().unwrap_or_else(|| old.labels.clone()),
        supports_termination: update.supports_termination.unwrap_or(old.supports_termination),
        handler: update.failure_handler.unwrap_or(old.handler),
        scheduler: update.scheduler.unwrap_or(old.scheduler),
        stdio: None,
    };
    if new == old {
        return Ok(job.kind);
    }
    require_shared(db, workflow, new.handler, new.scheduler)?;
    compare(changes, "labels", &old.labels, &new.labels);
    compare(changes, "supports_termination", &old.supports_termination, &new.supports_termination);
    compare(changes, "failure_handler_id", &old.handler, &new.handler);
    compare(changes, "scheduler_id", &old.scheduler, &new.scheduler);
    let Shared { labels, supports_termination, handler, scheduler, .. } = &new;
    let Some(kind) = job.kind else {
        let named = NewKind {
            name: &job.name,
            labels,
            supports_termination: *supports_termination,
            ..NewKind::default()
        };
        return insert_kind(db, workflow, &named, *handler, *scheduler).map(Some);
    };
    let text = column::json_text(labels)?;
    let terminates = supports_termination.map(i64::from);
    let like = values![kind, text, terminates, handler, scheduler];
    let known = db.optional(sql::KIND_LIKE, like, |row| row.get(0))?;
    if known.is_some() {
        return Ok(known);
    }
    let copy = values![text, terminates, handler, scheduler, kind];
    Ok(Some(db.one(sql::COPY_KIND, copy, |row| row.get(0))?))
}
