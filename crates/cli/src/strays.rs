//! Workers of this machine that live and hold jobs, although the server that they work for is gone. Brought back, it lets
//! them go on; whoever runs their workflow himself has to end them first.

use crate::error::CliError;
use crate::ui::text;
use windlass_engine::holders;
use windlass_proc::identity::{Identity, boot_id};
use windlass_store::Store;
use windlass_store::model::{WorkerKind, WorkerRow};
use windlass_types::{WorkerId, WorkflowId};

#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) worker: WorkerId,
    pub(crate) pid: u32,
    /// Of the workflow.
    pub(crate) jobs: u64,
}

impl Stray {
    pub(crate) fn describe(&self) -> String {
        let jobs = text::count(self.jobs, "job");
        format!("worker {} (process {}) lives and holds {jobs} of it", self.worker, self.pid)
    }
}

/// Of a workflow of a database that nobody serves.
pub(crate) fn of(store: &dyn Store, workflow: WorkflowId) -> Result<Vec<Stray>, CliError> {
    let (held, here) = (store.held_jobs(workflow)?, boot_id().unwrap_or_default());
    let workers = holders(store, workflow)?.into_iter();
    let strays = workers.filter(|row| lives_here(row, &here)).map(|row| Stray {
        worker: row.id,
        pid: row.worker.pid,
        jobs: held.iter().filter(|job| job.worker == row.id).count() as u64,
    });
    Ok(strays.filter(|stray| stray.jobs > 0).collect())
}

fn lives_here(row: &WorkerRow, here: &str) -> bool {
    let worker = &row.worker;
    worker.kind == WorkerKind::Remote
        && worker.boot_id == here
        && Identity { pid: worker.pid, start_ticks: worker.pid_start_ticks }.is_alive()
}

/// They may be at work for others too, and what they do is not lost yet.
pub(crate) fn refuse(store: &dyn Store, workflow: WorkflowId, take_over: bool) -> Result<(), CliError> {
    if take_over {
        return Ok(());
    }
    let strays = of(store, workflow)?;
    if strays.is_empty() {
        return Ok(());
    }
    let found: Vec<String> = strays.iter().map(Stray::describe).collect();
    Err(CliError::refused(format!(
        "the server of workflow {workflow} is gone, but {}",
        found.join(", and ")
    ))
    .with_hint(
        "`windlass serve` brings the server back, and they go on; --take-over of `run` and `resume` ends them instead, and \
         their jobs run again",
    ))
}
