//! Jobs that a user adds to a workflow, or changes in it.

use super::{compare, in_words};
use crate::Error;
use crate::books::apply::{Moved, current_run};
use crate::books::create::{Counter, JobRows, insert_kind, insert_requirements, next_id, set_next_id, taken};
use crate::books::load::{Blocks, load_jobs};
use crate::books::manage::{By, write_requirements};
use crate::books::{column, parts};
use crate::db::{Db, Loader as _, values};
use crate::error::Fault;
use crate::model::{AddJob, FieldChange, JobUpdate, NewJob, NewKind};
use crate::sql::{common as sql, tables};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use windlass_core::graph::Graph;
use windlass_types::{Bytes, FileId, JobId, JobStatus, RequirementsId, Resources, WorkflowId};

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
    let edges = find_edges(db, workflow, first, jobs)?;
    let blocked: BTreeSet<i64> = edges.iter().map(|(job, _)| *job).collect();
    insert_rows(db, workflow, first, jobs, &blocked)?;
    relate_files(db, first, jobs)?;
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

/// Who is to wait for whom, as `(job, the one it waits for)`: what was said, and what follows from the files.
fn find_edges(
    db: &impl Db,
    workflow: WorkflowId,
    first: i64,
    jobs: &[AddJob],
) -> Result<BTreeSet<(i64, i64)>, Fault> {
    let mut edges = BTreeSet::new();
    let mut uses: HashMap<FileId, Uses> = HashMap::new();
    for (id, job) in (first..).zip(jobs) {
        edges.extend(job.waits_for.iter().map(|on| (id, on.0)));
        job.input_files.iter().for_each(|file| uses.entry(*file).or_default().readers.push(id));
        job.output_files.iter().for_each(|file| uses.entry(*file).or_default().writers.push(id));
    }
    if uses.is_empty() {
        return Ok(edges);
    }
    for relation in parts::job_files(db, workflow)? {
        if let Some(uses) = uses.get_mut(&relation.file_id) {
            let list = if relation.is_output { &mut uses.writers } else { &mut uses.readers };
            list.push(relation.job_id.0);
        }
    }
    for Uses { readers, writers } in uses.values() {
        let pairs = readers.iter().flat_map(|reader| writers.iter().map(move |writer| (*reader, *writer)));
        // Those that were there before have their edges.
        edges.extend(pairs.filter(|(job, on)| job != on && (*job >= first || *on >= first)));
    }
    Ok(edges)
}

/// Who reads and writes a file.
#[derive(Default)]
struct Uses {
    readers: Vec<i64>,
    writers: Vec<i64>,
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
    for (id, job) in (first..).zip(jobs) {
        let status = if blocked.contains(&id) { JobStatus::Blocked } else { JobStatus::Ready };
        let new = NewJob {
            name: &job.name,
            command: &job.command,
            priority: job.priority,
            status,
            ..NewJob::default()
        };
        rows.push(&new, None, job.requirements.map(|id| id.0))?;
        moved.add(status);
    }
    rows.finish()?;
    moved.write(db, workflow)?;
    set_next_id(db, Counter::Job, first + jobs.len() as i64)
}

fn relate_files(db: &impl Db, first: i64, jobs: &[AddJob]) -> Result<(), Fault> {
    let mut relate = db.load_into(&tables::JOB_FILE)?;
    for (id, job) in (first..).zip(jobs) {
        for (list, is_output) in [(&job.input_files, 0), (&job.output_files, 1)] {
            for file in list.iter().collect::<BTreeSet<_>>() {
                relate.push(&values![id, is_output, file.0])?;
            }
        }
        if !job.input_files.is_empty() || !job.output_files.is_empty() {
            db.execute(sql::HAS_FILES, [id])?;
        }
    }
    relate.finish()
}

/// Only an edge to a new job can close a circle, so this is asked for rarely.
fn refuse_circles(db: &impl Db, workflow: WorkflowId) -> Result<(), Fault> {
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
    let mut changes = Vec::new();
    let mut new = Edited {
        name: update.name.clone().unwrap_or_else(|| old.name.clone()),
        command: update.command.clone().unwrap_or_else(|| old.command.clone()),
        priority: update.priority.unwrap_or(old.priority),
        ..old.clone()
    };
    compare(&mut changes, "name", &old.name, &new.name);
    compare(&mut changes, "command", &old.command, &new.command);
    compare(&mut changes, "priority", &old.priority, &new.priority);
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
    if let Some(labels) = &update.labels {
        new.kind = with_labels(db, workflow, &new, labels, &mut changes)?;
    }
    if changes.is_empty() {
        return Ok(changes);
    }
    let Edited { name, command, priority, requirements, kind, done_with } = &new;
    let values = values![name, command, priority, requirements, kind, done_with, id.0];
    let written = db.execute(sql::EDIT_JOB, values);
    written.map_err(|error| taken(error, "jobs", name))?;
    let message = format!("changed job `{}`: {}", old.name, in_words(&changes));
    by.note(db, workflow, "jobs", message, json!({ "job_id": id, "name": name, "changes": changes }))?;
    Ok(changes)
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

/// Labels belong to a kind: the job gets one that is like its own but for them.
fn with_labels(
    db: &impl Db,
    workflow: WorkflowId,
    job: &Edited,
    labels: &[String],
    changes: &mut Vec<FieldChange>,
) -> Result<Option<i64>, Fault> {
    let old: Vec<String> = match job.kind {
        Some(kind) => db.one(sql::LABELS, [kind], |row| column::required_json(row, 0))?,
        None => Vec::new(),
    };
    if old == labels {
        return Ok(job.kind);
    }
    compare(changes, "labels", &old.as_slice(), &labels);
    let Some(kind) = job.kind else {
        let new = NewKind { name: &job.name, labels, ..NewKind::default() };
        return insert_kind(db, workflow, &new, None, None).map(Some);
    };
    let text = column::json_text(labels)?;
    let same = values![kind, text];
    let known = db.optional(sql::KIND_WITH_LABELS, same, |row| row.get(0))?;
    if known.is_some() {
        return Ok(known);
    }
    let copy = values![text, kind];
    Ok(Some(db.one(sql::COPY_KIND, copy, |row| row.get(0))?))
}
