//! A database that fails when it is told to: how those who use a store are tested against the failures of one.
//!
//! It is a real one behind a door. Whoever has the door decides of each thing that is asked whether it passes.

use crate::books::{Backend, Books};
use crate::error::Fault;
use crate::lock::{Holder, Lock, LockGuard};
use crate::{Batch, Database, Done, Error, Location};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use windlass_types::{Timestamp, WorkflowId};

/// What is asked of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Read,
    /// Something small that is written while the caller waits.
    Write,
    /// A batch of changes.
    Batch,
}

/// What becomes of it.
#[derive(Debug)]
pub enum Outcome {
    Done,
    /// Nothing is done, and trying again is worth while.
    Failed,
    /// Nothing is done, and never will be: a value is not one that the database takes.
    Refused,
    /// It is done, but whoever asked is told that the database went away. Of a read no more than [`Outcome::Failed`].
    Doubted,
    /// A batch waits until a word comes (or nobody is left who could say it).
    Late(Receiver<()>),
}

/// Decides what becomes of each thing that is asked.
pub type Door = Arc<dyn Fn(Asked) -> Outcome + Send + Sync>;

/// The same database behind a door.
#[expect(private_bounds, reason = "what a backend is, is our own affair")]
pub fn behind<B: Backend>(door: Door, books: &Books<B>) -> Arc<dyn Database> {
    Arc::new(Books::new(Guarded { backend: Arc::clone(&books.backend), door }))
}

struct Guarded<B> {
    backend: Arc<B>,
    door: Door,
}

impl<B: Backend> Guarded<B> {
    fn lost(&self) -> Error {
        let source = Arc::new(std::io::Error::other("as the test wants it"));
        Error::Unreachable { url: format!("{:?}", self.backend.location()), source }
    }

    fn refused() -> Error {
        Error::Refused { source: Arc::new(std::io::Error::other("as the test wants it")) }
    }

    /// Does it as the door decides.
    fn pass<T>(&self, asked: Asked, what: impl FnOnce(&B) -> Result<T, Error>) -> Result<T, Error> {
        match (self.door)(asked) {
            Outcome::Failed => Err(self.lost()),
            Outcome::Refused => Err(Self::refused()),
            Outcome::Doubted => {
                what(&self.backend)?;
                Err(self.lost())
            }
            Outcome::Done | Outcome::Late(_) => what(&self.backend),
        }
    }
}

impl<B: Backend> Backend for Guarded<B> {
    type Db = B::Db;

    fn read<T>(&self, query: impl FnOnce(&Self::Db) -> Result<T, Fault>) -> Result<T, Error> {
        self.pass(Asked::Read, |backend| backend.read(query))
    }

    fn may_write(&self) -> Result<(), Error> {
        self.backend.may_write()
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self::Db) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.pass(Asked::Write, |backend| backend.write(work))
    }

    fn write_all<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&Self::Db) -> Result<T, Fault> + Send + 'static>,
    ) -> Vec<Result<T, Error>> {
        let how_many = works.len();
        let lost = |_| Err(self.lost());
        match (self.door)(Asked::Write) {
            Outcome::Failed => works.map(|_| Err(self.lost())).collect(),
            Outcome::Refused => works.map(|_| Err(Self::refused())).collect(),
            Outcome::Doubted => {
                drop(self.backend.write_all(works));
                (0..how_many).map(lost).collect()
            }
            Outcome::Done | Outcome::Late(_) => self.backend.write_all(works),
        }
    }

    fn submit(&self, batch: Batch, actor: Arc<str>, done: Done) {
        match (self.door)(Asked::Batch) {
            Outcome::Done => self.backend.submit(batch, actor, done),
            Outcome::Failed => done(Err(self.lost())),
            Outcome::Refused => done(Err(Self::refused())),
            Outcome::Doubted => {
                let lost = self.lost();
                self.backend.submit(batch, actor, Box::new(move |result| done(result.and(Err(lost)))));
            }
            Outcome::Late(word) => {
                let backend = Arc::clone(&self.backend);
                std::thread::spawn(move || {
                    word.recv().unwrap_or_default();
                    backend.submit(batch, actor, done);
                });
            }
        }
    }

    fn large<T>(&self, work: impl FnOnce(&Self::Db) -> Result<T, Fault>) -> Result<T, Error> {
        self.pass(Asked::Write, |backend| backend.large(work))
    }

    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error> {
        self.backend.foreign_commits(wait)
    }

    fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error> {
        self.backend.lock(what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error> {
        self.backend.lock_holder(workflow)
    }

    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId) {
        self.backend.forget_lock(lock, workflow);
    }

    fn trouble(&self) -> Option<Error> {
        self.backend.trouble()
    }

    fn location(&self) -> Location {
        self.backend.location()
    }
}
