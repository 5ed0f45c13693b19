//! Options of the worker that the batch script of an allocation starts; internal.

use super::run::parse_memory;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_agent::environment::check_pattern;
use windlass_types::settings::WorkflowSettings;
use windlass_types::{Bytes, parse_duration};

#[derive(Debug, Args)]
pub(crate) struct SlurmWorkerArgs {
    /// Workflow of the worker.
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: i64,
    /// Allocation of the worker, by its id at the server.
    #[arg(long, value_name = "ID")]
    pub(crate) allocation: Option<i64>,
    /// Time limit of the allocation in seconds, used if Slurm does not report the remaining time.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) walltime: Option<Duration>,
    /// Time between Slurm's warning signal and the end of the allocation, in seconds. After the warning, only
    /// jobs that fit into this time are started; after a warning at another time, none.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) warning: Option<Duration>,
    /// Settings of the workflow for its workers as JSON, used if the server does not respond.
    #[arg(long, value_name = "JSON", value_parser = parse_settings)]
    pub(crate) settings: Option<Box<WorkflowSettings>>,
    /// Output directory of the workflow.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Maximum number of concurrent jobs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_jobs: Option<u32>,
    /// Memory that jobs may use. Default: that of the allocation.
    #[arg(long, value_name = "GIB", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Exit after this time without jobs, overriding the setting of the workflow.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Also pass this variable of the allocation's environment to jobs; `NAME*` for all with this prefix.
    /// Default: the variables that every worker passes, SLURM_* and those that name the GPUs.
    /// `WINDLASS_PASS_ENVIRONMENT` adds more, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = check_pattern)]
    pub(crate) pass_environment: Vec<String>,
    /// Directory for the state that outlives this process, on a local disk.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

fn parse_settings(text: &str) -> Result<Box<WorkflowSettings>, String> {
    serde_json::from_str(text).map(Box::new).map_err(|error| error.to_string())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|_| "expected a number of seconds".to_owned())
}
