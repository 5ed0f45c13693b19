//! `windlass`: reads the settings and the command line, runs one command, prints, and says by its exit code how it went.

mod args;
mod changes;
mod classification_rules;
mod cluster_profiles;
mod commands;
mod config;
mod context;
mod decision_history;
mod document_input;
mod error;
mod failure_commands;
mod failure_selection;
mod job_logs;
mod local_requests;
mod local_run;
mod local_worker;
mod log_scan;
mod missing_inputs;
mod object_selection;
mod orphaned_workers;
mod output_files;
mod packing;
mod parameter_sweep;
mod recovery;
mod rerun;
mod resource_samples;
mod server_discovery;
mod server_run;
mod spec_discovery;
mod spec_file;
mod ssh;
mod tail;
mod tar;
mod ui;
mod workflow_outline;
mod workflow_view;

use args::{Cli, OutputFormat};
use config::{CliConfig, ConfigPaths};
use context::CliContext;
use error::{CliError, CliExit};
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use ui::TerminalUi;
use windlass_store::StoreLocation;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // First of all: it has the place of a job, and takes signals that are meant for that.
    if let Some(exit) = windlass_worker::run_step_if_requested(&words) {
        return exit;
    }
    if let Some(exit) = commands::dagman_scripts::run_script_early(&words) {
        return exit;
    }
    let config = load_config();
    let cli = match parse_command_line(&words, &config) {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    let ui = TerminalUi::new(&cli.globals);
    let end = catch_unwind(AssertUnwindSafe(|| run_command(cli, &ui, config)))
        .unwrap_or_else(|_| Err(internal_error()));
    let exit = end.unwrap_or_else(|error| {
        ui.print_error(&error);
        error.kind.exit()
    });
    exit.into()
}

/// What files and the environment say. A directory that is gone is reported by whatever needs it.
fn load_config() -> CliConfig {
    let paths =
        ConfigPaths::new(&std::env::current_dir().unwrap_or_default(), |name| std::env::var(name).ok());
    let environment = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    CliConfig::load(&paths, environment)
}

/// The command line, or how to exit if it was wrong or only asked for help.
fn parse_command_line(words: &[OsString], config: &CliConfig) -> Result<Cli, ExitCode> {
    let command = config.apply_defaults(args::build_command());
    let words = args::move_subcommands_first(&command, words.to_vec());
    let matches = command.try_get_matches_from(&words);
    let parsed = matches.and_then(|matches| args::from_matches(&matches));
    parsed.map_err(|mut error| {
        args::usage_errors::add_suggestion(&mut error, &args::build_command(), &words);
        let wants_json = args::usage_errors::wants_json(&words)
            || config.get("format").is_some_and(|value| value.text == OutputFormat::Json.name());
        if !error.use_stderr() || !wants_json {
            // Help and version too are such errors. If nobody can be told, nothing is left to do.
            drop(error.print());
            return if error.use_stderr() { CliExit::Usage.into() } else { CliExit::Success.into() };
        }
        ui::print_usage_error(&args::usage_errors::to_cli_error(&error));
        CliExit::Usage.into()
    })
}

fn run_command(cli: Cli, ui: &TerminalUi, config: CliConfig) -> Result<CliExit, CliError> {
    let Some(command) = cli.command else {
        ui.print_help(&config.apply_defaults(args::build_command()).render_help())?;
        return Ok(CliExit::Success);
    };
    if let (Some(problem), false) = (config.problems.first(), command.tolerates_invalid_config()) {
        return Err(CliError::user(problem.to_string())
            .with_hint("`windlass config validate` names every mistake in the settings"));
    }
    // In the settings a format is a wish, for the commands that know it.
    if config.get("format").is_none_or(|setting| setting.text != cli.globals.format.name()) {
        refuse_unsupported_format(&command, cli.globals.format)?;
    }
    failure_commands::refuse_command_for_agents(&command)?;
    let ctx = CliContext::new(&cli.globals, config)?;
    for flag in cli.torc.ignored_flags() {
        ctx.ui.print_note(&format!(
            "{flag} has no effect: `windlass serve` runs a server, and without one the database is a file"
        ));
    }
    if cli.torc.has_password() || contains_password(std::env::args_os()) {
        ctx.ui.print_warning(
            "a password stands on the command line, where everybody on this machine can read it; PGPASSWORD, ~/.pgpass or \
             `windlass login` are for that",
        );
    }
    commands::dispatch_command(&ctx, &command)
}

/// Whether the URL of a database holds one.
fn contains_password(words: impl Iterator<Item = OsString>) -> bool {
    words.skip(1).any(|word| {
        let word = word.to_string_lossy();
        let value = word.strip_prefix("--").and_then(|flag| flag.split_once('='));
        let url = value.map_or(&*word, |(_, url)| url);
        StoreLocation::is_postgres(url) && StoreLocation::without_password(url) != url
    })
}

fn refuse_unsupported_format(command: &args::CliCommand, format: OutputFormat) -> Result<(), CliError> {
    let known = command.supported_formats();
    if known.contains(&format) {
        return Ok(());
    }
    let list = known.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    Err(CliError::user(format!("this command does not know the format {}", format.name()))
        .with_hint(format!("it knows: {list}")))
}

/// A panic has already said where it happened; what is on disk is whole in any case.
fn internal_error() -> CliError {
    CliError::internal("this is a bug in windlass; nothing that was completed is lost")
        .with_hint("`windlass resume` goes on; please report what is printed above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_on_the_command_line_is_seen() {
        let said = |words: &[&str]| contains_password(words.iter().map(OsString::from));
        assert!(said(&["windlass", "status", "--db", "postgres://me:secret@db/w"]));
        assert!(said(&["windlass", "status", "--db=postgresql://me:secret@db/w?sslmode=require"]));
        assert!(said(&["windlass", "db", "copy", "postgres://me@db/w?password=secret"]));
        assert!(!said(&["windlass", "status", "--db", "postgres://me@db:5432/w?sslmode=require"]));
        assert!(
            !said(&["windlass", "exec", "-c", "curl http://me:secret@there"]),
            "that is for the job to know"
        );
    }
}
