//! Decision tables: state and event → result. `tests/lifecycle_model/` tests all combinations.

use super::samples::{START, block, process, run, view};
use super::*;
use crate::requests::change::RunChange;
use crate::requests::rows::{
    OutputStepState, RequestCommand, RequestCommandKind, RequestFileCounts, RoundExtent, RunRow,
};
use windlass_types::payload::{MergeCounts, MergedFile};
use windlass_types::requests::{
    CleanupPolicy, PriorityStep, ProcessingBlockStatus, RequestRunStatus as R, RequestStatus as S,
};
use windlass_types::{RunId, WorkflowId};

pub(super) const LATER: Timestamp = Timestamp(START.0 + 5_000_000);

fn at(status: S) -> RequestView {
    let mut view = view();
    view.row.status = status;
    if !matches!(status, S::New | S::Submitted) {
        view.process = Some(process());
    }
    view
}

/// With a run of ten units in two blocks.
pub(super) fn with_run(status: S, run_status: R) -> RequestView {
    let mut view = at(status);
    view.run = Some(RunRow { status: run_status, ..run(10) });
    view.blocks = vec![block(0, 0, 4), block(1, 5, 9)];
    view
}

pub(super) fn wanting(mut view: RequestView, what: RequestCommandKind) -> RequestView {
    view.row.wanted = Some(RequestCommand::new(what, "eve", "because", START));
    view
}

pub(super) fn heard(view: &RequestView, news: &[LifecycleEvent]) -> LifecycleDecision {
    on(view, news, false)
}

pub(super) fn on(view: &RequestView, news: &[LifecycleEvent], admitted: bool) -> LifecycleDecision {
    let situation =
        LifecycleInputs { events: news, admitted, previous: &[], unit_sites: &[], new_run_uuid: "run-1" };
    decide_request(view, &situation, &at_once(), LATER)
}

/// Default settings, except that rescues do not wait.
pub(super) fn at_once() -> LifecycleSettings {
    let mut settings = LifecycleSettings::default();
    settings.recovery.rescue_pause = Duration::ZERO;
    settings
}

pub(super) fn after(view: &RequestView, decision: &LifecycleDecision) -> RequestView {
    let mut view = view.clone();
    decision.changes.iter().for_each(|change| view.apply_change(change, LATER));
    view
}

/// All statuses it went through.
pub(super) fn way(decision: &LifecycleDecision) -> Vec<S> {
    let to = |change: &RequestChange| match change {
        RequestChange::Status { to, .. } => Some(*to),
        _ => None,
    };
    decision.changes.iter().filter_map(to).collect()
}

fn merged(unit: u32) -> MergeOutput {
    let file = MergedFile {
        lfn: format!("/store/{unit}"),
        size: 1,
        adler32: "00000001".into(),
        events: 10,
        lumis: windlass_types::LumiMask::default(),
        parents: Vec::new(),
    };
    MergeOutput {
        request: "ana_test_v1".into(),
        unit: format!("mg_{unit:06}"),
        number: unit,
        site: "T2".into(),
        datasets: [("/Mu/Run1-again-v1/AOD".to_owned(), vec![file])].into(),
        counts: MergeCounts::default(),
    }
}

pub(super) fn says(state: RunState, completed: u32, failed: u32, units: &[u32]) -> LifecycleEvent {
    let units = units.iter().enumerate().map(|(at, unit)| WorkUnitReport {
        seq: at as i64 + 1,
        unit: *unit,
        status: RequestUnitStatus::Completed,
        output: Ok(Some(merged(*unit))),
    });
    LifecycleEvent::RunReported(Box::new(RunReport {
        run: "run-0".into(),
        backend: Some(handed()),
        state,
        counts: NodeCounts::default(),
        units_completed: completed,
        units_failed: failed,
        units: units.collect(),
        attempts: Vec::new(),
        site_totals: std::collections::BTreeMap::new(),
        held: Vec::new(),
        reason: None,
    }))
}

fn handed() -> BackendRunRef {
    BackendRunRef::Engine { workflow: Some(WorkflowId(7)), run: Some(RunId(1)) }
}

fn submitted() -> LifecycleEvent {
    LifecycleEvent::Submitted {
        run: "run-0".into(),
        backend: handed(),
        priority: Some(samples::request().priority),
    }
}

fn trouble(again: bool) -> EffectFailure {
    EffectFailure { reason: "no such dataset".into(), is_retryable: again }
}

///
#[test]
fn events_advance_the_request() {
    let planned = || {
        LifecycleEvent::Planned(Box::new(PlannedRound {
            run: run(10),
            blocks: vec![block(0, 0, 9)],
            process: process(),
        }))
    };
    let plan = LifecycleEffect::Plan { round: 0 };
    let submit = LifecycleEffect::Submit { run: "run-0".into() };
    let table = vec![
        (at(S::New), vec![], true, vec![], vec![]),
        (at(S::Submitted), vec![], true, vec![], vec![LifecycleEffect::Import]),
        (
            at(S::Submitted),
            vec![LifecycleEvent::Imported(Box::new(process()))],
            true,
            vec![S::Queued],
            vec![],
        ),
        (at(S::Submitted), vec![LifecycleEvent::ImportFailed(trouble(true))], false, vec![], vec![]),
        (at(S::Submitted), vec![LifecycleEvent::ImportFailed(trouble(false))], false, vec![S::Held], vec![]),
        (at(S::Queued), vec![], false, vec![], vec![]),
        (at(S::Queued), vec![LifecycleEvent::Imported(Box::new(process()))], false, vec![], vec![]),
        (at(S::Queued), vec![], true, vec![S::Planning], vec![plan.clone()]),
        (at(S::Planning), vec![], false, vec![], vec![plan]),
        (at(S::Planning), vec![planned()], false, vec![], vec![submit.clone()]),
        (at(S::Planning), vec![planned(), planned(), submitted()], false, vec![S::Active], vec![]),
        (at(S::Planning), vec![LifecycleEvent::PlanFailed(trouble(false))], false, vec![S::Held], vec![]),
        (with_run(S::Active, R::Running), vec![planned()], false, vec![], vec![]),
        (at(S::Planning), vec![LifecycleEvent::NothingToPlan], false, vec![S::Active, S::Completed], vec![]),
        (with_run(S::Queued, R::Ready), vec![], true, vec![S::Planning], vec![submit]),
        (with_run(S::Planning, R::Ready), vec![submitted()], false, vec![S::Active], vec![]),
        (
            // The confirmation of the submission was lost.
            with_run(S::Planning, R::Ready),
            vec![says(RunState::Running, 0, 0, &[])],
            false,
            vec![S::Active],
            vec![],
        ),
        (with_run(S::Active, R::Running), vec![says(RunState::Unknown, 0, 0, &[])], false, vec![], vec![]),
        (
            with_run(S::Active, R::Running),
            vec![says(RunState::Gone, 0, 0, &[])],
            false,
            vec![S::Held],
            vec![],
        ),
        (
            with_run(S::Active, R::Running),
            vec![says(RunState::Over, 0, 10, &[])],
            false,
            vec![S::Partial, S::Held],
            vec![],
        ),
        (
            with_run(S::Stopping, R::Running),
            vec![says(RunState::Running, 0, 0, &[])],
            false,
            vec![],
            vec![LifecycleEffect::Stop { run: "run-0".into(), reason: "the request is held".into() }],
        ),
        (
            with_run(S::Stopping, R::Running),
            vec![says(RunState::Over, 0, 0, &[])],
            true,
            vec![S::Resubmitting, S::Queued],
            vec![],
        ),
        (at(S::Resubmitting), vec![], true, vec![S::Queued], vec![]),
        (at(S::Completed), vec![], true, vec![], vec![]),
    ];
    for (line, (view, news, admitted, expected, effects)) in table.into_iter().enumerate() {
        let decision = on(&view, &news, admitted);
        assert_eq!(way(&decision), expected, "line {line}: {} {news:?}", view.row.status);
        assert_eq!(decision.effects, effects, "line {line}: {} {news:?}", view.row.status);
    }
}

/// outputs are registered as units end, before the run is over.
#[test]
fn ended_unit_is_registered_at_once() {
    let view = with_run(S::Active, R::Submitted);
    let decision = heard(&view, &[says(RunState::Running, 2, 0, &[1, 7])]);
    let next = after(&view, &decision);
    let about = |effect: &LifecycleEffect| match effect {
        LifecycleEffect::Step(step) => (step.block.clone(), step.kind),
        other => panic!("{other:?}"),
    };
    let opened: Vec<_> = decision.effects.iter().map(about).collect();
    assert_eq!(
        opened,
        [("block-0".to_owned(), OutputStepKind::Open), ("block-1".to_owned(), OutputStepKind::Open)]
    );
    assert_eq!(next.steps.len(), 6);
    let run = next.run.as_ref().unwrap();
    assert_eq!((run.status, run.units_completed, run.units_read), (R::Running, 2, 2));

    // Repeated, it changes nothing.
    let again = heard(&next, &[says(RunState::Running, 2, 0, &[1, 7])]);
    assert_eq!(again.changes, []);
    assert_eq!(again.effects, decision.effects);
}

/// N-3: unreadable outputs are not skipped.
#[test]
fn unit_with_unknown_outputs_is_read_again() {
    let view = with_run(S::Active, R::Running);
    let mut news = says(RunState::Running, 3, 0, &[0, 1, 2]);
    let LifecycleEvent::RunReported(told) = &mut news else { panic!("news of a run") };
    told.units[1].output = Err("no such file".into());
    let decision = heard(&view, &[news.clone()]);
    assert_eq!(after(&view, &decision).run.unwrap().units_read, 1);
    assert!(decision.next_check.is_some());
    // When nothing more comes, an operator has to decide.
    let LifecycleEvent::RunReported(told) = &mut news else { panic!("news of a run") };
    told.state = RunState::Over;
    let next = after(&view, &heard(&view, &[news]));
    assert_eq!(next.row.status, S::Held);
    assert!(next.row.reason.unwrap().contains("mg_000001"));
}

/// also several steps at once, and a lowered priority stays low.
#[test]
fn production_step_stops_the_run_and_lowers_priority() {
    let step = |fraction, priority| PriorityStep { fraction, priority };
    let steps = vec![step(0.1, 80_000), step(0.5, 50_000), step(0.9, 10_000)];
    // units completed, priority before → priority after, steps left
    for (completed, priority, then, left) in
        [(1, 100_000, 80_000, 2), (5, 100_000, 50_000, 1), (9, 100_000, 10_000, 0), (5, 60, 60, 1)]
    {
        let mut view = with_run(S::Active, R::Running);
        view.row.request.production_steps.clone_from(&steps);
        view.row.request.priority = priority;
        let decision = heard(&view, &[says(RunState::Running, completed, 0, &[])]);
        assert_eq!(way(&decision), [S::Stopping]);
        assert!(
            matches!(&decision.effects[..], [LifecycleEffect::Stop { reason, .. }] if reason.contains("priority"))
        );
        let stopping = after(&view, &decision);
        let decision = heard(&stopping, &[says(RunState::Over, completed, 0, &[])]);
        let queued = after(&stopping, &decision);
        assert_eq!((queued.row.status, queued.row.request.priority), (S::Queued, then));
        assert_eq!(queued.row.request.production_steps.len(), left);
        let run = queued.run.unwrap();
        assert_eq!(
            (run.status, run.parent.as_deref(), run.units_completed),
            (R::Ready, Some("run-0"), completed)
        );
    }
    let mut view = with_run(S::Active, R::Running);
    view.row.request.production_steps.clone_from(&steps);
    // This round is a fifth of the request, and the first: at its end one step is reached, not all three.
    view.process.as_mut().unwrap().extent = RoundExtent { before: 0, planned: 200, later: 800 };
    let decision = heard(&view, &[says(RunState::Running, 4, 0, &[])]);
    assert_eq!(way(&decision), [], "less than a tenth of the whole");
    view.process.as_mut().unwrap().more_input = true;
    view.process.as_mut().unwrap().settled = 1;
    view.run.as_mut().unwrap().status = R::Completed;
    view.run.as_mut().unwrap().units_completed = 10;
    let decision = heard(&view, &[]);
    assert_eq!(way(&decision), [S::Queued], "the next round is planned again");
    let queued = after(&view, &decision).row.request;
    assert_eq!((queued.priority, queued.production_steps.len()), (80_000, 2));

    let mut view = with_run(S::Active, R::Running);
    view.row.request.production_steps = steps;
    for (completed, failed) in [(0, 0), (10, 0), (8, 2)] {
        let decision = heard(&view, &[says(RunState::Running, completed, failed, &[])]);
        assert_eq!(way(&decision), [], "with nothing reached or nothing left, nothing changes");
    }
}

/// N-12; abort from every status.
#[test]
fn operator_commands_apply_in_every_status() {
    let ways: Vec<(RequestView, RequestCommandKind, Vec<S>)> = vec![
        (at(S::Submitted), RequestCommandKind::Stop, vec![S::Held]),
        (at(S::Queued), RequestCommandKind::Stop, vec![S::Held]),
        (at(S::Planning), RequestCommandKind::Stop, vec![S::Held]),
        (with_run(S::Planning, R::Ready), RequestCommandKind::Stop, vec![S::Stopping]),
        (with_run(S::Active, R::Running), RequestCommandKind::Stop, vec![S::Stopping]),
        (with_run(S::Active, R::Completed), RequestCommandKind::Stop, vec![]),
        (with_run(S::Held, R::Partial), RequestCommandKind::Stop, vec![]),
        (at(S::New), RequestCommandKind::Abort, vec![S::Aborted]),
        (at(S::Submitted), RequestCommandKind::Abort, vec![S::Aborted]),
        (at(S::Queued), RequestCommandKind::Abort, vec![S::Aborted]),
        (with_run(S::Queued, R::Ready), RequestCommandKind::Abort, vec![S::Aborted]),
        (at(S::Planning), RequestCommandKind::Abort, vec![S::Aborted]),
        (with_run(S::Planning, R::Ready), RequestCommandKind::Abort, vec![S::Stopping]),
        (with_run(S::Active, R::Running), RequestCommandKind::Abort, vec![S::Stopping]),
        (with_run(S::Active, R::Completed), RequestCommandKind::Abort, vec![S::Aborted]),
        (with_run(S::Stopping, R::Running), RequestCommandKind::Abort, vec![]),
        (with_run(S::Resubmitting, R::Ready), RequestCommandKind::Abort, vec![S::Aborted]),
        (with_run(S::Partial, R::Partial), RequestCommandKind::Abort, vec![S::Aborted]),
        (with_run(S::Held, R::Partial), RequestCommandKind::Abort, vec![S::Aborted]),
        (with_run(S::Held, R::Ready), RequestCommandKind::Abort, vec![S::Stopping]),
        (with_run(S::Held, R::Partial), RequestCommandKind::Fail, vec![]),
        (at(S::Held), RequestCommandKind::Fail, vec![S::Failed]),
        (with_run(S::Active, R::Submitted), RequestCommandKind::Fail, vec![S::Stopping]),
        (with_run(S::Completed, R::Completed), RequestCommandKind::Abort, vec![]),
        (at(S::Queued), RequestCommandKind::Release, vec![S::Planning]),
        (view_held_without_process(), RequestCommandKind::Release, vec![S::Submitted]),
        (at(S::Held), RequestCommandKind::Release, vec![S::Queued]),
        (with_run(S::Held, R::Ready), RequestCommandKind::Release, vec![S::Queued]),
        (with_run(S::Held, R::Partial), RequestCommandKind::Release, vec![]),
        (with_run(S::Held, R::Stopped), RequestCommandKind::Release, vec![S::Resubmitting, S::Queued]),
        (with_run(S::Held, R::Removed), RequestCommandKind::Release, vec![S::Resubmitting, S::Queued]),
        (with_run(S::Held, R::Completed), RequestCommandKind::Release, vec![S::Active]),
        (with_run(S::Held, R::Running), RequestCommandKind::Release, vec![S::Stopping]),
    ];
    for (view, want, expected) in ways {
        let status = view.row.status;
        let decision = on(&wanting(view, want), &[], true);
        assert_eq!(way(&decision), expected, "{want:?} of one that is {status}");
    }
}

fn view_held_without_process() -> RequestView {
    RequestView { process: None, ..at(S::Held) }
}

/// No later run continues it.
#[test]
fn stopped_run_is_removed_with_its_aborted_request() {
    let view = wanting(with_run(S::Held, R::Stopped), RequestCommandKind::Abort);
    let aborted = after(&view, &heard(&view, &[]));
    assert_eq!((aborted.row.status, aborted.run.unwrap().status), (S::Aborted, R::Removed));
}

/// R-116, S 6.3: complete blocks stay, open ones are undone; of a failed request everything stays.
#[test]
fn end_of_a_request_settles_its_blocks() {
    use ProcessingBlockStatus::{Archived, Complete, Failed, Invalidated, Open};
    let mut view = with_run(S::Held, R::Partial);
    view.blocks = vec![
        BlockRow {
            status: ProcessingBlockStatus::Archived,
            is_closed: true,
            name: Some("a".into()),
            ..block(0, 0, 1)
        },
        BlockRow {
            status: ProcessingBlockStatus::Complete,
            is_closed: true,
            name: Some("b".into()),
            ..block(1, 2, 3)
        },
        BlockRow { name: Some("c".into()), units_completed: 1, ..block(2, 4, 5) },
        block(3, 6, 9),
    ];
    let statuses = |view: &RequestView| view.blocks.iter().map(|block| block.status).collect::<Vec<_>>();
    let aborted = after(&view, &heard(&wanting(view.clone(), RequestCommandKind::Abort), &[]));
    assert_eq!(statuses(&aborted), [Archived, Complete, Open, Invalidated]);
    assert_eq!(aborted.steps.len(), 1);
    assert!(aborted.steps[0].is_step("block-2", None, OutputStepKind::Invalidate));
    // Open steps of a finished request are performed too.
    let decision = heard(&aborted, &[]);
    assert!(
        matches!(&decision.effects[..], [LifecycleEffect::Step(step)] if step.kind == OutputStepKind::Invalidate)
    );
    let undone = LifecycleEvent::Step {
        block: "block-2".into(),
        unit: None,
        kind: OutputStepKind::Invalidate,
        outcome: Ok(None),
    };
    assert_eq!(
        statuses(&after(&aborted, &heard(&aborted, &[undone]))),
        [Archived, Complete, Invalidated, Invalidated]
    );

    let listed = LifecycleEvent::ManifestWritten { path: "/requests/r/invalidation.json".into() };
    let failed =
        after(&view, &heard(&wanting(view.clone(), RequestCommandKind::Fail), std::slice::from_ref(&listed)));
    assert_eq!(statuses(&failed), [Archived, Failed, Failed, Failed], "all of it is to be cleaned up");
    assert_eq!(failed.steps, []);
    assert!(failed.row.reason.unwrap().ends_with("/requests/r/invalidation.json"));

    view.row.request.superseded_by_request = Some("r_v2".into());
    let replaced = after(&view, &heard(&wanting(view.clone(), RequestCommandKind::Fail), &[]));
    assert_eq!(
        (replaced.row.status, statuses(&replaced)),
        (S::Failed, vec![Archived, Complete, Failed, Failed])
    );
}

/// A stop that finds nothing at the backend: a ready run continues later, under another name.
#[test]
fn stop_before_the_start_keeps_the_run() {
    let view = with_run(S::Planning, R::Ready);
    let stopping = after(&view, &heard(&wanting(view.clone(), RequestCommandKind::Stop), &[]));
    // Not being there yet does not prove that it will not come.
    assert_eq!(way(&heard(&stopping, &[says(RunState::Gone, 0, 0, &[])])), []);
    let certain = LifecycleEvent::Stopped { run: "run-0".into(), was_running: false };
    let queued = after(&stopping, &heard(&stopping, &[certain]));
    assert_eq!(queued.row.status, S::Queued);
    let again = on(&queued, &[], true);
    assert_eq!(
        again.effects,
        [LifecycleEffect::Submit { run: "run-1".into() }],
        "it never was at the backend"
    );

    // A submitted run continues there.
    let mut view = with_run(S::Active, R::Running);
    let change = RunChange::AssignBackend(handed());
    view.apply_change(&RequestChange::Run { run: "run-0".into(), change }, LATER);
    let stopping = after(&view, &heard(&wanting(view.clone(), RequestCommandKind::Stop), &[]));
    let queued = after(&stopping, &heard(&stopping, &[says(RunState::Over, 3, 0, &[])]));
    assert_eq!(on(&queued, &[], true).effects, [LifecycleEffect::Resume { run: "run-1".into() }]);
}

fn says_held(state: RunState, held: u64, why: &[&str]) -> LifecycleEvent {
    let LifecycleEvent::RunReported(mut news) = says(state, 0, 0, &[]) else {
        unreachable!("it is news of a run")
    };
    news.counts.held = held;
    news.held = why.iter().map(|&why| why.to_owned()).collect();
    LifecycleEvent::RunReported(news)
}

#[test]
fn held_nodes_are_reported_once() {
    let view = with_run(S::Active, R::Running);
    let told = |decision: &LifecycleDecision| -> Vec<(&str, String)> {
        decision.alerts.iter().map(|alert| (alert.kind.name(), alert.text.clone())).collect()
    };
    let first = heard(&view, &[says_held(RunState::Running, 1, &["proc_000001: no disk"])]);
    assert_eq!(told(&first), [("held_nodes", "proc_000001: no disk".to_owned())]);
    let noted = |change: &RequestChange| matches!(change, RequestChange::RecordRunEvent(event) if event.event_type == "held");
    assert!(first.changes.iter().any(noted), "{first:?}");
    let view = after(&view, &first);
    assert_eq!(told(&heard(&view, &[says_held(RunState::Running, 1, &["proc_000001: no disk"])])), []);
    let why = ["a", "b", "c", "d", "e"];
    let more = heard(&view, &[says_held(RunState::Running, 5, &why)]);
    assert_eq!(told(&more), [("held_nodes", "a; b; c; and 2 more".to_owned())]);

    let halted = heard(&view, &[says_held(RunState::Halted, 1, &["DAGMan is held: by ana"])]);
    assert_eq!(told(&halted), [("held_nodes", "DAGMan is held: by ana".to_owned())]);
    let view = after(&view, &halted);
    assert_eq!(view.run.as_ref().unwrap().status, R::Halted);
    let again = heard(&view, &[says_held(RunState::Halted, 1, &["DAGMan is held: by ana"])]);
    assert_eq!((again.changes, again.effects), (vec![], vec![]), "it waits, and keeps its slot");
    assert!(takes_slot(&view));
    let view = after(&view, &heard(&view, &[says(RunState::Running, 0, 0, &[])]));
    assert_eq!(view.run.unwrap().status, R::Running);
}

#[test]
fn removed_run_ends_and_request_is_held() {
    let view = wanting(with_run(S::Active, R::Halted), RequestCommandKind::Remove);
    let decision = heard(&view, &[]);
    assert_eq!(way(&decision), [S::Held]);
    let [LifecycleEffect::Stop { run, reason }] = decision.effects.as_slice() else { panic!("{decision:?}") };
    assert_eq!((run.as_str(), reason.as_str()), ("run-0", "its run was removed by eve: because"));
    let held = after(&view, &decision);
    let over = after(&held, &heard(&held, &[says(RunState::Over, 3, 0, &[])]));
    assert_eq!((over.row.status, over.run.as_ref().unwrap().status), (S::Held, R::Stopped));
    let released = heard(&wanting(over, RequestCommandKind::Release), &[]);
    assert_eq!(way(&released), [S::Resubmitting, S::Queued]);
    // Without an active run there is nothing to remove.
    let idle = wanting(with_run(S::Held, R::Partial), RequestCommandKind::Remove);
    assert_eq!(way(&heard(&idle, &[])), []);
}

#[test]
fn run_end_reason_is_shown_if_units_have_none() {
    let LifecycleEvent::RunReported(mut news) = says(RunState::Over, 0, 0, &[]) else {
        unreachable!("it is news of a run")
    };
    news.reason = Some("DAGMan refused workflow.dag".to_owned());
    let view = with_run(S::Active, R::Submitted);
    let held = after(&view, &heard(&view, &[LifecycleEvent::RunReported(news)]));
    let reason = held.row.reason.unwrap();
    assert!(held.row.status == S::Held && reason.ends_with("; DAGMan refused workflow.dag"), "{reason}");
}

/// The alert contains the reason.
#[test]
fn timeout_alert_contains_the_reason() {
    let mut view = at(S::Planning);
    let situation = |news| LifecycleInputs {
        events: news,
        admitted: true,
        previous: &[],
        unit_sites: &[],
        new_run_uuid: "run-1",
    };
    let news = [LifecycleEvent::PlanFailed(trouble(true))];
    let heard = decide_request(&view, &situation(&news), &LifecycleSettings::default(), START);
    assert_eq!(heard.changes, [RequestChange::BlockedReason("no such dataset".into())]);
    for change in &heard.changes {
        view.apply_change(change, START);
    }
    let again = decide_request(&view, &situation(&news), &LifecycleSettings::default(), START);
    assert_eq!(again.changes, [], "it is recorded once");
    let later = decide_request(
        &view,
        &situation(&[]),
        &LifecycleSettings::default(),
        START.plus(Duration::from_hours(2)),
    );
    let reason = later.changes.iter().find_map(|change| match change {
        RequestChange::Status { to: S::Held, reason, .. } => reason.as_deref(),
        _ => None,
    });
    assert_eq!(reason, Some("was still planning after 7200 s: no such dataset"));
}

/// N-2, DESIGN 6.2, 6.3: reported once per timeout, and processed anyway.
#[test]
fn stuck_request_is_reported_and_continues() {
    let hours = |n: u64| START.plus(Duration::from_secs(n * 3600));
    let unreachable = || says(RunState::Unknown, 0, 0, &[]);
    let table = vec![
        (at(S::Submitted), vec![], 2, "stuck_in_submitted", vec![S::Held]),
        (at(S::Planning), vec![], 2, "stuck_in_planning", vec![S::Held]),
        (at(S::Submitted), vec![LifecycleEvent::Imported(Box::new(process()))], 2, "", vec![S::Queued]),
        (at(S::Queued), vec![], 8 * 24, "stuck_in_queue", vec![S::Planning]),
        (with_run(S::Active, R::Running), vec![], 31 * 24, "slow_dag", vec![]),
        (with_run(S::Active, R::Running), vec![unreachable()], 31 * 24, "schedd_unreachable", vec![]),
        (with_run(S::Stopping, R::Running), vec![], 2, "stuck_in_stopping", vec![]),
        (with_run(S::Held, R::Partial), vec![], 9000, "", vec![]),
    ];
    for (view, news, passed, told, expected) in table {
        let situation = LifecycleInputs {
            events: &news,
            admitted: true,
            previous: &[],
            unit_sites: &[],
            new_run_uuid: "run-1",
        };
        let now = hours(passed);
        let decision = decide_request(&view, &situation, &LifecycleSettings::default(), now);
        let status = view.row.status;
        assert_eq!(way(&decision), expected, "{status}");
        let kinds: Vec<_> = decision.alerts.iter().map(|alert| alert.kind.name()).collect();
        assert_eq!(kinds.first().copied().unwrap_or_default(), told, "{status}");
        if expected.is_empty() && !told.is_empty() {
            let mut next = view.clone();
            decision.changes.iter().for_each(|change| next.apply_change(change, now));
            let again = decide_request(
                &next,
                &situation,
                &LifecycleSettings::default(),
                hours(passed + 1).plus(Duration::ZERO),
            );
            let repeats = again.alerts.len();
            assert_eq!(repeats, usize::from(status == S::Stopping), "{status}: once per timeout");
        }
    }
}

/// the request is held once nothing else is left to do; after a release the steps are retried.
#[test]
fn failed_output_steps_hold_the_request() {
    let mut view = with_run(S::Active, R::Completed);
    view.blocks.truncate(1);
    view.blocks[0].status = ProcessingBlockStatus::Failed;
    let RequestChange::AddStep(mut step) =
        outputs::add_step("block-0", Some(1), OutputStepKind::Register, serde_json::Value::Null, START)
    else {
        panic!("a step is added");
    };
    (step.state, step.attempts, step.last_error) =
        (OutputStepState::Failed, 17, Some("503 from the catalog".into()));
    view.steps = vec![*step];
    let held = after(&view, &heard(&view, &[]));
    assert_eq!(held.row.status, S::Held);
    assert!(held.row.reason.as_deref().unwrap().contains("503 from the catalog"));
    let decision = heard(&wanting(held.clone(), RequestCommandKind::Release), &[]);
    let active = after(&held, &decision);
    assert_eq!((active.row.status, active.blocks[0].status), (S::Active, ProcessingBlockStatus::Open));
    assert!(matches!(&decision.effects[..], [LifecycleEffect::Step(step)] if step.attempts == 0));
}

///
#[test]
fn completed_new_version_replaces_the_old_one() {
    for (policy, steps) in [(CleanupPolicy::ImmediateCleanup, 2), (CleanupPolicy::KeepUntilReplaced, 0)] {
        let mut view = with_run(S::Active, R::Completed);
        view.row.request.cleanup_policy = policy;
        view.blocks.iter_mut().for_each(|block| block.status = ProcessingBlockStatus::Archived);
        let previous = [
            BlockRow { uuid: "old-0".into(), status: ProcessingBlockStatus::Archived, ..block(0, 0, 1) },
            BlockRow { uuid: "old-1".into(), status: ProcessingBlockStatus::Failed, ..block(1, 2, 3) },
            BlockRow { uuid: "old-2".into(), status: ProcessingBlockStatus::Invalidated, ..block(2, 4, 5) },
        ];
        let situation = LifecycleInputs {
            events: &[],
            admitted: false,
            previous: &previous,
            unit_sites: &[],
            new_run_uuid: "",
        };
        let decision = decide_request(&view, &situation, &LifecycleSettings::default(), LATER);
        assert_eq!(way(&decision), [S::Completed]);
        let invalidations = decision.changes.iter().filter(
            |change| matches!(change, RequestChange::AddStep(step) if step.kind == OutputStepKind::Invalidate),
        );
        assert_eq!(invalidations.count(), steps);
    }
}

///
#[test]
fn remaining_work_is_the_next_round() {
    let mut view = with_run(S::Active, R::Completed);
    view.process.as_mut().unwrap().more_input = true;
    view.blocks.iter_mut().for_each(|block| block.status = ProcessingBlockStatus::Complete);
    let settle = heard(&view, &[]);
    assert_eq!(
        (way(&settle), settle.effects),
        (vec![], vec![LifecycleEffect::Settle { round: 0, run: "run-0".into() }])
    );
    let decision = heard(
        &view,
        &[LifecycleEvent::Settled { round: 0, run: "run-0".into(), files: RequestFileCounts::default() }],
    );
    assert_eq!(way(&decision), [S::Queued], "archiving continues meanwhile");
    let queued = after(&view, &decision);
    assert_eq!(queued.process.as_ref().unwrap().round, 1);
    assert_eq!(on(&queued, &[], true).effects, [LifecycleEffect::Plan { round: 1 }]);
}

#[test]
fn running_requests_take_slots() {
    let table = [
        (with_run(S::Planning, R::Ready), true),
        (with_run(S::Active, R::Running), true),
        (with_run(S::Active, R::Completed), false),
        (with_run(S::Stopping, R::Running), true),
        (with_run(S::Queued, R::Ready), false),
        (with_run(S::Held, R::Partial), false),
    ];
    for (view, expected) in table {
        assert_eq!(takes_slot(&view), expected, "{}", view.row.status);
    }
}

/// The jobs of a run follow the priority of its request, even if it changed during submission.
#[test]
fn changed_priority_is_applied_to_the_run() {
    let prioritize = |priority| LifecycleEffect::Prioritize { run: "run-0".into(), priority };
    let changed = |status, run_status| {
        let mut view = with_run(status, run_status);
        view.row.request.priority = 200_000;
        view
    };
    for run_status in [R::Submitted, R::Running, R::Halted] {
        let view = changed(S::Active, run_status);
        let decision = heard(&view, &[]);
        assert_eq!(decision.effects, [prioritize(200_000)], "{run_status}");
        let told = LifecycleEvent::Prioritized { run: "run-0".into(), priority: 200_000 };
        let view = after(&view, &heard(&view, &[told]));
        assert_eq!(view.run.as_ref().unwrap().priority, Some(200_000));
        assert_eq!(heard(&view, &[]).effects, []);
        assert_eq!(heard(&with_run(S::Active, run_status), &[]).effects, []);
    }
    assert_eq!(heard(&changed(S::Stopping, R::Running), &[]).effects.len(), 1, "it is only stopped");
    let handed =
        after(&changed(S::Planning, R::Ready), &heard(&changed(S::Planning, R::Ready), &[submitted()]));
    assert_eq!(heard(&handed, &[]).effects, [prioritize(200_000)], "it was submitted with another one");
}
