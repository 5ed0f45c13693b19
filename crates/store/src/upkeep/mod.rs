//! The care of whole databases: bringing them up to date, copying them, and looking whether all is well.

mod check;
mod contents;
mod copy;

pub use check::{Checked, Problem, check};
pub use contents::{Contents, ContentsReader};
pub use copy::{Copied, TableCopy, copy};

use crate::postgres::PgStore;
use crate::sqlite::{self, OpenMode, SqliteStore};
use crate::{Error, Location};
use serde::Serialize;
use std::path::Path;

/// The format of a database before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Migrated {
    pub before: u32,
    pub after: u32,
}

/// Brings a database to the newest format. An empty PostgreSQL database gets its tables; a file must be there.
pub fn migrate(location: &str) -> Result<Migrated, Error> {
    if Location::is_postgres(location) {
        return PgStore::migrate(location);
    }
    let before = sqlite::format_of(location.as_ref())?;
    let opened = SqliteStore::open(location, OpenMode::ReadWrite)?;
    let after = sqlite::format_of(opened.store.path())?;
    Ok(Migrated { before, after })
}

/// Writes a copy of a database file to a new file, as it is at one moment, while others go on writing. How many bytes.
pub fn backup(from: &Path, to: &Path) -> Result<u64, Error> {
    sqlite::backup(from, to)
}
