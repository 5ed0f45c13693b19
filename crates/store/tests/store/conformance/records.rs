//! Records of the files of attempts, and of the work behind completed jobs.

use crate::kit::{
    ListSource, NOW, claim, commit, commit_batch, create, defined, end, file, job, key, new_worker, worker,
    workflow,
};
use windlass_core::change::WorkflowChange;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::workflow_state::{AttemptFailure, FailureDiagnosis, FailureDisposition};
use windlass_store::ChangeBatch;
use windlass_store::Store;
use windlass_store::model::{
    CompletedWork, DataFilter, InMemoryJobSource, NewJob, NewUserData, NewWorker, ResultFilter,
};
use windlass_types::worker_messages::{AttemptFiles, AttemptKey, FileSnapshot};
use windlass_types::{Attempt, Bytes, JobDefinition, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

fn seen(mtime_ns: i64) -> FileSnapshot {
    FileSnapshot { mtime_ns, size: 7, hash: Some("abc".into()) }
}

/// `a` writes a file that `b` reads.
fn with_files(store: &dyn Store) -> (WorkflowId, WorkerId) {
    let mut source = ListSource {
        files: vec![file("raw", "raw"), file("out", "out")],
        jobs: vec![
            NewJob { input_files: &[0], output_files: &[1], ..job("a") },
            NewJob { input_files: &[1, 0], ..job("b") },
            job("c"),
        ],
        ..ListSource::default()
    };
    let id = store.create_workflow(&workflow(&[], &DependencyEdges::default()), &mut source, NOW).unwrap();
    (id, worker(store, id))
}

fn ended(change: WorkflowChange, files: AttemptFiles, at: Timestamp) -> WorkflowChange {
    let WorkflowChange::End { from, to, mut result, next_attempt, orphaned, failure, inherited } = change
    else {
        return change;
    };
    result.files = Some(Box::new(files));
    result.ended_at = at;
    WorkflowChange::End { from, to, result, next_attempt, orphaned, failure, inherited }
}

/// PostgreSQL cannot store NUL. A job may print one, and its report is stored anyway.
pub(crate) fn nul_in_texts_is_replaced(store: &dyn Store) {
    let (id, jobs) = create(store, 1);
    let worker = worker(store, id);
    let mut failed = end(key(id, jobs[0], 1), worker, JobStatus::Failed);
    if let WorkflowChange::End { result, failure, .. } = &mut failed {
        result.reason = Some("a\0b".into());
        let told = "it said\0";
        let mut diagnosis = FailureDiagnosis::for_orphan();
        diagnosis.log_line = Some(told.to_owned());
        let last_words = Some(told.to_owned());
        *failure = Some(Box::new(AttemptFailure {
            diagnosis,
            next: FailureDisposition::Final,
            reason: Some(told.into()),
            log_tail: last_words,
        }));
    }
    commit(store, id, vec![claim(jobs[0], 1, worker), failed]).unwrap();
    let results = store.results(id, &ResultFilter::default()).unwrap();
    assert_eq!(results[0].reason.as_deref(), Some("a␀b"));
    let value = serde_json::json!({ "a\0": "b\0" });
    let data = NewUserData { name: "n\0", data: Some(&value), is_ephemeral: false };
    store.add_user_data(id, &data, NOW).unwrap();
    assert!(store.user_data(id, &DataFilter::default()).unwrap().iter().any(|row| row.name == "n␀"));
}

pub(crate) fn attempt_files_are_recorded(store: &dyn Store) {
    let (id, worker) = with_files(store);
    let jobs = store.load_jobs(id).unwrap().ids;
    let files = AttemptFiles { inputs: vec![Some(seen(11))], outputs: vec![None] };
    let failed = ended(end(key(id, jobs[0], 1), worker, JobStatus::Failed), files.clone(), NOW);
    commit(store, id, vec![claim(jobs[0], 1, worker), failed]).unwrap();
    assert_eq!(store.results(id, &ResultFilter::default()).unwrap()[0].files.as_ref(), Some(&files));
    let known = || {
        let rows = store.files(id, &DataFilter::default()).unwrap();
        rows.into_iter().map(|row| (row.mtime_ns, row.size)).collect::<Vec<_>>()
    };
    assert_eq!(known(), [(Some(11), Some(Bytes(7))), (None, None)]);
    // In the order of the files, not of the spec.
    let files = AttemptFiles { inputs: vec![Some(seen(21)), Some(seen(22))], outputs: vec![] };
    let done = ended(end(key(id, jobs[1], 1), worker, JobStatus::Completed), files, NOW);
    commit(store, id, vec![claim(jobs[1], 1, worker), done]).unwrap();
    assert_eq!(known(), [(Some(21), Some(Bytes(7))), (Some(22), Some(Bytes(7)))]);
}

pub(crate) fn newest_success_is_the_completion_record(store: &dyn Store) {
    let (id, worker) = with_files(store);
    let jobs = store.load_jobs(id).unwrap().ids;
    let files = |n| AttemptFiles { inputs: vec![Some(seen(n))], outputs: vec![Some(seen(n + 1))] };
    let mut first = ended(end(key(id, jobs[0], 1), worker, JobStatus::Completed), files(1), NOW);
    if let WorkflowChange::End { to, next_attempt, .. } = &mut first {
        (*to, *next_attempt) = (JobStatus::Ready, Attempt(2));
    }
    let later = Timestamp(NOW.0 + 9);
    let second = ended(end(key(id, jobs[0], 2), worker, JobStatus::Completed), files(5), later);
    commit(store, id, vec![claim(jobs[0], 1, worker), first, claim(jobs[0], 2, worker), second]).unwrap();
    commit(
        store,
        id,
        vec![
            claim(jobs[1], 1, worker),
            end(key(id, jobs[1], 1), worker, JobStatus::Failed),
            claim(jobs[2], 1, worker),
            end(key(id, jobs[2], 1), worker, JobStatus::Completed),
        ],
    )
    .unwrap();
    let records = store.completion_records(id).unwrap();
    assert_eq!(records.iter().map(|record| record.job).collect::<Vec<_>>(), [jobs[0], jobs[2]]);
    let work = &records[0].work;
    assert_eq!((work.done_by, work.ended_at), (key(id, jobs[0], 2), later));
    assert_eq!(work.files.as_ref(), Some(&files(5)));
    assert_eq!(records[1].work.files, None);

    // Reset jobs have no record until they complete again, and their history is kept.
    store.begin_next_run(id, &[jobs[0]], NOW).unwrap();
    assert_eq!(store.completion_records(id).unwrap().len(), 1);
    let all = ResultFilter { all_runs: true, job: Some(jobs[0]), ..ResultFilter::default() };
    assert_eq!(store.results(id, &all).unwrap().len(), 2);
    create(store, 1);
}

/// Reused work is a copy that does not depend on the original workflow.
pub(crate) fn reused_result_is_a_copy(store: &dyn Store) {
    let (id, worker) = with_files(store);
    store.retire_worker(worker, NOW).unwrap();
    let old = store.load_jobs(id).unwrap().ids;
    let work = CompletedWork {
        done_by: key(id, old[0], 3),
        started_at: Some(Timestamp(NOW.0 + 1)),
        ended_at: Timestamp(NOW.0 + 2),
        files: Some(AttemptFiles { inputs: vec![Some(seen(1)), None], outputs: vec![] }),
    };
    let plain = CompletedWork { started_at: None, files: None, ..work.clone() };
    let reused = |name: &str, work| NewJob {
        status: JobStatus::Completed,
        reused_from: Some(old[0]),
        reused_work: work,
        ..defined(JobDefinition::new(name, ""))
    };
    // Enough for a statement with many rows, which is a separate form.
    let names: Vec<String> = (0..70).map(|n| format!("more {n}")).collect();
    let mut jobs = vec![reused("a", Some(&work)), reused("b", Some(&plain)), reused("c", None)];
    jobs.extend(names.iter().map(|name| reused(name, Some(&work))));
    let new = store
        .create_workflow(&workflow(&[], &DependencyEdges::default()), &mut InMemoryJobSource::new(jobs), NOW)
        .unwrap();
    store.delete_workflow(id, NOW).unwrap();
    let ids = store.load_jobs(new).unwrap().ids;
    let records = store.completion_records(new).unwrap();
    assert_eq!(records.len(), 72, "all except the one without a record");
    assert_eq!((records[0].job, &records[0].work), (ids[0], &work));
    assert_eq!((records[1].job, &records[1].work), (ids[1], &plain));
    assert!(records[2..].iter().all(|record| record.work == work));
    // A job that runs again gets a record of its own, and has none until then.
    store.begin_next_run(new, &[ids[0]], NOW).unwrap();
    let worker = store.add_worker(&NewWorker { run: Some(RunId(2)), ..new_worker(new) }, NOW).unwrap();
    assert_eq!(store.completion_records(new).unwrap()[0].job, ids[1]);
    let key = AttemptKey { run: RunId(2), ..key(new, ids[0], 1) };
    let ready = WorkflowChange::Status { job: ids[0], from: JobStatus::Uninitialized, to: JobStatus::Ready };
    let changes = vec![ready, claim(ids[0], 1, worker), end(key, worker, JobStatus::Completed)];
    commit_batch(store, ChangeBatch { workflow: new, run: key.run, changes: changes.into() }).unwrap();
    assert_eq!(store.completion_records(new).unwrap()[0].work.done_by, key);
}
