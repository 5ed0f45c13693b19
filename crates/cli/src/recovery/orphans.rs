//! Orphaned jobs: checks whether the workers of jobs recorded as running still exist. A worker that cannot be
//! checked does not count as lost.

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

/// A job that a worker holds, or held.
#[derive(Debug, Serialize)]
pub(crate) struct WorkerHeldJob {
    pub(crate) job_id: JobId,
    pub(crate) name: String,
    pub(crate) attempt_id: Attempt,
    pub(crate) worker_id: WorkerId,
    pub(crate) state: HolderState,
    /// The evidence.
    pub(crate) evidence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HolderState {
    Alive,
    Gone,
    /// Unknown on this host.
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
        format!("{}: {}; it would be reset", self.name, self.evidence)
    }
}

/// Resets the jobs of workers that are certainly lost. The process that runs the workflow, or a server, does
/// this itself; a server is told about workers whose allocation has ended, so that it need not wait for their
/// leases to expire, and about workers without a lease that the user declares dead. Returns the number of jobs
/// reset.
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
            gone.extend(unknown.map(|held| (held.worker_id, "declared by --assume-dead".to_owned())));
        }
        for (worker, why) in gone {
            match client.retire_worker(worker) {
                Ok(()) => ctx.ui.print_note(&format!("worker {worker} is lost: {why}")),
                Err(error) => {
                    ctx.ui.print_warning(&format!(
                        "worker {worker} is lost ({why}), but could not be retired: {error}"
                    ));
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

/// All jobs that are recorded as held by a worker.
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
        let ended_worker = || (HolderState::Gone, format!("worker {} is recorded as ended", job.worker));
        let (state, evidence) = found.state_of(job.worker).unwrap_or_else(ended_worker);
        let (job_id, attempt_id, worker_id) = (job.id, job.attempt, job.worker);
        WorkerHeldJob { job_id, name, attempt_id, worker_id, state, evidence }
    };
    Ok(held.into_iter().zip(names).map(describe).collect())
}

/// Facts about workers.
enum WorkerStates {
    /// A process or server already watches all of them.
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
            "process {} runs the workflow and watches its workers",
            holder.pid
        )));
    }
    let look = |row: WorkerRow| {
        let (pid, host) = (row.worker.pid, &row.worker.host);
        let told = match local_worker::find_worker(&row.worker) {
            // It will notice that its parent has ended, or belongs to a server that has stopped.
            Ok(WorkerLiveness::Alive) => (HolderState::Alive, format!("its worker is alive (process {pid})")),
            Ok(WorkerLiveness::Gone) => {
                (HolderState::Gone, format!("its worker, process {pid} on {host}, has ended"))
            }
            Ok(WorkerLiveness::OtherHost) => {
                (HolderState::Unknown, format!("its worker ran on {host}, not on this machine"))
            }
            Err(error) => (HolderState::Unknown, error.to_string()),
        };
        (row.id, told)
    };
    Ok(WorkerStates::PerWorker(load_job_holders(store, workflow)?.into_iter().map(look).collect()))
}

/// A server tracks workers by their leases, but not those without a lease.
fn server_worker_states(
    client: &Client,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<WorkerStates, CliError> {
    let told = client.workers(Some(workflow))?.into_iter().map(|worker| {
        let evidence = match worker.silence_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
            Some(silence) => {
                format!("last contact of its worker on {} was {} ago", worker.host, format_duration(silence))
            }
            None => format!(
                "its worker on {} has no lease; if it is dead: `windlass worker retire {}`",
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

/// Workers that are recorded as active although Slurm reports the end of their allocation, with Slurm's state.
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
