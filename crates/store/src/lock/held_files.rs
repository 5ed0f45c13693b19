//! Files of the holder of a lock: the database file, and lock files that are still the ones at their paths.
//!
//! A lock file can be removed while it is locked, and the next process locks a new one. Therefore every holder
//! also locks the database file: a server exclusively, each run shared. Holders check periodically whether
//! their files still exist: a removed lock file is created and locked again, a removed database ends the run.

use super::{FlockKind, open_lock_file, try_lock, write_holder};
use crate::StoreError;
use crate::sqlite::network_filesystem;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_types::Timestamp;

/// Interval of these checks.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Device and inode.
type FileInode = (u64, u64);

fn inode_of(metadata: &Metadata) -> FileInode {
    (metadata.dev(), metadata.ino())
}

fn inode_at(path: &Path) -> Option<FileInode> {
    path.metadata().ok().map(|metadata| inode_of(&metadata))
}

/// Open database files without a lock. Closing one would release the locks that SQLite holds on it in this
/// process, so they are kept for the next lock.
static UNUSED_DATABASE_FILES: Mutex<Vec<(FileInode, File)>> = Mutex::new(Vec::new());

fn unused_files() -> MutexGuard<'static, Vec<(FileInode, File)>> {
    UNUSED_DATABASE_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A database file, identified regardless of what is at its path now.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseFile {
    path: PathBuf,
    inode: FileInode,
}

impl DatabaseFile {
    /// Whether it was neither removed nor replaced.
    pub(crate) fn is_at_its_path(&self) -> bool {
        inode_at(&self.path) == Some(self.inode)
    }
}

/// A database file locked as a whole by `flock`, which is independent of SQLite's locks.
#[derive(Debug)]
pub(super) struct LockedDatabaseFile {
    database: DatabaseFile,
    /// `false` on a network file system.
    is_locked: bool,
    /// `None` only during drop.
    file: Option<File>,
}

impl LockedDatabaseFile {
    /// `None` if another process holds it. On network file systems `flock` collides with SQLite's locks, so
    /// there only the lock files are used.
    pub(super) fn lock(db: &Path, kind: FlockKind) -> Result<Option<Self>, StoreError> {
        let path = db.canonicalize().map_err(|e| StoreError::file("find", db, e))?;
        let inode = inode_at(&path).ok_or_else(|| StoreError::Missing { path: path.clone() })?;
        let kept = {
            let mut unused = unused_files();
            unused.iter().position(|(of, _)| *of == inode).map(|at| unused.swap_remove(at).1)
        };
        let file = match kept {
            Some(file) => file,
            None => File::open(&path).map_err(|e| StoreError::file("open", &path, e))?,
        };
        let is_locked = network_filesystem(&path).is_none();
        let owned = Self { database: DatabaseFile { path, inode }, is_locked, file: Some(file) };
        let is_ours = match &owned.file {
            Some(file) if is_locked => try_lock(file, &owned.database.path, kind)?,
            _ => true,
        };
        Ok(is_ours.then_some(owned))
    }

    /// Fails if the locked file is not the one at its path.
    fn check(&self) -> Result<(), StoreError> {
        if self.database.is_at_its_path() {
            return Ok(());
        }
        Err(StoreError::FileRemoved { path: self.database.path.clone() })
    }
}

impl Drop for LockedDatabaseFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // If unlocking fails, it was not locked.
            file.unlock().unwrap_or_default();
            unused_files().push((self.database.inode, file));
        }
    }
}

/// A locked lock file.
#[derive(Debug)]
pub(super) struct HeldLockFile {
    path: PathBuf,
    kind: FlockKind,
    /// Time of the lock, for a file that names its holder.
    since: Option<Timestamp>,
    file: File,
    inode: Option<FileInode>,
}

impl HeldLockFile {
    /// `None` if another process holds it.
    pub(super) fn lock(
        path: PathBuf,
        kind: FlockKind,
        since: Option<Timestamp>,
    ) -> Result<Option<Self>, StoreError> {
        let file = open_lock_file(&path)?;
        if !try_lock(&file, &path, kind)? {
            return Ok(None);
        }
        if let Some(since) = since {
            write_holder(&file, &path, since)?;
        }
        let inode = file.metadata().ok().map(|metadata| inode_of(&metadata));
        Ok(Some(Self { path, kind, since, file, inode }))
    }

    /// Names the holder again if the file has to be created again.
    pub(super) fn with_holder_since(self, since: Timestamp) -> Self {
        Self { since: Some(since), ..self }
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Creates and locks it again if it was removed. `false` if another process was faster.
    fn restore_if_removed(&mut self) -> Result<bool, StoreError> {
        if self.inode.is_some() && inode_at(&self.path) == self.inode {
            return Ok(true);
        }
        if let Some(directory) = self.path.parent() {
            super::make_private_directory(directory)?;
        }
        let again = Self::lock(self.path.clone(), self.kind, self.since)?;
        Ok(again.map(|again| *self = again).is_some())
    }
}

/// All files of a holder.
#[derive(Debug)]
pub(super) struct HeldFiles {
    database: LockedDatabaseFile,
    files: Mutex<HeldLockFiles>,
}

#[derive(Debug)]
struct HeldLockFiles {
    /// Locked exclusively by the server and shared by each run, like the database itself. Where the lock on the
    /// database is effective, this file only names the holder.
    server: HeldLockFile,
    workflow: Option<HeldLockFile>,
    checked_at: Instant,
}

impl HeldFiles {
    pub(super) fn new(
        database: LockedDatabaseFile,
        server: HeldLockFile,
        workflow: Option<HeldLockFile>,
    ) -> Self {
        Self { database, files: HeldLockFiles { server, workflow, checked_at: Instant::now() }.into() }
    }

    pub(super) fn database_file(&self) -> DatabaseFile {
        self.database.database.clone()
    }

    /// As [`Self::verify`], but at most once per interval.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.lock_files().checked_at.elapsed() < RECHECK_INTERVAL {
            return Ok(());
        }
        self.verify()
    }

    /// Fails if the database was removed or replaced, or if another process has locked a lock file that was
    /// removed.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        self.database.check()?;
        let mut files = self.lock_files();
        // A temporary failure to create the file does not release the lock.
        let has_server = files.server.restore_if_removed().unwrap_or(true) || self.database.is_locked;
        let has_workflow =
            files.workflow.as_mut().is_none_or(|file| file.restore_if_removed().unwrap_or(true));
        if !(has_server && has_workflow) {
            return Err(StoreError::Superseded { url: self.database.database.path.display().to_string() });
        }
        files.checked_at = Instant::now();
        Ok(())
    }

    fn lock_files(&self) -> MutexGuard<'_, HeldLockFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
