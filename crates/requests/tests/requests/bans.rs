//! Failure attribution: bad sites are banned and avoided, similar failures pause a run, findings are reported.

use crate::kit::{Fixture, SITES, generating, reading, steps};
use serde_json::Value;
use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use windlass_core::requests::correlated_failures::CorrelatedAction;
use windlass_core::requests::failures::{FailureTally, build_error_report};
use windlass_core::requests::rows::{AlertRow, BackendRunRef, NewBan, RequestCommandKind, SiteBan};
use windlass_store::model::{AlertFilter, SiteBanFilter};
use windlass_types::requests::{Request, RequestStatus};
use windlass_types::{FailureClass, SystemClock};

/// Units of one job each.
fn many(name: &str, units: u64) -> Request {
    let mut request = generating(name, units * 10);
    request.splitting_params.target_merged_size_kb = Some(10);
    request
}

/// Outputs of jobs cannot be stored there, though landings succeed.
fn break_storage(fixture: &Fixture, site: &str) {
    let store = fixture.storage(site).join("store");
    fs::create_dir_all(&store).unwrap();
    fs::write(store.join("unmerged"), "in the way").unwrap();
}

fn bans(fixture: &Fixture) -> Vec<SiteBan> {
    fixture
        .job_store
        .bans(&SiteBanFilter { active_at: Some(SystemClock.now()), ..SiteBanFilter::default() })
        .unwrap()
}

fn alerts(fixture: &Fixture, kind: &str) -> Vec<AlertRow> {
    fixture.job_store.alerts(&AlertFilter { kind: Some(kind.into()), ..AlertFilter::default() }).unwrap()
}

/// The number of attempts that ended at a site, in all runs of a request.
fn ended_at(fixture: &Fixture, name: &str, site: &str) -> u64 {
    let runs = fixture.runs(name);
    let workflow = |backend: &BackendRunRef| match backend {
        BackendRunRef::Engine { workflow, .. } => *workflow,
        BackendRunRef::Htcondor { .. } => None,
    };
    let mut workflows: Vec<_> = runs.iter().filter_map(|run| workflow(&run.backend)).collect();
    workflows.dedup();
    let count = |workflow| -> u64 {
        fixture.job_store.site_counts(workflow).unwrap().get(site).map_or(0, |roles| roles.values().sum())
    };
    workflows.into_iter().map(count).sum()
}

/// All failures of a request, over all its runs.
fn failures(fixture: &Fixture, name: &str) -> FailureTally {
    let process = fixture.job_store.process(name).unwrap().unwrap();
    let tallies = fixture.job_store.list_failure_tallies(&process.uuid).unwrap();
    FailureTally::merge_all(tallies.iter().map(|(_, tally)| tally))
}

/// E 6.1, 6.5.
#[test]
fn site_with_only_failures_is_banned() {
    let mut fixture = Fixture::new();
    fixture.options.decision_settings.failure_response.correlated.enabled = false;
    // An operator decides about any failure: rescues would go to other sites at once.
    fixture.options.decision_settings.recovery.hold_threshold = 0.0;
    break_storage(&fixture, "T1_A");
    fixture.start();
    fixture.submit(&many("g1", 16));
    fixture.wait("g1", RequestStatus::Held);
    let [ban] = &bans(&fixture)[..] else { panic!("one ban: {:?}", bans(&fixture)) };
    assert_eq!((ban.ban.site.as_str(), ban.ban.request.as_deref()), ("T1_A", Some("g1")));
    assert_eq!(alerts(&fixture, "site_banned").len(), 1);
    let known = failures(&fixture, "g1");
    assert_eq!(known.kinds.len(), 1, "{:?}", known.kinds);
    assert_eq!((known.kinds[0].class, known.kinds[0].code), (FailureClass::Infrastructure, 60311));
    let told = build_error_report(&known);
    assert!(told.kinds[0].suggestion.starts_with("ban T1_A: "), "{}", told.kinds[0].suggestion);
    assert!(told.kinds[0].log_tail.contains("60311"), "{}", told.kinds[0].log_tail);
    let before = ended_at(&fixture, "g1", "T1_A");
    fixture.want("g1", RequestCommandKind::Release);
    fixture.wait("g1", RequestStatus::Completed);
    assert_eq!(ended_at(&fixture, "g1", "T1_A"), before, "no more of its jobs ran there");
    assert!(fixture.events("/Prim/Era-g1-v1/GEN").len() >= 160);
}

/// E 6.2: a ban found by several requests applies to all.
#[test]
fn site_banned_by_three_requests_is_banned_for_all() {
    let mut fixture = Fixture::new();
    fixture.options.decision_settings.failure_response.correlated.enabled = false;
    // An operator decides about any failure: rescues would go to other sites at once.
    fixture.options.decision_settings.recovery.hold_threshold = 0.0;
    break_storage(&fixture, "T1_A");
    fixture.start();
    for name in ["g1", "g2", "g3"] {
        let general = bans(&fixture).iter().any(|ban| ban.ban.request.is_none());
        assert!(!general, "two requests are not enough");
        fixture.submit(&many(name, 12));
        fixture.wait(name, RequestStatus::Held);
    }
    let promoted = fixture.wait_for(|fixture| alerts(fixture, "site_ban_promoted").pop());
    assert!(promoted.alert.message.contains("g1, g2, g3"), "{}", promoted.alert.message);
    let general: Vec<SiteBan> = bans(&fixture).into_iter().filter(|ban| ban.ban.request.is_none()).collect();
    assert_eq!(general.iter().map(|ban| ban.ban.site.as_str()).collect::<Vec<_>>(), ["T1_A"]);
    // The next request is never sent there.
    fixture.submit(&many("g4", 8));
    fixture.wait("g4", RequestStatus::Completed);
    assert_eq!(ended_at(&fixture, "g4", "T1_A"), 0);
}

#[test]
fn last_site_is_not_banned_and_alert_is_sent() {
    let mut fixture = Fixture::new();
    fixture.options.decision_settings.failure_response.correlated.enabled = false;
    for site in SITES {
        break_storage(&fixture, site);
    }
    fixture.start();
    fixture.submit(&many("g1", 12));
    fixture.wait("g1", RequestStatus::Held);
    assert!(bans(&fixture).len() < SITES.len(), "{:?}", bans(&fixture));
    let refused = alerts(&fixture, "ban_refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].alert.message.contains("no other site"), "{}", refused[0].alert.message);
}

/// Jobs that cannot succeed anywhere are not retried to the end.
#[test]
fn broken_configuration_pauses_run_and_holds_request() {
    let mut fixture = Fixture::new();
    fixture.options.decision_settings.failure_response.correlated.hold_after = Duration::from_millis(300);
    fixture.start();
    let mut request = many("g1", 40);
    request.payload_config = steps("GEN", "echo no such parameter >&2; exit 7");
    fixture.submit(&request);
    let row = fixture.wait("g1", RequestStatus::Held);
    let reason = row.reason.unwrap();
    assert!(reason.contains("fail alike"), "{reason}");
    assert_eq!(alerts(&fixture, "failing_alike").len(), 1, "{:?}", alerts(&fixture, "failing_alike"));
    let run = fixture.wait_for(|fixture| fixture.runs("g1").pop().filter(|run| !run.status.is_active()));
    assert!(run.paused.is_some() && run.stop_requested_at.is_some(), "{run:?}");
    let failed = failures(&fixture, "g1").failed;
    // Forty jobs would have been tried four times each.
    assert!((10..100).contains(&failed), "{failed} attempts failed");
}

/// No new jobs start while it is paused; an operator resumes it.
#[test]
fn paused_run_continues_on_release() {
    let mut fixture = Fixture::new();
    let corrected = fixture.storage("T1_A").join("mended");
    fixture.start();
    let mut request = many("g1", 40);
    let make = crate::kit::MAKE;
    let command = format!("test -e '{}' || {{ echo not yet >&2; exit 7; }}; {make}", corrected.display());
    request.payload_config = steps("GEN", &command);
    fixture.submit(&request);
    let run = fixture.wait_for(|fixture| fixture.runs("g1").pop().filter(|run| run.paused.is_some()));
    let BackendRunRef::Engine { workflow: Some(workflow), .. } = run.backend else { panic!("{run:?}") };
    // Started jobs end, and no others start.
    fixture.wait_for(|fixture| fixture.job_store.held_jobs(workflow).unwrap().is_empty().then_some(()));
    let burnt = failures(&fixture, "g1").failed;
    assert!(burnt < 100, "{burnt} attempts failed");
    assert_eq!(fixture.row("g1").status, RequestStatus::Active);
    fs::write(&corrected, "").unwrap();
    fixture.want("g1", RequestCommandKind::Release);
    fixture.wait("g1", RequestStatus::Completed);
    assert!(fixture.events("/Prim/Era-g1-v1/GEN").len() >= 400);
    assert_eq!(alerts(&fixture, "failing_alike").len(), 1, "{:?}", alerts(&fixture, "failing_alike"));
}

/// Level 2 of the specification: a site is avoided while the run continues.
#[test]
fn bad_site_is_left_while_run_continues() {
    let mut fixture = Fixture::new();
    break_storage(&fixture, "T1_A");
    fixture.start();
    fixture.submit(&many("g1", 60));
    fixture.wait_for(|fixture| alerts(fixture, "site_banned").pop());
    assert_eq!(fixture.row("g1").status, RequestStatus::Active, "it continues");
    let run = fixture.wait_for(|fixture| fixture.runs("g1").into_iter().find(|run| !run.status.is_active()));
    assert_eq!(run.paused, None, "{run:?}");
    assert!(run.units_completed > 30, "most units ran at other sites: {run:?}");
    assert_eq!(bans(&fixture).len(), 1);
}

/// E 6.1: failures count against a site if caused by its infrastructure or data, and not by the resources of a
/// job.
#[test]
fn failure_cured_by_retry_does_not_blame_site() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut request = many("g1", 40);
    let make = crate::kit::MAKE;
    let hungry = format!(r#"test "$WINDLASS_SITE$WINDLASS_ATTEMPT" != T1_A1 || {}"#, ending_with(8004));
    request.payload_config = steps("GEN", &format!("{hungry}; {make}"));
    fixture.submit(&request);
    fixture.wait("g1", RequestStatus::Completed);
    let known = failures(&fixture, "g1");
    let classes: Vec<_> = known.kinds.iter().map(|kind| (kind.class, kind.for_good)).collect();
    assert_eq!(classes, [(FailureClass::Memory, 0)]);
    assert!(known.failed >= 10, "enough failures for a ban: {}", known.failed);
    assert_eq!((bans(&fixture).len(), alerts(&fixture, "failing_alike").len()), (0, 0));
    assert_eq!(fixture.runs("g1").len(), 1, "only its retries were needed");
}

/// Exits like a CMS program that knows the cause.
fn ending_with(code: u32) -> String {
    let says = format!(r#"<FrameworkError ExitStatus="{code}" Type="StdException">no luck</FrameworkError>"#);
    let says = format!("<FrameworkJobReport>{says}</FrameworkJobReport>");
    format!(r#"{{ echo '{says}' > "$WINDLASS_JOB_REPORT"; exit 1; }}"#)
}

/// Each unit lands, and its only job fails at once and for good: nothing else can fail.
#[test]
fn run_with_all_jobs_failing_after_landing_is_paused() {
    let mut fixture = Fixture::new();
    fixture.options.decision_settings.failure_response.correlated.hold_after = Duration::from_millis(300);
    fixture.start();
    let mut request = many("g1", 60);
    request.payload_config = steps("GEN", &ending_with(7002));
    fixture.submit(&request);
    let reason = fixture.wait("g1", RequestStatus::Held).reason.unwrap();
    assert!(reason.contains("fail alike"), "{reason}");
    assert_eq!(alerts(&fixture, "failing_alike").len(), 1);
    fixture.wait_for(|fixture| fixture.runs("g1").pop().filter(|run| run.status.is_over()));
    let known = failures(&fixture, "g1");
    assert_eq!(known.kinds.len(), 1, "{:?}", known.kinds);
    let kind = &known.kinds[0];
    assert_eq!((kind.class, kind.for_good), (FailureClass::Permanent, kind.attempts), "nothing is retried");
    assert!((10..60).contains(&known.failed), "{} attempts failed", known.failed);
    assert_eq!(bans(&fixture).len(), 0);
}

/// The same at one site, for lack of data: the site is banned.
#[test]
fn site_with_unreadable_data_is_banned_after_landing() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut request = many("g1", 60);
    let make = crate::kit::MAKE;
    let command = format!("test $WINDLASS_SITE != T1_A || {}; {make}", ending_with(8021));
    request.payload_config = steps("GEN", &command);
    fixture.submit(&request);
    fixture.wait_for(|fixture| alerts(fixture, "site_banned").pop());
    let [ban] = &bans(&fixture)[..] else { panic!("one ban: {:?}", bans(&fixture)) };
    assert_eq!(ban.ban.site, "T1_A");
    let known = failures(&fixture, "g1");
    assert_eq!((known.kinds[0].class, known.kinds[0].for_good), (FailureClass::Data, known.failed));
}

/// A request without bans is paused instead of running on.
#[test]
fn bad_site_holds_request_when_bans_are_disabled() {
    let mut fixture = Fixture::new();
    fixture.options.decision_settings.failure_response.bans.enabled = false;
    fixture.options.decision_settings.failure_response.correlated.action = CorrelatedAction::Hold;
    fixture.options.decision_settings.failure_response.correlated.min_attempts = 5;
    break_storage(&fixture, "T1_A");
    fixture.start();
    fixture.submit(&many("g1", 50));
    let row = fixture.wait("g1", RequestStatus::Held);
    let reason = row.reason.unwrap();
    assert!(reason.contains("attempts at T1_A failed because of the site or its data"), "{reason}");
    assert_eq!(alerts(&fixture, "failing_alike").len(), 1);
    assert_eq!(bans(&fixture).len(), 0);
    fixture.wait_for(|fixture| fixture.runs("g1").pop().filter(|run| run.status.is_over()));
    let failed = failures(&fixture, "g1").failed;
    // Each of about twenty-five would have been tried four times.
    assert!((5..50).contains(&failed), "{failed} attempts failed");
}

/// A ban during a run does not leave units of the run without any site: they would wait forever.
#[test]
fn ban_of_last_site_of_run_is_skipped_with_alert() {
    let mut fixture = Fixture::new();
    // Half of the files are at each site, and nowhere else.
    fixture.input(24, 10);
    let barrier: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let waits = Arc::clone(&barrier);
    fixture.job_outcome = Arc::new(move |_| {
        let (is_open, told) = &*waits;
        drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        true
    });
    // So that most units have no site yet when the ban comes.
    fixture.options.plan_settings.throttles.insert("MergeGroup".into(), 2);
    fixture.start();
    fixture.submit(&reading("r1"));
    let run = fixture.wait_for(|fixture| fixture.runs("r1").pop().filter(|run| run.status.is_active()));
    let BackendRunRef::Engine { workflow: Some(workflow), .. } = run.backend else { panic!("{run:?}") };
    let ban = NewBan {
        site: "T1_A".into(),
        request: Some("r1".into()),
        reason: "it loses files".into(),
        failure_data: Value::Null,
        by: "me".into(),
        expires_at: SystemClock.now().plus(Duration::from_hours(1)),
    };
    fixture.job_store.add_ban(&ban, SystemClock.now()).unwrap();
    fixture.lifecycle().wake_all();
    let told = fixture.wait_for(|fixture| alerts(fixture, "ban_refused").pop());
    assert_eq!(told.alert.request.as_deref(), Some("r1"));
    assert!(told.alert.message.contains("T1_A is banned, but stays open to the run of r1"), "{told:?}");
    let waiting =
        fixture.job_store.work_units(workflow, 0).unwrap().iter().filter(|unit| unit.site.is_none()).count();
    assert!(waiting > 2, "{waiting} units have not elected a site yet");

    let (is_open, told) = &*barrier;
    *is_open.lock().unwrap() = true;
    told.notify_all();
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", "/Prim/Era-r1-v1/RECO", 1..=240);
    assert_eq!(alerts(&fixture, "ban_refused").len(), 1, "it is reported once");
}
