//! `windlass slurm`: what is asked of Slurm for a workflow, and what runs there.

mod generate;
mod plan;
mod regenerate;
mod worker;

pub(crate) use plan::show;

use crate::args::slurm::SlurmVerb;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(ctx: &Context, verb: &SlurmVerb) -> Result<Exit, CliError> {
    match verb {
        SlurmVerb::Generate(args) => generate::run(ctx, args),
        SlurmVerb::Plan(args) => plan::run(ctx, args),
        SlurmVerb::Worker(args) => worker::run(ctx, args),
        SlurmVerb::Regenerate(args) => regenerate::run(ctx, args),
    }
}
