//! Allocations: insertion, permitted changes, and whole schedules.

use crate::kit::{NOW, create};
use serde_json::json;
use std::time::Duration;
use windlass_core::slurm::allocation_rows::{
    AllocationChange, AllocationSchedule, ExternalAllocation, NewAllocation, NewAllocationAction,
    SlurmCallCount, TorcAllocationStatus,
};
use windlass_store::model::{AllocationFilter, EventFilter, WorkflowPartId};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{SlurmScheduler, WorkflowAction};
use windlass_types::slurm::{Allocation, AllocationRequest, AllocationState as S, SlurmJobState};
use windlass_types::{AllocationId, JobId, Timestamp, WorkflowId};

const LATER: Timestamp = Timestamp(NOW.0 + 60_000_000);

fn scheduler(name: &str) -> SlurmScheduler {
    SlurmScheduler { name: name.into(), account: "lab".into(), ..SlurmScheduler::default() }
}

fn new(workflow: WorkflowId, name: &str) -> NewAllocation {
    let request = AllocationRequest {
        scheduler: name.into(),
        account: "lab".into(),
        nodes: 2,
        walltime: Duration::from_hours(1),
        ..AllocationRequest::default()
    };
    NewAllocation { workflow, scheduler: None, tag: String::new(), request, action: None, by: "ada".into() }
}

fn add(store: &dyn Store, workflow: WorkflowId) -> AllocationId {
    store.add_allocations(&[new(workflow, "night")], NOW).unwrap()[0]
}

fn row(store: &dyn Store, id: AllocationId) -> Allocation {
    store.allocation(id).unwrap().unwrap()
}

fn of(workflow: WorkflowId) -> AllocationFilter {
    AllocationFilter { workflow: Some(workflow), ..AllocationFilter::default() }
}

fn categories(store: &dyn Store, workflow: WorkflowId) -> Vec<String> {
    let events = store.events(Some(workflow), &EventFilter::default()).unwrap();
    events.into_iter().map(|event| event.category).filter(|name| name.starts_with("allocation")).collect()
}

pub(crate) fn allocation_passes_through_all_states(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let night = store.add_scheduler(workflow, &scheduler("night"), NOW).unwrap();
    let id = add(store, workflow);
    let first = row(store, id);
    assert_eq!((first.state, first.scheduler, first.is_ours), (S::Intended, Some(night), true));
    assert_eq!((&first.request, first.by.as_str()), (&new(workflow, "night").request, "ada"));
    assert_eq!((first.created_at, first.submissions), (NOW, 0));
    assert!(first.tag.ends_with(&format!("-{id}")), "{}", first.tag);
    assert_eq!(store.workflow_of(WorkflowPartId::Allocation(id)).unwrap(), Some(workflow));

    let submit =
        AllocationChange { submitted_at: Some(NOW), ..AllocationChange::new(id, S::Intended, S::Submitting) };
    let accepted = AllocationChange {
        job_id: Some(Some(4711)),
        reason: Some(Some("Priority".into())),
        ..AllocationChange::new(id, S::Submitting, S::Pending)
    };
    let seen = AllocationChange {
        only_slurm_job: Some(4711),
        seen_at: Some(LATER),
        missed_polls: Some(1),
        ..AllocationChange::new(id, S::Pending, S::Pending)
    };
    let runs = AllocationChange {
        reason: Some(None),
        nodes: Some(Some("n[1-2]".into())),
        started_at: Some(Some(LATER)),
        ends_at: Some(Some(LATER)),
        missed_polls: Some(0),
        restarts: Some(1),
        ..AllocationChange::new(id, S::Pending, S::Running)
    };
    store.change_allocations(&[submit], NOW).unwrap();
    assert_eq!((row(store, id).state, row(store, id).submissions), (S::Submitting, 1));
    store.change_allocations(&[accepted, seen], NOW).unwrap();
    let waits = row(store, id);
    assert_eq!((waits.job_id, waits.reason.as_deref()), (Some(4711), Some("Priority")));
    assert_eq!((waits.seen_at, waits.missed), (Some(LATER), 1));
    store.change_allocations(&[runs], NOW).unwrap();
    let running = row(store, id);
    assert_eq!((running.state, running.reason.as_ref(), running.restarts), (S::Running, None, 1));
    assert_eq!((running.nodes.as_deref(), running.started_at), (Some("n[1-2]"), Some(LATER)));
    let over = AllocationChange {
        ended_at: Some(LATER),
        end: Some(SlurmJobState::Timeout),
        exit_code: Some("0:15".into()),
        ..AllocationChange::new(id, S::Running, S::Ended)
    };
    store.change_allocations(&[over], LATER).unwrap();
    let ended = row(store, id);
    assert_eq!(
        (ended.state, ended.end, ended.ended_at),
        (S::Ended, Some(SlurmJobState::Timeout), Some(LATER))
    );
    assert_eq!((ended.exit_code.as_deref(), ended.submissions), (Some("0:15"), 1));
    let told = ["intended", "submitting", "pending", "running", "ended"].map(|s| format!("allocation_{s}"));
    assert_eq!(categories(store, workflow), told);
    store.delete_scheduler(night, NOW).unwrap();
    assert_eq!((row(store, id).scheduler, row(store, id).request.scheduler.as_str()), (None, "night"));
}

pub(crate) fn conflicting_allocation_changes_are_rolled_back(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let (a, b) = (add(store, workflow), add(store, workflow));
    let fits = AllocationChange::new(a, S::Intended, S::Submitting);
    let wrong_job =
        AllocationChange { only_slurm_job: Some(5), ..AllocationChange::new(b, S::Intended, S::Pending) };
    for wrong in [AllocationChange::new(b, S::Submitting, S::Pending), wrong_job] {
        let error = store.change_allocations(&[fits.clone(), wrong], NOW).unwrap_err();
        assert!(matches!(error, StoreError::Unexpected { .. }), "{error}");
        assert!(error.hint().is_some());
    }
    assert_eq!(row(store, a).state, S::Intended, "all or none");
    let missing = AllocationChange::new(AllocationId(999), S::Intended, S::Submitting);
    assert!(store.change_allocations(&[fits, missing], NOW).unwrap_err().is_missing());
    assert_eq!(categories(store, workflow), ["allocation_intended"; 2]);

    let mut bad = new(workflow, "night");
    bad.request.account = "lab\n#SBATCH --uid=0".into();
    let error = store.add_allocations(&[new(workflow, "night"), bad], NOW).unwrap_err();
    assert!(matches!(error, StoreError::OutOfRange { .. }), "{error}");
    let tagged = NewAllocation { tag: row(store, a).tag, ..new(workflow, "night") };
    let error = store.add_allocations(&[new(workflow, "night"), tagged], NOW).unwrap_err();
    assert!(matches!(error, StoreError::NameTaken { .. }), "{error}");
    let other = NewAllocation { scheduler: Some(77), ..new(workflow, "night") };
    assert!(store.add_allocations(&[other], NOW).unwrap_err().is_missing());
    let elsewhere = new(WorkflowId(999), "night");
    assert!(matches!(store.add_allocations(&[elsewhere], NOW), Err(StoreError::NoSuchWorkflow(_))));
    assert_eq!(store.allocations(&of(workflow)).unwrap().len(), 2);
}

fn nodes_action(scheduler: &str) -> WorkflowAction {
    serde_json::from_value(json!({
        "trigger_type": "on_workflow_start", "action_type": "schedule_nodes", "scheduler": scheduler,
        "num_allocations": 2,
    }))
    .unwrap()
}

pub(crate) fn action_requests_its_allocations_once(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let planned = NewAllocationAction { action: nodes_action("night"), jobs: vec![], is_recovery: false };
    let action = store.add_action(workflow, &planned, NOW).unwrap();
    let asked = |attempt, n| NewAllocation { action: Some((action, attempt, n)), ..new(workflow, "night") };
    let first = store.add_allocations(&[asked(1, 0), asked(1, 1)], NOW).unwrap();
    let again = store.add_allocations(&[asked(1, 0), asked(1, 1), asked(2, 0)], NOW).unwrap();
    assert_eq!((&again[..2], again.len()), (&first[..], 3));
    assert!(!first.contains(&again[2]));
    assert_eq!(row(store, first[1]).action, Some((action, 1, 1)));
    let by_action = AllocationFilter { action: Some(action), ..of(workflow) };
    assert_eq!(store.allocations(&by_action).unwrap().len(), 3);
    // Its id may be reused.
    store.delete_action(action, NOW).unwrap();
    assert_eq!(row(store, first[1]).action, None);
    assert_eq!(store.allocations(&of(workflow)).unwrap().len(), 3);
}

pub(crate) fn allocations_are_filtered(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let (other, _) = create(store, 1);
    let night = store.add_scheduler(workflow, &scheduler("night"), NOW).unwrap();
    let ids = store
        .add_allocations(
            &[new(workflow, "night"), new(workflow, "day"), new(workflow, "night"), new(other, "night")],
            NOW,
        )
        .unwrap();
    let out = AllocationChange::new(ids[2], S::Intended, S::Withdrawn);
    let submitted =
        AllocationChange { job_id: Some(Some(9)), ..AllocationChange::new(ids[1], S::Intended, S::Pending) };
    store.change_allocations(&[out, submitted], NOW).unwrap();
    let found = |filter: AllocationFilter| -> Vec<AllocationId> {
        store.allocations(&filter).unwrap().into_iter().map(|row| row.id).collect()
    };
    let all = AllocationFilter::default;
    let tag = row(store, ids[0]).tag;
    for (filter, expected) in [
        (all(), vec![0, 1, 2, 3]),
        (of(workflow), vec![0, 1, 2]),
        (AllocationFilter { ids: vec![ids[3], ids[0]], ..all() }, vec![0, 3]),
        (AllocationFilter { states: vec![S::Pending, S::Withdrawn], ..all() }, vec![1, 2]),
        (AllocationFilter { is_open: Some(true), ..of(workflow) }, vec![0, 1]),
        (AllocationFilter { is_open: Some(false), ..all() }, vec![2]),
        (AllocationFilter { is_ours: Some(false), ..all() }, vec![]),
        (AllocationFilter { scheduler: Some(night), ..all() }, vec![0, 2]),
        (AllocationFilter { scheduler_name: Some("night".into()), ..all() }, vec![0, 2, 3]),
        (AllocationFilter { job_id: Some(9), ..all() }, vec![1]),
        (AllocationFilter { tag: Some(tag), ..all() }, vec![0]),
        (AllocationFilter { offset: 1, limit: Some(2), ..all() }, vec![1, 2]),
    ] {
        let expected: Vec<AllocationId> = expected.into_iter().map(|n: usize| ids[n]).collect();
        assert_eq!(found(filter.clone()), expected, "{filter:?}");
    }
}

pub(crate) fn discarded_allocations_are_withdrawn_or_unwanted(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let ids = [add(store, workflow), add(store, workflow), add(store, workflow)];
    let changes = [
        AllocationChange::new(ids[1], S::Intended, S::Running),
        AllocationChange::new(ids[2], S::Intended, S::Refused),
    ];
    store.change_allocations(&changes, NOW).unwrap();
    let rows = store.discard_allocations(&ids, "enough", LATER).unwrap();
    let how: Vec<_> = rows.iter().map(|row| (row.state, row.unwanted.as_deref())).collect();
    assert_eq!(how, [(S::Withdrawn, Some("enough")), (S::Running, Some("enough")), (S::Refused, None)]);
    assert_eq!(rows[0].ended_at, Some(LATER));
    let again = store.discard_allocations(&ids, "really", LATER).unwrap();
    assert_eq!(again, rows, "the first reason is kept");
    let told = categories(store, workflow);
    assert_eq!(told.iter().filter(|name| *name == "allocation_unwanted").count(), 1, "{told:?}");
    assert!(store.discard_allocations(&[ids[1], AllocationId(999)], "", NOW).unwrap_err().is_missing());
}

pub(crate) fn workflow_with_open_allocations_is_not_deleted(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let (other, _) = create(store, 1);
    let (id, stays) = (add(store, workflow), add(store, other));
    for refused in [
        store.delete_workflow(workflow, NOW).unwrap_err(),
        store.delete_allocation(id, NOW).unwrap_err(),
        store.delete_allocations(workflow, NOW).unwrap_err(),
    ] {
        assert!(refused.to_string().contains("windlass slurm cancel"), "{refused}");
    }
    store.discard_allocations(&[id], "over", NOW).unwrap();
    let exported =
        store.export_workflow(workflow, windlass_store::model::ExportOptions::default(), NOW).unwrap();
    let copy =
        store.import_workflow(&exported, &windlass_store::model::ImportOptions::default(), NOW).unwrap();
    assert_eq!(store.allocations(&of(copy)).unwrap(), [], "allocations belong to their workflow");
    store.delete_workflow(workflow, NOW).unwrap();
    assert_eq!(store.allocation(id).unwrap(), None);
    store.discard_allocations(&[stays], "over", NOW).unwrap();
    assert_eq!(store.delete_allocations(other, NOW).unwrap(), 1);
    let next = add(store, other);
    assert!(next > stays, "ids are never reused: workers refer to them");
}

pub(crate) fn client_allocations_are_recorded(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    let stated = |status| ExternalAllocation {
        workflow,
        job_id: 17,
        scheduler: 3,
        scheduler_type: "slurm".into(),
        status,
    };
    let id = store.record_client_allocation(None, &stated(TorcAllocationStatus::Pending), NOW).unwrap();
    let first = row(store, id);
    assert_eq!((first.is_ours, first.state, first.job_id), (false, S::Pending, Some(17)));
    assert_eq!((first.scheduler, first.request.scheduler.as_str()), (Some(3), "slurm"));
    for status in TorcAllocationStatus::ALL {
        assert_eq!(store.record_client_allocation(Some(id), &stated(status), LATER).unwrap(), id);
        let now = row(store, id);
        assert_eq!(TorcAllocationStatus::from_state(now.state, now.end), status);
        assert_eq!(now.ended_at.is_some(), now.state.is_over());
    }
    store.record_client_allocation(Some(id), &stated(TorcAllocationStatus::Active), LATER).unwrap();
    let change = AllocationChange::new(id, S::Running, S::Ended);
    assert!(matches!(store.change_allocations(&[change], NOW), Err(StoreError::InUse { .. })));
    assert!(matches!(store.discard_allocations(&[id], "", NOW), Err(StoreError::InUse { .. })));
    let ours = add(store, workflow);
    let error =
        store.record_client_allocation(Some(ours), &stated(TorcAllocationStatus::Complete), NOW).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    store.delete_allocation(id, NOW).unwrap();
    assert_eq!(store.allocation(id).unwrap(), None);
    assert!(
        store
            .record_client_allocation(Some(id), &stated(TorcAllocationStatus::Active), NOW)
            .unwrap_err()
            .is_missing()
    );
}

/// A schedule for one job: a scheduler, an action that requests more, and one allocation.
fn schedule(store: &dyn Store, workflow: WorkflowId, job: JobId, name: &str) -> AllocationSchedule {
    AllocationSchedule {
        seen: store.schedule_fingerprint(workflow).unwrap(),
        mark_executed: vec![],
        schedulers: vec![scheduler(name)],
        assign: vec![(job, name.into())],
        actions: vec![NewAllocationAction { action: nodes_action(name), jobs: vec![], is_recovery: true }],
        allocations: vec![new(workflow, name)],
        unfit: vec![],
    }
}

pub(crate) fn schedule_is_applied_atomically(store: &dyn Store) {
    let (workflow, jobs) = create(store, 2);
    let old = store.add_scheduler(workflow, &scheduler("night"), NOW).unwrap();
    let planned = NewAllocationAction { action: nodes_action("night"), jobs: vec![], is_recovery: false };
    let action = store.add_action(workflow, &planned, NOW).unwrap();
    let mut wanted = schedule(store, workflow, jobs[1], "regen");
    wanted.mark_executed.push(action);
    wanted.schedulers.push(scheduler("night"));
    let made = store.apply_schedule(workflow, &wanted, LATER).unwrap();
    assert_eq!((made.schedulers[1], made.actions.len(), made.allocations.len()), (old, 1, 1));
    let names: Vec<_> =
        store.schedulers(workflow).unwrap().into_iter().map(|row| row.scheduler.name).collect();
    assert_eq!(names, ["night", "regen"]);
    let of_job = |job| store.job(job).unwrap().unwrap().scheduler_id;
    assert_eq!((of_job(jobs[0]), of_job(jobs[1])), (None, Some(made.schedulers[0])));
    let actions = store.actions(workflow).unwrap();
    assert!(
        actions[0].last_run().is_some_and(|run| run.ended_at == Some(LATER)),
        "it is no longer triggered"
    );
    assert_eq!((actions[1].id, actions[1].is_recovery, actions[1].last_run()), (made.actions[0], true, None));
    let row = row(store, made.allocations[0]);
    assert_eq!((row.scheduler, row.state), (Some(made.schedulers[0]), S::Intended));
}

pub(crate) fn outdated_schedule_is_rejected(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    let job = jobs[0];
    let id = add(store, workflow);
    let planned = NewAllocationAction { action: nodes_action("night"), jobs: vec![], is_recovery: false };
    let outdated = |what: &str, change: &dyn Fn()| {
        let wanted = schedule(store, workflow, job, "regen");
        change();
        let error = store.apply_schedule(workflow, &wanted, NOW).unwrap_err();
        assert!(matches!(error, StoreError::Unexpected { .. }), "{what}: {error}");
    };
    outdated("a new scheduler", &|| {
        store.add_scheduler(workflow, &scheduler("a"), NOW).unwrap();
    });
    outdated("a new action", &|| {
        store.add_action(workflow, &planned, NOW).unwrap();
    });
    outdated("a new allocation", &|| {
        add(store, workflow);
    });
    outdated("an ended allocation", &|| {
        store.discard_allocations(&[id], "", NOW).unwrap();
    });
    assert_eq!(store.schedulers(workflow).unwrap().len(), 1, "nothing was applied");

    // An allocation that starts running changes no plan.
    let id = add(store, workflow);
    let wanted = schedule(store, workflow, job, "regen");
    store.change_allocations(&[AllocationChange::new(id, S::Intended, S::Running)], NOW).unwrap();
    let unknown = AllocationSchedule { assign: vec![(job, "nowhere".into())], ..wanted.clone() };
    assert!(store.apply_schedule(workflow, &unknown, NOW).unwrap_err().is_missing());
    let different = SlurmScheduler { nodes: 9, ..scheduler("a") };
    let taken = AllocationSchedule { schedulers: vec![different], ..wanted.clone() };
    assert!(matches!(store.apply_schedule(workflow, &taken, NOW), Err(StoreError::NameTaken { .. })));
    let no_action = AllocationSchedule { mark_executed: vec![4711], ..wanted.clone() };
    assert!(store.apply_schedule(workflow, &no_action, NOW).unwrap_err().is_missing());
    assert_eq!(store.schedulers(workflow).unwrap().len(), 1, "all or nothing");
    store.apply_schedule(workflow, &wanted, NOW).unwrap();
    assert!(store.apply_schedule(workflow, &wanted, NOW).is_err(), "not applied twice");
}

pub(crate) fn one_of_two_concurrent_schedules_is_applied(store: &dyn Store) {
    let (workflow, jobs) = create(store, 1);
    for round in 0..5 {
        let wanted = schedule(store, workflow, jobs[0], &format!("regen-{round}"));
        let begin = std::sync::Barrier::new(2);
        let outcomes: Vec<Result<_, StoreError>> = std::thread::scope(|scope| {
            let apply = || {
                begin.wait();
                store.apply_schedule(workflow, &wanted, NOW)
            };
            let both = [scope.spawn(apply), scope.spawn(apply)];
            both.map(|thread| thread.join().unwrap()).into()
        });
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        for error in outcomes.into_iter().filter_map(Result::err) {
            // A concurrent schedule is rejected.
            assert!(matches!(error, StoreError::Unexpected { .. } | StoreError::Busy { .. }), "{error}");
        }
        assert_eq!(store.allocations(&of(workflow)).unwrap().len(), round + 1);
        assert_eq!(store.schedulers(workflow).unwrap().len(), round + 1);
    }
}

/// Executed or not; normal ones are rearmed instead.
pub(crate) fn recovery_actions_are_deleted_by_the_next_run(store: &dyn Store) {
    let (workflow, jobs) = create(store, 2);
    store.add_scheduler(workflow, &scheduler("night"), NOW).unwrap();
    let normal = NewAllocationAction { action: nodes_action("night"), jobs: vec![], is_recovery: false };
    let normal = store.add_action(workflow, &normal, NOW).unwrap();
    let mut wanted = schedule(store, workflow, jobs[1], "regen");
    wanted.mark_executed.push(normal);
    wanted.actions.push(wanted.actions[0].clone());
    let made = store.apply_schedule(workflow, &wanted, NOW).unwrap();
    let done = AllocationSchedule {
        seen: store.schedule_fingerprint(workflow).unwrap(),
        mark_executed: vec![made.actions[0]],
        allocations: vec![NewAllocation { action: Some((made.actions[0], 1, 0)), ..new(workflow, "regen") }],
        ..AllocationSchedule::default()
    };
    let asked = store.apply_schedule(workflow, &done, NOW).unwrap().allocations[0];
    let armed = || -> Vec<(i64, bool)> {
        let rows = store.actions(workflow).unwrap();
        rows.iter().map(|row| (row.id, row.last_run().is_none())).collect()
    };
    assert_eq!(armed(), [(normal, false), (made.actions[0], false), (made.actions[1], true)]);
    store.begin_run(workflow, NOW).unwrap();
    store.begin_next_run(workflow, &jobs, NOW).unwrap();
    assert_eq!(armed(), [(normal, true)]);
    assert_eq!(row(store, asked).action, None, "its id may be reused");
    assert_eq!(store.allocations(&of(workflow)).unwrap().len(), 2, "submitted allocations are kept");
}

pub(crate) fn slurm_calls_are_counted_by_hour(store: &dyn Store) {
    let hour = 3_600_000_000;
    let begin = Timestamp(NOW.0 - NOW.0.rem_euclid(hour));
    let count = |command: &str, calls, failures, seconds| SlurmCallCount {
        hour: Timestamp(0),
        command: command.into(),
        calls,
        failures,
        took: Duration::from_secs(seconds),
    };
    store.record_slurm_calls(&[count("squeue", 1, 0, 2), count("sbatch", 3, 1, 4)], begin).unwrap();
    store.record_slurm_calls(&[count("squeue", 1, 1, 3)], Timestamp(begin.0 + hour - 1)).unwrap();
    let next = Timestamp(begin.0 + hour);
    store.record_slurm_calls(&[count("squeue", 5, 0, 1)], next).unwrap();
    let at = |hour, counted| SlurmCallCount { hour, ..counted };
    let (first, second) = (at(begin, count("squeue", 2, 1, 5)), at(next, count("squeue", 5, 0, 1)));
    let all = [at(begin, count("sbatch", 3, 1, 4)), first, second.clone()];
    assert_eq!(store.slurm_calls(NOW).unwrap(), all);
    assert_eq!(store.slurm_calls(next).unwrap(), [second]);
}
