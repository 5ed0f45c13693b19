//! A database that is unreachable, slow, or leaves results unknown. Nothing is lost, and no call waits for
//! ever.

use crate::clients::{claim, complete, node, start};
use crate::kit::{Fixture, LEASE, Worker, after, ask, code, ended, later, me, plain, started};
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
    fixture: &Fixture,
    worker: &mut Worker,
    reports: Vec<AttemptReport>,
) -> mpsc::Receiver<Result<ExchangeReply, CallError>> {
    let exchange = worker.next(reports, Duration::ZERO);
    later(|reply| fixture.service.exchange(exchange, me(), reply))
}

/// Repeats it until it is accepted, and takes the reply.
fn insists(fixture: &Fixture, worker: &mut Worker, reports: &[AttemptReport]) -> ExchangeReply {
    let exchange = worker.next(reports.to_vec(), Duration::ZERO);
    for _ in 0..20 {
        let answer = later(|reply| fixture.service.exchange(exchange.clone(), me(), reply));
        match fixture.in_time(&answer) {
            Ok(answer) => {
                worker.takes(reports, &answer);
                return answer;
            }
            Err(refused) => assert_eq!(code(&refused), "unavailable"),
        }
    }
    panic!("never accepted");
}

fn every_job_ran_once(fixture: &Fixture, workflow: WorkflowId) {
    let results = fixture.results(workflow);
    let jobs = fixture.statuses(workflow);
    assert!(jobs.iter().all(|status| *status == S::Completed), "{jobs:?}");
    assert_eq!(results.len(), jobs.len(), "{results:?}");
    assert!(fixture.row(workflow).ended_at.is_some());
}

/// Exclusive work that does nothing until the returned sender is dropped.
fn occupied(
    fixture: &Fixture,
    workflow: WorkflowId,
) -> (mpsc::Sender<()>, mpsc::Receiver<Result<(), CallError>>) {
    let (reached, at_work) = mpsc::channel();
    let (go_on, until) = mpsc::channel::<()>();
    let work = Box::new(move |_: &dyn windlass_store::Store| {
        reached.send(()).unwrap();
        until.recv().unwrap_or_default();
        Ok(())
    });
    let done = later(|reply| {
        fixture.service.run_exclusive(workflow, ExclusiveRequirement::NoneRequired, work, reply);
    });
    at_work.recv().unwrap();
    (go_on, done)
}

fn edit(fixture: &Fixture, workflow: WorkflowId) {
    ask(|reply| {
        fixture.service.run_exclusive(
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
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), after(&[0])]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    fixture.blackout();
    let first = says(&fixture, &mut worker, vec![report.clone()]);
    fixture.pass(SECOND * 3);
    assert!(first.try_recv().is_err(), "nothing uncommitted is acknowledged");
    fixture.pass(SECOND * 3);
    assert_eq!(code(&first.recv().unwrap().unwrap_err()), "unavailable");
    fixture.database_available();
    worker.number -= 1;
    assert!(insists(&fixture, &mut worker, &[report]).stale.is_empty());
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

/// For example because of a text that it cannot store.
#[test]
fn a_rejected_report_does_not_block_others() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 2);
    worker.say(&fixture, vec![]).unwrap();
    let mut reports: Vec<AttemptReport> =
        worker.keys().into_iter().zip([1, 0]).map(|(key, code)| ended(key, code)).collect();
    if let AttemptReport::Ended(ended) = &mut reports[0] {
        ended.last_words = Some("a text that cannot be stored".to_owned());
    }
    fixture.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::Refused);
    assert!(insists(&fixture, &mut worker, &reports).stale.is_empty());
    assert_eq!(fixture.statuses(workflow), [S::Failed, S::Completed]);
    let noted = EventFilter { category: Some("report_reduced".into()), ..EventFilter::default() };
    assert_eq!(fixture.store.events(Some(workflow), &noted).unwrap().len(), 1);
}

#[test]
fn commands_that_cannot_be_read_are_read_later() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    // The report can be written; only the next assignment cannot be read.
    fixture.database_state(|asked| {
        if asked == DatabaseOperation::Read { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    let answer = insists(&fixture, &mut worker, &[report]);
    assert!(answer.stale.is_empty() && answer.assignments.is_empty());
    assert_eq!(fixture.statuses(workflow), [S::Completed, S::Ready, S::Ready], "no claim is left behind");
    fixture.database_available();
    fixture.pass(SECOND * 2);
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn a_workflow_unreadable_after_an_edit_has_not_ended() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    fixture.database_state(|asked| {
        if asked == DatabaseOperation::Read { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    edit(&fixture, workflow);
    let answer = says(&fixture, &mut worker, vec![report.clone()]);
    fixture.pass(SECOND * 3);
    fixture.database_available();
    let answer = fixture.in_time(&answer).unwrap();
    assert!(answer.stale.is_empty());
    worker.takes(&[report], &answer);
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn a_workflow_unreadable_at_the_start_is_read_later() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let key = worker.held[0].key;
    // Only the quarantined nodes, workers and workflows can be read.
    let mut reads = 0;
    fixture.database_state(move |asked| {
        reads += u32::from(asked == DatabaseOperation::Read);
        if reads > 3 { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    fixture.restart();
    let back = worker.comes_back(&fixture, &[key], &[]);
    fixture.pass(SECOND * 2);
    assert!(back.try_recv().is_err(), "its attempts cannot be confirmed yet");
    fixture.database_available();
    assert!(fixture.in_time(&back).unwrap().lost.is_empty());
    worker.number = 0;
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn reports_that_arrive_during_a_reset_are_kept() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let failed = worker.held[0].key;
    worker.say(&fixture, vec![ended(failed, 1)]).unwrap();
    let report = ended(worker.held[0].key, 0);
    let mut retried = None;
    let retry = |reply| fixture.service.retry_job(failed.job, RunId(1), 9, "me", reply);
    let release = fixture.hold_next_batch(|| retried = Some(later(retry)));
    let reported = says(&fixture, &mut worker, vec![report]);
    drop(release);
    fixture.in_time(&retried.unwrap()).unwrap();
    let answer = fixture.in_time(&reported).unwrap();
    assert!(answer.stale.is_empty());
    worker.held = answer.assignments;
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 3]);
}

#[test]
fn jobs_are_retried_while_workers_report() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain(), plain()]);
    let mut worker = Worker::new(&fixture, 2);
    worker.say(&fixture, vec![]).unwrap();
    let failed = worker.held[0].key;
    worker.say(&fixture, vec![ended(failed, 1)]).unwrap();
    let report = started(worker.held[0].key);
    let mut reported = None;
    let release = fixture.hold_next_batch(|| reported = Some(says(&fixture, &mut worker, vec![report])));
    let retried = later(|reply| fixture.service.retry_job(failed.job, RunId(1), 9, "me", reply));
    drop(release);
    fixture.in_time(&reported.unwrap()).unwrap();
    fixture.in_time(&retried).expect("it waits until no commit is under way");
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 3]);
}

#[test]
fn a_claim_with_unknown_commit_reaches_its_worker() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 2);
    fixture.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::CommitInDoubt);
    let answer = insists(&fixture, &mut worker, &[]);
    assert_eq!(answer.assignments.len(), 2);
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn a_result_with_unknown_commit_is_not_stale() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    fixture.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::CommitInDoubt);
    assert!(insists(&fixture, &mut worker, &[report]).stale.is_empty());
    assert_eq!(fixture.service.metrics().stale_reports, 0);
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn unsent_assignments_survive_an_edit() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    // It is claimed for a waiting caller who hangs up before the reply.
    let mut waiting = None;
    let release = fixture.hold_next_batch(|| waiting = Some(says(&fixture, &mut worker, vec![])));
    fixture.service.cancel_exchange(worker.id, worker.number, worker.secret.clone());
    drop(release);
    fixture.service.check_time();
    assert!(waiting.unwrap().try_recv().is_err());
    edit(&fixture, workflow);
    let answer = worker.say(&fixture, vec![]).unwrap();
    assert_eq!(answer.assignments.len(), 1);
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn calls_behind_a_rejected_batch_are_resumed() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    fixture.next_ones(1, DatabaseOperation::Batch, || InjectedOutcome::CommitInDoubt);
    let answer = says(&fixture, &mut worker, vec![]);
    fixture.service.check_time();
    let edited = later(|reply| {
        fixture.service.run_exclusive(
            workflow,
            ExclusiveRequirement::NoneRequired,
            Box::new(|_| Ok(())),
            reply,
        );
    });
    worker.held = fixture.in_time(&answer).unwrap().assignments;
    fixture.in_time(&edited).unwrap();
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn an_end_that_cannot_be_written_is_written_later() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    fixture.database_state(|asked| {
        if asked == DatabaseOperation::Write { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    worker.say(&fixture, vec![report]).unwrap();
    assert!(fixture.row(workflow).ended_at.is_none());
    fixture.database_available();
    fixture.pass(SECOND * 2);
    assert!(fixture.row(workflow).ended_at.is_some());
}

#[test]
fn a_retry_whose_run_could_not_begin_can_be_repeated() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), after(&[0])]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let key = worker.held[0].key;
    worker.say(&fixture, vec![ended(key, 1)]).unwrap();
    assert!(fixture.row(workflow).ended_at.is_some());
    let retry = || ask(|reply| fixture.service.retry_job(key.job, RunId(1), 9, "me", reply));
    fixture.database_state(|asked| {
        if asked == DatabaseOperation::Write { InjectedOutcome::Failed } else { InjectedOutcome::Done }
    });
    assert_eq!(code(&retry().unwrap_err()), "unavailable");
    fixture.database_available();
    retry().unwrap();
    worker.work_off(&fixture);
    assert_eq!(fixture.statuses(workflow), [S::Completed; 2]);
}

#[test]
fn a_worker_keeps_its_lease_during_long_exclusive_work() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let mut worker = Worker::new(&fixture, 1);
    worker.say(&fixture, vec![]).unwrap();
    let report = ended(worker.held[0].key, 0);
    let (go_on, done) = occupied(&fixture, workflow);
    let exchange = worker.next(vec![report.clone()], Duration::ZERO);
    let mut last = None;
    for _ in 0..8 {
        let earlier = last.replace(later(|reply| fixture.service.exchange(exchange.clone(), me(), reply)));
        fixture.hand.advance(LEASE / 6);
        // Another call is handled, so that the service has checked the clock.
        fixture.begin(&[]);
        if let Some(earlier) = earlier {
            assert_eq!(code(&earlier.recv().unwrap().unwrap_err()), "unavailable", "asked to call again");
        }
    }
    assert_eq!(fixture.service.metrics().lost_workers, 0);
    drop(go_on);
    done.recv().unwrap().unwrap();
    worker.number -= 1;
    assert!(insists(&fixture, &mut worker, &[report]).stale.is_empty());
    worker.work_off(&fixture);
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn a_claim_of_a_client_survives_edits_and_restarts() {
    let mut fixture = Fixture::new();
    let workflow = fixture.begin(&[plain(), plain()]);
    let node = node(&fixture, workflow);
    let claimed: Vec<JobId> = claim(&fixture, workflow, 2);
    edit(&fixture, workflow);
    start(&fixture, claimed[0], node).unwrap();
    fixture.restart();
    start(&fixture, claimed[1], node).unwrap();
    for job in claimed {
        complete(&fixture, workflow, job, S::Completed).unwrap();
    }
    every_job_ran_once(&fixture, workflow);
}

#[test]
fn a_node_that_leaves_during_exclusive_work_returns_its_jobs() {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&[plain()]);
    let node: WorkerId = node(&fixture, workflow);
    let job = claim(&fixture, workflow, 1)[0];
    start(&fixture, job, node).unwrap();
    let (go_on, done) = occupied(&fixture, workflow);
    let cancel = later(|reply| fixture.service.cancel_workflow(workflow, "me", reply));
    let retired = later(|reply| fixture.service.retire_worker(node, "me", reply));
    drop(go_on);
    done.recv().unwrap().unwrap();
    cancel.recv().unwrap().expect("it waited for its turn");
    retired.recv().unwrap().unwrap();
    assert_eq!(fixture.statuses(workflow), [S::Canceled]);
    assert!(fixture.row(workflow).ended_at.is_some());
}
