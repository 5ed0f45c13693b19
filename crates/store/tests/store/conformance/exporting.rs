//! Export and import of workflows, and files from other programs.

use super::workflow_contents::sample;
use crate::kit::{NOW, claim, commit, counts, create, defined, end, key, start, worker, workflow};
use serde_json::{Value, json};
use std::collections::HashMap;
use windlass_core::change::WorkflowChange;
use windlass_core::dependency_edges::{DependencyEdges, DependencyEdgesBuilder};
use windlass_store::model::{
    DataFilter, EventFilter, ExportOptions, ImportOptions, InMemoryJobSource, JobFilter, JobOrigin,
    NewRequirements, ResultFilter, SpawnJob, SpawnRequest, WorkflowExport,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::WorkflowSettings;
use windlass_types::{Bytes, JobDefinition, JobStatus, Resources, RunId, WorkflowId};

const ALL: ExportOptions = ExportOptions { results: true, events: true };

/// Exports and imports through a file.
fn through_text(export: &WorkflowExport) -> WorkflowExport {
    serde_json::from_str(&serde_json::to_string_pretty(export).unwrap()).unwrap()
}

fn copy(store: &dyn Store, id: WorkflowId, options: ExportOptions) -> WorkflowId {
    let file = through_text(&store.export_workflow(id, options, NOW).unwrap());
    store.import_workflow(&file, &ImportOptions::default(), NOW).unwrap()
}

/// Renumbers the ids of each list from 0, so that two copies are equal.
fn normal(store: &dyn Store, id: WorkflowId) -> Value {
    let mut export = serde_json::to_value(store.export_workflow(id, ALL, NOW).unwrap()).unwrap();
    // The import adds an event.
    export["events"] = json!(null);
    let numbered = |list: &Value| -> HashMap<i64, usize> {
        list.as_array().unwrap().iter().enumerate().map(|(n, row)| (row["id"].as_i64().unwrap(), n)).collect()
    };
    let maps = [
        ("files", &["input_file_ids", "output_file_ids"][..]),
        ("user_data", &["input_user_data_ids", "output_user_data_ids"]),
        ("resource_requirements", &["resource_requirements_id"]),
        ("slurm_schedulers", &["scheduler_id"]),
        ("failure_handlers", &["failure_handler_id"]),
        ("job_kinds", &["kind_id"]),
        ("compute_nodes", &["compute_node_id"]),
        ("workflow_actions", &[]),
        ("jobs", &["job_id", "job_ids", "depends_on_job_ids", "first_job_id", "spawned_by", "gates"]),
    ];
    for (list, fields) in maps {
        let ids = numbered(&export[list]);
        for row in export[list].as_array_mut().unwrap() {
            row["id"] = json!(ids[&row["id"].as_i64().unwrap()]);
        }
        renumber(&mut export, &ids, fields);
    }
    export["workflow"]["id"] = json!(0);
    export["workflow"]["timestamp"] = json!(null);
    export
}

/// Replaces the ids in all fields of these names.
fn renumber(value: &mut Value, ids: &HashMap<i64, usize>, fields: &[&str]) {
    fn replace(value: &mut Value, ids: &HashMap<i64, usize>) {
        match value {
            Value::Number(id) => *value = json!(ids[&id.as_i64().unwrap()]),
            Value::Array(list) => list.iter_mut().for_each(|value| replace(value, ids)),
            _ => {}
        }
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if fields.contains(&name.as_str()) {
                    replace(value, ids);
                } else {
                    renumber(value, ids, fields);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| renumber(value, ids, fields)),
        _ => {}
    }
}

pub(crate) fn workflow_survives_export_and_import(store: &dyn Store) {
    let settings = WorkflowSettings {
        project: Some("p".into()),
        use_pending_failed: true,
        ..WorkflowSettings::default()
    };
    let id = sample(store, &settings);
    let jobs = store.load_jobs(id).unwrap().ids;
    let worker = worker(store, id);
    store.begin_run(id, NOW).unwrap();
    let unblock = WorkflowChange::Status { job: jobs[1], from: JobStatus::Blocked, to: JobStatus::Ready };
    commit(
        store,
        id,
        vec![
            claim(jobs[0], 1, worker),
            end(key(id, jobs[0], 1), worker, JobStatus::Completed),
            unblock,
            claim(jobs[1], 1, worker),
            end(key(id, jobs[1], 1), worker, JobStatus::Failed),
        ],
    )
    .unwrap();
    store.end_run(id, false, NOW).unwrap();
    store.retire_worker(worker, NOW).unwrap();
    let new = copy(store, id, ALL);
    assert_ne!(id, new);
    assert_eq!(normal(store, new), normal(store, id));
    assert_eq!(store.load_job_commands(&store.load_jobs(new).unwrap().ids).unwrap()[1].env.len(), 2);
    let events = |id| store.events(Some(id), &EventFilter::default()).unwrap();
    let (before, after) = (events(id), events(new));
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!((&after[0].message, after[0].at), (&before[0].message, before[0].at));
    assert_eq!(counts(store, new), counts(store, id));
    // Failed jobs of the original can run again here.
    let jobs = store.load_jobs(new).unwrap().ids;
    assert_eq!(store.begin_next_run(new, &jobs[1..2], NOW).unwrap(), RunId(2));
}

pub(crate) fn import_without_results_starts_from_the_beginning(store: &dyn Store) {
    let mut builder = DependencyEdgesBuilder::default();
    builder.add_dependencies(3, &[0, 1, 2]);
    builder.add_dependencies(4, &[0, 1, 2]);
    builder.add_dependencies(4, &[3]);
    let edges = builder.finish();
    let odd = Resources { memory: Bytes(1_234_567), runtime: Some(NOW.since(NOW)), ..Resources::DEFAULT };
    let requirements = [NewRequirements { name: "odd", resources: odd }];
    let rows = ["a", "b", "c", "d", "e"].map(|name| {
        defined(JobDefinition {
            resource_requirements: Some(0),
            priority: 3,
            cancel_on_blocking_job_failure: false,
            ..JobDefinition::new(name, "true")
        })
    });
    let id = store
        .create_workflow(&workflow(&requirements, &edges), &mut InMemoryJobSource::new(rows), NOW)
        .unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    let worker = worker(store, id);
    commit(store, id, vec![claim(jobs[0], 1, worker), start(jobs[0], 1, worker)]).unwrap();
    store.begin_run(id, NOW).unwrap();

    let said = ImportOptions {
        name: Some("copy".into()),
        user: Some("eve".into()),
        submission_dir: Some("/elsewhere".into()),
        output_dir: Some("/elsewhere/out".into()),
        without_results: true,
    };
    let with = store.export_workflow(id, ALL, NOW).unwrap();
    let anew = [
        copy(store, id, ExportOptions::default()),
        store.import_workflow(&through_text(&with), &said, NOW).unwrap(),
    ];
    for new in anew {
        let table = store.load_jobs(new).unwrap();
        assert_eq!(table.edges, edges);
        let (ready, blocked) = (JobStatus::Ready, JobStatus::Blocked);
        assert_eq!(table.status, [ready, ready, ready, blocked, blocked]);
        assert_eq!((table.requirements[1], table.class), (odd, vec![1; 5]));
        assert_eq!(table.cancel_on_blocking_job_failure, [false; 5]);
        let row = store.workflow(new).unwrap().unwrap();
        assert_eq!((row.run_id, row.started_at), (RunId(1), None));
        assert!(store.results(new, &ResultFilter::default()).unwrap().is_empty());
        assert!(store.active_workers(Some(new)).unwrap().is_empty());
    }
    let row = store.workflow(anew[1]).unwrap().unwrap();
    assert_eq!((row.name.as_str(), row.user.as_str()), ("copy", "eve"));
    assert_eq!((row.submission_dir.as_str(), row.output_dir.as_str()), ("/elsewhere", "/elsewhere/out"));

    // With results, jobs that were running can run here.
    let new = copy(store, id, ALL);
    assert_eq!(store.load_jobs(new).unwrap().status[0], JobStatus::Ready);
    assert!(store.held_jobs(new).unwrap().is_empty() && store.active_workers(Some(new)).unwrap().is_empty());
}

pub(crate) fn import_keeps_added_jobs(store: &dyn Store) {
    let (id, jobs) = create(store, 2);
    create(store, 1);
    let worker = worker(store, id);
    commit(store, id, vec![claim(jobs[0], 1, worker)]).unwrap();
    let spawn = |id, caller, name: &str| {
        let job = SpawnJob { definition: JobDefinition::new(name, "true"), depends_on: vec![] };
        let caller = key(id, caller, 1);
        let request = SpawnRequest { caller, lineage: Some("l".into()), state: None, jobs: vec![job] };
        store.spawn_jobs(&request, NOW).unwrap()
    };
    spawn(id, jobs[0], "one");
    create(store, 1);
    spawn(id, jobs[0], "two");
    let new = copy(store, id, ALL);
    let mut before = normal(store, id);
    // Held in the original, not held here; its worker has ended.
    before["jobs"][0]["status"] = json!("ready");
    before["compute_nodes"][0]["end_time"] = json!(NOW.to_string());
    assert_eq!(normal(store, new), before);
    let rows = store.jobs(new, &JobFilter::default()).unwrap();
    assert_eq!(
        rows.iter().map(|row| row.origin).collect::<Vec<_>>()[1..],
        [None, Some(JobOrigin::Spawn), Some(JobOrigin::Spawn)]
    );
    let worker = crate::kit::worker(store, new);
    commit(store, new, vec![claim(rows[0].id, 1, worker)]).unwrap();
    assert!(spawn(new, rows[0].id, "two").is_replay);
    assert_eq!(spawn(new, rows[0].id, "three").iteration, 3);
}

/// A minimal file in Torc's format.
fn foreign() -> Value {
    json!({
        "export_version": "1.0",
        "exported_at": "2026-01-02T03:04:05Z",
        "workflow": { "id": 7, "name": "torc", "user": "ada", "env": { "A": "1" }, "is_archived": false },
        "files": [{ "id": 31, "name": "f", "path": "f.txt", "st_mtime": 1.5 }],
        "user_data": [{ "id": 41, "name": "u", "data": { "x": 1 } }],
        "resource_requirements": [
            { "id": 51, "name": "small", "num_cpus": 2, "num_gpus": 0, "num_nodes": 1, "memory": "2g", "runtime": "PT1H" }
        ],
        "jobs": [
            { "id": 102, "name": "second", "command": "b", "depends_on_job_ids": [101], "input_file_ids": [31],
              "labels": ["gpu"], "resource_requirements_id": 51, "status": "completed" },
            { "id": 101, "name": "first", "command": "a", "env": null, "depends_on_job_ids": null,
              "output_file_ids": [31], "input_user_data_ids": [41], "labels": null, "status": "completed" },
        ],
    })
}

pub(crate) fn torc_export_is_imported(store: &dyn Store) {
    let file: WorkflowExport = serde_json::from_value(foreign()).unwrap();
    let id = store.import_workflow(&file, &ImportOptions::default(), NOW).unwrap();
    let row = store.workflow(id).unwrap().unwrap();
    assert_eq!((row.name.as_str(), row.env), ("torc", vec![("A".to_owned(), "1".to_owned())]));
    let table = store.load_jobs(id).unwrap();
    assert_eq!(
        (table.edges, table.status),
        (
            DependencyEdges { direct: vec![(0, 1)], ..DependencyEdges::default() },
            vec![JobStatus::Blocked, JobStatus::Ready]
        )
    );
    assert_eq!(table.requirements[1].memory, Bytes(2 << 30));
    assert_eq!(store.job_groups(id).unwrap()[0].group.settings.labels, ["gpu"]);
    assert_eq!(store.files(id, &DataFilter::default()).unwrap()[0].mtime_ns, Some(1_500_000_000));
    assert_eq!(store.job_files(id).unwrap().len(), 2);
}

pub(crate) fn contradictory_import_is_rejected(store: &dyn Store) {
    for (pointer, value, complaint) in [
        ("/export_version", json!("9"), "version 9"),
        ("/jobs/0/depends_on_job_ids/0", json!(999), "999"),
        ("/jobs/0/id", json!(101), "two jobs"),
        ("/jobs/0/input_file_ids/0", json!(5), "job `second`"),
        ("/jobs/0/kind_id", json!(5), "job group 5"),
        ("/jobs/1/depends_on_job_ids", json!([102]), "cycle"),
        ("/resource_requirements/0/memory", json!("much"), "small"),
    ] {
        let mut file = foreign();
        match file.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => file["jobs"][0]["kind_id"] = value,
        }
        let file: WorkflowExport = serde_json::from_value(file).unwrap();
        let error = store.import_workflow(&file, &ImportOptions::default(), NOW).unwrap_err();
        assert!(
            matches!(&error, StoreError::BadExport { what } if what.contains(complaint)),
            "{pointer}: {error}"
        );
        assert!(error.hint().is_some());
    }
    assert!(store.workflows().unwrap().is_empty());
    let missing = store.export_workflow(WorkflowId(5), ALL, NOW);
    assert!(matches!(missing, Err(StoreError::NoSuchWorkflow(_))));
}
