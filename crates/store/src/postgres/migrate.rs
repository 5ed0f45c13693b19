//! Brings a PostgreSQL database to the format this windlass knows. As for SQLite: numbered steps, forward only.

use super::link::Link;
use super::lock::MIGRATE;
use crate::Error;
use crate::db::{Db as _, values};
use crate::error::Fault;
use crate::migration::{Migration, checksum, latest};
use crate::sql::postgres as sql;

pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "initial",
        sql: include_str!("../../migrations/postgres/0001_initial.sql"),
    },
    Migration {
        version: 2,
        name: "recovery",
        sql: include_str!("../../migrations/postgres/0002_recovery.sql"),
    },
    Migration {
        version: 3,
        name: "requests",
        sql: include_str!("../../migrations/postgres/0003_requests.sql"),
    },
    Migration { version: 4, name: "units", sql: include_str!("../../migrations/postgres/0004_units.sql") },
    Migration {
        version: 5,
        name: "recovery_of_requests",
        sql: include_str!("../../migrations/postgres/0005_recovery_of_requests.sql"),
    },
    Migration { version: 6, name: "blame", sql: include_str!("../../migrations/postgres/0006_blame.sql") },
    Migration { version: 7, name: "slurm", sql: include_str!("../../migrations/postgres/0007_slurm.sql") },
    Migration {
        version: 8,
        name: "decisions",
        sql: include_str!("../../migrations/postgres/0008_decisions.sql"),
    },
    Migration {
        version: 9,
        name: "site_counts",
        sql: include_str!("../../migrations/postgres/0009_site_counts.sql"),
    },
    Migration { version: 10, name: "delays", sql: include_str!("../../migrations/postgres/0010_delays.sql") },
    Migration {
        version: 11,
        name: "dataset_owners",
        sql: include_str!("../../migrations/postgres/0011_dataset_owners.sql"),
    },
];

const HISTORY: &str = "schema_migration";

/// Applies what is missing. Two processes may do so at once: the second finds nothing left to do.
pub(super) fn migrate(link: &Link) -> Result<(), Fault> {
    link.connect()?;
    if is_current(link)? {
        return Ok(());
    }
    link.run(sql::BEGIN_WRITE)?;
    let outcome = apply(link).and_then(|()| link.run(sql::COMMIT));
    if outcome.is_err() {
        link.hang_up();
    }
    outcome
}

fn apply(link: &Link) -> Result<(), Fault> {
    link.execute(sql::WAIT_TO_WRITE, [MIGRATE])?;
    link.run(
        "CREATE TABLE IF NOT EXISTS schema_migration (
             version  BIGINT PRIMARY KEY,
             name     TEXT NOT NULL,
             checksum TEXT NOT NULL
         )",
    )?;
    let found = version(link)?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        link.run(migration.sql)?;
        let checksum = checksum(migration.sql);
        link.execute(
            "INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)",
            values![migration.version, migration.name, checksum],
        )?;
    }
    Ok(())
}

/// Whether every step was applied, and those of this windlass. Refuses a database of a newer one, and one that is not ours.
pub(super) fn is_current(link: &Link) -> Result<bool, Fault> {
    let url = &link.common.place.url;
    let tables: Vec<String> = link.all(sql::TABLES, values![], |row| row.get(0))?;
    if !tables.iter().any(|table| table == HISTORY) {
        if let Some(table) = tables.into_iter().next() {
            return Err(Error::NotOurs { url: url.clone(), table }.into());
        }
        return Ok(false);
    }
    let (found, known) = (version(link)?, latest(MIGRATIONS));
    if found > known {
        return Err(Error::Newer { path: url.into(), found, known }.into());
    }
    let applied =
        link.all("SELECT version, checksum FROM schema_migration ORDER BY version", values![], |row| {
            Ok((row.get::<u32>(0)?, row.get::<String>(1)?))
        })?;
    for (version, found) in applied {
        let known = MIGRATIONS.iter().find(|migration| migration.version == version);
        if known.is_none_or(|migration| checksum(migration.sql) != found) {
            return Err(Error::DifferentHistory { path: url.into(), version }.into());
        }
    }
    Ok(found == known)
}

pub(super) fn version(link: &Link) -> Result<u32, Fault> {
    link.one("SELECT COALESCE(MAX(version), 0) FROM schema_migration", values![], |row| row.get(0))
}
