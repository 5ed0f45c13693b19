//! The care of whole databases.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
The database is the one that other commands use: --db, WINDLASS_DB, or what is found here and above.
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
    /// Bring the database to the format of this windlass; an empty PostgreSQL database gets its tables.
    Migrate,
    /// Copy the database file to a new file, as it is at one moment, while it is in use.
    Backup(DbBackupArgs),
    /// Look whether all that must hold does: the file itself, counts, references. Changes nothing.
    Check,
    /// Copy the whole database file into an empty PostgreSQL database, with all numbers.
    Copy(DbCopyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DbBackupArgs {
    /// The file to make. One that is there is never replaced.
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Refused while anything runs in the file, and where the target holds anything. It is all or nothing; what has arrived is
counted. A password is better left out of the URL: PGPASSWORD is used.")]
pub(crate) struct DbCopyArgs {
    /// The database to fill: `postgres://USER@HOST:PORT/DATABASE`.
    #[arg(value_name = "URL")]
    pub(crate) to: String,
}
