//! Workers of a server: with and without a workflow, changed, listed, deleted.

use crate::kit::{NOW, claim, commit, create, new_worker, worker};
use serde_json::json;
use windlass_core::change::WorkflowChange;
use windlass_store::model::{
    CountQuery, EventFilter, NewWorker, NodeQuarantineRow, SortBy, WorkerFilter, WorkerKind, WorkerRow,
    WorkerUpdate,
};
use windlass_store::{Store, StoreError};
use windlass_types::{Bytes, Capacity, Timestamp, WorkerId};

/// A worker for every workflow that its user may run, with a value in every field.
fn worker_on_host(host: &str) -> NewWorker {
    NewWorker {
        kind: WorkerKind::Remote,
        version: "1.2.3".into(),
        labels: vec!["gpu".into(), "big".into()],
        host: host.into(),
        boot_id: "b007".into(),
        pid_start_ticks: u64::MAX,
        secret_hash: Some("c0ffee".into()),
        allocation: Some(17),
        extra: Some(json!({ "cluster": "east" })),
        workflow: None,
        run: None,
        ..new_worker(windlass_types::WorkflowId(1))
    }
}

fn ids(rows: &[WorkerRow]) -> Vec<WorkerId> {
    rows.iter().map(|row| row.id).collect()
}

fn happened(store: &dyn Store, category: &str) -> usize {
    let filter = EventFilter { category: Some(category.into()), ..EventFilter::default() };
    store.events(None, &filter).unwrap().len()
}

pub(crate) fn worker_round_trips(store: &dyn Store) {
    let new = worker_on_host("node1");
    let id = store.add_worker(&new, NOW).unwrap();
    let row = store.worker(id).unwrap().unwrap();
    assert_eq!(row, WorkerRow { id, worker: new, started_at: NOW, ended_at: None, is_draining: false });
    assert_eq!(store.worker(WorkerId(id.0 + 1)).unwrap(), None);
    assert_eq!(happened(store, "compute_node_started"), 1);
}

pub(crate) fn node_is_quarantined_and_released(store: &dyn Store) {
    assert_eq!(store.quarantined_nodes().unwrap(), []);
    let later = |micros| Timestamp(NOW.0 + micros);
    let bad = NodeQuarantineRow {
        host: "node é".into(),
        user: None,
        since: NOW,
        until: later(600),
        set_by: "server".into(),
        reason: "9 of its last 10 attempts failed; 3 of 120 elsewhere".into(),
        evidence: Some(json!({ "failed": 9, "ended": 10 })),
    };
    let other = NodeQuarantineRow { host: "a".into(), evidence: None, reason: String::new(), ..bad.clone() };
    store.quarantine_node(&bad, NOW).unwrap();
    store.quarantine_node(&other, NOW).unwrap();
    assert_eq!(store.quarantined_nodes().unwrap(), [other.clone(), bad.clone()], "by host");
    let longer = NodeQuarantineRow {
        since: later(700),
        until: later(1900),
        set_by: "me".into(),
        evidence: None,
        ..bad
    };
    store.quarantine_node(&longer, later(700)).unwrap();
    assert_eq!(store.quarantined_nodes().unwrap(), [other.clone(), longer.clone()]);
    // Each user has a separate row.
    let of_bob = NodeQuarantineRow { user: Some("bob".into()), ..longer.clone() };
    store.quarantine_node(&of_bob, later(700)).unwrap();
    assert_eq!(store.quarantined_nodes().unwrap(), [other.clone(), longer.clone(), of_bob]);
    assert!(
        !store.release_quarantined_node("node é", Some("zoe"), "this user has none", later(700)).unwrap()
    );
    assert!(
        store
            .release_quarantined_node("node é", Some("bob"), "one job of the user completed", later(700))
            .unwrap()
    );
    assert_eq!(store.quarantined_nodes().unwrap(), [other.clone(), longer.clone()]);
    store
        .quarantine_node(&NodeQuarantineRow { user: Some("bob".into()), ..longer.clone() }, later(700))
        .unwrap();
    assert!(store.release_quarantined_node("node é", None, "a job completed", later(800)).unwrap(), "both");
    assert!(
        !store.release_quarantined_node("node é", None, "again", later(900)).unwrap(),
        "it was already released"
    );
    assert_eq!(store.quarantined_nodes().unwrap().len(), 1);
    assert_eq!((happened(store, "node_quarantined"), happened(store, "node_released")), (5, 2));
    let filter = EventFilter { category: Some("node_released".into()), ..EventFilter::default() };
    let event = store.events(None, &filter).unwrap().pop().unwrap();
    assert_eq!(event.message, "node node é is released from quarantine: a job completed");
    assert_eq!((event.workflow_id, event.data.unwrap()["host"].as_str()), (None, Some("node é")));
}

pub(crate) fn worker_update_changes_given_fields_only(store: &dyn Store) {
    let id = store.add_worker(&worker_on_host("node1"), NOW).unwrap();
    let before = store.worker(id).unwrap().unwrap();
    store.update_worker(id, &WorkerUpdate::default(), NOW).unwrap();
    assert_eq!(store.worker(id).unwrap().unwrap(), before);

    let capacity = Capacity { cpus: 8, memory: Bytes(1), gpus: 0, nodes: 2, max_jobs: None };
    let update = WorkerUpdate {
        host: Some("node2".into()),
        labels: Some(Vec::new()),
        capacity: Some(capacity),
        is_draining: Some(true),
        ended_at: Some(Some(Timestamp(NOW.0 + 5))),
        ..WorkerUpdate::default()
    };
    store.update_worker(id, &update, NOW).unwrap();
    let row = store.worker(id).unwrap().unwrap();
    assert_eq!((row.worker.host.as_str(), row.worker.labels.len()), ("node2", 0));
    assert_eq!((row.worker.capacity, row.is_draining), (capacity, true));
    assert_eq!((row.is_active(), &row.worker.extra), (false, &before.worker.extra));
    store.update_worker(id, &WorkerUpdate { ended_at: Some(None), ..WorkerUpdate::default() }, NOW).unwrap();
    assert!(store.worker(id).unwrap().unwrap().is_active());
    assert_eq!(happened(store, "compute_node_started"), 2);
    assert_eq!(happened(store, "compute_node_stopped"), 1);
    assert_eq!(happened(store, "compute_node_draining"), 1);
    let error = store.update_worker(WorkerId(id.0 + 1), &update, NOW).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchWorker(_)), "{error}");
}

pub(crate) fn workers_are_filtered_sorted_and_counted(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let (other, _) = create(store, 1);
    let bound = worker(store, workflow);
    let shared = store.add_worker(&NewWorker { user: "ann".into(), ..worker_on_host("anode") }, NOW).unwrap();
    let gone = worker(store, workflow);
    store.retire_worker(gone, NOW).unwrap();
    worker(store, other);

    let all = WorkerFilter { workflow: Some(workflow), ..WorkerFilter::default() };
    let found = |filter: &WorkerFilter| {
        let rows = store.workers(filter).unwrap();
        let whole = WorkerFilter { offset: 0, limit: None, ..filter.clone() };
        let counted = store.count_rows(&CountQuery::Workers(filter.clone())).unwrap();
        assert_eq!(counted, store.workers(&whole).unwrap().len() as u64, "{filter:?}");
        ids(&rows)
    };
    assert_eq!(found(&all), [bound, gone]);
    assert_eq!(found(&WorkerFilter { also_shared: true, ..all.clone() }), [bound, shared, gone]);
    assert_eq!(found(&WorkerFilter { is_active: Some(true), ..all.clone() }), [bound]);
    assert_eq!(found(&WorkerFilter { is_active: Some(false), ..all.clone() }), [gone]);
    assert_eq!(found(&WorkerFilter { ids: vec![gone], ..WorkerFilter::default() }), [gone]);
    assert_eq!(found(&WorkerFilter { kinds: vec![WorkerKind::Remote], ..WorkerFilter::default() }), [shared]);
    assert_eq!(found(&WorkerFilter { allocation: Some(17), ..WorkerFilter::default() }), [shared]);
    assert_eq!(found(&WorkerFilter { user: Some("ann".into()), ..WorkerFilter::default() }), [shared]);
    assert_eq!(found(&WorkerFilter { host: Some("anode".into()), ..WorkerFilter::default() }), [shared]);
    let by = |field: &str, descending| Some(SortBy { field: field.into(), descending });
    let sorted = WorkerFilter { also_shared: true, sort: by("hostname", false), ..all.clone() };
    assert_eq!(found(&sorted), [shared, bound, gone]);
    assert_eq!(found(&WorkerFilter { sort: by("id", true), ..all.clone() }), [gone, bound]);
    assert_eq!(found(&WorkerFilter { offset: 1, limit: Some(1), ..all.clone() }), [gone]);
    assert!(store.workers(&WorkerFilter { sort: by("token", false), ..all }).is_err(), "unknown sort field");
}

pub(crate) fn deleted_worker_is_only_unlisted(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let (busy, idle) = (worker(store, workflow), worker(store, workflow));
    commit(store, workflow, vec![claim(jobs[0], 1, busy)]).unwrap();
    let error = store.delete_workers(&[idle, busy], NOW).unwrap_err();
    assert!(matches!(error, StoreError::JobIsHeld { job, .. } if job == jobs[0]), "{error}");
    let listed = || ids(&store.workers(&WorkerFilter::default()).unwrap());
    assert_eq!(listed(), [busy, idle], "all or none");

    commit(store, workflow, vec![WorkflowChange::ReturnClaim { job: jobs[0], worker: busy }]).unwrap();
    store.delete_workers(&[busy], NOW).unwrap();
    assert_eq!(listed(), [idle]);
    assert!(!store.worker(busy).unwrap().unwrap().is_active(), "results refer to it");
    assert!(store.delete_workers(&[WorkerId(idle.0 + 1)], NOW).is_err());
}

pub(crate) fn workflow_is_active_while_a_run_is_open(store: &dyn Store) {
    let (one, _) = create(store, 1);
    let (two, _) = create(store, 1);
    assert_eq!(store.active_workflows().unwrap(), []);
    store.begin_run(two, NOW).unwrap();
    store.begin_run(one, NOW).unwrap();
    assert_eq!(store.active_workflows().unwrap(), [one, two]);
    store.set_archived(&[two], true, NOW).unwrap();
    assert_eq!(store.active_workflows().unwrap(), [one]);
}
