//! Checks the invariants of a database.

use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::postgres::PgStore;
use crate::sql::checks::INVARIANT_CHECKS;
use crate::sql_store::StoreBackend;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{StoreError, StoreLocation};
use serde::Serialize;

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseCheck {
    pub checks: usize,
    pub problems: Vec<DatabaseProblem>,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseProblem {
    pub what: String,
    pub count: u64,
    /// The id of the first row.
    pub first: Option<i64>,
}

/// Checks a whole database in one snapshot and changes nothing.
pub fn check_database_invariants(location: &str) -> Result<DatabaseCheck, StoreError> {
    if StoreLocation::is_postgres(location) {
        return PgStore::open(location, OpenMode::ReadOnly)?.backend.run_read(check_invariants);
    }
    let store = SqliteStore::open(location, OpenMode::ReadOnly)?.store;
    let mut checked = store.backend.run_read(check_invariants)?;
    let damage = store.backend.run_read(check_file)?;
    checked.checks += 2;
    checked.problems.splice(0..0, damage);
    Ok(checked)
}

fn check_invariants(db: &impl SqlConnection) -> Result<DatabaseCheck, SqlError> {
    let mut problems = Vec::new();
    for (what, sql) in INVARIANT_CHECKS {
        let (count, first) =
            db.query_one(sql, values![], |row| Ok((row.get::<i64>(0)?.unsigned_abs(), row.get(1)?)))?;
        if count > 0 {
            problems.push(DatabaseProblem { what: (*what).to_owned(), count, first });
        }
    }
    Ok(DatabaseCheck { checks: INVARIANT_CHECKS.len(), problems })
}

/// SQLite's own integrity check of the file.
fn check_file(db: &rusqlite::Connection) -> Result<Vec<DatabaseProblem>, SqlError> {
    let mut problems = Vec::new();
    db.for_each_unprepared("PRAGMA integrity_check(20)", &[], |row| {
        let said: String = row.get(0)?;
        if said != "ok" {
            problems.push(DatabaseProblem { what: format!("file damage: {said}"), count: 1, first: None });
        }
        Ok(())
    })?;
    db.for_each_unprepared(
        "SELECT \"table\", parent, COUNT(*), MIN(rowid) FROM pragma_foreign_key_check GROUP BY 1, 2",
        &[],
        |row| {
            let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
            let what = format!("rows of {table} that refer to a missing {parent}");
            problems.push(DatabaseProblem {
                what,
                count: row.get::<i64>(2)?.unsigned_abs(),
                first: row.get(3)?,
            });
            Ok(())
        },
    )?;
    Ok(problems)
}
