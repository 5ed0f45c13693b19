//! Jobs that running jobs add.

use crate::kit::{NOW, RUN, claim, commit, counts, create, end, job, key, start, worker, workflow};
use serde_json::json;
use windlass_core::change::WorkflowChange;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_store::model::{
    DataFilter, InMemoryJobSource, JobFilter, JobOrigin, NewRequirements, NewWorkflow, SpawnJob, SpawnRequest,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{DynamicJobSettings, WorkflowSettings};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    Attempt, JobDefinition, JobId, JobSettings, JobStatus, Resources, RunId, WorkerId, WorkflowId,
};

fn new(name: &str, depends_on: &[u32]) -> SpawnJob {
    SpawnJob { definition: JobDefinition::new(name, format!("echo {name}")), depends_on: depends_on.to_vec() }
}

fn request(caller: AttemptKey, jobs: Vec<SpawnJob>) -> SpawnRequest {
    SpawnRequest { caller, lineage: None, state: None, jobs }
}

/// A workflow of two jobs; the first is running, the second is ready. Other workflows have jobs before and
/// after it.
fn running(store: &dyn Store, settings: Option<&WorkflowSettings>) -> (WorkflowId, Vec<JobId>, WorkerId) {
    create(store, 2);
    let large = [NewRequirements { name: "large", resources: Resources { cpus: 7, ..Resources::DEFAULT } }];
    let edges = DependencyEdges::default();
    let new = NewWorkflow { settings, ..workflow(&large, &edges) };
    let id =
        store.create_workflow(&new, &mut InMemoryJobSource::new([job("loop"), job("other")]), NOW).unwrap();
    let jobs = store.load_jobs(id).unwrap().ids;
    create(store, 4);
    let worker = worker(store, id);
    commit(store, id, vec![claim(jobs[0], 1, worker), start(jobs[0], 1, worker)]).unwrap();
    (id, jobs, worker)
}

pub(crate) fn a_running_job_adds_jobs(store: &dyn Store) {
    let (id, jobs, worker) = running(store, None);
    let caller = key(id, jobs[0], 1);
    assert!(store.jobs_after(id, jobs[1]).unwrap().ids.is_empty());

    let large = SpawnJob {
        definition: JobDefinition {
            resource_requirements: Some("large".into()),
            priority: 5,
            cancel_on_blocking_job_failure: false,
            env: vec![("A".into(), "1".into())],
            invocation_script: Some("nice".into()),
            settings: JobSettings { labels: vec!["gpu".into()], ..JobSettings::default() },
            ..JobDefinition::new("b", "echo b")
        },
        depends_on: vec![0, 0],
    };
    let spawned = store.spawn_jobs(&request(caller, vec![new("a", &[]), large]), NOW).unwrap();
    assert_eq!((spawned.iteration, spawned.lineage.as_str(), spawned.is_replay), (1, "loop", false));
    let ids = spawned.spawned_job_ids.clone();
    assert!(ids.len() == 2 && ids[0] > jobs[1]);

    // The scheduler gets the same data from the new part and from the whole.
    let whole = store.load_jobs(id).unwrap();
    assert_eq!(whole.ids, [&jobs[..], &ids[..]].concat());
    assert_eq!(whole.edges.direct, [(2, 0), (3, 0), (3, 2)]);
    let added = store.jobs_after(id, jobs[1]).unwrap();
    assert_eq!((added.ids, added.status), (ids.clone(), vec![JobStatus::Blocked; 2]));
    assert_eq!((added.class.clone(), added.priority), (whole.class[2..].to_vec(), vec![0, 5]));
    assert_eq!(added.requirements, whole.requirements);
    assert_eq!(added.requirements[added.class[1] as usize].cpus, 7);
    assert_eq!(added.edges.direct, whole.edges.direct);
    assert!(store.jobs_after(id, ids[1]).unwrap().ids.is_empty());
    assert_eq!(counts(store, id).get(JobStatus::Blocked), 2);

    let rows = store.jobs(id, &JobFilter::default()).unwrap();
    let names: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.origin)).collect();
    let spawn = Some(JobOrigin::Spawn);
    assert_eq!(names, [("loop", None), ("other", None), ("a", spawn), ("b", spawn)]);
    let paged = JobFilter { after: Some(jobs[1]), limit: Some(1), ..JobFilter::default() };
    assert_eq!(store.jobs(id, &paged).unwrap()[0].name, "a");
    assert_eq!(store.job_groups(id).unwrap()[0].group.settings.labels, ["gpu"]);
    let command = &store.load_job_commands(&ids[1..]).unwrap()[0];
    assert_eq!((command.command.as_str(), command.env.len()), ("echo b", 1));
    assert_eq!(command.invocation_script.as_deref(), Some("nice"));

    // They are ordinary jobs, also in the next run.
    let unblock = WorkflowChange::Status { job: ids[0], from: JobStatus::Blocked, to: JobStatus::Ready };
    let mut ended = end(caller, worker, JobStatus::Completed);
    if let WorkflowChange::End { from, .. } = &mut ended {
        *from = JobStatus::Running;
    }
    commit(store, id, vec![ended, unblock, claim(ids[0], 1, worker)]).unwrap();
    commit(store, id, vec![end(key(id, ids[0], 1), worker, JobStatus::Failed)]).unwrap();
    let results = store.results(id, &windlass_store::model::ResultFilter::default()).unwrap();
    assert_eq!(results.iter().map(|row| row.job_name.as_str()).collect::<Vec<_>>(), ["loop", "a"]);
    store.begin_next_run(id, &[ids[0]], NOW).unwrap();
    assert_eq!(counts(store, id).get(JobStatus::Uninitialized), 1);
}

pub(crate) fn repeated_spawn_adds_jobs_once(store: &dyn Store) {
    let (id, jobs, _) = running(store, None);
    let caller = key(id, jobs[0], 1);
    let asked = SpawnRequest {
        lineage: Some("line".into()),
        state: Some(json!({ "step": 1 })),
        ..request(caller, vec![new("a", &[]), new("b", &[])])
    };
    let first = store.spawn_jobs(&asked, NOW).unwrap();
    let again = store.spawn_jobs(&asked, NOW).unwrap();
    assert!(again.is_replay);
    assert_eq!((again.iteration, &again.spawned_job_ids), (1, &first.spawned_job_ids));
    // The ids are in the order of the request.
    let turned = SpawnRequest { jobs: vec![new("b", &[]), new("a", &[])], ..asked.clone() };
    let turned = store.spawn_jobs(&turned, NOW).unwrap().spawned_job_ids;
    assert_eq!(turned, [first.spawned_job_ids[1], first.spawned_job_ids[0]]);
    assert_eq!(store.load_jobs(id).unwrap().ids.len(), 4);
    assert_eq!(store.user_data(id, &DataFilter::default()).unwrap().len(), 1);

    for jobs in [
        vec![new("a", &[])],
        vec![new("a", &[]), new("c", &[])],
        vec![new("c", &[]), new("other", &[])],
        vec![new("c", &[]), new("c", &[])],
    ] {
        let error = store.spawn_jobs(&request(caller, jobs), NOW).unwrap_err();
        assert!(matches!(error, StoreError::DuplicateJobName { .. }), "{error}");
    }
    assert_eq!(store.load_jobs(id).unwrap().ids.len(), 4);
    counts(store, id);
}

pub(crate) fn iterations_are_counted_and_capped(store: &dyn Store) {
    let settings = WorkflowSettings {
        dynamic_jobs: Some(DynamicJobSettings { max_iterations: 2 }),
        ..WorkflowSettings::default()
    };
    let (id, jobs, worker) = running(store, Some(&settings));
    let caller = key(id, jobs[0], 1);
    let with_state = |caller, name: &str, step| SpawnRequest {
        state: Some(json!({ "step": step })),
        ..request(caller, vec![new(name, &[])])
    };
    let first = store.spawn_jobs(&with_state(caller, "step_1", 1), NOW).unwrap();
    let next = first.spawned_job_ids[0];
    let unblock = WorkflowChange::Status { job: next, from: JobStatus::Blocked, to: JobStatus::Ready };
    commit(store, id, vec![unblock, claim(next, 1, worker)]).unwrap();
    // A job that was just started is still pending in the database; and the lineage is inherited.
    let second = store.spawn_jobs(&with_state(key(id, next, 1), "step_2", 2), NOW).unwrap();
    assert_eq!((second.iteration, second.lineage.as_str()), (2, "loop"));
    let error = store.spawn_jobs(&request(caller, vec![new("step_3", &[])]), NOW).unwrap_err();
    assert!(matches!(&error, StoreError::TooManyIterations { max: 2, .. }), "{error}");
    assert!(error.hint().is_some());
    // Another lineage is counted separately.
    let other = SpawnRequest { lineage: Some("x".into()), ..request(caller, vec![new("y", &[])]) };
    assert_eq!(store.spawn_jobs(&other, NOW).unwrap().iteration, 1);

    let states = store.user_data(id, &DataFilter::default()).unwrap();
    let states: Vec<_> = states.iter().map(|row| (row.name.as_str(), row.data.clone().unwrap())).collect();
    assert_eq!(states, [("loop/1", json!({ "step": 1 })), ("loop/2", json!({ "step": 2 }))]);
    let read = DataFilter { job: Some(second.spawned_job_ids[0]), ..DataFilter::default() };
    assert_eq!(store.user_data(id, &read).unwrap()[0].name, "loop/2");
}

pub(crate) fn only_a_running_attempt_can_spawn(store: &dyn Store) {
    let (id, jobs, _) = running(store, None);
    let spawn = |caller| store.spawn_jobs(&request(caller, vec![new("a", &[])]), NOW).unwrap_err();
    let running = key(id, jobs[0], 1);
    for caller in [
        key(id, jobs[1], 1),
        AttemptKey { attempt: Attempt(2), ..running },
        AttemptKey { run: RunId(RUN.0 + 1), ..running },
    ] {
        let error = spawn(caller);
        assert!(matches!(&error, StoreError::NotRunning { .. }), "{error}");
    }
    assert!(matches!(spawn(AttemptKey { job: JobId(9999), ..running }), StoreError::NoSuchJob(_)));
    let bad = |job| store.spawn_jobs(&request(running, vec![job]), NOW).unwrap_err();
    let mut unknown = new("a", &[]);
    unknown.definition.resource_requirements = Some("huge".into());
    assert!(matches!(bad(unknown), StoreError::NoSuchRequirements { name } if name == "huge"));
    assert!(matches!(bad(new("a", &[1])), StoreError::OutOfRange { .. }));
    assert!(matches!(store.spawn_jobs(&request(running, vec![]), NOW), Err(StoreError::OutOfRange { .. })));
    assert_eq!(store.load_jobs(id).unwrap().ids, jobs);
    counts(store, id);
}
