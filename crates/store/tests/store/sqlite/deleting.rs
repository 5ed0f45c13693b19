//! Deleting workflows from a file that other processes may have open.

use crate::kit::{ListSource, NOW, create, file, job, worker, workflow};
use serde_json::json;
use std::path::Path;
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_core::slurm::allocation_rows::NewAllocation;
use windlass_store::lock::WorkflowLock;
use windlass_store::model::{
    EventFilter, ExportOptions, ImportOptions, NewAction, NewJob, NewUserData, NewWorkflow,
};
use windlass_store::sqlite::SqliteStore;
use windlass_store::{
    AccessStore as _, AllocationStore as _, Store, StoreError, WorkerStore as _, WorkflowPartStore as _,
};
use windlass_types::JobGroup;
use windlass_types::WorkflowId;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowAction};
use windlass_types::slurm::AllocationRequest;

/// Number of rows in each table with data of workflows.
fn rows(db: &Path) -> Vec<(String, i64)> {
    let conn = rusqlite::Connection::open(db).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut statement = conn.prepare(tables).unwrap();
    let names: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let kept = [
        "counter",
        "schema_migration",
        "event",
        "access_group",
        "group_member",
        "api_token",
        "server_epoch",
        "quarantined_node",
        "slurm_calls",
    ];
    // Tables of requests and datasets do not refer to workflows.
    let of_requests = [
        "request",
        "request_transition",
        "request_process",
        "request_run",
        "request_run_event",
        "request_block",
        "request_file",
        "request_output",
        "request_failure",
        "output_step",
        "site",
        "site_ban",
        "setting",
        "alert",
        "dataset",
        "dataset_block",
        "dataset_file",
        "replica",
        "replication_rule",
    ];
    let is_other = |name: &String| kept.contains(&name.as_str()) || of_requests.contains(&name.as_str());
    let counted = names.into_iter().filter(|name| !is_other(name)).map(|name| {
        let n = conn.query_row(&format!("SELECT COUNT(*) FROM {name}"), [], |row| row.get(0)).unwrap();
        (name, n)
    });
    counted.collect()
}

/// An execution of an action, as in a workflow that has run for a while.
fn execute_action(db: &Path, action: i64, worker: i64) {
    let conn = rusqlite::Connection::open(db).unwrap();
    let insert = "INSERT INTO action_run (action_id, attempt, run_id, worker_id, cause, started_at)
        VALUES ($1, 1, 1, $2, 'on_jobs_complete', 0)";
    conn.execute(insert, [action, worker]).unwrap();
}

/// Failures and decisions of a job.
fn fail(db: &Path, workflow: i64, job: i64) {
    let conn = rusqlite::Connection::open(db).unwrap();
    let rows = format!(
        "INSERT INTO failure (job_id, run_id, attempt_id, workflow_id, class, signature, message, retry_decision)
            VALUES ({job}, 1, 1, {workflow}, 'data', 'a', '', 'final');
         INSERT INTO next_attempt (job_id, workflow_id, run_id, uncounted_retries) VALUES ({job}, {workflow}, 1, 1);
         INSERT INTO ignored_failure (job_id, workflow_id, run_id, attempt_id) VALUES ({job}, {workflow}, 1, 1);
         INSERT INTO decision (workflow_id, job_id, run_id, attempt_id, made_at, made_by, is_agent, command, reason, state)
            VALUES ({workflow}, {job}, 1, 1, 0, 'ada', 0, 'ignore', '', 'done');
         INSERT INTO revision (batch, workflow_id, job_id, made_at, made_by, reason, before, after)
            VALUES (1, {workflow}, {job}, 0, 'ada', '', '{{}}', '{{}}');
         INSERT INTO site_count (workflow_id, site, handler, n) VALUES ({workflow}, 'west', '', 1);
         INSERT INTO pending_command (workflow_id, made_at, made_by, command) VALUES ({workflow}, 0, 'ada', '[]');"
    );
    conn.execute_batch(&rows).unwrap();
}

fn allocation(workflow: WorkflowId) -> NewAllocation {
    let request = AllocationRequest { nodes: 1, ..AllocationRequest::default() };
    NewAllocation {
        workflow,
        scheduler: None,
        tag: String::new(),
        request,
        action: None,
        by: "ada".to_owned(),
    }
}

#[test]
fn deleted_workflow_leaves_no_rows() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let store = SqliteStore::create(&db).unwrap().store.acting_as("ada");
    let data = json!(1);
    let mut source = ListSource {
        files: vec![file("f", "f")],
        user_data: vec![NewUserData { name: "u", data: Some(&data), is_ephemeral: false }],
        jobs: ["a", "b", "c", "d"]
            .map(|name| NewJob {
                job_group: Some(0),
                unit: Some(0),
                input_files: &[0],
                input_user_data: &[0],
                ..job(name)
            })
            .into(),
        command: String::new(),
    };
    let action: WorkflowAction = serde_json::from_value(json!({
        "trigger_type": "on_jobs_complete", "action_type": "run_commands", "commands": ["true"],
    }))
    .unwrap();
    let mut edges = DependencyEdgesBuilder::default();
    edges.add_dependencies(2, &[0, 1]);
    edges.add_dependencies(3, &[2]);
    let edges = edges.finish();
    let requirements =
        [windlass_store::model::NewRequirements { name: "r", resources: windlass_types::Resources::DEFAULT }];
    let new = NewWorkflow {
        job_groups: &[JobGroup { name: "k".into(), ..JobGroup::default() }],
        failure_handlers: &[FailureHandler { name: "h".into(), rules: vec![] }],
        schedulers: &[SlurmScheduler::default()],
        actions: &[NewAction { action: &action, jobs: &[1] }],
        ..workflow(&requirements, &edges)
    };
    let id = store.create_workflow(&new, &mut source, NOW).unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    let worker = worker(&store, id);
    store.begin_run(id, NOW).unwrap();
    let done = crate::kit::end(crate::kit::key(id, jobs[0], 1), worker, windlass_types::JobStatus::Completed);
    crate::kit::commit(&store, id, vec![crate::kit::claim(jobs[0], 1, worker), done]).unwrap();
    store.retire_worker(worker, NOW).unwrap();
    let group = store.add_group("physicists", None, NOW).unwrap();
    store.share_workflow(id, group, NOW).unwrap();
    store.add_record(Some(id), "local_scheduler", None, &json!({ "num_cpus": 2 }), NOW).unwrap();
    execute_action(&db, store.actions(id).unwrap()[0].id, worker.0);
    fail(&db, id.0, jobs[1].0);
    let asked = store.add_allocations(&[allocation(id)], NOW).unwrap();
    store.discard_allocations(&asked, "not needed", NOW).unwrap();
    let export = store.export_workflow(id, ExportOptions { results: true, events: true }, NOW).unwrap();
    for (table, n) in rows(&db) {
        assert!(n > 0, "this test should put something into `{table}`");
    }
    store.delete_workflow(id, NOW).unwrap();
    for (table, n) in rows(&db) {
        assert_eq!(n, 0, "left in `{table}`");
    }
    let told = store.events(None, &EventFilter::default()).unwrap();
    let told: Vec<_> = told.iter().map(|event| (event.category.as_str(), event.actor.as_str())).collect();
    assert_eq!(told, [("access", "ada"), ("workflow", "ada")]);

    // The earlier export restores the whole workflow.
    let back = store.import_workflow(&export, &ImportOptions::default(), NOW).unwrap();
    store.delete_workflow(back, NOW).unwrap();
    assert!(rows(&db).iter().all(|(_, n)| *n == 0));
}

#[test]
fn running_workflow_is_not_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let store = SqliteStore::create(&db).unwrap().store;
    let (id, _) = create(&store, 1);
    let lock = WorkflowLock::acquire(store.path(), id, NOW).unwrap();
    let error = store.delete_workflow(id, NOW).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    assert!(store.workflow(id).unwrap().is_some());
    drop(lock);
    store.delete_workflow(id, NOW).unwrap();
    assert!(store.workflow(id).unwrap().is_none());
    let locks = std::fs::read_dir(directory.path().join("windlass.db.run")).unwrap();
    let left: Vec<_> = locks.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("workflow-")), "{left:?}");
}
