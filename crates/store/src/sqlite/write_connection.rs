//! Transactions on a connection to a SQLite file, and checkpoints of its log.

use crate::StoreError;
use crate::disk_space::DiskSpace;
use crate::error::SqlError;
use crate::sql::sqlite as sql;
use crate::writer::{MaintenanceUrgency, WriteSession};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Number of log frames (4 KiB each) from which a checkpoint is run.
const CHECKPOINT_FRAMES: i64 = 2000;
/// Earlier if space is scarce: when the log has a quarter of the free space.
const MIN_CHECKPOINT_FRAMES: i64 = 64;
const SCARCE_SPACE_FRACTION: u64 = 4;
const FRAME_BYTES: u64 = 4096;
/// Number of log frames from which a checkpoint precedes the next commit, if the writer's thread had no time for it.
const MAX_WAITING_FRAMES: i64 = 16_000;
/// Number of log frames from which the log is truncated even if that has to wait for readers.
const TRUNCATE_FRAMES: i64 = 32_000;
const TRUNCATE_BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// Longer where nothing can be written otherwise.
const FULL_DISK_BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Enough for a workflow of a million jobs.
const LARGE_TRANSACTION_SPACE: u64 = 1 << 30;
/// Pages beyond this are written to the log before a large commit. Enough for the index of names in any order.
const LARGE_CACHE_KIB: i64 = 64 * 1024;

/// A writing connection.
#[derive(Debug)]
pub(crate) struct SqliteWriteConnection {
    pub(crate) conn: Connection,
    path: Arc<Path>,
}

impl SqliteWriteConnection {
    pub(crate) const fn new(conn: Connection, path: Arc<Path>) -> Self {
        Self { conn, path }
    }

    /// A transaction that does not fit fills the disk with the log. What was in the log before could then not
    /// be moved into the file, and the log not be cut, so where space is scarce the log is emptied first.
    pub(crate) fn make_room_for_large_transaction(&self) {
        let is_scarce =
            DiskSpace::measure(&self.path).is_some_and(|space| space.free < LARGE_TRANSACTION_SPACE);
        let has_frames = || count_log_frames(&self.conn, sql::LOG_FRAMES).is_ok_and(|(frames, _)| frames > 0);
        if is_scarce && has_frames() {
            // Without it the transaction may still fit.
            drop(truncate_log(&self.conn, TRUNCATE_BUSY_TIMEOUT));
        }
    }

    /// Disables foreign key checks for one large transaction that creates or deletes all referenced rows: the
    /// checks would cost a third more.
    pub(crate) fn prepare_large_transaction(&self) -> Result<(), SqlError> {
        self.conn.pragma_update(None, "cache_size", -LARGE_CACHE_KIB)?;
        self.conn.pragma_update(None, "foreign_keys", false)?;
        Ok(())
    }

    fn run_statement(&self, sql: &str) -> Result<(), SqlError> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

impl WriteSession for SqliteWriteConnection {
    const IS_LOCAL: bool = true;

    type Db = Connection;

    fn db(&self) -> &Connection {
        &self.conn
    }

    fn begin(&self) -> Result<(), SqlError> {
        self.run_statement(sql::BEGIN_WRITE)
    }

    fn commit(&self) -> Result<(), SqlError> {
        self.run_statement(sql::COMMIT)
    }

    fn rollback(&self) {
        if !self.conn.is_autocommit() {
            // If even the rollback fails, the next BEGIN fails and reports the error.
            drop(self.conn.execute_batch(sql::ROLLBACK));
        }
    }

    fn has_lost_transaction(&self) -> bool {
        self.conn.is_autocommit()
    }

    fn begin_savepoint(&self) -> Result<(), SqlError> {
        self.run_statement(sql::BEGIN_SAVEPOINT)
    }

    fn release_savepoint(&self) -> Result<(), SqlError> {
        self.run_statement(sql::RELEASE_SAVEPOINT)
    }

    fn rollback_savepoint(&self) -> Result<(), SqlError> {
        self.run_statement(sql::ROLLBACK_SAVEPOINT)
    }

    fn explain_error(&self, fault: SqlError) -> StoreError {
        fault.into_store_error(&self.path)
    }

    fn maintenance_need(&self) -> MaintenanceUrgency {
        let Ok((frames, moved)) = count_log_frames(&self.conn, sql::LOG_FRAMES) else {
            return MaintenanceUrgency::NotNeeded;
        };
        match frames - moved {
            MAX_WAITING_FRAMES.. => MaintenanceUrgency::BeforeNextCommit,
            waiting @ MIN_CHECKPOINT_FRAMES.. if self.is_log_large(waiting) => {
                MaintenanceUrgency::BeforeNextCommit
            }
            CHECKPOINT_FRAMES.. => MaintenanceUrgency::Soon,
            _ => MaintenanceUrgency::NotNeeded,
        }
    }

    /// Fails on a full disk; the log then keeps its contents until the next try.
    fn run_maintenance(&self) {
        drop(self.checkpoint_log());
    }

    /// Copies the log to the database file, which frees the space of the log.
    fn free_disk_space(&self) {
        drop(truncate_log(&self.conn, FULL_DISK_BUSY_TIMEOUT));
    }
}

impl SqliteWriteConnection {
    fn checkpoint_log(&self) -> rusqlite::Result<()> {
        let (frames, _) = count_log_frames(&self.conn, sql::CHECKPOINT)?;
        if frames >= TRUNCATE_FRAMES || self.is_log_large(frames) {
            truncate_log(&self.conn, TRUNCATE_BUSY_TIMEOUT)
        } else {
            Ok(())
        }
    }

    /// Depends on the free space for the database.
    fn is_log_large(&self, frames: i64) -> bool {
        DiskSpace::measure(&self.path)
            .is_some_and(|space| frames.unsigned_abs() * FRAME_BYTES * SCARCE_SPACE_FRACTION > space.free)
    }
}

/// Truncates the log, unless readers use it.
fn truncate_log(conn: &Connection, timeout: Duration) -> rusqlite::Result<()> {
    let max_wait: i64 = conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
    conn.busy_timeout(timeout)?;
    let outcome = count_log_frames(conn, sql::CHECKPOINT_AND_TRUNCATE);
    conn.busy_timeout(Duration::from_millis(max_wait.unsigned_abs()))?;
    outcome.map(|_| ())
}

/// Number of frames in the log, and how many of them are in the database file.
fn count_log_frames(conn: &Connection, sql: &str) -> rusqlite::Result<(i64, i64)> {
    conn.prepare_cached(sql)?.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
