//! Transactions on a connection to a SQLite file, and the care of its log.

use crate::Error;
use crate::error::Fault;
use crate::space::Space;
use crate::sql::sqlite as sql;
use crate::writer::Session;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Log frames (4 KiB each) that are worth moving into the database file.
const CHECKPOINT_FRAMES: i64 = 2000;
/// Fewer are worth it where space is scarce: once they are a quarter of what is free.
const SCARCE_FRAMES: i64 = 64;
const SCARCE_PART: u64 = 4;
const FRAME: u64 = 4096;
/// A log of this many frames is cut even if readers have to be waited for a little.
const TRUNCATE_FRAMES: i64 = 32_000;
const TRUNCATE_PATIENCE: Duration = Duration::from_millis(200);
/// Pages beyond this go to the log before the commit of something large. Enough for the index of names in any order.
const LARGE_CACHE_KIB: i64 = 64 * 1024;

/// A connection that writes.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conn: Connection,
    path: Arc<Path>,
}

impl Link {
    pub(crate) const fn new(conn: Connection, path: Arc<Path>) -> Self {
        Self { conn, path }
    }

    /// For one large transaction, in which every id that is referred to is made, or goes too: looking each up again would
    /// cost a third more.
    pub(crate) fn prepare_for_much(&self) -> Result<(), Fault> {
        self.conn.pragma_update(None, "cache_size", -LARGE_CACHE_KIB)?;
        self.conn.pragma_update(None, "foreign_keys", false)?;
        Ok(())
    }

    fn run(&self, sql: &str) -> Result<(), Fault> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

impl Session for Link {
    const IS_NEAR: bool = true;

    type Db = Connection;

    fn db(&self) -> &Connection {
        &self.conn
    }

    fn begin(&self) -> Result<(), Fault> {
        self.run(sql::BEGIN_WRITE)
    }

    fn commit(&self) -> Result<(), Fault> {
        self.run(sql::COMMIT)
    }

    fn roll_back(&self) {
        if !self.conn.is_autocommit() {
            // A transaction that cannot even be rolled back makes the next BEGIN fail, which is then told.
            drop(self.conn.execute_batch(sql::ROLLBACK));
        }
    }

    fn has_lost_transaction(&self) -> bool {
        self.conn.is_autocommit()
    }

    fn begin_request(&self) -> Result<(), Fault> {
        self.run(sql::BEGIN_REQUEST)
    }

    fn keep_request(&self) -> Result<(), Fault> {
        self.run(sql::KEEP_REQUEST)
    }

    fn undo_request(&self) -> Result<(), Fault> {
        self.run(sql::UNDO_REQUEST)
    }

    fn explain(&self, fault: Fault) -> Error {
        fault.explain(&self.path)
    }

    fn is_untidy(&self) -> bool {
        log_frames(&self.conn, sql::LOG_FRAMES).is_ok_and(|(frames, moved)| {
            let waiting = frames - moved;
            waiting >= CHECKPOINT_FRAMES || (waiting >= SCARCE_FRAMES && self.is_large(waiting))
        })
    }

    /// Fails on a full disk; the log then keeps what it has and the next round tries again.
    fn tidy_up(&self) {
        drop(self.shorten_log());
    }

    /// What stands in the log already may have its place in the file: then the space of the log is free.
    fn make_room(&self) {
        drop(truncate_log(&self.conn));
    }
}

impl Link {
    fn shorten_log(&self) -> rusqlite::Result<()> {
        let (frames, _) = log_frames(&self.conn, sql::CHECKPOINT)?;
        if frames >= TRUNCATE_FRAMES || self.is_large(frames) { truncate_log(&self.conn) } else { Ok(()) }
    }

    /// Measured by the space that is left for the database to grow.
    fn is_large(&self, frames: i64) -> bool {
        Space::beside(&self.path)
            .is_some_and(|space| frames.unsigned_abs() * FRAME * SCARCE_PART > space.free)
    }
}

/// Gives the space of the log back, unless readers keep it busy.
fn truncate_log(conn: &Connection) -> rusqlite::Result<()> {
    let patience: i64 = conn.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
    conn.busy_timeout(TRUNCATE_PATIENCE)?;
    let outcome = log_frames(conn, sql::CHECKPOINT_AND_TRUNCATE);
    conn.busy_timeout(Duration::from_millis(patience.unsigned_abs()))?;
    outcome.map(|_| ())
}

/// Frames in the log, and how many of them are in the database file.
fn log_frames(conn: &Connection, sql: &str) -> rusqlite::Result<(i64, i64)> {
    conn.prepare_cached(sql)?.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}
