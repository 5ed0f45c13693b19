//! Classification of failures.

use clap::Args;
use std::path::PathBuf;
use windlass_types::Signal;

#[derive(Debug, Args)]
#[command(after_help = "\
Classes: transient, permanent, data, infrastructure, memory, timeout, unknown. A class is a label; it does not cause a \
retry.

Examples:
  windlass failures classify job.e
  windlass failures classify slurm-*.out --return-code 75
  windlass failures classify job.e --signal SIGKILL
  ssh node17 cat job.e | windlass failures classify -
  windlass failures classify --rules                     list all rules in the order of their evaluation
  windlass failures classify job.e --rules-file our-rules.toml")]
pub(crate) struct ClassifyArgs {
    /// Log files; the last lines of each are classified. `-` reads standard input.
    #[arg(value_name = "LOGFILE", required_unless_present = "rules")]
    pub(crate) logs: Vec<PathBuf>,
    /// Exit code of the job. Default: 1.
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) return_code: Option<i32>,
    /// Signal that ended the job: SIGKILL, KILL or 9.
    #[arg(short, long, value_name = "SIGNAL")]
    pub(crate) signal: Option<Signal>,
    /// Assume that the job was killed because it exceeded its memory limit.
    #[arg(long)]
    pub(crate) oom: bool,
    /// Assume that the job was killed because it exceeded its time limit.
    #[arg(long, conflicts_with = "oom")]
    pub(crate) timeout: bool,
    /// List all rules instead of classifying a failure.
    #[arg(long, conflicts_with_all = ["logs", "return_code", "signal", "oom", "timeout"])]
    pub(crate) rules: bool,
    /// File with your own rules, which are evaluated before the built-in rules.
    #[arg(long, value_name = "PATH")]
    pub(crate) rules_file: Option<PathBuf>,
}
