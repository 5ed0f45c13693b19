//! Random introductions, exchanges, lost answers, repeats, deaths and restarts; and what holds whatever happens.

use crate::world::{LEASE, Worker, World, after, code, ended, me, plain, started};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use windlass_store::model::ResultFilter;
use windlass_types::work::{AttemptKey, Report, ReturnReason};
use windlass_types::{JobId, JobStatus as S, WorkerId, WorkflowId};

#[derive(Clone, Debug)]
enum Step {
    Introduce,
    /// A worker says what it did of what it has; `u8` says which and how.
    Exchange(usize, u8),
    /// The same, but the answer gets lost; sometimes it is asked for again.
    Lost(usize, u8),
    /// It says nothing for longer than its lease, and does not know.
    CutOff(usize),
    Die(usize),
    Restart,
    Freeze,
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
    ]
}

struct Model {
    world: World,
    workflows: Vec<WorkflowId>,
    workers: Vec<Worker>,
    /// The attempts that somebody who is alive was given and has not reported, by holder.
    live: HashMap<JobId, (WorkerId, AttemptKey)>,
}

impl Model {
    fn new() -> Self {
        let world = World::new();
        let graph = [plain(), plain(), after(&[0]), after(&[0, 1]), plain(), after(&[2, 3])];
        let workflows = vec![world.begin(&graph), world.begin(&vec![plain(); 5])];
        Self { world, workflows, workers: Vec::new(), live: HashMap::new() }
    }

    fn pick(&self, index: usize) -> Option<usize> {
        (!self.workers.is_empty()).then(|| index % self.workers.len())
    }

    fn perform(&mut self, step: &Step) {
        match *step {
            Step::Introduce if self.workers.len() < 4 => {
                let cpus = 1 + self.workers.len() as u32 % 2;
                self.workers.push(Worker::new(&self.world, cpus));
            }
            Step::Introduce => {}
            Step::Exchange(index, how) => self.exchange(index, how, false),
            Step::Lost(index, how) => self.exchange(index, how, true),
            Step::CutOff(index) => self.cut_off(index, false),
            Step::Die(index) => self.cut_off(index, true),
            Step::Restart => self.world.restart(),
            Step::Freeze => {
                self.world.hand.advance(LEASE * 3);
                self.world.service.look_around();
            }
        }
        self.check();
    }

    fn exchange(&mut self, index: usize, how: u8, answer_is_lost: bool) {
        let Some(index) = self.pick(index) else { return };
        let worker = &mut self.workers[index];
        let reports = reports(&worker.keys(), how);
        let exchange = worker.next(reports.clone(), Duration::ZERO);
        if answer_is_lost {
            // It reached the server, perhaps; the worker does not know, and asks again.
            drop(crate::world::later(|reply| self.world.service.exchange(exchange.clone(), me(), reply)));
            if how.is_multiple_of(2) {
                self.world.service.hang_up(worker.id, worker.number);
            }
        }
        match worker.send(&self.world, exchange) {
            Ok(answer) => {
                let late: HashSet<AttemptKey> = answer.stale.iter().copied().collect();
                for report in &reports {
                    if !matches!(report, Report::Started { .. }) {
                        assert!(!late.contains(report.key()), "what a live worker holds is its own");
                        self.live.remove(&report.key().job);
                    }
                }
                for assignment in &answer.assignments {
                    let job = assignment.key.job;
                    let before = self.live.insert(job, (self.workers[index].id, assignment.key));
                    assert!(before.is_none(), "{job} was given to two who live: {before:?}");
                }
            }
            Err(refused) => {
                assert_eq!(code(&refused), "unknown_worker");
                self.come_back(index);
            }
        }
    }

    /// The server was restarted, or had given the worker up.
    fn come_back(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        let (held, old) = (worker.keys(), worker.id);
        let lost = worker.come_back(&self.world, &held);
        for key in lost {
            if self.live.get(&key.job).is_some_and(|(holder, _)| *holder == old) {
                self.live.remove(&key.job);
            }
        }
        if worker.id != old {
            self.live.retain(|_, (holder, _)| *holder != old);
        }
    }

    /// Nothing is heard of a worker until it is given up; the others are.
    fn cut_off(&mut self, index: usize, dies: bool) {
        let Some(index) = self.pick(index) else { return };
        // The last that is heard of it: it is not given up before the others have been asked for the last time.
        self.exchange(index, 0, false);
        let id = self.workers[index].id;
        for _ in 0..4 {
            for other in (0..self.workers.len()).filter(|other| *other != index) {
                self.exchange(other, 0, false);
            }
            self.world.pass(LEASE / 3);
        }
        // By now it has stopped what it had: that is what a lease is for.
        self.live.retain(|_, (holder, _)| *holder != id);
        if dies {
            self.workers.remove(index);
        }
    }

    fn check(&self) {
        for &workflow in &self.workflows {
            let results = self.world.store.results(workflow, &ResultFilter::default()).unwrap();
            let mut completed: Vec<JobId> =
                results.iter().filter(|row| row.status == S::Completed).map(|row| row.key.job_id).collect();
            let count = completed.len();
            completed.sort_unstable();
            completed.dedup();
            assert_eq!(completed.len(), count, "no job completes twice");
        }
    }

    /// All workers do their work; everything ends, and nothing is held by nobody.
    fn finish(mut self) {
        self.workers.push(Worker::new(&self.world, 2));
        self.world.restart();
        for _ in 0..200 {
            for index in 0..self.workers.len() {
                self.exchange(index, 1, false);
            }
            if self.workflows.iter().all(|id| self.world.row(*id).ended_at.is_some()) {
                break;
            }
            self.world.pass(LEASE / 4);
        }
        for &workflow in &self.workflows {
            assert!(self.world.store.held_jobs(workflow).unwrap().is_empty());
            let statuses = self.world.statuses(workflow);
            assert!(
                statuses
                    .iter()
                    .all(|status| *status == S::Completed || *status == S::Failed || *status == S::Canceled),
                "{statuses:?}"
            );
            let results = self.world.store.results(workflow, &ResultFilter::default()).unwrap();
            let completed = results.iter().filter(|row| row.status == S::Completed).count();
            let done = statuses.iter().filter(|status| **status == S::Completed).count();
            assert_eq!(completed, done, "completed exactly once");
        }
    }
}

/// What a worker says of what it holds: some of it started, ended or is handed back.
fn reports(held: &[AttemptKey], how: u8) -> Vec<Report> {
    let of = |(number, key): (usize, &AttemptKey)| match (how as usize + number) % 5 {
        1 | 2 => Some(ended(*key, 0)),
        3 => Some(started(*key)),
        4 if how > 128 => Some(Report::Returned { key: *key, why: ReturnReason::Recalled }),
        _ => None,
    };
    held.iter().enumerate().filter_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]
    #[test]
    fn every_job_completes_once_whatever_happens(steps in proptest::collection::vec(step(), 1..60)) {
        let mut model = Model::new();
        for step in &steps {
            model.perform(step);
        }
        model.finish();
    }
}
