//! A database that is unreachable, slow, or leaves results unknown. Nothing is lost, and no call waits for
//! ever.

use crate::clients::{claim, complete, node, start};
use crate::kit::{LEASE, Worker, World, after, ask, code, ended, later, me, plain, started};
use std::sync::mpsc;
use std::time::Duration;
use windlass_scheduler::service::{CallError, ExclusiveRequirement};
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_store::model::EventFilter;
use windlass_types::worker_messages::AttemptReport;
use windlass_types::worker_protocol::ExchangeReply;
use windlass_types::{JobId, JobStatus as S, RunId, WorkerId, WorkflowId};

const SECOND: Duration = Duration::from_secs(1);

/// Sends an exchange, whose reply may take a while.
fn says(
    world: &World,
    worker: &mut Worker,
    reports: Vec<AttemptReport>,
) -> mpsc::Receiver<Result<ExchangeReply, CallError>> {
    let exchange = worker.next(reports, Duration::ZERO);
    later(|reply| world.service.exchange(exchange, me(), reply))
}

/// Repeats it until it is accepted, and takes the reply.
fn insists(world: &World, worker: &mut Worker, reports: &[AttemptReport]) -> ExchangeReply {
    let exchange = worker.next(reports.to_vec(), Duration::ZERO);
    for _ in 0..20 {
        let answer = later(|reply| world.service.exchange(exchange.clone(), me(), reply));
        match world.in_time(&answer) {
            Ok(answer) => {
                worker.takes(reports, &answer);
                return answer;
            }
            Err(refused) => assert_eq!(code(&refused), "unavailable"),
        }
    }
    panic!("never accepted");
}

fn every_job_ran_once(world: &World, workflow: WorkflowId) {
    let results = world.results(workflow);
    let jobs = world.statuses(workflow);
    assert!(jobs.iter().all(|status| *status == S::Completed), "{jobs:?}");
    assert_eq!(results.len(), jobs.len(), "{results:?}");
    assert!(world.row(workflow).ended_at.is_some());
}

/// Exclusive work that does nothing until the returned sender is dropped.
fn occupied(
    world: &World,
    workflow: WorkflowId,
) -> (mpsc::Sender<()>, mpsc::Receiver<Result<(), CallError>>) {
    let (reached, at_work) = mpsc::channel();
    let (go_on, until) = mpsc::channel::<()>();
    let work = Box::new(move |_: &dyn windlass_store::Store| {
        reached.send(()).unwrap();
        until.recv().unwrap_or_default();
        Ok(())
    });
    let done =
        later(|reply| world.service.run_exclusive(workflow, ExclusiveRequirement::NoneRequired, work, reply));
    at_work.recv().unwrap();
    (go_on, done)
}

fn edit(world: &World, workflow: WorkflowId) {
    ask(|reply| {
        world.service.run_exclusive(
            workflow,
            ExclusiveRequirement::NoneRequired,
            Box::new(|_| Ok(())),
            reply,
        );
    })
    .unwrap();
}

#[test]
fn a_temporarily_unreachable_database_loses_nothing() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain(), after(&[0])]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    world.blackout();
    let first = says(&world, &mut worker, vec![report.clone()]);
    world.pass(SECOND * 3);
    assert!(first.try_recv().is_err(), "nothing uncommitted is acknowledged");
    world.pass(SECOND * 3);
    assert_eq!(code(&first.recv().unwrap().unwrap_err()), "unavailable");
    world.fair_weather();
    worker.number -= 1;
    assert!(insists(&world, &mut worker, &[report]).stale.is_empty());
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

/// For example because of a text that it cannot store.
#[test]
fn a_rejected_report_does_not_block_others() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 2);
    worker.say(&world, vec![]).unwrap();
    let mut reports: Vec<AttemptReport> =
        worker.keys().into_iter().zip([1, 0]).map(|(key, code)| ended(key, code)).collect();
    if let AttemptReport::Ended(ended) = &mut reports[0] {
        ended.last_words = Some("a text that cannot be stored".to_owned());
    }
    world.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::Refused);
    assert!(insists(&world, &mut worker, &reports).stale.is_empty());
    assert_eq!(world.statuses(workflow), [S::Failed, S::Completed]);
    let noted = EventFilter { category: Some("report_reduced".into()), ..EventFilter::default() };
    assert_eq!(world.store.events(Some(workflow), &noted).unwrap().len(), 1);
}

#[test]
fn commands_that_cannot_be_read_are_read_later() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain(), plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    // The report can be written; only the next assignment cannot be read.
    world.weather(|asked| {
        if asked == DatabaseOperation::Read { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    let answer = insists(&world, &mut worker, &[report]);
    assert!(answer.stale.is_empty() && answer.assignments.is_empty());
    assert_eq!(world.statuses(workflow), [S::Completed, S::Ready, S::Ready], "no claim is left behind");
    world.fair_weather();
    world.pass(SECOND * 2);
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn a_workflow_unreadable_after_an_edit_has_not_ended() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    world.weather(|asked| {
        if asked == DatabaseOperation::Read { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    edit(&world, workflow);
    let answer = says(&world, &mut worker, vec![report.clone()]);
    world.pass(SECOND * 3);
    world.fair_weather();
    let answer = world.in_time(&answer).unwrap();
    assert!(answer.stale.is_empty());
    worker.takes(&[report], &answer);
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn a_workflow_unreadable_at_the_start_is_read_later() {
    let mut world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let key = worker.held[0].key;
    // Only the quarantined nodes, workers and workflows can be read.
    let mut reads = 0;
    world.weather(move |asked| {
        reads += u32::from(asked == DatabaseOperation::Read);
        if reads > 3 { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    world.restart();
    let back = worker.comes_back(&world, &[key], &[]);
    world.pass(SECOND * 2);
    assert!(back.try_recv().is_err(), "its attempts cannot be confirmed yet");
    world.fair_weather();
    assert!(world.in_time(&back).unwrap().lost.is_empty());
    worker.number = 0;
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn reports_that_arrive_during_a_reset_are_kept() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain(), plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let failed = worker.held[0].key;
    worker.say(&world, vec![ended(failed, 1)]).unwrap();
    let report = ended(worker.held[0].key, 0);
    let mut retried = None;
    let retry = |reply| world.service.retry_job(failed.job, RunId(1), 9, "me", reply);
    let release = world.hold_next_batch(|| retried = Some(later(retry)));
    let reported = says(&world, &mut worker, vec![report]);
    drop(release);
    world.in_time(&retried.unwrap()).unwrap();
    let answer = world.in_time(&reported).unwrap();
    assert!(answer.stale.is_empty());
    worker.held = answer.assignments;
    worker.work_off(&world);
    assert_eq!(world.statuses(workflow), [S::Completed; 3]);
}

#[test]
fn jobs_are_retried_while_workers_report() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain(), plain()]);
    let mut worker = Worker::new(&world, 2);
    worker.say(&world, vec![]).unwrap();
    let failed = worker.held[0].key;
    worker.say(&world, vec![ended(failed, 1)]).unwrap();
    let report = started(worker.held[0].key);
    let mut reported = None;
    let release = world.hold_next_batch(|| reported = Some(says(&world, &mut worker, vec![report])));
    let retried = later(|reply| world.service.retry_job(failed.job, RunId(1), 9, "me", reply));
    drop(release);
    world.in_time(&reported.unwrap()).unwrap();
    world.in_time(&retried).expect("it waits until no commit is under way");
    worker.work_off(&world);
    assert_eq!(world.statuses(workflow), [S::Completed; 3]);
}

#[test]
fn a_claim_with_unknown_commit_reaches_its_worker() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 2);
    world.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::CommitInDoubt);
    let answer = insists(&world, &mut worker, &[]);
    assert_eq!(answer.assignments.len(), 2);
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn a_result_with_unknown_commit_is_not_stale() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    world.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::CommitInDoubt);
    assert!(insists(&world, &mut worker, &[report]).stale.is_empty());
    assert_eq!(world.service.metrics().stale_reports, 0);
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn unsent_assignments_survive_an_edit() {
    let world = World::new();
    let workflow = world.begin(&[plain()]);
    let mut worker = Worker::new(&world, 1);
    // It is claimed for a waiting caller who hangs up before the reply.
    let mut waiting = None;
    let release = world.hold_next_batch(|| waiting = Some(says(&world, &mut worker, vec![])));
    world.service.cancel_exchange(worker.id, worker.number, worker.secret.clone());
    drop(release);
    world.service.check_time();
    assert!(waiting.unwrap().try_recv().is_err());
    edit(&world, workflow);
    let answer = worker.say(&world, vec![]).unwrap();
    assert_eq!(answer.assignments.len(), 1);
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn calls_behind_a_rejected_batch_are_resumed() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 1);
    world.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::CommitInDoubt);
    let answer = says(&world, &mut worker, vec![]);
    world.service.check_time();
    let edited = later(|reply| {
        world.service.run_exclusive(
            workflow,
            ExclusiveRequirement::NoneRequired,
            Box::new(|_| Ok(())),
            reply,
        );
    });
    worker.held = world.in_time(&answer).unwrap().assignments;
    world.in_time(&edited).unwrap();
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn an_end_that_cannot_be_written_is_written_later() {
    let world = World::new();
    let workflow = world.begin(&[plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    world.weather(|asked| {
        if asked == DatabaseOperation::Write { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    worker.say(&world, vec![report]).unwrap();
    assert!(world.row(workflow).ended_at.is_none());
    world.fair_weather();
    world.pass(SECOND * 2);
    assert!(world.row(workflow).ended_at.is_some());
}

#[test]
fn a_retry_whose_run_could_not_begin_can_be_repeated() {
    let world = World::new();
    let workflow = world.begin(&[plain(), after(&[0])]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let key = worker.held[0].key;
    worker.say(&world, vec![ended(key, 1)]).unwrap();
    assert!(world.row(workflow).ended_at.is_some());
    let retry = || ask(|reply| world.service.retry_job(key.job, RunId(1), 9, "me", reply));
    world.weather(|asked| {
        if asked == DatabaseOperation::Write { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    assert_eq!(code(&retry().unwrap_err()), "unavailable");
    world.fair_weather();
    retry().unwrap();
    worker.work_off(&world);
    assert_eq!(world.statuses(workflow), [S::Completed; 2]);
}

#[test]
fn a_worker_keeps_its_lease_during_long_exclusive_work() {
    let world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&world, 1);
    worker.say(&world, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    let (go_on, done) = occupied(&world, workflow);
    let exchange = worker.next(vec![report.clone()], Duration::ZERO);
    let mut last = None;
    for _ in 0..8 {
        let earlier = last.replace(later(|reply| world.service.exchange(exchange.clone(), me(), reply)));
        world.hand.advance(LEASE / 6);
        // Another call is handled, so that the service has checked the clock.
        world.begin(&[]);
        if let Some(earlier) = earlier {
            assert_eq!(code(&earlier.recv().unwrap().unwrap_err()), "unavailable", "asked to call again");
        }
    }
    assert_eq!(world.service.metrics().lost_workers, 0);
    drop(go_on);
    done.recv().unwrap().unwrap();
    worker.number -= 1;
    assert!(insists(&world, &mut worker, &[report]).stale.is_empty());
    worker.work_off(&world);
    every_job_ran_once(&world, workflow);
}

#[test]
fn a_claim_of_a_client_survives_edits_and_restarts() {
    let mut world = World::new();
    let workflow = world.begin(&[plain(), plain()]);
    let node = node(&world, workflow);
    let claimed: Vec<JobId> = claim(&world, workflow, 2);
    edit(&world, workflow);
    start(&world, claimed[0], node).unwrap();
    world.restart();
    start(&world, claimed[1], node).unwrap();
    for job in claimed {
        complete(&world, workflow, job, S::Completed).unwrap();
    }
    every_job_ran_once(&world, workflow);
}

#[test]
fn a_node_that_leaves_during_exclusive_work_returns_its_jobs() {
    let world = World::new();
    let workflow = world.begin(&[plain()]);
    let node: WorkerId = node(&world, workflow);
    let job = claim(&world, workflow, 1)[0];
    start(&world, job, node).unwrap();
    let (go_on, done) = occupied(&world, workflow);
    let cancel = later(|reply| world.service.cancel_workflow(workflow, "me", reply));
    let retired = later(|reply| world.service.retire_worker(node, "me", reply));
    drop(go_on);
    done.recv().unwrap().unwrap();
    cancel.recv().unwrap().expect("it waited for its turn");
    retired.recv().unwrap().unwrap();
    assert_eq!(world.statuses(workflow), [S::Canceled]);
    assert!(world.row(workflow).ended_at.is_some());
}
