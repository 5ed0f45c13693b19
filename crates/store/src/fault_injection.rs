//! A store that fails on demand, to test its users against failures.
//!
//! It wraps a real store. A hook decides for each call whether it passes.

use crate::error::SqlError;
use crate::lock::{LockGuard, LockHolder, LockScope};
use crate::sql_store::{SqlStore, StoreBackend};
use crate::{BatchCallback, ChangeBatch, StoreDatabase, StoreError, StoreLocation};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use windlass_types::{Timestamp, WorkflowId};

/// A call to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseOperation {
    Read,
    /// A small write that the caller waits for.
    Write,
    /// A batch of changes.
    Batch,
}

/// The result of a call.
#[derive(Debug)]
pub enum InjectedOutcome {
    Done,
    /// Not applied; the error is transient.
    Failed,
    /// Not applied; the error is permanent: the database rejects a value.
    Refused,
    /// Applied, but the caller gets a connection error. For reads the same as [`InjectedOutcome::Failed`].
    CommitInDoubt,
    /// A batch waits until a message arrives (or its sender is dropped).
    Delayed(Receiver<()>),
}

/// Decides the result of each call.
pub type FaultInjector = Arc<dyn Fn(DatabaseOperation) -> InjectedOutcome + Send + Sync>;

/// Wraps a store with the hook.
#[expect(private_bounds, reason = "backends are private")]
pub fn inject_faults<B: StoreBackend>(door: FaultInjector, store: &SqlStore<B>) -> Arc<dyn StoreDatabase> {
    Arc::new(SqlStore::new(FaultyBackend { backend: Arc::clone(&store.backend), injector: door }))
}

struct FaultyBackend<B> {
    backend: Arc<B>,
    injector: FaultInjector,
}

impl<B: StoreBackend> FaultyBackend<B> {
    fn connection_lost_error(&self) -> StoreError {
        let source = Arc::new(std::io::Error::other("required by the test"));
        StoreError::Unreachable { url: format!("{:?}", self.backend.location()), source }
    }

    fn refused_error() -> StoreError {
        StoreError::Refused { source: Arc::new(std::io::Error::other("required by the test")) }
    }

    /// Executes the call as the hook decides.
    fn run_operation<T>(
        &self,
        asked: DatabaseOperation,
        what: impl FnOnce(&B) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match (self.injector)(asked) {
            InjectedOutcome::Failed => Err(self.connection_lost_error()),
            InjectedOutcome::Refused => Err(Self::refused_error()),
            InjectedOutcome::CommitInDoubt => {
                what(&self.backend)?;
                Err(self.connection_lost_error())
            }
            InjectedOutcome::Done | InjectedOutcome::Delayed(_) => what(&self.backend),
        }
    }
}

impl<B: StoreBackend> StoreBackend for FaultyBackend<B> {
    type Db = B::Db;

    fn run_read<T>(&self, query: impl FnOnce(&Self::Db) -> Result<T, SqlError>) -> Result<T, StoreError> {
        self.run_operation(DatabaseOperation::Read, |backend| backend.run_read(query))
    }

    fn require_writable(&self) -> Result<(), StoreError> {
        self.backend.require_writable()
    }

    fn run_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self::Db) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_operation(DatabaseOperation::Write, |backend| backend.run_write(work))
    }

    fn run_each_write<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&Self::Db) -> Result<T, SqlError> + Send + 'static>,
    ) -> Vec<Result<T, StoreError>> {
        let how_many = works.len();
        let lost = |_| Err(self.connection_lost_error());
        match (self.injector)(DatabaseOperation::Write) {
            InjectedOutcome::Failed => works.map(|_| Err(self.connection_lost_error())).collect(),
            InjectedOutcome::Refused => works.map(|_| Err(Self::refused_error())).collect(),
            InjectedOutcome::CommitInDoubt => {
                drop(self.backend.run_each_write(works));
                (0..how_many).map(lost).collect()
            }
            InjectedOutcome::Done | InjectedOutcome::Delayed(_) => self.backend.run_each_write(works),
        }
    }

    fn submit(&self, batch: ChangeBatch, actor: Arc<str>, done: BatchCallback) {
        match (self.injector)(DatabaseOperation::Batch) {
            InjectedOutcome::Done => self.backend.submit(batch, actor, done),
            InjectedOutcome::Failed => done(Err(self.connection_lost_error())),
            InjectedOutcome::Refused => done(Err(Self::refused_error())),
            InjectedOutcome::CommitInDoubt => {
                let lost = self.connection_lost_error();
                self.backend.submit(batch, actor, Box::new(move |result| done(result.and(Err(lost)))));
            }
            InjectedOutcome::Delayed(word) => {
                let backend = Arc::clone(&self.backend);
                std::thread::spawn(move || {
                    word.recv().unwrap_or_default();
                    backend.submit(batch, actor, done);
                });
            }
        }
    }

    fn run_large_transaction<T>(
        &self,
        work: impl FnOnce(&Self::Db) -> Result<T, SqlError>,
    ) -> Result<T, StoreError> {
        self.run_operation(DatabaseOperation::Write, |backend| backend.run_large_transaction(work))
    }

    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError> {
        self.backend.foreign_commit_count(wait)
    }

    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError> {
        self.backend.lock(what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError> {
        self.backend.lock_holder(workflow)
    }

    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId) {
        self.backend.forget_lock(lock, workflow);
    }

    fn write_failure(&self) -> Option<StoreError> {
        self.backend.write_failure()
    }

    fn location(&self) -> StoreLocation {
        self.backend.location()
    }
}
