//! What follows failures, transition by transition: rescue, settling, hold, release, failure.

use super::samples::{START, block};
use super::tests::{LATER, after, heard, on, says, wanting, way, with_run};
use super::*;
use crate::requests::failures::{BadFile, FailureTally};
use crate::requests::outputs;
use crate::requests::rows::{
    OutputStepState, RequestCommand, RequestCommandKind, RequestFileCounts, RequestRunCause,
};
use std::sync::Arc;
use windlass_types::requests::{
    GenerationParams, ProcessingBlockStatus, RequestRunStatus as R, RequestStatus as S,
};

fn releasing(view: RequestView, rescue: bool) -> RequestView {
    let mut view = wanting(view, RequestCommandKind::Release);
    view.row.wanted.as_mut().unwrap().rescue = rescue;
    view
}

fn losing(view: RequestView, what: RequestCommandKind) -> RequestView {
    let mut view = view;
    view.row.wanted =
        Some(RequestCommand { lost: true, ..RequestCommand::new(what, "eve", "it burnt", START) });
    view
}

fn generating(mut view: RequestView) -> RequestView {
    view.row.request.input_dataset = None;
    view.row.request.generation = Some(GenerationParams {
        events: 1000,
        first_event: 1,
        first_lumi: 1,
        events_per_lumi: 10,
        filter_efficiency: 1.0,
    });
    view
}

fn settle() -> LifecycleEffect {
    LifecycleEffect::Settle { round: 0, run: "run-0".into() }
}

fn settled(files: RequestFileCounts) -> LifecycleEvent {
    LifecycleEvent::Settled { round: 0, run: "run-0".into(), files }
}

/// Over, with one of ten units failed.
fn nearly_done() -> LifecycleEvent {
    says(RunState::Over, 9, 1, &[])
}

/// E 3.4: rescued and counted, up to the maximum.
#[test]
fn few_failures_are_rescued_up_to_the_limit() {
    let mut view = with_run(S::Active, R::Running);
    for rescue in 1..=3 {
        let decision = heard(&view, &[nearly_done()]);
        assert_eq!(way(&decision), [S::Partial, S::Resubmitting, S::Queued]);
        view = after(&view, &decision);
        let run = view.run.as_ref().unwrap();
        assert_eq!((run.cause, run.rescues, run.status), (RequestRunCause::Failure, rescue, R::Ready));
        assert_eq!((run.units_completed, run.round), (9, 0), "completed units stay completed");
        view.row.status = S::Active;
        let run = view.run.as_mut().unwrap();
        (run.status, run.uuid) = (R::Running, "run-0".into());
    }
    let held = after(&view, &heard(&view, &[nearly_done()]));
    assert_eq!((held.row.status, held.run.unwrap().status), (S::Held, R::Partial));
    assert!(held.row.reason.unwrap().contains("maximum of 3 rescues"));
}

/// E 7.2: continuing after a stop, or by a command, is no rescue.
#[test]
fn only_rescues_after_failures_count() {
    let stopped = |rescues| {
        let mut view = with_run(S::Stopping, R::Running);
        view.run.as_mut().unwrap().rescues = rescues;
        after(&view, &heard(&view, &[says(RunState::Over, 3, 0, &[])]))
    };
    for rescues in [0, 2] {
        let run = stopped(rescues).run.unwrap();
        assert_eq!((run.cause, run.rescues), (RequestRunCause::Stop, rescues));
    }
    let mut held = with_run(S::Held, R::Partial);
    held.run.as_mut().unwrap().rescues = 3;
    let decision = heard(&releasing(held.clone(), true), &[]);
    assert_eq!(way(&decision), [S::Resubmitting, S::Queued]);
    let run = after(&held, &decision).run.unwrap();
    assert_eq!((run.cause, run.rescues, run.round), (RequestRunCause::Person, 3, 0));
}

/// A round planned with files excluded by a release does not read them.
#[test]
fn round_with_newly_excluded_files_is_not_resumed() {
    let excluding = |mut view: RequestView| {
        view.row.overrides.excluded_files.insert("/store/bad".into());
        view
    };
    let files = RequestFileCounts { attempted: 4, processed: 16, excluded: 0 };
    // Over: recorded first, then the next round; for any status of the run.
    for status in [R::Stopped, R::Removed, R::Partial, R::Failed] {
        for rescue in [false, true] {
            let held = excluding(releasing(with_run(S::Held, status), rescue));
            let decision = heard(&held, &[]);
            assert_eq!((way(&decision), &decision.effects[..]), (vec![], &[settle()][..]), "{status}");
            let waiting = after(&held, &decision);
            let decision = heard(&waiting, &[settled(files)]);
            assert_eq!(way(&decision), [S::Active, S::Queued], "{status}");
            let next = after(&waiting, &decision);
            assert_eq!((next.process.unwrap().round, next.row.wanted), (1, None));
        }
    }
    // Possibly running: stopped first, whether it is held, paused or only ready.
    let mut paused = with_run(S::Active, R::Running);
    paused.run.as_mut().unwrap().paused = Some(START);
    for view in [with_run(S::Held, R::Running), with_run(S::Held, R::Ready), paused] {
        let view = excluding(releasing(view, false));
        let decision = heard(&view, &[]);
        assert_eq!(way(&decision), [S::Stopping]);
        assert!(matches!(&decision.effects[..], [LifecycleEffect::Stop { .. }]), "{:?}", decision.effects);
        let stopping = after(&view, &decision);
        let over = if stopping.run.as_ref().unwrap().status == R::Ready {
            LifecycleEvent::Stopped { run: "run-0".into(), was_running: false }
        } else {
            says(RunState::Over, 3, 0, &[])
        };
        let decision = heard(&stopping, &[over]);
        assert_eq!((way(&decision), &decision.effects[..]), (vec![], &[settle()][..]));
        let stopped = after(&stopping, &decision);
        let lost = EffectFailure { reason: "it is gone".into(), is_retryable: false };
        let held = heard(&stopped, &[LifecycleEvent::SettleFailed { round: 0, failure: lost }]);
        assert_eq!(way(&held), [S::Held], "an operator has to decide");
        assert_eq!(way(&heard(&stopped, &[settled(files)])), [S::Active, S::Queued]);
    }
}

/// Files excluded before planning are not in the round, and completed rounds are not affected.
#[test]
fn round_planned_with_all_exclusions_is_resumed() {
    let excluding = |mut view: RequestView, known| {
        view.row.overrides.excluded_files.insert("/store/bad".into());
        view.process.as_mut().unwrap().excluded = known;
        releasing(view, false)
    };
    let decision = heard(&excluding(with_run(S::Held, R::Stopped), 1), &[]);
    assert_eq!(way(&decision), [S::Resubmitting, S::Queued]);
    let decision = heard(&excluding(with_run(S::Held, R::Ready), 1), &[]);
    assert_eq!(way(&decision), [S::Queued]);
    let decision = heard(&excluding(with_run(S::Held, R::Completed), 0), &[]);
    assert_eq!(way(&decision)[0], S::Active);
}

/// A run may be over before the exclusion is noticed.
#[test]
fn round_with_excluded_files_is_not_rescued() {
    let mut view = with_run(S::Active, R::Running);
    view.row.overrides.excluded_files.insert("/store/bad".into());
    let decision = heard(&view, &[nearly_done()]);
    assert_eq!((way(&decision), &decision.effects[..]), (vec![S::Partial], &[settle()][..]));
    let partial = after(&view, &decision);
    let files = RequestFileCounts { attempted: 2, processed: 18, excluded: 0 };
    assert_eq!(way(&heard(&partial, &[settled(files)])), [S::Active, S::Queued]);
}

/// E 4.1: even if everything failed, the request is not failed automatically.
#[test]
fn completely_failed_round_is_held() {
    let view = with_run(S::Active, R::Running);
    let decision = heard(&view, &[says(RunState::Over, 0, 10, &[])]);
    assert_eq!(way(&decision), [S::Partial, S::Held]);
    assert_eq!(after(&view, &decision).run.unwrap().status, R::Failed);
}

/// E 3.4, R-130: progress is recorded, then the next round follows.
#[test]
fn release_records_completed_work_units() {
    let view = with_run(S::Held, R::Partial);
    let released = releasing(view.clone(), false);
    let decision = heard(&released, &[]);
    assert_eq!((way(&decision), &decision.effects[..]), (vec![], &[settle()][..]));
    let waiting = after(&released, &decision);
    assert!(waiting.row.wanted.is_some(), "the command survives a crash");
    let files = RequestFileCounts { attempted: 4, processed: 16, excluded: 0 };
    let decision = heard(&waiting, &[settled(files)]);
    assert_eq!(way(&decision), [S::Active, S::Queued]);
    let next = after(&waiting, &decision);
    let process = next.process.as_ref().unwrap();
    assert_eq!((process.round, process.settled, process.files), (1, 1, files));
    assert_eq!((next.row.wanted.as_ref(), next.run.as_ref().unwrap().round), (None, 0));
    assert_eq!(on(&next, &[], true).effects, [LifecycleEffect::Plan { round: 1 }]);
    // Repeated, or for another round or another run, it changes nothing.
    assert_eq!(heard(&next, &[settled(RequestFileCounts::default())]).changes, []);
    let (this, other) = ("run-0".to_owned(), "run-7".to_owned());
    for news in [
        LifecycleEvent::Settled { round: 7, run: this, files },
        LifecycleEvent::Settled { round: 0, run: other, files },
    ] {
        assert_eq!(heard(&waiting, &[news]).changes, []);
    }
}

#[test]
fn released_request_without_remaining_work_ends() {
    let view = releasing(with_run(S::Held, R::Partial), false);
    let files = RequestFileCounts { attempted: 0, processed: 18, excluded: 2 };
    let done = after(&view, &heard(&view, &[settled(files)]));
    assert_eq!(done.row.status, S::Completed);
    assert_eq!(done.row.reason.as_deref(), Some("without 2 input files that were excluded"));
}

/// E 5.1: numbers are assigned at planning, so nothing has to be asked.
#[test]
fn generation_is_settled_without_an_effect() {
    for (run_status, made) in [(R::Partial, 700), (R::Failed, 0)] {
        let mut view = generating(with_run(S::Held, run_status));
        let process = view.process.as_mut().unwrap();
        (process.next_first_event, process.events_produced, process.events_of_round) = (1001, made, made);
        let decision = heard(&releasing(view.clone(), false), &[]);
        assert_eq!(way(&decision), [S::Active, S::Queued], "also if nothing was produced");
        let next = after(&view, &decision).process.unwrap();
        assert_eq!((next.round, next.settled, next.next_first_event), (1, 1, 1001));
    }
}

/// A complete round without events would be repeated forever; an operator may want that.
#[test]
fn release_repeats_a_round_without_events() {
    let mut view = generating(with_run(S::Active, R::Completed));
    view.blocks.clear();
    let held = after(&view, &heard(&view, &[]));
    assert_eq!(held.row.status, S::Held);
    assert_eq!(way(&heard(&releasing(held, false), &[])), [S::Queued]);
}

#[test]
fn failed_settling_is_retried_or_reported() {
    let trouble = |again| EffectFailure { reason: "no such directory".into(), is_retryable: again };
    let view = releasing(with_run(S::Held, R::Partial), false);
    let later = heard(&view, &[LifecycleEvent::SettleFailed { round: 0, failure: trouble(true) }]);
    assert_eq!((later.changes.len(), later.effects.len()), (0, 0));
    assert!(later.next_check.is_some());
    let never = heard(&view, &[LifecycleEvent::SettleFailed { round: 0, failure: trouble(false) }]);
    let still = after(&view, &never);
    assert_eq!((still.row.status, still.row.wanted), (S::Held, None));
    assert!(never.alerts[0].text.contains("no such directory"), "{never:?}");

    let mut view = with_run(S::Active, R::Completed);
    view.process.as_mut().unwrap().more_input = true;
    let held = heard(&view, &[LifecycleEvent::SettleFailed { round: 0, failure: trouble(false) }]);
    assert_eq!(way(&held), [S::Held]);
}

/// Blocks of a settled round contain what is registered or in progress.
#[test]
fn blocks_of_a_settled_round_expect_no_more_units() {
    let step = |block: &str, unit, kind, state| {
        let RequestChange::AddStep(mut step) =
            outputs::add_step(block, unit, kind, serde_json::Value::Null, START)
        else {
            panic!("a step is added");
        };
        step.state = state;
        *step
    };
    let mut view = releasing(with_run(S::Held, R::Partial), false);
    view.blocks = vec![
        BlockRow { units_completed: 2, name: Some("a".into()), ..block(0, 0, 2) },
        BlockRow { units_completed: 1, name: Some("b".into()), ..block(1, 3, 5) },
        block(2, 6, 8),
        BlockRow { round: 1, ..block(3, 0, 2) },
    ];
    view.steps = vec![
        step("block-1", Some(4), OutputStepKind::Register, OutputStepState::Pending),
        step("block-1", Some(4), OutputStepKind::Protect, OutputStepState::Pending),
    ];
    let decision =
        heard(&view, &[settled(RequestFileCounts { attempted: 1, ..RequestFileCounts::default() })]);
    let next = after(&view, &decision);
    let stands: Vec<_> = next.blocks.iter().map(|block| (block.units_expected, block.status)).collect();
    let open = ProcessingBlockStatus::Open;
    assert_eq!(stands, [(2, open), (2, open), (0, ProcessingBlockStatus::Invalidated), (3, open)]);
    let closing: Vec<_> = next
        .steps
        .iter()
        .filter(|step| step.kind == OutputStepKind::Close)
        .map(|step| step.block.as_str())
        .collect();
    assert_eq!(closing, ["block-0"], "the other one is full once its pending units are registered");
    assert_eq!(next.row.status, S::Active, "and the next round waits for that");
}

/// Beyond the specification: if only files are bad, no operator is needed.
#[test]
fn unreadable_files_are_excluded_automatically() {
    let mut view = with_run(S::Active, R::Running);
    view.failures = Arc::new(FailureTally {
        units: [(3, true)].into(),
        files: [("/store/bad".to_owned(), BadFile::default())].into(),
        ..FailureTally::default()
    });
    let decision = heard(&view, &[nearly_done()]);
    assert_eq!((way(&decision), &decision.effects[..]), (vec![S::Partial], &[settle()][..]));
    let partial = after(&view, &decision);
    let decision = heard(&partial, &[settled(RequestFileCounts { attempted: 1, processed: 8, excluded: 1 })]);
    assert_eq!(way(&decision), [S::Active, S::Queued]);
    let alerts: Vec<_> = decision.alerts.iter().map(|alert| (alert.kind.name(), &*alert.text)).collect();
    let text = "unreadable input files are excluded from now on: /store/bad";
    assert_eq!(alerts, [("files_excluded", text)]);
}

/// They named a file that none of them reads: all following rounds would end in the same way.
#[test]
fn rounds_without_exclusions_are_not_repeated_forever() {
    let mut view = with_run(S::Partial, R::Partial);
    (view.run.as_mut().unwrap().units_completed, view.run.as_mut().unwrap().units_failed) = (9, 1);
    view.process.as_mut().unwrap().files.excluded = 2;
    view.failures = Arc::new(FailureTally {
        units: [(3, true)].into(),
        files: [("/store/pileup".to_owned(), BadFile::default())].into(),
        ..FailureTally::default()
    });
    let decision = heard(&view, &[settled(RequestFileCounts { attempted: 2, processed: 16, excluded: 2 })]);
    assert_eq!(way(&decision), [S::Held]);
    let held = after(&view, &decision);
    assert!(held.row.reason.as_ref().unwrap().contains("/store/pileup"), "{:?}", held.row.reason);
    assert_eq!(held.process.as_ref().unwrap().settled, 1, "progress is recorded anyway");
    assert_eq!(
        way(&heard(&releasing(held, false), &[])),
        [S::Active, S::Queued],
        "an operator may want another round"
    );
}

/// E 4.2: only by an operator, and after the manifest is written.
#[test]
fn request_fails_after_its_manifest_is_written() {
    let view = wanting(with_run(S::Held, R::Partial), RequestCommandKind::Fail);
    let asked = heard(&view, &[]);
    assert_eq!((asked.changes.len(), &asked.effects[..]), (0, &[LifecycleEffect::WriteManifest][..]));
    let failed = LifecycleEvent::ManifestFailed { reason: "no space left".into() };
    let told = heard(&view, std::slice::from_ref(&failed));
    assert_eq!((way(&told), told.effects.len(), told.alerts[0].kind.name()), (vec![], 0, "manifest_failed"));
    let again = after(&view, &told);
    assert_eq!(heard(&again, &[failed]).alerts, [], "once");
    let written = LifecycleEvent::ManifestWritten { path: "/r/invalidation.json".into() };
    assert_eq!(way(&heard(&again, std::slice::from_ref(&written))), [S::Failed]);
    // It does not start in the queue meanwhile.
    let queued = wanting(with_run(S::Queued, R::Ready), RequestCommandKind::Fail);
    let decision = on(&queued, &[], true);
    assert_eq!((way(&decision), &decision.effects[..]), (vec![], &[LifecycleEffect::WriteManifest][..]));
    // Without the command it does not fail.
    assert_eq!(heard(&with_run(S::Held, R::Partial), &[written]).changes, []);
}

/// A lost backend: the operator's statement counts only while it does not answer.
#[test]
fn lost_backend_is_not_awaited() {
    let silence = || says(RunState::Unknown, 0, 0, &[]);
    let written = || LifecycleEvent::ManifestWritten { path: "/r/invalidation.json".into() };
    let running = with_run(S::Active, R::Running);
    let answers =
        heard(&losing(running.clone(), RequestCommandKind::Fail), &[says(RunState::Running, 0, 0, &[])]);
    assert_eq!(way(&answers), [S::Stopping], "a stop is requested as usual");
    let lost = losing(running.clone(), RequestCommandKind::Fail);
    let gone = after(&lost, &heard(&lost, &[silence(), written()]));
    assert_eq!((gone.row.status, gone.run.unwrap().status), (S::Failed, R::Removed));
    let waits = wanting(running, RequestCommandKind::Fail);
    assert_eq!(way(&heard(&waits, &[silence()])), [S::Stopping], "not declared lost");

    // Whether this one was submitted is unknown and cannot be found out.
    let stopping = losing(with_run(S::Stopping, R::Ready), RequestCommandKind::Abort);
    let stop_failed = LifecycleEvent::StopFailed {
        run: "run-0".into(),
        failure: EffectFailure { reason: "timeout".into(), is_retryable: true },
    };
    assert_eq!(way(&heard(&stopping, &[])), []);
    assert_eq!(way(&heard(&stopping, &[stop_failed])), [S::Aborted]);
}

/// reported long before the run counts as stuck, once for each silence.
#[test]
fn unresponsive_backend_is_reported() {
    let view = with_run(S::Active, R::Running);
    let silence = [says(RunState::Unknown, 0, 0, &[])];
    let silent = after(&view, &heard(&view, &silence));
    assert_eq!(silent.run.as_ref().unwrap().silent, Some(LATER));
    let situation = LifecycleInputs {
        events: &silence,
        admitted: false,
        previous: &[],
        unit_sites: &[],
        new_run_uuid: "",
    };
    let decide_at =
        |view: &RequestView, now| decide_request(view, &situation, &LifecycleSettings::default(), now);
    let soon = decide_at(&silent, LATER.plus(Duration::from_mins(30)));
    assert_eq!((soon.alerts.len(), soon.next_check), (0, Some(LATER.plus(Duration::from_hours(1)))));
    let now = LATER.plus(Duration::from_hours(2));
    let told = decide_at(&silent, now);
    let kinds: Vec<_> = told.alerts.iter().map(|alert| alert.kind.name()).collect();
    assert_eq!((kinds, way(&told)), (vec!["schedd_unreachable"], vec![]));
    let without = "if it is lost for good, the request can be failed or restarted without it";
    assert!(told.alerts[0].text.ends_with(without), "{}", told.alerts[0].text);
    assert!(told.alerts[0].text.contains("has not answered since"), "{}", told.alerts[0].text);
    // The reason is included if the backend could give one.
    let mut unreadable = silence.clone();
    let LifecycleEvent::RunReported(news) = &mut unreadable[0] else { panic!("news of a run") };
    news.reason = Some("its files cannot be read: stale".into());
    let because = LifecycleInputs { events: &unreadable, ..situation };
    let message =
        decide_request(&silent, &because, &LifecycleSettings::default(), now).alerts[0].text.clone();
    assert!(message.contains("its files cannot be read: stale; if it is lost"), "{message}");
    let mut known = silent;
    told.changes.iter().for_each(|change| known.apply_change(change, now));
    assert_eq!(decide_at(&known, now.plus(Duration::from_hours(2))).alerts, []);
    let heard_again = after(&known, &heard(&known, &[says(RunState::Running, 0, 0, &[])]));
    assert_eq!(heard_again.run.unwrap().silent, None);
}

/// If the outputs of a work unit are unreadable, stops and ends do not wait forever.
#[test]
fn unreadable_outputs_do_not_prevent_the_end() {
    let unreadable = || {
        let mut news = says(RunState::Over, 3, 0, &[0, 1, 2]);
        let LifecycleEvent::RunReported(told) = &mut news else { panic!("news of a run") };
        told.units[1].output = Err("no such file".into());
        news
    };
    let stopping = with_run(S::Stopping, R::Running);
    assert_eq!(way(&heard(&stopping, &[unreadable()])), [S::Held]);
    let ending = wanting(with_run(S::Stopping, R::Running), RequestCommandKind::Abort);
    assert_eq!(way(&heard(&ending, &[unreadable()])), [S::Aborted]);
}

/// A rescue waits, twice as long each time, and does not count as stuck.
#[test]
fn rescue_delay_doubles() {
    let settings = LifecycleSettings::default();
    let decided = |view: &RequestView, news: &[LifecycleEvent], now| {
        let situation = LifecycleInputs {
            events: news,
            admitted: false,
            previous: &[],
            unit_sites: &[],
            new_run_uuid: "run-1",
        };
        decide_request(view, &situation, &settings, now)
    };
    for (rescued, seconds) in [(0, 60), (1, 120), (2, 240)] {
        let mut view = with_run(S::Active, R::Running);
        view.run.as_mut().unwrap().rescues = rescued;
        let decision = decided(&view, &[nearly_done()], LATER);
        assert_eq!(way(&decision), [S::Partial, S::Resubmitting]);
        let view = after(&view, &decision);
        let due = LATER.plus(Duration::from_secs(seconds));
        assert_eq!(decision.next_check, Some(due));
        assert_eq!(way(&decided(&view, &[], Timestamp(due.0 - 1))), []);
        assert_eq!(way(&decided(&view, &[], due)), [S::Queued]);
        let set_back = Timestamp(LATER.0 - 1);
        assert_eq!(way(&decided(&view, &[], set_back)), [S::Queued], "the clock was set back");
    }
    let policy = RecoveryPolicy { max_rescues: 100, ..RecoveryPolicy::default() };
    assert_eq!(policy.rescue_delay(100), Duration::from_mins(10));
}

#[test]
fn stop_holds_a_waiting_rescue() {
    let mut view = with_run(S::Resubmitting, R::Ready);
    let run = view.run.as_mut().unwrap();
    (run.cause, run.rescues) = (RequestRunCause::Failure, 1);
    assert_eq!(way(&heard(&wanting(view.clone(), RequestCommandKind::Stop), &[])), [S::Held]);
    view.run.as_mut().unwrap().cause = RequestRunCause::Stop;
    assert_eq!(
        way(&heard(&wanting(view, RequestCommandKind::Stop), &[])),
        [S::Queued],
        "it was stopped before"
    );
}

/// the run of a failed request is failed, not resumable.
#[test]
fn failed_request_has_no_resumable_run() {
    for (status, run_status) in [(S::Held, R::Stopped), (S::Held, R::Partial), (S::Queued, R::Ready)] {
        let mut view = wanting(with_run(status, run_status), RequestCommandKind::Fail);
        view.blocks.clear();
        let failed = after(&view, &heard(&view, &[]));
        assert_eq!((failed.row.status, failed.run.unwrap().status), (S::Failed, R::Failed), "{run_status}");
    }
    let mut view = wanting(with_run(S::Held, R::Completed), RequestCommandKind::Fail);
    view.blocks.clear();
    assert_eq!(after(&view, &heard(&view, &[])).run.unwrap().status, R::Completed, "it was already");
}
