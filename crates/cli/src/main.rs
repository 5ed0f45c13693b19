//! `windlass`: reads settings and command line, runs one command, and returns its exit code.

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
mod log_cursor;
mod log_scan;
mod missing_inputs;
mod object_selection;
mod orphaned_workers;
mod output_files;
mod parameter_sweep;
mod recovery;
mod rerun;
mod resource_samples;
mod server_discovery;
mod server_run;
mod slurm_packing;
mod spec_discovery;
mod spec_file;
mod ssh;
mod tar;
mod ui;
mod workflow_outline;
mod workflow_view;

use args::old_spellings::OldSpelling;
use args::{Cli, OutputFormat};
use config::{CliConfig, ConfigPaths};
use context::CliContext;
use error::{CliError, CliExit};
use std::ffi::OsString;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use ui::TerminalUi;
use windlass_server::logging::{ServerLogFormat, start_logging};
use windlass_store::StoreLocation;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // Before anything else: the step supervisor replaces the job and handles signals meant for it.
    if let Some(exit) = windlass_worker::run_step_if_requested(&words) {
        return exit;
    }
    if let Some(exit) = commands::dagman_scripts::run_script_early(&words) {
        return exit;
    }
    let config = load_config();
    let (cli, old_spelling) = match parse_command_line(&words, &config) {
        Ok(parsed) => parsed,
        Err(exit) => return exit,
    };
    let ui = TerminalUi::new(&cli.globals);
    if cli.globals.format == OutputFormat::Table
        && let Some(note) = old_spelling.and_then(OldSpelling::note)
    {
        ui.print_note(&note);
    }
    let end = catch_unwind(AssertUnwindSafe(|| run_command(cli, &ui, config)))
        .unwrap_or_else(|_| Err(internal_error()));
    let exit = end.unwrap_or_else(|error| {
        ui.print_error(&error);
        error.kind.exit()
    });
    exit.into()
}

/// Settings from files and the environment. A missing current directory is reported by the command that needs
/// it.
fn load_config() -> CliConfig {
    let paths =
        ConfigPaths::new(&std::env::current_dir().unwrap_or_default(), |name| std::env::var(name).ok());
    let environment = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    CliConfig::load(&paths, environment)
}

/// The command line, and its old spelling if it has one; or how to exit if it was wrong or only asked for help.
fn parse_command_line(
    words: &[OsString],
    config: &CliConfig,
) -> Result<(Cli, Option<&'static OldSpelling>), ExitCode> {
    let command = build_configured_command(config);
    let (words, old_spelling) = args::replace_old_spelling(&command, words.to_vec());
    let words = args::move_subcommands_first(&command, words);
    if words.len() == 3 && words[1] == "help" && words[2] == "options" {
        let page = args::help::render_global_options(&config.apply_defaults(args::build_plain_command()));
        // As with clap's own pages: if it cannot be printed, nothing is left to do.
        drop(writeln!(std::io::stdout(), "{page}"));
        return Err(CliExit::Success.into());
    }
    let matches = command.try_get_matches_from(&words);
    let parsed = matches.and_then(|matches| args::from_matches(&matches));
    parsed.map(|cli| (cli, old_spelling)).map_err(|mut error| {
        args::usage_errors::add_suggestion(&mut error, &args::build_command(), &words);
        let wants_json = args::usage_errors::wants_json(&words)
            || config.get("format").is_some_and(|value| value.text == OutputFormat::Json.name());
        if !error.use_stderr() || !wants_json {
            // Help and version too are such errors. If they cannot be printed, nothing is left to do.
            drop(error.print());
            return if error.use_stderr() { CliExit::Usage.into() } else { CliExit::Success.into() };
        }
        ui::print_usage_error(&args::usage_errors::to_cli_error(&error));
        CliExit::Usage.into()
    })
}

/// The command line with the defaults of the settings.
fn build_configured_command(config: &CliConfig) -> clap::Command {
    args::help::group_commands(config.apply_defaults(args::build_plain_command()))
}

fn run_command(cli: Cli, ui: &TerminalUi, config: CliConfig) -> Result<CliExit, CliError> {
    let Some(command) = cli.command else {
        ui.print_help(&build_configured_command(&config).render_help())?;
        return Ok(CliExit::Success);
    };
    if let (Some(problem), false) = (config.problems.first(), command.tolerates_invalid_config()) {
        return Err(CliError::user(problem.to_string())
            .with_hint("`windlass config validate` lists all errors in the settings"));
    }
    // A format in the settings applies only to commands that support it.
    if config.get("format").is_none_or(|setting| setting.text != cli.globals.format.name()) {
        refuse_unsupported_format(&command, cli.globals.format)?;
    }
    failure_commands::refuse_command_for_agents(&command)?;
    if let (Some(level), false) = (&cli.log_level, matches!(command, args::CliCommand::Serve(_))) {
        start_logging(ServerLogFormat::Text, level)?;
    }
    let ctx = CliContext::new(&cli.globals, config)?;
    for (flag, why) in cli.torc.ignored_flags().into_iter().chain(command.ignored_flag()) {
        ctx.ui.print_note(&format!("{flag} has no effect: {why}"));
    }
    if cli.torc.has_password() || contains_password(std::env::args_os()) {
        ctx.ui.print_warning(
            "a password on the command line is visible to all users of this machine; use PGPASSWORD, ~/.pgpass or \
             `windlass auth login`",
        );
    }
    commands::dispatch_command(&ctx, &command)
}

/// Whether the URL of a database contains a password.
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
    Err(CliError::user(format!("this command does not support the format {}", format.name()))
        .with_hint(format!("supported: {list}")))
}

/// The panic message has been printed; data on disk is consistent in any case.
fn internal_error() -> CliError {
    CliError::internal("this is a bug in windlass; completed work is not lost")
        .with_hint("continue with `windlass resume`; please report the output above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_password_on_command_line_is_detected() {
        let has_password = |words: &[&str]| contains_password(words.iter().map(OsString::from));
        assert!(has_password(&["windlass", "status", "--db", "postgres://me:secret@db/w"]));
        assert!(has_password(&["windlass", "status", "--db=postgresql://me:secret@db/w?sslmode=require"]));
        assert!(has_password(&["windlass", "db", "copy", "postgres://me@db/w?password=secret"]));
        assert!(!has_password(&["windlass", "status", "--db", "postgres://me@db:5432/w?sslmode=require"]));
        assert!(
            !has_password(&["windlass", "exec", "-c", "curl http://me:secret@there"]),
            "that is for the job to know"
        );
    }
}
