//! From the registration of a worker to the end of a run.

use crate::kit::{
    Fixture, PlannedJob, Worker, after, ask, code, ended, introduce, later, me, plain, someone, token_owner,
};
use std::time::Duration;
use windlass_scheduler::service::{JobsToReset, WorkerCaller};
use windlass_store::model::EventFilter;
use windlass_types::JobStatus as S;
use windlass_types::worker_messages::{AttemptReport, ReturnReason, StopReason};
use windlass_types::worker_protocol::{WorkerReconnect, WorkerRegistration};

#[test]
fn jobs_run_in_order_and_the_run_ends() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0]), after(&[1])]);
    let mut worker = Worker::new(&fixture, 4);
    let first = worker.say(&fixture, vec![]).unwrap();
    assert_eq!(first.workflows.len(), 1, "it gets the workflow setup before its first job");
    assert_eq!(worker.held.len(), 1);
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 3]);
    assert!(fixture.row(workflow).ended_at.is_some());
    assert_eq!(fixture.service.metrics().workflows, 0, "nothing of it stays in memory");
    assert_eq!(fixture.service.metrics().ended_attempts.get(S::Completed), 3);
}

#[test]
fn jobs_without_requests_use_no_cpus_where_the_number_of_jobs_is_limited() {
    let fixture = Fixture::new();
    fixture.begin(&[PlannedJob { cpus: 1, ..plain() }, plain(), plain()]);
    let mut who = someone(1);
    who.capacity.max_jobs = Some(3);
    let mut worker = Worker::join(&fixture, who);
    worker.say(&fixture, vec![]).unwrap();
    let mut cpus: Vec<u32> = worker.held.iter().map(|assignment| assignment.resources.cpus).collect();
    cpus.sort_unstable();
    assert_eq!(cpus, [0, 0, 1], "as the worker counts them when it starts them");
}

#[test]
fn a_worker_forgets_an_ended_workflow_and_gets_it_again() {
    let fixture = Fixture::new();
    let mut worker = Worker::new(&fixture, 1);
    let workflow = fixture.begin(&[plain()]);
    assert_eq!(worker.say(&fixture, vec![]).unwrap().workflows.len(), 1);
    let mut over = worker.say(&fixture, vec![ended(worker.held[0].key, 1)]).unwrap().over;
    over.extend(worker.say(&fixture, vec![]).unwrap().over);
    assert_eq!(over, [workflow], "once");
    ask(|reply| fixture.service.reset_status(workflow, false, "me", reply)).unwrap();
    ask(|reply| fixture.service.reset_jobs(workflow, JobsToReset::Failed, "me", reply)).unwrap();
    ask(|reply| fixture.service.initialize_workflow(workflow, true, false, "me", reply)).unwrap();
    let anew = worker.say(&fixture, vec![]).unwrap();
    assert_eq!((anew.over.len(), anew.workflows.len(), anew.assignments.len()), (0, 1, 1));
}

#[test]
fn the_snapshot_of_a_workflow_needs_no_rows() {
    let fixture = Fixture::new();
    let long =
        || PlannedJob { runtime: Some(Duration::from_hours(1)), labels: vec!["gpu".into()], ..plain() };
    let workflow = fixture.begin(&[plain(), plain(), long(), after(&[0])]);
    let outline = || ask(|reply| fixture.service.snapshot_workflow(workflow, reply)).unwrap();
    let known = outline().unwrap();
    let mut ready: Vec<_> = known.ready_jobs.iter().map(|ready| (ready.jobs, ready.runtime)).collect();
    ready.sort_unstable();
    assert_eq!(ready, [(1, Some(Duration::from_hours(1))), (2, None)], "waiting jobs are not ready");
    assert!(
        known.ready_jobs.iter().any(|ready| ready.labels == ["gpu"]) && known.wall_time == Duration::ZERO
    );
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    worker.say(&fixture, vec![report]).unwrap();
    assert_eq!(outline().unwrap().wall_time, Duration::from_secs(10));
    worker.work_off(&fixture);
    let mut other = Worker::join(&fixture, WorkerRegistration { labels: vec!["gpu".into()], ..someone(1) });
    other.work_off(&fixture);
    assert_eq!(outline(), None, "the rows show that it has ended");
}

#[test]
fn a_poll_ends_when_there_is_work() {
    let fixture = Fixture::new();
    let mut worker = Worker::new(&fixture, 1);
    let exchange = worker.next(vec![], Duration::from_secs(15));
    let waiting = later(|reply| fixture.service.exchange(exchange, me(), reply));
    fixture.service.check_time();
    assert!(waiting.try_recv().is_err(), "there is no job");
    fixture.begin(&[plain()]);
    assert_eq!(waiting.recv().unwrap().unwrap().assignments.len(), 1);
}

#[test]
fn a_poll_ends_at_its_timeout_or_with_a_newer_one() {
    let fixture = Fixture::new();
    let mut worker = Worker::new(&fixture, 1);
    let wait = |worker: &mut Worker| {
        let exchange = worker.next(vec![], Duration::from_secs(15));
        later(|reply| fixture.service.exchange(exchange, me(), reply))
    };
    let first = wait(&mut worker);
    let second = wait(&mut worker);
    assert_eq!(first.recv().unwrap().unwrap().number, 1);
    fixture.pass(Duration::from_secs(14));
    assert!(second.try_recv().is_err());
    fixture.pass(Duration::from_secs(1));
    assert_eq!(second.recv().unwrap().unwrap().number, 2);
}

#[test]
fn a_lost_reply_is_sent_again() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    let exchange = worker.next(vec![], Duration::ZERO);
    let lost = ask(|reply| fixture.service.exchange(exchange.clone(), me(), reply)).unwrap();
    let again = worker.send(&fixture, exchange).unwrap();
    assert_eq!(again, lost);
    let key = worker.held[0].key;
    let report = worker.next(vec![ended(key, 0)], Duration::ZERO);
    ask(|reply| fixture.service.exchange(report.clone(), me(), reply)).unwrap();
    let answer = worker.send(&fixture, report).unwrap();
    assert!(answer.stale.is_empty(), "a repeated report is not stale");
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, 0)]);
    assert_eq!(worker.keys().len(), 1, "and the next job is assigned once");
}

#[test]
fn a_caller_that_hangs_up_loses_nothing() {
    let fixture = Fixture::new();
    let mut worker = Worker::new(&fixture, 1);
    let exchange = worker.next(vec![], Duration::from_secs(15));
    drop(later(|reply| fixture.service.exchange(exchange.clone(), me(), reply)));
    fixture.service.cancel_exchange(worker.id, 1, worker.secret.clone());
    let workflow = fixture.begin(&[plain()]);
    assert_eq!(fixture.statuses(workflow), [S::Ready], "no caller waits, so nothing is claimed");
    assert_eq!(worker.send(&fixture, exchange).unwrap().assignments.len(), 1);
}

#[test]
fn a_worker_is_served_only_for_its_own_user() {
    let fixture = Fixture::new();
    fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    let mut forged = worker.next(vec![], Duration::ZERO);
    forged.secret = "guess".into();
    let refused = ask(|reply| fixture.service.exchange(forged, me(), reply)).unwrap_err();
    assert_eq!(code(&refused), "unknown_worker");
    // Not even with the secret, except for an operator.
    let stolen = worker.next(vec![], Duration::ZERO);
    let other = WorkerCaller::User("other".into());
    let refused = ask(|reply| fixture.service.exchange(stolen.clone(), other, reply)).unwrap_err();
    assert_eq!(code(&refused), "not_found");
    let answer = ask(|reply| fixture.service.exchange(stolen, WorkerCaller::Operator, reply)).unwrap();
    assert_eq!(answer.assignments.len(), 1);
    // Nor can another user register as it.
    let before = WorkerReconnect {
        worker: worker.id,
        secret: worker.secret.clone(),
        held: worker.keys(),
        actions: Vec::new(),
    };
    let who = WorkerRegistration { before: Some(before), ..someone(1) };
    let may: windlass_scheduler::service::WorkflowPredicate = std::sync::Arc::new(|_| true);
    let welcome =
        ask(|reply| fixture.service.register_worker(who, token_owner("other", may), reply)).unwrap();
    assert_ne!(welcome.worker, worker.id);
}

#[test]
fn a_worker_gets_only_jobs_that_its_user_may_run() {
    let fixture = Fixture::new();
    let (mine, other) = (fixture.begin(&[plain()]), fixture.begin(&[plain()]));
    let who = someone(4);
    let may: windlass_scheduler::service::WorkflowPredicate = std::sync::Arc::new(move |row| row.id == mine);
    let welcome = ask(|reply| fixture.service.register_worker(who, token_owner("me", may), reply)).unwrap();
    let exchange = windlass_types::worker_protocol::WorkerExchange {
        worker: welcome.worker,
        secret: welcome.secret,
        number: 1,
        reports: vec![],
        actions: vec![],
        wait: Duration::ZERO,
        time_left: None,
        draining: false,
        leaving: false,
    };
    let answer = ask(|reply| fixture.service.exchange(exchange, me(), reply)).unwrap();
    assert_eq!(answer.assignments.iter().map(|a| a.key.workflow).collect::<Vec<_>>(), [mine]);
    assert_eq!(fixture.statuses(other), [S::Ready]);
}

#[test]
fn labels_decide_which_worker_gets_a_job() {
    let fixture = Fixture::new();
    let labelled = PlannedJob { labels: vec!["gpu".into()], ..plain() };
    fixture.begin(&[labelled, plain()]);
    let mut with = Worker::join(&fixture, WorkerRegistration { labels: vec!["gpu".into()], ..someone(4) });
    let mut without = Worker::new(&fixture, 4);
    with.say(&fixture, vec![]).unwrap();
    without.say(&fixture, vec![]).unwrap();
    let names = |worker: &Worker| worker.held.iter().map(|a| a.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(&with), names(&without)), (vec!["j0".to_owned()], vec!["j1".to_owned()]));
}

#[test]
fn jobs_that_cannot_end_in_time_are_not_started() {
    let fixture = Fixture::new();
    let timed = |minutes: u64| PlannedJob { runtime: Some(Duration::from_secs(60 * minutes)), ..plain() };
    fixture.begin(&[timed(90), timed(10)]);
    let mut worker = Worker::new(&fixture, 4);
    let mut exchange = worker.next(vec![], Duration::ZERO);
    exchange.time_left = Some(Duration::from_hours(1));
    worker.send(&fixture, exchange).unwrap();
    // The time limit is known from the first exchange on, and the claim respects it.
    assert_eq!(worker.held.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["j1"]);
}

#[test]
fn a_cancel_reaches_polling_workers() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), after(&[0])]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let exchange = worker.next(vec![], Duration::from_secs(15));
    let waiting = later(|reply| fixture.service.exchange(exchange, me(), reply));
    ask(|reply| fixture.service.cancel_workflow(workflow, "me", reply)).unwrap();
    let answer = waiting.recv().unwrap().unwrap();
    assert_eq!(answer.stops.len(), 1);
    assert_eq!(answer.stops[0].why, StopReason::Canceled);
    assert!(!fixture.row(workflow).is_canceled, "one of its jobs still runs");
    let AttemptReport::Ended(mut end) = ended(worker.held[0].key, 143) else { unreachable!() };
    end.cause = windlass_types::worker_messages::AttemptEndCause::Stopped(StopReason::Canceled);
    worker.say(&fixture, vec![AttemptReport::Ended(end)]).unwrap();
    fixture.service.check_time();
    assert_eq!(fixture.statuses(workflow), [S::Canceled, S::Ready, S::Canceled]);
    assert!(fixture.row(workflow).is_canceled);
}

#[test]
fn returned_jobs_go_to_another_worker() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut first = Worker::new(&fixture, 1);
    first.say(&fixture, vec![]).unwrap();
    let key = first.held[0].key;
    let why = ReturnReason::WorkerTrouble("no space for logs".into());
    first.say(&fixture, vec![AttemptReport::Returned { key, why }]).unwrap();
    assert!(first.held.is_empty(), "it is in a cooldown");
    let mut second = Worker::new(&fixture, 1);
    second.say(&fixture, vec![]).unwrap();
    assert_eq!(second.keys(), [key], "the same attempt: it never started");
    second.work_off(&fixture);
    assert_eq!(fixture.results(workflow), [("j0".to_owned(), 1, 0)]);
}

#[test]
fn a_draining_worker_completes_its_jobs_and_gets_no_more() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    ask(|reply| fixture.service.drain_worker(worker.id, reply)).unwrap();
    let key = worker.held[0].key;
    let answer = worker.say(&fixture, vec![ended(key, 0)]).unwrap();
    assert!(answer.drain && answer.assignments.is_empty());
    let mut last = worker.next(vec![], Duration::ZERO);
    last.leaving = true;
    worker.send(&fixture, last).unwrap();
    fixture.service.check_time();
    assert_eq!(fixture.service.metrics().workers, 0);
    assert!(fixture.store.active_workers(None).unwrap().is_empty());
    assert_eq!(fixture.statuses(workflow), [S::Completed, S::Ready]);
}

#[test]
fn a_bound_worker_is_dismissed_when_its_workflow_ends() {
    let fixture = Fixture::new();
    let (workflow, other) = (fixture.begin(&[plain()]), fixture.begin(&[plain()]));
    let mut worker = Worker::join(&fixture, WorkerRegistration { workflow: Some(workflow), ..someone(4) });
    let answer = worker.say(&fixture, vec![]).unwrap();
    assert!(!answer.dismissed);
    let key = worker.held[0].key;
    worker.say(&fixture, vec![ended(key, 0)]).unwrap();
    let answer = worker.say(&fixture, vec![]).unwrap();
    assert!(answer.dismissed && answer.assignments.is_empty());
    assert_eq!(fixture.statuses(other), [S::Ready]);
    let late = WorkerRegistration { workflow: Some(workflow), ..someone(4) };
    let mut late = Worker::join(&fixture, late);
    assert!(late.say(&fixture, vec![]).unwrap().dismissed);
    let nowhere = WorkerRegistration { workflow: Some(windlass_types::WorkflowId(99)), ..someone(1) };
    assert_eq!(code(&introduce(&fixture, &nowhere).unwrap_err()), "not_found");
}

#[test]
fn a_failure_cancels_dependents_and_the_run_ends() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0])]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let key = worker.held[0].key;
    worker.say(&fixture, vec![ended(key, 3)]).unwrap();
    fixture.service.check_time();
    assert_eq!(fixture.statuses(workflow), [S::Failed, S::Canceled]);
    assert!(fixture.row(workflow).ended_at.is_some());
    let refused = ask(|reply| fixture.service.start_workflow(workflow, "me", reply)).unwrap_err();
    assert_eq!(code(&refused), "workflow_over");
}

#[test]
fn stopping_replies_to_all_callers_and_commits_everything() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let key = worker.held[0].key;
    worker.say(&fixture, vec![ended(key, 0)]).unwrap();
    let exchange = worker.next(vec![], Duration::from_secs(15));
    let waiting = later(|reply| fixture.service.exchange(exchange, me(), reply));
    fixture.service.stop();
    assert!(waiting.recv().unwrap().is_ok(), "an empty answer");
    assert_eq!(code(&worker.say(&fixture, vec![]).unwrap_err()), "unavailable");
    assert_eq!(fixture.statuses(workflow), [S::Completed]);
}

#[test]
fn stale_reports_change_nothing_and_are_recorded() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let (mut one, mut two) = (Worker::new(&fixture, 1), Worker::new(&fixture, 1));
    one.say(&fixture, vec![]).unwrap();
    two.say(&fixture, vec![]).unwrap();
    let of_another = two.held[0].key;
    let answer = one.say(&fixture, vec![ended(of_another, 0)]).unwrap();
    assert_eq!(answer.stale.iter().map(|stale| stale.key).collect::<Vec<_>>(), [of_another]);
    assert!(answer.stale[0].found.contains("worker"), "{answer:?}");
    fixture.service.check_time();
    assert_eq!(fixture.statuses(workflow), [S::Pending, S::Pending]);
    let filter = EventFilter { category: Some("stale_report".into()), ..EventFilter::default() };
    assert_eq!(fixture.store.events(Some(workflow), &filter).unwrap().len(), 1);
    assert_eq!(fixture.service.metrics().stale_reports, 1);
}
