//! Opens and creates database files, and rejects other files with a specific error.

use super::header;
use super::migrate::{self, MIGRATIONS};
use crate::StoreError;
use crate::error::SqlError;
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// In the header of every database created by Windlass: "Wdls".
const APPLICATION_ID: u32 = 0x5764_6c73;

/// 3.51.3 fixed a race between a writer and a checkpoint that could damage the file.
const OLDEST_SQLITE: i32 = 3_051_003;

/// Long, because another process may be creating a workflow with millions of jobs.
const BUSY_TIMEOUT: Duration = Duration::from_mins(2);

const CACHED_STATEMENTS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    ReadWrite,
    ReadOnly,
}

/// A warning for the user; the database was opened anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenWarning {
    NetworkFilesystem {
        path: PathBuf,
        kind: &'static str,
    },
    /// Opened as an immutable file without locks: neither the file nor its directory is writable.
    Frozen {
        path: PathBuf,
    },
}

impl fmt::Display for OpenWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NetworkFilesystem { path, kind } => write!(
                f,
                "the database {} is on a network filesystem ({kind}), where locks are not reliable: \
                 use it from one machine at a time, or put it on a local disk (--db)",
                path.display()
            ),
            Self::Frozen { path } => write!(
                f,
                "the database {} is read without locks, because its directory is not writable; \
                 concurrent changes may not be visible",
                path.display()
            ),
        }
    }
}

/// How reading connections open the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAccess {
    Shared,
    /// Without locks and shared memory: for a file that cannot be written.
    Frozen,
}

/// A validated database of Windlass.
pub(crate) struct CheckedDatabase {
    /// Absolute, with symbolic links resolved.
    pub(crate) path: Arc<Path>,
    pub(crate) reader: Connection,
    pub(crate) access: ReadAccess,
    pub(crate) warnings: Vec<OpenWarning>,
}

/// Opens an existing file for reading and verifies that it is a Windlass database. Changes nothing.
pub(crate) fn check_database(path: &Path) -> Result<CheckedDatabase, StoreError> {
    require_sqlite_version(rusqlite::version_number(), rusqlite::version())?;
    let missing = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => StoreError::Missing { path: path.to_owned() },
        _ => StoreError::file("inspect", path, e),
    };
    let path: Arc<Path> = path.canonicalize().map_err(missing)?.into();
    let metadata = path.metadata().map_err(missing)?;
    if !metadata.is_file() {
        return Err(StoreError::NotAFile { path: path.to_path_buf() });
    }
    header::refuse_short_file(&path, metadata.len())?;
    let (reader, access) = identify_database(&path)?;
    let mut warnings = Vec::new();
    if let Some(kind) = super::network_filesystem(&path) {
        warnings.push(OpenWarning::NetworkFilesystem { path: path.to_path_buf(), kind });
    }
    if access == ReadAccess::Frozen {
        warnings.push(OpenWarning::Frozen { path: path.to_path_buf() });
    }
    Ok(CheckedDatabase { path, reader, access, warnings })
}

/// Creates an empty database with its schema. Never replaces a file.
pub(crate) fn create_database(path: &Path) -> Result<(), StoreError> {
    require_sqlite_version(rusqlite::version_number(), rusqlite::version())?;
    if path.symlink_metadata().is_err() {
        refuse_leftover_log(path)?;
    }
    create_file(path, |unfinished| build_database(unfinished, path))
}

/// Creates a file under a temporary name and renames it when it is complete and on disk.
pub(crate) fn create_file(
    path: &Path,
    make: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let name = path.file_name().ok_or_else(|| StoreError::NotAFile { path: path.to_owned() })?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if path.symlink_metadata().is_ok() {
        return Err(StoreError::AlreadyExists { path: path.to_owned() });
    }
    let mut new_name = OsString::from(".");
    new_name.push(name);
    new_name.push(format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let new = directory.join(new_name);
    let sync =
        || File::open(&new).and_then(|file| file.sync_all()).map_err(|e| StoreError::file("sync", &new, e));
    let made = make_private(&new, path)
        .and_then(|()| make(&new))
        .and_then(|()| sync())
        .and_then(|()| put_in_place(&new, path, directory));
    if made.is_err() {
        for leftover in [
            new.clone(),
            sibling_path(&new, "-journal"),
            sibling_path(&new, "-wal"),
            sibling_path(&new, "-shm"),
        ] {
            // Most of them do not exist, and errors cannot be reported.
            drop(std::fs::remove_file(leftover));
        }
    }
    made
}

/// Jobs may contain secrets, so only the owner can access the file and the files that SQLite creates next to
/// it. Errors name the final path.
fn make_private(new: &Path, path: &Path) -> Result<(), StoreError> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(new);
    made.map(drop).map_err(|e| StoreError::file_write("make", path, e))
}

/// A writable connection, upgraded to the newest format.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let conn =
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|fault| explain_open_error(fault, path))?;
    let ready = || -> Result<(), SqlError> {
        if conn.is_readonly("main")? {
            return Err(StoreError::ReadOnly { path: path.to_owned() }.into());
        }
        conn.pragma_update(None, "journal_mode", "WAL")?;
        // An acknowledged commit survives a power failure.
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "foreign_keys", true)?;
        // Checkpoints are run by the writer, after it has answered.
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        conn.pragma_update(None, "cache_size", -16 * 1024)?;
        migrate::migrate(&conn, path, MIGRATIONS)
    };
    ready().map_err(|fault| explain_open_error(fault, path))?;
    Ok(conn)
}

/// A user without write permission cannot upgrade a database.
pub(crate) fn require_current(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let check = || -> Result<(), SqlError> {
        if migrate::is_current(conn, path, MIGRATIONS)? {
            return Ok(());
        }
        let found = migrate::version(conn)?;
        Err(StoreError::FormatTooOld { path: path.to_owned(), found }.into())
    };
    check().map_err(|fault| fault.into_store_error(path))
}

/// A read-only connection.
pub(crate) fn open_reader(path: &Path, access: ReadAccess) -> Result<Connection, SqlError> {
    let conn = match access {
        ReadAccess::Shared => connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?,
        ReadAccess::Frozen => connect(
            Path::new(&frozen_uri(path)),
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        )?,
    };
    conn.pragma_update(None, "query_only", true)?;
    conn.pragma_update(None, "cache_size", -8 * 1024)?;
    Ok(conn)
}

/// Returns the path of the database with `suffix` appended.
pub(crate) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, SqlError> {
    // Each connection is used by one thread at a time, so SQLite need not lock it.
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // A rollback to a savepoint is small, so its journal need not be on disk.
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

fn identify_database(path: &Path) -> Result<(Connection, ReadAccess), StoreError> {
    let attempt = |access| {
        let conn = open_reader(path, access)?;
        identify_connection(&conn, path)?;
        Ok((conn, access))
    };
    let first = attempt(ReadAccess::Shared);
    let second = match first {
        // Without a log there is no writer, and without permission this process will not be one.
        Err(fault)
            if is_write_refused(&fault)
                && !can_write_beside(path)
                && !sibling_path(path, "-wal").exists() =>
        {
            attempt(ReadAccess::Frozen)
        }
        other => other,
    };
    second.map_err(|fault| explain_open_error(fault, path))
}

fn identify_connection(conn: &Connection, path: &Path) -> Result<(), SqlError> {
    let application_id: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let application_id = application_id.cast_unsigned();
    if application_id != APPLICATION_ID {
        return Err(StoreError::OtherApplication { path: path.to_owned(), application_id }.into());
    }
    let found = migrate::version(conn)?;
    let known = crate::migration::latest_version(MIGRATIONS);
    if found > known {
        return Err(StoreError::FormatTooNew { path: path.to_owned(), found, known }.into());
    }
    refuse_torn_page(conn, path)
}

/// SQLite detects a truncated last page only when it reads it.
fn refuse_torn_page(conn: &Connection, path: &Path) -> Result<(), SqlError> {
    let pages: u32 = conn.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let page_size: u32 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    // Measured after the page count: pages that are still in a log may be missing in the file.
    let log = sibling_path(path, "-wal").metadata().map_or(0, |metadata| metadata.len());
    let found = path.metadata().map_err(|e| StoreError::file("inspect", path, e))?.len();
    let expected = u64::from(pages) * u64::from(page_size);
    if log == 0 && found < expected {
        return Err(StoreError::Truncated { path: path.to_owned(), found, expected: Some(expected) }.into());
    }
    Ok(())
}

/// Converts SQLite's errors for files that it cannot open.
fn explain_open_error(fault: SqlError, path: &Path) -> StoreError {
    let not_a_database = matches!(
        &fault,
        SqlError::Sqlite(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase)
    );
    if not_a_database {
        return StoreError::NotADatabase { path: path.to_owned() };
    }
    match fault.into_store_error(path) {
        damaged @ StoreError::Damaged { .. } => header::find_truncation(path).unwrap_or(damaged),
        StoreError::CannotOpen { .. } if can_read(path) && !can_write_beside(path) => {
            StoreError::ReadOnly { path: path.to_owned() }
        }
        other => other,
    }
}

/// SQLite could not create its log or its shared memory.
fn is_write_refused(fault: &SqlError) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(fault, SqlError::Sqlite(e) if matches!(e.sqlite_error_code(), Some(CannotOpen | ReadOnly)))
}

/// SQLite keeps its log and shared memory next to the file.
fn can_write_beside(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A file that does not exist yet is not an error.
fn can_read(path: &Path) -> bool {
    use rustix::io::Errno;
    !matches!(rustix::fs::access(path, rustix::fs::Access::READ_OK), Err(Errno::ACCESS))
}

fn frozen_uri(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte);
    let encode = |&byte: &u8| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }
    };
    let name: String = path.as_os_str().as_bytes().iter().map(encode).collect();
    format!("file:{name}?immutable=1")
}

/// SQLite would apply the log of a deleted database to a new one.
fn refuse_leftover_log(path: &Path) -> Result<(), StoreError> {
    let log = sibling_path(path, "-wal");
    match log.metadata() {
        Ok(metadata) if metadata.len() > 0 => Err(StoreError::LeftoverLog { path: path.to_owned(), log }),
        _ => Ok(()),
    }
}

/// Writes a whole database under a temporary name; errors name the final path.
fn build_database(path: &Path, final_path: &Path) -> Result<(), StoreError> {
    let make = || -> Result<(), SqlError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = connect(path, flags)?;
        // Synced once, as a whole, before it is renamed.
        conn.pragma_update(None, "synchronous", "OFF")?;
        conn.pragma_update(None, "journal_mode", "MEMORY")?;
        conn.pragma_update(None, "application_id", APPLICATION_ID.cast_signed())?;
        migrate::create_tables(&conn)?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.close().map_err(|(_, error)| error.into())
    };
    make().map_err(|fault| explain_open_error(fault, final_path))
}

fn put_in_place(new: &Path, path: &Path, directory: &Path) -> Result<(), StoreError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(StoreError::AlreadyExists { path: path.to_owned() }),
        // Fallback for file systems without this operation: a hard link that must be new, then removal of the
        // first name.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_in_place(new, path)?,
        Err(e) => return Err(StoreError::file_write("make", path, e.into())),
    }
    File::open(directory).and_then(|file| file.sync_all()).map_err(|e| StoreError::file("sync", directory, e))
}

fn link_in_place(new: &Path, path: &Path) -> Result<(), StoreError> {
    std::fs::hard_link(new, path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => StoreError::AlreadyExists { path: path.to_owned() },
        _ => StoreError::file_write("make", path, e),
    })?;
    std::fs::remove_file(new).map_err(|e| StoreError::file_write("remove", new, e))
}

fn require_sqlite_version(number: i32, text: &'static str) -> Result<(), StoreError> {
    if number < OLDEST_SQLITE { Err(StoreError::SqliteTooOld { found: text }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_sqlite_is_rejected() {
        assert!(require_sqlite_version(3_051_003, "3.51.3").is_ok());
        let error = require_sqlite_version(3_051_002, "3.51.2").unwrap_err();
        assert!(error.to_string().contains("3.51.2"), "{error}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn unnamed_file_is_linked_and_never_overwrites() {
        let directory = tempfile::tempdir().unwrap();
        let (new, path) = (directory.path().join("new"), directory.path().join("db"));
        std::fs::write(&new, "one").unwrap();
        link_in_place(&new, &path).unwrap();
        std::fs::write(&new, "two").unwrap();
        assert!(matches!(link_in_place(&new, &path), Err(StoreError::AlreadyExists { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    }

    #[test]
    fn path_becomes_a_uri() {
        assert_eq!(frozen_uri(Path::new("/a b/c?d%.db")), "file:/a%20b/c%3fd%25.db?immutable=1");
    }
}
