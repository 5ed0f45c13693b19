//! The performance targets of windlass next to the measurements. A miss is shown but never changes the exit code,
//! because timings are not tests.

use super::report::{BenchReport, CreationOutcome, bytes, grouped, ratio};
use super::statistics::SampleSpread;

const WINDLASS: &str = "windlass";

#[derive(Debug, PartialEq)]
pub(super) struct PerformanceTarget {
    pub(super) what: String,
    pub(super) measured: String,
    pub(super) limit: String,
    pub(super) met: bool,
}

/// The targets for which this report has data.
pub(super) fn targets(report: &BenchReport) -> Vec<PerformanceTarget> {
    let mut found = Vec::new();
    found.extend(no_slower_than_xargs(report));
    found.extend(fan_like_flood(report));
    found.extend(chain_hop(report));
    for creation in &report.creations {
        found.extend(creation_targets(creation));
    }
    found
}

fn no_slower_than_xargs(report: &BenchReport) -> Option<PerformanceTarget> {
    let over = summary(report, 'A')?.over_xargs?;
    Some(PerformanceTarget {
        what: "A: time against xargs".to_owned(),
        measured: ratio(over),
        limit: "at most 1.00".to_owned(),
        met: over <= 1.0,
    })
}

/// A and B run at different times, so each is compared with the floor of its own rounds.
fn fan_like_flood(report: &BenchReport) -> Option<PerformanceTarget> {
    let flood = summary(report, 'A')?.over_floor?;
    let fan = summary(report, 'B')?.over_floor?;
    Some(PerformanceTarget {
        what: "B: time per job against the floor".to_owned(),
        measured: ratio(fan),
        limit: format!("no more than A's {}", ratio(flood)),
        met: fan <= flood,
    })
}

fn chain_hop(report: &BenchReport) -> Option<PerformanceTarget> {
    let beyond = summary(report, 'C')?.beyond_floor?;
    Some(PerformanceTarget {
        what: "C: ms per hop beyond the job itself".to_owned(),
        measured: format!("{beyond:.2}"),
        limit: "at most 1.00".to_owned(),
        met: beyond <= 1.0,
    })
}

fn creation_targets(creation: &CreationOutcome) -> Vec<PerformanceTarget> {
    let Some(series) = creation.series_of(WINDLASS) else { return Vec::new() };
    let seconds = match creation.jobs {
        100_000 => 0.8,
        1_000_000 => 9.0,
        _ => return Vec::new(),
    };
    let jobs = grouped(creation.jobs);
    let mut found = Vec::new();
    if let Some(create) = SampleSpread::of_walls(&series.create) {
        found.push(PerformanceTarget {
            what: format!("D: seconds to create {jobs} jobs"),
            measured: format!("{:.2}", create.median),
            limit: format!("at most {seconds}"),
            met: create.median <= seconds,
        });
    }
    if creation.jobs < 1_000_000 {
        return found;
    }
    if let Some(peak) = series.create.iter().map(|sample| sample.peak_rss).max() {
        found.push(PerformanceTarget {
            what: format!("D: peak memory while creating {jobs} jobs"),
            measured: bytes(peak),
            limit: "under 500 MB".to_owned(),
            met: peak < 500_000_000,
        });
    }
    if let Some(status) = SampleSpread::of_walls(&series.status) {
        found.push(PerformanceTarget {
            what: format!("D: ms for the status of {jobs} jobs"),
            measured: format!("{:.1}", status.median * 1000.0),
            limit: "under 50".to_owned(),
            met: status.median < 0.050,
        });
    }
    found
}

fn summary(report: &BenchReport, letter: char) -> Option<super::statistics::SampleSummary> {
    report.runs.iter().find(|outcome| outcome.workload.letter == letter)?.summary_of(WINDLASS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::machine::MachineLoad;
    use crate::bench::report::{CreationSeries, RunOutcome};
    use crate::bench::statistics::tests::{sample, series};
    use crate::bench::workloads::RUNS;

    fn run(index: usize, floor: u64, xargs: u64, windlass: u64) -> RunOutcome {
        let series = vec![
            series("floor", 100, &[floor]),
            series("xargs", 100, &[xargs]),
            series(WINDLASS, 100, &[windlass]),
        ];
        RunOutcome { workload: &RUNS[index], jobs: 100, series }
    }

    fn report(runs: Vec<RunOutcome>, creations: Vec<CreationOutcome>) -> BenchReport {
        BenchReport { machine: MachineLoad::default(), slots: 2, runs, creations }
    }

    fn targets_met(report: &BenchReport) -> Vec<bool> {
        targets(report).iter().map(|target| target.met).collect()
    }

    #[test]
    fn good_run_meets_all_targets_and_bad_run_none() {
        let good = report(vec![run(0, 60, 80, 78), run(1, 70, 90, 90), run(2, 100, 100, 190)], vec![]);
        assert_eq!(targets_met(&good), [true, true, true]);
        let bad = report(vec![run(0, 60, 80, 82), run(1, 60, 90, 90), run(2, 100, 100, 210)], vec![]);
        assert_eq!(targets_met(&bad), [false, false, false]);
    }

    #[test]
    fn unmeasured_targets_are_not_evaluated() {
        assert_eq!(targets(&report(vec![], vec![])), []);
        let no_reference =
            RunOutcome { workload: &RUNS[0], jobs: 1, series: vec![series(WINDLASS, 1, &[5])] };
        assert_eq!(targets(&report(vec![no_reference], vec![])), []);
    }

    #[test]
    fn creation_target_depends_on_size() {
        let created = |jobs, create, status| CreationOutcome {
            jobs,
            spec_bytes: 1,
            series: vec![CreationSeries {
                competitor: WINDLASS,
                create: vec![sample(create)],
                status: vec![sample(status)],
                trouble: None,
            }],
        };
        assert_eq!(targets_met(&report(vec![], vec![created(10_000, 99_000, 99_000)])), [] as [bool; 0]);
        assert_eq!(targets_met(&report(vec![], vec![created(100_000, 801, 9000)])), [false]);
        assert_eq!(targets_met(&report(vec![], vec![created(1_000_000, 8900, 49)])), [true, true, true]);
        assert_eq!(targets_met(&report(vec![], vec![created(1_000_000, 9001, 51)])), [false, true, false]);
    }
}
