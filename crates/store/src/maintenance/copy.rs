//! Copies a whole database from a SQLite file to an empty PostgreSQL database: all tables, all ids, in one
//! transaction.

use crate::db::{BulkLoader as _, SqlConnection as _, SqlValue, values};
use crate::error::SqlError;
use crate::lock::LockScope;
use crate::postgres::{PgBackend, PgStore};
use crate::sql_store::StoreBackend as _;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{Store as _, StoreError};
use rusqlite::Connection;
use serde::Serialize;
use std::path::Path;
use windlass_types::Timestamp;

/// Summary of a copy.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseCopy {
    pub rows: u64,
    pub tables: Vec<TableCopy>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableCopy {
    pub table: String,
    pub rows: u64,
}

/// Tables that belong to a database itself, not to its contents.
const TABLES_NOT_COPIED: [&str; 2] = ["schema_migration", "server_epoch"];
/// Counters of the next ids: even an empty database has a row for each.
const COUNTER_TABLE: &str = "counter";

/// Copies a database. Rejected while a process runs anything in the file, and if the target is not empty.
/// `progress` is called for each table.
pub fn copy_database(
    from: &Path,
    to: &str,
    now: Timestamp,
    mut progress: impl FnMut(&TableCopy),
) -> Result<DatabaseCopy, StoreError> {
    let source = SqliteStore::open(from, OpenMode::ReadWrite)?.store;
    let _exclusive_lock = source.lock(LockScope::Server, now)?;
    let target = PgStore::open(to, OpenMode::ReadWrite)?;
    let copied = source.backend.run_read(|file| {
        let tables = list_tables(file)?;
        // Errors of the target name the target, not the file.
        Ok(target.backend.run_large_transaction(|db| copy_tables(file, db, &tables, &mut progress))?)
    })?;
    target.backend.analyze()?;
    Ok(copied)
}

/// A table of the file and its columns.
struct SourceTable {
    name: String,
    columns: Vec<String>,
}

fn list_tables(file: &Connection) -> Result<Vec<SourceTable>, SqlError> {
    let names: Vec<String> = file.query_all(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        values![],
        |row| row.get(0),
    )?;
    let store = names.into_iter().filter(|name| !TABLES_NOT_COPIED.contains(&name.as_str()));
    let with_columns = store.map(|name| {
        let columns =
            file.query_all("SELECT name FROM pragma_table_info($1) ORDER BY cid", [&name], |row| row.get(0))?;
        Ok(SourceTable { name, columns })
    });
    // A job refers to the worker that holds it.
    let mut tables = with_columns.collect::<Result<Vec<_>, SqlError>>()?;
    tables.sort_by_key(|table| table.name != "worker");
    Ok(tables)
}

fn copy_tables(
    file: &Connection,
    db: &<PgBackend as crate::sql_store::StoreBackend>::Db,
    tables: &[SourceTable],
    progress: &mut impl FnMut(&TableCopy),
) -> Result<DatabaseCopy, SqlError> {
    for table in tables.iter().filter(|table| table.name != COUNTER_TABLE) {
        if count_rows(db, &table.name)? > 0 {
            return Err(StoreError::NotEmpty { url: db.url().to_owned(), table: table.name.clone() }.into());
        }
    }
    // Tables are copied in alphabetical order, not in the order of their references.
    db.execute_values("SET CONSTRAINTS ALL DEFERRED", &[])?;
    db.execute_values("DELETE FROM counter WHERE name NOT LIKE 'commit%'", &[])?;
    let mut copied = DatabaseCopy { rows: 0, tables: Vec::new() };
    for table in tables {
        let rows = copy_table(file, db, table)?;
        let done = TableCopy { table: table.name.clone(), rows };
        progress(&done);
        copied.rows += rows;
        copied.tables.push(done);
        if table.columns.iter().any(|column| column == "id") {
            set_next_id(file, db, &table.name)?;
        }
    }
    Ok(copied)
}

fn copy_table(
    file: &Connection,
    db: &<PgBackend as crate::sql_store::StoreBackend>::Db,
    table: &SourceTable,
) -> Result<u64, SqlError> {
    let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
    let before = count_rows(db, &table.name)?;
    let mut rows = db.open_copy(&table.name, &columns);
    let mut sent = 0;
    let list = columns.join(", ");
    file.for_each_unprepared(&format!("SELECT {list} FROM {}", table.name), &[], |row| {
        let values = (0..columns.len()).map(|n| row.value(n)).collect::<Result<Vec<SqlValue<'_>>, _>>()?;
        sent += 1;
        rows.push(&values)
    })?;
    rows.finish()?;
    let found = count_rows(db, &table.name)? - before;
    if found != sent {
        return Err(SqlError::damage(format!("only {found} of {sent} rows of {} arrived", table.name)));
    }
    Ok(sent)
}

fn count_rows(db: &<PgBackend as crate::sql_store::StoreBackend>::Db, table: &str) -> Result<u64, SqlError> {
    let mut rows = 0;
    db.for_each_unprepared(&format!("SELECT COUNT(*) FROM {table}"), &[], |row| {
        rows = row.get::<i64>(0)?.unsigned_abs();
        Ok(())
    })?;
    Ok(rows)
}

/// Sets the next id to one that was never used, even if the last rows were deleted.
fn set_next_id(
    file: &Connection,
    db: &<PgBackend as crate::sql_store::StoreBackend>::Db,
    table: &str,
) -> Result<(), SqlError> {
    let given: Option<i64> =
        file.query_optional("SELECT seq FROM sqlite_sequence WHERE name = $1", [table], |row| row.get(0))?;
    let sql = format!(
        "SELECT setval(pg_get_serial_sequence('{table}', 'id'), last, last > 0)
         FROM (SELECT GREATEST(COALESCE(MAX(id), 0), $1) AS last FROM {table}) t WHERE last > 0"
    );
    db.for_each_unprepared(&sql, &[SqlValue::Int(given.unwrap_or(0))], |_| Ok(()))
}
