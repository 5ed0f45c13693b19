//! Failures, and what the attempts that follow them inherit.

use crate::kit::{NOW, RUN, claim, commit, create, end, job, key, worker, workflow};
use std::time::Duration;
use windlass_core::board::Carried;
use windlass_core::change::Change;
use windlass_core::edges::Edges;
use windlass_store::Store;
use windlass_store::model::{Listed, NewJob, NewKind, NewWorkflow};
use windlass_types::settings::FailureHandler;
use windlass_types::work::Recovery;
use windlass_types::{Attempt, Bytes, JobId, JobStatus, Resources, Timestamp, WorkerId, WorkflowId};

fn recovery() -> Recovery {
    Recovery {
        script: "echo \"it's\" mended".into(),
        failed: Attempt(1),
        return_code: 75,
        limit: Duration::from_mins(10),
    }
}

/// The end of an attempt that is followed by another.
fn retried(workflow: WorkflowId, job: JobId, attempt: u32, worker: WorkerId, brings: Carried) -> Change {
    let mut ended = end(key(workflow, job, attempt), worker, JobStatus::Failed);
    if let Change::End { to, next_attempt, carried, .. } = &mut ended {
        (*to, *next_attempt) = (JobStatus::Ready, Attempt(attempt + 1));
        *carried = (brings != Carried::default()).then(|| Box::new(brings));
    }
    ended
}

fn carried(store: &dyn Store, workflow: WorkflowId) -> Vec<(u32, Carried)> {
    store.load_jobs(workflow).unwrap().carried
}

pub(crate) fn what_the_next_attempt_inherits_is_kept(store: &dyn Store) {
    let (workflow, jobs) = create(store, 3);
    let worker = worker(store, workflow);
    let later = Carried {
        not_before: Some(Timestamp(NOW.0 + 5)),
        recovery: Some(recovery()),
        excused: 1,
        resources: None,
    };
    let changes = vec![
        claim(jobs[1], 1, worker),
        claim(jobs[2], 1, worker),
        retried(workflow, jobs[1], 1, worker, later.clone()),
        retried(workflow, jobs[2], 1, worker, Carried::default()),
    ];
    commit(store, workflow, changes).unwrap();
    assert_eq!(carried(store, workflow), [(1, later.clone())], "and nothing where there is nothing");

    // Who holds it has waited; the script is owed while the attempt is under way, because that may be lost.
    commit(store, workflow, vec![claim(jobs[1], 2, worker)]).unwrap();
    let owed = Carried { not_before: None, ..later };
    assert_eq!(carried(store, workflow), [(1, owed)]);

    // The next one inherits what its predecessor says, and nothing else.
    commit(store, workflow, vec![retried(workflow, jobs[1], 2, worker, Carried::default())]).unwrap();
    assert_eq!(carried(store, workflow), []);
    let once_more = Carried { recovery: Some(recovery()), excused: 2, ..Carried::default() };
    let changes = vec![
        claim(jobs[1], 3, worker),
        retried(workflow, jobs[1], 3, worker, once_more),
        claim(jobs[1], 4, worker),
        end(key(workflow, jobs[1], 4), worker, JobStatus::Failed),
    ];
    commit(store, workflow, changes).unwrap();
    let excused = |excused| Carried { excused, ..Carried::default() };
    assert_eq!(carried(store, workflow), [(1, excused(2))], "nothing is owed once an attempt that counts is over");

    store.delete_workflow(workflow, NOW).unwrap_err();
    store.retire_worker(worker, NOW).unwrap();
    store.delete_workflow(workflow, NOW).unwrap();
}

pub(crate) fn whoever_wants_it_again_begins_to_count_anew(store: &dyn Store) {
    let (workflow, jobs) = create(store, 3);
    let worker = worker(store, workflow);
    let owing = Carried { recovery: Some(recovery()), ..Carried::default() };
    let mut changes: Vec<Change> = jobs.iter().map(|job| claim(*job, 1, worker)).collect();
    changes.push(retried(workflow, jobs[0], 1, worker, owing));
    changes.push(claim(jobs[0], 2, worker));
    changes.push(end(key(workflow, jobs[0], 2), worker, JobStatus::Failed));
    changes.push(end(key(workflow, jobs[1], 1), worker, JobStatus::Failed));
    changes.push(end(key(workflow, jobs[2], 1), worker, JobStatus::Completed));
    commit(store, workflow, changes).unwrap();
    let again = vec![
        Change::Retry { job: jobs[0], from: JobStatus::Failed, attempt: Attempt(2) },
        Change::Reset { job: jobs[1], from: JobStatus::Failed, attempt: Attempt(2) },
    ];
    commit(store, workflow, again).unwrap();
    let excused = |excused| Carried { excused, ..Carried::default() };
    assert_eq!(carried(store, workflow), [(0, excused(2)), (1, excused(1))]);

    // The next run begins with nothing of the kind.
    store.retire_worker(worker, NOW).unwrap();
    let run = store.begin_next_run(workflow, &jobs, NOW).unwrap();
    assert!(run > RUN);
    assert_eq!(carried(store, workflow), []);
}

pub(crate) fn one_job_alone_may_ask_for_more(store: &dyn Store) {
    let (workflow, jobs) = create(store, 3);
    let worker = worker(store, workflow);
    let more = |cpus, memory| Resources {
        cpus,
        memory: Bytes(memory),
        runtime: Some(Duration::from_millis(1500)),
        ..Resources::DEFAULT
    };
    let before = store.load_jobs(workflow).unwrap();
    let asks = |resources| Carried { resources: Some(resources), ..Carried::default() };
    let mut changes: Vec<Change> = jobs[..2].iter().map(|job| claim(*job, 1, worker)).collect();
    changes.push(retried(workflow, jobs[0], 1, worker, asks(more(2, (1 << 30) + 1))));
    changes.push(retried(workflow, jobs[1], 1, worker, asks(more(2, (1 << 30) + 1))));
    commit(store, workflow, changes).unwrap();
    let table = store.load_jobs(workflow).unwrap();
    let asked = |job: usize| table.requirements[table.class[job] as usize];
    assert_eq!([asked(0), asked(1)], [more(2, (1 << 30) + 1); 2]);
    assert_eq!(asked(2), before.requirements[before.class[2] as usize], "the others ask for what they did");
    assert_eq!(table.class[0], table.class[1], "the same values are kept once");
    assert_eq!(table.carried, [], "and there is nothing to wait for");

    let again =
        vec![claim(jobs[0], 2, worker), retried(workflow, jobs[0], 2, worker, asks(more(4, (1 << 30) + 2)))];
    commit(store, workflow, again).unwrap();
    let table = store.load_jobs(workflow).unwrap();
    let asked = |job: usize| table.requirements[table.class[job] as usize];
    assert_eq!((asked(0), asked(1)), (more(4, (1 << 30) + 2), more(2, (1 << 30) + 1)));
}

pub(crate) fn handlers_come_with_the_jobs(store: &dyn Store) {
    let handler = |name: &str| FailureHandler { name: name.into(), rules: Vec::new() };
    let kinds =
        [None, Some(1), Some(0)].map(|failure_handler| NewKind { failure_handler, ..NewKind::default() });
    let jobs = [("a", Some(1)), ("b", None), ("c", Some(0)), ("d", Some(2))];
    let jobs = jobs.map(|(name, kind)| NewJob { kind, ..job(name) });
    let handlers = [handler("first"), handler("second")];
    let edges = Edges::default();
    let new = NewWorkflow { failure_handlers: &handlers, kinds: &kinds, ..workflow(&[], &edges) };
    let id = store.create_workflow(&new, &mut Listed::new(jobs.into_iter()), NOW).unwrap();
    let table = store.load_jobs(id).unwrap();
    assert_eq!((&table.handlers[..], &table.handler[..]), (&handlers[..], &[2, 0, 0, 1][..]));

    let (plain, _) = create(store, 1);
    let table = store.load_jobs(plain).unwrap();
    assert!(table.handlers.is_empty() && table.handler.is_empty(), "nobody pays for what he does not have");
}
