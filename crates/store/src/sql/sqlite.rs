//! What only SQLite says.

use crate::db::JobValues;

super::statements! {
    /// Takes the write lock at once: a transaction that begins as a reader may be refused when it wants to write.
    BEGIN_WRITE = "BEGIN IMMEDIATE";
    BEGIN_READ = "BEGIN DEFERRED";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";

    BEGIN_SAVEPOINT = "SAVEPOINT request";
    RELEASE_SAVEPOINT = "RELEASE request";
    ROLLBACK_SAVEPOINT = "ROLLBACK TO request";

    /// A number that changes when another connection has committed, and not when this one has.
    FOREIGN_COMMITS = "PRAGMA data_version";

    /// How many frames the log holds and how many of them are already in the database file.
    LOG_FRAMES = "PRAGMA wal_checkpoint(NOOP)";
    CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)";
    CHECKPOINT_AND_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)";
}

/// Inserts `rows` jobs: `$1` is the workflow, then come the values of each job. SQLite gives each the id after the largest.
///
/// Not giving the ids and `OR FAIL` belong together: with ids, or with the usual `OR ABORT`, SQLite keeps a copy of every
/// page that the statement touches until it is through. Nobody goes on after a failure here, so there is no need to.
pub(crate) fn insert_jobs(rows: usize, are_plain: bool) -> String {
    let more: &[&str] = if are_plain { &[] } else { &JobValues::EXTRA_COLUMNS };
    let columns = [&JobValues::PLAIN_COLUMNS, more].concat();
    let width = columns.len();
    let row = |n: usize| {
        let values: Vec<String> = (2 + width * n..2 + width * (n + 1)).map(|p| format!("${p}")).collect();
        format!("($1, {})", values.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!("INSERT OR FAIL INTO job (workflow_id, {}) VALUES {}", columns.join(", "), rows.join(", "))
}
