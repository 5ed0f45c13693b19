//! Explains the status of a job: collects the facts, which `windlass_core::job_explanation` evaluates.

use crate::workflow_phase::has_active_process;
use crate::{allocation_planning, log_tail, logs};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::dependency_graph::DependencyCycle;
use windlass_core::dispatch::LocationConstraint;
use windlass_core::job_explanation::{
    self, AttemptSummary, ExplanationEvidence, JobAllocations, JobExplanation, JobGraphView, JobLogTail,
    JobSituation, LimitUsage, WorkUnitLimitUsage, WorkerAvailability, WorkflowSituation,
};
use windlass_core::workflow_state::{JobTable, WorkUnitRow};
use windlass_store::Store;
use windlass_store::model::{
    AllocationFilter, EventFilter, JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow,
};
use windlass_types::slurm::Allocation;
use windlass_types::{JobId, JobStatus, Timestamp, WorkerId};

/// Bytes at the end of each log that are searched for errors.
const LOG_LINES: usize = 2000;
/// Maximum length of a line.
const LOG_BYTES: u64 = 8 << 20;
/// Number of similar jobs used for the usual duration.
const MAX_SIBLINGS: u64 = 50;

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Store(#[from] windlass_store::StoreError),
    #[error("cannot read {name}: {source}")]
    Log { name: String, source: io::Error },
    #[error(transparent)]
    Cycle(DependencyCycle),
    #[error("job {0} is in the list of jobs but not in the workflow")]
    Gone(JobId),
}

/// Facts that only the caller knows.
#[derive(Clone, Copy)]
pub struct ExplainContext<'a> {
    pub now: Timestamp,
    /// Whether the workflow is managed by a server: workers come and go.
    pub is_on_server: bool,
    /// Workers that may run jobs of the workflow.
    pub workers: &'a [WorkerAvailability],
    /// How a path is shown.
    pub name_file: &'a dyn Fn(&Path) -> String,
}

impl std::fmt::Debug for ExplainContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExplainContext").field("is_served", &self.is_on_server).finish_non_exhaustive()
    }
}

/// Collects the facts about the job and returns the explanation.
pub fn explain_job(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
    asker: ExplainContext<'_>,
) -> Result<JobExplanation, ExplainError> {
    let table = store.load_jobs(workflow.id)?;
    let number = table.ids.binary_search(&job.id).map_err(|_| ExplainError::Gone(job.id))?;
    let newest = load_newest_result(store, workflow, job.id)?;
    let outcome = newest.as_ref().map(attempt_outcome);
    let logs = newest.as_ref().map(|row| load_logs(workflow, row, asker)).transpose()?.unwrap_or_default();
    let quoted: Vec<JobLogTail<'_>> = logs.iter().map(LoadedLog::as_evidence).collect();
    let place = job_location(&table, number as u32);
    let problem = if job.status == JobStatus::Ready { load_start_problem(store, workflow)? } else { None };
    let class = table.class[number];
    let nodes =
        if job.status == JobStatus::Ready { load_allocations(store, workflow, &place)? } else { None };
    let situation = JobSituation {
        now: asker.now,
        id: job.id,
        job: number as u32,
        asked: (class != 0).then(|| table.requirements[class as usize]),
        worker: load_worker(store, workflow, job)?,
        started_at: job.started_at,
        not_before: earliest_retry(&table, number as u32, asker.now),
        outcome: outcome.as_ref(),
        labels: &place.labels,
        sites: &place.sites,
        limit: job_limit(workflow, &table, &place),
        unit_limit: load_unit_limit(store, workflow, &place)?,
        start_problem: problem.as_deref(),
        allocations: nodes.as_ref().map(|(allocations, is_to_be_asked)| JobAllocations {
            allocations,
            has_pending_action: *is_to_be_asked,
        }),
        typical_runtime: load_usual_duration(store, workflow, job)?,
        logs: &quoted,
        workflow: WorkflowSituation {
            id: workflow.id,
            is_canceled: workflow.is_canceled,
            has_scheduler: has_active_process(store, workflow),
            has_server: asker.is_on_server,
            workers: asker.workers,
        },
        graph: JobGraphView {
            count: table.ids.len() as u32,
            edges: &table.edges,
            id: &|number| table.ids[number as usize],
            name: &|number| load_job_name(store, table.ids[number as usize]),
            status: &|number| table.status[number as usize],
            outcome: &|number| {
                // An unreadable name or log is omitted; the rest of the explanation is still useful.
                load_newest_result(store, workflow, table.ids[number as usize])
                    .ok()
                    .flatten()
                    .as_ref()
                    .map(attempt_outcome)
            },
        },
    };
    let mut explanation = job_explanation::explain_job(&situation).map_err(ExplainError::Cycle)?;
    let script = newest.as_ref().and_then(|row| Some((row.key.attempt_id, row.recovered.as_ref()?)));
    if let Some((attempt, how)) = script.filter(|(_, how)| !how.succeeded()) {
        let text = format!("the recovery script before attempt {attempt} {how}");
        explanation.evidence.push(ExplanationEvidence::Fact { text });
    }
    Ok(explanation)
}

/// Returns when a job that waits for its retry may be claimed; the wait is at most the configured one.
fn earliest_retry(table: &JobTable, job: u32, now: Timestamp) -> Option<Timestamp> {
    let (_, inherited) = table.inherited.iter().find(|(other, _)| *other == job)?;
    let latest = now.plus(inherited.delay.unwrap_or(Duration::MAX));
    Some(inherited.not_before?.min(latest))
}

/// The worker that holds the job.
fn load_worker(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Option<WorkerId>, ExplainError> {
    if !job.status.is_active() {
        return Ok(None);
    }
    let held = store.held_jobs(workflow.id)?;
    Ok(held.iter().find(|held| held.id == job.id).map(|held| held.worker))
}

/// Returns the location of the job. Jobs of a unit run at its site, except the landing job that selects it.
fn job_location(table: &JobTable, job: u32) -> LocationConstraint {
    let mut place = table.location_of(job as usize);
    let is_in =
        |unit: &&WorkUnitRow| unit.jobs.iter().any(|(first, count)| (*first..first + count).contains(&job));
    let unit = table.units.iter().find(is_in).filter(|_| !place.elects);
    if let Some(site) = unit.and_then(|unit| unit.site.clone()) {
        place.sites = vec![site];
    }
    place
}

/// Returns the allocations in which a job of this location could run, and whether an action may still request
/// one. `None`: the workflow does not run on Slurm.
fn load_allocations(
    store: &dyn Store,
    workflow: &WorkflowRow,
    place: &LocationConstraint,
) -> Result<Option<(Vec<Allocation>, bool)>, ExplainError> {
    if !allocation_planning::is_on_slurm(store, workflow.id)? {
        return Ok(None);
    }
    let filter = AllocationFilter { workflow: Some(workflow.id), ..AllocationFilter::default() };
    let mut rows = store.allocations(&filter)?;
    // Other allocations also run the job, but only if they have nothing else to do.
    rows.retain(|row| place.scheduler.is_none() || row.scheduler == place.scheduler);
    Ok(Some((rows, allocation_planning::has_due_action(store, workflow.id)?)))
}

/// Returns the job limit for this location, and how much of it is used.
fn job_limit<'a>(
    workflow: &'a WorkflowRow,
    table: &JobTable,
    place: &LocationConstraint,
) -> Option<LimitUsage<'a>> {
    let (name, most) = workflow.settings.limits.get_key_value(place.limit.as_ref()?)?;
    let names_it: Vec<bool> = table.places.iter().map(|place| place.limit.as_ref() == Some(name)).collect();
    let jobs = table.status.iter().zip(&table.place);
    let claimed = jobs.filter(|(status, place)| status.is_active() && names_it[**place as usize]).count();
    Some(LimitUsage { name, max_claimed: *most, claimed: u32::try_from(claimed).unwrap_or(u32::MAX) })
}

/// Returns the maximum number of active units, for a job that starts one.
fn load_unit_limit(
    store: &dyn Store,
    workflow: &WorkflowRow,
    place: &LocationConstraint,
) -> Result<Option<WorkUnitLimitUsage>, ExplainError> {
    let Some(most) = workflow.settings.max_units.filter(|_| place.elects) else { return Ok(None) };
    Ok(Some(WorkUnitLimitUsage {
        max_active: most,
        active_units: store.work_unit_counts(workflow.id)?.active,
    }))
}

/// Returns the message of the last worker that could not start a job of the workflow.
fn load_start_problem(store: &dyn Store, workflow: &WorkflowRow) -> Result<Option<String>, ExplainError> {
    let category = Some(windlass_store::model::WORKER_PROBLEM_CATEGORY.to_owned());
    let filter = EventFilter { category, newest: Some(1), ..EventFilter::default() };
    Ok(store.events(Some(workflow.id), &filter)?.pop().map(|event| event.message))
}

fn load_job_name(store: &dyn Store, job: JobId) -> String {
    store.job_names(&[job]).ok().and_then(|mut names| names.pop()).unwrap_or_default()
}

/// Of the newest run in which the job ran.
fn load_newest_result(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: JobId,
) -> Result<Option<ResultRow>, ExplainError> {
    let filter = ResultFilter { job: Some(job), ..ResultFilter::default() };
    let rows = store.results(workflow.id, &filter)?;
    Ok(rows.into_iter().max_by_key(|row| (row.key.run_id, row.key.attempt_id)))
}

fn attempt_outcome(row: &ResultRow) -> AttemptSummary {
    AttemptSummary {
        attempt: row.key.attempt_id,
        status: row.status,
        return_code: row.return_code,
        signal: row.signal,
        out_of_memory: row.out_of_memory,
        reason: row.reason.clone(),
        ended_at: row.ended_at,
        wall: row.wall,
        peak_memory: row.peak_memory_bytes,
    }
}

/// Returns the median duration of completed jobs of the same job group, if there are enough of them.
fn load_usual_duration(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Option<Duration>, ExplainError> {
    if job.status != JobStatus::Running || job.kind.is_none() {
        return Ok(None);
    }
    let Some(kind) =
        store.job_groups(workflow.id)?.into_iter().find(|kind| Some(&kind.group.name) == job.kind.as_ref())
    else {
        return Ok(None);
    };
    let filter = JobFilter {
        kind: Some(kind.id),
        status: vec![JobStatus::Completed],
        limit: Some(MAX_SIBLINGS),
        ..JobFilter::default()
    };
    let mut walls = Vec::new();
    for sibling in store.jobs(workflow.id, &filter)? {
        walls.extend(load_newest_result(store, workflow, sibling.id)?.map(|row| row.wall));
    }
    walls.sort_unstable();
    Ok((walls.len() >= 3).then(|| walls[walls.len() / 2]))
}

/// Reads the end of a log.
struct LoadedLog {
    name: String,
    tail: log_tail::LogFileTail,
}

impl LoadedLog {
    fn as_evidence(&self) -> JobLogTail<'_> {
        let skipped_lines = self.tail.skipped_lines.unwrap_or_default();
        JobLogTail { name: &self.name, text: &self.tail.text, skipped_lines }
    }
}

/// The most informative log comes first. An attempt without output has no files.
fn load_logs(
    workflow: &WorkflowRow,
    row: &ResultRow,
    asker: ExplainContext<'_>,
) -> Result<Vec<LoadedLog>, ExplainError> {
    let paths = logs::existing_logs(workflow, row.key.into()).into_iter().map(|(_, path)| path);
    let read = |path: PathBuf| {
        let name = (asker.name_file)(&path);
        match log_tail::read_log_tail(&path, LOG_LINES, LOG_BYTES) {
            Ok(tail) => tail.map(|tail| Ok(LoadedLog { name, tail })),
            Err(source) => Some(Err(ExplainError::Log { name, source })),
        }
    };
    paths.filter_map(read).collect()
}
