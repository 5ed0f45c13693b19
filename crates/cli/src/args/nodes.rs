//! Nodes that get no jobs for a while.

use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "\
A server sets a node aside that fails what others do not, and says why. After that time it is tried with one job: if that
goes well the node is trusted again, if not it is set aside for twice as long.

Examples:
  windlass worker nodes                                        which are set aside, and why
  windlass worker nodes set-aside n17 --for 2h --reason \"its disk is full\"
  windlass worker nodes release n17                            it was mended: it gets jobs again at once")]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<NodesSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesSubcommand {
    /// List those that are set aside, or on probation after that.
    List,
    /// Have a node get no jobs for a while; what it runs goes on.
    SetAside(NodeQuarantineArgs),
    /// Trust a node again, at once.
    Release(OneNodeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NodeQuarantineArgs {
    #[command(flatten)]
    pub(crate) node: OneNodeArgs,
    /// For this time: `30m`, `2h`, `PT1H`.
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", value_parser = windlass_types::parse_duration)]
    pub(crate) spell: Duration,
    /// Why, for whoever wonders.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct OneNodeArgs {
    /// The host as `windlass worker list` shows it.
    #[arg(value_name = "HOST", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) host: String,
}
