//! Transactions on a connection to a SQLite file, and the care of its log.

use crate::StoreError;
use crate::disk_space::DiskSpace;
use crate::error::SqlError;
use crate::sql::sqlite as sql;
use crate::writer::WriteSession;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Log frames (4 KiB each) that are worth moving into the database file.
const CHECKPOINT_FRAMES: i64 = 2000;
/// Fewer are worth it where space is scarce: once they are a quarter of what is free.
const MIN_CHECKPOINT_FRAMES: i64 = 64;
const SCARCE_SPACE_FRACTION: u64 = 4;
const FRAME_BYTES: u64 = 4096;
/// A log of this many frames is cut even if readers have to be waited for a little.
const TRUNCATE_FRAMES: i64 = 32_000;
const TRUNCATE_BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// Pages beyond this go to the log before the commit of something large. Enough for the index of names in any order.
const LARGE_CACHE_KIB: i64 = 64 * 1024;

/// A connection that writes.
#[derive(Debug)]
pub(crate) struct SqliteWriteConnection {
    pub(crate) conn: Connection,
    path: Arc<Path>,
}

impl SqliteWriteConnection {
    pub(crate) const fn new(conn: Connection, path: Arc<Path>) -> Self {
        Self { conn, path }
    }

    /// For one large transaction, in which every id that is referred to is made, or goes too: looking each up again would
    /// cost a third more.
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
            // A transaction that cannot even be rolled back makes the next BEGIN fail, which is then told.
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

    fn into_store_error(&self, fault: SqlError) -> StoreError {
        fault.into_store_error(&self.path)
    }

    fn needs_maintenance(&self) -> bool {
        count_log_frames(&self.conn, sql::LOG_FRAMES).is_ok_and(|(frames, moved)| {
            let waiting = frames - moved;
            waiting >= CHECKPOINT_FRAMES || (waiting >= MIN_CHECKPOINT_FRAMES && self.is_log_large(waiting))
        })
    }

    /// Fails on a full disk; the log then keeps what it has and the next round tries again.
    fn run_maintenance(&self) {
        drop(self.checkpoint_log());
    }

    /// What stands in the log already may have its place in the file: then the space of the log is free.
    fn free_disk_space(&self) {
        drop(truncate_log(&self.conn));
    }
}

impl SqliteWriteConnection {
    fn checkpoint_log(&self) -> rusqlite::Result<()> {
        let (frames, _) = count_log_frames(&self.conn, sql::CHECKPOINT)?;
        if frames >= TRUNCATE_FRAMES || self.is_log_large(frames) { truncate_log(&self.conn) } else { Ok(()) }
    }

    /// Measured by the space that is left for the database to grow.
    fn is_log_large(&self, frames: i64) -> bool {
        DiskSpace::measure(&self.path)
            .is_some_and(|space| frames.unsigned_abs() * FRAME_BYTES * SCARCE_SPACE_FRACTION > space.free)
    }
}

/// Gives the space of the log back, unless readers keep it busy.
fn truncate_log(conn: &Connection) -> rusqlite::Result<()> {
    let patience: i64 = conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
    conn.busy_timeout(TRUNCATE_BUSY_TIMEOUT)?;
    let outcome = count_log_frames(conn, sql::CHECKPOINT_AND_TRUNCATE);
    conn.busy_timeout(Duration::from_millis(patience.unsigned_abs()))?;
    outcome.map(|_| ())
}

/// Frames in the log, and how many of them are in the database file.
fn count_log_frames(conn: &Connection, sql: &str) -> rusqlite::Result<(i64, i64)> {
    conn.prepare_cached(sql)?.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
