//! What DAGMan calls for the nodes of a run.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
These are the PRE and POST scripts of a run on HTCondor, and nobody calls them by hand, except to see what they decide. They \
run in the directory where DAGMan works, that of the unit, and read what is there: condor.json above it, the event log, the \
reports and the stderr of the job. They never ask a server. What a node's POST script decided and why is in NODE.post.json; \
what its next attempt asks for, if that is more, in NODE.inc.

Exit codes: 0 the node succeeded, 1 it failed and may be tried again, 42 it failed for good, 43 the whole run is to end; \
`pre` exits with 75 while the cool-off of the node lasts, or its run is paused. What goes wrong in a script itself is 1 as well.

Examples:
  windlass condor post proc_000003 1 0 3 32.0 processing
  windlass condor unit mg_000012 1";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DagmanScriptArgs {
    #[command(subcommand)]
    pub(crate) verb: DagmanScriptSubcommand,
}

/// The same without the other commands: to parse these few words takes a fraction of the time.
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
    /// An attempt of a node is over: say of what class a failure is, and what follows.
    Post(PostScriptArgs),
    /// A landing is over: the same, and its unit runs where it ran.
    Elect(PostScriptArgs),
    /// An attempt of a node is to begin: wait for the end of its cool-off, and of a pause of its run.
    Pre(PreScriptArgs),
    /// The DAG of a work unit is over: pass an abort on.
    Unit(WorkUnitScriptArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PostScriptArgs {
    /// The node: $JOB.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// How its job ended: $RETURN. Negative for a signal, -1001 if it was not submitted, -1002 if it was removed.
    #[arg(value_name = "RETURN", allow_negative_numbers = true)]
    pub(crate) returned: i32,
    /// The number of the attempt from 0: $RETRY.
    #[arg(value_name = "RETRY")]
    pub(crate) retry: u32,
    /// How many attempts may follow the first: $MAX_RETRIES.
    #[arg(value_name = "MAX_RETRIES")]
    pub(crate) max_retries: u32,
    /// The job: $JOBID.
    #[arg(value_name = "JOBID", allow_hyphen_values = true)]
    pub(crate) job_id: String,
    /// What sort of node it is, by its name in condor.json.
    #[arg(value_name = "KIND")]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) place: DagDirectoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PreScriptArgs {
    /// The node: $JOB.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// The number of the attempt from 0: $RETRY.
    #[arg(value_name = "RETRY")]
    pub(crate) retry: u32,
    #[command(flatten)]
    pub(crate) place: DagDirectoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorkUnitScriptArgs {
    /// The unit: $JOB.
    #[arg(value_name = "UNIT")]
    pub(crate) unit: String,
    /// How its DAGMan ended: $RETURN.
    #[arg(value_name = "RETURN", allow_negative_numbers = true)]
    pub(crate) returned: i32,
    #[command(flatten)]
    pub(crate) place: DagDirectoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DagDirectoryArgs {
    /// Where DAGMan works, if that is not here.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
