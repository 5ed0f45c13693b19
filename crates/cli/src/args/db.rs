//! Maintenance of the database.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
The database is the one that other commands use: --db, WINDLASS_DB, or the nearest one in this directory or its parents. \
It is a file, or the URL of a PostgreSQL database: postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full

Examples:
  windlass db backup /backups/windlass-$(date +%F).db
  windlass db check --db postgres://windlass@db.example/windlass
  windlass db copy postgres://windlass@db.example/windlass")]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    pub(crate) verb: DbSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbSubcommand {
    /// Upgrade the database to the schema of this version; creates the tables in an empty PostgreSQL database.
    Migrate,
    /// Copy the database file to a new file; also safe while the database is in use.
    Backup(DbBackupArgs),
    /// Check the integrity of the database: file, counts, references. Changes nothing.
    Check,
    /// Copy the database file into an empty PostgreSQL database, with all ids.
    Copy(DbCopyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DbBackupArgs {
    /// File to create; an existing file is never overwritten.
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Fails if jobs of this database are running, or if the target is not empty. The copy is a single transaction, and the \
number of rows is verified. Set PGPASSWORD instead of writing a password into the URL.")]
pub(crate) struct DbCopyArgs {
    /// Target database: `postgres://USER@HOST:PORT/DATABASE`.
    #[arg(value_name = "URL")]
    pub(crate) to: String,
}
