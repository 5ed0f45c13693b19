//! Files of other programs, and damaged databases, are rejected with a specific error and left unchanged.

use super::child;
use crate::kit::{NOW, claim, commit, create, worker};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use windlass_store::lock::WorkflowLock;
use windlass_store::sqlite::{OpenMode, OpenWarning, SqliteStore};
use windlass_store::{Store, StoreError};
use windlass_types::WorkflowId;

const MODES: [OpenMode; 2] = [OpenMode::ReadWrite, OpenMode::ReadOnly];

/// A closed database with a few hundred jobs.
fn database() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let store = SqliteStore::create(&db).unwrap().store;
    create(&store, 500);
    (directory, db)
}

/// Returns the error in both modes, after checking that it has a hint and that the file was not changed.
fn refused(db: &Path) -> Vec<StoreError> {
    let before = std::fs::read(db).ok();
    let refuse = |mode| {
        let error = SqliteStore::open(db, mode).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        assert!(
            error.to_string().contains(&*db.canonicalize().unwrap_or(db.into()).to_string_lossy()),
            "{error}"
        );
        assert!(!error.is_transient(), "{error}");
        error
    };
    let errors = MODES.map(refuse).to_vec();
    assert_eq!(std::fs::read(db).ok(), before, "the file was changed");
    errors
}

#[test]
fn missing_file_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    for error in refused(&directory.path().join("nowhere.db")) {
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "a file was created");
}

#[test]
fn directory_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    for error in refused(directory.path()) {
        assert!(matches!(error, StoreError::NotAFile { .. }), "{error}");
    }
    let error = SqliteStore::open_or_create(directory.path()).unwrap_err();
    assert!(matches!(error, StoreError::NotAFile { .. }), "{error}");
}

#[test]
fn text_file_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("notes.txt");
    for text in ["x", "not a database\n", &"lorem ipsum ".repeat(1000)] {
        std::fs::write(&file, text).unwrap();
        for error in refused(&file) {
            assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
        }
    }
}

#[test]
fn database_of_another_program_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.db");
    let conn = rusqlite::Connection::open(&file).unwrap();
    conn.execute_batch("PRAGMA application_id = 42; CREATE TABLE job (id INTEGER PRIMARY KEY)").unwrap();
    drop(conn);
    for error in refused(&file) {
        assert!(matches!(error, StoreError::OtherApplication { application_id: 42, .. }), "{error}");
    }
}

#[test]
fn database_of_a_newer_version_is_rejected() {
    let (_directory, db) = database();
    let conn = rusqlite::Connection::open(&db).unwrap();
    conn.pragma_update(None, "user_version", 1000).unwrap();
    drop(conn);
    for error in refused(&db) {
        assert!(matches!(error, StoreError::FormatTooNew { found: 1000, .. }), "{error}");
    }
}

#[test]
fn database_with_another_history_is_rejected() {
    let (_directory, db) = database();
    let conn = rusqlite::Connection::open(&db).unwrap();
    conn.execute("UPDATE schema_migration SET checksum = 'other'", []).unwrap();
    drop(conn);
    for error in refused(&db) {
        assert!(matches!(error, StoreError::DifferentHistory { version: 1, .. }), "{error}");
    }
}

#[test]
fn empty_file_is_not_an_empty_database() {
    let (_directory, db) = database();
    std::fs::write(&db, "").unwrap();
    for error in refused(&db) {
        assert!(matches!(error, StoreError::Truncated { found: 0, .. }), "{error}");
    }
    let error = SqliteStore::open_or_create(&db).unwrap_err();
    assert!(matches!(error, StoreError::Truncated { found: 0, .. }), "{error}");
}

#[test]
fn truncated_file_is_rejected() {
    let (_directory, db) = database();
    let whole = std::fs::read(&db).unwrap();
    for length in [60, 4096, 8192, 8200, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        std::fs::write(&db, &whole[..length]).unwrap();
        for error in refused(&db) {
            assert!(
                matches!(error, StoreError::Truncated { found, .. } if found == length as u64),
                "{length}: {error}"
            );
        }
    }
    std::fs::write(&db, &whole).unwrap();
    SqliteStore::open(&db, OpenMode::ReadWrite).unwrap();
}

#[test]
fn corruption_is_named_on_read() {
    let (_directory, db) = database();
    let whole = std::fs::read(&db).unwrap();
    let mut met = 0;
    // Page by page, like damage by a faulty disk.
    for page in 1..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..page * 4096 + 512].fill(0xa5);
        std::fs::write(&db, damaged).unwrap();
        let outcome = SqliteStore::open(&db, OpenMode::ReadOnly).and_then(|opened| {
            let id = opened.store.workflows()?.first().map(|row| row.id);
            id.map_or(Ok(()), |id| {
                let table = opened.store.load_jobs(id)?;
                opened.store.load_job_commands(&table.ids).map(drop)
            })
        });
        if let Err(error) = outcome {
            assert!(matches!(error, StoreError::Damaged { .. }), "page {page}: {error:?}");
            assert!(error.hint().unwrap().contains("recover"));
            met += 1;
        }
    }
    assert!(met > 5, "only {met} damaged pages were detected");
}

#[test]
fn corruption_on_write_is_named_and_permanent() {
    let (_directory, db) = database();
    let store = SqliteStore::open(&db, OpenMode::ReadWrite).unwrap().store;
    let row = &store.workflows().unwrap()[0];
    let (workflow, jobs) = (row.id, store.load_jobs(row.id).unwrap().ids);
    let worker = worker(&store, workflow);
    drop(store);
    let mut bytes = std::fs::read(&db).unwrap();
    // All pages with job names, except the schema, which SQLite reads first.
    let has_jobs = |page: &&mut [u8]| page.windows(6).any(|window| window == b"job_00");
    let mut damaged = 0;
    for page in bytes.chunks_mut(4096).filter(has_jobs) {
        page[..100].fill(0xa5);
        damaged += 1;
    }
    assert!(damaged > 1);
    std::fs::write(&db, bytes).unwrap();
    let store = SqliteStore::open(&db, OpenMode::ReadWrite).unwrap().store;
    let error = commit(&store, workflow, vec![claim(jobs[0], 1, worker)]).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    assert!(error.is_damage() && !error.is_transient());
}

#[test]
fn existing_database_is_not_created_again() {
    let (directory, db) = database();
    let error = SqliteStore::create(&db).unwrap_err();
    assert!(matches!(error, StoreError::AlreadyExists { .. }), "{error}");
    let opened = SqliteStore::open_or_create(&db).unwrap();
    assert_eq!(opened.store.workflows().unwrap().len(), 1);
    drop(opened);
    let names: Vec<_> =
        directory.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["windlass.db"], "something was left behind");
}

#[test]
fn wal_of_a_lost_database_is_not_applied() {
    let (directory, db) = database();
    let log = directory.path().join("windlass.db-wal");
    std::fs::remove_file(&db).unwrap();
    std::fs::write(&log, "something").unwrap();
    for error in [SqliteStore::create(&db).unwrap_err(), SqliteStore::open_or_create(&db).unwrap_err()] {
        assert!(matches!(error, StoreError::LeftoverLog { .. }), "{error}");
        assert!(error.hint().unwrap().contains("windlass.db-wal"));
    }
    std::fs::remove_file(&log).unwrap();
    SqliteStore::create(&db).unwrap();
}

#[test]
fn missing_directory_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let error = SqliteStore::open_or_create(directory.path().join("no/such/windlass.db")).unwrap_err();
    assert!(matches!(error, StoreError::File { .. }), "{error:?}");
    assert!(error.to_string().ends_with("no/such/windlass.db"), "{error}");
    assert!(error.hint().unwrap().contains("exists"));
}

#[test]
fn read_only_store_rejects_writes() {
    let (_directory, db) = database();
    let store = SqliteStore::open(&db, OpenMode::ReadOnly).unwrap().store;
    let id = store.workflows().unwrap()[0].id;
    let error = store.begin_run(id, crate::kit::NOW).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    let error = commit(&store, id, vec![]).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
}

/// Root ignores permissions, so this runs as another user.
#[test]
fn unwritable_directory_is_rejected() {
    if let Some(directory) = child::part() {
        without_permission(&directory);
        return;
    }
    let (directory, db) = database();
    let program = directory.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(&program, 0o755);
    mode(&db, 0o444);
    std::fs::copy(&db, directory.path().join("secret.db")).unwrap();
    mode(&directory.path().join("secret.db"), 0o000);
    mode(directory.path(), 0o555);
    let test = "sqlite::rejected_files::unwritable_directory_is_rejected";
    let mut command = child::command_of(&program, test, directory.path());
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.current_dir("/").output().unwrap();
    mode(directory.path(), 0o755);
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{complaint}");
}

fn without_permission(directory: &Path) {
    let db = directory.join("windlass.db");
    for error in [
        SqliteStore::open(&db, OpenMode::ReadWrite).unwrap_err(),
        SqliteStore::create(directory.join("new.db")).unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
        assert!(!error.to_string().contains(".new"), "the error names a temporary file: {error}");
        assert!(error.hint().unwrap().contains("writable"));
    }
    let error = SqliteStore::open(directory.join("secret.db"), OpenMode::ReadOnly).unwrap_err();
    assert!(matches!(error, StoreError::CannotOpen { .. }), "{error:?}");
    // Reading works anyway, with a warning.
    let opened = SqliteStore::open(&db, OpenMode::ReadOnly).unwrap();
    assert!(matches!(opened.warnings[..], [OpenWarning::Frozen { .. }]), "{:?}", opened.warnings);
    assert_eq!(opened.store.workflows().unwrap()[0].counts.total(), 500);
}

#[test]
fn lock_directory_writable_by_others_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    drop(SqliteStore::create(&db).unwrap());
    let run = directory.path().join("windlass.db.run");
    let victim = directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();

    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
    let error = WorkflowLock::acquire(&db, WorkflowId(1), NOW).unwrap_err();
    assert!(matches!(error, StoreError::NotPrivate { .. }) && error.hint().is_some(), "{error}");

    // A symbolic link in the private directory is not followed either.
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&victim, run.join("workflow-1.lock")).unwrap();
    assert!(WorkflowLock::acquire(&db, WorkflowId(1), NOW).is_err());
    assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
}
