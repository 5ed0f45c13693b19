//! Jobs that a running job adds to its own workflow: all or none, and idempotent. [`spawned_blocks`] describes
//! what happens to them when that job runs again.
//!
//! The scheduler of the workflow is another process; it finds the new block of jobs when the caller ends.

mod spawned_blocks;

pub(crate) use spawned_blocks::{list_not_respawned, list_spawning_jobs};

use super::apply_changes::{StatusCountDeltas, current_run, find_job_state};
use super::create::{
    IdCounter, JobRowWriter, NewJobRow, duplicate_in_workflow, insert_job_group, next_id, set_next_id,
};
use super::workflow_updates::AuditContext;
use super::{column_decoding, workflow_parts};
use crate::StoreError;
use crate::db::{BulkLoader as _, SqlConnection, values};
use crate::error::SqlError;
use crate::model::{SpawnJob, SpawnRequest, SpawnResult};
use crate::sql::{common as sql, tables};
use serde_json::{Value, json};
use spawned_blocks::SpawnedBlock;
use std::collections::HashMap;
use windlass_types::settings::{DynamicJobSettings, WorkflowSettings};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobDefinition, JobGroup, JobId, JobSettings, JobStatus, Timestamp, WorkflowId};

pub(crate) fn spawn_jobs(
    db: &impl SqlConnection,
    request: &SpawnRequest,
    by: AuditContext<'_>,
) -> Result<SpawnResult, SqlError> {
    let caller = request.caller;
    if request.jobs.is_empty() {
        return Err(StoreError::OutOfRange { what: "no jobs to add".to_owned() }.into());
    }
    require_running(db, caller)?;
    let digest = digest_request(request);
    match find_earlier(db, request, &digest)? {
        EarlierSpawn::Same(block, ids) => return repeat_spawn(db, request, block, ids, by.now),
        EarlierSpawn::Outdated(blocks) => spawned_blocks::replace_blocks(db, caller.workflow, blocks)?,
    }
    let lineage = match &request.lineage {
        Some(lineage) => lineage.clone(),
        None => find_lineage(db, caller)?,
    };
    let iteration = next_iteration(db, caller, &lineage)?;
    let first = insert_jobs(db, request)?;
    let count = request.jobs.len() as i64;
    if let Some(state) = &request.state {
        let name = state_data_name(&lineage, iteration);
        rename_old_state(db, caller.workflow, &lineage, iteration)?;
        append_state(db, request, &name, state, first, by.now)?;
    }
    let (run, attempt) = (caller.run.0, caller.attempt.0);
    let block =
        values![caller.workflow.0, first, count, caller.job.0, lineage, iteration, digest, run, attempt];
    db.execute(sql::INSERT_SPAWNED_BLOCK, block)?;
    insert_edges(db, request, first)?;
    let spawned = SpawnResult {
        lineage,
        iteration,
        spawned_job_ids: (first..first + count).map(JobId).collect(),
        is_replay: false,
    };
    record_spawn_event(db, caller, &spawned, by)?;
    Ok(spawned)
}

/// A repeated call: the jobs exist, but the state of the iteration is updated.
fn repeat_spawn(
    db: &impl SqlConnection,
    request: &SpawnRequest,
    block: SpawnedBlock,
    ids: Vec<JobId>,
    now: Timestamp,
) -> Result<SpawnResult, SqlError> {
    block.mark_requested_by(db, request.caller)?;
    if let Some(state) = &request.state {
        let name = state_data_name(&block.lineage, block.iteration);
        match find_state(db, request.caller.workflow, &name)? {
            Some(id) => {
                let state = column_decoding::render_json(state)?;
                db.execute(sql::SET_USER_DATA, values![state, now.0, id])?;
            }
            None => append_state(db, request, &name, state, block.first, now)?,
        }
    }
    Ok(SpawnResult {
        lineage: block.lineage,
        iteration: block.iteration,
        spawned_job_ids: ids,
        is_replay: true,
    })
}

/// A job that has just started may still be `pending` in the database.
fn require_running(db: &impl SqlConnection, caller: AttemptKey) -> Result<(), SqlError> {
    let found = find_job_state(db, caller.workflow, caller.job)?.ok_or(StoreError::NoSuchJob(caller.job))?;
    let holds = found.status.is_active() && found.attempt == Some(caller.attempt);
    if holds && current_run(db, caller.workflow)? == caller.run {
        return Ok(());
    }
    Err(StoreError::NotRunning { caller }.into())
}

/// Digest of the request, independent of its order.
fn digest_request(request: &SpawnRequest) -> String {
    let name = |number: &u32| request.jobs.get(*number as usize).map(|job| job.definition.name.as_str());
    let mut jobs: Vec<Value> = request
        .jobs
        .iter()
        .map(|SpawnJob { definition: job, depends_on }| {
            let mut waits_for: Vec<Option<&str>> = depends_on.iter().map(name).collect();
            waits_for.sort_unstable();
            waits_for.dedup();
            json!([
                job.name,
                job.command,
                waits_for,
                job.resource_requirements,
                job.priority,
                job.settings.labels,
                job.cancel_on_blocking_job_failure,
                job.env,
                job.invocation_script
            ])
        })
        .collect();
    jobs.sort_unstable_by_key(ToString::to_string);
    windlass_types::digest_bytes(Value::from(jobs).to_string().as_bytes())
}

/// Existing jobs with the requested names.
enum EarlierSpawn {
    /// The same request: the block, and the ids in the order of the request.
    Same(SpawnedBlock, Vec<JobId>),
    /// Blocks of an earlier attempt that this one does not request unchanged. Usually empty.
    Outdated(Vec<SpawnedBlock>),
}

/// A name used by a job that cannot be replaced is an error.
fn find_earlier(
    db: &impl SqlConnection,
    request: &SpawnRequest,
    digest: &str,
) -> Result<EarlierSpawn, SqlError> {
    let caller = request.caller;
    let mut ids = Vec::with_capacity(request.jobs.len());
    let mut blocks: Vec<SpawnedBlock> = Vec::new();
    for SpawnJob { definition: job, .. } in &request.jobs {
        let id: Option<i64> =
            db.query_optional(sql::JOB_NAMED, values![caller.workflow.0, job.name], |row| row.get(0))?;
        let Some(id) = id else { continue };
        ids.push(JobId(id));
        if blocks.iter().any(|block| block.ids().contains(&id)) {
            continue;
        }
        let taken = || StoreError::DuplicateJobName { name: job.name.clone() };
        let block = SpawnedBlock::find_containing(db, caller.workflow, id)?.ok_or_else(taken)?;
        if !block.is_replay(db, request, digest)? && !block.may_be_replaced(db, caller)? {
            return Err(taken().into());
        }
        blocks.push(block);
    }
    match blocks.as_slice() {
        [block] if block.is_replay(db, request, digest)? => Ok(EarlierSpawn::Same(block.clone(), ids)),
        _ => Ok(EarlierSpawn::Outdated(blocks)),
    }
}

/// Returns the lineage of a job, else its own name.
fn find_lineage(db: &impl SqlConnection, caller: AttemptKey) -> Result<String, SqlError> {
    match SpawnedBlock::find_containing(db, caller.workflow, caller.job.0)? {
        Some(block) => Ok(block.lineage),
        None => Ok(db.query_one(sql::JOB_NAME, [caller.job.0], |row| row.get(0))?),
    }
}

fn next_iteration(db: &impl SqlConnection, caller: AttemptKey, lineage: &str) -> Result<u32, SqlError> {
    let settings: WorkflowSettings =
        db.query_one(sql::SETTINGS, [caller.workflow.0], |row| column_decoding::read_required_json(row, 0))?;
    let DynamicJobSettings { max_iterations: max } = settings.dynamic_jobs.unwrap_or_default();
    let next = spawned_blocks::last_iteration(db, caller, lineage)? + 1;
    if next > max {
        return Err(StoreError::TooManyIterations { lineage: lineage.to_owned(), max }.into());
    }
    Ok(next)
}

/// Returns the first id; the others follow.
fn insert_jobs(db: &impl SqlConnection, request: &SpawnRequest) -> Result<i64, SqlError> {
    let workflow = request.caller.workflow;
    let first = next_id(db, IdCounter::Job)?;
    let mut rows = JobRowWriter::new(db, workflow, first);
    let mut job_groups = SpawnJobGroups::default();
    let mut moved = StatusCountDeltas::default();
    for SpawnJob { definition: job, .. } in &request.jobs {
        let job_group = job_groups.find_or_create(db, workflow, job)?;
        let requirements = find_requirements_id(db, workflow, job)?;
        rows.push(job, &NewJobRow::new(JobStatus::Blocked, job_group, requirements))?;
        moved.add(JobStatus::Blocked);
    }
    rows.finish()?;
    moved.write_counts(db, workflow)?;
    let end = first + request.jobs.len() as i64;
    db.execute(sql::MARK_SPAWNED, [first, end])?;
    set_next_id(db, IdCounter::Job, end)?;
    Ok(first)
}

fn find_requirements_id(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    job: &JobDefinition,
) -> Result<Option<i64>, SqlError> {
    let Some(name) = &job.resource_requirements else { return Ok(None) };
    let found = db.query_optional(sql::REQUIREMENTS_NAMED, values![workflow.0, name], |row| row.get(0))?;
    found.map(Some).ok_or_else(|| StoreError::NoSuchRequirements { name: name.clone() }.into())
}

/// The job groups of added jobs: one for all jobs with the same settings.
#[derive(Default)]
struct SpawnJobGroups(HashMap<JobSettings<i64>, i64>);

impl SpawnJobGroups {
    fn find_or_create(
        &mut self,
        db: &impl SqlConnection,
        workflow: WorkflowId,
        job: &JobDefinition,
    ) -> Result<Option<i64>, SqlError> {
        let missing = |what: &'static str, name: String| StoreError::NoSuchName { what: what.into(), name };
        let settings = job.settings.clone().try_map_references(
            |name| {
                let handlers = workflow_parts::list_handlers(db, workflow)?;
                let found = handlers.iter().find(|row| row.handler.name == name).map(|row| row.id);
                Ok::<_, SqlError>(found.ok_or_else(|| missing("failure handler", name))?)
            },
            |name| {
                let schedulers = workflow_parts::list_schedulers(db, workflow)?;
                let found = schedulers.iter().find(|row| row.scheduler.name == name).map(|row| row.id);
                Ok(found.ok_or_else(|| missing("scheduler", name))?)
            },
        )?;
        if settings == JobSettings::default() {
            return Ok(None);
        }
        if let Some(&known) = self.0.get(&settings) {
            return Ok(Some(known));
        }
        let name = job.name.clone();
        let job_group = JobGroup { name, settings: settings.clone(), ..JobGroup::default() };
        let id = insert_job_group(db, workflow, &job_group)?;
        self.0.insert(settings, id);
        Ok(Some(id))
    }
}

/// Each job depends on the caller, and on the other new jobs that it names.
fn insert_edges(db: &impl SqlConnection, request: &SpawnRequest, first: i64) -> Result<(), SqlError> {
    let caller = request.caller;
    let mut rows = db.open_loader(&tables::JOB_EDGE)?;
    for (id, job) in (first..).zip(&request.jobs) {
        rows.push(&values![caller.workflow.0, id, caller.job.0])?;
        let mut others = job.depends_on.clone();
        others.sort_unstable();
        others.dedup();
        for other in others {
            if other as usize >= request.jobs.len() {
                let what = format!("job {other} of the request, a dependency of `{}`", job.definition.name);
                return Err(StoreError::OutOfRange { what }.into());
            }
            rows.push(&values![caller.workflow.0, id, first + i64::from(other)])?;
        }
    }
    rows.finish()
}

fn state_data_name(lineage: &str, iteration: u32) -> String {
    format!("{lineage}/{iteration}")
}

fn find_state(db: &impl SqlConnection, workflow: WorkflowId, name: &str) -> Result<Option<i64>, SqlError> {
    let values = values![workflow.0, name];
    db.query_optional(sql::USER_DATA_NAMED, values, |row| row.get(0))
}

/// If the iteration was counted before and no longer counts, its earlier state is kept under another name.
fn rename_old_state(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    lineage: &str,
    iteration: u32,
) -> Result<(), SqlError> {
    let values = values![workflow.0, lineage, iteration];
    let before: i64 = db.query_one(sql::BLOCKS_OF_ITERATION, values, |row| row.get(0))?;
    let name = state_data_name(lineage, iteration);
    if let Some(id) = find_state(db, workflow, &name)?.filter(|_| before > 0) {
        let free =
            spawned_blocks::find_free_name(&name, |name| Ok(find_state(db, workflow, name)?.is_some()))?;
        db.execute(sql::RENAME_USER_DATA, values![free, id])?;
    }
    Ok(())
}

/// Written by the caller, read by the jobs it adds.
fn append_state(
    db: &impl SqlConnection,
    request: &SpawnRequest,
    name: &str,
    state: &Value,
    first: i64,
    now: Timestamp,
) -> Result<(), SqlError> {
    let caller = request.caller;
    let id = next_id(db, IdCounter::UserData)?;
    let state = column_decoding::render_json(state)?;
    let values = values![id, caller.workflow.0, name, state, 0i64, now.0];
    let inserted = db.execute(sql::INSERT_USER_DATA, values);
    inserted.map_err(|error| duplicate_in_workflow(error, "user data entries", name))?;
    set_next_id(db, IdCounter::UserData, id + 1)?;
    let mut relate = db.open_loader(&tables::JOB_USER_DATA)?;
    relate.push(&values![caller.job.0, 1i64, id])?;
    for job in first..first + request.jobs.len() as i64 {
        relate.push(&values![job, 0i64, id])?;
    }
    relate.finish()
}

fn record_spawn_event(
    db: &impl SqlConnection,
    caller: AttemptKey,
    spawned: &SpawnResult,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let (n, lineage, iteration) = (spawned.spawned_job_ids.len(), &spawned.lineage, spawned.iteration);
    let message = format!("job {} added {n} jobs (iteration {iteration} of `{lineage}`)", caller.job);
    let told = json!({
        "job_id": caller.job, "run_id": caller.run, "attempt_id": caller.attempt,
        "lineage": lineage, "iteration": iteration, "jobs": n,
        "first_job_id": spawned.spawned_job_ids.first(),
    });
    by.record_event(db, caller.workflow, "jobs", message, told)
}
