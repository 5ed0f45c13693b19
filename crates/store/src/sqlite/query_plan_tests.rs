//! Checks SQLite's query plans: statements for one job must not read other jobs, and lists of few rows must not
//! scan large tables.

use super::SqliteStore;
use crate::model::{JobFilter, ResultFilter};
use crate::sql::{common, datasets, requests, sqlite, workers_and_parts};
use crate::sql_store::queries::{jobs_query, results_query};
use crate::sql_store::requests::build_query;
use rusqlite::Connection;
use windlass_types::{JobId, JobStatus, RunId, WorkflowId};

fn database() -> (tempfile::TempDir, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("windlass.db");
    SqliteStore::create(&path).unwrap();
    let conn = Connection::open(path).unwrap();
    // Otherwise every plan also contains the foreign key lookups of deletions.
    conn.pragma_update(None, "foreign_keys", false).unwrap();
    (directory, conn)
}

fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut plan = String::new();
    while let Some(row) = rows.next().unwrap() {
        plan += &row.get::<_, String>(3).unwrap();
        plan += "\n";
    }
    plan
}

const WORKFLOW: WorkflowId = WorkflowId(1);

fn jobs_plan(conn: &Connection, filter: &JobFilter) -> String {
    let query = jobs_query::<Connection>(WORKFLOW, RunId(1), filter, common::JobColumns::Row, None);
    plan(conn, &query.unwrap().sql)
}

#[test]
fn every_sql_statement_is_valid() {
    let (_directory, conn) = database();
    for (name, sql) in common::ALL.iter().chain(workers_and_parts::ALL).chain(sqlite::ALL) {
        let complete = if name.starts_with("SELECT_") { format!("{sql} 1 = 1") } else { (*sql).to_owned() };
        conn.prepare(&complete).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    for (name, sql) in requests::ALL.iter().chain(datasets::ALL) {
        let complete = match sql.trim_end() {
            open if open.ends_with("WHERE") => format!("{open} 1 = 1"),
            open if name.starts_with("VIEWED_") => format!("{open} IN ('a')"),
            whole => whole.to_owned(),
        };
        conn.prepare(&complete).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    for from in [common::RowLookup::Anywhere, common::RowLookup::Blocks] {
        for select in [
            common::select_jobs(from, common::JobColumns::Row),
            common::select_jobs(from, common::JobColumns::All),
            common::select_results(from),
            common::count_jobs(from),
            common::count_results(from),
        ] {
            conn.prepare(&format!("{select} 1 = 1")).unwrap();
        }
    }
    for (rows, are_plain) in [(1, false), (64, false), (64, true)] {
        conn.prepare(&sqlite::insert_jobs(rows, are_plain)).unwrap();
    }
}

#[test]
fn job_statements_use_the_primary_key() {
    let (_directory, conn) = database();
    let per_job = [
        common::SET_STATUS,
        common::CLAIM_JOB,
        common::START_JOB,
        common::END_ATTEMPT,
        common::RELEASE_CLAIM,
        common::JOB_STATE,
        common::RESET_JOB,
        common::JOB_COMMAND,
        common::JOB_NAME,
    ];
    for sql in per_job {
        assert_eq!(plan(&conn, sql), "SEARCH job USING INTEGER PRIMARY KEY (rowid=?)\n", "{sql}");
    }
}

#[test]
fn job_and_result_queries_avoid_table_scans() {
    let (_directory, conn) = database();
    let all_of_them = |name: &str| name == "WORKFLOWS" || name.starts_with("SELECT_");
    // Allowed scans: a small partial index; a literal list; a table of one or a few rows.
    let few = [
        "SCAN job USING INDEX job_watched",
        "SCAN r USING INDEX run_open",
        "SCAN d",
        "SCAN (subquery-",
        "SCAN quarantined_node",
    ];
    let alone =
        common::ALL.iter().chain(workers_and_parts::ALL).filter(|(name, _)| !all_of_them(name)).copied();
    let deleting = common::DELETE_JOBS.iter().chain(common::DELETE_OF_WORKFLOW).map(|sql| (*sql, *sql));
    for (name, sql) in alone.chain(deleting) {
        let plan = plan(&conn, sql);
        let reads_all = |line: &str| line.starts_with("SCAN") && !few.iter().any(|few| line.starts_with(few));
        assert!(!plan.lines().any(reads_all), "{name}: {plan}");
    }
}

#[test]
fn failed_and_held_jobs_are_found_by_index() {
    let (_directory, conn) = database();
    assert_eq!(
        plan(&conn, common::HELD_JOBS).lines().next(),
        Some("SEARCH job USING INDEX job_watched (workflow_id=? AND status>? AND status<?)")
    );
    let failed = jobs_plan(&conn, &JobFilter { status: vec![JobStatus::Failed], ..JobFilter::default() });
    assert!(failed.starts_with("SEARCH j USING INDEX job_watched (workflow_id=? AND status=?)"), "{failed}");
    assert!(!failed.contains("TEMP B-TREE"), "{failed}");
    let unhappy =
        vec![JobStatus::Failed, JobStatus::Canceled, JobStatus::Terminated, JobStatus::PendingFailed];
    let unhappy = jobs_plan(&conn, &JobFilter { status: unhappy, ..JobFilter::default() });
    assert!(unhappy.starts_with("SEARCH j USING INDEX job_watched (workflow_id=? AND status"), "{unhappy}");
    for (sql, index) in [
        (common::FAILURES_AFTER, "SEARCH f USING INDEX failure_noted (workflow_id=? AND seq>?)"),
        (common::INSERT_FAILURE, "COVERING INDEX failure_noted (workflow_id=? AND seq>?)"),
        (common::SITE_COUNTS, "SEARCH site_count USING PRIMARY KEY (workflow_id=?)"),
    ] {
        let plan = plan(&conn, sql);
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
    }
    for (sql, index) in [
        (common::JOBS_OF_FILE, "job_file_by_file (file_id=?)"),
        (common::JOBS_OF_USER_DATA, "job_user_data_by_piece (user_data_id=?)"),
    ] {
        let plan = plan(&conn, sql);
        assert!(plan.contains(index) && plan.contains("COVERING"), "{plan}");
    }
    let worker = plan(&conn, workers_and_parts::ACTIVE_WORKERS_OF);
    assert!(worker.contains("INDEX worker_of (workflow_id=? AND ended_at=?)"), "{worker}");
    let digest = plan(&conn, common::NEWEST_BY_DIGEST);
    assert!(digest.contains("INDEX workflow_by_digest (spec_digest=? AND submission_dir=?)"), "{digest}");
}

#[test]
fn lists_of_jobs_stay_within_their_workflow() {
    let (_directory, conn) = database();
    let named = JobFilter { name: Some("a".into()), ..JobFilter::default() };
    let named = jobs_plan(&conn, &named);
    assert!(named.contains("(workflow_id=? AND name=?)"), "{named}");
    let by_id = jobs_plan(&conn, &JobFilter { ids: vec![JobId(3), JobId(5)], ..JobFilter::default() });
    assert!(by_id.starts_with("SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"), "{by_id}");
    for status in [vec![], vec![JobStatus::Ready], vec![JobStatus::Ready, JobStatus::Failed]] {
        let plan = jobs_plan(&conn, &JobFilter { status, ..JobFilter::default() });
        let by_block = "SEARCH b USING PRIMARY KEY (workflow_id=?)\n\
                        SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)";
        assert!(plan.starts_with(by_block), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "a page would read the whole list: {plan}");
    }
}

#[test]
fn lists_of_results_stay_within_their_workflow() {
    let (_directory, conn) = database();
    let all = plan(&conn, &results_query::<Connection>(WORKFLOW, &ResultFilter::default()).unwrap().sql);
    assert!(all.contains("SEARCH r USING INDEX") && all.contains("(job_id>? AND job_id<?)"), "{all}");
    let failed = ResultFilter { failed_only: true, ..ResultFilter::default() };
    let failed = plan(&conn, &results_query::<Connection>(WORKFLOW, &failed).unwrap().sql);
    assert!(failed.contains("INDEX result_unsuccessful (job_id>? AND job_id<?)"), "{failed}");
    let of_job = ResultFilter { job: Some(JobId(7)), ..ResultFilter::default() };
    let of_job = plan(&conn, &results_query::<Connection>(WORKFLOW, &of_job).unwrap().sql);
    assert!(of_job.contains("(job_id=?"), "{of_job}");
    for plan in [all, failed, of_job] {
        // Sorting the attempts of one job is acceptable, sorting everything is not.
        assert!(!plan.contains("TEMP B-TREE FOR ORDER BY"), "{plan}");
    }
}

/// Returns the plan of a statement for a few requests.
fn plan_of_views(conn: &Connection, base: &str, order: &str) -> String {
    let names = ["a", "b", "c"].map(str::to_owned);
    plan(conn, &build_query(base, &names, order).sql)
}

#[test]
fn open_requests_are_found_by_index() {
    let (_directory, conn) = database();
    let open = plan(&conn, requests::OPEN_REQUESTS);
    assert_eq!(open, "SCAN r USING INDEX request_open\n", "there are many ended requests");
    let unsettled = plan(&conn, requests::REQUESTS_WITH_PENDING_STEPS);
    assert!(unsettled.starts_with("SCAN s USING INDEX output_step_due"), "{unsettled}");
    for base in [
        requests::VIEWED_REQUESTS,
        requests::VIEWED_PROCESSES,
        requests::VIEWED_RUNS,
        requests::VIEWED_BLOCKS,
        requests::VIEWED_STEPS,
    ] {
        let plan = plan_of_views(&conn, base, "");
        assert!(!plan.contains("SCAN") && plan.contains("=?"), "{base}: {plan}");
    }
    let blocks = plan_of_views(&conn, requests::VIEWED_BLOCKS, "");
    assert!(blocks.contains("SEARCH b USING INDEX request_block_of (process=?)"), "{blocks}");
    let runs = plan_of_views(&conn, requests::VIEWED_RUNS, "");
    assert!(runs.contains("SEARCH f USING PRIMARY KEY (run=?)"), "{runs}");
    let steps = plan_of_views(&conn, requests::VIEWED_STEPS, "");
    assert!(steps.contains("SEARCH s USING INDEX output_step_open (process=? AND state=?)"), "{steps}");
}

#[test]
fn recovery_rows_are_found_by_process() {
    let (_directory, conn) = database();
    let files = plan(&conn, requests::FILE_ROWS);
    assert_eq!(files, "SEARCH request_file USING PRIMARY KEY (process=?)\n", "sorted by name");
    let page = format!(
        "{} f.process = ? AND f.state = 'excluded' ORDER BY f.lfn LIMIT 9",
        requests::SELECT_FILE_ROWS
    );
    assert_eq!(plan(&conn, &page), "SEARCH f USING PRIMARY KEY (process=?)\n");
    let registered = plan(&conn, requests::REGISTERED_UNITS);
    assert!(registered.contains("(process=?") && registered.contains("(block=?)"), "{registered}");
    let failures = plan(&conn, requests::FAILURE_TALLIES_OF_PROCESS);
    assert!(failures.contains("(process=?)") && failures.contains("SEARCH f USING PRIMARY KEY (run=?)"));
    assert!(!failures.contains("TEMP B-TREE"), "{failures}");
}

#[test]
fn request_queries_avoid_table_scans() {
    let (_directory, conn) = database();
    // Complete lists, tables of a few rows, and indexes of the few open rows.
    let few = [
        "SCAN r USING INDEX request_open",
        "SCAN s USING INDEX output_step_due",
        "SCAN setting",
        // Jobs that are pending, running or failed.
        "SCAN j USING INDEX job_watched",
    ];
    let is_whole = |name: &str| !name.starts_with("SELECT_") && !name.starts_with("VIEWED_");
    let alone = requests::ALL.iter().chain(datasets::ALL).filter(|(name, _)| is_whole(name));
    let deleting = requests::DELETE_REQUEST.iter().map(|sql| (*sql, *sql));
    for (name, sql) in alone.copied().chain(deleting) {
        let plan = plan(&conn, sql);
        let reads_all = |line: &str| line.starts_with("SCAN") && !few.iter().any(|few| line.starts_with(few));
        assert!(!plan.lines().any(reads_all), "{name}: {plan}");
    }
}
