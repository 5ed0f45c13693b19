//! Maintenance of whole databases: upgrade, copy, check.

mod check;
mod contents;
mod copy;

pub use check::{DatabaseCheck, DatabaseProblem, check_database_invariants};
pub use contents::{ContentsReader, DatabaseContents};
pub use copy::{DatabaseCopy, TableCopy, copy_database};

use crate::postgres::PgStore;
use crate::sqlite::{self, OpenMode, SqliteStore};
use crate::{StoreError, StoreLocation};
use serde::Serialize;
use std::path::Path;

/// The format of a database before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationResult {
    pub before: u32,
    pub after: u32,
}

/// Upgrades a database to the newest format. An empty PostgreSQL database gets its tables; a file must exist.
pub fn migrate_database(location: &str) -> Result<MigrationResult, StoreError> {
    if StoreLocation::is_postgres(location) {
        return PgStore::migrate(location);
    }
    let before = sqlite::read_format(location.as_ref())?;
    let opened = SqliteStore::open(location, OpenMode::ReadWrite)?;
    let after = sqlite::read_format(opened.store.path())?;
    Ok(MigrationResult { before, after })
}

/// Writes a snapshot of a database file to a new file while other processes continue writing. Returns its size
/// in bytes.
pub fn backup_database(from: &Path, to: &Path) -> Result<u64, StoreError> {
    sqlite::backup_file(from, to)
}
