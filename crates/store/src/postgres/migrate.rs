//! Upgrades a PostgreSQL database. As for SQLite: numbered migrations, forward only.

use super::connection::PgConnection;
use super::lock::MIGRATE_LOCK_KEY;
use crate::StoreError;
use crate::db::{SqlConnection as _, values};
use crate::error::SqlError;
use crate::migration::{SchemaMigration, checksum, latest_version};
use crate::sql::postgres as sql;

pub(crate) const MIGRATIONS: &[SchemaMigration] = &[
    SchemaMigration {
        version: 1,
        name: "initial",
        sql: include_str!("../../migrations/postgres/0001_initial.sql"),
    },
    SchemaMigration {
        version: 2,
        name: "recovery",
        sql: include_str!("../../migrations/postgres/0002_recovery.sql"),
    },
    SchemaMigration {
        version: 3,
        name: "requests",
        sql: include_str!("../../migrations/postgres/0003_requests.sql"),
    },
    SchemaMigration {
        version: 4,
        name: "units",
        sql: include_str!("../../migrations/postgres/0004_units.sql"),
    },
    SchemaMigration {
        version: 5,
        name: "recovery_of_requests",
        sql: include_str!("../../migrations/postgres/0005_recovery_of_requests.sql"),
    },
    SchemaMigration {
        version: 6,
        name: "blame",
        sql: include_str!("../../migrations/postgres/0006_blame.sql"),
    },
    SchemaMigration {
        version: 7,
        name: "slurm",
        sql: include_str!("../../migrations/postgres/0007_slurm.sql"),
    },
    SchemaMigration {
        version: 8,
        name: "decisions",
        sql: include_str!("../../migrations/postgres/0008_decisions.sql"),
    },
    SchemaMigration {
        version: 9,
        name: "site_counts",
        sql: include_str!("../../migrations/postgres/0009_site_counts.sql"),
    },
    SchemaMigration {
        version: 10,
        name: "delays",
        sql: include_str!("../../migrations/postgres/0010_delays.sql"),
    },
    SchemaMigration {
        version: 11,
        name: "dataset_owners",
        sql: include_str!("../../migrations/postgres/0011_dataset_owners.sql"),
    },
    SchemaMigration {
        version: 12,
        name: "run_priority",
        sql: include_str!("../../migrations/postgres/0012_run_priority.sql"),
    },
    SchemaMigration {
        version: 13,
        name: "nodes_of_users",
        sql: include_str!("../../migrations/postgres/0013_nodes_of_users.sql"),
    },
    SchemaMigration {
        version: 14,
        name: "plain_names",
        sql: include_str!("../../migrations/postgres/0014_plain_names.sql"),
    },
    SchemaMigration {
        version: 15,
        name: "job_options",
        sql: include_str!("../../migrations/postgres/0015_job_options.sql"),
    },
];

const HISTORY_TABLE: &str = "schema_migration";

/// Applies pending migrations. Two processes may do so concurrently: the second has nothing left to do.
pub(super) fn migrate(link: &PgConnection) -> Result<(), SqlError> {
    link.connect()?;
    if is_current(link)? {
        return Ok(());
    }
    link.run_statement(sql::BEGIN_WRITE)?;
    let outcome = apply_missing(link).and_then(|()| link.run_statement(sql::COMMIT));
    if outcome.is_err() {
        link.close();
    }
    outcome
}

fn apply_missing(link: &PgConnection) -> Result<(), SqlError> {
    link.execute(sql::WAIT_TO_WRITE, [MIGRATE_LOCK_KEY])?;
    link.run_statement(
        "CREATE TABLE IF NOT EXISTS schema_migration (
             version  BIGINT PRIMARY KEY,
             name     TEXT NOT NULL,
             checksum TEXT NOT NULL
         )",
    )?;
    let found = version(link)?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        link.run_statement(migration.sql)?;
        let checksum = checksum(migration.sql);
        link.execute(
            "INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)",
            values![migration.version, migration.name, checksum],
        )?;
    }
    Ok(())
}

/// Whether all migrations are applied and match this version. Rejects a database of a newer version or of
/// another application.
pub(super) fn is_current(link: &PgConnection) -> Result<bool, SqlError> {
    let url = &link.store_state.target.url;
    let tables: Vec<String> = link.query_all(sql::TABLES, values![], |row| row.get(0))?;
    if !tables.iter().any(|table| table == HISTORY_TABLE) {
        if let Some(table) = tables.into_iter().next() {
            return Err(StoreError::ForeignDatabase { url: url.clone(), table }.into());
        }
        return Ok(false);
    }
    let (found, known) = (version(link)?, latest_version(MIGRATIONS));
    if found > known {
        return Err(StoreError::FormatTooNew { path: url.into(), found, known }.into());
    }
    let applied = link.query_all(
        "SELECT version, checksum FROM schema_migration ORDER BY version",
        values![],
        |row| Ok((row.get::<u32>(0)?, row.get::<String>(1)?)),
    )?;
    for (version, found) in applied {
        let known = MIGRATIONS.iter().find(|migration| migration.version == version);
        if known.is_none_or(|migration| checksum(migration.sql) != found) {
            return Err(StoreError::DifferentHistory { path: url.into(), version }.into());
        }
    }
    Ok(found == known)
}

pub(super) fn version(link: &PgConnection) -> Result<u32, SqlError> {
    link.query_one("SELECT COALESCE(MAX(version), 0) FROM schema_migration", values![], |row| row.get(0))
}
