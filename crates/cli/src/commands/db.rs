//! `windlass db`: migrates, backs up, checks and copies a database.

use crate::args::db::{DbArgs, DbBackupArgs, DbCopyArgs, DbSubcommand};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs;
use crate::ui::text;
use serde::Serialize;
use std::path::{Path, PathBuf};
use windlass_store::{StoreLocation, maintenance};
use windlass_types::Bytes;

pub(crate) fn run(ctx: &CliContext, args: &DbArgs) -> Result<CliExit, CliError> {
    ctx.refuse_server("only the host that has the database can maintain it")?;
    match &args.verb {
        DbSubcommand::Migrate => migrate_database(ctx),
        DbSubcommand::Backup(args) => backup_database(ctx, args),
        DbSubcommand::Check => check_database(ctx),
        DbSubcommand::Copy(args) => copy_database(ctx, args),
    }
}

/// A path, or the URL of a PostgreSQL database.
fn database_location(ctx: &CliContext) -> Result<String, CliError> {
    let path = ctx.existing_database()?;
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| CliError::user(format!("{} is not UTF-8", path.display())))
}

/// For operations on files.
fn database_file(ctx: &CliContext, what: &str, instead: &str) -> Result<PathBuf, CliError> {
    let location = database_location(ctx)?;
    if StoreLocation::is_postgres(&location) {
        return Err(CliError::user(format!("{what} works only for database files")).with_hint(instead));
    }
    Ok(location.into())
}

fn migrate_database(ctx: &CliContext) -> Result<CliExit, CliError> {
    let migrated = maintenance::migrate_database(&database_location(ctx)?)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&migrated)?;
    } else if migrated.before == migrated.after {
        ctx.ui.print_line(&format!("the database already has format {}", migrated.after))?;
    } else {
        ctx.ui.print_line(&format!("from format {} to {}", migrated.before, migrated.after))?;
    }
    Ok(CliExit::Success)
}

#[derive(Serialize)]
struct BackupView {
    path: PathBuf,
    bytes: u64,
}

fn backup_database(ctx: &CliContext, args: &DbBackupArgs) -> Result<CliExit, CliError> {
    let from = database_file(ctx, "`windlass db backup`", "`pg_dump` backs up a PostgreSQL database")?;
    let path = ctx.cwd.join(&args.to);
    let bytes = maintenance::backup_database(&from, &path)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&BackupView { path, bytes })?;
    } else {
        ctx.ui.print_line(&format!("{} ({})", job_logs::short_path(&path, &ctx.cwd), Bytes(bytes)))?;
    }
    Ok(CliExit::Success)
}

/// A failed check is a result and not an error; the exit code tells the difference.
fn check_database(ctx: &CliContext) -> Result<CliExit, CliError> {
    let checked = maintenance::check_database_invariants(&database_location(ctx)?)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&checked)?;
    } else {
        for problem in &checked.problems {
            let first = problem.first.map_or_else(String::new, |first| format!("; first: {first}"));
            ctx.ui.print_line(&format!("{}: {}{first}", problem.what, problem.count))?;
        }
        let found = match checked.problems.len() as u64 {
            0 => "no problems found".to_owned(),
            n => text::render_count(n, "problem"),
        };
        ctx.ui.print_line(&format!(
            "{} performed: {found}",
            text::render_count(checked.checks as u64, "check")
        ))?;
    }
    Ok(if checked.problems.is_empty() { CliExit::Success } else { CliExit::Environment })
}

fn copy_database(ctx: &CliContext, args: &DbCopyArgs) -> Result<CliExit, CliError> {
    let from =
        database_file(ctx, "`windlass db copy`", "`pg_dump` and `pg_restore` copy a PostgreSQL database")?;
    if !StoreLocation::is_postgres(&args.to) {
        return Err(CliError::user("the target must be a PostgreSQL database")
            .with_hint("postgres://USER@HOST:PORT/DATABASE; `windlass db backup` copies to another file"));
    }
    let copied = maintenance::copy_database(Path::new(&from), &args.to, ctx.clock.now(), |table| {
        ctx.ui.print_note(&format!("{}: {}", table.table, text::render_count(table.rows, "row")));
    })?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&copied)?;
    } else {
        let tables = text::render_count(copied.tables.len() as u64, "table");
        ctx.ui.print_line(&format!(
            "{} in {tables} copied and verified",
            text::render_count(copied.rows, "row")
        ))?;
    }
    Ok(CliExit::Success)
}
