//! What an agent is told before it begins.

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

/// Finds the server anew, where it may be another one by now. May take a while.
pub type FindServer = Arc<dyn Fn() -> Option<Client> + Send + Sync>;

/// Says what is to launch a job, and with which words, of a workflow that is to be executed so: nothing, if it runs here.
pub type LauncherSelector = Box<dyn Fn(&Assignment, Option<&ExecutionConfig>) -> Vec<String> + Send>;

pub struct RemoteWorkerOptions {
    pub client: Client,
    /// Asked when the server does not answer. `None`: it is this one or none.
    pub find_server: Option<FindServer>,
    pub capacity: Capacity,
    /// Ids of the graphics cards, as `CUDA_VISIBLE_DEVICES` takes them.
    pub gpu_devices: Vec<String>,
    pub labels: Vec<String>,
    /// Where it is: it takes jobs that name sites only if this is one of them.
    pub site: String,
    /// Whose jobs it takes.
    pub jobs_of: AcceptedJobOwners,
    /// What of its environment its jobs get.
    pub environment: PassedEnvironment,
    /// It works for this one only, and leaves when that is over.
    pub workflow: Option<WorkflowId>,
    /// It stays when there is nothing to do, whatever comes.
    pub persistent: bool,
    /// It leaves when it had nothing to do for so long.
    pub idle_timeout: Option<Duration>,
    /// Without a word from the server for so long, jobs (which stand still by then) are killed.
    pub give_up_after: Duration,
    /// At the start the server must be reached within this time.
    pub first_contact: Duration,
    /// Between SIGTERM and SIGKILL for a job that is stopped.
    pub grace: Duration,
    pub deadline: Option<WorkerDeadline>,
    /// So long before that end somebody warns of it.
    pub warning_before_end: Option<Duration>,
    /// What it writes down: one directory per agent in here.
    pub state_dir: PathBuf,
    /// Where an allocation started it: the scheduled compute node it belongs to.
    pub scheduled_compute_node: Option<i64>,
    /// Where that allocation is one of Slurm's. Whoever ends it signals all processes in it at once.
    pub slurm: Option<SlurmJobNode>,
    /// It leaves as soon as the workflow that it works for is over, whatever else it waits for.
    pub leaves_when_over: bool,
    /// What has jobs run elsewhere than beside this agent.
    pub launcher: Option<LauncherSelector>,
    /// The program that jobs may call; its directory comes last on their `PATH`.
    pub program: Option<PathBuf>,
    /// Starts a process that calls `windlass_worker::serve_on_stdin`.
    pub worker_command: Box<dyn Fn() -> Command + Send>,
}

impl std::fmt::Debug for RemoteWorkerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentOptions").field("client", &self.client).finish_non_exhaustive()
    }
}

/// When an agent has to be gone.
#[derive(Clone, Copy, Debug)]
pub struct WorkerDeadline {
    pub end: Instant,
    /// So long before the end jobs that still run are asked to stop.
    pub stop_before_end: Duration,
}

impl WorkerDeadline {
    /// When jobs that still run are asked to stop.
    pub(crate) fn stop_time(&self) -> Instant {
        self.end.checked_sub(self.stop_before_end).unwrap_or_else(Instant::now)
    }
}

impl RemoteWorkerOptions {
    /// For a machine that gives `capacity`; all else as it usually is.
    pub fn new(client: Client, capacity: Capacity, state_dir: PathBuf) -> Self {
        Self {
            client,
            find_server: None,
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
                // Not the file that is at our path now, which may be a newer build, but the one that runs.
                let mut command = Command::new("/proc/self/exe");
                command.arg0("windlass").arg("__worker");
                command
            }),
        }
    }
}
