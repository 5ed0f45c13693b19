//! Runs of requests and of workflows on HTCondor: DAGs.

use super::list_options::ConfirmArgs;
use clap::{Args, Subcommand};
use windlass_types::requests::RequestRunStatus;

pub(crate) const EXAMPLES: &str = "\
A DAG is one run of a request: on the engine, or on HTCondor. It is named by its id, by its request (then it is the newest
run of it), or, where `windlass submit --backend htcondor` made it, by its directory.

Examples:
  windlass request dag                                         all of them
  windlass request dag show reco                               how the newest run of `reco` stands, and what is held
  windlass request dag nodes reco --status failed,held         its nodes as they are at this moment
  windlass request dag logs reco proc_000003 --unit 12         where the logs of a node are
  windlass request dag hold reco --reason \"storage is down\"    nothing more of it begins; what runs goes on
  windlass request dag release reco                            it goes on
  windlass request dag rescue reco                             go on with what the run has left";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct DagArgs {
    #[command(flatten)]
    pub(crate) list: DagListArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<DagSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DagSubcommand {
    /// List runs of requests.
    List(DagListArgs),
    /// Show all about a run: how far it is, what is held, its history.
    #[command(alias = "get")]
    Show(OneDagArgs),
    /// List the nodes of a run as they are at this moment.
    Nodes(DagNodesArgs),
    /// Show where the logs of a run or of one of its nodes are.
    Logs(DagLogsArgs),
    /// Have nothing more of a run on HTCondor begin; what runs goes on.
    Hold(DagReasonArgs),
    /// Let a run go on that is held on HTCondor.
    Release(DagReasonArgs),
    /// End a run; what is completed stays so, and its request is held.
    Remove(DagRemoveArgs),
    /// Go on with what a run has left that is over.
    Rescue(DagReasonArgs),
}

#[derive(Debug, Default, Args)]
pub(crate) struct DagListArgs {
    /// Only those in this status; several with commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = parse_status)]
    pub(crate) status: Vec<RequestRunStatus>,
    /// Only those of this request.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
    /// List at most this many.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Leave out this many at the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
pub(crate) struct OneDagArgs {
    /// Its id, the name of its request, or its directory.
    #[arg(value_name = "DAG")]
    pub(crate) dag: String,
}

#[derive(Debug, Args)]
pub(crate) struct DagNodesArgs {
    #[command(flatten)]
    pub(crate) which: OneDagArgs,
    /// Only those of this work unit, by its number.
    #[arg(long, value_name = "N")]
    pub(crate) unit: Option<u32>,
    /// Only those in this state; several with commas.
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(crate) status: Vec<String>,
    /// List at most this many.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Leave out this many at the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
pub(crate) struct DagLogsArgs {
    #[command(flatten)]
    pub(crate) which: OneDagArgs,
    /// A node; without it, DAGMan itself.
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// The work unit that the node is of, by its number.
    #[arg(long, value_name = "N")]
    pub(crate) unit: Option<u32>,
    /// Print the last lines of each, too, if they are on this machine.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct DagReasonArgs {
    #[command(flatten)]
    pub(crate) which: OneDagArgs,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct DagRemoveArgs {
    #[command(flatten)]
    pub(crate) what: DagReasonArgs,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

fn parse_status(text: &str) -> Result<RequestRunStatus, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseNameError| error.to_string())
}
