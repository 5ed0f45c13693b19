//! Locks of workflows and databases.

use super::child;
use crate::kit::NOW;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use windlass_store::lock::{LockScope, ServerLock, WorkflowLock};
use windlass_store::sqlite::SqliteStore;
use windlass_store::{LockedObject, Store as _, StoreError};
use windlass_types::WorkflowId;

const ONE: WorkflowId = WorkflowId(1);
const TWO: WorkflowId = WorkflowId(2);

fn database() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    SqliteStore::create(&db).unwrap();
    (directory, db)
}

#[test]
fn workflow_has_one_run_at_a_time() {
    let (_directory, db) = database();
    assert_eq!(WorkflowLock::find_holder(&db, ONE).unwrap(), None);
    let one = WorkflowLock::acquire(&db, ONE, NOW).unwrap();
    let _two = WorkflowLock::acquire(&db, TWO, NOW).unwrap();

    let error = WorkflowLock::acquire(&db, ONE, NOW).unwrap_err();
    let StoreError::Busy { what: LockedObject::Workflow(ONE), holder: Some(holder) } = &error else {
        panic!("{error}")
    };
    assert_eq!((holder.pid, holder.since), (std::process::id(), NOW));
    assert!(holder.pid_start_ticks > 0 && !holder.host.is_empty() && !holder.command.is_empty());
    let text = error.to_string();
    let expected = format!("workflow 1 is being run by process {} on {}", std::process::id(), holder.host);
    assert!(text.starts_with(&expected), "{text}");
    assert!(error.hint().unwrap().contains("windlass cancel 1"));
    assert_eq!(WorkflowLock::find_holder(&db, ONE).unwrap().as_ref(), Some(holder));

    drop(one);
    assert_eq!(WorkflowLock::find_holder(&db, ONE).unwrap(), None);
    assert!(WorkflowLock::find_holder(&db, TWO).unwrap().is_some());
    WorkflowLock::acquire(&db, ONE, NOW).unwrap();
}

#[test]
fn server_and_runs_exclude_each_other() {
    let (_directory, db) = database();
    let run = WorkflowLock::acquire(&db, ONE, NOW).unwrap();
    let error = ServerLock::acquire(&db, NOW).unwrap_err();
    assert!(
        matches!(&error, StoreError::Busy { what: LockedObject::Database, holder: Some(holder) } if holder.pid == std::process::id()),
        "{error}"
    );
    drop(run);
    let server = ServerLock::acquire(&db, NOW).unwrap();
    for error in
        [ServerLock::acquire(&db, NOW).unwrap_err(), WorkflowLock::acquire(&db, ONE, NOW).unwrap_err()]
    {
        assert!(
            matches!(&error, StoreError::Busy { what: LockedObject::Database, holder: Some(_) }),
            "{error}"
        );
    }
    assert!(WorkflowLock::find_holder(&db, ONE).unwrap().is_some(), "the server runs it");
    drop(server);
    WorkflowLock::acquire(&db, ONE, NOW).unwrap();
}

/// Deletes all lock files, as a user does who considers them leftovers.
fn remove_lock_files(db: &Path) {
    let run = PathBuf::from(format!("{}.run", db.display()));
    std::fs::remove_dir_all(run).unwrap();
}

#[test]
fn removed_server_lock_file_still_excludes_others() {
    let (_directory, db) = database();
    let server = ServerLock::acquire(&db, NOW).unwrap();
    remove_lock_files(&db);
    for error in
        [ServerLock::acquire(&db, NOW).unwrap_err(), WorkflowLock::acquire(&db, ONE, NOW).unwrap_err()]
    {
        assert!(matches!(&error, StoreError::Busy { what: LockedObject::Database, .. }), "{error}");
    }
    // It creates the file again, so that others can identify the holder.
    server.verify().unwrap();
    let error = ServerLock::acquire(&db, NOW).unwrap_err();
    assert!(
        matches!(&error, StoreError::Busy { holder: Some(holder), .. } if holder.pid == std::process::id())
    );
    drop(server);
    ServerLock::acquire(&db, NOW).unwrap();
}

#[test]
fn run_recreates_a_removed_lock_file_or_stops() {
    let (_directory, db) = database();
    let run = WorkflowLock::acquire(&db, ONE, NOW).unwrap();
    remove_lock_files(&db);
    let error = ServerLock::acquire(&db, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::Busy { what: LockedObject::Database, .. }), "{error}");
    run.verify().unwrap();
    let error = WorkflowLock::acquire(&db, ONE, NOW).unwrap_err();
    assert!(
        matches!(&error, StoreError::Busy { what: LockedObject::Workflow(ONE), holder: Some(_) }),
        "{error}"
    );

    remove_lock_files(&db);
    let faster = WorkflowLock::acquire(&db, ONE, NOW).unwrap();
    let error = run.verify().unwrap_err();
    assert!(matches!(error, StoreError::Superseded { .. }), "{error}");
    assert!(run.verify().is_err(), "every time");
    faster.verify().unwrap();
}

#[test]
fn removed_or_replaced_database_is_detected() {
    let (directory, db) = database();
    let run = WorkflowLock::acquire(&db, ONE, NOW).unwrap();
    run.verify().unwrap();
    let aside = directory.path().join("aside.db");
    std::fs::rename(&db, &aside).unwrap();
    let gone = |error: &StoreError| matches!(error, StoreError::FileRemoved { .. }) && error.hint().is_some();
    assert!(run.verify().is_err_and(|error| gone(&error)));
    SqliteStore::create(&db).unwrap();
    assert!(run.verify().is_err_and(|error| gone(&error)), "another file has its name");
    std::fs::rename(&aside, &db).unwrap();
    run.verify().unwrap();
}

#[test]
fn server_of_a_removed_database_does_not_lead() {
    let (directory, db) = database();
    let store = SqliteStore::open(&db, windlass_store::sqlite::OpenMode::ReadWrite).unwrap().store;
    let lease = store.lock(LockScope::Server, NOW).unwrap().leader_lease();
    assert!(lease.is_valid());
    std::fs::rename(&db, directory.path().join("aside.db")).unwrap();
    assert!(!lease.is_valid());
    std::fs::write(&db, "").unwrap();
    assert!(!lease.is_valid(), "another file has its name");
}

/// Closing a descriptor of the file would release the locks of SQLite.
#[test]
fn released_lock_keeps_the_locks_of_sqlite() {
    use std::os::unix::fs::MetadataExt as _;
    let (_directory, db) = database();
    let store = SqliteStore::open(&db, windlass_store::sqlite::OpenMode::ReadWrite).unwrap().store;
    let locks = || {
        let all = std::fs::read_to_string("/proc/locks").unwrap();
        let inode = format!(":{} ", db.metadata().unwrap().ino());
        all.lines().filter(|line| line.contains("POSIX") && line.contains(&inode)).count()
    };
    assert!(locks() > 0, "SQLite has the file open");
    for _ in 0..3 {
        drop(WorkflowLock::acquire(&db, ONE, NOW).unwrap());
        // SQLite itself may take and release further ones meanwhile.
        assert!(locks() > 0);
    }
    drop(store);
}

#[test]
fn symlink_uses_the_same_private_locks() {
    use std::os::unix::fs::MetadataExt;
    let (directory, db) = database();
    let link = directory.path().join("link.db");
    std::os::unix::fs::symlink(&db, &link).unwrap();
    let _run = WorkflowLock::acquire(&link, ONE, NOW).unwrap();
    WorkflowLock::acquire(&db, ONE, NOW).unwrap_err();
    let mode = directory.path().join("windlass.db.run").metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn the_lock_of_a_killed_process_is_free() {
    if let Some(db) = child::part() {
        hold_until_killed(&db);
    }
    let (_directory, db) = database();
    let mut holder = start_holder(&db);
    let error = WorkflowLock::acquire(&db, ONE, NOW).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", holder.id())), "{error}");
    assert_eq!(WorkflowLock::find_holder(&db, ONE).unwrap().unwrap().pid, holder.id());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(WorkflowLock::find_holder(&db, ONE).unwrap(), None);
    WorkflowLock::acquire(&db, ONE, NOW).unwrap();
}

/// Returns once the child has its lock.
fn start_holder(db: &Path) -> Child {
    let mut command = child::command("sqlite::locks::the_lock_of_a_killed_process_is_free", db);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "locked"));
    process
}

fn hold_until_killed(db: &Path) -> ! {
    use std::io::Write;
    let _lock = WorkflowLock::acquire(db, ONE, NOW).unwrap();
    writeln!(std::io::stdout().lock(), "\nlocked").unwrap();
    loop {
        std::thread::park();
    }
}
