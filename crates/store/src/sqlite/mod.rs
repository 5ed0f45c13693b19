//! The store in a SQLite file: one connection writes ([`GroupCommitWriter`]), any number of connections read
//! ([`read_pool`]), and large operations use a connection of their own.
//!
//! Other processes may read the file and create workflows in it at the same time.

pub(crate) mod connection;
mod filesystem;
mod header;
mod migrate;
mod open;
#[cfg(test)]
mod query_plan_tests;
mod read_pool;
mod write_connection;

pub(crate) use filesystem::network_filesystem;
pub use open::{OpenMode, OpenWarning};

use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::lock::{self, LockGuard, LockHolder, LockScope};
use crate::sql::sqlite::FOREIGN_COMMITS;
use crate::sql_store::{SqlStore, StoreBackend};
use crate::writer::{GroupCommitWriter, MaintenanceUrgency, WriteSession as _};
use crate::{BatchCallback, ChangeBatch, StoreError, StoreLocation};
use read_pool::ReadPool;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use windlass_types::{Timestamp, WorkflowId};
use write_connection::SqliteWriteConnection;

/// A store in a SQLite file.
pub type SqliteStore = SqlStore<SqliteBackend>;

/// An open file.
#[derive(Debug)]
pub struct SqliteBackend {
    path: Arc<Path>,
    readers: ReadPool,
    /// `None` if opened read-only.
    writer: Option<GroupCommitWriter<SqliteWriteConnection>>,
    locks: lock::LockFiles,
}

/// An opened store, and warnings for the user.
#[derive(Debug)]
pub struct OpenedStore {
    pub store: SqliteStore,
    pub warnings: Vec<OpenWarning>,
}

impl SqliteStore {
    /// Opens an existing database.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<OpenedStore, StoreError> {
        let checked = open::check_database(path.as_ref())?;
        let path = checked.path;
        let writer = match mode {
            OpenMode::ReadWrite => Some(start_writer(&path)?),
            OpenMode::ReadOnly => {
                open::require_current(&checked.reader, &path)?;
                None
            }
        };
        let readers = ReadPool::new(Arc::clone(&path), checked.access, checked.reader);
        let locks = lock::LockFiles::new(Arc::clone(&path));
        let store = Self::new(SqliteBackend { path, readers, writer, locks });
        Ok(OpenedStore { store, warnings: checked.warnings })
    }

    /// Creates an empty database and opens it. The directory must exist, and the file must not.
    pub fn create(path: impl AsRef<Path>) -> Result<OpenedStore, StoreError> {
        open::create_database(path.as_ref())?;
        Self::open(path, OpenMode::ReadWrite)
    }

    /// Opens the database for writing; creates it if it does not exist.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<OpenedStore, StoreError> {
        let path = path.as_ref();
        match Self::open(path, OpenMode::ReadWrite) {
            Err(StoreError::Missing { .. }) => match open::create_database(path) {
                // Another process was faster.
                Ok(()) | Err(StoreError::AlreadyExists { .. }) => Self::open(path, OpenMode::ReadWrite),
                Err(error) => Err(error),
            },
            other => other,
        }
    }

    /// Returns the absolute path of the file, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.backend.path
    }
}

pub(crate) fn start_writer(path: &Arc<Path>) -> Result<GroupCommitWriter<SqliteWriteConnection>, StoreError> {
    let link = SqliteWriteConnection::new(open::open_writer(path)?, Arc::clone(path));
    GroupCommitWriter::start(link).map_err(|e| StoreError::file("start the writer of", path, e))
}

impl SqliteBackend {
    fn require_writer(&self) -> Result<&GroupCommitWriter<SqliteWriteConnection>, StoreError> {
        self.writer.as_ref().ok_or_else(|| StoreError::ReadOnly { path: self.path.to_path_buf() })
    }
}

impl StoreBackend for SqliteBackend {
    type Db = Connection;

    fn run_read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, SqlError>) -> Result<T, StoreError> {
        self.readers.read(query)
    }

    fn require_writable(&self) -> Result<(), StoreError> {
        self.require_writer().map(|_| ())
    }

    fn run_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.require_writer()?.run_write(work)
    }

    fn run_each_write<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&Connection) -> Result<T, SqlError> + Send + 'static>,
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

    /// On a connection of its own: inserted data is borrowed from the caller and may take long to arrive.
    /// Memory is limited to the page cache. Dropping the connection rolls back what was not committed.
    fn run_large_transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, SqlError>,
    ) -> Result<T, StoreError> {
        self.require_writable()?;
        let link = SqliteWriteConnection::new(open::open_writer(&self.path)?, Arc::clone(&self.path));
        let done = || -> Result<T, SqlError> {
            link.prepare_large_transaction()?;
            link.begin()?;
            let value = work(&link.conn)?;
            link.commit()?;
            Ok(value)
        };
        link.make_room_for_large_transaction();
        let value = done().map_err(|fault| {
            link.rollback();
            let error = link.explain_error(fault);
            if matches!(error, StoreError::DiskFull { .. }) {
                link.free_disk_space();
            }
            error
        })?;
        if link.maintenance_need() != MaintenanceUrgency::NotNeeded {
            link.run_maintenance();
        }
        Ok(value)
    }

    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError> {
        self.require_writer()?.read_on_writer(wait, |db| {
            SqlConnection::query_one(db, FOREIGN_COMMITS, values![], |row| row.get(0))
        })
    }

    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError> {
        self.locks.acquire(what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError> {
        self.locks.find_holder(workflow)
    }

    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId) {
        self.locks.release_and_delete(lock, workflow);
    }

    fn write_failure(&self) -> Option<StoreError> {
        self.writer.as_ref().and_then(GroupCommitWriter::last_failure)
    }

    fn location(&self) -> StoreLocation {
        StoreLocation::Sqlite(self.path.to_path_buf())
    }
}

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        // Readers first: the writer then closes last and cleans up.
        self.readers.close_idle();
    }
}

/// Returns the current format of a file.
pub(crate) fn read_format(path: &Path) -> Result<u32, StoreError> {
    let checked = open::check_database(path)?;
    migrate::version(&checked.reader).map_err(|e| SqlError::from(e).into_store_error(&checked.path))
}

/// Writes a snapshot of the file to a new one. Readers and writers continue meanwhile.
pub(crate) fn backup_file(from: &Path, to: &Path) -> Result<u64, StoreError> {
    let checked = open::check_database(from)?;
    open::create_file(to, |unfinished| {
        let copy = || -> Result<(), SqlError> {
            let target = unfinished.to_string_lossy();
            checked.reader.pragma_update(None, "query_only", false)?;
            checked.reader.execute("VACUUM INTO $1", [&*target])?;
            Ok(())
        };
        copy().map_err(|fault| fault.into_store_error(&checked.path))
    })?;
    to.metadata().map(|metadata| metadata.len()).map_err(|e| StoreError::file("inspect", to, e))
}
