//! All rows of all tables as text, so that two states of a database can be compared.

use crate::books::Backend as _;
use crate::db::{Db, values};
use crate::error::Fault;
use crate::postgres::PgStore;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{Error, Location};
use std::collections::BTreeMap;

/// The rows of each table, by the name of the table, in the order of their text.
pub type Contents = BTreeMap<String, Vec<String>>;

/// Reads a database beside those that use it.
#[derive(Debug)]
pub struct ContentsReader(Opened);

#[derive(Debug)]
enum Opened {
    Sqlite(SqliteStore),
    Postgres(PgStore),
}

impl ContentsReader {
    pub fn open(location: &str) -> Result<Self, Error> {
        Ok(Self(if Location::is_postgres(location) {
            Opened::Postgres(PgStore::open(location, OpenMode::ReadOnly)?)
        } else {
            Opened::Sqlite(SqliteStore::open(location, OpenMode::ReadOnly)?.store)
        }))
    }

    /// All of it, in one state.
    pub fn read(&self) -> Result<Contents, Error> {
        match &self.0 {
            Opened::Sqlite(store) => store.backend.read(|db| {
                let names = db.all(
                    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
                    values![],
                    |row| row.get::<String>(0),
                )?;
                let as_text = |table: &str| {
                    let list = "SELECT 'quote(\"' || name || '\")' FROM pragma_table_info($1) ORDER BY cid";
                    let columns = db.all(list, [table], |row| row.get::<String>(0))?;
                    Ok(format!("SELECT {} FROM {table}", columns.join(" || ', ' || ")))
                };
                contents(db, names, as_text)
            }),
            Opened::Postgres(store) => store.backend.read(|db| {
                let names = db.all(
                    "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()",
                    values![],
                    |row| row.get::<String>(0),
                )?;
                contents(db, names, |table| Ok(format!("SELECT CAST(t AS TEXT) FROM {table} t")))
            }),
        }
    }
}

/// `as_text` makes the statement that gives each row of a table as one text.
fn contents(
    db: &impl Db,
    names: Vec<String>,
    as_text: impl Fn(&str) -> Result<String, Fault>,
) -> Result<Contents, Fault> {
    let mut contents = Contents::new();
    for name in names {
        let mut rows = Vec::new();
        db.for_each_once(&as_text(&name)?, &[], |row| {
            rows.push(row.get::<String>(0)?);
            Ok(())
        })?;
        rows.sort_unstable();
        contents.insert(name, rows);
    }
    Ok(contents)
}
