//! Flows of requests without unexpected failures.

use crate::kit::{Fixture, MAKE, generating, reading, steps};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use windlass_core::adaptive::{RoundRecord, SizingSource};
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::rows::{BackendRunRef, RequestCommandKind, RunRow};
use windlass_types::SystemClock;
use windlass_types::payload::{StepProfile, StepTuning};
use windlass_types::requests::{
    DEFAULT_PRIORITY, PriorityStep, ProcessingBlockStatus, RequestRunStatus, RequestStatus, SiteStatus,
};

#[test]
fn request_goes_from_submitted_to_completed() {
    use RequestStatus::{Active, Completed, Planning, Queued, Submitted};
    let mut fixture = Fixture::new();
    fixture.input(6, 10);
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", "/Prim/Era-r1-v1/RECO", 1..=60);
    assert_eq!(fixture.statuses("r1"), [Submitted, Queued, Planning, Active, Completed]);
    let runs = fixture.runs("r1");
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!((run.status, run.units_completed), (RequestRunStatus::Completed, run.totals.units));
    assert_eq!(run.counts.done, run.totals.nodes);
    let sites: BTreeSet<String> =
        fixture.job_store.sites().unwrap().into_iter().map(|site| site.name).collect();
    assert_eq!(sites.into_iter().collect::<Vec<_>>(), ["T1_A", "T2_B"], "workers' sites are known");
    let status = fixture.lifecycle().status();
    assert!(status.running && status.passes > 1, "{status:?}");
}

#[test]
fn generation_request_needs_no_input() {
    let mut fixture = Fixture::new();
    fixture.start();
    fixture.submit(&generating("g1", 95));
    fixture.wait("g1", RequestStatus::Completed);
    fixture.assert_whole("g1", "/Prim/Era-g1-v1/GEN", 1..=95);
}

/// R-162, R-163: the filter passes half of the expected events.
#[test]
fn measurements_of_round_are_used_by_next_round() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut request = generating("g1", 40);
    request.payload_config = steps("GEN", &format!(r#"{MAKE}; sed -i 'n;d' "$WINDLASS_OUTPUT""#));
    fixture.submit(&request);
    fixture.wait("g1", RequestStatus::Completed);
    let runs = fixture.runs("g1");
    assert!(runs.len() > 1 && runs.iter().map(|run| run.round).eq(0..runs.len() as u32), "{runs:#?}");
    // The manifests of the last round are no longer needed.
    let before = &runs[..runs.len() - 1];
    let jobs: u64 = before.iter().map(|run| run.totals.by_role["Processing"]).sum();
    let measured = fixture.job_store.process("g1").unwrap().unwrap().step_metrics.unwrap();
    assert_eq!((&measured["round"], &measured["jobs_sampled"]), (&before.len().into(), &jobs.into()));
    assert!(measured["steps"]["GEN"]["wall_sec_per_event"].as_f64().unwrap() > 0.0, "{measured}");
    let told = |run: &RunRow| Path::new(&run.submit_dir).join("step_profile.json").exists();
    assert_eq!((told(&runs[0]), told(&runs[1])), (false, true));
}

/// When one event is missing, the filter may pass none of the last events made for it: that is chance, and the
/// request is configured correctly.
#[test]
fn empty_filter_output_at_end_does_not_hold_request() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut request = generating("g1", 20);
    request.generation.as_mut().unwrap().filter_efficiency = 0.5;
    // Half of the first ones, then none for a long time: 18 of the first round, none of the second.
    let keep =
        r#"awk '$3 <= 36 && $3 % 2 == 0 || $3 > 100' "$WINDLASS_OUTPUT" > kept; mv kept "$WINDLASS_OUTPUT""#;
    request.payload_config = steps("GEN", &format!("{MAKE}; {keep}"));
    fixture.submit(&request);
    fixture.wait("g1", RequestStatus::Completed);
    let process = fixture.job_store.process("g1").unwrap().unwrap();
    assert!(process.events_produced >= 20, "{process:#?}");
    assert_eq!(fixture.runs("g1").len(), 3, "many, none, and enough");
}

/// The filter passes a tenth of the configured share: rounds after the first use the measured one.
#[test]
fn filter_efficiency_is_corrected_by_measurement() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut request = generating("g1", 50);
    request.generation.as_mut().unwrap().filter_efficiency = 0.5;
    request.splitting_params.events_per_job = Some(100);
    let keep = r#"awk '$3 % 20 == 0' "$WINDLASS_OUTPUT" > kept; mv kept "$WINDLASS_OUTPUT""#;
    request.payload_config = steps("GEN", &format!("{MAKE}; {keep}"));
    fixture.submit(&request);
    fixture.wait("g1", RequestStatus::Completed);
    let runs = fixture.runs("g1");
    assert!(runs.len() <= 4, "{} rounds: measurements were not used", runs.len());
}

/// R-167, R-170: a step that leaves its cores idle runs several times in parallel in the second round, with the
/// same events as output.
#[test]
fn second_round_runs_instances_in_parallel_after_measurement() {
    let mut fixture = Fixture::new();
    let settings = &mut fixture.options.plan_settings.adaptive;
    (settings.first_round_units, settings.min_samples, settings.max_change) = (2, 4, 1.0);
    settings.probe_jobs = 0;
    fixture.start();
    let mut request = generating("g1", 120);
    request.multicore = 4;
    // It waits 40 ms for an event, regardless of its number of threads.
    let wait = r#"sleep "$(printf '0.%03d' $((WINDLASS_EVENTS * 40)))""#;
    let join = r#"xargs cat < "$WINDLASS_INPUTS" > "$WINDLASS_OUTPUT""#;
    let step = json!({"name": "GEN", "threads": 4, "command": format!("{wait}; {MAKE}"), "join": join});
    request.payload_config = [("steps".to_owned(), json!([step]))].into_iter().collect();
    fixture.submit(&request);
    fixture.wait("g1", RequestStatus::Completed);
    fixture.assert_whole("g1", "/Prim/Era-g1-v1/GEN", 1..=120);
    let runs = fixture.runs("g1");
    assert_eq!((runs.len(), runs[0].totals.units), (2, 2), "a small round, then the rest");
    let profile = fs::read(Path::new(&runs[1].submit_dir).join("step_profile.json")).unwrap();
    let profile: StepProfile = serde_json::from_slice(&profile).unwrap();
    let StepTuning { instances, run_threads, .. } = profile.steps["GEN"];
    assert_eq!((instances, run_threads), (Some(4), Some(1)));
    let process = fixture.job_store.process("g1").unwrap().unwrap();
    let known = windlass_requests::round_measurements::current_experience(&process, runs.last());
    let [first, second] = &known.rounds[..] else { panic!("{:#?}", known.rounds) };
    assert_eq!((first.asked.from, second.asked.from), (SizingSource::Hint, SizingSource::Measured));
    assert_eq!((first.asked.events, second.asked.events), (40, 80));
    let done = |round: &RoundRecord| round.measured.unwrap().events_per_core_hour;
    assert!(done(second) > done(first), "{:#?}", known.rounds);
}

/// R-175, R-117.
#[test]
fn stopped_request_resumes_with_remaining_work() {
    let barrier: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let mut fixture = Fixture::new();
    fixture.input(20, 10);
    let waits = Arc::clone(&barrier);
    // One site waits for the stop, so that work is left when it comes.
    fixture.job_outcome = Arc::new(move |job| {
        if job.name.starts_with("proc_000001") {
            let (is_open, told) = &*waits;
            drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        true
    });
    fixture.start();
    fixture.submit(&reading("r1"));
    fixture.wait_for(|fixture| fixture.runs("r1").first().filter(|run| run.units_completed > 0).map(drop));
    fixture.want("r1", RequestCommandKind::Stop);
    fixture.wait_for(|fixture| fixture.runs("r1")[0].stop_requested_at.map(drop));
    let (is_open, told) = &*barrier;
    *is_open.lock().unwrap() = true;
    told.notify_all();
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", "/Prim/Era-r1-v1/RECO", 1..=200);
    let statuses = fixture.statuses("r1");
    let on_the_way = [RequestStatus::Stopping, RequestStatus::Resubmitting, RequestStatus::Queued];
    assert!(statuses.windows(3).any(|three| three == on_the_way), "{statuses:?}");
    let runs = fixture.runs("r1");
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_eq!((runs[0].status, runs[1].status), (RequestRunStatus::Stopped, RequestRunStatus::Completed));
    assert_eq!(runs[1].parent.as_ref(), Some(&runs[0].uuid));
    let workflow = |run: &RunRow| match run.backend {
        BackendRunRef::Engine { workflow, .. } => workflow.unwrap(),
        BackendRunRef::Htcondor { .. } => panic!("{run:?}"),
    };
    assert_eq!(workflow(&runs[0]), workflow(&runs[1]));
}

/// R-045, R-177.
#[test]
fn production_steps_end_rounds_and_lower_priority() {
    let mut fixture = Fixture::new();
    fixture.input(24, 10);
    fixture.start();
    let mut request = reading("r1");
    request.production_steps =
        vec![PriorityStep { fraction: 0.2, priority: 80 }, PriorityStep { fraction: 0.6, priority: 50 }];
    fixture.submit(&request);
    let row = fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", "/Prim/Era-r1-v1/RECO", 1..=240);
    // A round ends at each step, and the next one is planned from the measurements.
    let runs = fixture.runs("r1");
    assert_eq!(runs.iter().map(|run| run.round).collect::<Vec<_>>(), [0, 1, 2], "{runs:?}");
    let profile = |run: &RunRow| Path::new(&run.submit_dir).join("step_profile.json").exists();
    assert_eq!(runs.iter().map(profile).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!((row.request.priority, row.request.production_steps.len()), (50, 0), "{row:?}");
    // Its jobs as well: merges and cleanups before the others.
    let workflow = fixture.job_store.workflows().unwrap().iter().map(|workflow| workflow.id).max().unwrap();
    let priorities: BTreeSet<i32> =
        fixture.job_store.load_jobs(workflow).unwrap().priority.into_iter().collect();
    let own = i32::try_from(row.request.priority - DEFAULT_PRIORITY).unwrap();
    assert_eq!(priorities, [own, own + 10].into());
}

/// A request without adaptive rounds has one round: it is stopped at a step, and continues as planned.
#[test]
fn non_adaptive_request_stops_at_production_steps() {
    let mut fixture = Fixture::new();
    fixture.input(24, 10);
    fixture.start();
    let mut request = reading("r1");
    request.adaptive = false;
    request.production_steps = vec![PriorityStep { fraction: 0.2, priority: 50 }];
    fixture.submit(&request);
    let row = fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", "/Prim/Era-r1-v1/RECO", 1..=240);
    let runs = fixture.runs("r1");
    assert!(runs.len() >= 2 && runs.iter().all(|run| run.round == 0), "{runs:?}");
    assert_eq!(row.request.priority, 50);
    let workflow = fixture.job_store.workflows().unwrap()[0].id;
    let priorities: BTreeSet<i32> =
        fixture.job_store.load_jobs(workflow).unwrap().priority.into_iter().collect();
    let own = i32::try_from(row.request.priority - DEFAULT_PRIORITY).unwrap();
    assert_eq!(priorities, [own, own + 10].into());
}

#[test]
fn aborted_request_leaves_no_outputs() {
    let mut fixture = Fixture::new();
    fixture.input(20, 10);
    // Enough to have outputs, and never enough to be completed.
    fixture.job_outcome = Arc::new(|job| !job.name.ends_with("000003"));
    fixture.start();
    let mut request = reading("r1");
    request.splitting_params.target_block_size_kb = Some(1_000_000);
    fixture.submit(&request);
    fixture
        .wait_for(|fixture| fixture.blocks("r1").first().filter(|block| block.units_completed > 0).map(drop));
    fixture.want("r1", RequestCommandKind::Abort);
    fixture.wait("r1", RequestStatus::Aborted);
    fixture.wait_for(|fixture| {
        fixture
            .blocks("r1")
            .iter()
            .all(|block| block.status == ProcessingBlockStatus::Invalidated)
            .then_some(())
    });
    assert_eq!(fixture.events("/Prim/Era-r1-v1/RECO"), [0u64; 0]);
    for block in fixture.blocks("r1") {
        assert!(fixture.job_store.rules(block.name.as_deref()).unwrap().is_empty());
    }
}

#[test]
fn permanent_failure_holds_request_and_keeps_completed_work() {
    let mut fixture = Fixture::new();
    fixture.input(12, 10);
    fixture.job_outcome = Arc::new(|job| !job.name.starts_with("proc_000001"));
    fixture.start();
    fixture.submit(&reading("r1"));
    let row = fixture.wait("r1", RequestStatus::Held);
    let reason = row.reason.unwrap();
    assert!(reason.contains("1 failed"), "{reason}");
    // Two files of one site are in the failed unit; all others are kept, and registered while it is held too.
    fixture.wait_for(|fixture| (fixture.events("/Prim/Era-r1-v1/RECO").len() == 100).then_some(()));
    assert_eq!(fixture.row("r1").status, RequestStatus::Held);
}

/// R-151: work planned for a drained site starts at another site.
#[test]
fn drained_site_starts_nothing() {
    let barrier: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let mut fixture = Fixture::new();
    let waits = Arc::clone(&barrier);
    fixture.job_outcome = Arc::new(move |_| {
        let (is_open, told) = &*waits;
        drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        true
    });
    fixture.start();
    let mut request = generating("g1", 600);
    request.splitting_params.target_merged_size_kb = Some(10);
    fixture.submit(&request);
    let workflow = fixture.wait_for(|fixture| match fixture.runs("g1").first()?.backend {
        BackendRunRef::Engine { workflow, .. } => workflow,
        BackendRunRef::Htcondor { .. } => None,
    });
    let held = |fixture: &Fixture| fixture.job_store.held_jobs(workflow).unwrap().len();
    fixture.wait_for(|fixture| (held(fixture) > 0).then_some(()));
    fixture.job_store.set_site_status("T1_A", SiteStatus::Draining, None, SystemClock.now()).unwrap();
    fixture.lifecycle().wake_all();
    let passes = fixture.lifecycle().status().passes;
    fixture.wait_for(|fixture| (fixture.lifecycle().status().passes > passes).then_some(()));
    let begun = held(&fixture);
    let (is_open, told) = &*barrier;
    *is_open.lock().unwrap() = true;
    told.notify_all();
    fixture.wait("g1", RequestStatus::Completed);
    fixture.assert_whole("g1", "/Prim/Era-g1-v1/GEN", 1..=600);
    let units = fixture.job_store.work_units(workflow, 0).unwrap();
    let drained = units.iter().filter(|unit| unit.site.as_deref() == Some("T1_A")).count();
    assert!(units.len() == 60 && drained <= begun, "{drained} of {} after {begun} had started", units.len());
}

/// Blocked jobs get it as well; and the backend receives it once.
#[test]
fn priority_change_reaches_all_jobs_of_active_request() {
    let barrier: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let mut fixture = Fixture::new();
    fixture.input(8, 10);
    let waits = Arc::clone(&barrier);
    fixture.job_outcome = Arc::new(move |job| {
        let (is_open, told) = &*waits;
        if job.name.starts_with("proc") {
            drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        true
    });
    fixture.start();
    fixture.submit(&reading("r1"));
    let workflow = fixture.wait_for(|fixture| match fixture.runs("r1").first()?.backend {
        BackendRunRef::Engine { workflow, .. } => workflow,
        BackendRunRef::Htcondor { .. } => None,
    });
    fixture.wait("r1", RequestStatus::Active);
    let priorities = |fixture: &Fixture| -> BTreeSet<i32> {
        fixture.job_store.load_jobs(workflow).unwrap().priority.into_iter().collect()
    };
    fixture.change("r1", |_| vec![RequestChange::Priority(DEFAULT_PRIORITY + 7)]);
    fixture.wait_for(|fixture| (fixture.runs("r1")[0].priority == Some(DEFAULT_PRIORITY + 7)).then_some(()));
    assert_eq!(priorities(&fixture), [7, 17].into());
    let (is_open, told) = &*barrier;
    *is_open.lock().unwrap() = true;
    told.notify_all();
    fixture.wait("r1", RequestStatus::Completed);
    fixture.assert_whole("r1", "/Prim/Era-r1-v1/RECO", 1..=80);
}
