//! The one connection that writes: whoever has it takes what is waiting, commits it together, and only then answers.
//!
//! Somebody who finds the connection free commits at once, on his own thread: handing over to another thread and back costs
//! more than the commit itself. Whoever comes meanwhile leaves his request in the queue, and a thread of its own
//! commits all that gathered there in one go.
//!
//! Each request runs in a savepoint, so that a request that fails takes nobody along. Trouble with the disk is
//! different: then the whole group is rolled back and everybody is told, and may come again.

use crate::Error;
use crate::error::Fault;
use crate::sql::sqlite as sql;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests that may wait before callers have to.
const QUEUE: usize = 1024;
/// Requests that are committed together at most.
const GROUP: usize = 256;
/// Log frames (4 KiB each) that are worth moving into the database file.
const CHECKPOINT_FRAMES: i64 = 2000;
/// A log of this many frames is cut even if readers have to be waited for a little.
const TRUNCATE_FRAMES: i64 = 32_000;
const TRUNCATE_PATIENCE: Duration = Duration::from_millis(200);

/// Something to be done in a transaction, and somebody to be told.
pub(crate) trait Request: Send {
    /// Inside a savepoint; what it did is undone if it fails.
    fn apply(&mut self, conn: &Connection) -> Result<(), Fault>;
    /// After the commit, or after it is certain that there was none.
    fn answer(self: Box<Self>, outcome: Result<(), Error>);
}

/// The handle of the writer. Dropping it waits until everything that was queued is on disk.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    db: Arc<Path>,
    conn: Mutex<Connection>,
    queue: Mutex<Queue>,
    /// Something is in the queue, or the queue is closed, or there is room in it again.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Envelope>,
    /// The log is long enough to be moved into the database file.
    log_is_long: bool,
    closed: bool,
}

impl Writer {
    pub(crate) fn start(conn: Connection, db: Arc<Path>) -> Result<Self, Error> {
        let path = db.to_path_buf();
        let shared =
            Arc::new(Shared { db, conn: conn.into(), queue: Mutex::default(), changed: Condvar::new() });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("windlass-writer".into())
            .spawn(move || served.serve())
            .map_err(|e| Error::file("start the writer of", &path, e))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Commits at once if nobody else is at it; else waits for a free place in the queue, not for the commit.
    pub(crate) fn submit(&self, request: Box<dyn Request>) {
        self.shared.enqueue(Envelope(Some(request)));
        self.shared.commit_here();
    }

    /// Reads on the writing connection, outside of a transaction; `None` if it is in use and `wait` is not wanted.
    pub(crate) fn peek<T>(
        &self,
        wait: bool,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<Option<T>, Error> {
        let conn = match self.shared.conn.try_lock() {
            Ok(conn) => conn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if !wait => return Ok(None),
            Err(TryLockError::WouldBlock) => self.shared.conn.lock().unwrap_or_else(PoisonError::into_inner),
        };
        read(&conn).map(Some).map_err(|fault| fault.explain(&self.shared.db))
    }

    /// Runs `work` in the next group commit and waits for it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.submit(Box::new(Call { work: Some(work), value: None, reply }));
        answer.recv().unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            // An answer may have held the last reference to the store; nobody can wait for himself.
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of that thread was already told to everybody who waited.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn enqueue(&self, envelope: Envelope) {
        let full = |queue: &mut Queue| queue.waiting.len() >= QUEUE && !queue.closed;
        let queue = self.queue();
        let mut queue = self.changed.wait_while(queue, full).unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(envelope);
    }

    /// One group, if the connection is free. Whoever has it looks into the queue once more when he is done.
    fn commit_here(&self) {
        match self.conn.try_lock() {
            Ok(conn) => self.commit_group(conn),
            Err(TryLockError::Poisoned(poisoned)) => self.commit_group(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return,
        }
        if !self.queue().waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// The thread that takes what others left.
    fn serve(&self) {
        loop {
            let idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.log_is_long && !queue.closed;
            let queue = self.changed.wait_while(self.queue(), idle);
            let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
            let log_is_long = std::mem::take(&mut queue.log_is_long);
            if queue.waiting.is_empty() && !log_is_long {
                return;
            }
            drop(queue);
            let conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
            if log_is_long {
                // Fails on a full disk; the log then keeps what it has and the next round tries again.
                drop(shorten_log(&conn));
            }
            self.commit_group(conn);
        }
    }

    /// Commits what is waiting, then lets the connection go, then answers.
    fn commit_group(&self, conn: MutexGuard<'_, Connection>) {
        let mut queue = self.queue();
        let was_full = queue.waiting.len() >= QUEUE;
        let take = queue.waiting.len().min(GROUP);
        let mut group: Vec<Envelope> = queue.waiting.drain(..take).collect();
        drop(queue);
        if was_full {
            self.changed.notify_all();
        }
        if group.is_empty() {
            return;
        }
        let outcomes = commit(&conn, &self.db, &mut group);
        let log_is_long = log_is_long(&conn);
        drop(conn);
        if log_is_long {
            self.queue().log_is_long = true;
            self.changed.notify_all();
        }
        for (request, outcome) in group.into_iter().zip(outcomes) {
            request.answer(outcome);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that every request is answered, also when the writer is gone.
struct Envelope(Option<Box<dyn Request>>);

impl Envelope {
    fn apply(&mut self, conn: &Connection) -> Result<(), Fault> {
        self.0.as_mut().map_or(Ok(()), |request| request.apply(conn))
    }

    fn answer(mut self, outcome: Result<(), Error>) {
        if let Some(request) = self.0.take() {
            request.answer(outcome);
        }
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Envelope")
    }
}

impl Drop for Envelope {
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            request.answer(Err(Error::Closed));
        }
    }
}

/// A closure with a result that somebody waits for.
struct Call<T, F> {
    work: Option<F>,
    value: Option<T>,
    reply: SyncSender<Result<T, Error>>,
}

impl<T: Send, F: FnOnce(&Connection) -> Result<T, Fault> + Send> Request for Call<T, F> {
    fn apply(&mut self, conn: &Connection) -> Result<(), Fault> {
        if let Some(work) = self.work.take() {
            self.value = Some(work(conn)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        let Self { value, reply, .. } = *self;
        // A caller that no longer waits does not want to know.
        drop(reply.send(outcome.and_then(|()| value.ok_or(Error::Closed))));
    }
}

/// One transaction for the whole group; what became of each request.
fn commit(conn: &Connection, db: &Path, group: &mut [Envelope]) -> Vec<Result<(), Error>> {
    transact(conn, db, group).unwrap_or_else(|error| {
        if !conn.is_autocommit() {
            // A transaction that cannot even be rolled back makes the next BEGIN fail, which is then told.
            drop(conn.execute_batch(sql::ROLLBACK));
        }
        group.iter().map(|_| Err(error.clone())).collect()
    })
}

/// What became of each request, once all that is `Ok` is on disk. An error here means that nothing is.
fn transact(conn: &Connection, db: &Path, group: &mut [Envelope]) -> Result<Vec<Result<(), Error>>, Error> {
    let run = |sql: &str| -> Result<(), Error> {
        let done = conn.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(|_| ()).map_err(|e| Fault::from(e).explain(db))
    };
    run(sql::BEGIN_WRITE)?;
    // A request that is alone is undone with its transaction.
    let guarded = group.len() > 1;
    let mut outcomes = Vec::with_capacity(group.len());
    for request in group {
        if guarded {
            run(sql::BEGIN_REQUEST)?;
        }
        let outcome = request.apply(conn).map_err(|fault| fault.explain(db));
        if let Err(error) = &outcome {
            let lost = conn.is_autocommit();
            if lost || !guarded || error.is_transient() || error.is_damage() {
                return Err(error.clone());
            }
            run(sql::UNDO_REQUEST)?;
        }
        if guarded {
            run(sql::KEEP_REQUEST)?;
        }
        outcomes.push(outcome);
    }
    run(sql::COMMIT)?;
    Ok(outcomes)
}

/// Moves the log into the database file if it is long enough to be worth it.
pub(crate) fn tend_log(conn: &Connection) -> rusqlite::Result<()> {
    if log_is_long(conn) { shorten_log(conn) } else { Ok(()) }
}

fn log_is_long(conn: &Connection) -> bool {
    log_frames(conn, sql::LOG_FRAMES).is_ok_and(|(frames, moved)| frames - moved >= CHECKPOINT_FRAMES)
}

fn shorten_log(conn: &Connection) -> rusqlite::Result<()> {
    let (frames, _) = log_frames(conn, sql::CHECKPOINT)?;
    if frames >= TRUNCATE_FRAMES { truncate_log(conn) } else { Ok(()) }
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
