//! The store in a PostgreSQL database: one connection writes ([`GroupCommitWriter`]), a few read, and locks have
//! their own.
//!
//! As with SQLite there is one writer at a time, also across processes ([`lock::WRITE_LOCK_KEY`]): decisions
//! depend on the stored state, ids are assigned in order, and clients that follow events by id miss none.
//!
//! Calls block on the network: do not call them from asynchronous tasks.

mod batch_pipeline;
mod connect;
mod connection;
mod copy_loader;
mod lock;
mod migrate;
mod passfile;
mod pg_error;
mod value;

pub use passfile::{PASS_FILE_VARIABLE, render_passfile_line};

pub(crate) use pg_error::PgError;
pub(crate) use value::column_value;

use crate::db::{SqlConnection as _, values};
use crate::error::SqlError;
use crate::lock::{LockGuard, LockHolder, LockScope};
use crate::maintenance::MigrationResult;
use crate::sql::postgres as sql;
use crate::sql_store::{SqlStore, StoreBackend};
use crate::sqlite::OpenMode;
use crate::writer::{GroupCommitWriter, WriteSession as _};
use crate::{BatchCallback, ChangeBatch, StoreError, StoreLocation};
use connect::PgTarget;
use connection::{PgConnection, PgStoreState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_types::{Timestamp, WorkflowId};

/// A store in a PostgreSQL database.
pub type PgStore = SqlStore<PgBackend>;

/// Idle connections that are kept for reads.
const MAX_IDLE_READERS: usize = 4;

/// An open database.
#[derive(Debug)]
pub struct PgBackend {
    state: Arc<PgStoreState>,
    readers: Mutex<Vec<PgConnection>>,
    /// `None` if opened read-only.
    writer: Option<GroupCommitWriter<PgConnection>>,
}

impl PgStore {
    /// Opens the database at a `postgres://` URL. Tables are created in an empty one, unless it is opened
    /// read-only.
    pub fn open(url: &str, mode: OpenMode) -> Result<Self, StoreError> {
        let place = PgTarget::parse(url)?;
        let common = Arc::new(PgStoreState { target: place, epoch: 0.into(), commits: 0.into() });
        let link = PgConnection::new(Arc::clone(&common));
        let explain = |fault: SqlError| fault.into_store_error_at(&common.target.url);
        let writer = match mode {
            OpenMode::ReadWrite => {
                migrate::migrate(&link).map_err(explain)?;
                let writer = GroupCommitWriter::start(PgConnection::new(Arc::clone(&common)));
                let failed = |e| StoreError::file("start the writer of", common.target.url.as_ref(), e);
                Some(writer.map_err(failed)?)
            }
            OpenMode::ReadOnly => {
                require_current(&link).map_err(explain)?;
                None
            }
        };
        Ok(Self::new(PgBackend { state: common, readers: Mutex::new(vec![link]), writer }))
    }
}

impl PgStore {
    /// Upgrades the database to the newest format.
    pub(crate) fn migrate(url: &str) -> Result<MigrationResult, StoreError> {
        let place = PgTarget::parse(url)?;
        let common = Arc::new(PgStoreState { target: place, epoch: 0.into(), commits: 0.into() });
        let link = PgConnection::new(Arc::clone(&common));
        let migrate = || {
            link.connect()?;
            let before = migrate::version(&link).unwrap_or(0);
            migrate::migrate(&link)?;
            Ok(MigrationResult { before, after: migrate::version(&link)? })
        };
        migrate().map_err(|fault: SqlError| fault.into_store_error_at(&common.target.url))
    }
}

fn require_current(link: &PgConnection) -> Result<(), SqlError> {
    link.connect()?;
    if migrate::is_current(link)? {
        return Ok(());
    }
    let found = migrate::version(link).unwrap_or(0);
    Err(StoreError::FormatTooOld { path: (&link.store_state.target.url).into(), found }.into())
}

impl PgBackend {
    fn require_writer(&self) -> Result<&GroupCommitWriter<PgConnection>, StoreError> {
        let read_only = || StoreError::ReadOnly { path: (&self.state.target.url).into() };
        self.writer.as_ref().ok_or_else(read_only)
    }

    fn explain_error(&self, fault: SqlError) -> StoreError {
        fault.into_store_error_at(&self.state.target.url)
    }

    /// Updates the planner's statistics after large changes.
    pub(crate) fn analyze(&self) -> Result<(), StoreError> {
        self.with_reader(|link| link.run_statement("ANALYZE"))
    }

    /// Administrative work outside the store's transactions.
    fn with_reader<T>(
        &self,
        work: impl FnOnce(&PgConnection) -> Result<T, SqlError>,
    ) -> Result<T, StoreError> {
        let link = PgConnection::new(Arc::clone(&self.state));
        link.connect().and_then(|_| work(&link)).map_err(|fault| self.explain_error(fault))
    }

    fn lock_readers(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreBackend for PgBackend {
    type Db = PgConnection;

    fn run_read<T>(&self, query: impl FnOnce(&PgConnection) -> Result<T, SqlError>) -> Result<T, StoreError> {
        let free = self.lock_readers().pop();
        let link = free.unwrap_or_else(|| PgConnection::new(Arc::clone(&self.state)));
        let value = link.begin_reading().and_then(|()| query(&link));
        link.end_reading();
        let mut readers = self.lock_readers();
        if readers.len() < MAX_IDLE_READERS && !link.is_connection_lost() {
            readers.push(link);
        }
        drop(readers);
        value.map_err(|fault| self.explain_error(fault))
    }

    fn require_writable(&self) -> Result<(), StoreError> {
        self.require_writer().map(|_| ())
    }

    fn run_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PgConnection) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.require_writer()?.run_write(work)
    }

    fn run_each_write<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&PgConnection) -> Result<T, SqlError> + Send + 'static>,
    ) -> Vec<Result<T, StoreError>> {
        match self.require_writer() {
            Ok(writer) => writer.run_each(works),
            Err(error) => works.map(|_| Err(error.clone())).collect(),
        }
    }

    fn submit(&self, batch: ChangeBatch, actor: Arc<str>, done: BatchCallback) {
        match self.require_writer() {
            Ok(writer) => writer.submit_batch(batch, actor, done),
            Err(error) => done(Err(error)),
        }
    }

    fn run_large_transaction<T>(
        &self,
        work: impl FnOnce(&PgConnection) -> Result<T, SqlError>,
    ) -> Result<T, StoreError> {
        self.require_writable()?;
        let link = PgConnection::new(Arc::clone(&self.state));
        let done = || -> Result<T, SqlError> {
            link.begin()?;
            let value = work(&link)?;
            link.delete_old_markers()?;
            link.commit()?;
            Ok(value)
        };
        done().map_err(|fault| self.explain_error(fault))
    }

    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError> {
        let own = &self.state.commits;
        self.require_writer()?.read_on_writer(wait, |link| {
            link.connect()?;
            let all: i64 = link.query_one(sql::COMMITS, values![], |row| row.get(0))?;
            Ok(all - own.load(Ordering::Acquire))
        })
    }

    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError> {
        lock::acquire_lock(&self.state, what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError> {
        self.with_reader(|link| lock::find_holder(link, workflow))
    }

    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId) {
        drop(lock);
        // A remaining entry does no harm.
        drop(self.with_reader(|link| lock::forget_holder(link, workflow)));
    }

    fn write_failure(&self) -> Option<StoreError> {
        self.writer.as_ref().and_then(GroupCommitWriter::last_failure)
    }

    fn location(&self) -> StoreLocation {
        StoreLocation::Postgres { url: self.state.target.url.clone() }
    }
}
