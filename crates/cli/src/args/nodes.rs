//! Quarantine of nodes.

use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
A server quarantines a node where jobs fail that succeed elsewhere. After the quarantine the node gets one job, the probe \
job. If it completes, the node gets jobs as before; otherwise the quarantine is repeated with twice the duration.

Examples:
  windlass worker nodes                                        list quarantined nodes and reasons
  windlass worker nodes quarantine n17 --for 2h --reason \"its disk is full\"
  windlass worker nodes release n17                            end the quarantine at once")]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<NodesSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesSubcommand {
    /// List nodes that are in quarantine or run their probe job.
    List,
    /// Quarantine a node: it gets no jobs for a time; running jobs continue.
    #[command(alias = "set-aside")]
    Quarantine(NodeQuarantineArgs),
    /// Release a node from quarantine.
    Release(OneNodeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NodeQuarantineArgs {
    #[command(flatten)]
    pub(crate) node: OneNodeArgs,
    /// Duration of the quarantine: `30m`, `2h`, `PT1H`.
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = windlass_types::parse_duration)]
    pub(crate) spell: Duration,
    /// Reason, shown in the list.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct OneNodeArgs {
    /// Host of the node, as `windlass worker list` shows it.
    #[arg(value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) host: String,
}
