//! `windlass`: reads the settings and the command line, runs one command, prints, and says by its exit code how it went.

mod args;
mod away;
mod changes;
mod clusters;
mod commands;
mod config;
mod context;
mod deliver;
mod desk;
mod documents;
mod drive;
mod error;
mod failing;
mod history;
mod inputs;
mod job_logs;
mod local;
mod log_signs;
mod orders;
mod packing;
mod plan;
mod recordings;
mod recovery;
mod rerun;
mod rules;
mod select;
mod server;
mod sketch;
mod spec_files;
mod ssh;
mod strays;
mod sweep;
mod tail;
mod tar;
mod ui;
mod view;

use args::{Cli, Format};
use config::{Config, Paths};
use context::Context;
use error::{CliError, Exit};
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use ui::Ui;
use windlass_store::Location;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // First of all: it has the place of a job, and takes signals that are meant for that.
    if let Some(exit) = windlass_worker::stand_in(&words) {
        return exit;
    }
    if let Some(exit) = commands::condor::short_cut(&words) {
        return exit;
    }
    let config = settings();
    let cli = match parse(&words, &config) {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    let ui = Ui::new(&cli.globals);
    let end = catch_unwind(AssertUnwindSafe(|| run(cli, &ui, config))).unwrap_or_else(|_| Err(bug()));
    let exit = end.unwrap_or_else(|error| {
        ui.error(&error);
        error.kind.exit()
    });
    exit.into()
}

/// What files and the environment say. A directory that is gone is reported by whatever needs it.
fn settings() -> Config {
    let paths = Paths::new(&std::env::current_dir().unwrap_or_default(), |name| std::env::var(name).ok());
    let environment = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    Config::load(&paths, environment)
}

/// The command line, or how to exit if it was wrong or only asked for help.
fn parse(words: &[OsString], config: &Config) -> Result<Cli, ExitCode> {
    let command = config.apply(args::command());
    let words = args::verbs_first(&command, words.to_vec());
    let matches = command.try_get_matches_from(&words);
    let parsed = matches.and_then(|matches| args::from_matches(&matches));
    parsed.map_err(|mut error| {
        args::usage::suggest(&mut error, &args::command(), &words);
        let wants_json = args::usage::asks_for_json(&words)
            || config.get("format").is_some_and(|value| value.text == Format::Json.name());
        if !error.use_stderr() || !wants_json {
            // Help and version too are such errors. If nobody can be told, nothing is left to do.
            drop(error.print());
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
        ui::say_usage_error(&args::usage::error(&error));
        Exit::Usage.into()
    })
}

fn run(cli: Cli, ui: &Ui, config: Config) -> Result<Exit, CliError> {
    let Some(command) = cli.command else {
        ui.print_help(&config.apply(args::command()).render_help())?;
        return Ok(Exit::Success);
    };
    if let (Some(problem), false) = (config.problems.first(), command.copes_with_wrong_settings()) {
        return Err(CliError::user(problem.to_string())
            .with_hint("`windlass config validate` names every mistake in the settings"));
    }
    // In the settings a format is a wish, for the commands that know it.
    if config.get("format").is_none_or(|setting| setting.text != cli.globals.format.name()) {
        refuse_foreign_format(&command, cli.globals.format)?;
    }
    orders::refuse_command(&command)?;
    let ctx = Context::new(&cli.globals, config)?;
    for flag in cli.torc.ignored() {
        ctx.ui.note(&format!(
            "{flag} has no effect: `windlass serve` runs a server, and without one the database is a file"
        ));
    }
    if cli.torc.names_password() || names_password(std::env::args_os()) {
        ctx.ui.warn(
            "a password stands on the command line, where everybody on this machine can read it; PGPASSWORD, ~/.pgpass or \
             `windlass login` are for that",
        );
    }
    commands::dispatch(&ctx, &command)
}

/// Whether the URL of a database holds one.
fn names_password(words: impl Iterator<Item = OsString>) -> bool {
    words.skip(1).any(|word| {
        let word = word.to_string_lossy();
        let value = word.strip_prefix("--").and_then(|flag| flag.split_once('='));
        let url = value.map_or(&*word, |(_, url)| url);
        Location::is_postgres(url) && Location::without_password(url) != url
    })
}

fn refuse_foreign_format(command: &args::Command, format: Format) -> Result<(), CliError> {
    let known = command.formats();
    if known.contains(&format) {
        return Ok(());
    }
    let list = known.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    Err(CliError::user(format!("this command does not know the format {}", format.name()))
        .with_hint(format!("it knows: {list}")))
}

/// A panic has already said where it happened; what is on disk is whole in any case.
fn bug() -> CliError {
    CliError::internal("this is a bug in windlass; nothing that was completed is lost")
        .with_hint("`windlass resume` goes on; please report what is printed above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_on_the_command_line_is_seen() {
        let said = |words: &[&str]| names_password(words.iter().map(OsString::from));
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
