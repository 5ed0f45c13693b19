//! Of what class a failure is.

use clap::Args;
use std::path::PathBuf;
use windlass_types::Signal;

#[derive(Debug, Args)]
#[command(after_help = "\
Classes: transient, permanent, data, infrastructure, memory, timeout, unknown. A class is a label; by itself it retries \
nothing.

Examples:
  windlass failures classify job.e
  windlass failures classify slurm-*.out --return-code 75
  windlass failures classify job.e --signal SIGKILL
  ssh node17 cat job.e | windlass failures classify -
  windlass failures classify --rules                     all rules, in the order in which they are asked
  windlass failures classify job.e --rules-file our-rules.toml")]
pub(crate) struct ClassifyArgs {
    /// Logs of failures, of which the last lines count; `-` is standard input.
    #[arg(value_name = "LOGFILE", required_unless_present = "rules")]
    pub(crate) logs: Vec<PathBuf>,
    /// Exit code of the job; 1 unless something else is said.
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) return_code: Option<i32>,
    /// Signal that ended the job: SIGKILL, KILL or 9.
    #[arg(short, long, value_name = "SIGNAL")]
    pub(crate) signal: Option<Signal>,
    /// It was ended because it used more memory than it may.
    #[arg(long)]
    pub(crate) oom: bool,
    /// It was ended because its time was up.
    #[arg(long, conflicts_with = "oom")]
    pub(crate) timeout: bool,
    /// List all rules instead.
    #[arg(long, conflicts_with_all = ["logs", "return_code", "signal", "oom", "timeout"])]
    pub(crate) rules: bool,
    /// File with rules of your own, which are asked before the others.
    #[arg(long, value_name = "PATH")]
    pub(crate) rules_file: Option<PathBuf>,
}
