//! Locks that decide which process may run what: one server owns the whole database, or several `windlass run`
//! own one workflow each.
//!
//! The locks are `flock`s on files in `<database>.run/` and on the database itself ([`held_files`]), so the
//! kernel releases them whenever their process ends. The contents of a lock file name its last holder and are
//! valid only while the file is locked.

mod held_files;

pub(crate) use held_files::DatabaseFile;

use crate::StoreError;
use crate::StoreLocation;
use crate::error::LockedObject;
use crate::leader_lease::LeaderLease;
use held_files::{HeldFiles, HeldLockFile, LockedDatabaseFile};
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

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    pub pid: u32,
    /// Start time of the pid in clock ticks since boot, to detect a reused pid.
    pub pid_start_ticks: u64,
    pub host: String,
    pub command: String,
    pub since: Timestamp,
}

/// What a lock protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockScope {
    /// The whole database: no other process may run anything in it.
    Server,
    /// Running or changing one workflow: excludes servers and other locks of the workflow.
    Workflow(WorkflowId),
    /// Checking for a workflow and creating it if it does not exist. Blocks: it is held for a short time only.
    Create,
}

/// Releases the lock when it is dropped.
pub struct LockGuard(Box<dyn HeldLock>);

impl LockGuard {
    pub(crate) fn new(held: impl HeldLock + 'static) -> Self {
        Self(Box::new(held))
    }

    /// A guard without a lock: the remote server prevents conflicting changes.
    pub(crate) fn without_lock() -> Self {
        Self::new(ImpliedLock)
    }

    /// A workflow without a lock of its own, because the lock on the whole database is held.
    pub(crate) fn implied() -> Self {
        Self::new(ImpliedLock)
    }

    /// Fails once the lock is lost for good: the connection to PostgreSQL was lost and another process took it,
    /// or a database file was removed. While that is unknown, because the database is unreachable, the error is
    /// transient. Cheap while there is no problem.
    pub fn check(&self) -> Result<(), StoreError> {
        self.0.check()
    }

    /// As [`LockGuard::check`], but never uses a cached result: for use before a run is recorded as complete.
    pub fn verify(&self) -> Result<(), StoreError> {
        self.0.verify()
    }

    /// Whether the lock is certainly still held; unlike [`LockGuard::check`] it only uses the time since the
    /// last contact.
    pub fn leader_lease(&self) -> LeaderLease {
        self.0.leader_lease()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockGuard")
    }
}

/// The implementation of a [`LockGuard`].
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

/// See [`LockGuard::implied`].
struct ImpliedLock;
impl HeldLock for ImpliedLock {}

/// Polling interval while waiting for a lock.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Acquires a lock as soon as it is free. While it is not, `waiting` is called with its holder and returns
/// whether to keep waiting.
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
            // The database may become reachable again, and with it the holder of the lock.
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

/// The lock files of a database file.
#[derive(Debug)]
pub(crate) struct LockFiles {
    db: Arc<Path>,
    /// This process is the server.
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

    /// Removes the lock of a deleted workflow. Workflow ids are never reused, so the file is not needed again.
    pub(crate) fn release_and_delete(&self, lock: LockGuard, workflow: WorkflowId) {
        if let Ok(directory) = lock_directory(&self.db) {
            // A remaining file does no harm.
            drop(std::fs::remove_file(directory.join(workflow_lock_file(workflow))));
        }
        drop(lock);
    }
}

/// The server's lock; clears the server flag when it is dropped.
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

    fn leader_lease(&self) -> LeaderLease {
        LeaderLease::of_file(self.lock.0.database_file())
    }
}

impl Drop for HeldServerLock {
    fn drop(&mut self) {
        self.is_server.store(false, Ordering::Release);
    }
}

/// Held while a server runs: no other process may run anything in this database.
#[derive(Debug)]
pub struct ServerLock(HeldFiles);

/// Held while a workflow runs: excludes servers and a second `windlass run` of the same workflow.
#[derive(Debug)]
pub struct WorkflowLock(HeldFiles);

/// Held while checking for a workflow and creating it if it does not exist, so that two processes create only
/// one.
#[derive(Debug)]
pub struct CreateLock {
    _create: File,
}

impl CreateLock {
    /// Blocks until the lock is free; it is held for a short time only.
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
        let server = HeldLockFile::lock(path.clone(), FlockKind::Exclusive, None)?.ok_or_else(busy)?;
        let database = LockedDatabaseFile::lock(db, FlockKind::Exclusive)?.ok_or_else(busy)?;
        // Until it has both locks it is not the holder and must not be reported as such.
        write_holder(server.file(), &path, now)?;
        Ok(Self(HeldFiles::new(database, server.with_holder_since(now), None)))
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
        let server = HeldLockFile::lock(server_path.clone(), FlockKind::Shared, None)?.ok_or_else(served)?;
        let database = LockedDatabaseFile::lock(db, FlockKind::Shared)?.ok_or_else(served)?;
        // Entries left by an earlier server are no longer valid.
        clear_holder(server.file(), &server_path)?;
        let path = directory.join(workflow_lock_file(workflow));
        let run = HeldLockFile::lock(path.clone(), FlockKind::Exclusive, Some(now))?.ok_or_else(|| {
            StoreError::Busy { what: LockedObject::Workflow(workflow), holder: read_holder(&path) }
        })?;
        Ok(Self(HeldFiles::new(database, server, Some(run))))
    }

    /// Fails once the database was removed, or another process has locked the workflow.
    pub fn verify(&self) -> Result<(), StoreError> {
        self.0.verify()
    }

    /// Returns the process that runs the workflow, if any: a `windlass run` or the server.
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

/// Time for which an acquirer retries, because a process that queries the holder locks the file briefly.
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

/// Next to the real file, so that paths through symbolic links share the locks.
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
            Err(StoreError::file_write("create the directory", directory, e))
        }
        _ => require_private(directory.to_owned()),
    }
}

/// The directory decides which processes may be killed and which files are written, so no other user may write
/// to it.
fn require_private(directory: PathBuf) -> Result<PathBuf, StoreError> {
    let meta = directory.symlink_metadata().map_err(|e| StoreError::file("inspect", &directory, e))?;
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

/// Tries to lock; retries while a query of the holder (see [`find_holder`]) has it locked.
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

/// Returns the holder of an exclusively locked file; `None` if it does not exist or is not locked. A holder
/// that cannot be identified is an error, so that the lock is never considered free.
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

/// Any `windlass run` excludes a server; the first one found is reported.
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

/// Describes this process as a holder.
pub(crate) fn current_process(now: Timestamp) -> LockHolder {
    let words: Vec<String> =
        std::env::args_os().map(|word| StoreLocation::without_password(&word.to_string_lossy())).collect();
    LockHolder {
        pid: std::process::id(),
        pid_start_ticks: own_start_ticks().unwrap_or(0),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        // Shown to processes that wait for the lock.
        command: SecretRedactor::default().redact(&words.join(" ")).into_owned(),
        since: now,
    }
}

/// Parses field 22 of `/proc/self/stat`. The second field is the program name in parentheses and may contain
/// anything.
fn own_start_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}
