//! Free and required disk space of a database file.

use std::fmt;
use std::path::Path;
use windlass_types::Bytes;

/// Space for new changes, in addition to the log, which still has to be copied into the file.
const WRITE_RESERVE: u64 = 1 << 20;

/// The disk space of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Space available to this user.
    pub free: u64,
    /// With less the database will soon reject changes.
    pub needed: u64,
}

impl DiskSpace {
    /// `None` if it cannot be determined.
    pub fn measure(db: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(db).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let mut log = db.as_os_str().to_owned();
        log.push("-wal");
        let log = Path::new(&log).metadata().map_or(0, |metadata| metadata.len());
        Some(Self { free, needed: log.saturating_add(WRITE_RESERVE) })
    }

    /// Whether there is less space than needed.
    pub const fn is_short(self) -> bool {
        self.free < self.needed
    }
}

impl fmt::Display for DiskSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free, {} needed", Bytes(self.free), Bytes(self.needed))
    }
}

/// The cause of a disk error, as far as it can be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// Mounted read-only, or switched to read-only after an error.
    ReadOnly,
    /// Data did not reach the disk.
    Sync,
    Write,
    Read,
    Other,
}

impl DiskErrorKind {
    /// Determines the cause from the extended error code of SQLite and the current state of the file system.
    pub(crate) fn from_sqlite_code(code: Option<i32>, db: &Path) -> Self {
        use rusqlite::ffi;
        if is_read_only(db) {
            return Self::ReadOnly;
        }
        match code {
            Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) => Self::Sync,
            Some(ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_TRUNCATE | ffi::SQLITE_IOERR_DELETE) => {
                Self::Write
            }
            Some(ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_FSTAT) => {
                Self::Read
            }
            _ => Self::Other,
        }
    }
}

/// Whether the file system is mounted read-only, or rejects writes since an error.
pub(crate) fn is_read_only(db: &Path) -> bool {
    use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, openat, statvfs};
    if statvfs(db).is_ok_and(|disk| disk.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return true;
    }
    // Newer kernels do not change the mount flags after an error.
    let directory = db.parent().filter(|directory| !directory.as_os_str().is_empty());
    let unnamed = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let opened = openat(CWD, directory.unwrap_or(Path::new(".")), unnamed, Mode::RUSR | Mode::WUSR);
    matches!(opened, Err(rustix::io::Errno::ROFS))
}

impl fmt::Display for DiskErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "its file system is mounted read-only",
            Self::Sync => "flushing to the disk (fsync) failed",
            Self::Write => "writing failed",
            Self::Read => "reading failed",
            Self::Other => "the disk reported an error",
        })
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    #[test]
    fn io_error_names_the_failed_operation() {
        let directory = tempfile::tempdir().unwrap();
        for (code, words) in [
            (ffi::SQLITE_IOERR_FSYNC, "fsync"),
            (ffi::SQLITE_IOERR_WRITE, "writing failed"),
            (ffi::SQLITE_IOERR_READ, "reading failed"),
            (ffi::SQLITE_IOERR, "an error"),
        ] {
            let source = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let error = crate::error::SqlError::from(source).into_store_error(directory.path());
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.is_transient() && error.public_message().unwrap().contains(words), "{error}");
        }
    }

    #[test]
    fn disk_full_error_tells_the_needed_space() {
        let directory = tempfile::tempdir().unwrap();
        let db = directory.path().join("w.db");
        std::fs::write(&db, "").unwrap();
        std::fs::write(directory.path().join("w.db-wal"), vec![0; 3 << 20]).unwrap();
        let source = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None);
        let error = crate::error::SqlError::from(source).into_store_error(&db);
        let words = error.public_message().unwrap();
        assert!(words.contains("4 MiB needed") && error.to_string().contains("4 MiB needed"), "{words}");
        assert!(!words.contains("w.db"), "the message must not contain paths: {words}");
    }
}
