//! What a worker is told before its first job.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use windlass_types::{Capacity, RunId, WorkflowId};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerOptions {
    pub capacity: Capacity,
    /// Ids of the graphics cards, as `CUDA_VISIBLE_DEVICES` takes them. Missing ones are numbered.
    pub gpu_devices: Vec<String>,
    /// Logs go to `job_stdio` in here, time series to `resource_utilization`.
    pub output_dir: PathBuf,
    /// Jobs run here.
    pub submission_dir: PathBuf,
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
    /// Use cgroups where we may. Without them memory limits are kept by sampling.
    pub cgroups: bool,
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
            output_dir,
            submission_dir,
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
            cgroups: true,
        }
    }
}
