//! Failures at a server: retries now and later, budgets, and pending decisions.

use crate::kit::{FailureSettings, Fixture, PlannedJob, Worker, after, ask, ended, handled, plain, someone};
use std::time::Duration;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::Store;
use windlass_store::model::{EventFilter, JobFilter, ResultFilter};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, PendingCommand, RequestedJobChanges,
};
use windlass_types::settings::{FailureRule, RetryBudget, WorkflowSettings};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptReport, ProcessExit, RecoveryScript,
};
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{Attempt, JobStatus as S, Resources, SystemClock, WorkflowId};

fn rule(code: i32) -> FailureRule {
    FailureRule { exit_codes: vec![code], ..FailureRule::default() }
}

fn rules(rules: Vec<FailureRule>) -> FailureSettings {
    FailureSettings { rules, ..FailureSettings::default() }
}

fn after_handled(waits_for: &[u32]) -> PlannedJob {
    PlannedJob { is_handled: true, ..after(waits_for) }
}

/// All its jobs end with this code.
fn fail_all(fixture: &Fixture, worker: &mut Worker, code: i32) {
    let ends = worker.keys().into_iter().map(|key| ended(key, code)).collect();
    worker.say(fixture, ends).unwrap();
}

fn reasons(fixture: &Fixture, workflow: WorkflowId) -> Vec<String> {
    let results = fixture.store.results(workflow, &ResultFilter::default()).unwrap();
    results.into_iter().map(|row| row.reason.unwrap_or_default()).collect()
}

#[test]
fn a_rule_retries_the_job_with_its_script_while_dependents_wait() {
    let fixture = Fixture::new();
    let script = FailureRule { recovery_script: Some("fix".into()), max_retries: 2, ..rule(10) };
    let workflow = fixture.begin_failing(&[handled(), after(&[0])], &rules(vec![script]));
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    assert_eq!(worker.held[0].recovery, None);
    fail_all(&fixture, &mut worker, 10);
    let [again] = &worker.held[..] else { panic!("it is assigned again with the reply: {:?}", worker.held) };
    assert_eq!(again.key.attempt, Attempt(2));
    let owed = RecoveryScript {
        script: "fix".into(),
        failed: Attempt(1),
        return_code: 10,
        limit: Duration::from_mins(10),
    };
    assert_eq!(again.recovery.as_deref(), Some(&owed));
    assert_eq!(fixture.statuses(workflow), [S::Pending, S::Blocked]);
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 2]);
    assert_eq!(fixture.results(workflow), [("j0".into(), 1, 10), ("j0".into(), 2, 0), ("j1".into(), 1, 0)]);
    let told = reasons(&fixture, workflow).remove(0);
    assert_eq!(told, "attempt 2 of 2 by rule 1 of handler again (exit code 10): after its recovery script");
    let retried = EventFilter { category: Some("job_retried".into()), ..EventFilter::default() };
    assert_eq!(fixture.store.events(Some(workflow), &retried).unwrap().len(), 1);
}

#[test]
fn failures_without_retries_or_rules_are_final() {
    let fixture = Fixture::new();
    let twice = FailureRule { max_retries: 2, ..rule(75) };
    let workflow = fixture.begin_failing(&[handled(), handled(), plain()], &rules(vec![twice]));
    let mut worker = Worker::new(&fixture, 4);
    worker.say(&fixture, vec![]).unwrap();
    let codes = [75, 1, 75];
    let ends = worker.keys().into_iter().zip(codes).map(|(key, code)| ended(key, code)).collect();
    worker.say(&fixture, ends).unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Pending, S::Failed, S::Failed], "the last one has no handler");
    fail_all(&fixture, &mut worker, 75);
    assert_eq!(fixture.statuses(workflow), [S::Failed; 3]);
    assert!(fixture.row(workflow).ended_at.is_some());
    let told = reasons(&fixture, workflow);
    assert_eq!(told[1], "not retried after 2 of 2 attempts by rule 1 of handler again (exit code 75)");
    assert_eq!(&told[2..], ["no rule of handler again matches", ""]);
}

/// A waiting worker gets the job when it is due, and not before.
#[test]
fn a_retry_waits_for_its_delay() {
    let fixture = Fixture::new();
    let failed_job = FailureRule { delay: Some(Duration::from_secs(10)), ..rule(75) };
    let workflow = fixture.begin_failing(&[handled()], &rules(vec![failed_job]));
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    fail_all(&fixture, &mut worker, 75);
    assert_eq!((fixture.statuses(workflow), worker.held.len()), (vec![S::Ready], 0));
    fixture.pass(Duration::from_secs(9));
    worker.say(&fixture, vec![]).unwrap();
    assert!(worker.held.is_empty(), "a second is left");
    fixture.pass(Duration::from_secs(1));
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}

/// A worker with little time left had more before: a similar one may come again.
#[test]
fn runtime_grows_up_to_the_lifetime_of_a_worker() {
    let fixture = Fixture::new();
    let longer = FailureRule { runtime: "x8".parse().ok(), max_retries: 5, ..rule(75) };
    let job = PlannedJob { runtime: Some(Duration::from_mins(20)), ..handled() };
    let workflow = fixture.begin_failing(&[job], &rules(vec![longer]));
    let mut worker = Worker::new(&fixture, 1);
    for (minutes, code) in [(60, None), (30, Some(75))] {
        let ends = worker.keys().into_iter().filter_map(|key| Some(ended(key, code?))).collect();
        let mut exchange = worker.next(ends, Duration::ZERO);
        exchange.time_left = Some(Duration::from_mins(minutes));
        worker.send(&fixture, exchange).unwrap();
    }
    let told = reasons(&fixture, workflow).remove(0);
    assert!(told.ends_with("runtime 20m → 1h (largest worker)"), "{told}");
    assert!(worker.held.is_empty(), "it does not fit into the remaining time");
    let mut other = Worker::new(&fixture, 1);
    other.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}

/// The capacity of workers that accept the job, and no more.
#[test]
fn resources_grow_up_to_the_largest_worker_that_accepts_the_job() {
    let fixture = Fixture::new();
    let grow = FailureRule { cpus: "x8".parse().ok(), max_retries: 5, ..rule(75) };
    let gpu = || vec!["gpu".to_owned()];
    let job = PlannedJob { cpus: 1, labels: gpu(), ..handled() };
    let workflow = fixture.begin_failing(&[job], &rules(vec![grow]));
    let _huge = Worker::new(&fixture, 64);
    let mut worker = Worker::join(&fixture, WorkerRegistration { labels: gpu(), ..someone(4) });
    worker.say(&fixture, vec![]).unwrap();
    fail_all(&fixture, &mut worker, 75);
    assert_eq!(worker.held[0].resources, Resources { cpus: 4, ..Resources::DEFAULT });
    assert!(reasons(&fixture, workflow)[0].ends_with("cpus 1 → 4 (largest worker)"));
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}

#[test]
fn a_lost_attempt_uses_no_retry_and_keeps_the_recovery_script() {
    let fixture = Fixture::new();
    let script = FailureRule { recovery_script: Some("fix".into()), max_retries: 2, ..rule(10) };
    let workflow = fixture.begin_failing(&[handled()], &rules(vec![script]));
    let mut first = Worker::new(&fixture, 1);
    first.say(&fixture, vec![]).unwrap();
    fail_all(&fixture, &mut first, 10);
    ask(|reply| fixture.service.retire_worker(first.id, "me", reply)).unwrap();
    let mut second = Worker::new(&fixture, 1);
    second.say(&fixture, vec![]).unwrap();
    let [again] = &second.held[..] else { panic!("it runs again") };
    assert_eq!(again.key.attempt, Attempt(3));
    assert_eq!(again.recovery.as_ref().map(|owed| owed.failed), Some(Attempt(1)));
    second.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}

fn storm(budget: u32) -> FailureSettings {
    let settings =
        WorkflowSettings { retry_budget: Some(RetryBudget::Count(budget)), ..WorkflowSettings::default() };
    FailureSettings { rules: vec![FailureRule { max_retries: 100, ..rule(1) }], settings }
}

fn budget_events(fixture: &Fixture, workflow: WorkflowId) -> Vec<bool> {
    let filter = EventFilter { category: Some("retry_budget".into()), ..EventFilter::default() };
    let events = fixture.store.events(Some(workflow), &filter).unwrap();
    events.iter().map(|event| event.data.as_ref().unwrap()["is_used_up"] == true).collect()
}

#[test]
fn a_spent_budget_halts_the_workflow_until_it_is_continued() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin_failing(&[handled(), handled(), handled(), after_handled(&[2])], &storm(1));
    let mut bound = Worker::join(&fixture, WorkerRegistration { workflow: Some(workflow), ..someone(1) });
    bound.say(&fixture, vec![]).unwrap();
    for _ in 0..3 {
        fail_all(&fixture, &mut bound, 1);
    }
    let said = bound.say(&fixture, vec![]).unwrap();
    assert!(said.dismissed, "there is no more work");
    let mut statuses = fixture.statuses(workflow);
    statuses.sort_by_key(ToString::to_string);
    assert_eq!(
        statuses,
        [S::Blocked, S::Failed, S::Ready, S::Ready],
        "jobs that did not start stay as they are"
    );
    assert_eq!(fixture.row(workflow).ended_at, None);
    assert_eq!(budget_events(&fixture, workflow), [true]);

    // A restarted server remembers it.
    fixture.restart();
    let mut worker = Worker::new(&fixture, 4);
    worker.say(&fixture, vec![]).unwrap();
    assert!(worker.held.is_empty());
    ask(|reply| fixture.service.start_workflow(workflow, "me", reply)).unwrap();
    assert_eq!(budget_events(&fixture, workflow), [true, false]);
    worker.work_off(&fixture);
    assert!(fixture.row(workflow).ended_at.is_some());
}

/// Short jobs are claimed far ahead, and start even if the retries are used up meanwhile.
#[test]
fn many_short_failing_jobs_start_little_more_than_the_budget() {
    let fixture = Fixture::new();
    let jobs: Vec<PlannedJob> = (0..200).map(|_| handled()).collect();
    let workflow = fixture.begin_failing(&jobs, &storm(20));
    let mut worker = Worker::new(&fixture, 4);
    worker.say(&fixture, vec![]).unwrap();
    let mut begun = 0;
    while !worker.held.is_empty() {
        begun += worker.held.len();
        let fails = |key| match ended(key, 1) {
            AttemptReport::Ended(ended) => {
                AttemptReport::Ended(AttemptEndReport { wall: Duration::from_millis(1), ..ended })
            }
            other => other,
        };
        let ends = worker.keys().into_iter().map(fails).collect();
        worker.say(&fixture, ends).unwrap();
    }
    assert_eq!(budget_events(&fixture, workflow), [true]);
    assert!((21..=30).contains(&begun), "{begun} were started");
}

/// A user edits the workflow: its state is rebuilt and keeps the spent budget.
#[test]
fn an_edit_does_not_renew_the_retry_budget() {
    let fixture = Fixture::new();
    let workflow = fixture.begin_failing(&[handled()], &storm(2));
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    for expected in [S::Pending, S::Pending, S::Failed] {
        fail_all(&fixture, &mut worker, 1);
        assert_eq!(fixture.statuses(workflow), [expected]);
        let nothing = Box::new(|_: &dyn windlass_store::Store| Ok(()));
        let quiet = windlass_scheduler::service::ExclusiveRequirement::NoneRequired;
        ask(|reply| fixture.service.run_exclusive(workflow, quiet, nothing, reply)).unwrap();
    }
}

#[test]
fn a_failure_without_a_rule_waits_for_a_decision() {
    let fixture = Fixture::new();
    let settings = WorkflowSettings { use_pending_failed: true, ..WorkflowSettings::default() };
    let failing = FailureSettings { rules: vec![FailureRule { max_retries: 1, ..rule(75) }], settings };
    let workflow =
        fixture.begin_failing(&[handled(), after(&[0]), handled(), plain(), after(&[3])], &failing);
    let mut bound = Worker::join(&fixture, WorkerRegistration { workflow: Some(workflow), ..someone(4) });
    bound.say(&fixture, vec![]).unwrap();
    let ends = bound.keys().into_iter().zip([3, 75, 4]).map(|(key, code)| ended(key, code)).collect();
    bound.say(&fixture, ends).unwrap();
    let asked = [S::PendingFailed, S::Blocked, S::Failed, S::PendingFailed, S::Blocked];
    assert_eq!(fixture.statuses(workflow), asked, "jobs without retries left have failed");
    assert!(fixture.row(workflow).ended_at.is_none(), "it has not ended");
    assert!(bound.say(&fixture, vec![]).unwrap().dismissed, "no worker is kept waiting for it");

    let jobs = fixture.store.jobs(workflow, &JobFilter::default()).unwrap();
    let order = |job: usize, kind| FailureCommand {
        job: jobs[job].id,
        kind,
        changes: RequestedJobChanges::default(),
        reason: String::new(),
        confidence: None,
        evidence: Vec::new(),
    };
    let orders = vec![order(0, FailureCommandKind::Fail), order(3, FailureCommandKind::Retry)];
    let wanted = PendingCommand::Orders(FailureCommandBatch { orders, ..FailureCommandBatch::default() });
    let decide =
        Box::new(move |store: &dyn Store| store.apply_triage_command(workflow, &wanted, SystemClock.now()));
    let needs = ExclusiveRequirement::NoneRequired;
    ask(|reply| fixture.service.run_exclusive(workflow, needs, decide, reply)).unwrap();
    assert_eq!(
        fixture.statuses(workflow),
        [S::Failed, S::Canceled, S::Failed, S::Ready, S::Blocked],
        "one has failed finally, the other runs again"
    );
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    assert_eq!(worker.held[0].key.attempt, Attempt(2));
    worker.work_off(&fixture);
    assert!(fixture.row(workflow).ended_at.is_some());
}

/// The cause reported by the system is used if the program printed nothing.
#[test]
fn rules_can_match_the_failure_class() {
    let fixture = Fixture::new();
    let transient =
        FailureRule { classes: vec![windlass_types::FailureClass::Transient], ..FailureRule::default() };
    let missing = FailureRule { stderr: vec!["did not write out.csv".into()], ..FailureRule::default() };
    let workflow = fixture.begin_failing(&[handled(), handled()], &rules(vec![transient, missing]));
    let mut worker = Worker::new(&fixture, 2);
    worker.say(&fixture, vec![]).unwrap();
    let keys = worker.keys();
    let (AttemptReport::Ended(mut refused), AttemptReport::Ended(mut empty)) =
        (ended(keys[0], 7), ended(keys[1], 0))
    else {
        panic!("both are ends")
    };
    refused.last_words = Some("curl: (7) Failed to connect: Connection refused\n".into());
    empty.cause = AttemptEndCause::MissingOutputs(vec!["out.csv".into()]);
    empty.exit = ProcessExit::Code(0);
    worker.say(&fixture, vec![AttemptReport::Ended(refused), AttemptReport::Ended(empty)]).unwrap();
    assert_eq!(worker.held.len(), 2, "{:?}", reasons(&fixture, workflow));
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 2]);
}
