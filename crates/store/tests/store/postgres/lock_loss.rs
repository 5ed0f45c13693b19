//! Locks whose connections are lost, and the effect of heartbeats.

use super::{database, open};
use crate::kit::{NOW, create, worker};
use crate::postgres_server::{Database, Server};
use std::time::{Duration, Instant};
use windlass_store::lock::{self, LockScope};
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::OpenMode;
use windlass_store::{Store as _, StoreError};

fn end_connections(database: &Database) {
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn epoch(database: &Database) -> u64 {
    database.sql("SELECT epoch FROM server_epoch").parse().unwrap()
}

#[test]
fn lost_workflow_lock_is_reacquired_if_free() {
    let database = database();
    let (one, other) = (open(&database), open(&database));
    let (workflow, _) = create(&one, 1);
    let held = one.lock(LockScope::Workflow(workflow), NOW).unwrap();
    end_connections(&database);
    eventually("it is acquired again", || {
        held.check().unwrap();
        other.lock_holder(workflow).unwrap().is_some()
    });
    assert!(matches!(other.lock(LockScope::Workflow(workflow), NOW), Err(StoreError::Busy { .. })));

    end_connections(&database);
    let taken = lock::wait_for_lock(&other, LockScope::Workflow(workflow), || NOW, |_| true).unwrap();
    eventually("its loss is reported", || held.check().is_err());
    let error = held.check().unwrap_err();
    assert!(matches!(error, StoreError::Busy { holder: Some(_), .. }), "{error}");
    assert!(held.check().is_err(), "every time");
    drop(taken);
    held.check().unwrap();
}

/// The lock is lost for a moment, in which another process tries to run something.
#[test]
fn recent_heartbeat_keeps_other_processes_out() {
    let database = database();
    let (server, other) = (open(&database), open(&database));
    let (workflow, _) = create(&server, 1);
    let held = server.lock(LockScope::Server, NOW).unwrap();
    let before = epoch(&database);
    for _ in 0..3 {
        end_connections(&database);
        let error = other.lock(LockScope::Workflow(workflow), NOW).unwrap_err();
        assert!(matches!(error, StoreError::Busy { holder: Some(_), .. }), "{error}");
        held.check().unwrap();
        worker(&server, workflow);
    }
    assert_eq!(epoch(&database), before);
    drop(held);
    // It shut down cleanly, so there is no wait.
    drop(other.lock(LockScope::Workflow(workflow), NOW).unwrap());
    assert_eq!(epoch(&database), before);
}

#[test]
fn silent_server_loses_its_lock_after_the_timeout() {
    let database = database();
    let store = open(&database);
    let (workflow, _) = create(&store, 1);
    database.sql(
        "UPDATE server_epoch SET heartbeat_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    );
    let before = epoch(&database);
    let held = store.lock(LockScope::Workflow(workflow), NOW).unwrap();
    let silence = "SELECT heartbeat_at FROM server_epoch";
    assert_eq!((epoch(&database), database.sql(silence).as_str()), (before + 1, "0"));
    drop(held);
    drop(store.lock(LockScope::Workflow(workflow), NOW).unwrap());
    assert_eq!(epoch(&database), before + 1, "once");
}

#[test]
fn server_without_heartbeat_is_uncertain_until_the_next() {
    let database = database();
    let store = open(&database);
    let held = store.lock(LockScope::Server, NOW).unwrap();
    let pulse = held.leader_lease();
    assert!(pulse.is_valid());
    database.sql(
        "CREATE FUNCTION deaf() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'deaf'; END $$ LANGUAGE plpgsql;
         CREATE TRIGGER deaf BEFORE UPDATE ON server_epoch FOR EACH ROW EXECUTE FUNCTION deaf();",
    );
    eventually("it notices", || !pulse.is_valid());
    held.check().unwrap();
    database.sql("DROP TRIGGER deaf ON server_epoch");
    eventually("it is in contact again", || pulse.is_valid());
    drop(held);
}

/// Downtime of the database does not count as silence of the server, which must get time to reconnect.
#[test]
fn locks_survive_a_database_restart() {
    let directory = tempfile::tempdir().unwrap();
    let database = Server::at(directory.path());
    database.start("listen_addresses = ''\nsynchronous_commit = on\n");
    let url = format!("postgres://{}@/postgres?host={}", database.user, directory.path().display());
    let open = || PgStore::open(&url, OpenMode::ReadWrite).unwrap();
    let (server, other) = (open(), open());
    let (workflow, _) = create(&server, 1);
    let held = server.lock(LockScope::Server, NOW).unwrap();
    database.restart();
    let error = other.lock(LockScope::Workflow(workflow), NOW).unwrap_err();
    assert!(matches!(error, StoreError::Busy { holder: Some(_), .. }), "{error}");
    held.check().unwrap();
    worker(&server, workflow);
    drop(held);

    let held = server.lock(LockScope::Workflow(workflow), NOW).unwrap();
    database.restart();
    eventually("it is acquired again", || {
        held.check().unwrap();
        other.lock_holder(workflow).unwrap().is_some()
    });
    assert!(matches!(other.lock(LockScope::Workflow(workflow), NOW), Err(StoreError::Busy { .. })));
}
