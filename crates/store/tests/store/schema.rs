//! The two databases have the same tables with the same columns, however their migrations came to them.

use crate::postgres_server::database;
use rusqlite::Connection;
use std::collections::BTreeSet;
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::{OpenMode, SqliteStore};

fn of_sqlite() -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("windlass.db");
    SqliteStore::create(&path).unwrap();
    let conn = Connection::open(path).unwrap();
    let mut statement = conn
        .prepare(
            "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'",
        )
        .unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Without the table of who holds a lock: for SQLite that stands in the lock's file.
fn of_postgres() -> BTreeSet<String> {
    let database = database();
    PgStore::open(&database.url(), OpenMode::ReadWrite).unwrap();
    let columns = database.sql(
        "SELECT table_name || '.' || column_name FROM information_schema.columns
         WHERE table_schema = 'public' AND table_name <> 'lock_holder'",
    );
    columns.lines().map(str::to_owned).collect()
}

#[test]
fn both_databases_have_the_same_tables_and_columns() {
    let (sqlite, postgres) = (of_sqlite(), of_postgres());
    assert!(sqlite.contains("worker.secret_hash"), "{sqlite:?}");
    let only =
        |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect::<Vec<_>>();
    assert_eq!(only(&sqlite, &postgres), Vec::<String>::new(), "only SQLite has these");
    assert_eq!(only(&postgres, &sqlite), Vec::<String>::new(), "only PostgreSQL has these");
}
