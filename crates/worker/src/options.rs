//! What a worker is told before its first job.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use windlass_types::settings::ResourceMonitor;
use windlass_types::worker_protocol::WorkflowSetup;
use windlass_types::{Capacity, LOCAL_SITE, RunId, WorkflowId};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOptions {
    pub capacity: Capacity,
    /// Ids of the graphics cards, as `CUDA_VISIBLE_DEVICES` takes them. Missing ones are numbered.
    pub gpu_devices: Vec<String>,
    /// It serves one workflow, which the directories and what is measured here are about. Otherwise each workflow is
    /// introduced before its first job, and these are not used.
    pub one_workflow: bool,
    /// Logs go to `job_stdio` in here, time series to `resource_utilization`.
    pub output_dir: PathBuf,
    /// Jobs run here.
    pub submission_dir: PathBuf,
    /// Where this is, as jobs are told.
    #[serde(default = "local_site")]
    pub site: String,
    pub api_url: Option<String>,
    /// The books of its workflow, for jobs that look into them or add to them.
    pub database: Option<PathBuf>,
    /// The program that jobs may call to do so; its directory comes last on their `PATH`.
    pub program: Option<PathBuf>,
    /// Stands in the environment of everything it starts, so that it can be found again.
    pub token: String,
    /// Where it notes what it starts.
    pub ledger: PathBuf,
    /// Between SIGTERM and SIGKILL when a job's `runtime` is over.
    pub timeout_grace: Duration,
    /// The same for what a job leaves behind.
    pub leftover_grace: Duration,
    pub sample_interval: Duration,
    /// Samples are summed up for every attempt. Without this they are taken only to keep a memory limit.
    pub measure_jobs: bool,
    /// Samples are also kept one by one.
    pub series: Option<SeriesOptions>,
    /// How long reports gather while there is more to do than slots. Whoever is told over a network is better told less
    /// often, and of more.
    pub report_linger: Duration,
    /// Whoever may end this process signals the engine as well, which then says what it means: SIGTERM is left to it.
    #[serde(default)]
    pub leaves_termination: bool,
    /// Use cgroups where we may. Without them memory limits are kept by sampling.
    pub cgroups: bool,
}

fn local_site() -> String {
    LOCAL_SITE.to_owned()
}

/// Which samples are kept as time series, and how often they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesOptions {
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

    /// What a workflow wants to know of what its jobs use. Without a word from it, a summary of each attempt.
    pub fn set_monitoring(&mut self, workflow: WorkflowId, run: RunId, monitor: Option<&ResourceMonitor>) {
        let Some(monitor) = monitor else { return };
        self.measure_jobs = monitor.measures_jobs();
        let series = SeriesOptions {
            workflow,
            run,
            jobs: monitor.keeps_job_series(),
            node: monitor.keeps_node_series(),
            flush_interval: monitor.flush_interval(),
        };
        self.series = (series.jobs || series.node).then_some(series);
        // A summary is better with our own, shorter interval; series need no more points than the spec says.
        if self.series.is_some() || monitor.sample_interval_seconds.is_some() {
            self.sample_interval = monitor.sample_interval();
        }
    }

    /// The same worker, for a workflow that was introduced to it.
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
