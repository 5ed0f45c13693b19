//! `windlass completions`: what makes a shell complete our commands.

use crate::args::{self, tools::CompletionsArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(ctx: &Context, args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "windlass", &mut script);
    ctx.ui.print_bytes(&script)?;
    Ok(Exit::Success)
}
