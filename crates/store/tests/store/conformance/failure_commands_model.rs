//! Random changes, undos, proposals and answers against a small model: the store and the model agree on the
//! requests of jobs, on undone revisions, and on open proposals.

use crate::kit::{NOW, claim, commit, end, job, key, worker, workflow};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_store::Store;
use windlass_store::model::{DecisionFilter, DecisionState, InMemoryJobSource, NewWorkflow, RevisionFilter};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandStatus, PendingCommand,
    RequestedJobChanges, TriagePolicy,
};
use windlass_types::settings::WorkflowSettings;
use windlass_types::{Bytes, JobId, JobStatus, Resources, WorkerId, WorkflowId};

const JOBS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sets the memory of these jobs in MiB.
    Change([bool; JOBS], u64),
    /// Undoes the revision with this number.
    Undo(i64),
    /// Runs, and fails so that it waits for a decision.
    Run(usize),
    /// A user retries it.
    Retry(usize),
    /// An agent without the permission proposes a retry.
    Propose(usize),
    /// A user answers the proposal with this number.
    Settle(usize, bool),
}

#[derive(Clone, Copy, Debug)]
struct Revision {
    batch: i64,
    job: usize,
    before: Bytes,
    after: Bytes,
    /// Number of attempts that had ended then.
    ended: u32,
    undone: bool,
}

#[derive(Debug, Default)]
struct Model {
    memory: Vec<Bytes>,
    waits: [bool; JOBS],
    attempt: [u32; JOBS],
    ended: [u32; JOBS],
    revisions: Vec<Revision>,
    decisions: Vec<(usize, DecisionState)>,
}

impl Model {
    fn revise(&mut self, changes: &[(usize, Bytes)]) {
        let batch = self.revisions.iter().map(|one| one.batch).max().unwrap_or(0) + 1;
        for &(job, after) in changes {
            let (before, ended) = (self.memory[job], self.ended[job]);
            self.revisions.push(Revision { batch, job, before, after, ended, undone: false });
            self.memory[job] = after;
        }
    }

    /// Returns the results, or `None` if there is nothing to undo.
    fn undo(&mut self, batch: i64) -> Option<Vec<FailureCommandStatus>> {
        let mut back = Vec::new();
        let mut answers = Vec::new();
        for one in self.revisions.iter_mut().filter(|one| one.batch == batch && !one.undone) {
            let stands = self.memory[one.job] == one.after && self.ended[one.job] == one.ended;
            answers.push(if stands { FailureCommandStatus::Done } else { FailureCommandStatus::Refused });
            if stands {
                one.undone = true;
                back.push((one.job, one.before));
            }
        }
        self.revise(&back);
        (!answers.is_empty()).then_some(answers)
    }

    /// It no longer waits, so its proposal needs no answer.
    fn go_on(&mut self, job: usize) {
        self.waits[job] = false;
        self.attempt[job] += 1;
        for (_, state) in self.decisions.iter_mut().filter(|(of, _)| *of == job) {
            if *state == DecisionState::Proposed {
                *state = DecisionState::Overtaken;
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<[bool; JOBS]>(), 1..4_u64).prop_map(|(jobs, mib)| Step::Change(jobs, mib)),
        4 => (1..8_i64).prop_map(Step::Undo),
        3 => (0..JOBS).prop_map(Step::Run),
        2 => (0..JOBS).prop_map(Step::Retry),
        3 => (0..JOBS).prop_map(Step::Propose),
        3 => (0..6_usize, any::<bool>()).prop_map(|(which, agreed)| Step::Settle(which, agreed)),
    ];
    prop::collection::vec(step, 1..25)
}

pub(crate) fn random_commands_match_the_model(store: &dyn Store) {
    let mut runner = TestRunner::new(Config { cases: 30, failure_persistence: None, ..Config::default() });
    runner.run(&steps(), |steps| check(store, &steps)).unwrap();
}

fn made(store: &dyn Store) -> (WorkflowId, Vec<JobId>) {
    let policy = TriagePolicy { min_confidence: Some(0.8), ..TriagePolicy::default() };
    let settings =
        WorkflowSettings { use_pending_failed: true, triage: Some(policy), ..WorkflowSettings::default() };
    let edges = DependencyEdgesBuilder::default().finish();
    let new = NewWorkflow { settings: Some(&settings), ..workflow(&[], &edges) };
    let jobs = ["a", "b", "c"].map(job);
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), NOW).unwrap();
    (id, store.load_jobs(id).unwrap().ids)
}

fn order(job: JobId, kind: FailureCommandKind, memory_bytes: Option<Bytes>) -> FailureCommand {
    let changes = RequestedJobChanges { memory_bytes, ..RequestedJobChanges::default() };
    let (reason, confidence, evidence) = ("because".into(), None, Vec::new());
    FailureCommand { job, kind, changes, reason, confidence, evidence }
}

fn give(
    store: &dyn Store,
    id: WorkflowId,
    agent: Option<&str>,
    orders: Vec<FailureCommand>,
) -> Vec<FailureCommandStatus> {
    let orders =
        FailureCommandBatch { agent: agent.map(str::to_owned), orders, ..FailureCommandBatch::default() };
    let outcomes = store.apply_triage_command(id, &PendingCommand::Orders(orders), NOW).unwrap();
    outcomes.into_iter().map(|outcome| outcome.answer).collect()
}

fn check(store: &dyn Store, steps: &[Step]) -> Result<(), TestCaseError> {
    let (id, jobs) = made(store);
    let worker = worker(store, id);
    store.begin_run(id, NOW).unwrap();
    let mut model =
        Model { memory: vec![Resources::DEFAULT.memory; JOBS], attempt: [1; JOBS], ..Model::default() };
    for &step in steps {
        take(store, (id, &jobs, worker), &mut model, step)?;
        compare(store, id, &model)?;
    }
    Ok(())
}

fn take(
    store: &dyn Store,
    (id, jobs, worker): (WorkflowId, &[JobId], WorkerId),
    model: &mut Model,
    step: Step,
) -> Result<(), TestCaseError> {
    match step {
        Step::Change(which, mib) => {
            let chosen: Vec<usize> = (0..JOBS).filter(|job| which[*job]).collect();
            let to = Bytes(mib << 20);
            let orders =
                chosen.iter().map(|job| order(jobs[*job], FailureCommandKind::Change, Some(to))).collect();
            let changed: Vec<(usize, Bytes)> =
                chosen.iter().filter(|job| model.memory[**job] != to).map(|job| (*job, to)).collect();
            let done = give(store, id, None, orders)
                .iter()
                .filter(|one| **one == FailureCommandStatus::Done)
                .count();
            prop_assert_eq!(done, changed.len());
            model.revise(&changed);
        }
        Step::Undo(batch) => {
            let undone =
                store.apply_triage_command(id, &PendingCommand::Undo { batch, agent: None }, NOW).ok();
            let answers = undone.map(|all| all.iter().map(|one| one.answer).collect::<Vec<_>>());
            prop_assert_eq!(answers, model.undo(batch), "undo {}", batch);
        }
        Step::Run(job) => {
            if !model.waits[job] {
                let attempt = model.attempt[job];
                let failing = end(key(id, jobs[job], attempt), worker, JobStatus::PendingFailed);
                commit(store, id, vec![claim(jobs[job], attempt, worker), failing]).unwrap();
                model.waits[job] = true;
                model.ended[job] += 1;
            }
        }
        Step::Retry(job) => {
            let answer = give(store, id, None, vec![order(jobs[job], FailureCommandKind::Retry, None)]);
            prop_assert_eq!(answer[0] == FailureCommandStatus::Done, model.waits[job]);
            if model.waits[job] {
                model.decisions.push((job, DecisionState::Done));
                model.go_on(job);
            }
        }
        Step::Propose(job) => {
            let answer = give(store, id, Some("ai"), vec![order(jobs[job], FailureCommandKind::Retry, None)]);
            prop_assert_eq!(answer[0] == FailureCommandStatus::Proposed, model.waits[job]);
            if model.waits[job] && !model.decisions.contains(&(job, DecisionState::Proposed)) {
                model.decisions.push((job, DecisionState::Proposed));
            }
        }
        Step::Settle(which, agreed) => {
            let rows = store.decisions(id, &DecisionFilter::default()).unwrap();
            let Some(row) = rows.get(which) else { return Ok(()) };
            let settled =
                store.apply_triage_command(id, &PendingCommand::Settle { decision: row.id, agreed }, NOW);
            let (job, state) = model.decisions[which];
            prop_assert_eq!(settled.is_ok(), state == DecisionState::Proposed);
            if settled.is_ok() {
                model.decisions[which].1 = if agreed { DecisionState::Done } else { DecisionState::Declined };
                if agreed {
                    model.go_on(job);
                }
            }
        }
    }
    Ok(())
}

fn compare(store: &dyn Store, id: WorkflowId, model: &Model) -> Result<(), TestCaseError> {
    let table = store.load_jobs(id).unwrap();
    for job in 0..JOBS {
        let status = if model.waits[job] { JobStatus::PendingFailed } else { JobStatus::Ready };
        let found = (table.status[job], table.attempt[job].0);
        prop_assert_eq!(found, (status, model.attempt[job]));
        let asked = table.requirements[table.class[job] as usize].memory;
        prop_assert_eq!(asked, model.memory[job], "job {}", job);
    }
    let rows = store.revisions(id, RevisionFilter::default()).unwrap();
    let found: Vec<(i64, bool)> = rows.iter().map(|row| (row.batch, row.undone_at.is_some())).collect();
    let expected: Vec<(i64, bool)> = model.revisions.iter().map(|one| (one.batch, one.undone)).collect();
    prop_assert_eq!(found, expected);
    let rows = store.decisions(id, &DecisionFilter::default()).unwrap();
    let found: Vec<DecisionState> = rows.iter().map(|row| row.state).collect();
    let expected: Vec<DecisionState> = model.decisions.iter().map(|(_, state)| *state).collect();
    prop_assert_eq!(found, expected);
    Ok(())
}
