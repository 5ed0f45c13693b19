//! Runs, cancellation and workers.

use crate::kit::{NOW, RUN, claim, commit, commit_batch, counts, create, end, key, new_worker, worker};
use windlass_core::change::WorkflowChange;
use windlass_store::model::{EventFilter, JobFilter, ResultFilter};
use windlass_store::{ChangeBatch, Store, StoreError};
use windlass_types::{Attempt, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

const LATER: Timestamp = Timestamp(NOW.0 + 1_000_000);
const LATEST: Timestamp = Timestamp(NOW.0 + 2_000_000);

pub(crate) fn runs_begin_and_end(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let times = || {
        let row = store.workflow(workflow).unwrap().unwrap();
        (row.started_at, row.ended_at)
    };
    let error = store.end_run(workflow, false, NOW).unwrap_err();
    assert!(matches!(error, StoreError::RunNotBegun { run: RUN, .. }), "{error}");
    assert_eq!(times(), (None, None));
    store.begin_run(workflow, NOW).unwrap();
    assert_eq!(times(), (Some(NOW), None));
    store.end_run(workflow, false, LATER).unwrap();
    assert_eq!(times(), (Some(NOW), Some(LATER)));
    // Resumed: it has its original start time and has not ended.
    store.begin_run(workflow, LATEST).unwrap();
    assert_eq!(times(), (Some(NOW), None));
}

pub(crate) fn next_run_starts_fresh(store: &dyn Store) {
    let (workflow, jobs) = create(store, 5);
    let first = worker(store, workflow);
    store.begin_run(workflow, NOW).unwrap();
    // One completes, one fails, one was interrupted and waits for its second attempt, one is canceled.
    let mut interrupted = end(key(workflow, jobs[2], 1), first, JobStatus::Terminated);
    if let WorkflowChange::End { to, next_attempt, .. } = &mut interrupted {
        (*to, *next_attempt) = (JobStatus::Ready, Attempt(2));
    }
    let changes = vec![
        claim(jobs[0], 1, first),
        claim(jobs[1], 1, first),
        claim(jobs[2], 1, first),
        end(key(workflow, jobs[0], 1), first, JobStatus::Completed),
        end(key(workflow, jobs[1], 1), first, JobStatus::Failed),
        interrupted,
        WorkflowChange::Status { job: jobs[3], from: JobStatus::Ready, to: JobStatus::Canceled },
    ];
    commit(store, workflow, changes).unwrap();
    store.end_run(workflow, true, NOW).unwrap();
    let last = EventFilter { newest: Some(1), ..EventFilter::default() };
    let told = store.events(Some(workflow), &last).unwrap().remove(0).data.unwrap();
    let counted = ["jobs", "completed", "failed", "terminated", "canceled"].map(|name| told[name].as_u64());
    assert_eq!(counted, [5, 1, 1, 0, 1].map(Some), "{told}");

    let run = store.begin_next_run(workflow, &[jobs[0], jobs[1], jobs[3]], LATER).unwrap();
    assert_eq!(run, RunId(2));
    let row = store.workflow(workflow).unwrap().unwrap();
    assert_eq!((row.run_id, row.is_canceled), (run, false));
    assert_eq!((row.started_at, row.ended_at), (Some(LATER), None));
    let table = store.load_jobs(workflow).unwrap();
    let (again, ready) = (JobStatus::Uninitialized, JobStatus::Ready);
    assert_eq!(table.status, [again, again, ready, again, ready]);
    assert_eq!(table.attempt, [Attempt::FIRST; 5]);
    counts(store, workflow);

    // Results of the first run are kept, and the same attempt number can be used again.
    let second_only = ResultFilter { run: Some(run), ..ResultFilter::default() };
    assert!(store.results(workflow, &second_only).unwrap().is_empty());
    let all = ResultFilter { all_runs: true, ..ResultFilter::default() };
    assert_eq!(store.results(workflow, &all).unwrap().len(), 3);
    assert_eq!(store.jobs(workflow, &JobFilter::default()).unwrap()[1].return_code, None);
    let mut second_key = key(workflow, jobs[2], 1);
    second_key.run = run;
    let changes = vec![claim(jobs[2], 1, first), end(second_key, first, JobStatus::Completed)];
    commit_batch(store, ChangeBatch { workflow, run, changes: changes.into() }).unwrap();
    assert_eq!(store.results(workflow, &all).unwrap().len(), 4);
    assert_eq!(store.results(workflow, &second_only).unwrap().len(), 1);
    // Default: for each job the newest run in which it ran.
    let newest = store.results(workflow, &ResultFilter::default()).unwrap();
    let runs: Vec<i64> = newest.iter().map(|row| row.key.run_id.0).collect();
    assert_eq!(runs, [1, 1, 2]);
}

pub(crate) fn no_next_run_while_a_worker_holds_a_job(store: &dyn Store) {
    let (workflow, jobs) = create(store, 2);
    let worker = worker(store, workflow);
    commit(store, workflow, vec![claim(jobs[0], 1, worker)]).unwrap();
    let error = store.begin_next_run(workflow, &[], NOW).unwrap_err();
    assert!(matches!(error, StoreError::StillActive { held: 1, .. }), "{error}");
    commit(store, workflow, vec![WorkflowChange::ReturnClaim { job: jobs[0], worker }]).unwrap();
    // A job of another workflow is rejected, and then nothing is changed.
    let error = store.begin_next_run(workflow, &[jobs[1], JobId(99_999)], NOW).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchJob(JobId(99_999))), "{error}");
    assert_eq!(store.workflow(workflow).unwrap().unwrap().run_id, RUN);
    assert_eq!(counts(store, workflow).get(JobStatus::Ready), 2);
}

pub(crate) fn cancel_request_stays_until_the_run_ends(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let (other, _) = create(store, 1);
    assert!(!store.cancel_requested(workflow).unwrap());
    store.request_cancel(workflow, NOW).unwrap();
    store.request_cancel(workflow, LATER).unwrap();
    assert!(store.cancel_requested(workflow).unwrap());
    assert!(!store.cancel_requested(other).unwrap());
    assert!(!store.workflow(workflow).unwrap().unwrap().is_canceled);
    store.begin_run(workflow, NOW).unwrap();
    store.end_run(workflow, true, LATER).unwrap();
    assert!(!store.cancel_requested(workflow).unwrap());
    assert!(store.workflow(workflow).unwrap().unwrap().is_canceled);
    // A late cancellation request does not cancel the next run.
    store.request_cancel(workflow, LATER).unwrap();
    store.begin_next_run(workflow, &[], LATEST).unwrap();
    assert!(!store.cancel_requested(workflow).unwrap());
}

pub(crate) fn workers_are_active_until_retired(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let (other, _) = create(store, 1);
    let first = worker(store, workflow);
    let mut unlimited = new_worker(workflow);
    unlimited.capacity.max_jobs = None;
    unlimited.pid_start_ticks = u64::MAX;
    let second = store.add_worker(&unlimited, LATER).unwrap();
    worker(store, other);
    let active = store.active_workers(Some(workflow)).unwrap();
    assert_eq!(active.iter().map(|row| row.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!((&active[0].worker, active[0].started_at), (&new_worker(workflow), NOW));
    assert_eq!((&active[1].worker, active[1].started_at), (&unlimited, LATER));
    store.retire_worker(first, LATER).unwrap();
    store.retire_worker(first, LATEST).unwrap();
    assert_eq!(store.active_workers(Some(workflow)).unwrap().len(), 1);
    let third = worker(store, workflow);
    assert!(third > second, "ids are not reused");
}

pub(crate) fn missing_workflow_is_named_in_errors(store: &dyn Store) {
    let nowhere = WorkflowId(77);
    let errors = [
        store.begin_run(nowhere, NOW).unwrap_err(),
        store.end_run(nowhere, false, NOW).unwrap_err(),
        store.begin_next_run(nowhere, &[], NOW).unwrap_err(),
        store.request_cancel(nowhere, NOW).unwrap_err(),
        store.cancel_requested(nowhere).unwrap_err(),
        store.end_run(nowhere, true, NOW).unwrap_err(),
        store.add_worker(&new_worker(nowhere), NOW).unwrap_err(),
        store.load_jobs(nowhere).unwrap_err(),
        store.jobs(nowhere, &JobFilter::default()).unwrap_err(),
        store.results(nowhere, &ResultFilter::default()).unwrap_err(),
        commit(store, nowhere, vec![]).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, StoreError::NoSuchWorkflow(id) if id == nowhere), "{error}");
        assert!(error.hint().is_some());
    }
    assert!(store.workflow(nowhere).unwrap().is_none());
    assert!(store.held_jobs(nowhere).unwrap().is_empty());
    assert!(store.active_workers(Some(nowhere)).unwrap().is_empty());
    let error = store.retire_worker(WorkerId(5), NOW).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchWorker(WorkerId(5))), "{error}");
}
