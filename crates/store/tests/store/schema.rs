//! Both databases have the same tables with the same columns, although their migrations differ.

use crate::kit::{NOW, create};
use crate::postgres_server::database;
use rusqlite::Connection;
use std::collections::BTreeSet;
use windlass_core::slurm::allocation_rows::{ExternalAllocation, TorcAllocationStatus};
use windlass_store::Store;
use windlass_store::model::AllocationFilter;
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_types::{Timestamp, WorkflowId};

fn of_sqlite() -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("windlass.db");
    SqliteStore::create(&path).unwrap();
    let conn = Connection::open(path).unwrap();
    let mut statement = conn
        .prepare(
            "SELECT t.name || '.' || c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'",
        )
        .unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Without the table of lock holders: SQLite stores them in the lock files.
fn of_postgres() -> BTreeSet<String> {
    let database = database();
    PgStore::open(&database.url(), OpenMode::ReadWrite).unwrap();
    let columns = database.sql(
        "SELECT table_name || '.' || column_name FROM information_schema.columns
         WHERE table_schema = 'public' AND table_name <> 'lock_holder'",
    );
    columns.lines().map(str::to_owned).collect()
}

#[test]
fn both_databases_have_the_same_tables_and_columns() {
    let (sqlite, postgres) = (of_sqlite(), of_postgres());
    assert!(sqlite.contains("worker.secret_hash"), "{sqlite:?}");
    let only =
        |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect::<Vec<_>>();
    assert_eq!(only(&sqlite, &postgres), Vec::<String>::new(), "only SQLite has these");
    assert_eq!(only(&postgres, &sqlite), Vec::<String>::new(), "only PostgreSQL has these");
}

/// Records of clients before the table of allocations, as `(id, status, Slurm job id)`.
const SPOKEN_OF: [(i64, &str, i64); 4] =
    [(1, "pending", 41), (2, "active", 42), (4, "complete", 43), (5, "canceled", -1)];

fn records(workflow: i64) -> String {
    let others = format!(
        "INSERT INTO record (id, workflow_id, kind, data, created_at, changed_at)
         VALUES (3, {workflow}, 'local_scheduler', '{{}}', 1, 1)"
    );
    let rows = SPOKEN_OF.map(|(id, status, job)| {
        format!(
            ", ({id}, {workflow}, 'scheduled_compute_node', '{{\"workflow_id\": {workflow}, \
             \"scheduler_config_id\": 7, \"scheduler_id\": {job}, \"scheduler_type\": \"slurm\", \
             \"status\": \"{status}\"}}', 10, 20)"
        )
    });
    others + &rows.concat()
}

/// They become allocations with the same ids, which workers refer to, and no new one gets one of those.
fn assert_taken_over(store: &dyn Store, workflow: WorkflowId) {
    let filter = AllocationFilter { workflow: Some(workflow), ..AllocationFilter::default() };
    let rows = store.allocations(&filter).unwrap();
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.id.0, TorcAllocationStatus::from_state(row.state, row.end).name()))
        .collect();
    assert_eq!(told, SPOKEN_OF.map(|(id, status, _)| (id, status)));
    let jobs: Vec<_> = rows.iter().map(|row| row.job_id).collect();
    assert_eq!(jobs, [Some(41), Some(42), Some(43), Some(0)]);
    assert!(rows.iter().all(|row| !row.is_ours && row.scheduler == Some(7)), "{rows:?}");
    assert!(rows.iter().all(|row| row.request.scheduler == "slurm"), "{rows:?}");
    assert_eq!(rows[3].ended_at, Some(Timestamp(20)));
    assert_eq!(store.records(Some(workflow), "scheduled_compute_node").unwrap(), []);
    assert_eq!(store.records(Some(workflow), "local_scheduler").unwrap().len(), 1);
    let stated = ExternalAllocation {
        workflow,
        job_id: 50,
        scheduler: 7,
        scheduler_type: "slurm".into(),
        status: TorcAllocationStatus::Pending,
    };
    assert!(store.record_client_allocation(None, &stated, NOW).unwrap().0 > 5);
}

/// The renames of a migration in reverse order, for a database as it was before.
fn revert_plain_names(migration: &str) -> String {
    let renames = migration.lines().filter(|line| line.starts_with("ALTER ")).map(|line| {
        let words: Vec<&str> = line.trim_end_matches(';').split(' ').collect();
        match words[..] {
            ["ALTER", "TABLE", table, "RENAME", "COLUMN", old, "TO", new] => {
                format!("ALTER TABLE {table} RENAME COLUMN {new} TO {old};")
            }
            ["ALTER", kind, old, "RENAME", "TO", new] => format!("ALTER {kind} {new} RENAME TO {old};"),
            _ => panic!("not a rename: {line}"),
        }
    });
    renames.collect::<Vec<_>>().into_iter().rev().collect()
}

const SQLITE_INDEXES_BEFORE_PLAIN_NAMES: &str = "
    DROP INDEX job_group_by_workflow; CREATE INDEX job_kind_of ON job_kind (workflow_id);
    DROP INDEX next_attempt_by_run; CREATE INDEX carried_in ON carried (workflow_id, run_id);
    DROP INDEX ignored_failure_by_run; CREATE INDEX ignored_in ON ignored (workflow_id, run_id);
    DROP INDEX pending_command_by_workflow; CREATE INDEX wish_in ON wish (workflow_id, answered_at);
    DROP INDEX alert_not_notified; CREATE INDEX alert_untold ON alert (id) WHERE told_at IS NULL;";

#[test]
fn sqlite_migrates_client_allocations() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("windlass.db");
    let workflow = create(&SqliteStore::create(&path).unwrap().store, 1).0;
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(&revert_plain_names(include_str!("../../migrations/sqlite/0015_plain_names.sql")))
        .unwrap();
    conn.execute_batch(SQLITE_INDEXES_BEFORE_PLAIN_NAMES).unwrap();
    conn.execute_batch(&format!(
        "DROP TABLE allocation; DROP TABLE slurm_calls; {};
         ALTER TABLE revision DROP COLUMN attempts; ALTER TABLE decision DROP COLUMN overtaken_at;
         ALTER TABLE carried DROP COLUMN delay_us;
         DROP TABLE request_output; ALTER TABLE dataset DROP COLUMN owner;
         ALTER TABLE request_run DROP COLUMN priority; ALTER TABLE job DROP COLUMN options;
         DELETE FROM schema_migration WHERE version >= 8; PRAGMA user_version = 7",
        records(workflow.0)
    ))
    .unwrap();
    drop(conn);
    assert_taken_over(&SqliteStore::open(&path, OpenMode::ReadWrite).unwrap().store, workflow);
}

#[test]
fn postgres_migrates_client_allocations() {
    let database = database();
    let workflow = create(&PgStore::open(&database.url(), OpenMode::ReadWrite).unwrap(), 1).0;
    database.sql(&revert_plain_names(include_str!("../../migrations/postgres/0014_plain_names.sql")));
    database.sql(
        "ALTER TABLE revision DROP COLUMN attempts; ALTER TABLE decision DROP COLUMN overtaken_at;
         ALTER TABLE carried DROP COLUMN delay_us",
    );
    database.sql("DROP TABLE request_output; ALTER TABLE dataset DROP COLUMN owner");
    database.sql("ALTER TABLE request_run DROP COLUMN priority; ALTER TABLE job DROP COLUMN options");
    database.sql(
        "ALTER TABLE node_aside DROP CONSTRAINT node_aside_pkey; ALTER TABLE node_aside DROP COLUMN user_name;
         ALTER TABLE node_aside ADD PRIMARY KEY (host)",
    );
    database.sql(
        "DROP TABLE allocation; DROP TABLE slurm_calls; DELETE FROM schema_migration WHERE version >= 7",
    );
    database.sql(&records(workflow.0));
    database.sql("SELECT setval(pg_get_serial_sequence('record', 'id'), 5)");
    assert_taken_over(&PgStore::open(&database.url(), OpenMode::ReadWrite).unwrap(), workflow);
}
