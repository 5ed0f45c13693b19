//! One file per command. Each has `run(ctx, args)`, which says how the program exits.

pub(crate) mod cancel;
pub(crate) mod demo;
pub(crate) mod exec;
pub(crate) mod resume;
pub(crate) mod run;

use crate::args::Command;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn dispatch(ctx: &Context, command: &Command) -> Result<Exit, CliError> {
    match command {
        Command::Run(args) => run::run(ctx, args),
        Command::Resume(args) => resume::run(ctx, args),
        Command::Exec(args) => exec::run(ctx, args),
        Command::Cancel(args) => cancel::run(ctx, args),
        Command::Demo(args) => demo::run(ctx, args),
        Command::Worker(args) => crate::local::worker(args),
        _ => Err(CliError::internal("this command is not built yet")),
    }
}
