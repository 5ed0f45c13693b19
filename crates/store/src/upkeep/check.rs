//! Looks whether what must hold does.

use crate::books::Backend;
use crate::db::{Db, values};
use crate::error::Fault;
use crate::postgres::PgStore;
use crate::sql::checks::CHECKS;
use crate::sqlite::{OpenMode, SqliteStore};
use crate::{Error, Location};
use serde::Serialize;

/// What was looked at and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    pub checks: usize,
    pub problems: Vec<Problem>,
}

/// Something that must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub what: String,
    pub count: u64,
    /// The number of the first one.
    pub first: Option<i64>,
}

/// Looks at all of a database, in one state of it, and changes nothing.
pub fn check(location: &str) -> Result<Checked, Error> {
    if Location::is_postgres(location) {
        return PgStore::open(location, OpenMode::ReadOnly)?.backend.read(invariants);
    }
    let store = SqliteStore::open(location, OpenMode::ReadOnly)?.store;
    let mut checked = store.backend.read(invariants)?;
    let damage = store.backend.read(file)?;
    checked.checks += 2;
    checked.problems.splice(0..0, damage);
    Ok(checked)
}

fn invariants(db: &impl Db) -> Result<Checked, Fault> {
    let mut problems = Vec::new();
    for (what, sql) in CHECKS {
        let (count, first) =
            db.one(sql, values![], |row| Ok((row.get::<i64>(0)?.unsigned_abs(), row.get(1)?)))?;
        if count > 0 {
            problems.push(Problem { what: (*what).to_owned(), count, first });
        }
    }
    Ok(Checked { checks: CHECKS.len(), problems })
}

/// What SQLite itself knows of its file.
fn file(db: &rusqlite::Connection) -> Result<Vec<Problem>, Fault> {
    let mut problems = Vec::new();
    db.for_each_once("PRAGMA integrity_check(20)", &[], |row| {
        let said: String = row.get(0)?;
        if said != "ok" {
            problems.push(Problem { what: format!("damage of the file: {said}"), count: 1, first: None });
        }
        Ok(())
    })?;
    db.for_each_once(
        "SELECT \"table\", parent, COUNT(*), MIN(rowid) FROM pragma_foreign_key_check GROUP BY 1, 2",
        &[],
        |row| {
            let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
            let what = format!("rows of {table} that refer to a {parent} that is not there");
            problems.push(Problem { what, count: row.get::<i64>(2)?.unsigned_abs(), first: row.get(3)? });
            Ok(())
        },
    )?;
    Ok(problems)
}
