//! The options of a remote worker.

use crate::environment::PassedEnvironment;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_client::Client;
use windlass_types::settings::ExecutionConfig;
use windlass_types::slurm::SlurmJobNode;
use windlass_types::worker_messages::Assignment;
use windlass_types::worker_protocol::AcceptedJobOwners;
use windlass_types::{Capacity, WorkflowId};

/// Finds the server again, which may have moved. May take a while.
pub type FindServer = Arc<dyn Fn() -> Option<Client> + Send + Sync>;

/// Returns the launcher and its arguments for a job of a workflow with these settings; empty if the job runs
/// here.
pub type LauncherSelector = Box<dyn Fn(&Assignment, Option<&ExecutionConfig>) -> Vec<String> + Send>;

pub struct RemoteWorkerOptions {
    pub client: Client,
    /// Called when the server does not answer. `None`: the server cannot move.
    pub find_server: Option<FindServer>,
    /// The database by which the server was found, if it was: its next server may be at another address.
    pub database: Option<String>,
    pub capacity: Capacity,
    /// Ids of the GPUs, as `CUDA_VISIBLE_DEVICES` takes them.
    pub gpu_devices: Vec<String>,
    pub labels: Vec<String>,
    /// The worker's site: it takes jobs that name sites only if this is one of them.
    pub site: String,
    /// The owners of the jobs that it accepts.
    pub jobs_of: AcceptedJobOwners,
    /// The part of its environment that jobs get.
    pub environment: PassedEnvironment,
    /// It serves only this workflow, and leaves when the workflow ends.
    pub workflow: Option<WorkflowId>,
    /// It stays when there is no work.
    pub persistent: bool,
    /// It leaves after being idle for this long.
    pub idle_timeout: Option<Duration>,
    /// After this time without contact to the server, jobs (frozen by then) are killed.
    pub give_up_after: Duration,
    /// At the start the server must be reached within this time.
    pub first_contact: Duration,
    /// The grace period between SIGTERM and SIGKILL for a job that is stopped.
    pub grace: Duration,
    pub deadline: Option<WorkerDeadline>,
    /// How long before the deadline the batch system sends a warning.
    pub warning_before_end: Option<Duration>,
    /// The parent of the workers' state directories.
    pub state_dir: PathBuf,
    /// The scheduled compute node (allocation) that started it, if any.
    pub scheduled_compute_node: Option<i64>,
    /// The Slurm job of that allocation. When it ends, all processes in it are signaled at once.
    pub slurm: Option<SlurmJobNode>,
    /// It leaves as soon as the workflow that it serves ends, regardless of its other options.
    pub leaves_when_over: bool,
    /// Selects the launcher for jobs that run elsewhere.
    pub launcher: Option<LauncherSelector>,
    /// The program that jobs may call; its directory is appended to their `PATH`.
    pub program: Option<PathBuf>,
    /// Creates the command of a process that calls `windlass_worker::serve_on_stdin`.
    pub worker_command: Box<dyn Fn() -> Command + Send>,
}

impl std::fmt::Debug for RemoteWorkerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteWorkerOptions").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The time at which a worker has to be gone.
#[derive(Clone, Copy, Debug)]
pub struct WorkerDeadline {
    pub end: Instant,
    /// How long before the end running jobs are asked to stop.
    pub stop_before_end: Duration,
}

impl WorkerDeadline {
    /// When running jobs are asked to stop.
    pub(crate) fn stop_time(&self) -> Instant {
        self.end.checked_sub(self.stop_before_end).unwrap_or_else(Instant::now)
    }
}

impl RemoteWorkerOptions {
    /// Default options for a machine with this capacity.
    pub fn new(client: Client, capacity: Capacity, state_dir: PathBuf) -> Self {
        Self {
            client,
            find_server: None,
            database: None,
            capacity,
            gpu_devices: Vec::new(),
            labels: Vec::new(),
            site: windlass_types::LOCAL_SITE.to_owned(),
            jobs_of: AcceptedJobOwners::Own,
            environment: PassedEnvironment::default(),
            workflow: None,
            persistent: false,
            idle_timeout: None,
            give_up_after: Duration::from_hours(24),
            first_contact: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            deadline: None,
            warning_before_end: None,
            state_dir,
            scheduled_compute_node: None,
            slurm: None,
            leaves_when_over: false,
            launcher: None,
            program: std::env::current_exe().ok(),
            worker_command: Box::new(|| {
                use std::os::unix::process::CommandExt as _;
                // The running executable, not the file at its path, which may be a newer build.
                let mut command = Command::new("/proc/self/exe");
                command.arg0("windlass").arg("__worker");
                command
            }),
        }
    }
}
