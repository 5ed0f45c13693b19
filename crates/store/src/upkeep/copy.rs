//! Copies a whole database from a SQLite file to an empty PostgreSQL database: all tables, all ids, all or nothing.

use crate::books::Backend as _;
use crate::db::{Db as _, Loader as _, Value, values};
use crate::error::Fault;
use crate::lock::Lock;
use crate::postgres::{PgStore, Postgres};
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{Error, Store as _};
use rusqlite::Connection;
use serde::Serialize;
use std::path::Path;
use windlass_types::Timestamp;

/// What was copied.
#[derive(Clone, Debug, Serialize)]
pub struct Copied {
    pub rows: u64,
    pub tables: Vec<TableCopy>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableCopy {
    pub table: String,
    pub rows: u64,
}

/// What belongs to a database and not to its books.
const ITS_OWN: [&str; 2] = ["schema_migration", "server_epoch"];
/// The next numbers: there is a row for each in an empty database too.
const COUNTERS: &str = "counter";

/// Refused while somebody runs anything in the file, and where the target is not empty. `progress` hears of each table.
pub fn copy(
    from: &Path,
    to: &str,
    now: Timestamp,
    mut progress: impl FnMut(&TableCopy),
) -> Result<Copied, Error> {
    let source = SqliteStore::open(from, OpenMode::ReadWrite)?.store;
    let _nobody_else = source.lock(Lock::Server, now)?;
    let target = PgStore::open(to, OpenMode::ReadWrite)?;
    let copied = source.backend.read(|file| {
        let tables = tables(file)?;
        // What goes wrong with the target is told in its name, not in the file's.
        Ok(target.backend.large(|db| copy_tables(file, db, &tables, &mut progress))?)
    })?;
    target.backend.analyze()?;
    Ok(copied)
}

/// A table of the file and its columns.
struct Table {
    name: String,
    columns: Vec<String>,
}

fn tables(file: &Connection) -> Result<Vec<Table>, Fault> {
    let names: Vec<String> = file.all(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        values![],
        |row| row.get(0),
    )?;
    let books = names.into_iter().filter(|name| !ITS_OWN.contains(&name.as_str()));
    let with_columns = books.map(|name| {
        let columns =
            file.all("SELECT name FROM pragma_table_info($1) ORDER BY cid", [&name], |row| row.get(0))?;
        Ok(Table { name, columns })
    });
    // A job refers to the worker that holds it.
    let mut tables = with_columns.collect::<Result<Vec<_>, Fault>>()?;
    tables.sort_by_key(|table| table.name != "worker");
    Ok(tables)
}

fn copy_tables(
    file: &Connection,
    db: &<Postgres as crate::books::Backend>::Db,
    tables: &[Table],
    progress: &mut impl FnMut(&TableCopy),
) -> Result<Copied, Fault> {
    for table in tables.iter().filter(|table| table.name != COUNTERS) {
        if count(db, &table.name)? > 0 {
            return Err(Error::NotEmpty { url: db.url().to_owned(), table: table.name.clone() }.into());
        }
    }
    // Tables come by their names, which is no order in which they refer to each other.
    db.execute_values("SET CONSTRAINTS ALL DEFERRED", &[])?;
    db.execute_values("DELETE FROM counter WHERE name <> 'commits'", &[])?;
    let mut copied = Copied { rows: 0, tables: Vec::new() };
    for table in tables {
        let rows = copy_table(file, db, table)?;
        let done = TableCopy { table: table.name.clone(), rows };
        progress(&done);
        copied.rows += rows;
        copied.tables.push(done);
        if table.columns.iter().any(|column| column == "id") {
            go_on_counting(file, db, &table.name)?;
        }
    }
    Ok(copied)
}

fn copy_table(
    file: &Connection,
    db: &<Postgres as crate::books::Backend>::Db,
    table: &Table,
) -> Result<u64, Fault> {
    let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
    let mut rows = db.copy_into(&table.name, &columns);
    let mut sent = 0;
    let list = columns.join(", ");
    file.for_each_once(&format!("SELECT {list} FROM {}", table.name), &[], |row| {
        let values = (0..columns.len()).map(|n| row.value(n)).collect::<Result<Vec<Value<'_>>, _>>()?;
        sent += 1;
        rows.push(&values)
    })?;
    rows.finish()?;
    let found = count(db, &table.name)? - u64::from(table.name == COUNTERS);
    if found != sent {
        return Err(Fault::damage(format!("of {sent} rows of {} only {found} arrived", table.name)));
    }
    Ok(sent)
}

fn count(db: &<Postgres as crate::books::Backend>::Db, table: &str) -> Result<u64, Fault> {
    let mut rows = 0;
    db.for_each_once(&format!("SELECT COUNT(*) FROM {table}"), &[], |row| {
        rows = row.get::<i64>(0)?.unsigned_abs();
        Ok(())
    })?;
    Ok(rows)
}

/// The next id is one that was never given, also where the last ones were deleted.
fn go_on_counting(
    file: &Connection,
    db: &<Postgres as crate::books::Backend>::Db,
    table: &str,
) -> Result<(), Fault> {
    let given: Option<i64> =
        file.optional("SELECT seq FROM sqlite_sequence WHERE name = $1", [table], |row| row.get(0))?;
    let sql = format!(
        "SELECT setval(pg_get_serial_sequence('{table}', 'id'), last, last > 0)
         FROM (SELECT GREATEST(COALESCE(MAX(id), 0), $1) AS last FROM {table}) t WHERE last > 0"
    );
    db.for_each_once(&sql, &[Value::Int(given.unwrap_or(0))], |_| Ok(()))
}
