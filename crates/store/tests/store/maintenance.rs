//! Whole databases: backup, check, copy.

use crate::kit::{NOW, claim, commit, create, end, key, worker};
use crate::postgres_server::database;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use windlass_store::lock::LockScope;
use windlass_store::model::{EventFilter, ExportOptions, FileUpdate, NewUserData};
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_store::{Store, StoreError, WorkerStore as _, maintenance};
use windlass_types::{JobStatus, WorkflowId};

/// A file with rows in all tables, and the expected contents of a copy.
fn job_store() -> (tempfile::TempDir, PathBuf, SqliteStore, Vec<WorkflowId>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("windlass.db");
    let store = SqliteStore::create(&path).unwrap().store.acting_as("ada");
    let mut ids = Vec::new();
    for jobs in [3, 200] {
        let (workflow, jobs) = create(&store, jobs);
        store.begin_run(workflow, NOW).unwrap();
        let first = worker(&store, workflow);
        let done = end(key(workflow, jobs[0], 1), first, JobStatus::Completed);
        commit(&store, workflow, vec![claim(jobs[0], 1, first), done]).unwrap();
        let file = store.add_file(workflow, "odd\tname\\N", "/a\nb", NOW).unwrap();
        store
            .update_file(file, &FileUpdate { path: Some("/a".into()), ..FileUpdate::default() }, NOW)
            .unwrap();
        let data = serde_json::json!({ "text": "tab\t and \\ and ünïcode", "n": [1, 2.5, null] });
        let new = NewUserData { name: "input", data: Some(&data), is_ephemeral: false };
        store.add_user_data(workflow, &new, NOW).unwrap();
        store.retire_worker(first, NOW).unwrap();
        ids.push(workflow);
    }
    // Its id is never reused.
    let (last, _) = create(&store, 1);
    store.delete_workflow(last, NOW).unwrap();
    (directory, path, store, ids)
}

/// All of a workflow, with its events.
fn told(store: &dyn Store, workflow: WorkflowId) -> String {
    let options = ExportOptions { results: true, events: true };
    let export = serde_json::to_string(&store.export_workflow(workflow, options, NOW).unwrap()).unwrap();
    format!("{export} {:?}", store.events(None, &EventFilter::default()).unwrap())
}

fn problems(location: &str) -> Vec<String> {
    let checked = maintenance::check_database_invariants(location).unwrap();
    assert!(checked.checks > 10);
    checked.problems.into_iter().map(|problem| problem.what).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn backup_runs_beside_writes_and_never_overwrites() {
    let (directory, path, store, ids) = job_store();
    let to = directory.path().join("backup.db");
    let bytes = maintenance::backup_database(&path, &to).unwrap();
    assert_eq!(bytes, to.metadata().unwrap().len());
    let copy = SqliteStore::open(&to, OpenMode::ReadWrite).unwrap().store;
    for id in ids {
        assert_eq!(told(&copy, id), told(&store, id));
    }
    assert_eq!(problems(text(&to)), [""; 0]);
    // The original continues to work.
    create(&store, 1);
    assert!(matches!(maintenance::backup_database(&path, &to), Err(StoreError::AlreadyExists { .. })));
    assert!(matches!(maintenance::backup_database(&to, &path), Err(StoreError::AlreadyExists { .. })));
    let nowhere = directory.path().join("no/such/place.db");
    maintenance::backup_database(&path, &nowhere).unwrap_err();
}

#[test]
fn check_finds_inconsistencies() {
    let (_directory, path, store, _) = job_store();
    assert_eq!(problems(text(&path)), [""; 0]);
    drop(store);
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "foreign_keys", false).unwrap();
    conn.execute_batch(
        "UPDATE status_count SET n = n + 1 WHERE status = 2;
         INSERT INTO job_edge VALUES (1, 1, 4711);
         DELETE FROM job WHERE id = 3;
         UPDATE job SET has_files = 1 WHERE id = 2;
         UPDATE counter SET next_value = 1;",
    )
    .unwrap();
    let found = problems(text(&path)).join("\n");
    for word in [
        "job counts by state",
        "dependencies",
        "blocks do not match",
        "`has_files`",
        "already used",
        "refer to",
    ] {
        assert!(found.contains(word), "{word} in {found}");
    }
}

#[test]
fn database_is_copied_to_postgres() {
    let (_directory, path, store, ids) = job_store();
    let before: Vec<String> = ids.iter().map(|id| told(&store, *id)).collect();
    let (next, _) = create(&store, 1);
    store.delete_workflow(next, NOW).unwrap();
    let last_event = store.events(None, &EventFilter::default()).unwrap().pop().unwrap();
    let target = database();
    let busy = store.lock(LockScope::Workflow(ids[0]), NOW).unwrap();
    assert!(matches!(
        maintenance::copy_database(&path, &target.url(), NOW, |_| {}),
        Err(StoreError::Busy { .. })
    ));
    drop(busy);
    let mut tables = Vec::new();
    let copied =
        maintenance::copy_database(&path, &target.url(), NOW, |table| tables.push(table.clone())).unwrap();
    assert_eq!(copied.tables, tables);
    assert!(tables.iter().any(|table| table.table == "job" && table.rows == 203), "{tables:?}");
    assert_eq!(problems(&target.url()), [""; 0]);

    let moved = PgStore::open(&target.url(), OpenMode::ReadWrite).unwrap();
    for (id, before) in ids.iter().zip(&before) {
        // The events of the deleted workflow are there, too.
        let after = told(&moved, *id);
        assert_eq!(after.split(" [EventRow").next(), before.split(" [EventRow").next());
    }
    assert_eq!(moved.events(None, &EventFilter::default()).unwrap().pop().unwrap(), last_event);
    // Ids continue, also after deleted rows.
    let (new, jobs) = create(&moved, 2);
    assert!(new.0 > next.0, "{new} after {next}");
    assert!(jobs[0].0 > 205, "{}", jobs[0]);
    assert!(matches!(
        maintenance::copy_database(&path, &target.url(), NOW, |_| {}),
        Err(StoreError::NotEmpty { .. })
    ));
}

#[test]
fn migration_reports_both_versions() {
    let (_directory, path, store, _) = job_store();
    drop(store);
    let migrated = maintenance::migrate_database(text(&path)).unwrap();
    assert_eq!(migrated.before, migrated.after);
    let target = database();
    let migrated = maintenance::migrate_database(&target.url()).unwrap();
    assert!(migrated.before == 0 && migrated.after > 0, "{migrated:?}");
    assert_eq!(maintenance::migrate_database(&target.url()).unwrap().before, migrated.after);
}
