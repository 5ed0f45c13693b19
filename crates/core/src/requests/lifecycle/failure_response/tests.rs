use super::super::samples::{self, START};
use super::super::{LifecycleDecision, LifecycleEvent, LifecycleInputs, LifecycleSettings, decide_request};
use super::*;
use crate::requests::RequestView;
use crate::requests::failures::FailedAttemptReport;
use crate::requests::failures::samples::{attempt, ended};
use crate::requests::rows::{NodeCounts, RequestCommand, RequestCommandKind};
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_types::FailureClass::{self, Infrastructure, Permanent};
use windlass_types::Timestamp;

/// A request with an active run of forty units.
fn active() -> RequestView {
    let mut view = samples::view();
    view.row.status = RequestStatus::Active;
    view.process = Some(samples::process());
    view.run = Some(RunRow { status: RequestRunStatus::Running, ..samples::run(40) });
    view
}

fn failed(n: i64, site: &str, class: FailureClass) -> Vec<FailedAttemptReport> {
    (1..=n).map(|seq| FailedAttemptReport { is_final: false, ..attempt(seq, site, class) }).collect()
}

fn looked(state: RunState, attempts: Vec<FailedAttemptReport>, totals: &[(&str, u64)]) -> LifecycleEvent {
    LifecycleEvent::RunReported(Box::new(RunReport {
        run: "run-0".into(),
        backend: None,
        state,
        counts: NodeCounts::default(),
        units_completed: 0,
        units_failed: 0,
        units: Vec::new(),
        attempts,
        site_totals: ended(totals),
        held: Vec::new(),
        reason: None,
    }))
}

struct ResponseFixture {
    view: RequestView,
    settings: LifecycleSettings,
    places: Vec<BTreeSet<String>>,
    now: Timestamp,
}

impl ResponseFixture {
    fn new(sites: &[&str]) -> Self {
        let places = vec![sites.iter().map(|site| (*site).to_owned()).collect()];
        Self { view: active(), settings: LifecycleSettings::default(), places, now: START }
    }

    /// Decides, and applies the decision.
    fn decide(&mut self, news: &[LifecycleEvent]) -> LifecycleDecision {
        let situation = LifecycleInputs {
            events: news,
            admitted: false,
            previous: &[],
            unit_sites: &self.places,
            new_run_uuid: "run-1",
        };
        let decision = decide_request(&self.view, &situation, &self.settings, self.now);
        for change in &decision.changes {
            self.view.apply_change(change, self.now);
        }
        decision
    }
}

fn alerts(decision: &LifecycleDecision) -> Vec<&'static str> {
    decision.alerts.iter().map(|alert| alert.kind.name()).collect()
}

fn bans(decision: &LifecycleDecision) -> Vec<(&str, Option<&str>)> {
    let bans = decision.changes.iter().filter_map(|change| match change {
        RequestChange::Ban(ban) => Some((ban.site.as_str(), ban.request.as_deref())),
        _ => None,
    });
    bans.collect()
}

#[test]
fn failing_site_is_banned_after_the_run() {
    let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
    let news = looked(RunState::Over, failed(3, "T2_A", Infrastructure), &[("T2_A", 5), ("T2_B", 30)]);
    let decision = fixture.decide(std::slice::from_ref(&news));
    assert_eq!(bans(&decision), [("T2_A", Some("ana_test_v1"))]);
    assert!(alerts(&decision).contains(&"site_banned"), "{:?}", decision.alerts);
    assert_eq!(fixture.view.failures.failed, 3);
    let again = fixture.decide(&[news]);
    assert_eq!(bans(&again), [], "the run is over, and so is the problem");
}

#[test]
fn failures_of_a_banned_site_suggest_a_release() {
    let lasting = |site: &str| -> Vec<FailedAttemptReport> {
        failed(4, site, Infrastructure)
            .into_iter()
            .map(|one| FailedAttemptReport { is_final: true, ..one })
            .collect()
    };
    let totals = [("T2_A", 5), ("T2_B", 30)];
    let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
    fixture.decide(&[looked(RunState::Over, lasting("T2_A"), &totals)]);
    assert_eq!(fixture.view.row.status, RequestStatus::Held);
    let reason = fixture.view.row.reason.clone().unwrap();
    assert!(reason.contains("failures were at T2_A") && reason.contains("--rescue"), "{reason}");
    let mut elsewhere = ResponseFixture::new(&["T2_A", "T2_B"]);
    let mut attempts = lasting("T2_A");
    attempts.push(FailedAttemptReport { seq: 5, site: Some("T2_B".into()), ..attempts[0].clone() });
    elsewhere.decide(&[looked(RunState::Over, attempts, &totals)]);
    assert!(
        !elsewhere.view.row.reason.unwrap().contains("--rescue"),
        "there were failures at another site too"
    );
}

#[test]
fn only_site_is_not_banned_and_an_alert_is_sent() {
    let mut fixture = ResponseFixture::new(&["T2_A"]);
    let news = looked(RunState::Over, failed(5, "T2_A", Infrastructure), &[("T2_A", 5)]);
    let decision = fixture.decide(&[news]);
    assert_eq!(bans(&decision), []);
    assert!(alerts(&decision).contains(&"ban_refused"), "{:?}", decision.alerts);
}

#[test]
fn correlated_failures_pause_the_run_once() {
    let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
    let mut attempts = failed(6, "T2_A", Permanent);
    attempts.extend(failed(12, "T2_B", Permanent).into_iter().skip(6));
    let news = looked(RunState::Running, attempts, &[("T2_A", 6), ("T2_B", 6)]);
    let decision = fixture.decide(std::slice::from_ref(&news));
    assert_eq!((alerts(&decision), bans(&decision)), (vec!["failing_alike"], vec![]));
    let pause = LifecycleEffect::Pause { run: "run-0".into() };
    assert_eq!(decision.effects, std::slice::from_ref(&pause));
    let hold_at = START.plus(fixture.settings.failure_response.correlated.hold_after);
    assert_eq!(decision.next_check, Some(hold_at));
    // After a crash the rows alone require the pause.
    let again = fixture.decide(&[]);
    assert_eq!((again.changes, again.effects), (vec![], vec![pause]));
    let more = looked(RunState::Running, failed(14, "T2_B", Permanent), &[("T2_A", 6), ("T2_B", 8)]);
    assert_eq!(alerts(&fixture.decide(&[more])), Vec::<&str>::new(), "it was sent");
    fixture.now = hold_at;
    let decision = fixture.decide(&[]);
    assert_eq!(fixture.view.row.status, RequestStatus::Held);
    assert!(fixture.view.row.reason.as_ref().unwrap().contains("no luck"), "{:?}", fixture.view.row.reason);
    assert!(matches!(&decision.effects[..], [LifecycleEffect::Stop { .. }]), "{:?}", decision.effects);
}

#[test]
fn released_run_resumes() {
    let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
    fixture.view.run.as_mut().unwrap().paused = Some(START);
    fixture.view.row.wanted =
        Some(RequestCommand::new(RequestCommandKind::Release, "ana", "it is mended", START));
    let unpause = LifecycleEffect::Unpause { run: "run-0".into() };
    assert_eq!(fixture.decide(&[]).effects, std::slice::from_ref(&unpause));
    assert_eq!(fixture.view.row.wanted, None);
    assert_eq!(fixture.decide(&[]).effects, [unpause], "until the backend has received it");
    fixture.decide(&[LifecycleEvent::Unpaused { run: "run-0".into() }]);
    assert_eq!(
        fixture.decide(&[]),
        LifecycleDecision { next_check: fixture.decide(&[]).next_check, ..LifecycleDecision::default() }
    );
    assert_eq!(fixture.view.row.status, RequestStatus::Active);
}

#[test]
fn bad_site_is_banned_while_the_run_continues() {
    let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
    let news = looked(RunState::Running, failed(10, "T2_A", Infrastructure), &[("T2_A", 10), ("T2_B", 20)]);
    let LifecycleEvent::RunReported(run_news) = &news else { unreachable!() };
    assert!(may_ban_sites(&fixture.view.failures, run_news, &fixture.settings.failure_response, START));
    let decision = fixture.decide(&[news]);
    assert_eq!(alerts(&decision), ["failing_alike", "site_banned"]);
    assert_eq!(bans(&decision), [("T2_A", Some("ana_test_v1"))]);
    assert_eq!(decision.effects, [LifecycleEffect::AvoidSites { run: "run-0".into() }]);
    assert_eq!(fixture.view.run.as_ref().unwrap().paused, None);
}

/// Failures solved by the next attempt do not count; final ones are not attributed to a site.
#[test]
fn site_is_not_banned_for_unrelated_failures() {
    // class, whether another attempt follows → alerts, paused?
    let table = [
        (FailureClass::Memory, true, vec![], false),
        (FailureClass::Timeout, true, vec![], false),
        (FailureClass::Memory, false, vec!["failing_alike"], true),
        (Permanent, false, vec!["failing_alike"], true),
    ];
    for sites in [&["T2_A", "T2_B"][..], &["T2_A"]] {
        for (class, is_retried, told, is_paused) in table.clone() {
            let mut fixture = ResponseFixture::new(sites);
            let attempts = failed(13, "T2_A", class).into_iter();
            let attempts = attempts.map(|one| FailedAttemptReport { is_final: !is_retried, ..one }).collect();
            let totals = [("T2_A", 18)];
            let decision = fixture.decide(&[looked(RunState::Running, attempts, &totals)]);
            assert_eq!(
                (bans(&decision), alerts(&decision)),
                (vec![], told),
                "{class} {is_retried} {sites:?}"
            );
            assert_eq!(
                fixture.view.run.as_ref().unwrap().paused.is_some(),
                is_paused,
                "{class} {is_retried}"
            );
            let decision = fixture.decide(&[looked(RunState::Over, Vec::new(), &totals)]);
            assert_eq!(bans(&decision), [], "nor when it is over");
        }
    }
}

#[test]
fn run_is_paused_if_its_only_site_fails() {
    let mut fixture = ResponseFixture::new(&["T2_A"]);
    let news = looked(RunState::Running, failed(10, "T2_A", Infrastructure), &[("T2_A", 10)]);
    let decision = fixture.decide(&[news]);
    assert_eq!(alerts(&decision), ["failing_alike", "ban_refused"]);
    assert_eq!(decision.effects, [LifecycleEffect::Pause { run: "run-0".into() }]);
}

/// With bans disabled a run is paused instead.
#[test]
fn run_is_paused_if_bans_are_disabled() {
    for (on_alike, status, is_paused) in [
        (CorrelatedAction::Alert, RequestStatus::Active, false),
        (CorrelatedAction::Pause, RequestStatus::Active, true),
        (CorrelatedAction::Hold, RequestStatus::Held, false),
    ] {
        let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
        fixture.settings.failure_response.bans.enabled = false;
        fixture.settings.failure_response.correlated.action = on_alike;
        let totals = [("T2_A", 10), ("T2_B", 20)];
        let decision =
            fixture.decide(&[looked(RunState::Running, failed(10, "T2_A", Infrastructure), &totals)]);
        assert_eq!((alerts(&decision)[0], bans(&decision)), ("failing_alike", vec![]));
        let paused = fixture.view.run.as_ref().unwrap().paused.is_some();
        assert_eq!((fixture.view.row.status, paused), (status, is_paused), "{on_alike:?}");
    }
}

#[test]
fn correlated_action_is_configurable() {
    let news = || looked(RunState::Running, failed(10, "unknown", Permanent), &[("unknown", 10)]);
    for (on_alike, status, paused) in [
        (CorrelatedAction::Alert, RequestStatus::Active, None),
        (CorrelatedAction::Pause, RequestStatus::Active, Some(START)),
        (CorrelatedAction::Hold, RequestStatus::Held, None),
    ] {
        let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
        fixture.settings.failure_response.correlated.action = on_alike;
        let decision = fixture.decide(&[news()]);
        assert_eq!(decision.alerts[0].kind, AlertKind::CorrelatedFailures);
        assert_eq!(
            (fixture.view.row.status, fixture.view.run.unwrap().paused),
            (status, paused),
            "{on_alike:?}"
        );
    }
    let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
    fixture.settings.failure_response.correlated.enabled = false;
    assert_eq!(fixture.decide(&[news()]).alerts, []);
    assert_eq!(fixture.view.failures.failed, 10, "they are counted anyway");
}

#[test]
fn next_run_continues_the_failure_cursor() {
    let mut fixture = ResponseFixture::new(&["T2_A", "T2_B"]);
    let view = &mut fixture.view;
    view.row.status = RequestStatus::Stopping;
    let run = view.run.as_mut().unwrap();
    (run.stop_requested_at, run.stop_reason) = (Some(START), Some("stop".into()));
    fixture.decide(&[looked(RunState::Over, failed(2, "T2_A", Permanent), &[("T2_A", 9)])]);
    assert_eq!(fixture.view.run.as_ref().unwrap().uuid, "run-1");
    assert_eq!((fixture.view.failures.read, fixture.view.failures.failed), (2, 0));
    assert_eq!(fixture.view.failures.before, ended(&[("T2_A", 9)]));
}

#[test]
fn progress_without_failures_is_rarely_committed() {
    let mut fixture = ResponseFixture::new(&["T2_A"]);
    let mut commits = 0;
    for n in 1..=600 {
        fixture.now = fixture.now.plus(Duration::from_secs(6));
        let decision = fixture.decide(&[looked(RunState::Running, Vec::new(), &[("T2_A", n)])]);
        commits += usize::from(!decision.changes.is_empty());
    }
    assert!((6..=8).contains(&commits), "{commits} commits in an hour");
}
