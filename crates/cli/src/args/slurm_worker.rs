//! The worker that the batch script of an allocation starts; not for people.

use super::run::parse_memory;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_agent::environment::check_pattern;
use windlass_types::settings::WorkflowSettings;
use windlass_types::{Bytes, parse_duration};

#[derive(Debug, Args)]
pub(crate) struct SlurmWorkerArgs {
    /// The workflow that it works for.
    #[arg(long, value_name = "ID")]
    pub(crate) workflow: i64,
    /// The allocation that it is in, as its server knows it.
    #[arg(long, value_name = "ID")]
    pub(crate) allocation: Option<i64>,
    /// How many seconds the allocation was asked for: counts where Slurm does not say how much is left.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) walltime: Option<Duration>,
    /// So many seconds before the end Slurm tells of it: then only what can be done in time is begun. Told at another time, it
    /// takes nothing more.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) warning: Option<Duration>,
    /// What the workflow says about its workers, as JSON: counts where the server does not answer.
    #[arg(long, value_name = "JSON", value_parser = parse_settings)]
    pub(crate) settings: Option<Box<WorkflowSettings>>,
    /// Where the workflow's output goes.
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Run at most this many jobs at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_parallel_jobs: Option<u32>,
    /// Let jobs use this much memory instead of what Slurm says.
    #[arg(long, value_name = "GIB", value_parser = parse_memory)]
    pub(crate) memory: Option<Bytes>,
    /// Leave when there was nothing to do for this time, whatever the workflow says.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Also pass this variable of the allocation's environment to jobs; `NAME*` for all that begin so. Default: the variables that
    /// every worker passes, SLURM_* and those that name the GPUs. `WINDLASS_PASS_ENVIRONMENT` has more, with commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = check_pattern)]
    pub(crate) pass_environment: Vec<String>,
    /// Keep what has to outlive this process in this directory, on a disk of this machine.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

fn parse_settings(text: &str) -> Result<Box<WorkflowSettings>, String> {
    serde_json::from_str(text).map(Box::new).map_err(|error| error.to_string())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|_| "a number of seconds is wanted".to_owned())
}
