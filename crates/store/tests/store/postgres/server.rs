//! One server at a time: locks, takeover, restrictions of a superseded server; lost connections.

use super::{database, open};
use crate::kit::{NOW, claim, commit, counts, create, worker};
use windlass_store::lock::{self, LockScope};
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::OpenMode;
use windlass_store::{Store as _, StoreError, StoreLocation};
use windlass_types::JobStatus;

#[test]
fn workflow_and_server_locks_exclude_each_other() {
    let database = database();
    let (one, other) = (open(&database), open(&database));
    let (workflow, _) = create(&one, 1);
    let held = one.lock(LockScope::Workflow(workflow), NOW).unwrap();
    held.check().unwrap();
    for store in [&one, &other] {
        let error = store.lock(LockScope::Workflow(workflow), NOW).unwrap_err();
        assert!(
            matches!(&error, StoreError::Busy { holder: Some(holder), .. } if holder.pid == std::process::id()),
            "{error}"
        );
    }
    let error = other.lock(LockScope::Server, NOW).unwrap_err();
    assert!(matches!(error, StoreError::Busy { holder: Some(_), .. }), "{error}");
    assert_eq!(other.lock_holder(workflow).unwrap().unwrap().pid, std::process::id());
    drop(held);
    let server = lock::wait_for_lock(&other, LockScope::Server, || NOW, |_| true).unwrap();
    assert!(matches!(one.lock(LockScope::Workflow(workflow), NOW), Err(StoreError::Busy { .. })));
    assert!(one.lock_holder(workflow).unwrap().is_some());
    // The server owns every workflow.
    drop(other.lock(LockScope::Workflow(workflow), NOW).unwrap());
    drop(server);
    drop(lock::wait_for_lock(&one, LockScope::Workflow(workflow), || NOW, |_| true).unwrap());
    drop(one.lock(LockScope::Create, NOW).unwrap());
}

#[test]
fn superseded_server_cannot_write() {
    let database = database();
    let (old, new) = (open(&database), open(&database));
    let (workflow, jobs) = create(&old, 2);
    let first = worker(&old, workflow);
    let old_lock = old.lock(LockScope::Server, NOW).unwrap();
    commit(&old, workflow, vec![claim(jobs[0], 1, first)]).unwrap();
    // Simulates missing heartbeats.
    database.sql(
        "CREATE FUNCTION unheard() RETURNS trigger AS $$ BEGIN
             IF NEW.epoch = OLD.epoch THEN NEW.heartbeat_at := 0; END IF;
             RETURN NEW;
         END $$ LANGUAGE plpgsql;
         CREATE TRIGGER unheard BEFORE UPDATE ON server_epoch FOR EACH ROW EXECUTE FUNCTION unheard();",
    );
    let new_lock = lock::wait_for_lock(&new, LockScope::Server, || NOW, |_| true).unwrap();
    let error = commit(&old, workflow, vec![claim(jobs[1], 1, first)]).unwrap_err();
    assert!(matches!(error, StoreError::Superseded { .. }), "{error}");
    assert!(matches!(create_one(&old), Err(StoreError::Superseded { .. })));
    commit(&new, workflow, vec![claim(jobs[1], 1, first)]).unwrap();
    assert_eq!(counts(&new, workflow).get(JobStatus::Pending), 2);
    new_lock.check().unwrap();
    drop((old_lock, new_lock));
}

fn create_one(store: &PgStore) -> Result<windlass_types::WorkflowId, StoreError> {
    let edges = windlass_core::dependency_edges::DependencyEdges::default();
    let none = std::iter::empty::<windlass_store::model::NewJob<'_>>();
    store.create_workflow(
        &crate::kit::workflow(&[], &edges),
        &mut windlass_store::model::InMemoryJobSource::new(none),
        NOW,
    )
}

#[test]
fn lost_connections_are_reopened() {
    let database = database();
    let store = open(&database);
    let (workflow, jobs) = create(&store, 3);
    let first = worker(&store, workflow);
    for job in jobs {
        database.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        assert!(store.workflow(workflow).unwrap().is_some());
        commit(&store, workflow, vec![claim(job, 1, first)]).unwrap();
    }
    assert_eq!(counts(&store, workflow).get(JobStatus::Pending), 3);
}

#[test]
fn foreign_database_is_rejected() {
    let database = database();
    database.sql("CREATE TABLE customers (id INT)");
    let error = PgStore::open(&database.url(), OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(&error, StoreError::ForeignDatabase { table, .. } if table == "customers"), "{error}");
    let nowhere = PgStore::open("postgres://ann:secret@/x?host=/nowhere", OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(nowhere, StoreError::Unreachable { .. }), "{nowhere}");
    assert!(nowhere.is_transient() && !format!("{nowhere:?} {nowhere}").contains("secret"));
    let unknown = database.url().replace("/test_", "/no_test_");
    let error = PgStore::open(&unknown, OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(error, StoreError::AccessDenied { .. }), "{error}");
}

#[test]
fn readers_do_not_change_old_or_empty_databases() {
    let database = database();
    let error = PgStore::open(&database.url(), OpenMode::ReadOnly).unwrap_err();
    assert!(matches!(error, StoreError::FormatTooOld { .. }), "{error}");
    drop(open(&database));
    let reader = PgStore::open(&database.url(), OpenMode::ReadOnly).unwrap();
    assert!(matches!(reader.location(), StoreLocation::Postgres { .. }));
    assert!(reader.workflows().unwrap().is_empty());
    assert!(matches!(create_one(&reader), Err(StoreError::ReadOnly { .. })));
}

#[test]
fn only_foreign_commits_are_counted() {
    let database = database();
    let (one, other) = (open(&database), open(&database));
    let before = one.foreign_commit_count(true).unwrap().unwrap();
    let (workflow, _) = create(&one, 1);
    one.begin_run(workflow, NOW).unwrap();
    assert_eq!(one.foreign_commit_count(true).unwrap(), Some(before));
    other.request_cancel(workflow, NOW).unwrap();
    assert_ne!(one.foreign_commit_count(true).unwrap(), Some(before));
}
