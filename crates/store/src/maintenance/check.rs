//! Looks whether what must hold does.

use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::postgres::PgStore;
use crate::sql::checks::INVARIANT_CHECKS;
use crate::sql_store::StoreBackend;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{StoreError, StoreLocation};
use serde::Serialize;

/// What was looked at and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseCheck {
    pub checks: usize,
    pub problems: Vec<DatabaseProblem>,
}

/// Something that must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseProblem {
    pub what: String,
    pub count: u64,
    /// The number of the first one.
    pub first: Option<i64>,
}

/// Looks at all of a database, in one state of it, and changes nothing.
pub fn check(location: &str) -> Result<DatabaseCheck, StoreError> {
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

/// What SQLite itself knows of its file.
fn check_file(db: &rusqlite::Connection) -> Result<Vec<DatabaseProblem>, SqlError> {
    let mut problems = Vec::new();
    db.for_each_unprepared("PRAGMA integrity_check(20)", &[], |row| {
        let said: String = row.get(0)?;
        if said != "ok" {
            problems.push(DatabaseProblem {
                what: format!("damage of the file: {said}"),
                count: 1,
                first: None,
            });
        }
        Ok(())
    })?;
    db.for_each_unprepared(
        "SELECT \"table\", parent, COUNT(*), MIN(rowid) FROM pragma_foreign_key_check GROUP BY 1, 2",
        &[],
        |row| {
            let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
            let what = format!("rows of {table} that refer to a {parent} that is not there");
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
