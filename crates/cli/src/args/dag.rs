//! Runs of requests and of workflows on HTCondor (DAGs).

use super::list_options::ConfirmArgs;
use clap::{Args, Subcommand};
use windlass_types::requests::RequestRunStatus;

pub(crate) const EXAMPLES: &str = "\
A DAG is one run of a request, on workers or on HTCondor. <DAG> is its id, the name of its request (for the newest run), \
or its directory if `windlass submit --backend htcondor` created it.

Examples:
  windlass request dag                                         list all runs
  windlass request dag show reco                               show the newest run of `reco`, and held nodes
  windlass request dag nodes reco --status failed,held         list nodes with their current states
  windlass request dag logs reco proc_000003 --unit 12         show where the logs of a node are
  windlass request dag hold reco --reason \"storage is down\"    start no more nodes; running ones continue
  windlass request dag release reco                            continue
  windlass request dag rescue reco                             rerun nodes that an ended run has not completed";

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
    /// Show the details of a run: progress, held nodes, history.
    #[command(alias = "get")]
    Show(OneDagArgs),
    /// List the nodes of a run with their current states.
    Nodes(DagNodesArgs),
    /// Show where the logs of a run or node are.
    Logs(DagLogsArgs),
    /// Hold a run on HTCondor: running nodes continue, and no new nodes start.
    Hold(DagReasonArgs),
    /// Release a held run on HTCondor.
    Release(DagReasonArgs),
    /// Remove a run. Its completed work is kept, and its request is held.
    Remove(DagRemoveArgs),
    /// Rerun the nodes that an ended run has not completed.
    Rescue(DagReasonArgs),
}

#[derive(Debug, Default, Args)]
pub(crate) struct DagListArgs {
    /// Only runs in this status; separate several by commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = parse_status)]
    pub(crate) status: Vec<RequestRunStatus>,
    /// Only runs of this request.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
    /// Maximum number of entries.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Number of entries to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
pub(crate) struct OneDagArgs {
    /// Run: id, name of its request, or directory.
    #[arg(value_name = "DAG")]
    pub(crate) dag: String,
}

#[derive(Debug, Args)]
pub(crate) struct DagNodesArgs {
    #[command(flatten)]
    pub(crate) target: OneDagArgs,
    /// Only nodes of the work unit with this number.
    #[arg(long, value_name = "N")]
    pub(crate) unit: Option<u32>,
    /// Only nodes in this state; separate several by commas.
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(crate) status: Vec<String>,
    /// Maximum number of entries.
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Number of entries to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
pub(crate) struct DagLogsArgs {
    #[command(flatten)]
    pub(crate) target: OneDagArgs,
    /// Name of the node. Default: show the logs of DAGMan.
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Number of the work unit of the node.
    #[arg(long, value_name = "N")]
    pub(crate) unit: Option<u32>,
    /// Also print this number of last lines of each log that is on this machine.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct DagReasonArgs {
    #[command(flatten)]
    pub(crate) target: OneDagArgs,
    /// Reason, recorded in the history.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct DagRemoveArgs {
    #[command(flatten)]
    pub(crate) removal: DagReasonArgs,
    #[command(flatten)]
    pub(crate) confirm: ConfirmArgs,
}

fn parse_status(text: &str) -> Result<RequestRunStatus, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseEnumNameError| error.to_string())
}
