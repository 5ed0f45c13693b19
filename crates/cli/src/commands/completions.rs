//! `windlass config completions`: prints the completion script of a shell.

use crate::args::{self, config_and_docs::CompletionsArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};

pub(crate) fn run(ctx: &CliContext, args: &CompletionsArgs) -> Result<CliExit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::build_plain_command(), "windlass", &mut script);
    ctx.ui.print_bytes(&script)?;
    Ok(CliExit::Success)
}
