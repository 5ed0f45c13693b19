//! Settings of a workflow besides its jobs: execution, monitoring, failure handling, allocations. Read from
//! specs and stored in the database as JSON.
//!
//! Fields that were not set stay `None`, so that settings can be shown as written; methods return the defaults.

mod failure_handlers;

pub use failure_handlers::{FailureCause, FailureHandler, FailureRule, RetryBudget, StderrPattern};

use crate::failure_commands::TriagePolicy;
use crate::worker_messages::StdioSettings;
use crate::{Bytes, ParseAmountError, parse_duration};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The settings of a workflow that are stored as JSON, not in tables of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkflowSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "is_false")]
    pub use_pending_failed: bool,
    /// Maximum number of retries by failure handlers in a run, over all jobs (Windlass only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_budget: Option<RetryBudget>,
    /// What agents may decide about failures without approval (Windlass only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triage: Option<TriagePolicy>,
    /// Job limits: maximum number of claimed jobs with each label (Windlass only).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u32>,
    /// Maximum number of active work units (Windlass only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_units: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    pub enable_ro_crate: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_groups: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_jobs: Option<DynamicJobSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_config: Option<ExecutionConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_monitor: Option<ResourceMonitor>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slurm_defaults: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_node_expiration_buffer_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_node_wait_for_new_jobs_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_node_ignore_workflow_completion: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_node_wait_for_healthy_database_minutes: Option<u64>,
    /// How changed inputs are detected (Windlass only; default `mtime`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_detection: Option<ChangeDetection>,
}

impl WorkflowSettings {
    /// Output settings of jobs that have none: the workflow's own `stdio`, else the one in `execution_config`,
    /// where Torc has it.
    pub fn stdio(&self, own: StdioSettings) -> StdioSettings {
        let configured = self.execution_config.as_ref().and_then(|config| config.stdio);
        if own == StdioSettings::default() { configured.unwrap_or(own) } else { own }
    }

    /// Returns the entry of `job_stdio_overrides` for the job of this name.
    pub fn stdio_override(&self, job: &str) -> Option<StdioSettings> {
        self.execution_config.as_ref()?.job_stdio_overrides.get(job).copied()
    }
}

/// The method to detect changed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeDetection {
    /// By modification time and size.
    #[default]
    Mtime,
    /// By content: a file with only a new modification time is unchanged.
    Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DynamicJobSettings {
    pub max_iterations: u32,
}

impl Default for DynamicJobSettings {
    fn default() -> Self {
        Self { max_iterations: 1000 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    #[default]
    Direct,
    Slurm,
    Auto,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutionConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ExecutionMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sigkill_headroom_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staggered_start: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdio: Option<StdioSettings>,
    /// Overrides by job name, set by clients of Torc. A job's own `stdio` takes precedence.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub job_stdio_overrides: BTreeMap<String, StdioSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_resources: Option<bool>,
    /// `SIGTERM`, `TERM` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sigterm_lead_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_termination_signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_cpu_bind: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_mpi: Option<String>,
}

/// Why `enable_ro_crate` has no effect.
pub const NO_RO_CRATE: &str = "this version writes no RO-Crate";
/// Why `staggered_start` has no effect.
pub const NO_STAGGERED_START: &str = "workers start as soon as possible";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MonitoringGranularity {
    #[default]
    Summary,
    TimeSeries,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceMonitor {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_interval_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_interval_seconds: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub generate_plots: bool,
    /// The older spelling, for jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granularity: Option<MonitoringGranularity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobMonitorScope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_node: Option<NodeMonitorScope>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobMonitorScope {
    pub enabled: bool,
    pub granularity: MonitoringGranularity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeMonitorScope {
    pub enabled: bool,
    pub granularity: MonitoringGranularity,
    pub cpu: bool,
    pub memory: bool,
}

impl Default for NodeMonitorScope {
    fn default() -> Self {
        Self { enabled: false, granularity: MonitoringGranularity::Summary, cpu: true, memory: true }
    }
}

impl ResourceMonitor {
    pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
    pub const FLUSH_INTERVAL: Duration = Duration::from_mins(5);

    /// Whether jobs are sampled at all; samples are summarized for each attempt.
    pub fn measures_jobs(&self) -> bool {
        self.jobs.map_or(self.enabled != Some(false), |jobs| jobs.enabled)
    }

    /// Whether every sample of a job is stored, not only the summary.
    pub fn keeps_job_series(&self) -> bool {
        match self.jobs {
            Some(jobs) => jobs.enabled && jobs.granularity == MonitoringGranularity::TimeSeries,
            None => {
                self.enabled != Some(false) && self.granularity == Some(MonitoringGranularity::TimeSeries)
            }
        }
    }

    /// Whether every sample of the machine is stored.
    pub fn keeps_node_series(&self) -> bool {
        self.compute_node
            .is_some_and(|node| node.enabled && node.granularity == MonitoringGranularity::TimeSeries)
    }

    /// Interval at which samples are written to disk.
    pub fn flush_interval(&self) -> Duration {
        self.flush_interval_seconds.map_or(Self::FLUSH_INTERVAL, Duration::from_secs)
    }

    pub fn sample_interval(&self) -> Duration {
        self.sample_interval_seconds
            .map_or(Self::SAMPLE_INTERVAL, |seconds| Duration::from_secs_f64(seconds.max(0.01)))
    }
}

/// A Slurm scheduler of a workflow: the template of its allocations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmScheduler {
    pub name: String,
    pub account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem: Option<String>,
    pub nodes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp: Option<String>,
    /// The walltime as written; default `01:00:00`.
    pub walltime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub serialize_allocations: bool,
}

impl Default for SlurmScheduler {
    fn default() -> Self {
        Self {
            name: String::new(),
            account: String::new(),
            gres: None,
            mem: None,
            nodes: 1,
            ntasks_per_node: None,
            partition: None,
            qos: None,
            tmp: None,
            walltime: "01:00:00".to_owned(),
            extra: None,
            serialize_allocations: false,
        }
    }
}

impl SlurmScheduler {
    /// The duration of an allocation; `None` if the text cannot be parsed.
    pub fn walltime(&self) -> Option<Duration> {
        parse_walltime(&self.walltime).ok()
    }

    /// Memory of each node; `None` if not set, or all of it.
    pub fn memory(&self) -> Option<Bytes> {
        let memory = parse_slurm_size(self.mem.as_deref()?).ok()?;
        (memory != Bytes(0)).then_some(memory)
    }
}

/// Parses a duration as Slurm does: a plain number is minutes. All other formats of [`parse_duration`] are
/// accepted too.
pub fn parse_walltime(text: &str) -> Result<Duration, ParseAmountError> {
    match text.trim().parse::<u32>() {
        Ok(minutes) => Ok(Duration::from_secs(u64::from(minutes) * 60)),
        Err(_) => parse_duration(text),
    }
}

/// Parses a size as Slurm does: a plain number is MiB. All other formats of [`Bytes`] are accepted too.
pub fn parse_slurm_size(text: &str) -> Result<Bytes, ParseAmountError> {
    match text.trim().parse::<u32>() {
        Ok(mebibytes) => Ok(Bytes(u64::from(mebibytes) << 20)),
        Err(_) => text.parse(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionTrigger {
    // In the order in which they occur.
    OnWorkflowStart,
    OnWorkerStart,
    OnJobsReady,
    OnJobsComplete,
    OnWorkflowComplete,
    OnWorkerComplete,
}

impl ActionTrigger {
    /// Whether the trigger waits for jobs, so that the action has to select some.
    pub const fn is_about_jobs(self) -> bool {
        matches!(self, Self::OnJobsReady | Self::OnJobsComplete)
    }

    pub const fn is_about_workers(self) -> bool {
        matches!(self, Self::OnWorkerStart | Self::OnWorkerComplete)
    }

    /// The name in specs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnWorkflowStart => "on_workflow_start",
            Self::OnWorkerStart => "on_worker_start",
            Self::OnJobsReady => "on_jobs_ready",
            Self::OnJobsComplete => "on_jobs_complete",
            Self::OnWorkflowComplete => "on_workflow_complete",
            Self::OnWorkerComplete => "on_worker_complete",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionType {
    RunCommands,
    ScheduleNodes,
}

/// A workflow action: commands to run at a trigger. The jobs that a trigger waits for are stored separately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowAction {
    pub trigger_type: ActionTrigger,
    pub action_type: ActionType,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_allocations: Option<u32>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub start_one_worker_per_node: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<u32>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub persistent: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_amounts_are_parsed() {
        for (text, minutes) in
            [("90", 90), ("10:00", 10), ("01:30:00", 90), ("1-00", 1440), ("2h", 120), ("PT1H", 60)]
        {
            assert_eq!(parse_walltime(text), Ok(Duration::from_mins(minutes)), "{text}");
        }
        for (text, bytes) in [("100", 100 << 20), ("4G", 4 << 30), ("512k", 512 << 10), ("0", 0)] {
            assert_eq!(parse_slurm_size(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "soon", "-5", "1:2:3:4"] {
            assert!(parse_walltime(text).is_err(), "{text}");
            assert!(parse_slurm_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn allocation_defaults_apply() {
        let scheduler: SlurmScheduler = serde_json::from_str(r#"{"name": "s", "account": "a"}"#).unwrap();
        assert_eq!((scheduler.nodes, scheduler.walltime()), (1, Some(Duration::from_hours(1))));
        assert_eq!(scheduler.memory(), None);
        let all_memory = SlurmScheduler { mem: Some("0".to_owned()), ..scheduler };
        assert_eq!(all_memory.memory(), None);
    }
}
