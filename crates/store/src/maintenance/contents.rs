//! Dumps all rows of all tables as text, to compare two states of a database.

use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::postgres::PgStore;
use crate::sql_store::StoreBackend as _;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{StoreError, StoreLocation};
use std::collections::BTreeMap;

/// The rows of each table, by table name, sorted by their text.
pub type DatabaseContents = BTreeMap<String, Vec<String>>;

/// Reads a database while other processes use it.
#[derive(Debug)]
pub struct ContentsReader(OpenedDatabase);

#[derive(Debug)]
enum OpenedDatabase {
    Sqlite(SqliteStore),
    Postgres(PgStore),
}

impl ContentsReader {
    pub fn open(location: &str) -> Result<Self, StoreError> {
        Ok(Self(if StoreLocation::is_postgres(location) {
            OpenedDatabase::Postgres(PgStore::open(location, OpenMode::ReadOnly)?)
        } else {
            OpenedDatabase::Sqlite(SqliteStore::open(location, OpenMode::ReadOnly)?.store)
        }))
    }

    /// Reads everything in one snapshot.
    pub fn read(&self) -> Result<DatabaseContents, StoreError> {
        match &self.0 {
            OpenedDatabase::Sqlite(store) => store.backend.run_read(|db| {
                let names = db.query_all(
                    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
                    values![],
                    |row| row.get::<String>(0),
                )?;
                let as_text = |table: &str| {
                    let list = "SELECT 'quote(\"' || name || '\")' FROM pragma_table_info($1) ORDER BY cid";
                    let columns = db.query_all(list, [table], |row| row.get::<String>(0))?;
                    Ok(format!("SELECT {} FROM {table}", columns.join(" || ', ' || ")))
                };
                read_contents(db, names, as_text)
            }),
            OpenedDatabase::Postgres(store) => store.backend.run_read(|db| {
                let names = db.query_all(
                    "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()",
                    values![],
                    |row| row.get::<String>(0),
                )?;
                read_contents(db, names, |table| Ok(format!("SELECT CAST(t AS TEXT) FROM {table} t")))
            }),
        }
    }
}

/// `as_text` makes the statement that returns each row of a table as one text.
fn read_contents(
    db: &impl SqlConnection,
    names: Vec<String>,
    as_text: impl Fn(&str) -> Result<String, SqlError>,
) -> Result<DatabaseContents, SqlError> {
    let mut contents = DatabaseContents::new();
    for name in names {
        let mut rows = Vec::new();
        db.for_each_unprepared(&as_text(&name)?, &[], |row| {
            rows.push(row.get::<String>(0)?);
            Ok(())
        })?;
        rows.sort_unstable();
        contents.insert(name, rows);
    }
    Ok(contents)
}
