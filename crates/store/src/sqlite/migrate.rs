//! Migrations of a database to the current format: numbered, forward only, each in one transaction.

use crate::StoreError;
use crate::error::SqlError;
use crate::migration::{SchemaMigration, checksum, latest_version};
use crate::sql::sqlite as sql;
use rusqlite::{Connection, params};
use std::path::Path;

pub(crate) const MIGRATIONS: &[SchemaMigration] = &[
    SchemaMigration {
        version: 1,
        name: "initial",
        sql: include_str!("../../migrations/sqlite/0001_initial.sql"),
    },
    SchemaMigration {
        version: 2,
        name: "server",
        sql: include_str!("../../migrations/sqlite/0002_server.sql"),
    },
    SchemaMigration {
        version: 3,
        name: "recovery",
        sql: include_str!("../../migrations/sqlite/0003_recovery.sql"),
    },
    SchemaMigration {
        version: 4,
        name: "requests",
        sql: include_str!("../../migrations/sqlite/0004_requests.sql"),
    },
    SchemaMigration {
        version: 5,
        name: "units",
        sql: include_str!("../../migrations/sqlite/0005_units.sql"),
    },
    SchemaMigration {
        version: 6,
        name: "recovery_of_requests",
        sql: include_str!("../../migrations/sqlite/0006_recovery_of_requests.sql"),
    },
    SchemaMigration {
        version: 7,
        name: "blame",
        sql: include_str!("../../migrations/sqlite/0007_blame.sql"),
    },
    SchemaMigration {
        version: 8,
        name: "slurm",
        sql: include_str!("../../migrations/sqlite/0008_slurm.sql"),
    },
    SchemaMigration {
        version: 9,
        name: "decisions",
        sql: include_str!("../../migrations/sqlite/0009_decisions.sql"),
    },
    SchemaMigration {
        version: 10,
        name: "site_counts",
        sql: include_str!("../../migrations/sqlite/0010_site_counts.sql"),
    },
    SchemaMigration {
        version: 11,
        name: "delays",
        sql: include_str!("../../migrations/sqlite/0011_delays.sql"),
    },
    SchemaMigration {
        version: 12,
        name: "dataset_owners",
        sql: include_str!("../../migrations/sqlite/0012_dataset_owners.sql"),
    },
    SchemaMigration {
        version: 13,
        name: "run_priority",
        sql: include_str!("../../migrations/sqlite/0013_run_priority.sql"),
    },
    SchemaMigration {
        version: 14,
        name: "nodes_of_users",
        sql: include_str!("../../migrations/sqlite/0014_nodes_of_users.sql"),
    },
    SchemaMigration {
        version: 15,
        name: "plain_names",
        sql: include_str!("../../migrations/sqlite/0015_plain_names.sql"),
    },
    SchemaMigration {
        version: 16,
        name: "job_options",
        sql: include_str!("../../migrations/sqlite/0016_job_options.sql"),
    },
];

/// What all migrations together create, so that a new database does not repeat them (they take 25 times as long).
const SCHEMA: &str = include_str!("../../migrations/sqlite/schema.sql");

/// Creates the tables of the current format in an empty database.
pub(crate) fn create_tables(conn: &Connection) -> Result<(), SqlError> {
    let transaction = conn.unchecked_transaction()?;
    transaction.execute_batch(SCHEMA)?;
    for migration in MIGRATIONS {
        record_migration(&transaction, *migration)?;
    }
    Ok(transaction.commit()?)
}

/// Applies pending migrations. Two processes may do so concurrently: the second has nothing left to do.
pub(crate) fn migrate(conn: &Connection, db: &Path, migrations: &[SchemaMigration]) -> Result<(), SqlError> {
    if is_current(conn, db, migrations)? {
        return Ok(());
    }
    // A migration may replace a table that others refer to. References are checked at its end instead; the
    // setting cannot be changed within a transaction.
    let kept: bool = conn.pragma_query_value(None, "foreign_keys", |row| row.get(0))?;
    conn.pragma_update(None, "foreign_keys", false)?;
    let outcome = migrations.iter().try_for_each(|migration| apply_in_transaction(conn, db, *migration));
    conn.pragma_update(None, "foreign_keys", kept)?;
    outcome
}

fn apply_in_transaction(conn: &Connection, db: &Path, migration: SchemaMigration) -> Result<(), SqlError> {
    conn.execute_batch(sql::BEGIN_WRITE)?;
    let outcome = apply_step(conn, db, migration)
        .and_then(|()| conn.execute_batch(sql::COMMIT).map_err(SqlError::from));
    if outcome.is_err() && !conn.is_autocommit() {
        conn.execute_batch(sql::ROLLBACK)?;
    }
    outcome
}

/// Whether all migrations are applied and match this version. Rejects a database of a newer version.
pub(crate) fn is_current(
    conn: &Connection,
    db: &Path,
    migrations: &[SchemaMigration],
) -> Result<bool, SqlError> {
    let found = version(conn)?;
    let known = latest_version(migrations);
    if found > known {
        return Err(StoreError::FormatTooNew { path: db.to_owned(), found, known }.into());
    }
    if found > 0 {
        check_history(conn, db, migrations)?;
    }
    Ok(found == known)
}

pub(crate) fn version(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn apply_step(conn: &Connection, db: &Path, migration: SchemaMigration) -> Result<(), SqlError> {
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
    check_references(conn, db)?;
    record_migration(conn, migration)
}

fn record_migration(conn: &Connection, migration: SchemaMigration) -> Result<(), SqlError> {
    conn.execute(
        "INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)",
        params![migration.version, migration.name, checksum(migration.sql)],
    )?;
    conn.pragma_update(None, "user_version", migration.version)?;
    Ok(())
}

/// Checks that there are no dangling references after a migration.
fn check_references(conn: &Connection, db: &Path) -> Result<(), SqlError> {
    let mut statement = conn.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(()) };
    let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
    let detail = format!("a row of `{table}` refers to a missing row of `{parent}`");
    Err(StoreError::Damaged { path: db.to_owned(), detail }.into())
}

fn check_history(conn: &Connection, db: &Path, migrations: &[SchemaMigration]) -> Result<(), SqlError> {
    let mut statement = conn.prepare("SELECT version, checksum FROM schema_migration ORDER BY version")?;
    let applied = statement.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?)))?;
    for row in applied {
        let (version, found) = row?;
        let known = migrations.iter().find(|migration| migration.version == version);
        if known.is_none_or(|migration| checksum(migration.sql) != found) {
            return Err(StoreError::DifferentHistory { path: db.to_owned(), version }.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::types::ValueRef;

    const THREE: &[SchemaMigration] = &[
        SchemaMigration {
            version: 1,
            name: "one",
            sql: "CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (1)",
        },
        SchemaMigration { version: 2, name: "two", sql: "ALTER TABLE a ADD COLUMN y TEXT" },
        SchemaMigration {
            version: 3,
            name: "three",
            sql: "CREATE INDEX a_y ON a (y); UPDATE a SET x = x + 1",
        },
    ];

    fn schema(conn: &Connection) -> Vec<String> {
        let mut statement = conn
            .prepare("SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1")
            .unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn migrated(steps: &[&[SchemaMigration]]) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        for migrations in steps {
            migrate(&conn, Path::new("db"), migrations).unwrap();
        }
        conn
    }

    #[test]
    fn migration_numbers_are_consecutive() {
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
                assert_eq!(version(&by_steps).unwrap(), latest_version(migrations));
            }
        }
    }

    /// All rows of all tables, as SQL literals.
    fn contents(conn: &Connection) -> Vec<String> {
        let mut tables =
            conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
        let tables: Vec<String> =
            tables.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        let mut lines = Vec::new();
        for table in tables {
            let mut statement = conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let literal = |i| match row.get_ref(i).unwrap() {
                    ValueRef::Null => "NULL".to_owned(),
                    ValueRef::Integer(value) => value.to_string(),
                    ValueRef::Text(text) => format!("'{}'", str::from_utf8(text).unwrap()),
                    ValueRef::Real(_) | ValueRef::Blob(_) => panic!("unexpected value in {table}"),
                };
                let values: Vec<String> = (0..columns).map(literal).collect();
                lines.push(format!("INSERT INTO {table} VALUES ({});", values.join(", ")));
            }
        }
        lines
    }

    /// The text of `schema.sql`: objects in the order of their creation, and the rows that every database has.
    fn schema_file(conn: &Connection) -> String {
        let mut statement = conn
            .prepare(
                "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
            )
            .unwrap();
        let objects = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let mut text =
            "-- Written by the test `schema_file_is_what_all_migrations_create`. Change migrations only.\n"
                .to_owned();
        for object in objects {
            text += &(object.unwrap() + ";\n");
        }
        for line in contents(conn).iter().filter(|line| !line.contains(" schema_migration ")) {
            text += line;
            text.push('\n');
        }
        text
    }

    #[test]
    fn schema_file_is_what_all_migrations_create() {
        let by_migrations = migrated(&[MIGRATIONS]);
        let expected = schema_file(&by_migrations);
        if std::env::var_os("WINDLASS_UPDATE_SCHEMA").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/sqlite/schema.sql");
            std::fs::write(file, &expected).unwrap();
            return;
        }
        let created = Connection::open_in_memory().unwrap();
        create_tables(&created).unwrap();
        let remedy = "run this test with WINDLASS_UPDATE_SCHEMA=1, then again without it";
        assert_eq!(schema(&created), schema(&by_migrations), "{remedy}");
        assert_eq!(contents(&created), contents(&by_migrations), "{remedy}");
        assert_eq!(version(&created).unwrap(), latest_version(MIGRATIONS));
        assert_eq!(SCHEMA, expected, "{remedy}");
    }

    /// A dump of a database of the first format.
    const OLD_TABLES: &str = "
        INSERT INTO workflow (id, uuid, name, user_name, created_at, submission_dir, output_dir, stdio_mode,
            stdio_delete_on_success, settings, file_count)
        VALUES (7, '01234567-89ab-cdef-0123-456789abcdef', 'w', 'ada', 1, '/', '/o', 'none', 0, '{}', 0);
        INSERT INTO run VALUES (7, 1, 5, NULL);
        INSERT INTO worker VALUES (3, 7, 1, 'h', 'b', 11, 12, 't', 'l', 1, 2, 0, 1, NULL, 5, 6);
        INSERT INTO worker VALUES (4, 7, 1, 'h', 'b', 13, 14, 't', 'l', 1, 2, 0, 1, 9, 5, NULL);
        INSERT INTO worker VALUES (9, 7, 1, 'h', 'b', 13, 14, 't', 'l', 1, 2, 0, 1, 9, 5, 6);
        DELETE FROM worker WHERE id = 9;
        INSERT INTO job (id, workflow_id, status, worker_id, priority, cancel_on_blocking_job_failure, name, command)
        VALUES (1, 7, 3, 4, 0, 1, 'held', 'true'), (2, 7, 5, NULL, 0, 1, 'done', 'true');
        INSERT INTO result (job_id, run_id, attempt_id, worker_id, status, return_code, out_of_memory, ended_at, wall_us,
            cpu_time_us)
        VALUES (2, 1, 1, 3, 5, 0, 0, 9, 9, 9);
        INSERT INTO action (id, workflow_id, settings) VALUES (1, 7, '{}');
        INSERT INTO event (workflow_id, at, severity, category, actor, message) VALUES (7, 1, 1, 'c', 'ada', 'm');";

    #[test]
    fn first_format_is_migrated() {
        let conn = Connection::open_in_memory().unwrap();
        conn.pragma_update(None, "foreign_keys", true).unwrap();
        migrate(&conn, Path::new("db"), &MIGRATIONS[..1]).unwrap();
        conn.execute_batch(OLD_TABLES).unwrap();
        migrate(&conn, Path::new("db"), MIGRATIONS).unwrap();

        let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        let text = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(number("SELECT worker_id FROM job WHERE id = 1"), 4);
        assert_eq!(number("SELECT COUNT(*) FROM result r JOIN worker w ON w.id = r.worker_id"), 1);
        assert_eq!(number("SELECT pid_start_ticks FROM worker WHERE ended_at IS NULL"), 14);
        assert_eq!(
            text("SELECT kind || ' ' || user_name || ' ' || labels FROM worker WHERE id = 3"),
            "local ada []"
        );
        assert_eq!(number("SELECT trigger_count FROM action"), 0);
        assert_eq!(number("SELECT COUNT(*) FROM event WHERE job_id IS NULL"), 1);
        assert_eq!(number("PRAGMA foreign_keys"), 1, "foreign keys are enforced again");
        // Ids are never reused, and dangling references are rejected.
        let add = "INSERT INTO worker (kind, user_name, version, labels, host, boot_id, pid, pid_start_ticks, token,
            ledger_path, cpus, memory_bytes, gpus, nodes, started_at)
            VALUES ('remote', 'u', '', '[]', 'h', 'b', 1, 1, 't', '', 1, 1, 0, 1, 1)";
        conn.execute(add, []).unwrap();
        assert_eq!(conn.last_insert_rowid(), 10);
        assert!(conn.execute("UPDATE result SET worker_id = 99", []).is_err());
    }

    /// A dump of the first format with requests, with a request that was stopped and continued.
    const OLD_REQUEST: &str = "
        INSERT INTO request (name, status, priority, is_urgent, requestor, production_steps, created_at, updated_at, since,
            document, payload_config)
        VALUES ('r', 'active', 1, 0, 'ada', '[]', 1, 1, 1, '{}', '{}');
        INSERT INTO request_process VALUES ('p', 'r', '{}');
        INSERT INTO request_run (uuid, process, n, round, parent, status, backend, submit_dir, totals, counts,
            units_completed, units_failed, units_read, created_at)
        VALUES ('u1', 'p', 1, 0, NULL, 'stopped', 'engine', '/d', '{}', '{}', 0, 0, 0, 1),
            ('u2', 'p', 2, 0, 'u1', 'running', 'engine', '/d', '{}', '{}', 0, 0, 0, 1);
        INSERT INTO request_block (uuid, process, round, dataset, n, first_unit, last_unit, units_completed, is_closed,
            status, created_at, updated_at)
        VALUES ('b', 'p', 0, '/A/B/C', 0, 5, 9, 2, 0, 'open', 1, 1);";

    #[test]
    fn active_request_is_migrated() {
        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, Path::new("db"), &MIGRATIONS[..5]).unwrap();
        conn.execute_batch(OLD_REQUEST).unwrap();
        migrate(&conn, Path::new("db"), MIGRATIONS).unwrap();
        let text = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        assert_eq!(text("SELECT group_concat(cause || rescues) FROM request_run"), "first0,stop0");
        assert_eq!(text("SELECT group_concat(units_expected) FROM request_block"), "5");
    }

    #[test]
    fn migration_with_dangling_reference_is_rolled_back() {
        let conn = migrated(&[&MIGRATIONS[..1]]);
        conn.execute_batch(OLD_TABLES).unwrap();
        let bad = SchemaMigration { version: 2, name: "bad", sql: "DELETE FROM worker" };
        let error = migrate(&conn, Path::new("db"), &[MIGRATIONS[0], bad])
            .unwrap_err()
            .into_store_error(Path::new("db"));
        assert!(
            matches!(&error, StoreError::Damaged { detail, .. } if detail.contains("`worker`")),
            "{error}"
        );
        assert_eq!(version(&conn).unwrap(), 1);
        let left = conn.query_row("SELECT COUNT(*) FROM worker", [], |row| row.get::<_, i64>(0));
        assert_eq!(left.unwrap(), 2);
    }

    #[test]
    fn repeated_migration_changes_nothing() {
        let conn = migrated(&[THREE, THREE, THREE]);
        assert_eq!(conn.query_row("SELECT x FROM a", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    }

    #[test]
    fn failed_migration_step_is_rolled_back() {
        let mut broken = THREE.to_vec();
        broken[2].sql = "CREATE TABLE b (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1)";
        let conn = Connection::open_in_memory().unwrap();
        assert!(migrate(&conn, Path::new("db"), &broken).is_err());
        assert_eq!(version(&conn).unwrap(), 2);
        assert_eq!(schema(&conn), schema(&migrated(&[&THREE[..2]])));
    }

    #[test]
    fn newer_format_and_edited_migration_are_rejected() {
        let conn = migrated(&[THREE]);
        let error =
            migrate(&conn, Path::new("db"), &THREE[..2]).unwrap_err().into_store_error(Path::new("db"));
        assert!(matches!(error, StoreError::FormatTooNew { found: 3, known: 2, .. }), "{error}");

        let mut edited = THREE.to_vec();
        edited[1].sql = "ALTER TABLE a ADD COLUMN z TEXT";
        let error = migrate(&conn, Path::new("db"), &edited).unwrap_err().into_store_error(Path::new("db"));
        assert!(matches!(error, StoreError::DifferentHistory { version: 2, .. }), "{error}");
    }
}
