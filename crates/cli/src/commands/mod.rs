//! One file per command. Each has `run(ctx, args)`, which says how the program exits.

mod cancel;
mod create;
mod demo;
mod exec;
mod jobs;
mod logs;
mod results;
mod resume;
mod run;
mod status;
mod workflows;

use crate::args::Command;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn dispatch(ctx: &Context, command: &Command) -> Result<Exit, CliError> {
    match command {
        Command::Run(args) => run::run(ctx, args),
        Command::Resume(args) => resume::run(ctx, args),
        Command::Exec(args) => exec::run(ctx, args),
        Command::Create(args) => create::run(ctx, args),
        Command::Status(args) => status::run(ctx, args),
        Command::Workflows(args) => workflows::run(ctx, args),
        Command::Jobs(args) => jobs::run(ctx, args),
        Command::Results(args) => results::run(ctx, args),
        Command::Logs(args) => logs::run(ctx, args),
        Command::Cancel(args) => cancel::run(ctx, args),
        Command::Demo(args) => demo::run(ctx, args),
        Command::Worker => crate::local::worker(),
    }
}
