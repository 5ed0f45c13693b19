//! Random batches against a small model: after every batch the store and the model agree.

use crate::kit::{claim, commit, counts, create, end, key, start, worker};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use windlass_core::change::WorkflowChange;
use windlass_store::Store;
use windlass_store::model::ResultFilter;
use windlass_types::{Attempt, JobId, JobStatus, WorkerId, WorkflowId};

const JOBS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Step {
    Status(JobStatus, JobStatus),
    Claim,
    Start,
    /// The outcome of the attempt, and whether the job runs again.
    End(JobStatus, bool),
    GiveBack,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ModelJob {
    status: JobStatus,
    attempt: u32,
    results: usize,
    /// The worker that holds it.
    held_by: Option<usize>,
}

/// Returns the job after the step, or `None` if the step is not possible.
fn model_step(job: ModelJob, step: Step, by: usize) -> Option<ModelJob> {
    use JobStatus::{Pending, Ready, Running};
    let to = |status| Some(ModelJob { status, ..job });
    // A worker that does not or no longer hold it cannot change it.
    if matches!(step, Step::Start | Step::End(..) | Step::GiveBack) && job.held_by != Some(by) {
        return None;
    }
    match step {
        Step::Status(from, status) => {
            (job.status == from && !from.is_active() && !status.is_active()).then_some(())?;
            to(status)
        }
        Step::Claim if job.status == Ready => Some(ModelJob { status: Pending, held_by: Some(by), ..job }),
        Step::Start if job.status == Pending => to(Running),
        // An attempt that already has a result cannot get another one.
        Step::End(..) if job.results >= job.attempt as usize => None,
        Step::End(_, true) if job.status.is_active() => {
            let (attempt, results) = (job.attempt + 1, job.results + 1);
            Some(ModelJob { status: Ready, attempt, results, held_by: None })
        }
        Step::End(status, false) if job.status.is_active() => {
            Some(ModelJob { status, results: job.results + 1, held_by: None, ..job })
        }
        Step::GiveBack if job.status == Pending => Some(ModelJob { status: Ready, held_by: None, ..job }),
        Step::Claim | Step::Start | Step::End(..) | Step::GiveBack => None,
    }
}

/// The change that the engine would submit in the state of the model.
fn change(workflow: WorkflowId, id: JobId, worker: WorkerId, job: ModelJob, step: Step) -> WorkflowChange {
    match step {
        Step::Status(from, to) => WorkflowChange::Status { job: id, from, to },
        Step::Claim => claim(id, job.attempt, worker),
        Step::Start => start(id, job.attempt, worker),
        Step::End(status, again) => {
            let mut ended = end(key(workflow, id, job.attempt), worker, status);
            if let WorkflowChange::End { from, to, next_attempt, .. } = &mut ended {
                *from = job.status;
                if again {
                    (*to, *next_attempt) = (JobStatus::Ready, Attempt(job.attempt + 1));
                }
            }
            ended
        }
        Step::GiveBack => WorkflowChange::ReturnClaim { job: id, worker },
    }
}

/// A step of a job, by one of two workers.
type WorkerStep = (usize, Step, usize);

fn steps() -> impl Strategy<Value = Vec<Vec<WorkerStep>>> {
    let status = prop::sample::select(JobStatus::ALL.to_vec());
    let over = prop::sample::select(vec![JobStatus::Completed, JobStatus::Failed, JobStatus::Terminated]);
    let step = prop_oneof![
        2 => (status.clone(), status).prop_map(|(from, to)| Step::Status(from, to)),
        1 => Just(Step::Status(JobStatus::Failed, JobStatus::Ready)),
        4 => Just(Step::Claim),
        2 => Just(Step::Start),
        3 => (over, any::<bool>()).prop_map(|(status, again)| Step::End(status, again)),
        1 => Just(Step::GiveBack),
    ];
    let by = prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    prop::collection::vec(prop::collection::vec((0..JOBS, step, by), 1..4), 1..25)
}

pub(crate) fn random_batches_match_the_model(store: &dyn Store) {
    let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    runner.run(&steps(), |batches| check(store, &batches)).unwrap();
}

fn check(store: &dyn Store, batches: &[Vec<WorkerStep>]) -> Result<(), TestCaseError> {
    let (workflow, ids) = create(store, JOBS);
    let workers = [worker(store, workflow), worker(store, workflow)];
    let mut model = [ModelJob { status: JobStatus::Ready, attempt: 1, results: 0, held_by: None }; JOBS];
    for batch in batches {
        let mut next = model;
        let mut fits = true;
        let mut changes = Vec::new();
        for &(index, step, by) in batch {
            changes.push(change(workflow, ids[index], workers[by], next[index], step));
            match model_step(next[index], step, by) {
                Some(job) => next[index] = job,
                None => fits = false,
            }
        }
        let outcome = commit(store, workflow, changes);
        prop_assert_eq!(outcome.is_ok(), fits, "{:?}: {:?}", batch, outcome);
        if fits {
            model = next;
        }
        compare(store, workflow, &ids, &model)?;
    }
    Ok(())
}

fn compare(
    store: &dyn Store,
    workflow: WorkflowId,
    ids: &[JobId],
    model: &[ModelJob],
) -> Result<(), TestCaseError> {
    let table = store.load_jobs(workflow).unwrap();
    let results = store.results(workflow, &ResultFilter::default()).unwrap();
    for (index, job) in model.iter().enumerate() {
        let found = ModelJob {
            status: table.status[index],
            attempt: table.attempt[index].0,
            results: results.iter().filter(|row| row.key.job_id == ids[index]).count(),
            held_by: job.held_by,
        };
        prop_assert_eq!(found, *job);
    }
    let held = store.held_jobs(workflow).unwrap().len();
    prop_assert_eq!(held, model.iter().filter(|job| job.status.is_active()).count());
    prop_assert_eq!(counts(store, workflow).active(), held as u64);
    Ok(())
}
