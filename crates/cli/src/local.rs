//! The worker of this machine: how `run`, `resume` and `exec` start it, and what `windlass __worker` does.

use crate::args::MachineArgs;
use crate::error::{CliError, Exit};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use windlass_engine::host::{Buried, HostError, Started, WorkerHost};
use windlass_proc::bury::{Deceased, make_sure_dead};
use windlass_proc::identity::{Identity, boot_id};
use windlass_proc::machine::Machine;
use windlass_store::model::{NewWorker, WorkflowRow};
use windlass_types::Capacity;
use windlass_worker::{Launched, WorkerOptions};

/// How long processes that were killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// `windlass __worker`: the process that a run starts to execute its jobs.
pub(crate) fn worker() -> Result<Exit, CliError> {
    windlass_worker::serve_on_stdin().map_err(|e| CliError::io(format!("the worker cannot go on: {e}")))?;
    Ok(Exit::Success)
}

/// Starts worker processes on this machine and buries dead ones.
pub(crate) struct LocalHost {
    machine: Machine,
    capacity: Capacity,
    grace: Duration,
    /// `<database>.run/`, where the ledgers go.
    run_directory: PathBuf,
    /// To be reaped; a worker that is a zombie is as dead as one that is gone.
    children: Vec<Child>,
}

impl LocalHost {
    pub(crate) fn new(args: &MachineArgs, database: &Path) -> Self {
        let machine = Machine::detect();
        let capacity = Capacity {
            cpus: args.num_cpus.unwrap_or(machine.cpus),
            memory: args.memory.unwrap_or(machine.memory),
            gpus: args.num_gpus.unwrap_or(machine.gpus.len() as u32),
            nodes: 1,
            max_jobs: args.max_parallel_jobs,
        };
        let mut run_directory = database.as_os_str().to_owned();
        run_directory.push(".run");
        Self {
            machine,
            capacity,
            grace: args.grace,
            run_directory: run_directory.into(),
            children: Vec::new(),
        }
    }

    fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl WorkerHost for LocalHost {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn start(&mut self, workflow: &WorkflowRow) -> Result<Started, HostError> {
        self.reap();
        let token = unique_token()?;
        let ledger = self.run_directory.join(format!("worker-{token}.ledger"));
        let mut options = WorkerOptions::new(
            self.capacity,
            PathBuf::from(&workflow.submission_dir),
            PathBuf::from(&workflow.output_dir),
            ledger.clone(),
            token.clone(),
        );
        options.gpu_devices.clone_from(&self.machine.gpus);
        options.timeout_grace = self.grace;
        // Not the file that is at our path now, which may be a newer build, but the one that runs.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("windlass").arg("__worker");
        let Launched { child, link } = windlass_worker::launch(command, &options)?;
        let process = Identity::of(child.id()).ok_or("the worker died at once")?;
        self.children.push(child);
        let worker = NewWorker {
            workflow: workflow.id,
            run: workflow.run_id,
            host: self.machine.hostname.clone(),
            boot_id: boot_id()?,
            pid: process.pid,
            pid_start_ticks: process.start_ticks,
            token,
            ledger_path: ledger.to_str().ok_or("the path of the database is not UTF-8")?.to_owned(),
            capacity: self.capacity,
        };
        Ok(Started { worker, stream: link })
    }

    fn bury(&mut self, worker: &NewWorker) -> Result<Buried, HostError> {
        self.reap();
        let ledger = Path::new(&worker.ledger_path);
        let process = Identity { pid: worker.pid, start_ticks: worker.pid_start_ticks };
        let deceased =
            Deceased { host: &worker.host, boot_id: &worker.boot_id, process, token: &worker.token, ledger };
        let report = make_sure_dead(&deceased, PATIENCE)?;
        self.reap();
        Ok(Buried { started: report.started, ended_processes: report.ended.len() })
    }

    fn forget(&mut self, worker: &NewWorker) {
        // Best effort: a ledger that stays behind is a file of a few hundred kilobytes and no harm.
        std::fs::remove_file(&worker.ledger_path).unwrap_or_default();
    }
}

fn unique_token() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}
