//! Scripts that DAGMan calls for the nodes of a run.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
The PRE and POST scripts of a run on HTCondor; call them by hand only to see what they decide. They run in DAGMan's \
directory, that of the work unit, and read condor.json in the parent directory, the event log, and the reports and stderr \
of the job. They do not contact a server. NODE.post.json records what the POST script of a node decided and why, and \
NODE.inc the increased requirements of the next attempt.

Exit codes: 0 the node succeeded, 1 it failed and may be retried, 42 it failed permanently, 43 the whole run must end. \
`pre` exits with 75 while the retry delay of the node lasts or its run is paused. Errors of a script itself exit with 1.

Examples:
  windlass condor post proc_000003 1 0 3 32.0 processing
  windlass condor unit mg_000012 1";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DagmanScriptArgs {
    #[command(subcommand)]
    pub(crate) verb: DagmanScriptSubcommand,
}

/// The same without the other commands, which makes parsing faster.
#[derive(Debug, Parser)]
#[command(
    name = "windlass condor",
    no_binary_name = true,
    disable_help_flag = true,
    disable_help_subcommand = true
)]
pub(crate) struct DagmanScriptCli {
    #[command(subcommand)]
    pub(crate) verb: DagmanScriptSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DagmanScriptSubcommand {
    /// After an attempt of a node: classify a failure, and decide what follows.
    Post(PostScriptArgs),
    /// After a landing node: the same as `post`, and select the site of its work unit.
    Elect(PostScriptArgs),
    /// Before an attempt of a node: wait for its retry delay and for a pause of its run.
    Pre(PreScriptArgs),
    /// After the DAG of a work unit: forward an abort.
    Unit(WorkUnitScriptArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PostScriptArgs {
    /// Name of the node: $JOB.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Exit code of the job: $RETURN. Negative for a signal, -1001 if it was not submitted, -1002 if it was
    /// removed.
    #[arg(value_name = "RETURN", allow_negative_numbers = true)]
    pub(crate) returned: i32,
    /// Number of the attempt, from 0: $RETRY.
    #[arg(value_name = "RETRY")]
    pub(crate) retry: u32,
    /// Maximum number of retries: $MAX_RETRIES.
    #[arg(value_name = "MAX_RETRIES")]
    pub(crate) max_retries: u32,
    /// Job id: $JOBID.
    #[arg(value_name = "JOBID", allow_hyphen_values = true)]
    pub(crate) job_id: String,
    /// Kind of the node, by its name in condor.json.
    #[arg(value_name = "KIND")]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) place: DagDirectoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PreScriptArgs {
    /// Name of the node: $JOB.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Number of the attempt, from 0: $RETRY.
    #[arg(value_name = "RETRY")]
    pub(crate) retry: u32,
    #[command(flatten)]
    pub(crate) place: DagDirectoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorkUnitScriptArgs {
    /// Work unit: $JOB.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// Exit code of its DAGMan: $RETURN.
    #[arg(value_name = "RETURN", allow_negative_numbers = true)]
    pub(crate) returned: i32,
    #[command(flatten)]
    pub(crate) place: DagDirectoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DagDirectoryArgs {
    /// Directory of DAGMan. Default: the current directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
