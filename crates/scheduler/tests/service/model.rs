//! A model test: random registrations, exchanges, lost replies, repeats, deaths and restarts, edits, retries
//! and resets, with a database that sometimes fails; and the invariants.

use crate::kit::{
    FailureSettings, Fixture, LEASE, PlannedJob, Worker, after, code, ended, handled, later, me, plain,
    started,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use windlass_scheduler::service::{CallError, CallReply, ExclusiveRequirement, JobsToReset, SchedulerHandle};
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_store::model::{JobFilter, NewUserData, ResultFilter, ResultRow};
use windlass_types::settings::FailureRule;
use windlass_types::worker_messages::{AttemptKey, AttemptReport, ReturnReason};
use windlass_types::worker_protocol::{ExchangeReply, WorkerExchange};
use windlass_types::{JobId, JobStatus as S, RunId, Timestamp, WorkerId, WorkflowId};

#[derive(Clone, Debug)]
enum Step {
    Introduce,
    /// A worker reports about its jobs; `u8` selects which and how.
    Exchange(usize, u8),
    /// The same, but the reply gets lost; sometimes it is repeated.
    Lost(usize, u8),
    /// It is silent for longer than its lease, without noticing.
    CutOff(usize),
    Die(usize),
    Restart,
    Freeze,
    /// This many operations fail, or have an unknown result, during the next step.
    Trouble(Kind, u32),
    /// A user edits a workflow, retries its failed jobs, or resets them: alone, or (`true`) while a worker
    /// reports.
    Edit(usize, bool),
    Retry(usize, bool),
    Reset(usize),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Reads,
    Writes,
    Batches,
    Doubts,
    All,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Introduce),
        12 => (any::<usize>(), any::<u8>()).prop_map(|(worker, how)| Step::Exchange(worker, how)),
        4 => (any::<usize>(), any::<u8>()).prop_map(|(worker, how)| Step::Lost(worker, how)),
        1 => any::<usize>().prop_map(Step::CutOff),
        1 => any::<usize>().prop_map(Step::Die),
        1 => Just(Step::Restart),
        1 => Just(Step::Freeze),
        6 => (kind(), 1u32..5).prop_map(|(kind, count)| Step::Trouble(kind, count)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, busy)| Step::Edit(which, busy)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, busy)| Step::Retry(which, busy)),
        1 => any::<usize>().prop_map(Step::Reset),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Reads),
        Just(Kind::Writes),
        Just(Kind::Batches),
        Just(Kind::Doubts),
        Just(Kind::All)
    ]
}

impl Kind {
    fn affects(self, asked: DatabaseOperation) -> bool {
        match self {
            Self::Reads => asked == DatabaseOperation::Read,
            Self::Writes => asked == DatabaseOperation::Write,
            Self::Batches | Self::Doubts => asked == DatabaseOperation::Batch,
            Self::All => true,
        }
    }

    fn outcome(self) -> InjectedOutcome {
        if matches!(self, Self::Doubts) { InjectedOutcome::CommitInDoubt } else { InjectedOutcome::Failed }
    }
}

/// One code is retried at once, after a script; another one later; a third one never.
fn failing() -> FailureSettings {
    let at_once = FailureRule {
        exit_codes: vec![1],
        recovery_script: Some("fix".into()),
        max_retries: 3,
        ..FailureRule::default()
    };
    let later = FailureRule {
        exit_codes: vec![2],
        delay: Some(Duration::from_secs(5)),
        max_retries: 2,
        ..FailureRule::default()
    };
    FailureSettings { rules: vec![at_once, later], ..FailureSettings::default() }
}

struct Model {
    fixture: Fixture,
    workflows: Vec<WorkflowId>,
    workers: Vec<Worker>,
    /// The unreported attempts that living workers hold, by holder.
    live: HashMap<JobId, (WorkerId, AttemptKey)>,
    edits: usize,
}

impl Model {
    fn new() -> Self {
        let fixture = Fixture::new();
        let graph = [plain(), plain(), after(&[0]), after(&[0, 1]), plain(), after(&[2, 3])];
        let handled_graph =
            [handled(), handled(), PlannedJob { is_handled: true, ..after(&[0]) }, after(&[1, 2])];
        let workflows = vec![
            fixture.begin(&graph),
            fixture.begin(&vec![plain(); 5]),
            fixture.begin_failing(&handled_graph, &failing()),
        ];
        Self { fixture, workflows, workers: Vec::new(), live: HashMap::new(), edits: 0 }
    }

    fn pick(&self, index: usize) -> Option<usize> {
        (!self.workers.is_empty()).then(|| index % self.workers.len())
    }

    fn perform(&mut self, step: &Step) {
        match *step {
            Step::Introduce if self.workers.len() < 4 => {
                // A worker that is not registered tries until it is.
                self.fixture.database_available();
                let cpus = 1 + self.workers.len() as u32 % 2;
                self.workers.push(Worker::new(&self.fixture, cpus));
            }
            Step::Introduce => {}
            Step::Exchange(index, how) => self.exchange(index, how, false),
            Step::Lost(index, how) => self.exchange(index, how, true),
            Step::CutOff(index) => self.cut_off(index, false),
            Step::Die(index) => self.cut_off(index, true),
            Step::Restart => {
                self.fixture.database_available();
                self.fixture.restart();
            }
            Step::Freeze => {
                self.fixture.hand.advance(LEASE * 3);
                self.fixture.service.check_time();
            }
            Step::Trouble(kind, mut count) => {
                self.fixture.database_state(move |asked| {
                    let meant = count > 0 && kind.affects(asked);
                    count -= u32::from(meant);
                    if meant { kind.outcome() } else { InjectedOutcome::Done }
                });
                return;
            }
            Step::Edit(which, busy) => self.edit(which, busy),
            Step::Retry(which, busy) => self.retry(which, busy),
            Step::Reset(which) => self.reset(which),
        }
        self.fixture.database_available();
        self.call_the_roll();
        self.check();
    }

    /// After time may have passed: all workers call, so that none is lost unintentionally.
    fn call_the_roll(&mut self) {
        for index in 0..self.workers.len() {
            self.exchange(index, 0, false);
        }
    }

    fn exchange(&mut self, index: usize, how: u8, answer_is_lost: bool) {
        let Some(index) = self.pick(index) else { return };
        let worker = &mut self.workers[index];
        let reports = reports(&worker.keys(), how);
        let exchange = worker.next(reports.clone(), Duration::ZERO);
        if answer_is_lost {
            // It may have reached the server; the worker does not know, and repeats it.
            drop(later(|reply| self.fixture.service.exchange(exchange.clone(), me(), reply)));
            if how.is_multiple_of(2) {
                self.fixture.service.cancel_exchange(worker.id, worker.number, worker.secret.clone());
            }
        }
        match insist(&self.fixture, &exchange) {
            Ok(answer) => {
                worker.takes(&reports, &answer);
                self.note(index, &reports, &answer);
            }
            Err(refused) => {
                assert_eq!(code(&refused), "unknown_worker");
                self.come_back(index);
            }
        }
    }

    fn note(&mut self, index: usize, reports: &[AttemptReport], answer: &ExchangeReply) {
        let late: HashSet<AttemptKey> = answer.stale.iter().map(|stale| stale.key).collect();
        for report in reports {
            if !matches!(report, AttemptReport::Started { .. }) {
                assert!(!late.contains(report.key()), "a living worker keeps its attempts");
                self.live.remove(&report.key().job);
            }
        }
        for assignment in &answer.assignments {
            let job = assignment.key.job;
            let before = self.live.insert(job, (self.workers[index].id, assignment.key));
            assert!(before.is_none(), "{job} was assigned to two living workers: {before:?}");
        }
    }

    /// Makes a call, and waits for its reply. If `busy`, all workers report meanwhile.
    fn ask_for<T: Send + 'static>(
        &mut self,
        busy: bool,
        call: impl FnOnce(&SchedulerHandle, CallReply<T>),
    ) -> Result<T, CallError> {
        let answer = later(|reply| call(&self.fixture.service, reply));
        if busy {
            for index in 0..self.workers.len() {
                self.exchange(index, 1, false);
            }
        }
        self.fixture.in_time(&answer)
    }

    fn edit(&mut self, which: usize, busy: bool) {
        let workflow = self.workflows[which % self.workflows.len()];
        let name = format!("part {which} {}", self.edits);
        self.edits += 1;
        let work = Box::new(move |store: &dyn windlass_store::Store| {
            let new = NewUserData { name: &name, data: None, is_ephemeral: false };
            store.add_user_data(workflow, &new, Timestamp(1)).map(|_| ())
        });
        let outcome = self.ask_for(busy, |service, reply| {
            service.run_exclusive(workflow, ExclusiveRequirement::NoneRequired, work, reply);
        });
        if let Err(refused) = outcome {
            assert_eq!(code(&refused), "unavailable");
        }
    }

    fn retry(&mut self, which: usize, busy: bool) {
        let workflow = self.workflows[which % self.workflows.len()];
        let rows = self.fixture.store.jobs(workflow, &JobFilter::default()).unwrap();
        let Some(failed) = rows.iter().find(|row| row.status == S::Failed).map(|row| row.id) else { return };
        let outcome = self.ask_for(busy, |service, reply| {
            service.retry_job(failed, RunId(1), u32::MAX, "me", reply);
        });
        if let Err(refused) = outcome {
            // Or it was retried before that was known.
            assert!(["unavailable", "not_retryable"].contains(&code(&refused)), "{refused}");
        }
    }

    /// Resets failed jobs, and makes them ready again. Repeated if the result is unknown.
    fn reset(&mut self, which: usize) {
        let workflow = self.workflows[which % self.workflows.len()];
        for _ in 0..2 {
            let sent_back = self.ask_for(false, |service, reply| {
                service.reset_jobs(workflow, JobsToReset::Failed, "me", reply);
            });
            let begun = sent_back.and_then(|_| {
                self.ask_for(false, |service, reply| {
                    service.initialize_workflow(workflow, true, false, "me", reply);
                })
            });
            match begun {
                Ok(()) => return,
                Err(refused) if code(&refused) == "workflow_active" => return,
                Err(refused) => assert_eq!(code(&refused), "unavailable"),
            }
            self.fixture.database_available();
        }
        panic!("it is never done");
    }

    /// The server was restarted, or considered the worker lost.
    fn come_back(&mut self, index: usize) {
        self.fixture.database_available();
        let worker = &mut self.workers[index];
        let (held, old) = (worker.keys(), worker.id);
        let lost = worker.come_back(&self.fixture, &held);
        for key in lost {
            if self.live.get(&key.job).is_some_and(|(holder, _)| *holder == old) {
                self.live.remove(&key.job);
            }
        }
        if worker.id != old {
            self.live.retain(|_, (holder, _)| *holder != old);
        }
    }

    /// A worker is silent until it is considered lost; the others call. Database problems come just then, so
    /// the leases of the others must not expire with it.
    fn cut_off(&mut self, index: usize, dies: bool) {
        let Some(index) = self.pick(index) else { return };
        let trouble = self.fixture.change_database_state(None);
        // Its last call: its lease expires after the last calls of the others.
        self.exchange(index, 0, false);
        let id = self.workers[index].id;
        for _ in 0..3 {
            self.hear_all_but(index);
            self.fixture.pass(LEASE / 3);
        }
        self.hear_all_but(index);
        self.fixture.change_database_state(trouble);
        self.fixture.pass(LEASE / 3);
        // By now it has stopped its jobs, because its lease expired.
        self.live.retain(|_, (holder, _)| *holder != id);
        if dies {
            self.workers.remove(index);
        }
    }

    fn hear_all_but(&mut self, index: usize) {
        for other in (0..self.workers.len()).filter(|other| *other != index) {
            self.exchange(other, 0, false);
        }
    }

    fn check(&self) {
        for &workflow in &self.workflows {
            let results = self.fixture.store.results(workflow, &ResultFilter::default()).unwrap();
            let mut completed: Vec<JobId> =
                results.iter().filter(|row| row.status == S::Completed).map(|row| row.key.job_id).collect();
            let count = completed.len();
            completed.sort_unstable();
            completed.dedup();
            assert_eq!(completed.len(), count, "no job completes twice");
            let mut keys: Vec<_> = results.iter().map(|row| (row.key.job_id, row.key.attempt_id)).collect();
            keys.dedup();
            assert_eq!(keys.len(), results.len(), "every attempt leaves one result");
            self.check_attempts(workflow, &results);
        }
    }

    /// The attempt of a job is never behind its results, and rules grant only what they allow.
    fn check_attempts(&self, workflow: WorkflowId, results: &[ResultRow]) {
        for job in self.fixture.store.jobs(workflow, &JobFilter::default()).unwrap() {
            let mine = results.iter().filter(|row| row.key.job_id == job.id);
            let newest = mine.clone().map(|row| row.key.attempt_id).max();
            assert!(newest.is_none_or(|newest| newest <= job.attempt_id), "attempts only rise: {job:?}");
            for row in mine {
                assert!(row.reason.as_deref().is_none_or(is_within_its_rule), "{row:?}");
            }
        }
    }

    /// All workers complete their jobs; all workflows end, and no job stays held.
    fn finish(mut self) {
        self.fixture.database_available();
        self.workers.push(Worker::new(&self.fixture, 2));
        for _ in 0..200 {
            for index in 0..self.workers.len() {
                self.exchange(index, 1, false);
            }
            if self.workflows.iter().all(|id| self.fixture.row(*id).ended_at.is_some()) {
                break;
            }
            self.fixture.pass(LEASE / 4);
        }
        for &workflow in &self.workflows {
            assert!(self.fixture.store.held_jobs(workflow).unwrap().is_empty());
            let statuses = self.fixture.statuses(workflow);
            assert!(
                statuses
                    .iter()
                    .all(|status| *status == S::Completed || *status == S::Failed || *status == S::Canceled),
                "{statuses:?}"
            );
            let results = self.fixture.store.results(workflow, &ResultFilter::default()).unwrap();
            let completed = results.iter().filter(|row| row.status == S::Completed).count();
            let done = statuses.iter().filter(|status| **status == S::Completed).count();
            assert_eq!(completed, done, "completed exactly once");
        }
    }
}

/// Repeats it until it is accepted.
fn insist(fixture: &Fixture, exchange: &WorkerExchange) -> Result<ExchangeReply, CallError> {
    for round in 0..10 {
        let answer = later(|reply| fixture.service.exchange(exchange.clone(), me(), reply));
        match fixture.in_time(&answer) {
            Err(CallError::Unavailable { .. }) if round == 0 => fixture.database_available(),
            Err(CallError::Unavailable { .. }) => {}
            answer => return answer,
        }
    }
    panic!("exchange {} of worker {} is never accepted", exchange.number, exchange.worker);
}

/// `attempt 3 of 3 by rule 1 …`: no rule grants more than it allows.
fn is_within_its_rule(reason: &str) -> bool {
    let words: Vec<&str> = reason.split(' ').collect();
    let ["attempt", granted, "of", allowed, ..] = words[..] else { return true };
    let number = |text: &str| text.parse::<u32>().expect("a number");
    (2..=number(allowed)).contains(&number(granted))
}

/// The reports of a worker about its jobs: some started, ended or are returned.
fn reports(held: &[AttemptKey], how: u8) -> Vec<AttemptReport> {
    let of = |(number, key): (usize, &AttemptKey)| match (how as usize + number) % 5 {
        1 | 2 => Some(ended(*key, if how > 200 { i32::from(how) % 4 } else { 0 })),
        3 => Some(started(*key)),
        4 if how > 128 => Some(AttemptReport::Returned { key: *key, why: ReturnReason::Recalled }),
        _ => None,
    };
    held.iter().enumerate().filter_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn every_job_completes_once_under_random_faults(steps in proptest::collection::vec(step(), 1..60)) {
        let mut model = Model::new();
        for step in &steps {
            model.perform(step);
        }
        model.finish();
    }
}
