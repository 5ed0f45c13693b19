//! Who may run what: one server owns the whole file, or several `run`s own one workflow each.
//!
//! The locks are `flock`s on files in `<database>.run/` and on the database itself ([`owned`]), so the kernel releases them
//! when their process dies, whatever the way. What stands in a lock file says who took it last and counts only while the
//! file is locked.

mod owned_files;

use crate::StoreError;
use crate::StoreLocation;
use crate::error::LockedObject;
use crate::leader_lease::LeaderLease;
use owned_files::{OwnedDatabase, OwnedFile, OwnedFiles};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass_core::redact::SecretRedactor;
use windlass_types::{Timestamp, WorkflowId};

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    pub pid: u32,
    /// Start time of that pid in clock ticks since boot, so that a reused pid is not taken for it.
    pub pid_start_ticks: u64,
    pub host: String,
    pub command: String,
    pub since: Timestamp,
}

/// What somebody may want for himself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockScope {
    /// All of the database: nobody else may run anything in it.
    Server,
    /// To run or change one workflow: no server and nobody else with the same workflow.
    Workflow(WorkflowId),
    /// To look whether a workflow is there and make it if not. Waited for: nobody has it for long.
    Create,
}

/// Gives the lock back when it is dropped.
pub struct LockGuard(Box<dyn HeldLock>);

impl LockGuard {
    pub(crate) fn new(held: impl HeldLock + 'static) -> Self {
        Self(Box::new(held))
    }

    /// Nothing is held here: whoever keeps the books elsewhere sees to it that changes do not meet.
    pub(crate) fn without_lock() -> Self {
        Self::new(ImpliedLock)
    }

    /// A workflow that was given without a lock, because the whole database is held.
    pub(crate) fn implied() -> Self {
        Self::new(ImpliedLock)
    }

    /// Fails once the lock is lost for good: the connection to a PostgreSQL database was lost, and somebody else took it, or
    /// a database file was removed. While nobody knows, because the database is away, the error is a transient one. Cheap
    /// while all is well.
    pub fn check(&self) -> Result<(), StoreError> {
        self.0.check()
    }

    /// As [`LockGuard::check`], and looks also if it has just looked: before a run is called complete.
    pub fn verify(&self) -> Result<(), StoreError> {
        self.0.verify()
    }

    /// Whether its holder can be certain to have it still; unlike [`LockGuard::check`] it tells from the silence alone.
    pub fn leader_lease(&self) -> LeaderLease {
        self.0.leader_lease()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockGuard")
    }
}

/// What lies behind a [`LockGuard`].
pub(crate) trait HeldLock: Send + Sync {
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn verify(&self) -> Result<(), StoreError> {
        self.check()
    }

    fn leader_lease(&self) -> LeaderLease {
        LeaderLease::default()
    }
}

impl HeldLock for WorkflowLock {
    fn check(&self) -> Result<(), StoreError> {
        self.0.check()
    }

    fn verify(&self) -> Result<(), StoreError> {
        self.0.verify()
    }
}
impl HeldLock for CreateLock {}

/// See [`LockGuard::ours`].
struct ImpliedLock;
impl HeldLock for ImpliedLock {}

/// How often somebody who waits looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Takes a lock when it is free. Whenever it is not, `waiting` hears who has it and says whether to go on waiting.
pub fn wait_for_lock(
    store: &dyn crate::Store,
    what: LockScope,
    now: impl Fn() -> Timestamp,
    mut waiting: impl FnMut(Option<&LockHolder>) -> bool,
) -> Result<LockGuard, StoreError> {
    loop {
        match store.lock(what, now()) {
            Err(StoreError::Busy { what, holder }) if !waiting(holder.as_ref()) => {
                return Err(StoreError::Busy { what, holder });
            }
            Err(StoreError::Busy { .. }) => std::thread::sleep(POLL_INTERVAL),
            // A database that is away may come back, and so may whoever has the lock.
            Err(error) if error.is_transient() => {
                if !waiting(None) {
                    return Err(error);
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            other => return other,
        }
    }
}

/// The locks of a database file.
#[derive(Debug)]
pub(crate) struct LockFiles {
    db: Arc<Path>,
    /// We are the server.
    is_server: Arc<AtomicBool>,
}

impl LockFiles {
    pub(crate) fn new(db: Arc<Path>) -> Self {
        Self { db, is_server: Arc::default() }
    }

    pub(crate) fn acquire(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError> {
        Ok(match what {
            LockScope::Server => {
                let lock = ServerLock::acquire(&self.db, now)?;
                self.is_server.store(true, Ordering::Release);
                LockGuard::new(HeldServerLock { lock, is_server: Arc::clone(&self.is_server) })
            }
            LockScope::Workflow(_) if self.is_server.load(Ordering::Acquire) => LockGuard::implied(),
            LockScope::Workflow(id) => LockGuard::new(WorkflowLock::acquire(&self.db, id, now)?),
            LockScope::Create => LockGuard::new(CreateLock::acquire(&self.db)?),
        })
    }

    pub(crate) fn find_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError> {
        WorkflowLock::find_holder(&self.db, workflow)
    }

    /// Lets go of a workflow that is no more. Its number is never given again, so nobody will need the file.
    pub(crate) fn release_and_delete(&self, lock: LockGuard, workflow: WorkflowId) {
        if let Ok(directory) = lock_directory(&self.db) {
            // Left behind it is in nobody's way.
            drop(std::fs::remove_file(directory.join(workflow_lock_file(workflow))));
        }
        drop(lock);
    }
}

/// The server's lock, and the note that we have it.
struct HeldServerLock {
    lock: ServerLock,
    is_server: Arc<AtomicBool>,
}

impl HeldLock for HeldServerLock {
    fn check(&self) -> Result<(), StoreError> {
        self.lock.0.check()
    }

    fn verify(&self) -> Result<(), StoreError> {
        self.lock.0.verify()
    }
}

impl Drop for HeldServerLock {
    fn drop(&mut self) {
        self.is_server.store(false, Ordering::Release);
    }
}

/// Held while a server runs: nobody else may run anything in this database.
#[derive(Debug)]
pub struct ServerLock(OwnedFiles);

/// Held while a workflow runs: no server and no second `run` of the same workflow.
#[derive(Debug)]
pub struct WorkflowLock(OwnedFiles);

/// Held while somebody looks whether a workflow is there and makes it if not, so that two who do the same make one.
#[derive(Debug)]
pub struct CreateLock {
    _create: File,
}

impl CreateLock {
    /// Waits for whoever has it: nobody has it for long.
    pub fn acquire(db: &Path) -> Result<Self, StoreError> {
        let path = make_lock_directory(db)?.join(CREATE_LOCK_FILE);
        let create = open_lock_file(&path)?;
        create.lock().map_err(|e| StoreError::file("lock", &path, e))?;
        Ok(Self { _create: create })
    }
}

impl ServerLock {
    pub fn acquire(db: &Path, now: Timestamp) -> Result<Self, StoreError> {
        let directory = make_lock_directory(db)?;
        let path = directory.join(SERVER_LOCK_FILE);
        let busy = || {
            let holder = read_holder(&path).or_else(|| find_workflow_holder(&directory));
            StoreError::Busy { what: LockedObject::Database, holder }
        };
        let server = OwnedFile::lock(path.clone(), FlockKind::Exclusive, None)?.ok_or_else(busy)?;
        let database = OwnedDatabase::lock(db, FlockKind::Exclusive)?.ok_or_else(busy)?;
        // Before it has both it is not the holder, and is not to be told of as one.
        write_holder(server.file(), &path, now)?;
        Ok(Self(OwnedFiles::new(database, server.with_holder_since(now), None)))
    }

    /// Fails once the database was removed, or another process is the server.
    pub fn verify(&self) -> Result<(), StoreError> {
        self.0.verify()
    }
}

impl WorkflowLock {
    pub fn acquire(db: &Path, workflow: WorkflowId, now: Timestamp) -> Result<Self, StoreError> {
        let directory = make_lock_directory(db)?;
        let server_path = directory.join(SERVER_LOCK_FILE);
        let served = || StoreError::Busy { what: LockedObject::Database, holder: read_holder(&server_path) };
        let server = OwnedFile::lock(server_path.clone(), FlockKind::Shared, None)?.ok_or_else(served)?;
        let database = OwnedDatabase::lock(db, FlockKind::Shared)?.ok_or_else(served)?;
        // Whatever an earlier server left there no longer counts.
        clear_holder(server.file(), &server_path)?;
        let path = directory.join(workflow_lock_file(workflow));
        let run = OwnedFile::lock(path.clone(), FlockKind::Exclusive, Some(now))?.ok_or_else(|| {
            StoreError::Busy { what: LockedObject::Workflow(workflow), holder: read_holder(&path) }
        })?;
        Ok(Self(OwnedFiles::new(database, server, Some(run))))
    }

    /// Fails once the database was removed, or another process has taken the workflow.
    pub fn verify(&self) -> Result<(), StoreError> {
        self.0.verify()
    }

    /// Who runs the workflow now, if anybody does: a `run` of it, or the server.
    pub fn find_holder(db: &Path, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError> {
        let directory = lock_directory(db)?;
        match find_holder(&directory.join(workflow_lock_file(workflow)), LockedObject::Workflow(workflow))? {
            Some(holder) => Ok(Some(holder)),
            None => find_holder(&directory.join(SERVER_LOCK_FILE), LockedObject::Database),
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {} since {} ({})", self.pid, self.host, self.since, self.command)
    }
}

const SERVER_LOCK_FILE: &str = "server.lock";
const CREATE_LOCK_FILE: &str = "create.lock";

/// Somebody who asks for the holder has the lock for a moment; so long an acquirer goes on trying.
const PROBE_TRIES: u32 = 10;
const PROBE_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
enum FlockKind {
    Shared,
    Exclusive,
}

fn workflow_lock_file(workflow: WorkflowId) -> String {
    format!("workflow-{workflow}.lock")
}

/// Beside the real file, so that a symbolic link leads to the same locks.
fn lock_directory(db: &Path) -> Result<PathBuf, StoreError> {
    let real = db.canonicalize().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => StoreError::Missing { path: db.to_owned() },
        _ => StoreError::file("find", db, e),
    })?;
    let mut name = real.into_os_string();
    name.push(".run");
    Ok(name.into())
}

fn make_lock_directory(db: &Path) -> Result<PathBuf, StoreError> {
    make_private_directory(&lock_directory(db)?)
}

fn make_private_directory(directory: &Path) -> Result<PathBuf, StoreError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(StoreError::file_write("make the directory", directory, e))
        }
        _ => require_private(directory.to_owned()),
    }
}

/// What is in there says which processes may be ended and which files are written: nobody else may have a hand in it.
fn require_private(directory: PathBuf) -> Result<PathBuf, StoreError> {
    let meta = directory.symlink_metadata().map_err(|e| StoreError::file("look at", &directory, e))?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if own { Ok(directory) } else { Err(StoreError::NotPrivate { path: directory }) }
}

fn open_lock_file(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(|e| StoreError::file_write("open", path, e))
}

/// Whether the lock was free. Outlasts somebody who only looks (see [`holder_of`]).
fn try_lock(file: &File, path: &Path, kind: FlockKind) -> Result<bool, StoreError> {
    for attempt in 0..PROBE_TRIES {
        let outcome = match kind {
            FlockKind::Shared => file.try_lock_shared(),
            FlockKind::Exclusive => file.try_lock(),
        };
        match outcome {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if attempt + 1 < PROBE_TRIES => std::thread::sleep(PROBE_PAUSE),
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(e)) => return Err(StoreError::file("lock", path, e)),
        }
    }
    Ok(false)
}

/// The holder of a lock file that is exclusively locked; `None` if it is not there or nobody holds it. A holder that
/// cannot be named is an error, so that it is never taken for nobody.
fn find_holder(path: &Path, what: LockedObject) -> Result<Option<LockHolder>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(StoreError::file("open", path, e)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => match read_holder(path) {
            Some(holder) => Ok(Some(holder)),
            None => Err(StoreError::Busy { what, holder: None }),
        },
        Err(TryLockError::Error(e)) => Err(StoreError::file("lock", path, e)),
    }
}

/// A server is kept out by any `run`; the first one found is named.
fn find_workflow_holder(directory: &Path) -> Option<LockHolder> {
    let files = std::fs::read_dir(directory).ok()?;
    files
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name != SERVER_LOCK_FILE))
        .find_map(|path| find_holder(&path, LockedObject::Database).ok().flatten())
}

fn read_holder(path: &Path) -> Option<LockHolder> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(mut file: &File, path: &Path, now: Timestamp) -> Result<(), StoreError> {
    let text = serde_json::to_string(&current_process(now)).unwrap_or_default();
    clear_holder(file, path)?;
    file.rewind()
        .and_then(|()| file.write_all(text.as_bytes()))
        .map_err(|e| StoreError::file_write("write", path, e))
}

fn clear_holder(file: &File, path: &Path) -> Result<(), StoreError> {
    file.set_len(0).map_err(|e| StoreError::file_write("write", path, e))
}

/// Who we are.
pub(crate) fn current_process(now: Timestamp) -> LockHolder {
    let words: Vec<String> =
        std::env::args_os().map(|word| StoreLocation::without_password(&word.to_string_lossy())).collect();
    LockHolder {
        pid: std::process::id(),
        pid_start_ticks: own_start_ticks().unwrap_or(0),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        // Everybody who is kept out by us is told.
        command: SecretRedactor::default().redact(&words.join(" ")).into_owned(),
        since: now,
    }
}

/// Field 22 of `/proc/self/stat`. The second field is the program's name in brackets and may contain anything.
fn own_start_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}
