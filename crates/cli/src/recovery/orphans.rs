//! Jobs that are noted as running: whether those who had them are still there. Nobody counts as gone because nobody could
//! ask him.

use crate::args::MachineArgs;
use crate::context::Context;
use crate::error::CliError;
use crate::local;
use crate::rerun;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use windlass_client::Client;
use windlass_core::slurm::ends;
use windlass_engine::holders;
use windlass_proc::bury::Life;
use windlass_store::Store;
use windlass_store::lock::Lock;
use windlass_store::model::{AllocationFilter, HeldJob, WorkerRow};
use windlass_types::slurm::AllocationState;
use windlass_types::{AllocationId, Attempt, JobId, WorkerId, WorkflowId, format_duration};

/// A job that somebody has, or had.
#[derive(Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) job_id: JobId,
    pub(crate) name: String,
    pub(crate) attempt_id: Attempt,
    pub(crate) worker_id: WorkerId,
    pub(crate) state: State,
    /// What that rests on.
    pub(crate) evidence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Alive,
    Gone,
    /// Nobody can tell from here.
    Unknown,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

impl Held {
    pub(crate) fn goes_back(&self) -> bool {
        self.state == State::Gone
    }

    pub(crate) fn describe(&self) -> String {
        format!("{}: {}; it would go back", self.name, self.evidence)
    }
}

/// Has jobs go back whose workers are certainly gone. Whoever runs the workflow, or a server, does that himself; a server is told
/// of workers whose allocation is over, so that it does not wait for the end of their leases, and of those that have no lease, if
/// somebody says that they are dead. Returns how many jobs went back.
pub(crate) fn clear(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<usize, CliError> {
    let before = store.held_jobs(workflow)?.len();
    if let Some(client) = ctx.server()? {
        let mut gone: BTreeMap<WorkerId, String> =
            in_ended_allocations(store, workflow)?.into_iter().collect();
        if machine.assume_dead {
            let unknown = look(ctx, store, workflow)?.into_iter().filter(|held| held.state == State::Unknown);
            gone.extend(unknown.map(|held| (held.worker_id, "--assume-dead says so".to_owned())));
        }
        for (worker, why) in gone {
            match client.retire_worker(worker) {
                Ok(()) => ctx.ui.note(&format!("worker {worker} is gone: {why}")),
                Err(error) => {
                    ctx.ui.warn(&format!("worker {worker} is gone ({why}), and stays noted: {error}"));
                }
            }
        }
        return Ok(before.saturating_sub(store.held_jobs(workflow)?.len()));
    }
    let is_seen_to = store.lock_holder(workflow)?.is_some();
    if is_seen_to || (holders(store, workflow)?.is_empty() && before == 0) {
        return Ok(0);
    }
    let lock = store.lock(Lock::Workflow(workflow), ctx.clock.now())?;
    rerun::clear_up(ctx, store, &lock, workflow, machine)?;
    Ok(before.saturating_sub(store.held_jobs(workflow)?.len()))
}

/// All jobs that are noted as with a worker.
pub(crate) fn look(ctx: &Context, store: &dyn Store, workflow: WorkflowId) -> Result<Vec<Held>, CliError> {
    let held = store.held_jobs(workflow)?;
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let names = store.job_names(&held.iter().map(|job| job.id).collect::<Vec<_>>())?;
    let found = match ctx.server()? {
        Some(client) => told_by_server(client, store, workflow)?,
        None => seen_from_here(store, workflow)?,
    };
    let describe = |(job, name): (HeldJob, String)| {
        let nobody = || (State::Gone, format!("worker {} is noted as gone", job.worker));
        let (state, evidence) = found.of(job.worker).unwrap_or_else(nobody);
        let (job_id, attempt_id, worker_id) = (job.id, job.attempt, job.worker);
        Held { job_id, name, attempt_id, worker_id, state, evidence }
    };
    Ok(held.into_iter().zip(names).map(describe).collect())
}

/// What is known of workers.
enum Found {
    /// Somebody sees to all of them.
    Seen(String),
    Each(HashMap<WorkerId, (State, String)>),
}

impl Found {
    fn of(&self, worker: WorkerId) -> Option<(State, String)> {
        match self {
            Self::Seen(by) => Some((State::Alive, by.clone())),
            Self::Each(workers) => workers.get(&worker).cloned(),
        }
    }
}

fn seen_from_here(store: &dyn Store, workflow: WorkflowId) -> Result<Found, CliError> {
    if let Some(holder) = store.lock_holder(workflow)? {
        return Ok(Found::Seen(format!("process {} runs the workflow, and sees to its workers", holder.pid)));
    }
    let look = |row: WorkerRow| {
        let (pid, host) = (row.worker.pid, &row.worker.host);
        let told = match local::look_for(&row.worker) {
            // It is about to notice that whoever started it is gone, or is one of a server that is.
            Ok(Life::Alive) => (State::Alive, format!("its worker lives (process {pid})")),
            Ok(Life::Gone) => (State::Gone, format!("its worker, process {pid} on {host}, is gone")),
            Ok(Life::OutOfSight) => {
                (State::Unknown, format!("its worker ran on {host}, which is not this machine"))
            }
            Err(error) => (State::Unknown, error.to_string()),
        };
        (row.id, told)
    };
    Ok(Found::Each(holders(store, workflow)?.into_iter().map(look).collect()))
}

/// A server knows by leases; those that have none it cannot know of.
fn told_by_server(client: &Client, store: &dyn Store, workflow: WorkflowId) -> Result<Found, CliError> {
    let told = client.workers(Some(workflow))?.into_iter().map(|worker| {
        let evidence = match worker.silence_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
            Some(silence) => {
                format!("its worker on {} was heard of {} ago", worker.host, format_duration(silence))
            }
            None => format!(
                "its worker on {} has no lease; `windlass workers retire {}` if it is dead",
                worker.host, worker.id
            ),
        };
        let state = if worker.silence_seconds.is_some() { State::Alive } else { State::Unknown };
        (worker.id, (state, evidence))
    });
    let mut told: HashMap<_, _> = told.collect();
    told.extend(in_ended_allocations(store, workflow)?.into_iter().map(|(id, why)| (id, (State::Gone, why))));
    Ok(Found::Each(told))
}

/// Workers that are noted as there although Slurm says that their allocation is over, and what it says.
fn in_ended_allocations(
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<Vec<(WorkerId, String)>, CliError> {
    let workers = store.active_workers(Some(workflow))?;
    // An allocation of several nodes may have several.
    let within: Vec<(WorkerId, AllocationId)> =
        workers.iter().filter_map(|row| Some((row.id, AllocationId(row.worker.allocation?)))).collect();
    if within.is_empty() {
        return Ok(Vec::new());
    }
    let filter = AllocationFilter {
        ids: within.iter().map(|(_, id)| *id).collect(),
        states: vec![AllocationState::Ended],
        is_ours: Some(true),
        ..AllocationFilter::default()
    };
    let mut ended = store.allocations(&filter)?;
    ended.retain(ends::has_ended_all);
    let ended: HashMap<AllocationId, String> =
        ended.iter().map(|row| (row.id, ends::in_words(row))).collect();
    Ok(within.into_iter().filter_map(|(worker, id)| Some((worker, ended.get(&id)?.clone()))).collect())
}
