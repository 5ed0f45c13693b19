//! The one thread that writes: it takes what is waiting, commits it together, and only then answers.
//!
//! Each request runs in a savepoint, so that a request that fails takes nobody along. Trouble with the disk is
//! different: then the whole group is rolled back and everybody is told, and may come again.

use crate::Error;
use crate::error::Fault;
use crate::sql::sqlite as sql;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
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
    queue: Option<SyncSender<Envelope>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(conn: Connection, db: Arc<Path>) -> Result<Self, Error> {
        let (queue, requests) = mpsc::sync_channel(QUEUE);
        let path = db.to_path_buf();
        let thread = std::thread::Builder::new()
            .name("windlass-writer".into())
            .spawn(move || serve(&conn, &db, &requests))
            .map_err(|e| Error::file("start the writer of", &path, e))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Waits for a free place in the queue, not for the commit.
    pub(crate) fn submit(&self, request: Box<dyn Request>) {
        let envelope = Envelope(Some(request));
        if let Some(queue) = &self.queue
            && let Err(refused) = queue.send(envelope)
        {
            // Dropping it answers.
            drop(refused);
        }
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
        self.queue = None;
        if let Some(thread) = self.thread.take()
            // An answer may have held the last reference to the store; nobody can wait for himself.
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of that thread was already told to everybody who waited.
            drop(thread.join());
        }
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

fn serve(conn: &Connection, db: &Path, requests: &Receiver<Envelope>) {
    while let Ok(first) = requests.recv() {
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(next) = requests.try_recv()
        {
            group.push(next);
        }
        commit(conn, db, group);
        // Fails on a full disk; the log then keeps what it has and the next round tries again.
        drop(tend_log(conn));
    }
}

/// One transaction for the whole group, then the answers.
fn commit(conn: &Connection, db: &Path, mut group: Vec<Envelope>) {
    let outcomes = match transact(conn, db, &mut group) {
        Ok(outcomes) => outcomes,
        Err(error) => {
            if !conn.is_autocommit() {
                // A transaction that cannot even be rolled back makes the next BEGIN fail, which is then told.
                drop(conn.execute_batch(sql::ROLLBACK));
            }
            group.iter().map(|_| Err(error.clone())).collect()
        }
    };
    for (request, outcome) in group.into_iter().zip(outcomes) {
        request.answer(outcome);
    }
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

/// Moves the log into the database file when it is long enough to be worth it. Nobody waits for an answer meanwhile.
pub(crate) fn tend_log(conn: &Connection) -> rusqlite::Result<()> {
    let (frames, moved) = log_frames(conn, sql::LOG_FRAMES)?;
    if frames - moved < CHECKPOINT_FRAMES {
        return Ok(());
    }
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
