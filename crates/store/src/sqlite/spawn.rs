//! Jobs that a running job adds to its own workflow: all of them or none, and once, however often it asks.
//!
//! The dispatcher of the workflow is another process; it finds the new block of jobs when the caller ends.

use super::apply::{Moved, current_run, find_job};
use super::column;
use super::create::{Counter, JobRows, insert_kind, next_id, set_next_id, taken};
use super::manage::By;
use crate::Error;
use crate::error::Fault;
use crate::model::{NewJob, NewKind, SpawnJob, SpawnRequest, Spawned};
use crate::sql::common as sql;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use std::collections::HashMap;
use windlass_types::settings::{DynamicJobs, Settings};
use windlass_types::work::AttemptKey;
use windlass_types::{JobId, JobStatus, Timestamp, WorkflowId};

pub(crate) fn spawn(conn: &Connection, request: &SpawnRequest, by: By<'_>) -> Result<Spawned, Fault> {
    let caller = request.caller;
    if request.jobs.is_empty() {
        return Err(Error::OutOfRange { what: "adding no jobs at all".to_owned() }.into());
    }
    require_running(conn, caller)?;
    if let Some(replay) = find_replay(conn, request)? {
        return Ok(replay);
    }
    let lineage = match &request.lineage {
        Some(lineage) => lineage.clone(),
        None => lineage_of(conn, caller)?,
    };
    let iteration = next_iteration(conn, caller.workflow, &lineage)?;
    let first = insert_jobs(conn, request)?;
    let count = request.jobs.len() as i64;
    let block = params![caller.workflow.0, first, count, caller.job.0, lineage, iteration];
    conn.prepare_cached(sql::INSERT_SPAWNED_BLOCK)?.execute(block)?;
    insert_edges(conn, request, first)?;
    if let Some(state) = &request.state {
        append_state(conn, request, &format!("{lineage}/{iteration}"), state, first, by.now)?;
    }
    let spawned = Spawned {
        lineage,
        iteration,
        spawned_job_ids: (first..first + count).map(JobId).collect(),
        is_replay: false,
    };
    note(conn, caller, &spawned, by)?;
    Ok(spawned)
}

/// A job that started a moment ago may still be `pending` in the books.
fn require_running(conn: &Connection, caller: AttemptKey) -> Result<(), Fault> {
    let found = find_job(conn, caller.workflow, caller.job)?.ok_or(Error::NoSuchJob(caller.job))?;
    let holds = found.status.is_active() && found.attempt == Some(caller.attempt);
    if holds && current_run(conn, caller.workflow)? == caller.run {
        return Ok(());
    }
    Err(Error::NotRunning { caller }.into())
}

/// If all names are those that the same job added together before: what that gave. A name that is taken in any other
/// way is an error.
fn find_replay(conn: &Connection, request: &SpawnRequest) -> Result<Option<Spawned>, Fault> {
    let caller = request.caller;
    let mut ids = Vec::with_capacity(request.jobs.len());
    let mut taken = None;
    let mut statement = conn.prepare_cached(sql::JOB_NAMED)?;
    for job in &request.jobs {
        let id = statement.query_row(params![caller.workflow.0, job.name], |row| row.get(0)).optional()?;
        if let Some(id) = id {
            ids.push(id);
            taken = taken.or(Some(&job.name));
        }
    }
    let Some(taken) = taken else { return Ok(None) };
    let block = SpawnedBlock::around(conn, caller.workflow, ids[0])?;
    let same =
        block.filter(|block| block.spawned_by == caller.job && block.is_made_of(&ids, request.jobs.len()));
    match same {
        Some(block) => Ok(Some(Spawned {
            lineage: block.lineage,
            iteration: block.iteration,
            spawned_job_ids: ids.into_iter().map(JobId).collect(),
            is_replay: true,
        })),
        None => Err(Error::DuplicateJobName { name: taken.clone() }.into()),
    }
}

/// Jobs that were added together.
struct SpawnedBlock {
    first: i64,
    count: i64,
    spawned_by: JobId,
    lineage: String,
    iteration: u32,
}

impl SpawnedBlock {
    /// The one that a job of the workflow is in; none for those that the workflow was created with.
    fn around(conn: &Connection, workflow: WorkflowId, job: i64) -> Result<Option<Self>, Fault> {
        let found = conn.prepare_cached(sql::BLOCK_AROUND)?.query_row([workflow.0, job], |row| {
            let spawned_by: Option<i64> = row.get(2)?;
            let Some(spawned_by) = spawned_by else { return Ok(None) };
            Ok(Some(Self {
                first: row.get(0)?,
                count: row.get(1)?,
                spawned_by: JobId(spawned_by),
                lineage: row.get(3)?,
                iteration: row.get(4)?,
            }))
        });
        Ok(found.optional()?.flatten())
    }

    fn is_made_of(&self, ids: &[i64], asked: usize) -> bool {
        let inside = |id: &i64| (self.first..self.first + self.count).contains(id);
        ids.len() == asked && ids.len() as i64 == self.count && ids.iter().all(inside)
    }
}

/// Where a job came from, else its own name.
fn lineage_of(conn: &Connection, caller: AttemptKey) -> Result<String, Fault> {
    match SpawnedBlock::around(conn, caller.workflow, caller.job.0)? {
        Some(block) => Ok(block.lineage),
        None => Ok(conn.prepare_cached(sql::JOB_NAME)?.query_row([caller.job.0], |row| row.get(0))?),
    }
}

fn next_iteration(conn: &Connection, workflow: WorkflowId, lineage: &str) -> Result<u32, Fault> {
    let last: Option<u32> = conn
        .prepare_cached(sql::LAST_ITERATION)?
        .query_row(params![workflow.0, lineage], |row| row.get(0))?;
    let settings: Settings =
        conn.prepare_cached(sql::SETTINGS)?.query_row([workflow.0], |row| column::required_json(row, 0))?;
    let DynamicJobs { max_iterations: max } = settings.dynamic_jobs.unwrap_or_default();
    let next = last.unwrap_or(0) + 1;
    if next > max {
        return Err(Error::TooManyIterations { lineage: lineage.to_owned(), max }.into());
    }
    Ok(next)
}

/// The id of the first; the others follow.
fn insert_jobs(conn: &Connection, request: &SpawnRequest) -> Result<i64, Fault> {
    let workflow = request.caller.workflow;
    let first = next_id(conn, Counter::Job)?;
    let mut rows = JobRows::new(conn, workflow, first)?;
    let mut kinds = Kinds::default();
    let mut moved = Moved::default();
    for job in &request.jobs {
        let new = NewJob {
            name: &job.name,
            command: &job.command,
            env: &job.env,
            invocation_script: job.invocation_script.as_deref(),
            priority: job.priority,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
            status: JobStatus::Blocked,
            ..NewJob::default()
        };
        rows.push(&new, kinds.of(conn, workflow, job)?, requirements_id(conn, workflow, job)?)?;
        moved.add(JobStatus::Blocked);
    }
    rows.finish()?;
    moved.write(conn, workflow)?;
    let end = first + request.jobs.len() as i64;
    conn.prepare_cached(sql::MARK_SPAWNED)?.execute([first, end])?;
    set_next_id(conn, Counter::Job, end)?;
    Ok(first)
}

fn requirements_id(conn: &Connection, workflow: WorkflowId, job: &SpawnJob) -> Result<Option<i64>, Fault> {
    let Some(name) = &job.resource_requirements else { return Ok(None) };
    let found = conn
        .prepare_cached(sql::REQUIREMENTS_NAMED)?
        .query_row(params![workflow.0, name], |row| row.get(0))
        .optional()?;
    found.map(Some).ok_or_else(|| Error::NoSuchRequirements { name: name.clone() }.into())
}

/// Labels belong to a kind: one for each set of them.
#[derive(Default)]
struct Kinds<'r>(HashMap<&'r [String], i64>);

impl<'r> Kinds<'r> {
    fn of(
        &mut self,
        conn: &Connection,
        workflow: WorkflowId,
        job: &'r SpawnJob,
    ) -> Result<Option<i64>, Fault> {
        let labels = job.labels.as_slice();
        if labels.is_empty() {
            return Ok(None);
        }
        if let Some(&known) = self.0.get(labels) {
            return Ok(Some(known));
        }
        let kind = NewKind { name: &job.name, labels, ..NewKind::default() };
        let id = insert_kind(conn, workflow, &kind, None, None)?;
        self.0.insert(labels, id);
        Ok(Some(id))
    }
}

/// Each waits for the caller, and for those of its company that it names.
fn insert_edges(conn: &Connection, request: &SpawnRequest, first: i64) -> Result<(), Fault> {
    let caller = request.caller;
    let mut statement = conn.prepare_cached(sql::INSERT_EDGE)?;
    for (id, job) in (first..).zip(&request.jobs) {
        statement.execute([caller.workflow.0, id, caller.job.0])?;
        let mut others = job.depends_on.clone();
        others.sort_unstable();
        others.dedup();
        for other in others {
            if other as usize >= request.jobs.len() {
                let what = format!("job {other} of the request, for which `{}` waits,", job.name);
                return Err(Error::OutOfRange { what }.into());
            }
            statement.execute([caller.workflow.0, id, first + i64::from(other)])?;
        }
    }
    Ok(())
}

/// Written by the caller, read by the jobs it adds.
fn append_state(
    conn: &Connection,
    request: &SpawnRequest,
    name: &str,
    state: &Value,
    first: i64,
    now: Timestamp,
) -> Result<(), Fault> {
    let caller = request.caller;
    let id = next_id(conn, Counter::UserData)?;
    let values = params![id, caller.workflow.0, name, column::json_text(state)?, 0, now.0];
    let inserted = conn.prepare_cached(sql::INSERT_USER_DATA)?.execute(values);
    inserted.map_err(|error| taken(error, "pieces of user data", name))?;
    set_next_id(conn, Counter::UserData, id + 1)?;
    let mut relate = conn.prepare_cached(sql::INSERT_JOB_USER_DATA)?;
    relate.execute([caller.job.0, 1, id])?;
    for job in first..first + request.jobs.len() as i64 {
        relate.execute([job, 0, id])?;
    }
    Ok(())
}

fn note(conn: &Connection, caller: AttemptKey, spawned: &Spawned, by: By<'_>) -> Result<(), Fault> {
    let (n, lineage, iteration) = (spawned.spawned_job_ids.len(), &spawned.lineage, spawned.iteration);
    let message = format!("job {} added {n} jobs (iteration {iteration} of `{lineage}`)", caller.job);
    let told = json!({
        "job_id": caller.job, "run_id": caller.run, "attempt_id": caller.attempt,
        "lineage": lineage, "iteration": iteration, "jobs": n,
        "first_job_id": spawned.spawned_job_ids.first(),
    });
    by.note(conn, caller.workflow, "jobs", message, told)
}
