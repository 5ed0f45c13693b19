//! The store in a PostgreSQL database: one connection writes ([`Writer`]), a few read, locks have their own.
//!
//! As with SQLite there is one writer at a time, also among processes ([`lock::WRITE`]): decisions rest on what is there,
//! ids are handed out in order, and who follows the events by their ids misses none.
//!
//! What is called here waits for the network: not from inside an asynchronous task.

mod connect;
mod copy;
mod fault;
mod gather;
mod link;
mod lock;
mod migrate;
mod passfile;
mod value;

pub use passfile::{PASS_FILE, line_for};

pub(crate) use fault::Failure;
pub(crate) use value::column_value;

use crate::books::{Backend, Books};
use crate::db::{Db as _, values};
use crate::error::Fault;
use crate::lock::{Holder, Lock, LockGuard};
use crate::sql::postgres as sql;
use crate::sqlite::OpenMode;
use crate::upkeep::Migrated;
use crate::writer::{Session as _, Writer};
use crate::{Batch, Done, Error, Location};
use connect::Place;
use link::{Common, Link};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_types::{Timestamp, WorkflowId};

/// A store in a PostgreSQL database.
pub type PgStore = Books<Postgres>;

/// Connections that are kept for the next reader.
const KEPT: usize = 4;

/// An open database.
#[derive(Debug)]
pub struct Postgres {
    common: Arc<Common>,
    readers: Mutex<Vec<Link>>,
    /// `None` when opened for reading only.
    writer: Option<Writer<Link>>,
}

impl PgStore {
    /// Opens the database at a `postgres://` URL. One that is empty gets its tables, unless it is opened for reading only.
    pub fn open(url: &str, mode: OpenMode) -> Result<Self, Error> {
        let place = Place::parse(url)?;
        let common = Arc::new(Common { place, epoch: 0.into(), commits: 0.into() });
        let link = Link::new(Arc::clone(&common));
        let explain = |fault: Fault| fault.explain_at(&common.place.url);
        let writer = match mode {
            OpenMode::ReadWrite => {
                migrate::migrate(&link).map_err(explain)?;
                let writer = Writer::start(Link::new(Arc::clone(&common)));
                let failed = |e| Error::file("start the writer of", common.place.url.as_ref(), e);
                Some(writer.map_err(failed)?)
            }
            OpenMode::ReadOnly => {
                require_current(&link).map_err(explain)?;
                None
            }
        };
        Ok(Self::new(Postgres { common, readers: Mutex::new(vec![link]), writer }))
    }
}

impl PgStore {
    /// Brings the database to the newest format.
    pub(crate) fn migrate(url: &str) -> Result<Migrated, Error> {
        let place = Place::parse(url)?;
        let common = Arc::new(Common { place, epoch: 0.into(), commits: 0.into() });
        let link = Link::new(Arc::clone(&common));
        let migrate = || {
            link.connect()?;
            let before = migrate::version(&link).unwrap_or(0);
            migrate::migrate(&link)?;
            Ok(Migrated { before, after: migrate::version(&link)? })
        };
        migrate().map_err(|fault: Fault| fault.explain_at(&common.place.url))
    }
}

fn require_current(link: &Link) -> Result<(), Fault> {
    link.connect()?;
    if migrate::is_current(link)? {
        return Ok(());
    }
    let found = migrate::version(link).unwrap_or(0);
    Err(Error::Older { path: (&link.common.place.url).into(), found }.into())
}

impl Postgres {
    fn writer(&self) -> Result<&Writer<Link>, Error> {
        let read_only = || Error::ReadOnly { path: (&self.common.place.url).into() };
        self.writer.as_ref().ok_or_else(read_only)
    }

    fn explain(&self, fault: Fault) -> Error {
        fault.explain_at(&self.common.place.url)
    }

    /// After much has changed: what the planner knows of the tables is brought up to date.
    pub(crate) fn analyze(&self) -> Result<(), Error> {
        self.aside(|link| link.run("ANALYZE"))
    }

    /// Work that is no transaction of the books.
    fn aside<T>(&self, work: impl FnOnce(&Link) -> Result<T, Fault>) -> Result<T, Error> {
        let link = Link::new(Arc::clone(&self.common));
        link.connect().and_then(|_| work(&link)).map_err(|fault| self.explain(fault))
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Link>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Postgres {
    type Db = Link;

    fn read<T>(&self, query: impl FnOnce(&Link) -> Result<T, Fault>) -> Result<T, Error> {
        let free = self.readers().pop();
        let link = free.unwrap_or_else(|| Link::new(Arc::clone(&self.common)));
        let value = link.begin_reading().and_then(|()| query(&link));
        link.end_reading();
        let mut readers = self.readers();
        if readers.len() < KEPT && !link.is_lost() {
            readers.push(link);
        }
        drop(readers);
        value.map_err(|fault| self.explain(fault))
    }

    fn may_write(&self) -> Result<(), Error> {
        self.writer().map(|_| ())
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Link) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer()?.call(work)
    }

    fn write_all<T: Send + 'static>(
        &self,
        works: impl ExactSizeIterator<Item = impl FnOnce(&Link) -> Result<T, Fault> + Send + 'static>,
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

    fn large<T>(&self, work: impl FnOnce(&Link) -> Result<T, Fault>) -> Result<T, Error> {
        self.may_write()?;
        let link = Link::new(Arc::clone(&self.common));
        let done = || -> Result<T, Fault> {
            link.begin()?;
            let value = work(&link)?;
            link.commit()?;
            Ok(value)
        };
        done().map_err(|fault| self.explain(fault))
    }

    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error> {
        let own = &self.common.commits;
        self.writer()?.peek(wait, |link| {
            link.connect()?;
            let all: i64 = link.one(sql::COMMITS, values![], |row| row.get(0))?;
            Ok(all - own.load(Ordering::Acquire))
        })
    }

    fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error> {
        lock::lock(&self.common, what, now)
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error> {
        self.aside(|link| lock::holder(link, workflow))
    }

    fn forget_lock(&self, lock: LockGuard, workflow: WorkflowId) {
        drop(lock);
        // Left behind it is in nobody's way.
        drop(self.aside(|link| lock::forget(link, workflow)));
    }

    fn trouble(&self) -> Option<Error> {
        self.writer.as_ref().and_then(Writer::trouble)
    }

    fn location(&self) -> Location {
        Location::Postgres { url: self.common.place.url.clone() }
    }
}
