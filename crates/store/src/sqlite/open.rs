//! Opening and making a database file, and refusing, by name, what is not one.

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

/// In the header of every database that windlass makes: "Wdls".
const APPLICATION_ID: u32 = 0x5764_6c73;

/// 3.51.3 fixed a race between a writer and a checkpoint that could damage the file.
const OLDEST_SQLITE: i32 = 3_051_003;

/// Another process may be creating a workflow of millions of jobs meanwhile.
const BUSY_TIMEOUT: Duration = Duration::from_mins(2);

const CACHED_STATEMENTS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    ReadWrite,
    ReadOnly,
}

/// Something to tell the user; the database was opened all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenWarning {
    NetworkFilesystem {
        path: PathBuf,
        kind: &'static str,
    },
    /// Read as it lies there, without locks: neither the file nor its directory may be written.
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
                "the database {} is read as it lies there, because its directory may not be written; \
                 changes that are made meanwhile may not be seen",
                path.display()
            ),
        }
    }
}

/// How readers open the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAccess {
    Shared,
    /// No locks and no shared memory: for a file that nobody may write.
    Frozen,
}

/// A database that was found to be ours and whole as far as can be seen.
pub(crate) struct CheckedDatabase {
    /// Real and absolute.
    pub(crate) path: Arc<Path>,
    pub(crate) reader: Connection,
    pub(crate) access: ReadAccess,
    pub(crate) warnings: Vec<OpenWarning>,
}

/// Opens an existing file for reading and makes sure that it is one of ours. Changes nothing.
pub(crate) fn check_database(path: &Path) -> Result<CheckedDatabase, StoreError> {
    require_sqlite_version(rusqlite::version_number(), rusqlite::version())?;
    let missing = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => StoreError::Missing { path: path.to_owned() },
        _ => StoreError::file("look at", path, e),
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

/// Makes an empty database with its schema. Never replaces anything.
pub(crate) fn create_database(path: &Path) -> Result<(), StoreError> {
    require_sqlite_version(rusqlite::version_number(), rusqlite::version())?;
    if path.symlink_metadata().is_err() {
        refuse_leftover_log(path)?;
    }
    create_file(path, |unfinished| build_database(unfinished, path))
}

/// Has a file made under a name that nobody else looks at, and gives it its own when it is whole and on disk.
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
            // Most of them are not there, and there is nobody to tell.
            drop(std::fs::remove_file(leftover));
        }
    }
    made
}

/// What jobs are told may be secret, so the file is its owner's alone, and the files that SQLite makes beside it are too.
/// What goes wrong is told of the name that it will have.
fn make_private(new: &Path, path: &Path) -> Result<(), StoreError> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(new);
    made.map(drop).map_err(|e| StoreError::file_write("make", path, e))
}

/// A connection that may write, brought to the newest format.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let conn =
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|fault| explain_open_error(fault, path))?;
    let ready = || -> Result<(), SqlError> {
        if conn.is_readonly("main")? {
            return Err(StoreError::ReadOnly { path: path.to_owned() }.into());
        }
        conn.pragma_update(None, "journal_mode", "WAL")?;
        // An acknowledged commit survives a power cut.
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "foreign_keys", true)?;
        // We decide when, after the answers were given.
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        conn.pragma_update(None, "cache_size", -16 * 1024)?;
        migrate::migrate(&conn, path, MIGRATIONS)
    };
    ready().map_err(|fault| explain_open_error(fault, path))?;
    Ok(conn)
}

/// Somebody who may not write cannot bring a database to the newest format.
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

/// A connection that only reads.
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

/// The file beside the database whose name ends with `suffix`.
pub(crate) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, SqlError> {
    // Each connection belongs to one thread at a time, so SQLite need not lock it.
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // What a savepoint may have to undo is small; it need not touch the disk.
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
        // Without a log nobody can be writing, and without permission nobody of us will.
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

/// SQLite does not miss a part of the last page before it reads it.
fn refuse_torn_page(conn: &Connection, path: &Path) -> Result<(), SqlError> {
    let pages: u32 = conn.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let page_size: u32 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    // Looked at after counting: pages that are still in a log may be missing from the file.
    let log = sibling_path(path, "-wal").metadata().map_or(0, |metadata| metadata.len());
    let found = path.metadata().map_err(|e| StoreError::file("look at", path, e))?.len();
    let expected = u64::from(pages) * u64::from(page_size);
    if log == 0 && found < expected {
        return Err(StoreError::Truncated { path: path.to_owned(), found, expected: Some(expected) }.into());
    }
    Ok(())
}

/// What SQLite says of a file that it cannot open, in our words.
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

/// SQLite wanted to make its log or its shared memory and could not.
fn is_write_refused(fault: &SqlError) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly};
    matches!(fault, SqlError::Sqlite(e) if matches!(e.sqlite_error_code(), Some(CannotOpen | ReadOnly)))
}

/// SQLite keeps its log and its shared memory beside the file.
fn can_write_beside(path: &Path) -> bool {
    let directory = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A file that is about to be made is no obstacle.
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

/// SQLite would apply the log of a database that was deleted to the new one.
fn refuse_leftover_log(path: &Path) -> Result<(), StoreError> {
    let log = sibling_path(path, "-wal");
    match log.metadata() {
        Ok(metadata) if metadata.len() > 0 => Err(StoreError::LeftoverLog { path: path.to_owned(), log }),
        _ => Ok(()),
    }
}

/// Writes a whole database under a name that nobody else looks at; trouble is told in the name it will have.
fn build_database(path: &Path, final_path: &Path) -> Result<(), StoreError> {
    let make = || -> Result<(), SqlError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = connect(path, flags)?;
        // Synced once, as a whole, before it gets its name.
        conn.pragma_update(None, "synchronous", "OFF")?;
        conn.pragma_update(None, "journal_mode", "MEMORY")?;
        conn.pragma_update(None, "application_id", APPLICATION_ID.cast_signed())?;
        migrate::migrate(&conn, path, MIGRATIONS)?;
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
        // Filesystems that cannot: a second name that must be new, then without the first.
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
    fn an_old_sqlite_is_refused() {
        assert!(require_sqlite_version(3_051_003, "3.51.3").is_ok());
        let error = require_sqlite_version(3_051_002, "3.51.2").unwrap_err();
        assert!(error.to_string().contains("3.51.2"), "{error}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn a_file_without_a_new_name_gets_one_by_linking_and_never_replaces() {
        let directory = tempfile::tempdir().unwrap();
        let (new, path) = (directory.path().join("new"), directory.path().join("db"));
        std::fs::write(&new, "one").unwrap();
        link_in_place(&new, &path).unwrap();
        std::fs::write(&new, "two").unwrap();
        assert!(matches!(link_in_place(&new, &path), Err(StoreError::AlreadyExists { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    }

    #[test]
    fn a_path_becomes_a_uri() {
        assert_eq!(frozen_uri(Path::new("/a b/c?d%.db")), "file:/a%20b/c%3fd%25.db?immutable=1");
    }
}
