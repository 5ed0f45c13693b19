//! `windlass slurm`.

mod worker;

use crate::args::slurm::SlurmVerb;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(ctx: &Context, verb: &SlurmVerb) -> Result<Exit, CliError> {
    match verb {
        SlurmVerb::Worker(args) => worker::run(ctx, args),
    }
}
