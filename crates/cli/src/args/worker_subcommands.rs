//! `windlass worker` and its subcommands.

use super::WorkflowRef;
use super::worker::WorkerArgs;
use clap::{Args, Subcommand};
use windlass_types::WorkerId;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WorkerCommandArgs {
    #[command(flatten)]
    pub(crate) start: WorkerArgs,
    #[command(subcommand)]
    pub(crate) verb: Option<WorkerSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerSubcommand {
    /// Start a worker on this machine, as `windlass worker` alone does.
    Start(WorkerArgs),
    /// List the workers of a server.
    List(WorkersListArgs),
    /// Show the details of a worker.
    #[command(alias = "get")]
    Show(OneWorkerArgs),
    /// Drain a worker: it finishes its jobs, takes no more, and exits.
    Drain(OneWorkerArgs),
    /// Declare a worker dead: its jobs run again at once.
    Retire(OneWorkerArgs),
    /// Quarantine of nodes: list, quarantine, release.
    Nodes(super::nodes::NodesArgs),
    /// Workers on machines reached by ssh: add, run, status, stop, collect-logs.
    Remote(super::worker::RemoteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct WorkersListArgs {
    /// Only workers that may run this workflow: id, name, or `last`.
    #[arg(value_name = "WORKFLOW")]
    pub(crate) workflow: Option<WorkflowRef>,
}

#[derive(Debug, Args)]
pub(crate) struct OneWorkerArgs {
    /// Id of the worker, as `windlass worker list` shows it.
    #[arg(value_name = "ID", value_parser = parse_worker_id)]
    pub(crate) worker: WorkerId,
}

fn parse_worker_id(text: &str) -> Result<WorkerId, String> {
    text.parse().map_err(|_| "expected the number of a worker".to_owned())
}
