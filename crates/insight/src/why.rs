//! Why a job is where it is: the facts are gathered here and judged by `windlass_core::why`.

use crate::standing::is_run_by_somebody;
use crate::{allocating, logs, tail};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::board::{JobTable, TableUnit};
use windlass_core::dispatch::Place;
use windlass_core::graph::Cycle;
use windlass_core::why::{
    self, Evidence, Jobs, Limit, Log, Nodes, Offer, Outcome, Situation, UnitLimit, Verdict, Workflow,
};
use windlass_store::Store;
use windlass_store::model::{
    AllocationFilter, EventFilter, JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow,
};
use windlass_types::slurm::Allocation;
use windlass_types::{JobId, JobStatus, Timestamp, WorkerId};

/// So much of the end of each log is searched for what went wrong.
const LOG_LINES: usize = 2000;
/// Longer lines than logs have.
const LOG_BYTES: u64 = 8 << 20;
/// So many of its siblings tell how long a job usually takes.
const SIBLINGS: u64 = 50;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] windlass_store::Error),
    #[error("cannot read {name}: {source}")]
    Log { name: String, source: io::Error },
    #[error(transparent)]
    Cycle(Cycle),
    #[error("job {0} is in the list of jobs but not in the workflow")]
    Gone(JobId),
}

/// What only the asker knows.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub now: Timestamp,
    /// The workflow is at a server: workers come and go.
    pub is_served: bool,
    /// Those who may work on it.
    pub workers: &'a [Offer],
    /// How he calls a file.
    pub name_of: &'a dyn Fn(&Path) -> String,
}

impl std::fmt::Debug for Asker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("is_served", &self.is_served).finish_non_exhaustive()
    }
}

/// Gathers what is known about the job and asks for the verdict.
pub fn explain(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
    asker: Asker<'_>,
) -> Result<Verdict, Error> {
    let table = store.load_jobs(workflow.id)?;
    let number = table.ids.binary_search(&job.id).map_err(|_| Error::Gone(job.id))?;
    let newest = newest_result(store, workflow, job.id)?;
    let outcome = newest.as_ref().map(outcome_of);
    let logs = newest.as_ref().map(|row| read_logs(workflow, row, asker)).transpose()?.unwrap_or_default();
    let quoted: Vec<Log<'_>> = logs.iter().map(ReadLog::quoted).collect();
    let place = place_of(&table, number as u32);
    let trouble = if job.status == JobStatus::Ready { trouble(store, workflow)? } else { None };
    let class = table.class[number];
    let nodes = if job.status == JobStatus::Ready { nodes_of(store, workflow, &place)? } else { None };
    let situation = Situation {
        now: asker.now,
        id: job.id,
        job: number as u32,
        asked: (class != 0).then(|| table.requirements[class as usize]),
        worker: worker_of(store, workflow, job)?,
        started_at: job.started_at,
        not_before: earliest(&table, number as u32, asker.now),
        outcome: outcome.as_ref(),
        labels: &place.labels,
        sites: &place.sites,
        limit: limit_of(workflow, &table, &place),
        units: units_of(store, workflow, &place)?,
        trouble: trouble.as_deref(),
        nodes: nodes
            .as_ref()
            .map(|(allocations, is_to_be_asked)| Nodes { allocations, is_to_be_asked: *is_to_be_asked }),
        usual: usual_time(store, workflow, job)?,
        logs: &quoted,
        workflow: Workflow {
            id: workflow.id,
            is_canceled: workflow.is_canceled,
            is_driven: is_run_by_somebody(store, workflow),
            is_served: asker.is_served,
            workers: asker.workers,
        },
        graph: Jobs {
            count: table.ids.len() as u32,
            edges: &table.edges,
            id: &|number| table.ids[number as usize],
            name: &|number| name(store, table.ids[number as usize]),
            status: &|number| table.status[number as usize],
            outcome: &|number| {
                // A name or an end that cannot be read is left out: the rest of the answer is worth having.
                newest_result(store, workflow, table.ids[number as usize])
                    .ok()
                    .flatten()
                    .as_ref()
                    .map(outcome_of)
            },
        },
    };
    let mut verdict = why::why(&situation).map_err(Error::Cycle)?;
    let script = newest.as_ref().and_then(|row| Some((row.key.attempt_id, row.recovered.as_ref()?)));
    if let Some((attempt, how)) = script.filter(|(_, how)| !how.succeeded()) {
        let text = format!("the recovery script before attempt {attempt} {how}");
        verdict.evidence.push(Evidence::Fact { text });
    }
    Ok(verdict)
}

/// When a job that waits before it is tried again may be claimed: the wait is no longer than it was meant to be.
fn earliest(table: &JobTable, job: u32, now: Timestamp) -> Option<Timestamp> {
    let (_, carried) = table.carried.iter().find(|(other, _)| *other == job)?;
    let latest = now.after(carried.delay.unwrap_or(Duration::MAX));
    Some(carried.not_before?.min(latest))
}

/// The worker that has the job.
fn worker_of(store: &dyn Store, workflow: &WorkflowRow, job: &JobRow) -> Result<Option<WorkerId>, Error> {
    if !job.status.is_active() {
        return Ok(None);
    }
    let held = store.held_jobs(workflow.id)?;
    Ok(held.iter().find(|held| held.id == job.id).map(|held| held.worker))
}

/// Where the job belongs. The jobs of a unit that is at a site run there, but for the one that elects it.
fn place_of(table: &JobTable, job: u32) -> Place {
    let mut place = table.place_of(job as usize);
    let is_in =
        |unit: &&TableUnit| unit.jobs.iter().any(|(first, count)| (*first..first + count).contains(&job));
    let unit = table.units.iter().find(is_in).filter(|_| !place.elects);
    if let Some(site) = unit.and_then(|unit| unit.site.clone()) {
        place.sites = vec![site];
    }
    place
}

/// The allocations in which a job of this place could run, and whether an action may still ask for one. `None`: the workflow does
/// not run on Slurm.
fn nodes_of(
    store: &dyn Store,
    workflow: &WorkflowRow,
    place: &Place,
) -> Result<Option<(Vec<Allocation>, bool)>, Error> {
    if !allocating::is_on_slurm(store, workflow.id)? {
        return Ok(None);
    }
    let filter = AllocationFilter { workflow: Some(workflow.id), ..AllocationFilter::default() };
    let mut rows = store.allocations(&filter)?;
    // Others take it as well, but only if they have nothing else to do.
    rows.retain(|row| place.scheduler.is_none() || row.scheduler == place.scheduler);
    Ok(Some((rows, allocating::may_be_asked(store, workflow.id)?)))
}

/// The limit that jobs of this place name, and how much of it is taken.
fn limit_of<'a>(workflow: &'a WorkflowRow, table: &JobTable, place: &Place) -> Option<Limit<'a>> {
    let (name, most) = workflow.settings.limits.get_key_value(place.limit.as_ref()?)?;
    let names_it: Vec<bool> = table.places.iter().map(|place| place.limit.as_ref() == Some(name)).collect();
    let jobs = table.status.iter().zip(&table.place);
    let claimed = jobs.filter(|(status, place)| status.is_active() && names_it[**place as usize]).count();
    Some(Limit { name, most: *most, claimed: u32::try_from(claimed).unwrap_or(u32::MAX) })
}

/// How many units may be under way at once, for a job that begins one.
fn units_of(store: &dyn Store, workflow: &WorkflowRow, place: &Place) -> Result<Option<UnitLimit>, Error> {
    let Some(most) = workflow.settings.max_units.filter(|_| place.elects) else { return Ok(None) };
    Ok(Some(UnitLimit { most, under_way: store.unit_counts(workflow.id)?.active }))
}

/// What the last worker said that could not start a job of the workflow.
fn trouble(store: &dyn Store, workflow: &WorkflowRow) -> Result<Option<String>, Error> {
    let category = Some(windlass_store::model::WORKER_TROUBLE.to_owned());
    let filter = EventFilter { category, newest: Some(1), ..EventFilter::default() };
    Ok(store.events(Some(workflow.id), &filter)?.pop().map(|event| event.message))
}

fn name(store: &dyn Store, job: JobId) -> String {
    store.job_names(&[job]).ok().and_then(|mut names| names.pop()).unwrap_or_default()
}

/// Of the newest run in which it ran.
fn newest_result(store: &dyn Store, workflow: &WorkflowRow, job: JobId) -> Result<Option<ResultRow>, Error> {
    let filter = ResultFilter { job: Some(job), ..ResultFilter::default() };
    let rows = store.results(workflow.id, &filter)?;
    Ok(rows.into_iter().max_by_key(|row| (row.key.run_id, row.key.attempt_id)))
}

fn outcome_of(row: &ResultRow) -> Outcome {
    Outcome {
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

/// How long completed jobs of the same kind took: the median, if there are enough to speak of a custom.
fn usual_time(store: &dyn Store, workflow: &WorkflowRow, job: &JobRow) -> Result<Option<Duration>, Error> {
    if job.status != JobStatus::Running || job.kind.is_none() {
        return Ok(None);
    }
    let Some(kind) = store.kinds(workflow.id)?.into_iter().find(|kind| Some(&kind.name) == job.kind.as_ref())
    else {
        return Ok(None);
    };
    let filter = JobFilter {
        kind: Some(kind.id),
        status: vec![JobStatus::Completed],
        limit: Some(SIBLINGS),
        ..JobFilter::default()
    };
    let mut walls = Vec::new();
    for sibling in store.jobs(workflow.id, &filter)? {
        walls.extend(newest_result(store, workflow, sibling.id)?.map(|row| row.wall));
    }
    walls.sort_unstable();
    Ok((walls.len() >= 3).then(|| walls[walls.len() / 2]))
}

/// The end of a log.
struct ReadLog {
    name: String,
    tail: tail::Tail,
}

impl ReadLog {
    fn quoted(&self) -> Log<'_> {
        let skipped_lines = self.tail.skipped_lines.unwrap_or_default();
        Log { name: &self.name, text: &self.tail.text, skipped_lines }
    }
}

/// What most likely says why comes first. An attempt that printed nothing leaves no file.
fn read_logs(workflow: &WorkflowRow, row: &ResultRow, asker: Asker<'_>) -> Result<Vec<ReadLog>, Error> {
    let paths = logs::written(workflow, row.key.into()).into_iter().map(|(_, path)| path);
    let read = |path: PathBuf| {
        let name = (asker.name_of)(&path);
        match tail::read(&path, LOG_LINES, LOG_BYTES) {
            Ok(tail) => tail.map(|tail| Ok(ReadLog { name, tail })),
            Err(source) => Some(Err(Error::Log { name, source })),
        }
    };
    paths.filter_map(read).collect()
}
