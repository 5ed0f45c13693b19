//! `windlass`: reads the command line, runs one command, prints, and says by its exit code how it went.

mod args;
mod commands;
mod context;
mod drive;
mod error;
mod inputs;
mod job_logs;
mod local;
mod plan;
mod select;
mod spec_jobs;
mod sweep;
mod tail;
mod ui;
mod view;

use args::Cli;
use clap::{CommandFactory as _, Parser as _};
use context::Context;
use error::{CliError, Exit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use ui::Ui;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ui = Ui::new(&cli.globals);
    let end = catch_unwind(AssertUnwindSafe(|| run(&cli, &ui))).unwrap_or_else(|_| Err(bug()));
    let exit = end.unwrap_or_else(|error| {
        ui.error(&error);
        error.kind.exit()
    });
    exit.into()
}

fn run(cli: &Cli, ui: &Ui) -> Result<Exit, CliError> {
    let Some(command) = &cli.command else {
        ui.print_help(&Cli::command().render_help())?;
        return Ok(Exit::Success);
    };
    commands::dispatch(&Context::new(&cli.globals)?, command)
}

/// A panic has already said where it happened; what is on disk is whole in any case.
fn bug() -> CliError {
    CliError::internal("this is a bug in windlass; nothing that was completed is lost")
        .with_hint("`windlass resume` goes on; please report what is printed above")
}
