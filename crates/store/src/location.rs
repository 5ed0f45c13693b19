//! Location and opening of a store.

use crate::postgres::PgStore;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{StoreDatabase, StoreError};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    Sqlite(PathBuf),
    /// URL without the password.
    Postgres {
        url: String,
    },
    Server(String),
}

impl StoreLocation {
    /// Whether a location given by a user is a PostgreSQL URL instead of a file path.
    pub fn is_postgres(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Removes the password from a database URL, or from a command-line argument that contains one.
    pub fn without_password(word: &str) -> String {
        let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
        // A password may contain `@`, `/` or `?`, although it should be escaped.
        let place = rest.split_once('?').map(|(place, _)| place).filter(|place| place.contains('@'));
        let (who, rest) = match place.unwrap_or(rest).rfind('@') {
            Some(end) => {
                (format!("{}@", rest[..end].split(':').next().unwrap_or_default()), &rest[end + 1..])
            }
            None => (String::new(), rest),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let kept: Vec<&str> = query.split('&').filter(|word| !word.starts_with("password=")).collect();
        let query = kept.join("&");
        format!("{scheme}://{who}{place}{}{query}", if query.is_empty() { "" } else { "?" })
    }

    /// Returns the path, if the store is a file.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres { .. } | Self::Server(_) => None,
        }
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            Self::Postgres { url } | Self::Server(url) => f.write_str(url),
        }
    }
}

/// Opens the store at a path or a `postgres://` URL. Warnings for the user are dropped; see
/// [`SqliteStore::open`].
pub fn open_store(location: &str, mode: OpenMode) -> Result<Arc<dyn StoreDatabase>, StoreError> {
    if StoreLocation::is_postgres(location) {
        return Ok(Arc::new(PgStore::open(location, mode)?));
    }
    Ok(Arc::new(SqliteStore::open(location, mode)?.store))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_not_shown() {
        for (url, shown) in [
            ("postgres://me:secret@db/w", "postgres://me@db/w"),
            ("--db=postgres://me:secret@/w", "--db=postgres://me@/w"),
            ("postgres://me:se@cret@db:5432/w?sslmode=require", "postgres://me@db:5432/w?sslmode=require"),
            ("postgres://db/w?password=secret&host=/run", "postgres://db/w?host=/run"),
            ("postgres:///w", "postgres:///w"),
            ("postgres://me:se/cr?et@db/w?sslmode=require", "postgres://me@db/w?sslmode=require"),
            ("postgres://me:secret@db/w?application_name=a@b", "postgres://me@db/w?application_name=a@b"),
            ("https://me:secret@example/", "https://me@example/"),
            ("dir/file", "dir/file"),
        ] {
            assert_eq!(StoreLocation::without_password(url), shown);
        }
    }
}
