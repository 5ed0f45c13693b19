//! Transactions that cannot begin, and databases with short timeouts.

use super::{database, open};
use crate::kit::{NOW, claim, commit, counts, create, new_worker, worker};
use crate::postgres_server::Database;
use windlass_store::{StoreError, WorkerStore as _};
use windlass_types::JobStatus;

/// The first statement of every transaction fails with this code.
fn trip(database: &Database, code: &str) {
    database.sql(&format!(
        "CREATE FUNCTION trip() RETURNS trigger AS $$ BEGIN
             RAISE EXCEPTION 'tripped' USING ERRCODE = '{code}';
         END $$ LANGUAGE plpgsql;
         CREATE TRIGGER trip BEFORE UPDATE ON counter FOR EACH STATEMENT EXECUTE FUNCTION trip();"
    ));
}

fn untrip(database: &Database) {
    // A session stuck in a failed transaction would block this statement.
    database.sql("SET lock_timeout = '10s'; DROP TRIGGER trip ON counter; DROP FUNCTION trip();");
}

/// Disk full, canceled, temporarily read-only: all of them are transient.
#[test]
fn failed_transaction_start_is_transient_and_isolated() {
    let database = database();
    let (store, other) = (open(&database), open(&database));
    let (workflow, jobs) = create(&store, 3);
    let first = worker(&store, workflow);
    for (code, job) in ["53100", "57014", "25006"].into_iter().zip(jobs) {
        trip(&database, code);
        let error = store.add_worker(&new_worker(workflow), NOW).unwrap_err();
        assert!(matches!(error, StoreError::Overloaded { .. }), "{code}: {error:?}");
        let error = commit(&store, workflow, vec![claim(job, 1, first)]).unwrap_err();
        assert!(error.is_transient(), "{code}: {error:?}");
        untrip(&database);
        worker(&other, workflow);
        worker(&store, workflow);
        commit(&store, workflow, vec![claim(job, 1, first)]).unwrap();
    }
    assert_eq!(counts(&store, workflow).get(JobStatus::Pending), 3);
    let stuck =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    assert_eq!(database.sql(stuck), "0");
}

#[test]
fn writers_wait_despite_database_timeouts() {
    let database = database();
    drop(open(&database));
    let name = database.sql("SELECT current_database()");
    for setting in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
        database.sql(&format!("ALTER DATABASE {name} SET {setting} = '200ms'"));
    }
    let store = open(&database);
    let (workflow, _) = create(&store, 1);
    std::thread::scope(|scope| {
        // Holds the table until another session waits for it, and then for longer than the timeout.
        scope.spawn(|| {
            database.sql(
                "SET statement_timeout = 0;
                 DO $$ BEGIN
                     LOCK TABLE counter IN SHARE MODE;
                     WHILE NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'counter'::regclass AND NOT granted) LOOP
                         PERFORM pg_sleep(0.01);
                     END LOOP;
                     PERFORM pg_sleep(0.5);
                 END $$",
            )
        });
        let held =
            "SELECT count(*) FROM pg_locks WHERE relation = 'counter'::regclass AND mode = 'ShareLock'";
        while database.sql(held) == "0" {
            std::thread::yield_now();
        }
        worker(&store, workflow);
    });
}
