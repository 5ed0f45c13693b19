//! The store in a SQLite file: one thread writes ([`Writer`]), any number of connections read ([`pool`]), and what is
//! large is done on a connection of its own.
//!
//! Other processes may read the file and create workflows in it at the same time.

mod filesystem;
mod header;
mod link;
mod migrate;
mod open;
#[cfg(test)]
mod plan_tests;
mod pool;
pub(crate) mod session;

pub(crate) use filesystem::network_filesystem;
pub use open::{OpenMode, Warning};

use crate::books::{Backend, Books};
use crate::db::{Db as _, values};
use crate::error::Fault;
use crate::lock::{self, Holder, Lock, LockGuard};
use crate::sql::sqlite::FOREIGN_COMMITS;
use crate::writer::{Session as _, Writer};
use crate::{Batch, Done, Error, Location};
use link::Link;
use pool::ReadPool;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use windlass_types::{Timestamp, WorkflowId};

/// A store in a SQLite file.
pub type SqliteStore = Books<Sqlite>;

/// An open file.
#[derive(Debug)]
pub struct Sqlite {
    path: Arc<Path>,
    readers: ReadPool,
    /// `None` when opened for reading only.
    writer: Option<Writer<Link>>,
    locks: lock::Files,
}

/// A store, and what its user should know about it.
#[derive(Debug)]
pub struct Opened {
    pub store: SqliteStore,
    pub warnings: Vec<Warning>,
}

impl SqliteStore {
    /// Opens a database that is there.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Opened, Error> {
        let checked = open::check(path.as_ref())?;
        let path = checked.path;
        let writer = match mode {
            OpenMode::ReadWrite => Some(start_writer(&path)?),
            OpenMode::ReadOnly => {
                open::require_current(&checked.reader, &path)?;
                None
            }
        };
        let readers = ReadPool::new(Arc::clone(&path), checked.access, checked.reader);
        let locks = lock::Files::new(Arc::clone(&path));
        let store = Self::new(Sqlite { path, readers, writer, locks });
        Ok(Opened { store, warnings: checked.warnings })
    }

    /// Makes an empty database and opens it. Its directory must be there, and nothing of that name in it.
    pub fn create(path: impl AsRef<Path>) -> Result<Opened, Error> {
        open::create(path.as_ref())?;
        Self::open(path, OpenMode::ReadWrite)
    }

    /// Opens the database for writing, and makes it first if there is none.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Opened, Error> {
        let path = path.as_ref();
        match Self::open(path, OpenMode::ReadWrite) {
            Err(Error::Missing { .. }) => match open::create(path) {
                // Somebody else was quicker.
                Ok(()) | Err(Error::AlreadyExists { .. }) => Self::open(path, OpenMode::ReadWrite),
                Err(error) => Err(error),
            },
            other => other,
        }
    }

    /// The real and absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.backend.path
    }
}

pub(crate) fn start_writer(path: &Arc<Path>) -> Result<Writer<Link>, Error> {
    let link = Link::new(open::writer(path)?, Arc::clone(path));
    Writer::start(link).map_err(|e| Error::file("start the writer of", path, e))
}

impl Sqlite {
    fn writer(&self) -> Result<&Writer<Link>, Error> {
        self.writer.as_ref().ok_or_else(|| Error::ReadOnly { path: self.path.to_path_buf() })
    }
}

impl Backend for Sqlite {
    type Db = Connection;

    fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Error> {
        self.readers.read(query)
    }

    fn may_write(&self) -> Result<(), Error> {
        self.writer().map(|_| ())
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer()?.call(work)
    }

    fn write_all<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static>,
    ) -> Vec<Result<T, Error>> {
        match self.writer() {
            Ok(writer) => writer.call_all(works),
            Err(error) => works.map(|_| Err(error.clone())).collect(),
        }
    }

    fn submit(&self, batch: Batch, actor: Arc<str>, done: Done) {
        match self.writer() {
            Ok(writer) => writer.apply(batch, actor, done),
            Err(error) => done(Err(error)),
        }
    }

    /// On a connection of its own: what is inserted is borrowed from the caller and may take long to come. Memory stays
    /// that of the page cache, however much it is. Dropping the connection undoes what was not committed.
    fn large<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Error> {
        self.may_write()?;
        let link = Link::new(open::writer(&self.path)?, Arc::clone(&self.path));
        let done = || -> Result<T, Fault> {
            link.prepare_for_much()?;
            link.begin()?;
            let value = work(&link.conn)?;
            link.commit()?;
            Ok(value)
        };
        let value = done().map_err(|fault| link.explain(fault))?;
        if link.is_untidy() {
            link.tidy_up();
        }
        Ok(value)
    }

    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error> {
        self.writer()?.peek(wait, |db| db.one(FOREIGN_COMMITS, values![], |row| row.get(0)))
    }

    fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error> {
        self.locks.lock(what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error> {
        self.locks.holder(workflow)
    }

    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId) {
        self.locks.forget(lock, workflow);
    }

    fn trouble(&self) -> Option<Error> {
        self.writer.as_ref().and_then(Writer::trouble)
    }

    fn location(&self) -> Location {
        Location::Sqlite(self.path.to_path_buf())
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // Readers first: the writer is then the last one out and tidies up.
        self.readers.clear();
    }
}

/// The format a file has now.
pub(crate) fn format_of(path: &Path) -> Result<u32, Error> {
    let checked = open::check(path)?;
    migrate::version(&checked.reader).map_err(|e| Fault::from(e).explain(&checked.path))
}

/// Copies the file as it is at one moment, into a new one. Readers and writers go on meanwhile.
pub(crate) fn backup(from: &Path, to: &Path) -> Result<u64, Error> {
    let checked = open::check(from)?;
    open::new_file(to, |unfinished| {
        let copy = || -> Result<(), Fault> {
            let target = unfinished.to_string_lossy();
            checked.reader.pragma_update(None, "query_only", false)?;
            checked.reader.execute("VACUUM INTO $1", [&*target])?;
            Ok(())
        };
        copy().map_err(|fault| fault.explain(&checked.path))
    })?;
    to.metadata().map(|metadata| metadata.len()).map_err(|e| Error::file("look at", to, e))
}
