//! Retries in a local run.

use crate::kit::{AttemptBehavior, RecordedRun, ScriptedHost, attempts, database, shared};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_scheduler::{LocalRun, LocalRunOptions, RunEnd, RunSummary};
use windlass_store::Store;
use windlass_store::model::{EventFilter, InMemoryJobSource, NewJob, NewRequirements, NewWorkflow};
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_types::settings::{FailureCause, FailureHandler, FailureRule, RetryBudget, WorkflowSettings};
use windlass_types::worker_messages::{Assignment, AttemptEndCause, ProcessExit};
use windlass_types::{
    Bytes, JobDefinition, JobGroup, JobSettings, JobStatus, Resources, Timestamp, WorkflowId,
};

const MIB: u64 = 1 << 20;

fn create(
    store: &SqliteStore,
    jobs: usize,
    rules: Vec<FailureRule>,
    settings: &WorkflowSettings,
) -> WorkflowId {
    let resources = Resources { memory: Bytes(400 * MIB), ..Resources::DEFAULT };
    let workflow = NewWorkflow {
        name: "test",
        user: "me",
        submission_dir: "/",
        output_dir: "/tmp",
        settings: Some(settings),
        requirements: &[NewRequirements { name: "some", resources }],
        failure_handlers: &[FailureHandler { name: "again".into(), rules }],
        job_groups: &[JobGroup {
            name: "kind".into(),
            settings: JobSettings { failure_handler: Some(0), ..JobSettings::default() },
            ..JobGroup::default()
        }],
        ..NewWorkflow::default()
    };
    let names: Vec<String> = (0..jobs).map(|number| format!("j{number}")).collect();
    let mut rows = InMemoryJobSource::new(names.iter().map(|name| NewJob {
        job_group: Some(0),
        ..NewJob::from(JobDefinition {
            resource_requirements: Some(0),
            ..JobDefinition::new(&**name, "true")
        })
    }));
    store.create_workflow(&workflow, &mut rows, Timestamp(1)).unwrap()
}

fn run(
    store: &SqliteStore,
    workflow: WorkflowId,
    script: impl Fn(&Assignment, usize) -> AttemptBehavior + Send + Sync + 'static,
) -> (RunSummary, RecordedRun) {
    let (mut host, mut recorded_run) = (ScriptedHost::new(script), RecordedRun::default());
    let row = store.workflow(workflow).unwrap().unwrap();
    let options = LocalRunOptions { grace: Duration::from_secs(1), deadline: None, classifier: None };
    let summary =
        LocalRun::new(shared(store), &mut host, &mut recorded_run, row, options).unwrap().run().unwrap();
    (summary, recorded_run)
}

/// Fails with this code until this attempt.
fn until(attempt: u32, code: i32) -> impl Fn(&Assignment, usize) -> AttemptBehavior + Send + Sync + 'static {
    move |assignment, _| AttemptBehavior::Exit(if assignment.key.attempt.0 < attempt { code } else { 0 })
}

fn rule(code: i32) -> FailureRule {
    FailureRule { exit_codes: vec![code], ..FailureRule::default() }
}

#[test]
fn jobs_are_retried_by_their_rules() {
    let (_dir, store) = database();
    let workflow = create(&store, 1, vec![rule(75)], &WorkflowSettings::default());
    let (summary, recorded_run) = run(&store, workflow, until(3, 75));
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::Finished, 1));
    assert_eq!(attempts(&store, workflow, "j0"), [(1, 75), (2, 75), (3, 0)]);
    let shown: Vec<JobStatus> = recorded_run.ends.iter().map(|end| end.2).collect();
    assert_eq!(shown, [JobStatus::Ready, JobStatus::Ready, JobStatus::Completed]);

    let workflow = create(&store, 1, vec![rule(75)], &WorkflowSettings::default());
    let (summary, _) = run(&store, workflow, until(9, 75));
    assert_eq!(summary.counts.get(JobStatus::Failed), 1);
    assert_eq!(attempts(&store, workflow, "j0").len(), 3, "it gets only three attempts");
}

/// The run waits for delayed jobs, also if they are all that remains.
#[test]
fn a_retry_waits_for_its_delay() {
    let (_dir, store) = database();
    let delay = Duration::from_millis(300);
    let failed_job = FailureRule { delay: Some(delay), ..rule(75) };
    let workflow = create(&store, 1, vec![failed_job], &WorkflowSettings::default());
    let began = Instant::now();
    let (summary, _) = run(&store, workflow, until(2, 75));
    assert_eq!(summary.counts.get(JobStatus::Completed), 1);
    assert!(began.elapsed() >= delay);
}

#[test]
fn the_next_attempt_gets_the_script_and_more_memory_up_to_the_capacity() {
    let (_dir, store) = database();
    let more = FailureRule {
        on: vec![FailureCause::OutOfMemory],
        memory: "x2".parse().ok(),
        recovery_script: Some("tidy".into()),
        max_retries: 3,
        ..FailureRule::default()
    };
    let workflow = create(&store, 1, vec![more], &WorkflowSettings::default());
    let told: Arc<Mutex<Vec<Assignment>>> = Arc::default();
    let notes = Arc::clone(&told);
    run(&store, workflow, move |assignment, _| {
        notes.lock().unwrap().push(assignment.clone());
        AttemptBehavior::End(ProcessExit::Signal(9), AttemptEndCause::OutOfMemory)
    });
    let told = told.lock().unwrap();
    let given: Vec<_> = told.iter().map(|a| a.limits.memory.map(|memory| memory.0 / MIB)).collect();
    assert_eq!(given, [Some(400), Some(800), Some(1024)], "the machine has 1 GiB");
    let scripts: Vec<_> =
        told.iter().map(|a| a.recovery.as_ref().map(|owed| (owed.failed.0, owed.return_code))).collect();
    assert_eq!(scripts, [None, Some((1, 137)), Some((2, 137))]);
}

#[test]
fn a_spent_retry_budget_stops_the_run_which_can_be_resumed() {
    let (_dir, store) = database();
    let settings =
        WorkflowSettings { retry_budget: Some(RetryBudget::Count(3)), ..WorkflowSettings::default() };
    let workflow = create(&store, 50, vec![FailureRule { max_retries: 100, ..rule(1) }], &settings);
    let (summary, recorded_run) = run(&store, workflow, |_, _| AttemptBehavior::Exit(1));
    assert_eq!(summary.end, RunEnd::WaitingForDecision);
    assert!(summary.counts.get(JobStatus::Ready) > 0, "{:?}", summary.counts);
    assert_eq!(summary.counts.active(), 0);
    assert_eq!(recorded_run.notices.iter().filter(|text| text.contains("retry budget")).count(), 1);
    let row = store.workflow(workflow).unwrap().unwrap();
    assert_eq!(row.ended_at, None);

    let (summary, _) = run(&store, workflow, |_, _| AttemptBehavior::Exit(0));
    assert_eq!((summary.end, summary.counts.get(JobStatus::Ready)), (RunEnd::Finished, 0));
    let filter = EventFilter { category: Some("retry_budget".into()), ..EventFilter::default() };
    let events = store.events(Some(workflow), &filter).unwrap();
    let told: Vec<bool> =
        events.iter().map(|event| event.data.as_ref().unwrap()["is_used_up"] == true).collect();
    assert_eq!(told, [true, false], "and the budget was renewed");
}

#[test]
fn a_failure_without_a_rule_ends_the_run_with_a_pending_decision() {
    let (_dir, store) = database();
    let settings = WorkflowSettings { use_pending_failed: true, ..WorkflowSettings::default() };
    let workflow = create(&store, 2, vec![rule(75)], &settings);
    let (summary, _) = run(&store, workflow, |assignment, _| {
        AttemptBehavior::Exit(if assignment.name == "j0" { 3 } else { 0 })
    });
    assert_eq!(summary.end, RunEnd::WaitingForDecision);
    assert_eq!(summary.counts.get(JobStatus::PendingFailed), 1);
    assert_eq!(store.workflow(workflow).unwrap().unwrap().ended_at, None);
    let (summary, _) = run(&store, workflow, |_, _| AttemptBehavior::Exit(0));
    assert_eq!(summary.end, RunEnd::WaitingForDecision, "there is no decision yet");
}

#[test]
fn a_failure_can_be_decided_while_the_workflow_runs() {
    use windlass_types::failure_commands::{
        FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandStatus, PendingCommand,
        RequestedJobChanges,
    };
    let (directory, store) = database();
    let settings = WorkflowSettings { use_pending_failed: true, ..WorkflowSettings::default() };
    let later = FailureRule { delay: Some(Duration::from_secs(2)), max_retries: 3, ..rule(9) };
    let workflow = create(&store, 2, vec![later], &settings);
    let jobs = store.load_jobs(workflow).unwrap().ids;
    let failing = jobs[0];
    // Another process sees the failure while the other job waits for its next attempt, and retries it with
    // more resources.
    let other = SqliteStore::open(directory.path().join("windlass.db"), OpenMode::ReadWrite).unwrap().store;
    let operator = std::thread::spawn(move || {
        wait_until(|| other.load_jobs(workflow).unwrap().status[0] == JobStatus::PendingFailed);
        let order = |job, kind, memory_bytes| FailureCommand {
            job,
            kind,
            changes: RequestedJobChanges { memory_bytes, ..RequestedJobChanges::default() },
            reason: "more memory".into(),
            confidence: None,
            evidence: vec![],
        };
        let more = Some(Bytes(500 * MIB));
        let orders = vec![
            order(jobs[0], FailureCommandKind::Retry, more),
            order(jobs[1], FailureCommandKind::Fail, None),
        ];
        let wanted = PendingCommand::Orders(FailureCommandBatch { orders, ..FailureCommandBatch::default() });
        let pending_command = other.add_pending_command(workflow, &wanted, Timestamp(5)).unwrap();
        wait_until(|| other.pending_command_result(pending_command).unwrap().is_some());
        other.pending_command_result(pending_command).unwrap().unwrap().unwrap()
    });
    let (summary, _) = run(&store, workflow, move |assignment, _| match assignment.key.attempt.0 {
        1 if assignment.key.job == failing => AttemptBehavior::Exit(7),
        1 => AttemptBehavior::Exit(9),
        _ => AttemptBehavior::Exit(0),
    });
    let answers: Vec<FailureCommandStatus> =
        operator.join().unwrap().iter().map(|outcome| outcome.answer).collect();
    assert_eq!(
        answers,
        [FailureCommandStatus::Done, FailureCommandStatus::Refused],
        "a job that waits for its retry is not failed"
    );
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::Finished, 2));
    let table = store.load_jobs(workflow).unwrap();
    let asked = |job: usize| table.requirements[table.class[job] as usize].memory.0;
    assert_eq!((asked(0), asked(1)), (500 * MIB, 400 * MIB));
    assert_eq!(attempts(&store, workflow, "j0"), [(1, 7), (2, 0)]);
    assert_eq!(attempts(&store, workflow, "j1"), [(1, 9), (2, 0)]);
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let max_wait = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < max_wait, "timeout");
        std::thread::sleep(Duration::from_millis(2));
    }
}
