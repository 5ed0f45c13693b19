//! Failures, and the values that later attempts inherit.

use crate::kit::{NOW, RUN, claim, commit, create, end, job, key, worker, workflow};
use std::time::Duration;
use windlass_core::change::WorkflowChange;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::failure_signature::FailureSignature;
use windlass_core::workflow_state::{AttemptFailure, FailureDiagnosis, FailureDisposition, NextAttempt};
use windlass_store::Store;
use windlass_store::model::{FailureFilter, InMemoryJobSource, NewJob, NewWorkflow, ResultFilter};
use windlass_types::settings::FailureHandler;
use windlass_types::worker_messages::{ProcessExit, RecoveryScript, RecoveryScriptResult};
use windlass_types::{
    Attempt, Bytes, FailureClass, JobGroup, JobId, JobSettings, JobStatus, Resources, Timestamp, WorkerId,
    WorkflowId,
};

fn recovery() -> RecoveryScript {
    RecoveryScript {
        script: "echo \"it's\" mended".into(),
        failed: Attempt(1),
        return_code: 75,
        limit: Duration::from_mins(10),
    }
}

/// The end of an attempt that is followed by another.
fn retried(
    workflow: WorkflowId,
    job: JobId,
    attempt: u32,
    worker: WorkerId,
    brings: NextAttempt,
) -> WorkflowChange {
    let mut ended = end(key(workflow, job, attempt), worker, JobStatus::Failed);
    if let WorkflowChange::End { to, next_attempt, inherited, .. } = &mut ended {
        (*to, *next_attempt) = (JobStatus::Ready, Attempt(attempt + 1));
        *inherited = (brings != NextAttempt::default()).then(|| Box::new(brings));
    }
    ended
}

fn inherited(store: &dyn Store, workflow: WorkflowId) -> Vec<(u32, NextAttempt)> {
    store.load_jobs(workflow).unwrap().inherited
}

pub(crate) fn next_attempt_data_is_stored(store: &dyn Store) {
    let (workflow, jobs) = create(store, 3);
    let worker = worker(store, workflow);
    let later = NextAttempt {
        not_before: Some(Timestamp(NOW.0 + 5)),
        delay: Some(Duration::from_micros(5)),
        recovery: Some(recovery()),
        excused: 1,
        resources: None,
    };
    let changes = vec![
        claim(jobs[1], 1, worker),
        claim(jobs[2], 1, worker),
        retried(workflow, jobs[1], 1, worker, later.clone()),
        retried(workflow, jobs[2], 1, worker, NextAttempt::default()),
    ];
    commit(store, workflow, changes).unwrap();
    assert_eq!(inherited(store, workflow), [(1, later.clone())], "and nothing if there is nothing");

    // The delay of a held job has passed; the recovery script stays pending during the attempt, which may be
    // lost.
    commit(store, workflow, vec![claim(jobs[1], 2, worker)]).unwrap();
    let owed = NextAttempt { not_before: None, delay: None, ..later };
    assert_eq!(inherited(store, workflow), [(1, owed)]);

    // The next attempt inherits only the values of its predecessor.
    commit(store, workflow, vec![retried(workflow, jobs[1], 2, worker, NextAttempt::default())]).unwrap();
    assert_eq!(inherited(store, workflow), []);
    let once_more = NextAttempt { recovery: Some(recovery()), excused: 2, ..NextAttempt::default() };
    let changes = vec![
        claim(jobs[1], 3, worker),
        retried(workflow, jobs[1], 3, worker, once_more),
        claim(jobs[1], 4, worker),
        end(key(workflow, jobs[1], 4), worker, JobStatus::Failed),
    ];
    commit(store, workflow, changes).unwrap();
    let excused = |excused| NextAttempt { excused, ..NextAttempt::default() };
    assert_eq!(
        inherited(store, workflow),
        [(1, excused(2))],
        "the script is no longer pending after an attempt that counts"
    );

    store.delete_workflow(workflow, NOW).unwrap_err();
    store.retire_worker(worker, NOW).unwrap();
    store.delete_workflow(workflow, NOW).unwrap();
}

pub(crate) fn manual_retry_resets_the_retry_count(store: &dyn Store) {
    let (workflow, jobs) = create(store, 3);
    let worker = worker(store, workflow);
    let owing = NextAttempt { recovery: Some(recovery()), ..NextAttempt::default() };
    let mut changes: Vec<WorkflowChange> = jobs.iter().map(|job| claim(*job, 1, worker)).collect();
    changes.push(retried(workflow, jobs[0], 1, worker, owing));
    changes.push(claim(jobs[0], 2, worker));
    changes.push(end(key(workflow, jobs[0], 2), worker, JobStatus::Failed));
    changes.push(end(key(workflow, jobs[1], 1), worker, JobStatus::Failed));
    changes.push(end(key(workflow, jobs[2], 1), worker, JobStatus::Completed));
    commit(store, workflow, changes).unwrap();
    let again = vec![
        WorkflowChange::Retry { job: jobs[0], from: JobStatus::Failed, attempt: Attempt(2) },
        WorkflowChange::Reset { job: jobs[1], from: JobStatus::Failed, attempt: Attempt(2) },
    ];
    commit(store, workflow, again).unwrap();
    let excused = |excused| NextAttempt { excused, ..NextAttempt::default() };
    assert_eq!(inherited(store, workflow), [(0, excused(2)), (1, excused(1))]);

    // The next run inherits nothing.
    store.retire_worker(worker, NOW).unwrap();
    let run = store.begin_next_run(workflow, &jobs, NOW).unwrap();
    assert!(run > RUN);
    assert_eq!(inherited(store, workflow), []);
}

pub(crate) fn one_job_can_get_larger_requirements(store: &dyn Store) {
    let (workflow, jobs) = create(store, 3);
    let worker = worker(store, workflow);
    let more = |cpus, memory| Resources {
        cpus,
        memory: Bytes(memory),
        runtime: Some(Duration::from_millis(1500)),
        ..Resources::DEFAULT
    };
    let before = store.load_jobs(workflow).unwrap();
    let asks = |resources| NextAttempt { resources: Some(resources), ..NextAttempt::default() };
    let mut changes: Vec<WorkflowChange> = jobs[..2].iter().map(|job| claim(*job, 1, worker)).collect();
    changes.push(retried(workflow, jobs[0], 1, worker, asks(more(2, (1 << 30) + 1))));
    changes.push(retried(workflow, jobs[1], 1, worker, asks(more(2, (1 << 30) + 1))));
    commit(store, workflow, changes).unwrap();
    let table = store.load_jobs(workflow).unwrap();
    let asked = |job: usize| table.requirements[table.class[job] as usize];
    assert_eq!([asked(0), asked(1)], [more(2, (1 << 30) + 1); 2]);
    assert_eq!(
        asked(2),
        before.requirements[before.class[2] as usize],
        "requirements of other jobs stay the same"
    );
    assert_eq!(table.class[0], table.class[1], "equal values are stored once");
    assert_eq!(table.inherited, [], "and there is no delay");

    let again =
        vec![claim(jobs[0], 2, worker), retried(workflow, jobs[0], 2, worker, asks(more(4, (1 << 30) + 2)))];
    commit(store, workflow, again).unwrap();
    let table = store.load_jobs(workflow).unwrap();
    let asked = |job: usize| table.requirements[table.class[job] as usize];
    assert_eq!((asked(0), asked(1)), (more(4, (1 << 30) + 2), more(2, (1 << 30) + 1)));
}

pub(crate) fn failure_handlers_are_loaded_with_jobs(store: &dyn Store) {
    let handler = |name: &str| FailureHandler { name: name.into(), rules: Vec::new() };
    let kinds = [None, Some(1), Some(0)].map(|failure_handler| JobGroup {
        settings: JobSettings { failure_handler, ..JobSettings::default() },
        ..JobGroup::default()
    });
    let jobs = [("a", Some(1)), ("b", None), ("c", Some(0)), ("d", Some(2))];
    let jobs = jobs.map(|(name, kind)| NewJob { job_group: kind, ..job(name) });
    let handlers = [handler("first"), handler("second")];
    let edges = DependencyEdges::default();
    let new = NewWorkflow { failure_handlers: &handlers, job_groups: &kinds, ..workflow(&[], &edges) };
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new(jobs), NOW).unwrap();
    let table = store.load_jobs(id).unwrap();
    assert_eq!((&table.handlers[..], &table.handler[..]), (&handlers[..], &[2, 0, 0, 1][..]));

    let (plain, _) = create(store, 1);
    let table = store.load_jobs(plain).unwrap();
    assert!(
        table.handlers.is_empty() && table.handler.is_empty(),
        "jobs without inherited values are unaffected"
    );
}

fn found(class: FailureClass, key: &str, next: FailureDisposition) -> Box<AttemptFailure> {
    let message = format!("cannot open …/{key}.dat");
    Box::new(AttemptFailure {
        diagnosis: FailureDiagnosis {
            class,
            signature: FailureSignature { key: key.repeat(16), message },
            rule: Some("missing-file".into()),
            log_line: Some(format!("cannot open /data/7/{key}.dat")),
        },
        next,
        reason: Some("from its output".into()),
        log_tail: Some(format!("{}ä{}", "x".repeat(5000), "y".repeat(4095))),
    })
}

fn with(mut change: WorkflowChange, given: Box<AttemptFailure>) -> WorkflowChange {
    if let WorkflowChange::End { failure, .. } = &mut change {
        *failure = Some(given);
    }
    change
}

pub(crate) fn similar_failures_form_one_group(store: &dyn Store) {
    use FailureClass::{Data, Transient};
    let (workflow, jobs) = create(store, 6);
    let worker = worker(store, workflow);
    let failed = |job: usize, attempt| end(key(workflow, jobs[job], attempt), worker, JobStatus::Failed);
    let mut changes: Vec<WorkflowChange> = jobs[..5].iter().map(|job| claim(*job, 1, worker)).collect();
    changes.extend((0..3).map(|job| with(failed(job, 1), found(Data, "a", FailureDisposition::Final))));
    let first = retried(workflow, jobs[3], 1, worker, NextAttempt::default());
    changes.push(with(first, found(Transient, "b", FailureDisposition::Retry)));
    changes.push(claim(jobs[3], 2, worker));
    let mut asking = failed(3, 2);
    if let WorkflowChange::End { to, result, .. } = &mut asking {
        (*to, result.status) = (JobStatus::PendingFailed, JobStatus::PendingFailed);
        result.recovered = Some(Box::new(RecoveryScriptResult::Ended {
            exit: ProcessExit::Code(3),
            wall: Duration::from_secs(2),
        }));
    }
    changes.push(with(asking, found(Data, "a", FailureDisposition::PendingFailed)));
    changes.push(end(key(workflow, jobs[4], 1), worker, JobStatus::Completed));
    commit(store, workflow, changes).unwrap();

    let groups = store.failure_groups(workflow).unwrap();
    let told: Vec<_> = groups
        .iter()
        .map(|g| (g.class, &*g.message, g.attempts, g.jobs, g.failed, g.pending, g.retried, g.example))
        .collect();
    let data = (Data, "cannot open …/a.dat", 4, 4, 3, 1, 0, jobs[0]);
    let transient = (Transient, "cannot open …/b.dat", 1, 1, 0, 0, 1, jobs[3]);
    assert_eq!(told, [data, transient]);
    assert_eq!(store.load_jobs(workflow).unwrap().retries_granted, 1);

    let listed = |filter| store.failures(workflow, &filter).unwrap();
    let all = listed(FailureFilter::default());
    let keys: Vec<_> = all.iter().map(|f| (f.job_id, f.attempt_id.0, &*f.next)).collect();
    let plain = |job: usize| (jobs[job], 1, "final");
    let asked = [(jobs[3], 1, "retry"), (jobs[3], 2, "pending_failed")];
    assert_eq!(keys, [plain(0), plain(1), plain(2), asked[0], asked[1]]);
    let one = &all[0];
    assert_eq!((&*one.host, one.return_code, one.why.as_deref()), ("node1", 1, Some("from its output")));
    assert_eq!(one.line.as_deref(), Some("cannot open /data/7/a.dat"));
    assert_eq!(one.last_words.as_deref(), Some(&*"y".repeat(4095)), "the end, without a partial character");

    let open = FailureFilter { open_only: true, signature: Some("a".repeat(16)), ..FailureFilter::default() };
    assert_eq!(listed(open).len(), 4);
    let of_one = FailureFilter { job: Some(jobs[3]), limit: Some(1), offset: 1, ..FailureFilter::default() };
    assert_eq!(listed(of_one)[0].attempt_id, Attempt(2));
    let waiting =
        FailureFilter { status: vec![JobStatus::PendingFailed], open_only: true, ..FailureFilter::default() };
    assert_eq!(listed(waiting).len(), 1);

    let results = store.results(workflow, &ResultFilter::default()).unwrap();
    let labels: Vec<_> =
        results.iter().map(|r| (r.class, r.signature.is_some(), r.recovered.is_some())).collect();
    let data = (Some(Data), true, false);
    let expected =
        [data, data, data, (Some(Transient), true, false), (Some(Data), true, true), (None, false, false)];
    assert_eq!(labels, expected);
}
