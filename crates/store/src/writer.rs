//! Group commit on the only writing connection: its current user commits all queued requests together, and then
//! answers.
//!
//! A caller that finds the connection free commits at once on its own thread: a handover to another thread and
//! back costs more than the commit. Other callers leave their requests in the queue, and a dedicated thread
//! commits everything queued at once. For remote databases ([`WriteSession::IS_LOCAL`] is false), callers that
//! need not wait for the commit queue their changes as well.
//!
//! Each request runs in a savepoint, so that a failing request does not affect others. Errors of the disk or
//! the connection are different: the whole group is rolled back, and each request gets the error and may be
//! retried.

use crate::db::SqlConnection;
use crate::error::SqlError;
use crate::{BatchCallback, ChangeBatch, StoreError};
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Queue length from which callers block.
const MAX_QUEUED_WRITES: usize = 1024;
/// Maximum number of requests in one commit.
const MAX_WRITES_PER_COMMIT: usize = 256;

/// When the maintenance of a database is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaintenanceUrgency {
    NotNeeded,
    /// On the thread of the writer, beside the requests.
    Soon,
    /// On the thread that committed: commits that follow each other at once would outrun the thread of the writer.
    BeforeNextCommit,
}

/// The writer's exclusive connection.
pub(crate) trait WriteSession: Send + 'static {
    type Db: SqlConnection;

    fn db(&self) -> &Self::Db;

    fn begin(&self) -> Result<(), SqlError>;
    /// On `Ok` everything is on disk; otherwise nothing is, or the error says that the result is unknown.
    fn commit(&self) -> Result<(), SqlError>;
    /// Rolls back the transaction, if there still is one.
    fn rollback(&self);
    /// Whether the transaction was ended by the database.
    fn has_lost_transaction(&self) -> bool;

    fn begin_savepoint(&self) -> Result<(), SqlError>;
    fn release_savepoint(&self) -> Result<(), SqlError>;
    fn rollback_savepoint(&self) -> Result<(), SqlError>;

    fn explain_error(&self, fault: SqlError) -> StoreError;

    /// Whether a commit takes about as long as a handover to another thread.
    const IS_LOCAL: bool;

    /// Called after each commit: whether [`Self::run_maintenance`] is due.
    fn maintenance_need(&self) -> MaintenanceUrgency;
    fn run_maintenance(&self);
    /// Called after a commit failed because the disk is full.
    fn free_disk_space(&self) {}
}

/// Work for a transaction, with a callback.
pub(crate) trait WriteRequest<D>: Send {
    /// Runs inside a savepoint, which is rolled back on an error.
    fn apply(&mut self, db: &D) -> Result<(), SqlError>;
    /// Called after the commit, or after its failure is certain.
    fn reply(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// The handle of the writer. Dropping it waits until everything queued is on disk.
pub(crate) struct GroupCommitWriter<S: WriteSession> {
    shared: Arc<WriterState<S>>,
    thread: Option<JoinHandle<()>>,
}

struct WriterState<S: WriteSession> {
    session: Mutex<S>,
    queue: Mutex<WriteQueue<S::Db>>,
    /// Signals a queued request, the end of the queue, or free space in it.
    changed: Condvar,
    /// Why the last commit failed, if the cause is the database itself.
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

    /// Commits changes, alone or together with other requests. Returns before the commit if that takes a while.
    pub(crate) fn submit_batch(&self, batch: ChangeBatch, actor: Arc<str>, done: BatchCallback) {
        let submission = Box::new(BatchWrite { batch, actor, done });
        if S::IS_LOCAL {
            return self.commit_or_enqueue(submission);
        }
        self.shared.enqueue(QueuedWrite(Some(submission)));
        self.shared.changed.notify_all();
    }

    /// Commits at once if the connection is free; otherwise waits for space in the queue, not for the commit.
    fn commit_or_enqueue(&self, request: Box<dyn WriteRequest<S::Db>>) {
        self.shared.enqueue(QueuedWrite(Some(request)));
        self.shared.try_commit_group();
    }

    /// Reads on the writing connection, outside of a transaction; `None` if it is in use and `wait` is not set.
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
        let found = read(session.db()).map(Some).map_err(|fault| session.explain_error(fault));
        drop(session);
        self.shared.recheck_queue();
        found
    }

    /// As [`Self::call`], for several at once: each succeeds or fails separately, if possible in one commit.
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

    /// Why the database accepts no changes, if the last commit failed because of it.
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
            // A callback may have dropped the last reference to the store; a thread cannot join itself.
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of that thread was already reported to all waiting callers.
            drop(thread.join());
        }
    }
}

impl<S: WriteSession> WriterState<S> {
    fn enqueue(&self, envelope: QueuedWrite<S::Db>) {
        let full = |queue: &mut WriteQueue<S::Db>| queue.waiting.len() >= MAX_QUEUED_WRITES && !queue.closed;
        let mut queue = self.lock_queue();
        if full(&mut queue) {
            // Gives the waiting callers time to queue more requests before they commit.
            self.changed.notify_all();
        }
        let mut queue = self.changed.wait_while(queue, full).unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(envelope);
    }

    /// Commits one group, if the connection is free. Its user checks the queue once more afterwards.
    fn try_commit_group(&self) {
        match self.session.try_lock() {
            Ok(session) => self.commit_group(session),
            Err(TryLockError::Poisoned(poisoned)) => self.commit_group(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return,
        }
        self.recheck_queue();
    }

    /// Requests queued while the connection was in use are committed by the caller that used it.
    fn recheck_queue(&self) {
        if !self.lock_queue().waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// The thread that commits queued requests.
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

    /// Commits queued requests, then releases the connection, then answers.
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
        let maintenance = session.maintenance_need();
        if maintenance == MaintenanceUrgency::BeforeNextCommit {
            session.run_maintenance();
        }
        drop(session);
        if maintenance == MaintenanceUrgency::Soon {
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

/// Ensures that every request is answered, even after a failure of the writer.
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

/// A closure whose result a caller waits for.
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
        // The caller has stopped waiting; its result is dropped.
        drop(reply.send(outcome.and_then(|()| value.ok_or(StoreError::Closed))));
    }
}

/// A batch and its callback.
struct BatchWrite {
    batch: ChangeBatch,
    /// Recorded as the author of changes.
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

/// Runs one transaction for the whole group; returns the result of each request.
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

/// Returns the result of each request; those with `Ok` are on disk. An error means that nothing is.
fn run_transaction<S: WriteSession>(
    session: &S,
    group: &mut [QueuedWrite<S::Db>],
) -> Result<Vec<Result<(), StoreError>>, StoreError> {
    let explain = |fault| session.explain_error(fault);
    session.begin().map_err(explain)?;
    // A single request is rolled back with its transaction.
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

    /// Far beyond any normal duration: reached only if something hangs.
    const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

    #[test]
    fn writes_queued_during_a_read_are_executed() {
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
            assert_eq!(served.recv_timeout(WAIT_TIMEOUT).unwrap().unwrap(), 7);
        });
    }
}
