//! Where a store is, and opening whatever is there.

use crate::postgres::PgStore;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{Error, Store};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Sqlite(PathBuf),
    /// Without its password.
    Postgres {
        url: String,
    },
    Server(String),
}

impl Location {
    /// Whether a location that a user gave is one of PostgreSQL, and not the path of a file.
    pub fn is_postgres(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// The file, if it is one.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres { .. } | Self::Server(_) => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres { url } | Self::Server(url) => f.write_str(url),
        }
    }
}

/// Opens the store at a path or a `postgres://` URL. What its user should know is lost; see [`SqliteStore::open`].
pub fn open(location: &str, mode: OpenMode) -> Result<Arc<dyn Store>, Error> {
    if Location::is_postgres(location) {
        return Ok(Arc::new(PgStore::open(location, mode)?));
    }
    Ok(Arc::new(SqliteStore::open(location, mode)?.store))
}
