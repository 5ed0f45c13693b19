//! The rules for increases and reductions, one by one.

use super::*;

const ONE_GIB: u64 = 1 << 30;

fn asked() -> Resources {
    Resources {
        cpus: 4,
        memory: Bytes(8 * ONE_GIB),
        gpus: 0,
        nodes: 1,
        runtime: Some(Duration::from_hours(4)),
    }
}

fn run(gib: f64, cpu: f64, minutes: u64) -> AttemptObservation {
    AttemptObservation {
        status: JobStatus::Completed,
        return_code: 0,
        wall: Duration::from_mins(minutes),
        peak_memory: Some(Bytes((gib * GIB) as u64)),
        peak_cpu_percent: Some(cpu),
        avg_cpu_percent: Some(cpu),
    }
}

fn sized(jobs: u32, observations: &[AttemptObservation], rules: &SizingRules) -> GroupSizing {
    size_group(&SizingGroup { name: "solve_{nu}", asked: asked(), jobs, observations }, rules)
}

fn changes(sizing: &GroupSizing) -> Vec<String> {
    sizing.changes.iter().map(|change| format!("{} {}", change.to.resource().field(), change.to)).collect()
}

#[test]
fn adequate_requests_are_kept() {
    let sizing = sized(2, &[run(7.5, 390.0, 200), run(6.0, 200.0, 220)], &SizingRules::default());
    assert_eq!((changes(&sizing), sizing.kept, sizing.excesses.len()), (vec![], None, 0));
    assert_eq!(sizing.savings, ResourceSavings::default());
}

#[test]
fn measurement_slightly_above_one_core_is_one_core() {
    let noisy = sized(2, &[run(7.5, 420.0, 200), run(7.5, 400.0, 200)], &SizingRules::default());
    assert_eq!(changes(&noisy), [""; 0]);
    assert_eq!(noisy.excesses[0].resource, ResourceKind::Cpus, "it is shown anyway");
    let busy = sized(2, &[run(7.5, 480.0, 200), run(7.5, 400.0, 200)], &SizingRules::default());
    assert_eq!(changes(&busy), ["num_cpus 6 cpus"]);
}

#[test]
fn waste_is_requested_minus_used() {
    let waste = sized(1, &[run(6.0, 100.0, 120)], &SizingRules::default()).waste;
    assert!((waste.cpu_hours - 6.0).abs() < 1e-9 && (waste.gib_hours - 4.0).abs() < 1e-9, "{waste:?}");
}

#[test]
fn requests_shrink_if_all_jobs_completed() {
    let sizing = sized(2, &[run(2.5, 150.0, 60), run(1.0, 90.0, 60)], &SizingRules::default());
    assert_eq!(changes(&sizing), ["memory 3 GiB", "num_cpus 2 cpus", "runtime 1h 15m"]);
    assert_eq!(sizing.changes[0].evidence, "p95 of 2 runs is 2.5 GiB, the largest 2.5 GiB");
    assert_eq!(sizing.proposed().cpus, 2);
    assert!((sizing.savings.cpu_hours - 4.0).abs() < 1e-9, "two jobs, one hour, two cpus each");
    assert!((sizing.savings.gib_hours - 10.0).abs() < 1e-9);
}

#[test]
fn small_savings_are_ignored() {
    let sizing = sized(1, &[run(6.0, 390.0, 190)], &SizingRules::default());
    assert_eq!(changes(&sizing), Vec::<String>::new(), "7.25 GiB of 8, 3h 50m of 4h");
}

#[test]
fn failures_prevent_smaller_requests() {
    let small = run(1.0, 90.0, 60);
    let failed = AttemptObservation { status: JobStatus::Failed, return_code: 1, ..small };
    let careful = SizingRules { downsize: false, ..SizingRules::default() };
    for (jobs, runs, rules, kept) in [
        (3, vec![small, small], SizingRules::default(), KeepReason::SomeWithoutResult),
        (2, vec![small, failed], SizingRules::default(), KeepReason::SomeFailed),
        (2, vec![small, small], careful, KeepReason::NotWanted),
    ] {
        let sizing = sized(jobs, &runs, &rules);
        assert_eq!((sizing.kept, sizing.changes.len()), (Some(kept), 0), "{kept}");
    }
}

#[test]
fn one_run_above_the_request_increases_it() {
    let sizing = sized(100, &[run(9.0, 500.0, 300)], &SizingRules::default());
    assert_eq!(changes(&sizing), ["memory 11 GiB", "num_cpus 6 cpus", "runtime 6h"]);
    assert!(
        sizing.changes.iter().all(|change| !change.is_less && change.evidence.starts_with("the only run"))
    );
    let worst: Vec<_> =
        sizing.excesses.iter().map(|excess| (excess.resource, excess.runs, excess.worst)).collect();
    assert_eq!(
        worst,
        [
            (ResourceKind::Memory, 1, Some(1.125)),
            (ResourceKind::Cpus, 1, Some(1.25)),
            (ResourceKind::Runtime, 1, Some(1.25))
        ]
    );
}

#[test]
fn run_ended_at_its_limit_increases_the_limit() {
    let killed = AttemptObservation { status: JobStatus::Failed, return_code: 137, ..run(7.9, 100.0, 10) };
    let unmeasured = AttemptObservation { peak_memory: None, ..killed };
    let late = AttemptObservation { status: JobStatus::Terminated, return_code: 152, ..run(1.0, 100.0, 240) };
    let of = |run| sized(1, &[run], &SizingRules::default());
    assert_eq!(changes(&of(killed)), ["memory 9.6 GiB"], "1.2 × 8 GiB, in steps of 128 MiB");
    assert_eq!(changes(&of(unmeasured)), ["memory 9.6 GiB"]);
    assert_eq!(changes(&of(late)), ["runtime 4h 50m"]);
    let ended = |sizing: &GroupSizing| sizing.excesses.iter().map(|excess| excess.ended).collect::<Vec<_>>();
    assert_eq!((ended(&of(killed)), ended(&of(late))), (vec![1], vec![1]));
    assert!(of(late).changes[0].evidence.ends_with("; 1 ran out of time"));
}

#[test]
fn requests_are_not_reduced_below_the_minimum() {
    let tiny = AttemptObservation {
        peak_memory: Some(Bytes(100)),
        wall: Duration::from_millis(5),
        ..run(0.0, 0.1, 0)
    };
    let sizing = sized(1, &[tiny], &SizingRules::default());
    assert_eq!(changes(&sizing), ["memory 1 MiB", "num_cpus 1 cpu", "runtime 1m"]);
}

#[test]
fn sizing_without_runs_changes_nothing() {
    let sizing = sized(5, &[], &SizingRules::default());
    assert_eq!((sizing.runs, sizing.memory, sizing.changes.len(), sizing.kept), (0, None, 0, None));
}
