//! The one connection that writes: whoever has it takes what is waiting, commits it together, and only then answers.
//!
//! Somebody who finds the connection free commits at once, on his own thread: handing over to another thread and back costs
//! more than the commit itself. Whoever comes meanwhile leaves his request in the queue, and a thread of its own
//! commits all that gathered there in one go. Where the database is far away ([`Session::IS_NEAR`]) whoever need not wait
//! for his changes leaves them there too.
//!
//! Each request runs in a savepoint, so that a request that fails takes nobody along. Trouble with the disk is
//! different: then the whole group is rolled back and everybody is told, and may come again.

use crate::db::SqlConnection;
use crate::error::SqlError;
use crate::{BatchCallback, ChangeBatch, StoreError};
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Requests that may wait before callers have to.
const MAX_QUEUED_WRITES: usize = 1024;
/// Requests that are committed together at most.
const MAX_WRITES_PER_COMMIT: usize = 256;
/// A connection that the writer has for itself.
pub(crate) trait WriteSession: Send + 'static {
    type Db: SqlConnection;

    fn db(&self) -> &Self::Db;

    fn begin(&self) -> Result<(), SqlError>;
    /// When it returns `Ok`, all of it is on disk; else nothing is, or the error says that nobody knows.
    fn commit(&self) -> Result<(), SqlError>;
    /// Ends the transaction, if there still is one.
    fn rollback(&self);
    /// There is no transaction any more, though nobody ended it.
    fn has_lost_transaction(&self) -> bool;

    fn begin_savepoint(&self) -> Result<(), SqlError>;
    fn release_savepoint(&self) -> Result<(), SqlError>;
    fn rollback_savepoint(&self) -> Result<(), SqlError>;

    fn into_store_error(&self, fault: SqlError) -> StoreError;

    /// Whether a commit takes about as long as handing it to another thread.
    const IS_LOCAL: bool;

    /// Asked after each commit: whether [`Session::tidy_up`] would be worth its while.
    fn needs_maintenance(&self) -> bool;
    /// Called when nobody waits for it.
    fn run_maintenance(&self);
    /// Called after a commit failed because the disk is full.
    fn free_disk_space(&self) {}
}

/// Something to be done in a transaction, and somebody to be told.
pub(crate) trait WriteRequest<D>: Send {
    /// Inside a savepoint; what it did is undone if it fails.
    fn apply(&mut self, db: &D) -> Result<(), SqlError>;
    /// After the commit, or after it is certain that there was none.
    fn reply(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// The handle of the writer. Dropping it waits until everything that was queued is on disk.
pub(crate) struct GroupCommitWriter<S: WriteSession> {
    shared: Arc<WriterState<S>>,
    thread: Option<JoinHandle<()>>,
}

struct WriterState<S: WriteSession> {
    session: Mutex<S>,
    queue: Mutex<WriteQueue<S::Db>>,
    /// Something is in the queue, or the queue is closed, or there is room in it again.
    changed: Condvar,
    /// Why the last commit failed, if the database itself is in trouble.
    last_failure: Mutex<Option<StoreError>>,
}

struct WriteQueue<D> {
    waiting: VecDeque<QueuedWrite<D>>,
    needs_maintenance: bool,
    closed: bool,
}

impl<S: WriteSession> GroupCommitWriter<S>
where
    S::Db: 'static,
{
    pub(crate) fn start(session: S) -> std::io::Result<Self> {
        let queue = WriteQueue { waiting: VecDeque::new(), needs_maintenance: false, closed: false };
        let shared = Arc::new(WriterState {
            session: session.into(),
            queue: queue.into(),
            changed: Condvar::new(),
            last_failure: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("windlass-writer".into())
            .spawn(move || served.run_commit_loop())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Commits changes, alone or together with what others want. Returns before that is done where it takes a while.
    pub(crate) fn submit_batch(&self, batch: ChangeBatch, actor: Arc<str>, done: BatchCallback) {
        let submission = Box::new(BatchWrite { batch, actor, done });
        if S::IS_LOCAL {
            return self.commit_or_enqueue(submission);
        }
        self.shared.enqueue(QueuedWrite(Some(submission)));
        self.shared.changed.notify_all();
    }

    /// Commits at once if nobody else is at it; else waits for a free place in the queue, not for the commit.
    fn commit_or_enqueue(&self, request: Box<dyn WriteRequest<S::Db>>) {
        self.shared.enqueue(QueuedWrite(Some(request)));
        self.shared.try_commit_group();
    }

    /// Reads on the writing connection, outside of a transaction; `None` if it is in use and `wait` is not wanted.
    pub(crate) fn read_on_writer<T>(
        &self,
        wait: bool,
        read: impl FnOnce(&S::Db) -> Result<T, SqlError>,
    ) -> Result<Option<T>, StoreError> {
        let session = match self.shared.session.try_lock() {
            Ok(session) => session,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if !wait => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                self.shared.session.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let found = read(session.db()).map(Some).map_err(|fault| session.into_store_error(fault));
        drop(session);
        self.shared.recheck_queue();
        found
    }

    /// As [`Self::call`], for several at once: each by itself, as far as possible in one commit.
    pub(crate) fn run_each<T: Send + 'static>(
        &self,
        works: impl IntoIterator<Item = impl FnOnce(&S::Db) -> Result<T, SqlError> + Send + 'static>,
    ) -> Vec<Result<T, StoreError>> {
        let mut works = works.into_iter().peekable();
        let mut outcomes = Vec::new();
        while works.peek().is_some() {
            let answers: Vec<_> = works
                .by_ref()
                .take(MAX_WRITES_PER_COMMIT)
                .map(|work| {
                    let (reply, answer) = mpsc::sync_channel(1);
                    self.shared.enqueue(QueuedWrite(Some(Box::new(ClosureWrite {
                        work: Some(work),
                        value: None,
                        reply,
                    }))));
                    answer
                })
                .collect();
            self.shared.try_commit_group();
            outcomes
                .extend(answers.into_iter().map(|answer| answer.recv().unwrap_or(Err(StoreError::Closed))));
        }
        outcomes
    }

    /// Why the database takes no changes, if the last commit failed because of that.
    pub(crate) fn last_failure(&self) -> Option<StoreError> {
        let trouble = self.shared.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.clone().filter(StoreError::is_still_present)
    }

    /// Runs `work` in the next group commit and waits for it.
    pub(crate) fn run_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&S::Db) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.commit_or_enqueue(Box::new(ClosureWrite { work: Some(work), value: None, reply }));
        answer.recv().unwrap_or(Err(StoreError::Closed))
    }
}

impl<S: WriteSession> Drop for GroupCommitWriter<S> {
    fn drop(&mut self) {
        self.shared.lock_queue().closed = true;
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

impl<S: WriteSession> WriterState<S> {
    fn enqueue(&self, envelope: QueuedWrite<S::Db>) {
        let full = |queue: &mut WriteQueue<S::Db>| queue.waiting.len() >= MAX_QUEUED_WRITES && !queue.closed;
        let mut queue = self.lock_queue();
        if full(&mut queue) {
            // Perhaps all that wait here have more to bring before they see to it themselves.
            self.changed.notify_all();
        }
        let mut queue = self.changed.wait_while(queue, full).unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(envelope);
    }

    /// One group, if the connection is free. Whoever has it looks into the queue once more when he is done.
    fn try_commit_group(&self) {
        match self.session.try_lock() {
            Ok(session) => self.commit_group(session),
            Err(TryLockError::Poisoned(poisoned)) => self.commit_group(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return,
        }
        self.recheck_queue();
    }

    /// Whoever came while somebody had the connection has left his request and gone: that somebody sees to it that it is
    /// taken, whatever he had the connection for.
    fn recheck_queue(&self) {
        if !self.lock_queue().waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// The thread that takes what others left.
    fn run_commit_loop(&self) {
        loop {
            let idle = |queue: &mut WriteQueue<S::Db>| {
                queue.waiting.is_empty() && !queue.needs_maintenance && !queue.closed
            };
            let queue = self.changed.wait_while(self.lock_queue(), idle);
            let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
            let is_untidy = std::mem::take(&mut queue.needs_maintenance);
            if queue.waiting.is_empty() && !is_untidy {
                return;
            }
            drop(queue);
            let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            if is_untidy {
                session.run_maintenance();
            }
            self.commit_group(session);
        }
    }

    /// Commits what is waiting, then lets the connection go, then answers.
    fn commit_group(&self, session: MutexGuard<'_, S>) {
        let mut queue = self.lock_queue();
        let was_full = queue.waiting.len() >= MAX_QUEUED_WRITES;
        let take = queue.waiting.len().min(MAX_WRITES_PER_COMMIT);
        let mut group: Vec<QueuedWrite<S::Db>> = queue.waiting.drain(..take).collect();
        drop(queue);
        if was_full {
            self.changed.notify_all();
        }
        if group.is_empty() {
            return;
        }
        let outcomes = commit_writes(&*session, &mut group);
        self.record_failure(&outcomes);
        let is_untidy = session.needs_maintenance();
        drop(session);
        if is_untidy {
            self.lock_queue().needs_maintenance = true;
            self.changed.notify_all();
        }
        for (request, outcome) in group.into_iter().zip(outcomes) {
            request.reply(outcome);
        }
    }

    fn record_failure(&self, outcomes: &[Result<(), StoreError>]) {
        let mut trouble = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        *trouble = match failed.clone().find(|error| error.public_message().is_some()) {
            Some(error) => Some(error.clone()),
            None if failed.count() == outcomes.len() => trouble.take(),
            None => None,
        };
    }

    fn lock_queue(&self) -> MutexGuard<'_, WriteQueue<S::Db>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that every request is answered, also when the writer is gone.
struct QueuedWrite<D>(Option<Box<dyn WriteRequest<D>>>);

impl<D> QueuedWrite<D> {
    fn apply(&mut self, db: &D) -> Result<(), SqlError> {
        self.0.as_mut().map_or(Ok(()), |request| request.apply(db))
    }

    fn reply(mut self, outcome: Result<(), StoreError>) {
        if let Some(request) = self.0.take() {
            request.reply(outcome);
        }
    }
}

impl<D> Drop for QueuedWrite<D> {
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            request.reply(Err(StoreError::Closed));
        }
    }
}

/// A closure with a result that somebody waits for.
struct ClosureWrite<T, F> {
    work: Option<F>,
    value: Option<T>,
    reply: SyncSender<Result<T, StoreError>>,
}

impl<D, T: Send, F: FnOnce(&D) -> Result<T, SqlError> + Send> WriteRequest<D> for ClosureWrite<T, F> {
    fn apply(&mut self, db: &D) -> Result<(), SqlError> {
        if let Some(work) = self.work.take() {
            self.value = Some(work(db)?);
        }
        Ok(())
    }

    fn reply(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        // A caller that no longer waits does not want to know.
        drop(reply.send(outcome.and_then(|()| value.ok_or(StoreError::Closed))));
    }
}

/// A batch and the one who waits for it.
struct BatchWrite {
    batch: ChangeBatch,
    /// Who is noted as the one who did it.
    actor: Arc<str>,
    done: BatchCallback,
}

impl<D: SqlConnection> WriteRequest<D> for BatchWrite {
    fn apply(&mut self, db: &D) -> Result<(), SqlError> {
        crate::sql_store::apply_changes::apply_batch(db, &self.batch, &self.actor)
    }

    fn reply(self: Box<Self>, outcome: Result<(), StoreError>) {
        (self.done)(outcome.map_err(StoreError::for_conditional_request));
    }
}

/// One transaction for the whole group; what became of each request.
fn commit_writes<S: WriteSession>(
    session: &S,
    group: &mut [QueuedWrite<S::Db>],
) -> Vec<Result<(), StoreError>> {
    run_transaction(session, group).unwrap_or_else(|error| {
        session.rollback();
        if matches!(error, StoreError::DiskFull { .. }) {
            session.free_disk_space();
        }
        group.iter().map(|_| Err(error.clone())).collect()
    })
}

/// What became of each request, once all that is `Ok` is on disk. An error here means that nothing is.
fn run_transaction<S: WriteSession>(
    session: &S,
    group: &mut [QueuedWrite<S::Db>],
) -> Result<Vec<Result<(), StoreError>>, StoreError> {
    let explain = |fault| session.into_store_error(fault);
    session.begin().map_err(explain)?;
    // A request that is alone is undone with its transaction.
    let guarded = group.len() > 1;
    let mut outcomes = Vec::with_capacity(group.len());
    for request in group {
        if guarded {
            session.begin_savepoint().map_err(explain)?;
        }
        let outcome = request.apply(session.db()).map_err(explain);
        if let Err(error) = &outcome {
            let lost = session.has_lost_transaction();
            if lost || !guarded || error.is_transient() || error.is_damage() {
                return Err(error.clone());
            }
            session.rollback_savepoint().map_err(explain)?;
        }
        if guarded {
            session.release_savepoint().map_err(explain)?;
        }
        outcomes.push(outcome);
    }
    session.commit().map_err(explain)?;
    Ok(outcomes)
}

impl<S: WriteSession> fmt::Debug for GroupCommitWriter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{SqliteStore, start_writer};
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    /// Far beyond anything that should happen: reached only if something hangs.
    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    fn whoever_comes_while_somebody_reads_is_served_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path: Arc<Path> = directory.path().join("w.db").into();
        drop(SqliteStore::create(&path).unwrap());
        let writer = start_writer(&path).unwrap();
        let (done, served) = mpsc::channel();
        thread::scope(|scope| {
            let (reads, reading) = mpsc::channel();
            let (finish, finished) = mpsc::channel::<()>();
            let writer = &writer;
            scope.spawn(move || {
                writer.read_on_writer(true, |_| {
                    reads.send(()).unwrap();
                    finished.recv().unwrap();
                    Ok(())
                })
            });
            reading.recv().unwrap();
            scope.spawn(move || done.send(writer.run_write(|_| Ok(7))));
            while writer.shared.lock_queue().waiting.is_empty() {
                thread::yield_now();
            }
            finish.send(()).unwrap();
            assert_eq!(served.recv_timeout(PATIENCE).unwrap().unwrap(), 7);
        });
    }
}
