//! Who may run what: one server owns the whole file, or several `run`s own one workflow each.
//!
//! The locks are `flock`s on files in `<database>.run/` and on the database itself ([`owned`]), so the kernel releases them
//! when their process dies, whatever the way. What stands in a lock file says who took it last and counts only while the
//! file is locked.

mod owned;

use crate::Error;
use crate::Location;
use crate::error::Locked;
use crate::pulse::Pulse;
use owned::{Owned, OwnedDatabase, OwnedFile};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass_core::redact::Redactor;
use windlass_types::{Timestamp, WorkflowId};

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// Start time of that pid in clock ticks since boot, so that a reused pid is not taken for it.
    pub pid_start_ticks: u64,
    pub host: String,
    pub command: String,
    pub since: Timestamp,
}

/// What somebody may want for himself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// All of the database: nobody else may run anything in it.
    Server,
    /// To run or change one workflow: no server and nobody else with the same workflow.
    Workflow(WorkflowId),
    /// To look whether a workflow is there and make it if not. Waited for: nobody has it for long.
    Create,
}

/// Gives the lock back when it is dropped.
pub struct LockGuard(Box<dyn Held>);

impl LockGuard {
    pub(crate) fn new(held: impl Held + 'static) -> Self {
        Self(Box::new(held))
    }

    /// Nothing is held here: whoever keeps the books elsewhere sees to it that changes do not meet.
    pub(crate) fn elsewhere() -> Self {
        Self::new(Ours)
    }

    /// A workflow that was given without a lock, because the whole database is held.
    pub(crate) fn ours() -> Self {
        Self::new(Ours)
    }

    /// Fails once the lock is lost for good: the connection to a PostgreSQL database was lost, and somebody else took it, or
    /// a database file was removed. While nobody knows, because the database is away, the error is a transient one. Cheap
    /// while all is well.
    pub fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    /// As [`LockGuard::check`], and looks also if it has just looked: before a run is called complete.
    pub fn verify(&self) -> Result<(), Error> {
        self.0.verify()
    }

    /// Whether its holder can be certain to have it still; unlike [`LockGuard::check`] it tells from the silence alone.
    pub fn pulse(&self) -> Pulse {
        self.0.pulse()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockGuard")
    }
}

/// What lies behind a [`LockGuard`].
pub(crate) trait Held: Send + Sync {
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn verify(&self) -> Result<(), Error> {
        self.check()
    }

    fn pulse(&self) -> Pulse {
        Pulse::default()
    }
}

impl Held for WorkflowLock {
    fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    fn verify(&self) -> Result<(), Error> {
        self.0.verify()
    }
}
impl Held for CreateLock {}

/// See [`LockGuard::ours`].
struct Ours;
impl Held for Ours {}

/// How often somebody who waits looks again.
const LOOK: Duration = Duration::from_millis(250);

/// Takes a lock when it is free. Whenever it is not, `waiting` hears who has it and says whether to go on waiting.
pub fn wait(
    store: &dyn crate::Store,
    what: Lock,
    now: impl Fn() -> Timestamp,
    mut waiting: impl FnMut(Option<&Holder>) -> bool,
) -> Result<LockGuard, Error> {
    loop {
        match store.lock(what, now()) {
            Err(Error::Busy { what, holder }) if !waiting(holder.as_ref()) => {
                return Err(Error::Busy { what, holder });
            }
            Err(Error::Busy { .. }) => std::thread::sleep(LOOK),
            // A database that is away may come back, and so may whoever has the lock.
            Err(error) if error.is_transient() => {
                if !waiting(None) {
                    return Err(error);
                }
                std::thread::sleep(LOOK);
            }
            other => return other,
        }
    }
}

/// The locks of a database file.
#[derive(Debug)]
pub(crate) struct Files {
    db: Arc<Path>,
    /// We are the server.
    is_server: Arc<AtomicBool>,
}

impl Files {
    pub(crate) fn new(db: Arc<Path>) -> Self {
        Self { db, is_server: Arc::default() }
    }

    pub(crate) fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error> {
        Ok(match what {
            Lock::Server => {
                let lock = ServerLock::acquire(&self.db, now)?;
                self.is_server.store(true, Ordering::Release);
                LockGuard::new(Serving { lock, is_server: Arc::clone(&self.is_server) })
            }
            Lock::Workflow(_) if self.is_server.load(Ordering::Acquire) => LockGuard::ours(),
            Lock::Workflow(id) => LockGuard::new(WorkflowLock::acquire(&self.db, id, now)?),
            Lock::Create => LockGuard::new(CreateLock::acquire(&self.db)?),
        })
    }

    pub(crate) fn holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error> {
        WorkflowLock::holder(&self.db, workflow)
    }

    /// Lets go of a workflow that is no more. Its number is never given again, so nobody will need the file.
    pub(crate) fn forget(&self, lock: LockGuard, workflow: WorkflowId) {
        if let Ok(directory) = run_directory(&self.db) {
            // Left behind it is in nobody's way.
            drop(std::fs::remove_file(directory.join(workflow_file(workflow))));
        }
        drop(lock);
    }
}

/// The server's lock, and the note that we have it.
struct Serving {
    lock: ServerLock,
    is_server: Arc<AtomicBool>,
}

impl Held for Serving {
    fn check(&self) -> Result<(), Error> {
        self.lock.0.check()
    }

    fn verify(&self) -> Result<(), Error> {
        self.lock.0.verify()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.is_server.store(false, Ordering::Release);
    }
}

/// Held while a server runs: nobody else may run anything in this database.
#[derive(Debug)]
pub struct ServerLock(Owned);

/// Held while a workflow runs: no server and no second `run` of the same workflow.
#[derive(Debug)]
pub struct WorkflowLock(Owned);

/// Held while somebody looks whether a workflow is there and makes it if not, so that two who do the same make one.
#[derive(Debug)]
pub struct CreateLock {
    _create: File,
}

impl CreateLock {
    /// Waits for whoever has it: nobody has it for long.
    pub fn acquire(db: &Path) -> Result<Self, Error> {
        let path = make_directory(db)?.join(CREATE);
        let create = open(&path)?;
        create.lock().map_err(|e| Error::file("lock", &path, e))?;
        Ok(Self { _create: create })
    }
}

impl ServerLock {
    pub fn acquire(db: &Path, now: Timestamp) -> Result<Self, Error> {
        let directory = make_directory(db)?;
        let path = directory.join(SERVER);
        let busy = || {
            let holder = read_holder(&path).or_else(|| any_workflow_holder(&directory));
            Error::Busy { what: Locked::Database, holder }
        };
        let server = OwnedFile::lock(path.clone(), Kind::Exclusive, None)?.ok_or_else(busy)?;
        let database = OwnedDatabase::lock(db, Kind::Exclusive)?.ok_or_else(busy)?;
        // Before it has both it is not the holder, and is not to be told of as one.
        write_holder(server.file(), &path, now)?;
        Ok(Self(Owned::new(database, server.held_since(now), None)))
    }

    /// Fails once the database was removed, or another process is the server.
    pub fn verify(&self) -> Result<(), Error> {
        self.0.verify()
    }
}

impl WorkflowLock {
    pub fn acquire(db: &Path, workflow: WorkflowId, now: Timestamp) -> Result<Self, Error> {
        let directory = make_directory(db)?;
        let server_path = directory.join(SERVER);
        let served = || Error::Busy { what: Locked::Database, holder: read_holder(&server_path) };
        let server = OwnedFile::lock(server_path.clone(), Kind::Shared, None)?.ok_or_else(served)?;
        let database = OwnedDatabase::lock(db, Kind::Shared)?.ok_or_else(served)?;
        // Whatever an earlier server left there no longer counts.
        clear(server.file(), &server_path)?;
        let path = directory.join(workflow_file(workflow));
        let run = OwnedFile::lock(path.clone(), Kind::Exclusive, Some(now))?
            .ok_or_else(|| Error::Busy { what: Locked::Workflow(workflow), holder: read_holder(&path) })?;
        Ok(Self(Owned::new(database, server, Some(run))))
    }

    /// Fails once the database was removed, or another process has taken the workflow.
    pub fn verify(&self) -> Result<(), Error> {
        self.0.verify()
    }

    /// Who runs the workflow now, if anybody does: a `run` of it, or the server.
    pub fn holder(db: &Path, workflow: WorkflowId) -> Result<Option<Holder>, Error> {
        let directory = run_directory(db)?;
        match holder_of(&directory.join(workflow_file(workflow)), Locked::Workflow(workflow))? {
            Some(holder) => Ok(Some(holder)),
            None => holder_of(&directory.join(SERVER), Locked::Database),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {} since {} ({})", self.pid, self.host, self.since, self.command)
    }
}

const SERVER: &str = "server.lock";
const CREATE: &str = "create.lock";

/// Somebody who asks for the holder has the lock for a moment; so long an acquirer goes on trying.
const PROBE_TRIES: u32 = 10;
const PROBE_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Shared,
    Exclusive,
}

fn workflow_file(workflow: WorkflowId) -> String {
    format!("workflow-{workflow}.lock")
}

/// Beside the real file, so that a symbolic link leads to the same locks.
fn run_directory(db: &Path) -> Result<PathBuf, Error> {
    let real = db.canonicalize().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::Missing { path: db.to_owned() },
        _ => Error::file("find", db, e),
    })?;
    let mut name = real.into_os_string();
    name.push(".run");
    Ok(name.into())
}

fn make_directory(db: &Path) -> Result<PathBuf, Error> {
    make_private_directory(&run_directory(db)?)
}

fn make_private_directory(directory: &Path) -> Result<PathBuf, Error> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::writing("make the directory", directory, e))
        }
        _ => require_private(directory.to_owned()),
    }
}

/// What is in there says which processes may be ended and which files are written: nobody else may have a hand in it.
fn require_private(directory: PathBuf) -> Result<PathBuf, Error> {
    let meta = directory.symlink_metadata().map_err(|e| Error::file("look at", &directory, e))?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if own { Ok(directory) } else { Err(Error::NotPrivate { path: directory }) }
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(|e| Error::writing("open", path, e))
}

/// Whether the lock was free. Outlasts somebody who only looks (see [`holder_of`]).
fn try_lock(file: &File, path: &Path, kind: Kind) -> Result<bool, Error> {
    for attempt in 0..PROBE_TRIES {
        let outcome = match kind {
            Kind::Shared => file.try_lock_shared(),
            Kind::Exclusive => file.try_lock(),
        };
        match outcome {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if attempt + 1 < PROBE_TRIES => std::thread::sleep(PROBE_PAUSE),
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(e)) => return Err(Error::file("lock", path, e)),
        }
    }
    Ok(false)
}

/// The holder of a lock file that is exclusively locked; `None` if it is not there or nobody holds it. A holder that
/// cannot be named is an error, so that it is never taken for nobody.
fn holder_of(path: &Path, what: Locked) -> Result<Option<Holder>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::file("open", path, e)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => match read_holder(path) {
            Some(holder) => Ok(Some(holder)),
            None => Err(Error::Busy { what, holder: None }),
        },
        Err(TryLockError::Error(e)) => Err(Error::file("lock", path, e)),
    }
}

/// A server is kept out by any `run`; the first one found is named.
fn any_workflow_holder(directory: &Path) -> Option<Holder> {
    let files = std::fs::read_dir(directory).ok()?;
    files
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name != SERVER))
        .find_map(|path| holder_of(&path, Locked::Database).ok().flatten())
}

fn read_holder(path: &Path) -> Option<Holder> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(mut file: &File, path: &Path, now: Timestamp) -> Result<(), Error> {
    let text = serde_json::to_string(&myself(now)).unwrap_or_default();
    clear(file, path)?;
    file.rewind().and_then(|()| file.write_all(text.as_bytes())).map_err(|e| Error::writing("write", path, e))
}

fn clear(file: &File, path: &Path) -> Result<(), Error> {
    file.set_len(0).map_err(|e| Error::writing("write", path, e))
}

/// Who we are.
pub(crate) fn myself(now: Timestamp) -> Holder {
    let words: Vec<String> =
        std::env::args_os().map(|word| Location::without_password(&word.to_string_lossy())).collect();
    Holder {
        pid: std::process::id(),
        pid_start_ticks: own_start_ticks().unwrap_or(0),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        // Everybody who is kept out by us is told.
        command: Redactor::default().redact(&words.join(" ")).into_owned(),
        since: now,
    }
}

/// Field 22 of `/proc/self/stat`. The second field is the program's name in brackets and may contain anything.
fn own_start_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}
