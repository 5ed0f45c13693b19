//! Jobs that are noted as running: whether those who had them are still there. Nobody counts as gone because nobody could
//! ask him.

use crate::args::MachineArgs;
use crate::context::CliContext;
use crate::error::CliError;
use crate::local_worker;
use crate::rerun;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use windlass_client::Client;
use windlass_core::slurm::allocation_ends;
use windlass_process::ensure_dead::WorkerLiveness;
use windlass_scheduler::load_job_holders;
use windlass_store::Store;
use windlass_store::lock::LockScope;
use windlass_store::model::{AllocationFilter, HeldJob, WorkerRow};
use windlass_types::slurm::AllocationState;
use windlass_types::{AllocationId, Attempt, JobId, WorkerId, WorkflowId, format_duration};

/// A job that somebody has, or had.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerHeldJob {
    pub(crate) job_id: JobId,
    pub(crate) name: String,
    pub(crate) attempt_id: Attempt,
    pub(crate) worker_id: WorkerId,
    pub(crate) state: HolderState,
    /// What that rests on.
    pub(crate) evidence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HolderState {
    Alive,
    Gone,
    /// Nobody can tell from here.
    Unknown,
}

impl HolderState {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

impl WorkerHeldJob {
    pub(crate) fn is_orphaned(&self) -> bool {
        self.state == HolderState::Gone
    }

    pub(crate) fn describe(&self) -> String {
        format!("{}: {}; it would go back", self.name, self.evidence)
    }
}

/// Has jobs go back whose workers are certainly gone. Whoever runs the workflow, or a server, does that himself; a server is told
/// of workers whose allocation is over, so that it does not wait for the end of their leases, and of those that have no lease, if
/// somebody says that they are dead. Returns how many jobs went back.
pub(crate) fn reset_orphans(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<usize, CliError> {
    let before = store.held_jobs(workflow)?.len();
    if let Some(client) = ctx.server()? {
        let mut gone: BTreeMap<WorkerId, String> =
            workers_in_ended_allocations(store, workflow)?.into_iter().collect();
        if machine.assume_dead {
            let unknown = list_held_jobs(ctx, store, workflow)?
                .into_iter()
                .filter(|held| held.state == HolderState::Unknown);
            gone.extend(unknown.map(|held| (held.worker_id, "--assume-dead says so".to_owned())));
        }
        for (worker, why) in gone {
            match client.retire_worker(worker) {
                Ok(()) => ctx.ui.print_note(&format!("worker {worker} is gone: {why}")),
                Err(error) => {
                    ctx.ui
                        .print_warning(&format!("worker {worker} is gone ({why}), and stays noted: {error}"));
                }
            }
        }
        return Ok(before.saturating_sub(store.held_jobs(workflow)?.len()));
    }
    let is_seen_to = store.lock_holder(workflow)?.is_some();
    if is_seen_to || (load_job_holders(store, workflow)?.is_empty() && before == 0) {
        return Ok(0);
    }
    let lock = store.lock(LockScope::Workflow(workflow), ctx.clock.now())?;
    rerun::ensure_nothing_runs(ctx, store, &lock, workflow, machine)?;
    Ok(before.saturating_sub(store.held_jobs(workflow)?.len()))
}

/// All jobs that are noted as with a worker.
pub(crate) fn list_held_jobs(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<Vec<WorkerHeldJob>, CliError> {
    let held = store.held_jobs(workflow)?;
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let names = store.job_names(&held.iter().map(|job| job.id).collect::<Vec<_>>())?;
    let found = match ctx.server()? {
        Some(client) => server_worker_states(client, store, workflow)?,
        None => local_worker_states(store, workflow)?,
    };
    let describe = |(job, name): (HeldJob, String)| {
        let nobody = || (HolderState::Gone, format!("worker {} is noted as gone", job.worker));
        let (state, evidence) = found.state_of(job.worker).unwrap_or_else(nobody);
        let (job_id, attempt_id, worker_id) = (job.id, job.attempt, job.worker);
        WorkerHeldJob { job_id, name, attempt_id, worker_id, state, evidence }
    };
    Ok(held.into_iter().zip(names).map(describe).collect())
}

/// What is known of workers.
enum WorkerStates {
    /// Somebody sees to all of them.
    SupervisedBy(String),
    PerWorker(HashMap<WorkerId, (HolderState, String)>),
}

impl WorkerStates {
    fn state_of(&self, worker: WorkerId) -> Option<(HolderState, String)> {
        match self {
            Self::SupervisedBy(by) => Some((HolderState::Alive, by.clone())),
            Self::PerWorker(workers) => workers.get(&worker).cloned(),
        }
    }
}

fn local_worker_states(store: &dyn Store, workflow: WorkflowId) -> Result<WorkerStates, CliError> {
    if let Some(holder) = store.lock_holder(workflow)? {
        return Ok(WorkerStates::SupervisedBy(format!(
            "process {} runs the workflow, and sees to its workers",
            holder.pid
        )));
    }
    let look = |row: WorkerRow| {
        let (pid, host) = (row.worker.pid, &row.worker.host);
        let told = match local_worker::find_worker(&row.worker) {
            // It is about to notice that whoever started it is gone, or is one of a server that is.
            Ok(WorkerLiveness::Alive) => (HolderState::Alive, format!("its worker lives (process {pid})")),
            Ok(WorkerLiveness::Gone) => {
                (HolderState::Gone, format!("its worker, process {pid} on {host}, is gone"))
            }
            Ok(WorkerLiveness::OtherHost) => {
                (HolderState::Unknown, format!("its worker ran on {host}, which is not this machine"))
            }
            Err(error) => (HolderState::Unknown, error.to_string()),
        };
        (row.id, told)
    };
    Ok(WorkerStates::PerWorker(load_job_holders(store, workflow)?.into_iter().map(look).collect()))
}

/// A server knows by leases; those that have none it cannot know of.
fn server_worker_states(
    client: &Client,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<WorkerStates, CliError> {
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
        let state = if worker.silence_seconds.is_some() { HolderState::Alive } else { HolderState::Unknown };
        (worker.id, (state, evidence))
    });
    let mut told: HashMap<_, _> = told.collect();
    told.extend(
        workers_in_ended_allocations(store, workflow)?
            .into_iter()
            .map(|(id, why)| (id, (HolderState::Gone, why))),
    );
    Ok(WorkerStates::PerWorker(told))
}

/// Workers that are noted as there although Slurm says that their allocation is over, and what it says.
fn workers_in_ended_allocations(
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
    ended.retain(allocation_ends::ended_all_processes);
    let ended: HashMap<AllocationId, String> =
        ended.iter().map(|row| (row.id, allocation_ends::describe_end(row))).collect();
    Ok(within.into_iter().filter_map(|(worker, id)| Some((worker, ended.get(&id)?.clone()))).collect())
}
