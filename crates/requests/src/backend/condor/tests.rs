//! Conclusions from files and queues, and the choice of a schedd.

mod unresponsive_schedds;

use super::schedd_queue::DagPresence;
use super::*;
use crate::backend::{RoleRetrySettings, RunSubmission};
use std::time::Duration;
use windlass_core::requests::rows::{RequestRunCause, RunTotals};
use windlass_core::round_plan;
use windlass_htcondor::parsers::events::JobHold;
use windlass_htcondor::watch;
use windlass_types::Timestamp;
use windlass_types::requests::{RequestRunStatus, RequestUnitStatus};

fn run(uuid: &str, schedd: Option<&str>, cluster: Option<&str>) -> RunRow {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    RunRow {
        uuid: uuid.into(),
        process: "process".into(),
        round: 0,
        parent: None,
        cause: RequestRunCause::First,
        rescues: 0,
        paused: None,
        silent: None,
        priority: None,
        backend: rows::BackendRunRef::Htcondor { schedd: owned(schedd), cluster: owned(cluster) },
        submit_dir: "/runs/first".into(),
        status: RequestRunStatus::Running,
        stop_requested_at: None,
        stop_reason: None,
        totals: RunTotals { nodes: 20, units: 3, ..RunTotals::default() },
        counts: NodeCounts::default(),
        units_completed: 0,
        units_failed: 0,
        units_read: 0,
        created_at: Timestamp(0),
        submitted_at: None,
        completed_at: None,
    }
}

fn seen(state: DagState, answers: &[DagQueueStatus]) -> ObservedRun {
    let mut presence = DagPresence::default();
    for answer in answers {
        presence.record(answer.clone());
    }
    let look = watch::DagSnapshot {
        failed_attempts: Vec::new(),
        ended_by_site: BTreeMap::new(),
        running_by_site: BTreeMap::new(),
        state,
        cluster: Some(7),
        dagman_held: None,
        is_paused: false,
        counts: NodeCounts { done: 4, running: 1, ..NodeCounts::default() },
        units: Vec::new(),
        units_completed: 1,
        units_failed: 0,
        held_nodes: Vec::new(),
        read_error: None,
    };
    ObservedRun { snapshot: look, presence }
}

#[test]
fn dag_files_override_queue_and_silence_changes_nothing() {
    let lost = || DagQueueStatus::Unreachable("no answer".into());
    let over = || DagState::Over(DagOutcome::Failed);
    let ended = || DagQueueStatus::Ended("DAGMan 7 exited with 0".into());
    let table = [
        (DagState::NotYet, vec![], RunState::Running),
        (DagState::Running, vec![DagQueueStatus::Queued], RunState::Running),
        (DagState::Running, vec![DagQueueStatus::Missing], RunState::Running),
        (DagState::Running, vec![DagQueueStatus::Missing, DagQueueStatus::Missing], RunState::Gone),
        (
            DagState::Running,
            vec![DagQueueStatus::Missing, DagQueueStatus::Ended("it exited".into())],
            RunState::Over,
        ),
        (DagState::Running, vec![lost()], RunState::Unknown),
        (DagState::Unknown, vec![], RunState::Unknown),
        (DagState::Unknown, vec![DagQueueStatus::Queued], RunState::Unknown),
        (DagState::Unknown, vec![lost()], RunState::Unknown),
        (DagState::Unknown, vec![DagQueueStatus::Missing, DagQueueStatus::Missing], RunState::Unknown),
        (DagState::Unknown, vec![ended(), ended()], RunState::Unknown),
        (DagState::NotYet, vec![DagQueueStatus::Missing, DagQueueStatus::Missing], RunState::Gone),
        (DagState::NotYet, vec![ended(), ended()], RunState::Over),
        (over(), vec![lost()], RunState::Over),
        (over(), vec![DagQueueStatus::Missing, DagQueueStatus::Missing], RunState::Over),
    ];
    for (state, answers, expected) in table {
        assert_eq!(run_state(&seen(state.clone(), &answers)).0, expected, "{state:?} {answers:?}");
    }
    let mut held = seen(DagState::Running, &[DagQueueStatus::Queued]);
    held.snapshot.dagman_held = Some(JobHold { reason: "by ana".into(), code: 1, subcode: 0 });
    assert_eq!(run_state(&held).0, RunState::Halted);
    assert_eq!(
        run_snapshot(&run("a", None, Some("7")), &held).held_reasons,
        ["DAGMan is held: by ana (code 1, subcode 0)"]
    );
    let mut paused = seen(DagState::Running, &[DagQueueStatus::Queued]);
    paused.snapshot.is_paused = true;
    assert_eq!(run_state(&paused).0, RunState::Halted);
    assert_eq!(
        run_snapshot(&run("a", None, Some("7")), &paused).held_reasons,
        ["it is paused: none of its nodes start"]
    );
    paused.snapshot.state = over();
    assert_eq!(run_state(&paused).0, RunState::Over, "an ended run is not paused");
    // The results of a unit are not withheld because of a missing answer.
    let mut told = seen(DagState::Running, &[lost()]);
    told.snapshot.units.push(UnitUpdate { seq: 9, number: 2, status: RequestUnitStatus::Completed });
    assert_eq!(run_state(&told).0, RunState::Running);
}

#[test]
fn unreadable_dag_files_have_reason() {
    let ended = || DagQueueStatus::Ended("DAGMan 7 exited with 0".into());
    let unreadable = "cannot read its files: /runs/first/workflow.jobstate: stale";
    for (answers, expected) in [
        (vec![DagQueueStatus::Queued], unreadable.to_owned()),
        (vec![ended(), ended()], format!("{unreadable} (DAGMan 7 exited with 0)")),
        (
            vec![DagQueueStatus::Missing, DagQueueStatus::Missing],
            format!("{unreadable} (its DAGMan is no longer in the queue)"),
        ),
    ] {
        let mut seen = seen(DagState::Unknown, &answers);
        seen.snapshot.read_error = Some("/runs/first/workflow.jobstate: stale".into());
        assert_eq!(run_state(&seen).1, Some(expected), "{answers:?}");
    }
}

#[test]
fn run_end_without_failed_units_has_reason() {
    let broken = seen(DagState::Over(DagOutcome::Broken("line 3: no such node".into())), &[]);
    let look = run_snapshot(&run("a", None, Some("7")), &broken);
    assert_eq!((look.state, look.reason.as_deref()), (RunState::Over, Some("line 3: no such node")));
    let counts = NodeCounts { idle: 16, done: 4, ..NodeCounts::default() };
    assert_eq!(look.counts, counts, "units that have not started or were stopped wait");
    let running = run_snapshot(&run("a", None, Some("7")), &seen(DagState::Running, &[]));
    assert_eq!((running.counts.idle, running.counts.running), (15, 1));
    assert_eq!(
        run_snapshot(&run("a", None, Some("7")), &seen(DagState::Over(DagOutcome::Failed), &[])).reason,
        None
    );
}

#[test]
fn new_run_goes_to_schedd_with_fewest_runs() {
    let options = CondorOptions { schedds: vec!["s1".into(), "s2".into()], ..CondorOptions::default() };
    let condor = CondorBackend::new(options, RequestReconcilerWaker::default());
    let at = |schedd: &str| rows::BackendRunRef::Htcondor { schedd: Some(schedd.into()), cluster: None };
    let busy = [run("a", Some("s1"), Some("1")), run("b", Some("s2"), None), run("c", Some("s1"), None)];
    assert_eq!(condor.choose_schedd(&[]), at("s1"));
    assert_eq!(condor.choose_schedd(&busy[..1]), at("s2"));
    assert_eq!(condor.choose_schedd(&busy), at("s2"));
    let local = CondorBackend::new(CondorOptions::default(), RequestReconcilerWaker::default());
    assert_eq!(local.choose_schedd(&busy), rows::BackendRunRef::Htcondor { schedd: None, cluster: None });
}

#[test]
fn run_of_removed_schedd_goes_to_another() {
    let condor = |schedds: &[&str]| {
        let schedds = schedds.iter().map(|schedd| (*schedd).to_owned()).collect();
        let tools = Some("/nowhere".into());
        CondorBackend::new(
            CondorOptions { schedds, tools_directory: tools, ..CondorOptions::default() },
            RequestReconcilerWaker::default(),
        )
    };
    let table = [
        (Some("s1"), vec!["s1", "s2"], Some("s1")),
        (Some("s2"), vec!["s1", "s2"], Some("s2")),
        (Some("s3"), vec!["s1", "s2"], Some("s1")),
        (Some("s3"), vec![], None),
        (None, vec!["s1"], None),
        (None, vec![], None),
    ];
    for (planned, schedds, expected) in table {
        let run = run("a", planned, None);
        let destination = condor(&schedds).choose_destination(&order(&run, Vec::new()));
        assert_eq!(destination.as_deref(), expected, "{planned:?} {schedds:?}");
    }
}

#[test]
fn run_is_next_submission_of_its_directory() {
    let last = run("c", None, None);
    let elsewhere = RunRow { submit_dir: "/runs/other".into(), ..run("x", None, Some("3")) };
    let others = vec![run("a", None, Some("1")), elsewhere, run("renounced", None, None)];
    let order = order(&last, others);
    assert_eq!((number(&order), batch_name(&order).as_str()), (2, "windlass-first"));
}

fn order(run: &RunRow, others: Vec<RunRow>) -> RunContext<'_> {
    RunContext {
        run,
        submission: RunSubmission {
            name: "r".into(),
            user: "me".into(),
            digest: "first".into(),
            directory: run.submit_dir.clone(),
            throttles: BTreeMap::new(),
            retries: RoleRetrySettings {
                counts: round_plan::RetriesByRole::default(),
                cool_off: Duration::ZERO,
            },
            max_memory_per_core: 1000,
            memory_mb: None,
            priority: 0,
        },
        process_runs: others,
        banned_sites: Vec::new(),
    }
}
