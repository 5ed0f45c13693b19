//! The steps that bring a database to the format this windlass knows: numbered, forward only, each in one transaction.

use crate::Error;
use crate::error::Fault;
use crate::migration::{Migration, checksum, latest};
use crate::sql::sqlite as sql;
use rusqlite::{Connection, params};
use std::path::Path;

pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "initial",
    sql: include_str!("../../migrations/sqlite/0001_initial.sql"),
}];

/// Applies what is missing. Two processes may do so at once: the second finds nothing left to do.
pub(crate) fn migrate(conn: &Connection, db: &Path, migrations: &[Migration]) -> Result<(), Fault> {
    if is_current(conn, db, migrations)? {
        return Ok(());
    }
    for migration in migrations {
        conn.execute_batch(sql::BEGIN_WRITE)?;
        let outcome =
            step(conn, *migration).and_then(|()| conn.execute_batch(sql::COMMIT).map_err(Fault::from));
        if outcome.is_err() && !conn.is_autocommit() {
            conn.execute_batch(sql::ROLLBACK)?;
        }
        outcome?;
    }
    Ok(())
}

/// Whether every step was applied, and those of this windlass. Refuses a database of a newer one.
pub(crate) fn is_current(conn: &Connection, db: &Path, migrations: &[Migration]) -> Result<bool, Fault> {
    let found = version(conn)?;
    let known = latest(migrations);
    if found > known {
        return Err(Error::Newer { path: db.to_owned(), found, known }.into());
    }
    if found > 0 {
        check_history(conn, db, migrations)?;
    }
    Ok(found == known)
}

pub(crate) fn version(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn step(conn: &Connection, migration: Migration) -> Result<(), Fault> {
    if version(conn)? >= migration.version {
        return Ok(());
    }
    conn.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migration (
             version  INTEGER PRIMARY KEY,
             name     TEXT NOT NULL,
             checksum TEXT NOT NULL
         ) STRICT",
    )?;
    conn.execute_batch(migration.sql)?;
    conn.execute(
        "INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)",
        params![migration.version, migration.name, checksum(migration.sql)],
    )?;
    conn.pragma_update(None, "user_version", migration.version)?;
    Ok(())
}

fn check_history(conn: &Connection, db: &Path, migrations: &[Migration]) -> Result<(), Fault> {
    let mut statement = conn.prepare("SELECT version, checksum FROM schema_migration ORDER BY version")?;
    let applied = statement.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?)))?;
    for row in applied {
        let (version, found) = row?;
        let known = migrations.iter().find(|migration| migration.version == version);
        if known.is_none_or(|migration| checksum(migration.sql) != found) {
            return Err(Error::DifferentHistory { path: db.to_owned(), version }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &[Migration] = &[
        Migration {
            version: 1,
            name: "one",
            sql: "CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (1)",
        },
        Migration { version: 2, name: "two", sql: "ALTER TABLE a ADD COLUMN y TEXT" },
        Migration { version: 3, name: "three", sql: "CREATE INDEX a_y ON a (y); UPDATE a SET x = x + 1" },
    ];

    fn schema(conn: &Connection) -> Vec<String> {
        let mut statement = conn
            .prepare("SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1")
            .unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn migrated(steps: &[&[Migration]]) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        for migrations in steps {
            migrate(&conn, Path::new("db"), migrations).unwrap();
        }
        conn
    }

    #[test]
    fn numbers_are_consecutive_from_one() {
        let numbers: Vec<u32> = MIGRATIONS.iter().map(|migration| migration.version).collect();
        assert_eq!(numbers, (1..=MIGRATIONS.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn a_database_migrated_step_by_step_equals_a_fresh_one() {
        for migrations in [THREE, MIGRATIONS] {
            let fresh = migrated(&[migrations]);
            for stop in 1..=migrations.len() {
                let by_steps = migrated(&[&migrations[..stop], migrations]);
                assert_eq!(schema(&by_steps), schema(&fresh));
                assert_eq!(version(&by_steps).unwrap(), latest(migrations));
            }
        }
    }

    #[test]
    fn migrating_again_changes_nothing() {
        let conn = migrated(&[THREE, THREE, THREE]);
        assert_eq!(conn.query_row("SELECT x FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    }

    #[test]
    fn a_failing_step_leaves_the_database_at_the_step_before() {
        let mut broken = THREE.to_vec();
        broken[2].sql = "CREATE TABLE b (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1)";
        let conn = Connection::open_in_memory().unwrap();
        assert!(migrate(&conn, Path::new("db"), &broken).is_err());
        assert_eq!(version(&conn).unwrap(), 2);
        assert_eq!(schema(&conn), schema(&migrated(&[&THREE[..2]])));
    }

    #[test]
    fn a_newer_format_and_an_edited_step_are_refused() {
        let conn = migrated(&[THREE]);
        let error = migrate(&conn, Path::new("db"), &THREE[..2]).unwrap_err().explain(Path::new("db"));
        assert!(matches!(error, Error::Newer { found: 3, known: 2, .. }), "{error}");

        let mut edited = THREE.to_vec();
        edited[1].sql = "ALTER TABLE a ADD COLUMN z TEXT";
        let error = migrate(&conn, Path::new("db"), &edited).unwrap_err().explain(Path::new("db"));
        assert!(matches!(error, Error::DifferentHistory { version: 2, .. }), "{error}");
    }
}
