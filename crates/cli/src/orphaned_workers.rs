//! Workers of this machine that still hold jobs although their server has stopped. If the server is started
//! again, they continue; a local run of their workflow has to end them first.

use crate::error::CliError;
use crate::server_discovery;
use crate::ui::text;
use windlass_process::process_identity::{ProcessIdentity, boot_id};
use windlass_scheduler::load_job_holders;
use windlass_store::model::{WorkerKind, WorkerRow};
use windlass_store::{Store, StoreLocation};
use windlass_types::{WorkerId, WorkflowId};

#[derive(Debug)]
pub(crate) struct OrphanedWorker {
    pub(crate) worker: WorkerId,
    pub(crate) pid: u32,
    /// Jobs of the workflow.
    pub(crate) jobs: u64,
}

impl OrphanedWorker {
    pub(crate) fn describe(&self) -> String {
        let jobs = text::render_count(self.jobs, "job");
        format!("worker {} (process {}) is still running and holds {jobs} of it", self.worker, self.pid)
    }
}

/// For a workflow of a database without a server.
pub(crate) fn find_orphaned_workers(
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<Vec<OrphanedWorker>, CliError> {
    let (held, here) = (store.held_jobs(workflow)?, boot_id().unwrap_or_default());
    let workers = load_job_holders(store, workflow)?.into_iter();
    let orphans = workers.filter(|row| is_alive_on_host(row, &here)).map(|row| OrphanedWorker {
        worker: row.id,
        pid: row.worker.pid,
        jobs: held.iter().filter(|job| job.worker == row.id).count() as u64,
    });
    Ok(orphans.filter(|orphan| orphan.jobs > 0).collect())
}

fn is_alive_on_host(row: &WorkerRow, here: &str) -> bool {
    let worker = &row.worker;
    worker.kind == WorkerKind::Remote
        && worker.boot_id == here
        && ProcessIdentity { pid: worker.pid, start_ticks: worker.pid_start_ticks }.is_alive()
}

/// They are not ended by default: they may also run other workflows, and their work is not lost yet.
pub(crate) fn refuse_orphaned_workers(
    store: &dyn Store,
    workflow: WorkflowId,
    take_over: bool,
) -> Result<(), CliError> {
    let is_copy =
        matches!(store.location(), StoreLocation::Sqlite(path) if server_discovery::is_copied(&path));
    if take_over && !is_copy {
        return Ok(());
    }
    let orphans = find_orphaned_workers(store, workflow)?;
    if orphans.is_empty() {
        return Ok(());
    }
    let found: Vec<String> = orphans.iter().map(OrphanedWorker::describe).collect();
    if is_copy {
        return Err(CliError::refused(format!(
            "workflow {workflow} runs elsewhere: this database is a copy of one with a server, and {}",
            found.join(", and ")
        ))
        .with_hint("wait until it has ended there, or run it as a new workflow: `windlass run SPEC --new`"));
    }
    Err(CliError::refused(format!(
        "the server of workflow {workflow} has stopped, but {}",
        found.join(", and ")
    ))
    .with_hint(
        "restart the server with `windlass serve`, and they continue; or end them with --take-over of `run` or `resume`, and \
         their jobs run again",
    ))
}
