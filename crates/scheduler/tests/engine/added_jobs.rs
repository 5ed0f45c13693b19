//! Jobs that a running job adds: another process writes them, and the run inserts them.

use crate::kit::{
    AttemptBehavior, PlannedJob, RecordedRun, ScriptedHost, attempts, create, database, shared,
};
use std::sync::Arc;
use std::time::Duration;
use windlass_scheduler::{LocalRun, LocalRunOptions, RunEnd, RunSummary};
use windlass_store::Store;
use windlass_store::model::{
    InMemoryJobSource, JobFilter, NewJob, NewRequirements, NewWorkflow, SpawnJob, SpawnRequest, WorkflowRow,
};
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobDefinition, JobStatus, Resources, Timestamp};

const ONE: [PlannedJob; 1] = [PlannedJob("first", &[], 1)];

/// The same database as seen by another process.
fn elsewhere(store: &SqliteStore) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(store.path(), OpenMode::ReadWrite).unwrap().store)
}

fn job(name: &str, depends_on: &[u32]) -> SpawnJob {
    SpawnJob { definition: JobDefinition::new(name, "true"), depends_on: depends_on.to_vec() }
}

fn add(store: &SqliteStore, caller: AttemptKey, jobs: Vec<SpawnJob>) {
    store.spawn_jobs(&SpawnRequest { caller, lineage: None, state: None, jobs }, Timestamp(5)).unwrap();
}

fn run(
    store: &SqliteStore,
    host: &mut ScriptedHost,
    recorded_run: &mut RecordedRun,
    workflow: &WorkflowRow,
) -> RunSummary {
    let row = store.workflow(workflow.id).unwrap().unwrap();
    let options = LocalRunOptions { grace: Duration::from_secs(1), deadline: None, classifier: None };
    LocalRun::new(shared(store), host, recorded_run, row, options).unwrap().run().unwrap()
}

/// `(name, status)` of all jobs, by id.
fn statuses(store: &SqliteStore, workflow: &WorkflowRow) -> Vec<(String, JobStatus)> {
    let jobs = store.jobs(workflow.id, &JobFilter::default()).unwrap();
    jobs.into_iter().map(|job| (job.name, job.status)).collect()
}

#[test]
fn added_jobs_run_after_the_job_that_added_them_and_in_their_own_order() {
    let (_dir, store) = database();
    let workflow = create(&store, &ONE);
    let other = elsewhere(&store);
    let mut host = ScriptedHost::new(move |assignment, _| {
        if assignment.name == "first" {
            add(&other, assignment.key, vec![job("last", &[1, 2]), job("b", &[]), job("c", &[1])]);
        }
        AttemptBehavior::Exit(0)
    });
    let mut recorded_run = RecordedRun::default();
    let summary = run(&store, &mut host, &mut recorded_run, &workflow);
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::Finished, 4));
    let order: Vec<&str> = recorded_run.ends.iter().map(|end| end.0.as_str()).collect();
    assert_eq!(order, ["first", "b", "c", "last"]);
    let row = store.workflow(workflow.id).unwrap().unwrap();
    assert_eq!((row.counts.total(), row.counts.get(JobStatus::Completed)), (4, 4));
}

#[test]
fn a_loop_continues_while_each_round_adds_the_next() {
    let (_dir, store) = database();
    let workflow = create(&store, &ONE);
    let other = elsewhere(&store);
    let mut host = ScriptedHost::new(move |assignment, _| {
        let round: u32 = assignment.name.parse().unwrap_or(0);
        if round < 20 {
            add(&other, assignment.key, vec![job(&format!("{}", round + 1), &[])]);
        }
        AttemptBehavior::Exit(0)
    });
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow);
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::Finished, 21));
}

#[test]
fn jobs_added_by_a_lost_attempt_exist_once() {
    let (_dir, store) = database();
    let workflow = create(&store, &ONE);
    let other = elsewhere(&store);
    let mut host = ScriptedHost::new(move |assignment, generation| {
        if assignment.name == "first" {
            add(&other, assignment.key, vec![job("added", &[])]);
        }
        if generation == 1 { AttemptBehavior::Die } else { AttemptBehavior::Exit(0) }
    });
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow);
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::Finished, 2));
    assert_eq!(attempts(&store, workflow.id, "first"), [(1, -128), (2, 0)]);
    assert_eq!(attempts(&store, workflow.id, "added"), [(1, 0)]);
}

#[test]
fn recovery_at_start_finds_added_jobs() {
    let (_dir, store) = database();
    let workflow = create(&store, &ONE);
    let other = elsewhere(&store);
    let mut host = ScriptedHost::new(move |assignment, _| {
        add(&other, assignment.key, vec![job("added", &[])]);
        AttemptBehavior::Hold
    });
    let (mut recorded_run, row) = (RecordedRun::default(), store.workflow(workflow.id).unwrap().unwrap());
    let options = LocalRunOptions { grace: Duration::from_secs(1), deadline: None, classifier: None };
    let local_run = LocalRun::new(shared(&store), &mut host, &mut recorded_run, row, options).unwrap();
    let control = local_run.control();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while store.workflow(workflow.id).unwrap().unwrap().counts.get(JobStatus::Running) == 0 {
                std::thread::yield_now();
            }
            control.interrupt();
        });
        assert_eq!(local_run.run().unwrap().end, RunEnd::Interrupted);
    });
    let expected = [("first".to_owned(), JobStatus::Ready), ("added".to_owned(), JobStatus::Blocked)];
    assert_eq!(statuses(&store, &workflow), expected);
    // The next attempt requests other jobs: those that it does not request do not run.
    let other = elsewhere(&store);
    let mut host = ScriptedHost::new(move |assignment, _| {
        if assignment.name == "first" {
            add(&other, assignment.key, vec![job("another", &[])]);
        }
        AttemptBehavior::Exit(0)
    });
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow);
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::Finished, 2));
    let expected =
        [("first", JobStatus::Completed), ("added", JobStatus::Disabled), ("another", JobStatus::Completed)];
    assert_eq!(statuses(&store, &workflow), expected.map(|(name, status)| (name.to_owned(), status)));
}

#[test]
fn jobs_added_by_a_failed_job_are_canceled() {
    let (_dir, store) = database();
    let workflow = create(&store, &ONE);
    let other = elsewhere(&store);
    let mut host = ScriptedHost::new(move |assignment, _| {
        let mut anyway = job("anyway", &[]);
        anyway.definition.cancel_on_blocking_job_failure = false;
        if assignment.name == "first" {
            add(&other, assignment.key, vec![job("added", &[]), anyway]);
            return AttemptBehavior::Exit(3);
        }
        AttemptBehavior::Exit(0)
    });
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow);
    assert_eq!(summary.end, RunEnd::Finished);
    let expected =
        [("first", JobStatus::Failed), ("added", JobStatus::Canceled), ("anyway", JobStatus::Completed)];
    assert_eq!(statuses(&store, &workflow), expected.map(|(name, status)| (name.to_owned(), status)));
}

#[test]
fn an_added_job_that_never_fits_does_not_block_the_run() {
    let (_dir, store) = database();
    let resources = Resources { cpus: 64, ..Resources::DEFAULT };
    let new = NewWorkflow {
        name: "test",
        user: "me",
        requirements: &[NewRequirements { name: "many", resources }],
        ..NewWorkflow::default()
    };
    let first = NewJob::from(JobDefinition::new("first", "true"));
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new([first]), Timestamp(1)).unwrap();
    let workflow = store.workflow(id).unwrap().unwrap();
    let other = elsewhere(&store);
    let mut host = ScriptedHost::new(move |assignment, _| {
        if assignment.name == "first" {
            let mut huge = job("huge", &[]);
            huge.definition.resource_requirements = Some("many".into());
            add(&other, assignment.key, vec![huge, job("after", &[0])]);
        }
        AttemptBehavior::Exit(0)
    });
    let mut recorded_run = RecordedRun::default();
    let summary = run(&store, &mut host, &mut recorded_run, &workflow);
    assert_eq!((summary.end, summary.counts.get(JobStatus::Canceled)), (RunEnd::Finished, 2));
    assert!(
        recorded_run.notices.iter().any(|notice| notice.contains("`huge`")),
        "{:?}",
        recorded_run.notices
    );
}
