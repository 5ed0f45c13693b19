//! Tunings for steps with exactly known behavior: CPU time, serial share, memory per thread.

use super::*;
use crate::adaptive::{StepMeasurements, ThreadCountMedians};

const WINDOW: MemoryWindow = MemoryWindow { default_per_core: 2000, max_per_core: 3000, safety: 1.20 };

fn hints(cores: u32) -> JobHints {
    JobHints {
        adaptive: true,
        cores,
        memory_mb: 2000 * u64::from(cores),
        fixed_memory_mb: None,
        time_per_event: 1.0,
        fixed_time_per_event: None,
        size_per_event_kb: 1.5,
        efficiency: 1.0,
        events_per_job: Some(10_000),
        time_per_job: None,
    }
}

/// A program: CPU seconds per event, serial share, memory.
#[derive(Clone, Copy)]
struct TestProgram {
    work: f64,
    alone: f64,
    base: f64,
    per_thread: f64,
}

impl TestProgram {
    fn wall(self, threads: u32) -> f64 {
        self.work * (self.alone + (1.0 - self.alone) / f64::from(threads))
    }

    fn at(self, threads: u32) -> ThreadCountMedians {
        let wall = self.wall(threads);
        ThreadCountMedians {
            threads,
            samples: 20,
            cpu_efficiency: self.work / (wall * f64::from(threads)),
            rss_mb: self.base + self.per_thread * f64::from(threads),
            wall_sec_per_event: wall,
        }
    }
}

const BUSY: TestProgram = TestProgram { work: 4.0, alone: 0.01, base: 1500.0, per_thread: 250.0 };
const IDLE: TestProgram = TestProgram { work: 1.0, alone: 0.60, base: 600.0, per_thread: 100.0 };

fn experience(steps: &[(&str, TestProgram, &[u32])]) -> RequestMeasurements {
    let mut known = RequestMeasurements::default();
    known.profile.jobs_sampled = 20;
    for (name, program, threads) in steps {
        let points: Vec<ThreadCountMedians> = threads.iter().map(|threads| program.at(*threads)).collect();
        let last = points.last().unwrap();
        let tuning = StepTuning { threads: last.threads, rss_mb: last.rss_mb, ..StepTuning::default() };
        known.profile.steps.insert((*name).to_owned(), tuning);
        known.known.insert((*name).to_owned(), StepMeasurements { points, can_split: true });
    }
    known
}

fn made(hints: &JobHints, known: &RequestMeasurements) -> JobTuning {
    decide_tuning(hints, &WINDOW, &AdaptiveSettings::default(), Some(known))
}

fn way(decision: &JobTuning, step: &str) -> (Option<u32>, Option<u32>) {
    let step = &decision.profile.as_ref().unwrap().steps[step];
    (step.instances, step.run_threads)
}

/// A value set by an operator overrides measurements and the request.
#[test]
fn operator_time_overrides_measurements() {
    let known = experience(&[("RECO", BUSY, &[8])]);
    let said = JobHints { fixed_time_per_event: Some(7.0), ..hints(8) };
    let measured = made(&said, &known);
    assert_eq!((measured.source, measured.time_per_event), (SizingSource::Measured, 7.0));
    // Jobs are split by it: 8 h minus the overhead, changed by at most a factor of 2.
    assert_eq!(measured.events_per_job, Some(5000));
    let plain = decide_tuning(&said, &WINDOW, &AdaptiveSettings::default(), None);
    assert_eq!((plain.source, plain.time_per_event), (SizingSource::Hint, 7.0));
}

/// Overcommit uses the memory that a job really gets.
#[test]
fn overcommit_uses_memory_set_by_operator() {
    let moderate = TestProgram { work: 4.0, alone: 0.06, base: 11_000.0, per_thread: 100.0 };
    let known = experience(&[("RECO", moderate, &[8])]);
    let settings = AdaptiveSettings { overcommit_max: 1.5, ..AdaptiveSettings::default() };
    let threads = |fixed_memory_mb| {
        let hints = JobHints { fixed_memory_mb, ..hints(8) };
        way(&decide_tuning(&hints, &WINDOW, &settings, Some(&known)), "RECO").1
    };
    assert_eq!(threads(None), Some(12), "11.8 GB and 1 GB more fit into 16 GB");
    assert_eq!(threads(Some(12_000)), Some(8), "but not into 12 GB");
}

#[test]
fn too_few_jobs_change_nothing() {
    let mut known = experience(&[("RECO", IDLE, &[8])]);
    known.profile.jobs_sampled = 4;
    let found = made(&hints(8), &known);
    assert_eq!((found.source, found.cores, found.memory_mb), (SizingSource::Hint, 8, 16_000));
    assert_eq!(way(&found, "RECO"), (None, None), "reported; nothing else can be done");
    known.profile.jobs_sampled = 5;
    assert_eq!(made(&hints(8), &known).source, SizingSource::Measured);
}

#[test]
fn adaptive_rounds_can_be_disabled() {
    let known = experience(&[("RECO", IDLE, &[8])]);
    let off = AdaptiveSettings { enabled: false, ..AdaptiveSettings::default() };
    let not_here = JobHints { adaptive: false, ..hints(8) };
    for found in [decide_tuning(&hints(8), &WINDOW, &off, Some(&known)), made(&not_here, &known)] {
        assert_eq!((found.source, found.cores, found.profile), (SizingSource::Hint, 8, None));
    }
}

/// More or less than measured; with the number of cores that is offered with this memory.
#[test]
fn memory_set_by_an_operator_overrides_measurements() {
    let known = experience(&[("RECO", IDLE, &[4, 8])]);
    let found = |fixed| made(&JobHints { fixed_memory_mb: fixed, ..hints(8) }, &known);
    let free = found(None);
    assert_eq!((free.cores, free.memory_mb), (4, 8000));
    for (fixed, cores) in [(3000, 4), (9000, 4), (12_000, 4), (20_000, 8)] {
        let found = found(Some(fixed));
        assert_eq!((found.source, found.cores, found.memory_mb), (SizingSource::Measured, cores, fixed));
    }
    let (instances, _) = way(&found(Some(1500)), "RECO");
    assert_eq!(instances, None, "two instances do not fit");
    let unmeasured = JobHints { fixed_memory_mb: Some(500), ..hints(1) };
    let found = decide_tuning(&unmeasured, &WINDOW, &AdaptiveSettings::default(), None);
    assert_eq!((found.source, found.memory_mb), (SizingSource::Hint, 500));
}

#[test]
fn busy_steps_are_unchanged() {
    let found = made(&hints(8), &experience(&[("RECO", BUSY, &[8])]));
    assert_eq!((found.cores, way(&found, "RECO")), (8, (None, Some(8))));
    // 3500 MB, times 1.2, is below the range.
    assert_eq!((found.memory_mb, found.is_memory_capped, found.expected_mb), (16_000, false, 3500.0));
    assert!((found.time_per_event - BUSY.wall(8)).abs() < 1e-9);
}

/// R-167, W-1: independent of the name and position of the step.
#[test]
fn step_with_idle_cores_runs_in_parallel_instances() {
    for (busy, idle) in [("A", "B"), ("B", "A")] {
        let found = made(&hints(8), &experience(&[(busy, BUSY, &[8]), (idle, IDLE, &[8])]));
        assert_eq!(found.cores, 8, "the other step uses them");
        assert_eq!((way(&found, busy), way(&found, idle)), ((None, Some(8)), (Some(4), Some(2))));
        let expected = BUSY.wall(8) + IDLE.wall(2) / 4.0;
        assert!((found.time_per_event - expected).abs() < 1e-9, "{found:?}");
    }
}

///
#[test]
fn parallel_instances_are_limited_by_memory() {
    let large = |base| TestProgram { base, per_thread: 0.0, ..IDLE };
    // With 8 cores at most 24,000 MB may be requested, 20 % of it for safety.
    for (base, instances, memory) in [(5000.0, 4, 24_000), (5001.0, 2, 16_000), (10_001.0, 1, 16_000)] {
        let known = experience(&[("A", BUSY, &[8]), ("B", large(base), &[8])]);
        let found = made(&hints(8), &known);
        assert_eq!(way(&found, "B").0.unwrap_or(1), instances, "{base}");
        assert_eq!((found.memory_mb, found.is_memory_capped), (memory, false), "{base}");
    }
    let found = made(&hints(8), &experience(&[("A", large(30_000.0), &[8])]));
    assert_eq!((found.memory_mb, found.is_memory_capped), (24_000, true));
}

#[test]
fn unsplittable_steps_run_as_one_instance() {
    let mut known = experience(&[("A", BUSY, &[8]), ("B", IDLE, &[8])]);
    known.known.get_mut("B").unwrap().can_split = false;
    assert_eq!(way(&made(&hints(8), &known), "B"), (None, Some(8)));
}

/// W-11: cores, threads of all steps, memory and events change together.
#[test]
fn job_with_unused_cores_gets_fewer() {
    let known = experience(&[("A", IDLE, &[8]), ("B", TestProgram { alone: 0.4, ..IDLE }, &[8])]);
    let found = made(&hints(8), &known);
    assert_eq!(found.cores, 4, "two would be enough, but the minimum is four");
    assert_eq!((way(&found, "A"), way(&found, "B")), ((Some(2), Some(2)), (Some(2), Some(2))));
    assert_eq!(found.memory_mb, 8000);
    let one = AdaptiveSettings { min_cores: 1, ..AdaptiveSettings::default() };
    let smaller = decide_tuning(&hints(8), &WINDOW, &one, Some(&known));
    assert_eq!((smaller.cores, way(&smaller, "A")), (2, (None, Some(2))));
}

#[test]
fn job_keeps_cores_for_their_memory() {
    let large = TestProgram { base: 10_500.0, per_thread: 0.0, ..IDLE };
    let found = made(&hints(8), &experience(&[("A", large, &[8])]));
    assert_eq!((found.cores, found.memory_mb, found.is_memory_capped), (8, 16_000, false));
}

#[test]
fn step_threads_never_exceed_the_known_maximum() {
    let single = TestProgram { alone: 0.0, ..IDLE };
    let found = made(&hints(8), &experience(&[("A", BUSY, &[8]), ("B", single, &[1])]));
    assert_eq!(way(&found, "B"), (Some(4), Some(1)));
}

///
#[test]
fn waiting_steps_get_overcommitted_threads() {
    let now_and_then = TestProgram { alone: 0.08, ..BUSY };
    let known = experience(&[("A", now_and_then, &[8])]);
    let with_overcommit =
        AdaptiveSettings { overcommit_max: 1.25, min_cores: 8, ..AdaptiveSettings::default() };
    let threads = |settings: &AdaptiveSettings, known: &RequestMeasurements| {
        let found = decide_tuning(&hints(8), &WINDOW, settings, Some(known));
        assert_eq!(found.cores, 8, "the request does not change");
        way(&found, "A").1.unwrap()
    };
    assert_eq!(threads(&with_overcommit, &known), 10);
    assert_eq!(threads(&AdaptiveSettings { overcommit_max: 1.0, ..with_overcommit }, &known), 8);
    assert_eq!(
        threads(&with_overcommit, &experience(&[("A", BUSY, &[8])])),
        8,
        "its threads wait too little"
    );
    let full = TestProgram { base: 20_000.0 - 2000.0, ..now_and_then };
    assert_eq!(threads(&with_overcommit, &experience(&[("A", full, &[8])])), 10, "24,000 MB are requested");
    let fuller = TestProgram { base: 23_600.0 - 2000.0, ..now_and_then };
    assert_eq!(threads(&with_overcommit, &experience(&[("A", fuller, &[8])])), 8, "500 MB more do not fit");
}

#[test]
fn job_length_approaches_the_target() {
    let aimed_at = 28_200.0;
    // Events before, seconds per event → events after.
    for (before, time, expected) in
        [(10_000, 2.82, 10_000), (10_000, 1.0, 20_000), (10_000, 28.2, 5000), (1000, 20.0, 1400), (3, 1e6, 2)]
    {
        let program = TestProgram { work: time, alone: 0.0, ..BUSY };
        let known = experience(&[("A", program, &[1])]);
        let hints = JobHints { events_per_job: Some(before), ..hints(1) };
        assert_eq!(made(&hints, &known).events_per_job, Some(expected), "{before} of {time} s, {aimed_at}");
    }
    let known = experience(&[("A", TestProgram { work: 1.0, ..BUSY }, &[1])]);
    let by_time = JobHints { time_per_job: Some(6000), ..hints(1) };
    assert_eq!(made(&by_time, &known).events_per_job, Some(6000), "the request gives the length");
    let by_files = JobHints { events_per_job: None, ..hints(1) };
    assert_eq!(made(&by_files, &known).events_per_job, None);
}
