//! The one connection that writes: whoever has it takes what is waiting, commits it together, and only then answers.
//!
//! Somebody who finds the connection free commits at once, on his own thread: handing over to another thread and back costs
//! more than the commit itself. Whoever comes meanwhile leaves his request in the queue, and a thread of its own
//! commits all that gathered there in one go. Where the database is far away ([`Session::IS_NEAR`]) whoever need not wait
//! for his changes leaves them there too.
//!
//! Each request runs in a savepoint, so that a request that fails takes nobody along. Trouble with the disk is
//! different: then the whole group is rolled back and everybody is told, and may come again.

use crate::db::Db;
use crate::error::Fault;
use crate::{Batch, Done, Error};
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Requests that may wait before callers have to.
const QUEUE: usize = 1024;
/// Requests that are committed together at most.
const GROUP: usize = 256;
/// A connection that the writer has for itself.
pub(crate) trait Session: Send + 'static {
    type Db: Db;

    fn db(&self) -> &Self::Db;

    fn begin(&self) -> Result<(), Fault>;
    /// When it returns `Ok`, all of it is on disk; else nothing is, or the error says that nobody knows.
    fn commit(&self) -> Result<(), Fault>;
    /// Ends the transaction, if there still is one.
    fn roll_back(&self);
    /// There is no transaction any more, though nobody ended it.
    fn has_lost_transaction(&self) -> bool;

    fn begin_request(&self) -> Result<(), Fault>;
    fn keep_request(&self) -> Result<(), Fault>;
    fn undo_request(&self) -> Result<(), Fault>;

    fn explain(&self, fault: Fault) -> Error;

    /// Whether a commit takes about as long as handing it to another thread.
    const IS_NEAR: bool;

    /// Asked after each commit: whether [`Session::tidy_up`] would be worth its while.
    fn is_untidy(&self) -> bool;
    /// Called when nobody waits for it.
    fn tidy_up(&self);
    /// Called after a commit failed because the disk is full.
    fn make_room(&self) {}
}

/// Something to be done in a transaction, and somebody to be told.
pub(crate) trait Request<D>: Send {
    /// Inside a savepoint; what it did is undone if it fails.
    fn apply(&mut self, db: &D) -> Result<(), Fault>;
    /// After the commit, or after it is certain that there was none.
    fn answer(self: Box<Self>, outcome: Result<(), Error>);
}

/// The handle of the writer. Dropping it waits until everything that was queued is on disk.
pub(crate) struct Writer<S: Session> {
    shared: Arc<Shared<S>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<S: Session> {
    session: Mutex<S>,
    queue: Mutex<Queue<S::Db>>,
    /// Something is in the queue, or the queue is closed, or there is room in it again.
    changed: Condvar,
    /// Why the last commit failed, if the database itself is in trouble.
    trouble: Mutex<Option<Error>>,
}

struct Queue<D> {
    waiting: VecDeque<Envelope<D>>,
    is_untidy: bool,
    closed: bool,
}

impl<S: Session> Writer<S>
where
    S::Db: 'static,
{
    pub(crate) fn start(session: S) -> std::io::Result<Self> {
        let queue = Queue { waiting: VecDeque::new(), is_untidy: false, closed: false };
        let shared = Arc::new(Shared {
            session: session.into(),
            queue: queue.into(),
            changed: Condvar::new(),
            trouble: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("windlass-writer".into()).spawn(move || served.serve())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Commits changes, alone or together with what others want. Returns before that is done where it takes a while.
    pub(crate) fn apply(&self, batch: Batch, actor: Arc<str>, done: Done) {
        let submission = Box::new(Submission { batch, actor, done });
        if S::IS_NEAR {
            return self.submit(submission);
        }
        self.shared.enqueue(Envelope(Some(submission)));
        self.shared.changed.notify_all();
    }

    /// Commits at once if nobody else is at it; else waits for a free place in the queue, not for the commit.
    fn submit(&self, request: Box<dyn Request<S::Db>>) {
        self.shared.enqueue(Envelope(Some(request)));
        self.shared.commit_here();
    }

    /// Reads on the writing connection, outside of a transaction; `None` if it is in use and `wait` is not wanted.
    pub(crate) fn peek<T>(
        &self,
        wait: bool,
        read: impl FnOnce(&S::Db) -> Result<T, Fault>,
    ) -> Result<Option<T>, Error> {
        let session = match self.shared.session.try_lock() {
            Ok(session) => session,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if !wait => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                self.shared.session.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let found = read(session.db()).map(Some).map_err(|fault| session.explain(fault));
        drop(session);
        self.shared.look_again();
        found
    }

    /// As [`Self::call`], for several at once: each by itself, as far as possible in one commit.
    pub(crate) fn call_all<T: Send + 'static>(
        &self,
        works: impl IntoIterator<Item = impl FnOnce(&S::Db) -> Result<T, Fault> + Send + 'static>,
    ) -> Vec<Result<T, Error>> {
        let mut works = works.into_iter().peekable();
        let mut outcomes = Vec::new();
        while works.peek().is_some() {
            let answers: Vec<_> = works
                .by_ref()
                .take(GROUP)
                .map(|work| {
                    let (reply, answer) = mpsc::sync_channel(1);
                    self.shared.enqueue(Envelope(Some(Box::new(Call {
                        work: Some(work),
                        value: None,
                        reply,
                    }))));
                    answer
                })
                .collect();
            self.shared.commit_here();
            outcomes.extend(answers.into_iter().map(|answer| answer.recv().unwrap_or(Err(Error::Closed))));
        }
        outcomes
    }

    /// Why the database takes no changes, if the last commit failed because of that.
    pub(crate) fn trouble(&self) -> Option<Error> {
        let trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.clone().filter(Error::still_holds)
    }

    /// Runs `work` in the next group commit and waits for it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&S::Db) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.submit(Box::new(Call { work: Some(work), value: None, reply }));
        answer.recv().unwrap_or(Err(Error::Closed))
    }
}

impl<S: Session> Drop for Writer<S> {
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

impl<S: Session> Shared<S> {
    fn enqueue(&self, envelope: Envelope<S::Db>) {
        let full = |queue: &mut Queue<S::Db>| queue.waiting.len() >= QUEUE && !queue.closed;
        let mut queue = self.queue();
        if full(&mut queue) {
            // Perhaps all that wait here have more to bring before they see to it themselves.
            self.changed.notify_all();
        }
        let mut queue = self.changed.wait_while(queue, full).unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(envelope);
    }

    /// One group, if the connection is free. Whoever has it looks into the queue once more when he is done.
    fn commit_here(&self) {
        match self.session.try_lock() {
            Ok(session) => self.commit_group(session),
            Err(TryLockError::Poisoned(poisoned)) => self.commit_group(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => return,
        }
        self.look_again();
    }

    /// Whoever came while somebody had the connection has left his request and gone: that somebody sees to it that it is
    /// taken, whatever he had the connection for.
    fn look_again(&self) {
        if !self.queue().waiting.is_empty() {
            self.changed.notify_all();
        }
    }

    /// The thread that takes what others left.
    fn serve(&self) {
        loop {
            let idle =
                |queue: &mut Queue<S::Db>| queue.waiting.is_empty() && !queue.is_untidy && !queue.closed;
            let queue = self.changed.wait_while(self.queue(), idle);
            let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
            let is_untidy = std::mem::take(&mut queue.is_untidy);
            if queue.waiting.is_empty() && !is_untidy {
                return;
            }
            drop(queue);
            let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            if is_untidy {
                session.tidy_up();
            }
            self.commit_group(session);
        }
    }

    /// Commits what is waiting, then lets the connection go, then answers.
    fn commit_group(&self, session: MutexGuard<'_, S>) {
        let mut queue = self.queue();
        let was_full = queue.waiting.len() >= QUEUE;
        let take = queue.waiting.len().min(GROUP);
        let mut group: Vec<Envelope<S::Db>> = queue.waiting.drain(..take).collect();
        drop(queue);
        if was_full {
            self.changed.notify_all();
        }
        if group.is_empty() {
            return;
        }
        let outcomes = commit(&*session, &mut group);
        self.note_trouble(&outcomes);
        let is_untidy = session.is_untidy();
        drop(session);
        if is_untidy {
            self.queue().is_untidy = true;
            self.changed.notify_all();
        }
        for (request, outcome) in group.into_iter().zip(outcomes) {
            request.answer(outcome);
        }
    }

    fn note_trouble(&self, outcomes: &[Result<(), Error>]) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        *trouble = match failed.clone().find(|error| error.public_words().is_some()) {
            Some(error) => Some(error.clone()),
            None if failed.count() == outcomes.len() => trouble.take(),
            None => None,
        };
    }

    fn queue(&self) -> MutexGuard<'_, Queue<S::Db>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that every request is answered, also when the writer is gone.
struct Envelope<D>(Option<Box<dyn Request<D>>>);

impl<D> Envelope<D> {
    fn apply(&mut self, db: &D) -> Result<(), Fault> {
        self.0.as_mut().map_or(Ok(()), |request| request.apply(db))
    }

    fn answer(mut self, outcome: Result<(), Error>) {
        if let Some(request) = self.0.take() {
            request.answer(outcome);
        }
    }
}

impl<D> Drop for Envelope<D> {
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

impl<D, T: Send, F: FnOnce(&D) -> Result<T, Fault> + Send> Request<D> for Call<T, F> {
    fn apply(&mut self, db: &D) -> Result<(), Fault> {
        if let Some(work) = self.work.take() {
            self.value = Some(work(db)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        let Self { value, reply, .. } = *self;
        // A caller that no longer waits does not want to know.
        drop(reply.send(outcome.and_then(|()| value.ok_or(Error::Closed))));
    }
}

/// A batch and the one who waits for it.
struct Submission {
    batch: Batch,
    /// Who is noted as the one who did it.
    actor: Arc<str>,
    done: Done,
}

impl<D: Db> Request<D> for Submission {
    fn apply(&mut self, db: &D) -> Result<(), Fault> {
        crate::books::apply::apply(db, &self.batch, &self.actor)
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        (self.done)(outcome.map_err(Error::for_guarded));
    }
}

/// One transaction for the whole group; what became of each request.
fn commit<S: Session>(session: &S, group: &mut [Envelope<S::Db>]) -> Vec<Result<(), Error>> {
    transact(session, group).unwrap_or_else(|error| {
        session.roll_back();
        if matches!(error, Error::DiskFull { .. }) {
            session.make_room();
        }
        group.iter().map(|_| Err(error.clone())).collect()
    })
}

/// What became of each request, once all that is `Ok` is on disk. An error here means that nothing is.
fn transact<S: Session>(session: &S, group: &mut [Envelope<S::Db>]) -> Result<Vec<Result<(), Error>>, Error> {
    let explain = |fault| session.explain(fault);
    session.begin().map_err(explain)?;
    // A request that is alone is undone with its transaction.
    let guarded = group.len() > 1;
    let mut outcomes = Vec::with_capacity(group.len());
    for request in group {
        if guarded {
            session.begin_request().map_err(explain)?;
        }
        let outcome = request.apply(session.db()).map_err(explain);
        if let Err(error) = &outcome {
            let lost = session.has_lost_transaction();
            if lost || !guarded || error.is_transient() || error.is_damage() {
                return Err(error.clone());
            }
            session.undo_request().map_err(explain)?;
        }
        if guarded {
            session.keep_request().map_err(explain)?;
        }
        outcomes.push(outcome);
    }
    session.commit().map_err(explain)?;
    Ok(outcomes)
}

impl<S: Session> fmt::Debug for Writer<S> {
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
                writer.peek(true, |_| {
                    reads.send(()).unwrap();
                    finished.recv().unwrap();
                    Ok(())
                })
            });
            reading.recv().unwrap();
            scope.spawn(move || done.send(writer.call(|_| Ok(7))));
            while writer.shared.queue().waiting.is_empty() {
                thread::yield_now();
            }
            finish.send(()).unwrap();
            assert_eq!(served.recv_timeout(PATIENCE).unwrap().unwrap(), 7);
        });
    }
}
