//! `windlass`: reads the command line, runs one command, prints, and says by its exit code how it went.

mod args;
mod commands;
mod context;
mod drive;
mod error;
mod job_logs;
mod local;
mod plan;
mod select;
mod sweep;
mod tail;
mod ui;
mod view;

use args::Cli;
use clap::{CommandFactory as _, Parser as _};
use context::Context;
use error::{CliError, Exit};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ui = ui::Ui::new(&cli.globals);
    let exit = run(&cli).unwrap_or_else(|error| {
        ui.error(&error);
        error.kind.exit()
    });
    exit.into()
}

fn run(cli: &Cli) -> Result<Exit, CliError> {
    let Some(command) = &cli.command else {
        Cli::command().print_help().map_err(|e| CliError::io(format!("cannot print help: {e}")))?;
        return Ok(Exit::Success);
    };
    commands::dispatch(&Context::new(&cli.globals)?, command)
}
