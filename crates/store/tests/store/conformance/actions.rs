//! Actions: triggers, executions, and rearming.

use crate::kit::{NOW, claim, commit, commit_batch, create, end, key, worker};
use serde_json::json;
use windlass_core::change::{ActionChange, WorkflowChange};
use windlass_store::model::{ActionRow, CLAIM_CAUSE, EventFilter, NewAllocationAction};
use windlass_store::{ChangeBatch, Store, StoreError};
use windlass_types::settings::{ActionTrigger, WorkflowAction};
use windlass_types::{Attempt, JobId, JobStatus, RunId, WorkerId, WorkflowId};

fn add(store: &dyn Store, workflow: WorkflowId, trigger: ActionTrigger, jobs: &[JobId]) -> i64 {
    let action: WorkflowAction = serde_json::from_value(json!({
        "trigger_type": trigger.name(), "action_type": "run_commands", "commands": ["true"],
    }))
    .unwrap();
    store
        .add_action(workflow, &NewAllocationAction { action, jobs: jobs.to_vec(), is_recovery: false }, NOW)
        .unwrap()
}

fn row(store: &dyn Store, workflow: WorkflowId, id: i64) -> ActionRow {
    store.actions(workflow).unwrap().into_iter().find(|row| row.id == id).unwrap()
}

fn triggered(action: i64, from: u32, to: u32) -> WorkflowChange {
    WorkflowChange::Action(ActionChange::Triggered { action, from, to, is_due: true })
}

fn started(action: i64, attempt: u32, worker: WorkerId) -> WorkflowChange {
    let trigger = ActionTrigger::OnWorkflowStart;
    let (attempt, worker) = (Attempt(attempt), Some(worker));
    WorkflowChange::Action(ActionChange::Started { action, attempt, worker, trigger, at: NOW })
}

fn ended(action: i64, attempt: u32, return_code: Option<i32>) -> WorkflowChange {
    let message = return_code.filter(|code| *code != 0).map(|_| "it broke".to_owned());
    WorkflowChange::Action(ActionChange::Ended {
        action,
        attempt: Attempt(attempt),
        at: NOW,
        return_code,
        message,
    })
}

fn withdrawn(action: i64, attempt: u32) -> WorkflowChange {
    WorkflowChange::Action(ActionChange::Withdrawn { action, attempt: Attempt(attempt) })
}

/// (attempt, is over, return code) of all executions.
fn runs(store: &dyn Store, workflow: WorkflowId, id: i64) -> Vec<(u32, bool, Option<i32>)> {
    let runs = row(store, workflow, id).runs;
    runs.iter().map(|run| (run.attempt.0, run.ended_at.is_some(), run.return_code)).collect()
}

pub(crate) fn action_passes_through_all_states(store: &dyn Store) {
    let (workflow, jobs) = create(store, 2);
    let worker = worker(store, workflow);
    let id = add(store, workflow, ActionTrigger::OnJobsComplete, &jobs);
    let new = row(store, workflow, id);
    assert_eq!((new.trigger_count, new.required_triggers(), new.last_run()), (0, 2, None));
    commit(store, workflow, vec![triggered(id, 0, 2), started(id, 1, worker)]).unwrap();
    assert_eq!(row(store, workflow, id).trigger_count, 2);
    assert_eq!(runs(store, workflow, id), [(1, false, None)]);
    commit(store, workflow, vec![ended(id, 1, Some(3))]).unwrap();
    let run = row(store, workflow, id).last_run().cloned().unwrap();
    assert_eq!((run.worker_id, run.cause.as_str()), (Some(worker), "on_workflow_start"));
    assert_eq!((run.return_code, run.message.as_deref()), (Some(3), Some("it broke")));
    assert_eq!(store.action_runs(workflow).unwrap(), [run]);
    let events = store.events(Some(workflow), &EventFilter::default()).unwrap();
    for category in ["action_triggered", "action_started", "action_failed"] {
        assert_eq!(events.iter().filter(|event| event.category == category).count(), 1, "{category}");
    }
}

pub(crate) fn action_execution_begins_and_ends_once(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let worker = worker(store, workflow);
    let id = add(store, workflow, ActionTrigger::OnWorkflowStart, &[]);
    commit(store, workflow, vec![triggered(id, 0, 1), started(id, 1, worker)]).unwrap();
    for wrong in [triggered(id, 0, 1), started(id, 1, worker), ended(id, 2, Some(0)), withdrawn(id, 2)] {
        // The rest of the batch is not applied either.
        let error = commit(store, workflow, vec![triggered(id, 1, 2), wrong.clone()]).unwrap_err();
        assert!(matches!(error, StoreError::Action { id: about, .. } if about == id), "{wrong:?}: {error}");
    }
    assert_eq!(row(store, workflow, id).trigger_count, 1);
    commit(store, workflow, vec![ended(id, 1, None)]).unwrap();
    for late in [ended(id, 1, Some(0)), withdrawn(id, 1)] {
        assert!(matches!(commit(store, workflow, vec![late]), Err(StoreError::Action { .. })));
    }
    commit(store, workflow, vec![started(id, 2, worker)]).unwrap();
    commit(store, workflow, vec![withdrawn(id, 2)]).unwrap();
    assert_eq!(runs(store, workflow, id), [(1, true, None)], "a withdrawn execution does not count");
    let at = NOW;
    let claimed = ActionChange::Claimed { action: id, attempt: Attempt(2), worker: None, at };
    commit(store, workflow, vec![WorkflowChange::Action(claimed)]).unwrap();
    let run = row(store, workflow, id).last_run().cloned().unwrap();
    assert_eq!((run.cause.as_str(), run.worker_id, run.ended_at), (CLAIM_CAUSE, None, Some(NOW)));
}

pub(crate) fn executed_action_can_be_retried(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let worker = worker(store, workflow);
    let id = add(store, workflow, ActionTrigger::OnWorkflowStart, &[]);
    let refused = |why: &str| {
        let error = store.retry_action(workflow, id, NOW).unwrap_err();
        assert!(matches!(&error, StoreError::Action { what, .. } if what.contains(why)), "{error}");
    };
    refused("not been executed");
    commit(store, workflow, vec![triggered(id, 0, 1), started(id, 1, worker)]).unwrap();
    refused("is running");
    commit(store, workflow, vec![ended(id, 1, Some(1))]).unwrap();
    store.retry_action(workflow, id, NOW).unwrap();
    let again = row(store, workflow, id);
    assert_eq!((again.trigger_count, again.armed_after, again.last_run()), (1, 1, None));
    refused("not been executed");
    assert!(matches!(store.retry_action(workflow, 4711, NOW), Err(StoreError::NoSuch { id: 4711, .. })));
}

pub(crate) fn new_run_rearms_actions(store: &dyn Store) {
    let (workflow, jobs) = create(store, 2);
    let worker = worker(store, workflow);
    let triggers =
        [ActionTrigger::OnWorkflowStart, ActionTrigger::OnWorkflowComplete, ActionTrigger::OnWorkerStart];
    let mut ids: Vec<i64> = triggers.map(|trigger| add(store, workflow, trigger, &[])).to_vec();
    ids.extend(jobs.iter().map(|job| add(store, workflow, ActionTrigger::OnJobsComplete, &[*job])));
    let recovery = store.actions(workflow).unwrap()[0].action.clone();
    let add_recovery = || {
        let new = NewAllocationAction { action: recovery.clone(), jobs: vec![], is_recovery: true };
        store.add_action(workflow, &new, NOW).unwrap();
    };
    add_recovery();
    store.rearm_unstarted(workflow, NOW).unwrap();
    assert_eq!(store.actions(workflow).unwrap().len(), 5, "recovery actions are deleted");
    add_recovery();
    store.begin_run(workflow, NOW).unwrap();
    assert!(matches!(store.rearm_unstarted(workflow, NOW), Err(StoreError::Unexpected { .. })));
    let done = |run: RunId, attempt: u32, from: u32| {
        let changes = ids.iter().flat_map(|id| {
            let set_off = (row(store, workflow, *id).trigger_count < 1).then(|| triggered(*id, from, 1));
            set_off.into_iter().chain([started(*id, attempt, worker), ended(*id, attempt, Some(0))])
        });
        let changes: Vec<WorkflowChange> = changes.collect();
        commit_batch(store, ChangeBatch { workflow, run, changes: changes.into() }).unwrap();
    };
    let armed =
        || -> Vec<bool> { ids.iter().map(|id| row(store, workflow, *id).last_run().is_none()).collect() };
    let ends = [(jobs[0], JobStatus::Completed), (jobs[1], JobStatus::Failed)];
    let changes = ends.map(|(job, to)| [claim(job, 1, worker), end(key(workflow, job, 1), worker, to)]);
    commit(store, workflow, changes.into_iter().flatten().collect()).unwrap();
    done(RunId(1), 1, 0);
    assert_eq!(armed(), [false; 5]);

    let run = store.begin_next_run(workflow, &[jobs[1]], NOW).unwrap();
    assert_eq!(
        armed(),
        [false, true, true, false, true],
        "those whose jobs run again, and those triggered at the end of the run"
    );
    assert_eq!(store.actions(workflow).unwrap().len(), 5, "recovery actions are not rearmed");
    let again = row(store, workflow, ids[4]);
    assert_eq!((again.trigger_count, again.armed_after), (0, 1));

    done(run, 2, 0);
    store.rearm_actions(workflow, false, NOW).unwrap();
    assert_eq!(armed(), [false, true, true, false, true]);
    store.rearm_actions(workflow, true, NOW).unwrap();
    assert_eq!(armed(), [true; 5]);
    store.begin_next_run(workflow, &jobs, NOW).unwrap();
    assert!(store.actions(workflow).unwrap().iter().all(|row| row.trigger_count == 0));
}
