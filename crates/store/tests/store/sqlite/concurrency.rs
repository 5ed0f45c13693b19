//! Several concurrent users of one file, as in several processes: each store has separate connections.

use crate::kit::{NOW, RUN, claim, commit, counts, create, end, job, key, worker, workflow};
use std::path::Path;
use std::sync::mpsc;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_store::model::{InMemoryJobSource, SpawnJob, SpawnRequest};
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_store::{ChangeBatch, Store, StoreError};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobDefinition, JobId, JobStatus, WorkflowId};

fn open(db: &Path) -> SqliteStore {
    SqliteStore::open(db, OpenMode::ReadWrite).unwrap().store
}

#[test]
fn large_creation_does_not_block_others() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let store = SqliteStore::create(&db).unwrap().store;
    let (small, jobs) = create(&store, 200);
    let worker = worker(&store, small);
    let (started, wait_for_start) = mpsc::channel();
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| {
            let other = open(&db);
            let names: Vec<String> = (0..20_000).map(|i| format!("large_{i}")).collect();
            let mut rows = InMemoryJobSource::new(names.iter().enumerate().map(|(i, name)| {
                if i == 100 {
                    started.send(()).unwrap();
                }
                job(name)
            }));
            let edges = DependencyEdges::default();
            other.create_workflow(&workflow(&[], &edges), &mut rows, NOW).unwrap()
        });
        // The other one holds the write lock now: readers are not affected, and writers wait.
        wait_for_start.recv().unwrap();
        assert_eq!(store.workflows().unwrap().len(), 1);
        for &job in &jobs {
            commit(&store, small, vec![claim(job, 1, worker)]).unwrap();
        }
        let large = creating.join().unwrap();
        assert_eq!(counts(&store, large).get(JobStatus::Ready), 20_000);
    });
    assert_eq!(counts(&store, small).get(JobStatus::Pending), 200);
}

#[test]
fn stores_see_commits_of_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let first = SqliteStore::open_or_create(&db).unwrap().store;
    let second = SqliteStore::open_or_create(&db).unwrap().store;
    let (id, jobs) = create(&first, 2);
    let (other, others) = create(&second, 2);
    assert!(others[0] > jobs[1] && other > id);
    second.request_cancel(id, NOW).unwrap();
    assert!(first.cancel_requested(id).unwrap());
    let reader = SqliteStore::open(&db, OpenMode::ReadOnly).unwrap().store;
    let worker = worker(&first, id);
    commit(&first, id, vec![claim(jobs[0], 1, worker)]).unwrap();
    assert_eq!(reader.held_jobs(id).unwrap().len(), 1);
    // The second one was decided from an outdated state.
    let error = commit(&second, id, vec![claim(jobs[0], 1, worker)]).unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
}

#[test]
fn many_threads_share_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::create(directory.path().join("windlass.db")).unwrap().store;
    let (id, jobs) = create(&store, 400);
    let worker = worker(&store, id);
    std::thread::scope(|scope| {
        for jobs in jobs.chunks(100) {
            let store = &store;
            scope.spawn(move || {
                for &job in jobs {
                    let changes =
                        vec![claim(job, 1, worker), end(key(id, job, 1), worker, JobStatus::Completed)];
                    commit(store, id, changes).unwrap();
                    assert_eq!(store.load_job_commands(&[job]).unwrap()[0].id, job);
                    let counts = store.workflow(id).unwrap().unwrap().counts;
                    assert_eq!(counts.total(), 400);
                }
            });
        }
    });
    assert_eq!(counts(&store, id).get(JobStatus::Completed), 400);
}

#[test]
fn closing_waits_for_submitted_batches() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let store = SqliteStore::create(&db).unwrap().store;
    let (id, jobs) = create(&store, 300);
    let worker = worker(&store, id);
    let (sender, answers) = mpsc::channel();
    for &job in &jobs {
        let sender = sender.clone();
        let done = Box::new(move |outcome: Result<(), StoreError>| sender.send(outcome.is_ok()).unwrap());
        store.submit(
            ChangeBatch { workflow: id, run: RUN, changes: vec![claim(job, 1, worker)].into() },
            done,
        );
    }
    drop(store);
    drop(sender);
    assert_eq!(answers.iter().filter(|ok| *ok).count(), 300);
    assert!(!directory.path().join("windlass.db-wal").exists());
    assert_eq!(counts(&open(&db), id).get(JobStatus::Pending), 300);
}

#[test]
fn wal_size_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let store = SqliteStore::create(&db).unwrap().store;
    let (id, jobs) = create(&store, 20);
    let worker = worker(&store, id);
    let toggle = |store: &SqliteStore| {
        let claims = jobs.iter().map(|job| claim(*job, 1, worker)).collect();
        commit(store, id, claims).unwrap();
        let back = jobs
            .iter()
            .map(|job| windlass_core::change::WorkflowChange::ReturnClaim { job: *job, worker })
            .collect();
        commit(store, id, back).unwrap();
    };
    for _ in 0..3000 {
        toggle(&store);
    }
    // 6000 commits of at least two pages each would be 48 MB without checkpoints.
    let log = directory.path().join("windlass.db-wal").metadata().unwrap().len();
    assert!(log < 16 << 20, "{log} bytes");
    assert_eq!(WorkflowId(1), id);
}

/// A job of a workflow that another process runs.
fn spawn_one(store: &dyn Store, caller: AttemptKey, name: &str) -> Result<JobId, StoreError> {
    let job = SpawnJob { definition: JobDefinition::new(name, "true"), depends_on: Vec::new() };
    let request = SpawnRequest { caller, lineage: None, state: None, jobs: vec![job] };
    Ok(store.spawn_jobs(&request, NOW)?.spawned_job_ids[0])
}

#[test]
fn jobs_are_added_while_another_process_runs_the_workflow() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let dispatcher = SqliteStore::create(&db).unwrap().store;
    let (id, jobs) = create(&dispatcher, 300);
    let worker = worker(&dispatcher, id);
    commit(&dispatcher, id, vec![claim(jobs[0], 1, worker)]).unwrap();
    std::thread::scope(|scope| {
        for adder in 0..3 {
            let db = &db;
            let caller = key(id, jobs[0], 1);
            scope.spawn(move || {
                let inside_the_job = open(db);
                for n in 0..20 {
                    spawn_one(&inside_the_job, caller, &format!("added_{adder}_{n}")).unwrap();
                }
            });
        }
        for &job in &jobs[1..] {
            commit(&dispatcher, id, vec![claim(job, 1, worker)]).unwrap();
        }
    });
    let added = dispatcher.jobs_after(id, jobs[299]).unwrap();
    assert_eq!(added.ids.len(), 60);
    assert_eq!(added.edges.direct.len(), 60);
    assert!(added.edges.direct.iter().all(|&(_, waits_for)| waits_for == 0));
    let counts = counts(&dispatcher, id);
    assert_eq!((counts.get(JobStatus::Pending), counts.get(JobStatus::Blocked)), (300, 60));
}

#[test]
fn only_foreign_commits_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let ours = SqliteStore::create(&db).unwrap().store;
    let (id, jobs) = create(&ours, 2);
    let worker = worker(&ours, id);
    let before = ours.foreign_commit_count(true).unwrap();
    commit(&ours, id, vec![claim(jobs[0], 1, worker)]).unwrap();
    ours.workflows().unwrap();
    assert_eq!(ours.foreign_commit_count(true).unwrap(), before);

    spawn_one(&open(&db), key(id, jobs[0], 1), "more").unwrap();
    let after = ours.foreign_commit_count(true).unwrap();
    assert_ne!(after, before);
    assert_eq!(ours.foreign_commit_count(true).unwrap(), after);
    // Also with commits of this store in between.
    spawn_one(&open(&db), key(id, jobs[0], 1), "and more").unwrap();
    commit(&ours, id, vec![claim(jobs[1], 1, worker)]).unwrap();
    assert_ne!(ours.foreign_commit_count(true).unwrap(), after);
}
