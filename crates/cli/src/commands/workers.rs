//! `windlass workers`: those who work for a server.

use crate::args::workers::{WorkersArgs, WorkersListArgs, WorkersVerb};
use crate::context::Context;
use crate::error::{CliError, Exit};
use windlass_types::WorkerId;

pub(crate) fn run(ctx: &Context, args: &WorkersArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, &args.list),
        Some(WorkersVerb::List(args)) => list(ctx, args),
        Some(WorkersVerb::Show(args)) => show(ctx, args.worker),
        Some(WorkersVerb::Drain(args)) => {
            ctx.require_server()?.drain_worker(args.worker)?;
            ctx.ui.note(&format!("worker {} finishes what it has, and leaves", args.worker));
            Ok(Exit::Success)
        }
        Some(WorkersVerb::Retire(args)) => {
            ctx.require_server()?.retire_worker(args.worker)?;
            ctx.ui.note(&format!("worker {} is noted as gone; what it held runs again", args.worker));
            Ok(Exit::Success)
        }
    }
}

fn list(ctx: &Context, _args: &WorkersListArgs) -> Result<Exit, CliError> {
    ctx.require_server()?;
    Ok(Exit::Success)
}

fn show(ctx: &Context, _worker: WorkerId) -> Result<Exit, CliError> {
    ctx.require_server()?;
    Ok(Exit::Success)
}
