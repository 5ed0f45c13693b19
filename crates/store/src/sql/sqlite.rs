//! Statements for SQLite only.

use crate::db::JobValues;

super::statements! {
    /// Takes the write lock immediately: a transaction that begins with a read may be rejected when it writes.
    BEGIN_WRITE = "BEGIN IMMEDIATE";
    BEGIN_READ = "BEGIN DEFERRED";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";

    BEGIN_SAVEPOINT = "SAVEPOINT request";
    RELEASE_SAVEPOINT = "RELEASE request";
    ROLLBACK_SAVEPOINT = "ROLLBACK TO request";

    /// A number that changes with commits of other connections, but not of this one.
    FOREIGN_COMMITS = "PRAGMA data_version";

    /// The number of frames in the log, and how many of them have been copied to the database file.
    LOG_FRAMES = "PRAGMA wal_checkpoint(NOOP)";
    CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)";
    CHECKPOINT_AND_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)";
}

/// Inserts `rows` jobs: `$1` is the workflow, followed by the values of each job. SQLite assigns consecutive
/// ids.
///
/// Both the omitted ids and `OR FAIL` are needed for speed: with ids, or with the default `OR ABORT`, SQLite
/// keeps a copy of every page that the statement changes. Nothing continues after a failure here, so the copies
/// are not needed.
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
