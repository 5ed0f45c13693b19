//! Slurm: what is asked of it for a workflow, and what runs there.

use super::slurm_worker::SlurmWorkerArgs;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    pub(crate) verb: SlurmVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmVerb {
    /// The worker that the batch script of an allocation starts; not for people.
    #[command(hide = true)]
    Worker(SlurmWorkerArgs),
}
