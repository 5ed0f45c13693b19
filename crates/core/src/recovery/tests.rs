//! Diagnoses and remedies, one by one.

use super::*;
use crate::sizing::ResourceAmount;
use proptest::prelude::*;
use windlass_types::Bytes;

const GIB: u64 = 1 << 30;

const TERMS: RecoverySettings<'static> = RecoverySettings {
    memory_multiplier: 1.5,
    runtime_multiplier: 1.5,
    cpu_multiplier: 1.0,
    retry_unknown: false,
    workers: &[],
};

const WORKER: Capacity = Capacity { cpus: 8, memory: Bytes(16 * GIB), gpus: 0, nodes: 1, max_jobs: None };

const ELIGIBLE_WORKER: AvailableWorker = AvailableWorker { capacity: WORKER, time_left: None };

fn asked() -> Resources {
    Resources { cpus: 2, memory: Bytes(4 * GIB), gpus: 0, nodes: 1, runtime: Some(Duration::from_hours(2)) }
}

/// Failed with exit code 1 after ten minutes, 1 GiB and half a core.
fn seen() -> AttemptObservation {
    AttemptObservation {
        status: JobStatus::Failed,
        return_code: 1,
        wall: Duration::from_mins(10),
        peak_memory: Some(Bytes(GIB)),
        peak_cpu_percent: Some(50.0),
        avg_cpu_percent: Some(50.0),
    }
}

fn last(seen: AttemptObservation) -> LastAttempt {
    LastAttempt { observation: seen, signal: None, out_of_memory: false, class: None }
}

fn case(last: LastAttempt) -> FailedJob {
    FailedJob { job: JobId(7), status: last.observation.status, asked: Some(asked()), last: Some(last) }
}

fn remedy(last: LastAttempt) -> JobRemedy {
    with(&case(last), &TERMS)
}

fn with(case: &FailedJob, terms: &RecoverySettings<'_>) -> JobRemedy {
    plan_recovery(std::slice::from_ref(case), terms).remove(0)
}

fn changes(remedy: &JobRemedy) -> Vec<String> {
    remedy.changes.iter().map(|change| change.to.to_string()).collect()
}

#[test]
fn oom_evidence_increases_memory() {
    let killed = AttemptObservation { return_code: 137, peak_memory: Some(Bytes(4 * GIB)), ..seen() };
    let remedy = remedy(LastAttempt { out_of_memory: true, ..last(killed) });
    assert_eq!((remedy.diagnosis, remedy.runs_again()), (RecoveryDiagnosis::OutOfMemory, true));
    assert_eq!(remedy.evidence, "used 4 GiB of 4 GiB");
    assert_eq!(changes(&remedy), ["6 GiB"]);
}

#[test]
fn custom_return_codes_do_not_change_the_diagnosis() {
    let oom = LastAttempt { out_of_memory: true, ..last(AttemptObservation { return_code: 99, ..seen() }) };
    assert_eq!(changes(&remedy(oom)), ["6 GiB"]);
    let late = AttemptObservation { status: JobStatus::Terminated, return_code: 98, ..seen() };
    let late = remedy(LastAttempt { class: Some(FailureClass::Timeout), ..last(late) });
    assert_eq!((late.diagnosis, changes(&late)), (RecoveryDiagnosis::Timeout, vec!["3h".to_owned()]));
}

#[test]
fn kill_is_oom_unless_near_the_time_limit() {
    for (minutes, found) in [
        (1, RecoveryDiagnosis::OutOfMemory),
        (100, RecoveryDiagnosis::OutOfMemory),
        (107, RecoveryDiagnosis::OutOfMemory),
        (109, RecoveryDiagnosis::Timeout),
        (120, RecoveryDiagnosis::Timeout),
    ] {
        let killed = AttemptObservation { return_code: 137, wall: Duration::from_mins(minutes), ..seen() };
        assert_eq!(remedy(last(killed)).diagnosis, found, "after {minutes} of 120 minutes");
    }
    let killed = last(AttemptObservation { return_code: 137, peak_memory: None, ..seen() });
    assert_eq!(remedy(killed).evidence, "killed by SIGKILL");
}

#[test]
fn late_failure_is_not_a_timeout() {
    let late = AttemptObservation { wall: Duration::from_mins(119), ..seen() };
    assert_eq!(remedy(last(late)).diagnosis, RecoveryDiagnosis::Unknown);
    let stopped = AttemptObservation { return_code: 143, wall: Duration::from_mins(119), ..seen() };
    assert_eq!(remedy(last(stopped)).diagnosis, RecoveryDiagnosis::Timeout);
}

#[test]
fn timeout_inside_the_command_is_not_ours() {
    let inside = LastAttempt { class: Some(FailureClass::Timeout), ..last(seen()) };
    let remedy = remedy(inside);
    assert_eq!(
        (remedy.diagnosis, remedy.evidence.as_str()),
        (RecoveryDiagnosis::Unknown, "exit code 1, timeout")
    );
    assert!(!remedy.runs_again() && remedy.changes.is_empty());
}

#[test]
fn timeout_increases_the_runtime() {
    let late = AttemptObservation {
        status: JobStatus::Terminated,
        return_code: 152,
        wall: Duration::from_hours(2),
        ..seen()
    };
    let remedy = remedy(last(late));
    assert_eq!((remedy.diagnosis, remedy.evidence.as_str()), (RecoveryDiagnosis::Timeout, "ran 2h of 2h"));
    assert_eq!(changes(&remedy), ["3h"]);
}

#[test]
fn excess_use_explains_otherwise_unknown_failures() {
    let large = AttemptObservation { peak_memory: Some(Bytes(5 * GIB)), ..seen() };
    let busy = AttemptObservation { peak_cpu_percent: Some(390.0), ..seen() };
    assert_eq!(remedy(last(large)).diagnosis, RecoveryDiagnosis::OutOfMemory);
    let found = remedy(last(busy));
    assert_eq!(
        (found.diagnosis, found.evidence.as_str()),
        (RecoveryDiagnosis::CpuOveruse, "used 3.9 of 2 CPUs")
    );
    assert_eq!(changes(&found), ["4 cpus"]);
    for class in [FailureClass::Permanent, FailureClass::Data, FailureClass::Transient] {
        for seen in [large, busy] {
            let told = remedy(LastAttempt { class: Some(class), ..last(seen) });
            assert_eq!((told.diagnosis, told.runs_again()), (RecoveryDiagnosis::Unknown, false), "{class}");
        }
    }
}

#[test]
fn cpu_use_slightly_above_one_core_is_one_core() {
    let noisy = AttemptObservation { peak_cpu_percent: Some(220.0), ..seen() };
    assert_eq!(remedy(last(noisy)).diagnosis, RecoveryDiagnosis::Unknown);
}

#[test]
fn all_exceeded_resources_grow_together() {
    let both = AttemptObservation { return_code: 137, peak_cpu_percent: Some(600.0), ..seen() };
    let remedy = remedy(LastAttempt { out_of_memory: true, ..last(both) });
    assert_eq!(changes(&remedy), ["6 GiB", "6 cpus"]);
}

#[test]
fn unknown_failures_are_retried_only_on_request() {
    let unknown = case(last(seen()));
    let RecoveryAction::Stay(why) = with(&unknown, &TERMS).next else { panic!("it stays") };
    assert!(why.contains("its cause is unknown"), "{why}");
    let bold = with(&unknown, &RecoverySettings { retry_unknown: true, ..TERMS });
    assert!(bold.runs_again() && bold.changes.is_empty());
}

#[test]
fn lost_worker_reruns_unchanged() {
    let lost = remedy(last(AttemptObservation { return_code: -128, ..seen() }));
    assert_eq!(
        (lost.diagnosis, lost.runs_again(), lost.changes.len()),
        (RecoveryDiagnosis::WorkerLost, true, 0)
    );
}

#[test]
fn canceled_job_reruns_unchanged() {
    let never = FailedJob { status: JobStatus::Canceled, last: None, ..case(last(seen())) };
    let stopped = FailedJob {
        status: JobStatus::Canceled,
        ..case(last(AttemptObservation { return_code: 143, ..seen() }))
    };
    for case in [never, stopped] {
        let found = with(&case, &TERMS);
        assert_eq!(
            (found.diagnosis, found.runs_again(), found.changes.len()),
            (RecoveryDiagnosis::Canceled, true, 0)
        );
    }
}

#[test]
fn growth_is_capped_by_worker_capacity() {
    let oom = |memory| {
        let seen = AttemptObservation { return_code: 137, peak_memory: None, ..seen() };
        let asked = Some(Resources { memory: Bytes(memory), ..asked() });
        FailedJob { asked, ..case(LastAttempt { out_of_memory: true, ..last(seen) }) }
    };
    let terms = RecoverySettings { workers: &[ELIGIBLE_WORKER], ..TERMS };
    let capped = with(&oom(14 * GIB), &terms);
    assert_eq!(changes(&capped), ["16 GiB"]);
    assert!(capped.changes[0].evidence.ends_with("; a worker has no more"), "{:?}", capped.changes);
    let full = with(&oom(16 * GIB), &terms);
    assert_eq!(full.next, RecoveryAction::Stay("no worker has more than the requested 16 GiB".to_owned()));
    assert_eq!(with(&oom(20 * GIB), &terms).changes, [], "and nothing is reduced");
}

#[test]
fn cpus_and_memory_must_fit_one_worker() {
    let wide = Capacity { cpus: 64, memory: Bytes(4 * GIB), ..WORKER };
    let both = AttemptObservation { return_code: 137, peak_cpu_percent: Some(1600.0), ..seen() };
    let case = case(LastAttempt { out_of_memory: true, ..last(both) });
    let found = with(
        &case,
        &RecoverySettings {
            workers: &[ELIGIBLE_WORKER, AvailableWorker { capacity: wide, ..ELIGIBLE_WORKER }],
            ..TERMS
        },
    );
    assert_eq!(changes(&found), ["6 GiB", "8 cpus"], "there are 64 CPUs, but not with 6 GiB");
}

#[test]
fn runtime_is_capped_by_worker_time_left() {
    let late = AttemptObservation { return_code: 152, wall: Duration::from_hours(2), ..seen() };
    let stays = |hours| AvailableWorker { time_left: Some(Duration::from_hours(hours)), ..ELIGIBLE_WORKER };
    let given = |eligible| with(&case(last(late)), &RecoverySettings { workers: &[eligible], ..TERMS });
    assert_eq!(given(stays(24)).changes[0].to, ResourceAmount::Runtime(Duration::from_hours(3)));
    let stuck = given(stays(2));
    assert_eq!(stuck.next, RecoveryAction::Stay("no worker stays longer than its 2h".to_owned()));
}

/// Large nodes for ten minutes and small ones for a day: there are no large ones for a day.
#[test]
fn memory_and_time_caps_are_of_the_same_worker() {
    let eligible = |gib, minutes| AvailableWorker {
        capacity: Capacity { memory: Bytes(gib * GIB), ..WORKER },
        time_left: Some(Duration::from_mins(minutes)),
    };
    let eligible_workers = [eligible(5, 24 * 60), eligible(64, 10)];
    let terms = RecoverySettings { workers: &eligible_workers, ..TERMS };
    let oom = |gib: u64, minutes: u64| {
        let seen = AttemptObservation { return_code: 137, peak_memory: None, ..seen() };
        let runtime = Some(Duration::from_mins(minutes));
        let asked = Some(Resources { memory: Bytes(gib * GIB), runtime, ..asked() });
        with(&FailedJob { asked, ..case(LastAttempt { out_of_memory: true, ..last(seen) }) }, &terms)
    };
    assert_eq!(changes(&oom(4, 60)), ["5 GiB"], "6 GiB are available for ten minutes");
    assert_eq!(changes(&oom(4, 10)), ["6 GiB"]);
    let stuck =
        RecoveryAction::Stay("no worker that could run it has more than the requested 5 GiB".to_owned());
    assert_eq!(oom(5, 60).next, stuck);
    let late = |gib: u64| {
        let late = AttemptObservation { return_code: 152, wall: Duration::from_mins(8), ..seen() };
        let runtime = Some(Duration::from_mins(8));
        let asked = Some(Resources { memory: Bytes(gib * GIB), runtime, ..asked() });
        with(&FailedJob { asked, ..case(last(late)) }, &terms)
    };
    assert_eq!(changes(&late(4)), ["12m"]);
    assert_eq!(changes(&late(8)), ["10m"], "and those that stay a day are too small");
}

#[test]
fn multi_node_job_is_capped_by_multi_node_workers() {
    let wide = AvailableWorker {
        capacity: Capacity { memory: Bytes(5 * GIB), nodes: 4, ..WORKER },
        ..ELIGIBLE_WORKER
    };
    let killed =
        LastAttempt { out_of_memory: true, ..last(AttemptObservation { return_code: 137, ..seen() }) };
    let case = FailedJob { asked: Some(Resources { nodes: 2, ..asked() }), ..case(killed) };
    assert_eq!(
        changes(&with(&case, &RecoverySettings { workers: &[ELIGIBLE_WORKER, wide], ..TERMS })),
        ["5 GiB"]
    );
}

#[test]
fn job_without_requirements_reruns_unchanged() {
    let free = FailedJob { asked: None, ..case(LastAttempt { out_of_memory: true, ..last(seen()) }) };
    let found = with(&free, &RecoverySettings { workers: &[ELIGIBLE_WORKER], ..TERMS });
    assert_eq!((found.evidence.as_str(), found.runs_again()), ("used 1 GiB", true));
    assert!(found.changes.is_empty());
}

proptest! {
    #[test]
    fn remedies_never_shrink_or_exceed_capacity(
        code in prop::sample::select(vec![1, 137, 143, 152, -128]),
        peak in prop::option::of(1u64..64 * GIB),
        memory in 1..=WORKER.memory.0,
        minutes in 0u64..600,
        cpu in prop::option::of(0.0f64..3200.0),
        retry_unknown: bool,
    ) {
        let seen = AttemptObservation {
            return_code: code,
            wall: Duration::from_mins(minutes),
            peak_memory: peak.map(Bytes),
            peak_cpu_percent: cpu,
            ..seen()
        };
        let asked = Resources { memory: Bytes(memory), ..asked() };
        let case = FailedJob { asked: Some(asked), ..case(last(seen)) };
        let longest = Some(Duration::from_hours(4));
        let eligible = AvailableWorker { time_left: longest, ..ELIGIBLE_WORKER };
        let found = with(&case, &RecoverySettings { workers: &[eligible], retry_unknown, ..TERMS });
        for change in &found.changes {
            let (grew, fits) = match change.to {
                ResourceAmount::Memory(to) => (to > asked.memory, to <= WORKER.memory),
                ResourceAmount::Cpus(to) => (to > asked.cpus, to <= WORKER.cpus),
                ResourceAmount::Runtime(to) => (Some(to) > asked.runtime, Some(to) <= longest),
            };
            prop_assert!(grew && fits, "{change:?}");
        }
        prop_assert!(found.runs_again() || found.changes.is_empty());
    }
}
