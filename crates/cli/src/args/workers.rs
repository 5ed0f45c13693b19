//! Those who work for a server.

use super::WorkflowRef;
use clap::{Args, Subcommand};
use windlass_types::WorkerId;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  windlass workers                     who works now
  windlass workers drain 7             it finishes what it has, and leaves
  windlass workers retire 7            it is certainly dead: what it held runs again at once"
)]
pub(crate) struct WorkersArgs {
    #[command(flatten)]
    pub(crate) list: WorkersListArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<WorkersSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkersSubcommand {
    /// List who works now.
    List(WorkersListArgs),
    /// Show all about one.
    #[command(alias = "get")]
    Show(OneWorkerArgs),
    /// Have one finish what it has, and leave.
    Drain(OneWorkerArgs),
    /// Say that one is certainly dead: what it held runs again at once.
    Retire(OneWorkerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct WorkersListArgs {
    /// Only those that may work for this workflow: its id, its name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: Option<WorkflowRef>,
}

#[derive(Debug, Args)]
pub(crate) struct OneWorkerArgs {
    /// The number that `windlass workers` shows.
    #[arg(value_name = "ID", value_parser = parse_worker_id)]
    pub(crate) worker: WorkerId,
}

fn parse_worker_id(text: &str) -> Result<WorkerId, String> {
    text.parse().map_err(|_| "a worker is named by its number".to_owned())
}
