//! `windlass db`: bringing a database up to date, backing it up, looking whether all is well, moving it.

use crate::args::db::{DbArgs, DbBackupArgs, DbCopyArgs, DbVerb};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::ui::text;
use serde::Serialize;
use std::path::{Path, PathBuf};
use windlass_store::{Location, upkeep};
use windlass_types::Bytes;

pub(crate) fn run(ctx: &Context, args: &DbArgs) -> Result<Exit, CliError> {
    ctx.refuse_server("the care of a database is for whoever has it")?;
    match &args.verb {
        DbVerb::Migrate => migrate(ctx),
        DbVerb::Backup(args) => backup(ctx, args),
        DbVerb::Check => check(ctx),
        DbVerb::Copy(args) => copy(ctx, args),
    }
}

/// A path, or the URL of a PostgreSQL database.
fn location(ctx: &Context) -> Result<String, CliError> {
    let path = ctx.existing()?;
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| CliError::user(format!("{} is no text", path.display())))
}

/// For what is done to a file.
fn file(ctx: &Context, what: &str, instead: &str) -> Result<PathBuf, CliError> {
    let location = location(ctx)?;
    if Location::is_postgres(&location) {
        return Err(CliError::user(format!("{what} is for database files")).with_hint(instead));
    }
    Ok(location.into())
}

fn migrate(ctx: &Context) -> Result<Exit, CliError> {
    let migrated = upkeep::migrate(&location(ctx)?)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&migrated)?;
    } else if migrated.before == migrated.after {
        ctx.ui.print_line(&format!("it has format {} already", migrated.after))?;
    } else {
        ctx.ui.print_line(&format!("from format {} to {}", migrated.before, migrated.after))?;
    }
    Ok(Exit::Success)
}

#[derive(Serialize)]
struct BackupView {
    path: PathBuf,
    bytes: u64,
}

fn backup(ctx: &Context, args: &DbBackupArgs) -> Result<Exit, CliError> {
    let from = file(ctx, "`windlass db backup`", "`pg_dump` backs up a PostgreSQL database")?;
    let path = ctx.cwd.join(&args.to);
    let bytes = upkeep::backup(&from, &path)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&BackupView { path, bytes })?;
    } else {
        ctx.ui.print_line(&format!("{} ({})", job_logs::short(&path, &ctx.cwd), Bytes(bytes)))?;
    }
    Ok(Exit::Success)
}

/// What does not hold is an answer and not an error; the exit code tells.
fn check(ctx: &Context) -> Result<Exit, CliError> {
    let checked = upkeep::check(&location(ctx)?)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&checked)?;
    } else {
        for problem in &checked.problems {
            let first = problem.first.map_or_else(String::new, |first| format!(", the first is {first}"));
            ctx.ui.print_line(&format!("{}: {}{first}", problem.what, problem.count))?;
        }
        let found = match checked.problems.len() as u64 {
            0 => "all is well".to_owned(),
            n => text::count(n, "problem"),
        };
        ctx.ui.print_line(&format!("{} made: {found}", text::count(checked.checks as u64, "check")))?;
    }
    Ok(if checked.problems.is_empty() { Exit::Success } else { Exit::Environment })
}

fn copy(ctx: &Context, args: &DbCopyArgs) -> Result<Exit, CliError> {
    let from = file(ctx, "`windlass db copy`", "`pg_dump` and `pg_restore` copy a PostgreSQL database")?;
    if !Location::is_postgres(&args.to) {
        return Err(CliError::user("the target must be a PostgreSQL database")
            .with_hint("postgres://USER@HOST:PORT/DATABASE; `windlass db backup` copies to another file"));
    }
    let copied = upkeep::copy(Path::new(&from), &args.to, ctx.clock.now(), |table| {
        ctx.ui.note(&format!("{}: {}", table.table, text::count(table.rows, "row")));
    })?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&copied)?;
    } else {
        let tables = text::count(copied.tables.len() as u64, "table");
        ctx.ui.print_line(&format!("{} in {tables} copied and counted", text::count(copied.rows, "row")))?;
    }
    Ok(Exit::Success)
}
