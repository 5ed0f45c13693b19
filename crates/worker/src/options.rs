//! The options that a worker gets before its first job.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use windlass_types::settings::ResourceMonitor;
use windlass_types::worker_protocol::WorkflowSetup;
use windlass_types::{Capacity, LOCAL_SITE, RunId, WorkflowId};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOptions {
    pub capacity: Capacity,
    /// Ids of the GPUs, as `CUDA_VISIBLE_DEVICES` takes them. Missing ones are numbered.
    pub gpu_devices: Vec<String>,
    /// The worker serves one workflow, to which the directories and measurement settings belong. Otherwise each
    /// workflow is introduced before its first job, and these are not used.
    pub one_workflow: bool,
    /// The directory with the logs (`job_stdio`) and time series (`resource_utilization`).
    pub output_dir: PathBuf,
    /// The working directory of jobs.
    pub submission_dir: PathBuf,
    /// The site name that jobs see.
    #[serde(default = "local_site")]
    pub site: String,
    pub api_url: Option<String>,
    /// The database of its workflow, for jobs that read it or add jobs.
    pub database: Option<PathBuf>,
    /// The program for that purpose; its directory is appended to the `PATH` of jobs.
    pub program: Option<PathBuf>,
    /// Marks the environment of all started processes, so that they can be found again.
    pub token: String,
    /// The file that records the started processes.
    pub ledger: PathBuf,
    /// The grace period between SIGTERM and SIGKILL when a job's `runtime` ends.
    pub timeout_grace: Duration,
    /// The same for the leftover processes of a job.
    pub leftover_grace: Duration,
    pub sample_interval: Duration,
    /// Record a usage summary for every attempt. Otherwise samples are taken only to enforce memory limits.
    pub measure_jobs: bool,
    /// Also keep the samples as time series.
    pub series: Option<ResourceSeriesOptions>,
    /// How long reports are collected while the queue is not empty. Over a network, fewer and larger messages
    /// are better.
    pub report_linger: Duration,
    /// The sender of SIGTERM also signals the engine, which then decides what happens: this process ignores
    /// SIGTERM.
    #[serde(default)]
    pub leaves_termination: bool,
    /// Use cgroups if possible. Without them memory limits are enforced by sampling.
    pub cgroups: bool,
}

fn local_site() -> String {
    LOCAL_SITE.to_owned()
}

/// Which samples are kept as time series, and how often they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceSeriesOptions {
    pub workflow: WorkflowId,
    pub run: RunId,
    pub jobs: bool,
    /// The machine as a whole.
    pub node: bool,
    pub flush_interval: Duration,
}

impl WorkerOptions {
    pub fn new(
        capacity: Capacity,
        submission_dir: PathBuf,
        output_dir: PathBuf,
        ledger: PathBuf,
        token: String,
    ) -> Self {
        Self {
            capacity,
            gpu_devices: Vec::new(),
            one_workflow: true,
            output_dir,
            submission_dir,
            site: local_site(),
            api_url: None,
            database: None,
            program: None,
            token,
            ledger,
            timeout_grace: Duration::from_secs(10),
            leftover_grace: Duration::from_secs(2),
            sample_interval: Duration::from_secs(1),
            measure_jobs: true,
            series: None,
            report_linger: Duration::from_millis(5),
            leaves_termination: false,
            cgroups: true,
        }
    }

    /// The measurement settings of a workflow. By default a summary of each attempt.
    pub fn set_monitoring(&mut self, workflow: WorkflowId, run: RunId, monitor: Option<&ResourceMonitor>) {
        let Some(monitor) = monitor else { return };
        self.measure_jobs = monitor.measures_jobs();
        let series = ResourceSeriesOptions {
            workflow,
            run,
            jobs: monitor.keeps_job_series(),
            node: monitor.keeps_node_series(),
            flush_interval: monitor.flush_interval(),
        };
        self.series = (series.jobs || series.node).then_some(series);
        // The shorter default interval makes the summary better; series need no more points than the spec
        // requests.
        if self.series.is_some() || monitor.sample_interval_seconds.is_some() {
            self.sample_interval = monitor.sample_interval();
        }
    }

    /// The options for a workflow that was introduced to this worker.
    pub(crate) fn for_workflow(&self, site: &WorkflowSetup) -> Self {
        let mut options = Self {
            submission_dir: PathBuf::from(&site.submission_dir),
            output_dir: PathBuf::from(&site.output_dir),
            series: None,
            ..self.clone()
        };
        options.set_monitoring(site.workflow, site.run, site.resource_monitor.as_ref());
        options
    }
}
