//! A local run in a test environment: its commits, its messages to workers, and its handling of their
//! reports.

use crate::kit::{
    AttemptBehavior, LEFTOVER_CPU_TIME, PlannedJob, RecordedRun, ScriptedHost, attempts, create, database,
    shared,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass_scheduler::service::{EarlierWorkerHost, SchedulerHandle, SchedulerOptions};
use windlass_scheduler::{LocalRun, LocalRunOptions, RunEnd, RunSummary, SchedulerError, begin_next_run};
use windlass_store::Store;
use windlass_store::lock::LockScope;
use windlass_store::model::{JobFilter, ResultFilter, WorkflowRow};
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_types::{JobId, JobStatus, RunId, Timestamp};

const DIAMOND: [PlannedJob; 4] = [
    PlannedJob("top", &[], 0),
    PlannedJob("left", &[0], 0),
    PlannedJob("right", &[0], 0),
    PlannedJob("bottom", &[1, 2], 0),
];

fn options() -> LocalRunOptions {
    LocalRunOptions { grace: Duration::from_secs(1), deadline: None, classifier: None }
}

fn run(
    store: &dyn Store,
    host: &mut ScriptedHost,
    recorded_run: &mut RecordedRun,
    workflow: &WorkflowRow,
) -> Result<RunSummary, SchedulerError> {
    let workflow = store.workflow(workflow.id).unwrap().unwrap();
    LocalRun::new(shared(store), host, recorded_run, workflow, options())?.run()
}

#[test]
fn a_diamond_runs_in_order_and_its_end_is_recorded() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let (mut host, mut recorded_run) =
        (ScriptedHost::new(|_, _| AttemptBehavior::Exit(0)), RecordedRun::default());
    let summary = run(&store, &mut host, &mut recorded_run, &workflow).unwrap();
    assert_eq!(summary.end, RunEnd::Finished);
    assert_eq!(summary.counts.get(JobStatus::Completed), 4);
    let names: Vec<&str> = recorded_run.ends.iter().map(|end| end.0.as_str()).collect();
    assert_eq!((names[0], names[3]), ("top", "bottom"));
    let row = store.workflow(workflow.id).unwrap().unwrap();
    assert_eq!(row.counts, summary.counts);
    assert!(row.ended_at.is_some());
    assert!(store.active_workers(Some(workflow.id)).unwrap().is_empty());
}

#[test]
fn a_failure_cancels_dependents_and_a_new_run_repeats_both() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let mut host = ScriptedHost::new(|a, _| {
        AttemptBehavior::Exit(if a.name == "left" && a.key.run == RunId(1) { 4 } else { 0 })
    });
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!(summary.end, RunEnd::Finished);
    assert_eq!(summary.counts.get(JobStatus::Failed), 1);
    assert_eq!(summary.counts.get(JobStatus::Canceled), 1);

    let row = store.workflow(workflow.id).unwrap().unwrap();
    assert_eq!(begin_next_run(&store, &row, Timestamp(5)).unwrap(), RunId(2));
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 4);
    let all =
        store.results(workflow.id, &ResultFilter { all_runs: true, ..ResultFilter::default() }).unwrap();
    let ran =
        |name: &str| all.iter().filter(|r| r.job_name == name).map(|r| r.key.run_id.0).collect::<Vec<_>>();
    assert_eq!((ran("top"), ran("left"), ran("bottom")), (vec![1], vec![1, 2], vec![2]));
}

#[test]
fn a_job_is_assigned_only_after_its_claim_is_committed() {
    let (dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let path = dir.path().join("windlass.db");
    // The file as seen by another process, at the moment the worker gets the assignment.
    let on_disk = move |job: JobId| {
        let reader = SqliteStore::open(&path, OpenMode::ReadOnly).unwrap().store;
        let filter = JobFilter { ids: vec![job], ..JobFilter::default() };
        reader.jobs(workflow.id, &filter).unwrap()[0].status
    };
    let mut host = ScriptedHost::new(move |a, _| {
        AttemptBehavior::Exit(if on_disk(a.key.job) == JobStatus::Pending { 0 } else { 99 })
    });
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 4);
}

#[test]
fn stale_and_repeated_reports_change_nothing() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let mut recorded_run = RecordedRun::default();
    let summary = run(
        &store,
        &mut ScriptedHost::new(|_, _| AttemptBehavior::RepeatReports),
        &mut recorded_run,
        &workflow,
    )
    .unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 4);
    assert_eq!(recorded_run.ends.len(), 4);
    assert_eq!(
        recorded_run.notices.iter().filter(|n| n.contains("stale")).count(),
        8,
        "{:?}",
        recorded_run.notices
    );
    assert_eq!(attempts(&store, workflow.id, "top"), [(1, 0)]);
}

#[test]
fn started_jobs_of_a_dead_worker_run_again_as_new_attempts() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let mut host = ScriptedHost::new(|a, generation| match (a.name.as_str(), generation) {
        ("left", 1) => AttemptBehavior::Die,
        ("right", 2) => AttemptBehavior::DieBefore,
        _ => AttemptBehavior::Exit(0),
    });
    let mut recorded_run = RecordedRun::default();
    let summary = run(&store, &mut host, &mut recorded_run, &workflow).unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 4);
    assert_eq!(host.generation, 3);
    // The second worker died before it reported it.
    assert_eq!(attempts(&store, workflow.id, "left"), [(1, -128), (2, -128), (3, 0)]);
    assert_eq!(attempts(&store, workflow.id, "right"), [(1, 0)], "never started: no attempt is lost");
    assert_eq!(attempts(&store, workflow.id, "top"), [(1, 0)], "completed work is not repeated");
    let results = store.results(workflow.id, &ResultFilter::default()).unwrap();
    let lost = results.iter().find(|row| row.job_name == "left" && row.return_code == -128).unwrap();
    assert_eq!(lost.cpu_time, LEFTOVER_CPU_TIME, "the usage of leftover processes counts");
}

#[test]
fn recorded_but_unreported_ends_are_applied() {
    let (_dir, store) = database();
    let workflow = create(
        &store,
        &[PlannedJob("good", &[], 2), PlannedJob("bad", &[0], 2), PlannedJob("after", &[0], 2)],
    );
    let mut host = ScriptedHost::new(|a, _| match a.name.as_str() {
        "good" => AttemptBehavior::RecordAndDie(0),
        "bad" => AttemptBehavior::RecordAndDie(4),
        _ => AttemptBehavior::Exit(0),
    });
    let mut recorded_run = RecordedRun::default();
    let summary = run(&store, &mut host, &mut recorded_run, &workflow).unwrap();
    assert_eq!(summary.end, RunEnd::Finished);
    for (name, code) in [("good", 0), ("bad", 4), ("after", 0)] {
        assert_eq!(attempts(&store, workflow.id, name), [(1, code)], "{name}");
    }
}

/// A run of the diamond that was killed after `left` and `right` had ended, and before it learned that; and the
/// host of the next process, which finds the two recorded ends.
fn killed_run() -> (tempfile::TempDir, SqliteStore, WorkflowRow, ScriptedHost) {
    let (dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let mut host = ScriptedHost::new(|a, _| match a.name.as_str() {
        "left" => AttemptBehavior::Record(0),
        "right" => AttemptBehavior::Record(4),
        _ => AttemptBehavior::Exit(0),
    });
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("windlass.db");
    std::thread::scope(|scope| {
        let mut recorded_run = RecordedRun::default();
        let recorded = Arc::clone(&host.recorded);
        let local_run =
            LocalRun::new(shared(&store), &mut host, &mut recorded_run, workflow.clone(), options()).unwrap();
        let control = local_run.control();
        let (from, to) = (dir.path().join("windlass.db"), &path);
        scope.spawn(move || {
            while recorded.lock().unwrap().len() < 2 {
                std::thread::yield_now();
            }
            windlass_store::maintenance::backup_database(&from, to).unwrap();
            control.interrupt();
        });
        local_run.run().unwrap();
    });
    let store = SqliteStore::open(&path, OpenMode::ReadWrite).unwrap().store;
    assert_eq!(store.held_jobs(workflow.id).unwrap().len(), 2);
    let mut next = ScriptedHost::new(|_, _| AttemptBehavior::Exit(0));
    next.recorded = Arc::clone(&host.recorded);
    (copy, store, workflow, next)
}

#[test]
fn recorded_ends_are_committed_by_the_next_process() {
    let (_dir, store, workflow, mut next) = killed_run();
    let mut recorded_run = RecordedRun::default();
    let summary = run(&store, &mut next, &mut recorded_run, &workflow).unwrap();
    assert_eq!(summary.counts.get(JobStatus::Canceled), 1);
    assert_eq!(attempts(&store, workflow.id, "left"), [(1, 0)]);
    assert_eq!(attempts(&store, workflow.id, "right"), [(1, 4)]);
    assert!(next.started.lock().unwrap().is_empty(), "no ended job runs again");
    assert!(
        recorded_run.notices.iter().any(|notice| notice.contains("results of 2 jobs that had ended")),
        "{:?}",
        recorded_run.notices
    );
}

#[test]
fn recorded_ends_are_committed_by_a_server() {
    let (_dir, store, workflow, next) = killed_run();
    let earlier_workers = Some(Arc::new(Mutex::new(next)) as EarlierWorkerHost);
    let options = SchedulerOptions { earlier_workers, ..SchedulerOptions::default() };
    let service = SchedulerHandle::start(shared(&store), options).unwrap();
    service.stop();
    assert_eq!(attempts(&store, workflow.id, "left"), [(1, 0)]);
    assert_eq!(attempts(&store, workflow.id, "right"), [(1, 4)]);
    assert!(store.active_workers(None).unwrap().is_empty());
    let row = store.workflow(workflow.id).unwrap().unwrap();
    assert_eq!((row.counts.get(JobStatus::Canceled), row.ended_at.is_some()), (1, true));
}

#[test]
fn a_worker_that_keeps_dying_is_not_replaced_for_ever() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let mut host = ScriptedHost::new(|_, _| AttemptBehavior::DieBefore);
    let error = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap_err();
    assert!(matches!(error, SchedulerError::WorkerKeepsDying(5)), "{error}");
    let row = store.workflow(workflow.id).unwrap().unwrap();
    assert_eq!(row.counts.settled(), 0, "the workflow can be resumed");
    let summary = run(
        &store,
        &mut ScriptedHost::new(|_, _| AttemptBehavior::Exit(0)),
        &mut RecordedRun::default(),
        &workflow,
    )
    .unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 4);
}

#[test]
fn a_job_that_kills_workers_is_isolated_and_failed_and_others_complete() {
    let (_dir, store) = database();
    let workflow = create(
        &store,
        &[
            PlannedJob("poison", &[], 0),
            PlannedJob("beside", &[], 0),
            PlannedJob("after", &[0], 0),
            PlannedJob("later", &[1], 0),
        ],
    );
    let mut host =
        ScriptedHost::new(
            |a, _| if a.name == "poison" { AttemptBehavior::Die } else { AttemptBehavior::Exit(0) },
        );
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 2);
    assert_eq!(summary.counts.get(JobStatus::Failed), 1);
    assert_eq!(summary.counts.get(JobStatus::Canceled), 1);
    assert_eq!(attempts(&store, workflow.id, "poison"), [1, 2, 3, 4, 5].map(|n| (n, -128)));
    assert_eq!(attempts(&store, workflow.id, "later"), [(1, 0)]);
}

#[test]
fn a_job_that_kills_worker_and_scheduler_is_failed_after_some_resumes() {
    let (_dir, store) = database();
    let workflow = create(
        &store,
        &[PlannedJob("poison", &[], 0), PlannedJob("beside", &[], 0), PlannedJob("after", &[0], 0)],
    );
    let started = Arc::default();
    let mut crashes = 0;
    let summary = loop {
        let dies_too: Arc<AtomicBool> = Arc::default();
        let dies = Arc::clone(&dies_too);
        let mut host = ScriptedHost::new(move |a, _| {
            let is_poison = a.name == "poison";
            dies.fetch_or(is_poison, Ordering::Release);
            if is_poison { AttemptBehavior::Die } else { AttemptBehavior::Exit(0) }
        });
        (host.started, host.dies_too) = (Arc::clone(&started), dies_too);
        let row = store.workflow(workflow.id).unwrap().unwrap();
        let resumed =
            catch_unwind(AssertUnwindSafe(|| run(&store, &mut host, &mut RecordedRun::default(), &row)));
        match resumed {
            Err(_) => crashes += 1,
            Ok(ended) => break ended.unwrap(),
        }
        assert!(crashes < 10, "it is retried without a limit");
    };
    assert_eq!(crashes, 6);
    let count = |status| summary.counts.get(status);
    assert_eq!(
        (count(JobStatus::Completed), count(JobStatus::Failed), count(JobStatus::Canceled)),
        (1, 1, 1)
    );
    assert_eq!(attempts(&store, workflow.id, "poison").len(), 6);
    let results = store.results(workflow.id, &ResultFilter::default()).unwrap();
    assert!(results.iter().any(|row| row.reason.as_ref().is_some_and(|why| why.starts_with("failed: its"))));
}

#[test]
fn a_run_whose_database_is_removed_fails() {
    let (dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let lock = store.lock(LockScope::Workflow(workflow.id), Timestamp(1)).unwrap();
    let home = dir.path().to_owned();
    let mut host = ScriptedHost::new(move |a, _| {
        if a.name == "bottom" {
            std::fs::remove_dir_all(&home).unwrap();
        }
        AttemptBehavior::Exit(0)
    });
    let mut recorded_run = RecordedRun::default();
    let local_run = LocalRun::new(shared(&store), &mut host, &mut recorded_run, workflow, options()).unwrap();
    let error = local_run.with_lock(&lock).run().unwrap_err();
    assert!(
        matches!(error, SchedulerError::LockLost(windlass_store::StoreError::FileRemoved { .. })),
        "{error}"
    );
    assert_eq!(host.ended_workers, 1, "no job keeps running");
}

#[test]
fn a_cancel_request_together_with_an_interrupt_is_not_lost() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let (mut host, mut recorded_run) =
        (ScriptedHost::new(|_, _| AttemptBehavior::Hold), RecordedRun::default());
    let row = store.workflow(workflow.id).unwrap().unwrap();
    let local_run = LocalRun::new(shared(&store), &mut host, &mut recorded_run, row, options()).unwrap();
    // The run is not notified; the request is there when it concludes.
    local_run.control().interrupt();
    store.request_cancel(workflow.id, Timestamp(3)).unwrap();
    assert_eq!(local_run.run().unwrap().end, RunEnd::Canceled);
    assert!(store.workflow(workflow.id).unwrap().unwrap().is_canceled);
    assert!(!store.cancel_requested(workflow.id).unwrap());
}

#[test]
fn a_worker_that_hangs_does_not_outlast_the_second_interrupt() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let (mut host, mut recorded_run) =
        (ScriptedHost::new(|_, _| AttemptBehavior::Hang), RecordedRun::default());
    let row = store.workflow(workflow.id).unwrap().unwrap();
    let local_run = LocalRun::new(shared(&store), &mut host, &mut recorded_run, row, options()).unwrap();
    let control = local_run.control();
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            while store.workflow(workflow.id).unwrap().unwrap().counts.get(JobStatus::Pending) == 0 {
                std::thread::yield_now();
            }
            control.interrupt();
            control.interrupt();
        });
        local_run.run().unwrap()
    });
    assert_eq!(summary.end, RunEnd::Interrupted);
    assert_eq!(summary.counts.active(), 0, "its jobs are ready again");
    assert_eq!(host.ended_workers, 1);
}

#[test]
fn a_canceled_workflow_is_canceled_also_with_oversized_jobs() {
    let (_dir, store) = database();
    let workflow = create(&store, &[PlannedJob("huge", &[], 64)]);
    store.request_cancel(workflow.id, Timestamp(2)).unwrap();
    let summary = run(
        &store,
        &mut ScriptedHost::new(|_, _| AttemptBehavior::Exit(0)),
        &mut RecordedRun::default(),
        &workflow,
    )
    .unwrap();
    assert_eq!(summary.end, RunEnd::Canceled);
}

#[test]
fn oversized_jobs_are_an_error_if_no_other_job_can_run() {
    let (_dir, store) = database();
    let workflow = create(&store, &[PlannedJob("huge", &[], 64), PlannedJob("after", &[0], 1)]);
    let mut host = ScriptedHost::new(|_, _| AttemptBehavior::Exit(0));
    let error = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap_err();
    assert!(
        matches!(&error, SchedulerError::JobTooLarge { name, count: 1, .. } if name == "huge"),
        "{error}"
    );
    assert!(host.started.lock().unwrap().is_empty());
}

#[test]
fn an_oversized_job_does_not_stop_others() {
    let (_dir, store) = database();
    let plan = [
        PlannedJob("small", &[], 1),
        PlannedJob("huge", &[], 64),
        PlannedJob("after_small", &[0], 1),
        PlannedJob("after_huge", &[1], 1),
    ];
    let workflow = create(&store, &plan);
    let mut host = ScriptedHost::new(|_, _| AttemptBehavior::Exit(0));
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::WaitingForDecision, 2));
    let left = [JobStatus::Ready, JobStatus::Blocked].map(|status| summary.counts.get(status));
    assert_eq!(left, [1, 1], "they wait for a larger machine");
    let why = summary.unrunnable_jobs.unwrap();
    assert!(matches!(&why, SchedulerError::JobTooLarge { name, count: 1, .. } if name == "huge"), "{why}");
    let row = store.workflow(workflow.id).unwrap().unwrap();
    assert!(row.ended_at.is_none(), "the run can continue");
}

#[test]
fn an_oversized_job_does_not_stop_jobs_that_a_new_run_resets() {
    let (_dir, store) = database();
    let workflow = create(&store, &[PlannedJob("small", &[], 1), PlannedJob("huge", &[], 64)]);
    let mut host = ScriptedHost::new(|a, _| AttemptBehavior::Exit(i32::from(a.key.run == RunId(1))));
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!((summary.end, summary.counts.get(JobStatus::Failed)), (RunEnd::WaitingForDecision, 1));
    begin_next_run(&store, &store.workflow(workflow.id).unwrap().unwrap(), Timestamp(5)).unwrap();
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::WaitingForDecision, 1));
}

#[test]
fn an_interrupted_run_leaves_jobs_ready_and_can_be_resumed() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    let (mut host, mut recorded_run) =
        (ScriptedHost::new(|_, _| AttemptBehavior::Hold), RecordedRun::default());
    let row = store.workflow(workflow.id).unwrap().unwrap();
    let local_run = LocalRun::new(shared(&store), &mut host, &mut recorded_run, row, options()).unwrap();
    let control = local_run.control();
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            // As soon as the database shows a running job.
            while store.workflow(workflow.id).unwrap().unwrap().counts.get(JobStatus::Running) == 0 {
                std::thread::yield_now();
            }
            control.interrupt();
        });
        local_run.run().unwrap()
    });
    assert_eq!(summary.end, RunEnd::Interrupted);
    assert_eq!(summary.counts.active(), 0);
    let summary = run(
        &store,
        &mut ScriptedHost::new(|_, _| AttemptBehavior::Exit(0)),
        &mut RecordedRun::default(),
        &workflow,
    )
    .unwrap();
    assert_eq!((summary.end, summary.counts.get(JobStatus::Completed)), (RunEnd::Finished, 4));
    assert_eq!(attempts(&store, workflow.id, "top"), [(1, 143), (2, 0)]);
}

#[test]
fn a_canceled_run_ends_held_jobs_and_starts_no_more() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND);
    store.request_cancel(workflow.id, Timestamp(2)).unwrap();
    let mut host = ScriptedHost::new(|_, _| AttemptBehavior::Exit(0));
    let summary = run(&store, &mut host, &mut RecordedRun::default(), &workflow).unwrap();
    assert_eq!(summary.end, RunEnd::Canceled);
    assert_eq!(host.generation, 0, "no worker is started for a canceled workflow");
    let row = store.workflow(workflow.id).unwrap().unwrap();
    assert!(row.is_canceled);
    assert_eq!(row.counts.get(JobStatus::Ready), 1, "jobs that were not held keep their state");
}

#[test]
fn problems_of_the_worker_are_shown_and_retried() {
    let (_dir, store) = database();
    let workflow = create(&store, &DIAMOND[..1]);
    let tries = AtomicUsize::new(0);
    let mut host = ScriptedHost::new(move |_, _| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => AttemptBehavior::WorkerProblem,
        _ => AttemptBehavior::Exit(0),
    });
    let mut recorded_run = RecordedRun::default();
    let summary = run(&store, &mut host, &mut recorded_run, &workflow).unwrap();
    assert_eq!(summary.counts.get(JobStatus::Completed), 1);
    assert_eq!(recorded_run.notices, ["no room"]);
    assert_eq!(
        attempts(&store, workflow.id, "top"),
        [(1, 0)],
        "it never started, so the attempt is not used up"
    );
}
