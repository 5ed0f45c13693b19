//! Changes: their effects, and that conflicting ones have none.

use crate::kit::{NOW, RUN, claim, commit, commit_batch, counts, create, end, key, start, status_of, worker};
use std::sync::mpsc;
use std::time::Duration;
use windlass_core::change::{AttemptResult, WorkflowAlert, WorkflowChange};
use windlass_store::model::{EventFilter, EventSeverity, HeldJob, ResultFilter};
use windlass_store::{ChangeBatch, JobAttemptState, Store, StoreError};
use windlass_types::worker_messages::{AttemptUsage, ProcessExit};
use windlass_types::{Attempt, Bytes, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

pub(crate) fn job_passes_through_all_states(store: &dyn Store) {
    let (workflow, jobs) = create(store, 2);
    let (job, worker) = (jobs[0], worker(store, workflow));
    commit(store, workflow, vec![claim(job, 1, worker)]).unwrap();
    let pending = HeldJob {
        id: job,
        status: JobStatus::Pending,
        attempt: Attempt::FIRST,
        worker,
        pid: None,
        started_at: None,
    };
    assert_eq!(store.held_jobs(workflow).unwrap(), std::slice::from_ref(&pending));

    commit(store, workflow, vec![start(job, 1, worker)]).unwrap();
    let running = HeldJob { status: JobStatus::Running, pid: Some(99), started_at: Some(NOW), ..pending };
    assert_eq!(store.held_jobs(workflow).unwrap(), std::slice::from_ref(&running));
    assert_eq!(store.held_job(workflow, job).unwrap(), Some(running));
    assert_eq!(store.held_job(workflow, jobs[1]).unwrap(), None, "not held by a worker");
    assert_eq!(store.held_job(WorkflowId(workflow.0 + 1), job).unwrap(), None, "from another workflow");

    let usage = AttemptUsage {
        peak_memory: Some(Bytes(5000)),
        avg_memory: Some(Bytes(4000)),
        cpu_time: Duration::from_micros(123_456),
        peak_cpu_percent: Some(99.5),
        avg_cpu_percent: Some(50.25),
    };
    let result = AttemptResult {
        key: key(workflow, job, 1),
        worker,
        status: JobStatus::Failed,
        return_code: 137,
        exit: Some(ProcessExit::Signal(9)),
        out_of_memory: true,
        reason: Some("it used \"too much\" memory".into()),
        started_at: Some(NOW),
        ended_at: Timestamp(NOW.0 + 7),
        wall: Duration::from_micros(8),
        usage,
        files: None,
        recovered: None,
    };
    let ended = WorkflowChange::End {
        from: JobStatus::Running,
        to: JobStatus::Failed,
        result: result.clone(),
        next_attempt: Attempt(1),
        orphaned: false,
        failure: None,
        inherited: None,
    };
    commit(store, workflow, vec![ended]).unwrap();
    assert!(store.held_jobs(workflow).unwrap().is_empty());
    assert_eq!(store.held_job(workflow, job).unwrap(), None);
    assert_eq!(status_of(store, workflow, job), JobStatus::Failed);
    let rows = store.results(workflow, &ResultFilter::default()).unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(windlass_types::worker_messages::AttemptKey::from(row.key), result.key);
    assert_eq!((row.job_name.as_str(), row.worker_id, row.status), ("job_0000", worker, JobStatus::Failed));
    assert_eq!((row.return_code, row.signal, row.out_of_memory), (137, Some(9), true));
    assert_eq!(row.reason, result.reason);
    assert_eq!((row.started_at, row.ended_at), (result.started_at, result.ended_at));
    assert_eq!((row.wall, row.cpu_time), (result.wall, usage.cpu_time));
    assert_eq!((row.peak_memory_bytes, row.avg_memory_bytes), (usage.peak_memory, usage.avg_memory));
    assert_eq!((row.peak_cpu_percent, row.avg_cpu_percent), (usage.peak_cpu_percent, usage.avg_cpu_percent));

    let now = counts(store, workflow);
    assert_eq!((now.get(JobStatus::Failed), now.get(JobStatus::Ready)), (1, 1));
}

pub(crate) fn orphan_is_counted_and_runs_again(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let worker = worker(store, workflow);
    commit(store, workflow, vec![claim(jobs[0], 1, worker)]).unwrap();
    let WorkflowChange::End { from, result, .. } =
        end(key(workflow, jobs[0], 1), worker, JobStatus::Terminated)
    else {
        unreachable!()
    };
    let again = WorkflowChange::End {
        from,
        to: JobStatus::Ready,
        result,
        next_attempt: Attempt(2),
        orphaned: true,
        failure: None,
        inherited: None,
    };
    commit(store, workflow, vec![again, claim(jobs[0], 2, worker)]).unwrap();
    let table = store.load_jobs(workflow).unwrap();
    assert_eq!((table.status[0], table.attempt[0]), (JobStatus::Pending, Attempt(2)));
    assert_eq!(store.results(workflow, &ResultFilter::default()).unwrap()[0].status, JobStatus::Terminated);
}

pub(crate) fn claim_can_be_returned(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let worker = worker(store, workflow);
    commit(store, workflow, vec![claim(jobs[0], 1, worker)]).unwrap();
    commit(store, workflow, vec![WorkflowChange::ReturnClaim { job: jobs[0], worker }]).unwrap();
    let table = store.load_jobs(workflow).unwrap();
    assert_eq!((table.status[0], table.attempt[0]), (JobStatus::Ready, Attempt::FIRST));
    assert!(store.results(workflow, &ResultFilter::default()).unwrap().is_empty());
    assert!(store.held_jobs(workflow).unwrap().is_empty());
    counts(store, workflow);
}

pub(crate) fn conflicting_change_names_the_job_state(store: &dyn Store) {
    let (workflow, jobs) = create(store, 2);
    let (other, _) = create(store, 1);
    let worker_of = worker;
    let worker = worker_of(store, workflow);
    let job = jobs[0];
    let status = |from, to| WorkflowChange::Status { job, from, to };
    let state = |status, attempt: Option<u32>| JobAttemptState { status, attempt: attempt.map(Attempt) };
    let ready = Some(state(JobStatus::Ready, Some(1)));
    for (change, expected, found) in [
        (status(JobStatus::Blocked, JobStatus::Ready), state(JobStatus::Blocked, None), ready),
        (claim(job, 2, worker), state(JobStatus::Ready, Some(2)), ready),
        (start(job, 1, worker), state(JobStatus::Pending, Some(1)), ready),
        (WorkflowChange::ReturnClaim { job, worker }, state(JobStatus::Pending, None), ready),
        (end(key(workflow, job, 1), worker, JobStatus::Completed), state(JobStatus::Pending, Some(1)), ready),
    ] {
        match commit(store, workflow, vec![change.clone()]).unwrap_err() {
            StoreError::Conflict { workflow: w, job: j, expected: e, found: f } => {
                assert_eq!((w, j, e, f), (workflow, job, expected, found), "{change:?}");
            }
            other => panic!("{change:?}: {other}"),
        }
    }
    // A worker cannot end, start or return a job held by another one.
    let stranger = worker_of(store, workflow);
    commit(store, workflow, vec![claim(jobs[1], 1, worker)]).unwrap();
    for change in [
        start(jobs[1], 1, stranger),
        WorkflowChange::ReturnClaim { job: jobs[1], worker: stranger },
        end(key(workflow, jobs[1], 1), stranger, JobStatus::Completed),
    ] {
        let error = commit(store, workflow, vec![change]).unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    }
    commit(store, workflow, vec![WorkflowChange::ReturnClaim { job: jobs[1], worker }]).unwrap();
    // A job of another workflow, and one that does not exist.
    for (workflow, job) in [(other, job), (workflow, JobId(999_999))] {
        let error = commit(store, workflow, vec![WorkflowChange::ReturnClaim { job, worker }]).unwrap_err();
        assert!(matches!(error, StoreError::Conflict { found: None, .. }), "{error}");
        assert!(!error.is_transient() && error.hint().is_some());
    }
    assert_eq!(counts(store, workflow).get(JobStatus::Ready), 2);
    assert!(store.results(workflow, &ResultFilter::default()).unwrap().is_empty());
}

pub(crate) fn batch_is_atomic(store: &dyn Store) {
    let (workflow, jobs) = create(store, 3);
    let worker = worker(store, workflow);
    let changes = vec![
        claim(jobs[0], 1, worker),
        claim(jobs[1], 1, worker),
        end(key(workflow, jobs[0], 1), worker, JobStatus::Completed),
        claim(jobs[2], 5, worker),
    ];
    let error = commit(store, workflow, changes).unwrap_err();
    assert!(matches!(error, StoreError::Conflict { job, .. } if job == jobs[2]), "{error}");
    assert_eq!(counts(store, workflow).get(JobStatus::Ready), 3);
    assert!(store.results(workflow, &ResultFilter::default()).unwrap().is_empty());
    assert!(store.held_jobs(workflow).unwrap().is_empty());
}

pub(crate) fn alarm_is_committed_with_its_cause(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let worker = worker(store, workflow);
    let alarm = || {
        let (category, message) = ("retry_budget".to_owned(), "the trigger is consumed".to_owned());
        WorkflowChange::RaiseAlarm(Box::new(WorkflowAlert {
            category,
            message,
            data: serde_json::json!({ "is_used_up": true }),
        }))
    };
    let noted = || {
        let filter = EventFilter { category: Some("retry_budget".into()), ..EventFilter::default() };
        store.events(Some(workflow), &filter).unwrap()
    };
    commit(store, workflow, vec![alarm(), claim(jobs[0], 5, worker)]).unwrap_err();
    assert_eq!(noted(), [], "its cause was not applied");
    commit(store, workflow, vec![claim(jobs[0], 1, worker), alarm()]).unwrap();
    let [event] = &noted()[..] else { panic!("one alarm, one event: {:?}", noted()) };
    assert_eq!((&*event.message, event.severity), ("the trigger is consumed", EventSeverity::Error));
    assert_eq!(event.data.as_ref().unwrap()["is_used_up"], true);
}

pub(crate) fn failing_batch_does_not_affect_others(store: &dyn Store) {
    let (workflow, jobs) = create(store, 100);
    let worker = worker(store, workflow);
    let (sender, receiver) = mpsc::channel();
    // Submitted without waiting, so that many share a commit.
    for (i, &job) in jobs.iter().enumerate() {
        let attempt = if i % 3 == 0 { 2 } else { 1 };
        let sender = sender.clone();
        let done =
            Box::new(move |outcome: Result<(), StoreError>| sender.send((i, outcome.is_ok())).unwrap());
        store.submit(
            ChangeBatch { workflow, run: RUN, changes: vec![claim(job, attempt, worker)].into() },
            done,
        );
    }
    for (i, ok) in receiver.iter().take(100) {
        assert_eq!(ok, i % 3 != 0, "batch {i}");
    }
    let now = counts(store, workflow);
    assert_eq!((now.get(JobStatus::Pending), now.get(JobStatus::Ready)), (66, 34));
}

pub(crate) fn a_batch_of_another_run_is_stale(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let changes =
        vec![WorkflowChange::Status { job: jobs[0], from: JobStatus::Ready, to: JobStatus::Disabled }];
    let batch = ChangeBatch { workflow, run: RunId(2), changes: changes.into() };
    let error = commit_batch(store, batch).unwrap_err();
    assert!(matches!(error, StoreError::StaleRun { expected: RunId(2), found: RunId(1), .. }), "{error}");
    // A batch cannot contain a result of another run or workflow.
    let worker = worker(store, workflow);
    commit(store, workflow, vec![claim(jobs[0], 1, worker)]).unwrap();
    let mut wrong = key(workflow, jobs[0], 1);
    wrong.run = RunId(2);
    commit(store, workflow, vec![end(wrong, worker, JobStatus::Completed)]).unwrap_err();
    assert_eq!(status_of(store, workflow, jobs[0]), JobStatus::Pending);
}

pub(crate) fn one_result_per_attempt(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let worker = worker(store, workflow);
    let once = vec![claim(jobs[0], 1, worker), end(key(workflow, jobs[0], 1), worker, JobStatus::Completed)];
    commit(store, workflow, once.clone()).unwrap();
    let reset = WorkflowChange::Status { job: jobs[0], from: JobStatus::Completed, to: JobStatus::Ready };
    let twice = [vec![reset], once].concat();
    let error = commit(store, workflow, twice).unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert_eq!(status_of(store, workflow, jobs[0]), JobStatus::Completed);
    assert_eq!(store.results(workflow, &ResultFilter::default()).unwrap().len(), 1);
}

pub(crate) fn contradictory_states_are_rejected(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let worker = worker(store, workflow);
    let job = jobs[0];
    // Pending or running without a worker.
    for to in [JobStatus::Pending, JobStatus::Running] {
        commit(store, workflow, vec![WorkflowChange::Status { job, from: JobStatus::Ready, to }])
            .unwrap_err();
    }
    // An unknown worker.
    commit(store, workflow, vec![claim(job, 1, WorkerId(4711))]).unwrap_err();
    // Completed, but still held by a worker.
    commit(store, workflow, vec![claim(job, 1, worker)]).unwrap();
    let done = WorkflowChange::Status { job, from: JobStatus::Pending, to: JobStatus::Completed };
    commit(store, workflow, vec![done]).unwrap_err();
    // An attempt cannot end as ready.
    let mut ready = end(key(workflow, job, 1), worker, JobStatus::Ready);
    if let WorkflowChange::End { result, .. } = &mut ready {
        result.status = JobStatus::Ready;
    }
    commit(store, workflow, vec![ready]).unwrap_err();
    assert_eq!(counts(store, workflow).get(JobStatus::Pending), 1);
}

pub(crate) fn callbacks_run_in_order_after_the_commit(store: &dyn Store) {
    let (workflow, jobs) = create(store, 500);
    let worker = worker(store, workflow);
    let (sender, receiver) = mpsc::channel();
    for (i, &job) in jobs.iter().enumerate() {
        let sender = sender.clone();
        let done = Box::new(move |outcome: Result<(), StoreError>| {
            outcome.unwrap();
            sender.send(i).unwrap();
        });
        store.submit(ChangeBatch { workflow, run: RUN, changes: vec![claim(job, 1, worker)].into() }, done);
    }
    for i in 0..jobs.len() {
        assert_eq!(receiver.recv().unwrap(), i);
        if i % 50 == 0 {
            assert!(store.held_jobs(workflow).unwrap().len() > i, "answered before it was visible");
        }
    }
}

pub(crate) fn claim_is_reassigned_to_another_worker(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let (job, from, to) = (jobs[0], worker(store, workflow), worker(store, workflow));
    commit(store, workflow, vec![claim(job, 1, from)]).unwrap();
    commit(store, workflow, vec![WorkflowChange::ReassignClaim { job, from, to }]).unwrap();
    let held = store.held_jobs(workflow).unwrap();
    assert_eq!((held[0].worker, held[0].status), (to, JobStatus::Pending));
    // The first worker can no longer reassign, start or return it.
    for change in [
        WorkflowChange::ReassignClaim { job, from, to },
        start(job, 1, from),
        WorkflowChange::ReturnClaim { job, worker: from },
    ] {
        let error = commit(store, workflow, vec![change]).unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    }
    commit(store, workflow, vec![start(job, 1, to)]).unwrap();
    let error =
        commit(store, workflow, vec![WorkflowChange::ReassignClaim { job, from: to, to: from }]).unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "a running job cannot be reassigned: {error}");
}

pub(crate) fn job_is_retried_or_reset(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let (job, first) = (jobs[0], worker(store, workflow));
    let failed = end(key(workflow, job, 1), first, JobStatus::Failed);
    commit(store, workflow, vec![claim(job, 1, first), failed]).unwrap();
    let attempt = || store.load_jobs(workflow).unwrap().attempt[0];

    let retry = |attempt| WorkflowChange::Retry { job, from: JobStatus::Failed, attempt: Attempt(attempt) };
    let error = commit(store, workflow, vec![retry(2)]).unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "not the last attempt: {error}");
    commit(store, workflow, vec![retry(1)]).unwrap();
    assert_eq!((status_of(store, workflow, job), attempt()), (JobStatus::Ready, Attempt(2)));
    assert_eq!(counts(store, workflow).get(JobStatus::Ready), 1);

    commit(store, workflow, vec![claim(job, 2, first)]).unwrap();
    for from in [JobStatus::Pending, JobStatus::Running] {
        let reset = WorkflowChange::Reset { job, from, attempt: Attempt(3) };
        assert!(commit(store, workflow, vec![reset]).is_err(), "a worker holds it");
    }
    commit(store, workflow, vec![end(key(workflow, job, 2), first, JobStatus::Completed)]).unwrap();
    let reset = WorkflowChange::Reset { job, from: JobStatus::Completed, attempt: Attempt(3) };
    commit(store, workflow, vec![reset]).unwrap();
    assert_eq!((status_of(store, workflow, job), attempt()), (JobStatus::Uninitialized, Attempt(3)));
    assert_eq!(counts(store, workflow).get(JobStatus::Uninitialized), 1);
    assert_eq!(store.results(workflow, &ResultFilter::default()).unwrap().len(), 2, "history is kept");
}
