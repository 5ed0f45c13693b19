//! Reduces samples to the few numbers of the table.

use std::time::Duration;

use super::measure::RunSample;

/// The runs of one competitor on one workload: a sample per round, none where it failed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SampleSeries {
    pub(super) competitor: &'static str,
    pub(super) jobs: usize,
    pub(super) rounds: Vec<Option<RunSample>>,
    /// Why the competitor is missing or failed.
    pub(super) trouble: Option<String>,
}

/// The summary of a [`SampleSeries`]. Milliseconds and ratios are per job, so that series of different lengths
/// compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SampleSummary {
    pub(super) wall: SampleSpread,
    pub(super) per_job: f64,
    pub(super) cpu_per_job: f64,
    pub(super) over_floor: Option<f64>,
    pub(super) over_xargs: Option<f64>,
    /// Milliseconds per job above the floor.
    pub(super) beyond_floor: Option<f64>,
    pub(super) peak_rss: u64,
    pub(super) disk: u64,
    pub(super) files: u64,
}

/// Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SampleSpread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
}

impl SampleSeries {
    pub(super) fn samples(&self) -> impl Iterator<Item = RunSample> {
        self.rounds.iter().copied().flatten()
    }

    /// None if no round succeeded.
    pub(super) fn summary(&self, all: &[SampleSeries]) -> Option<SampleSummary> {
        let named = |name: &str| all.iter().find(|series| series.competitor == name);
        let wall = SampleSpread::of(self.samples().map(|sample| sample.wall.as_secs_f64()))?;
        let largest =
            |figure: fn(&RunSample) -> u64| self.samples().map(|sample| figure(&sample)).max().unwrap_or(0);
        Some(SampleSummary {
            wall,
            per_job: self.per_job(wall.median),
            cpu_per_job: self.per_job(median(self.samples().map(|sample| sample.cpu.as_secs_f64()))?),
            over_floor: named("floor").and_then(|floor| self.pairwise(floor, |own, other| own / other)),
            over_xargs: named("xargs").and_then(|xargs| self.pairwise(xargs, |own, other| own / other)),
            beyond_floor: named("floor").and_then(|floor| self.pairwise(floor, |own, other| own - other)),
            peak_rss: largest(|sample| sample.peak_rss),
            disk: largest(|sample| sample.disk),
            files: largest(|sample| sample.files),
        })
    }

    /// The median over the rounds of a comparison within each round, in milliseconds per job. The speed of the
    /// machine changes less within a round than between rounds.
    fn pairwise(&self, other: &SampleSeries, compare: impl Fn(f64, f64) -> f64) -> Option<f64> {
        let wall = |series: &SampleSeries, sample: &RunSample| series.per_job(sample.wall.as_secs_f64());
        let pairs = self.rounds.iter().zip(&other.rounds);
        let compared = pairs.filter_map(|pair| match pair {
            (Some(own), Some(theirs)) => Some(compare(wall(self, own), wall(other, theirs))),
            _ => None,
        });
        median(compared)
    }

    fn per_job(&self, seconds: f64) -> f64 {
        seconds * 1000.0 / self.jobs as f64
    }
}

impl SampleSpread {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<SampleSpread> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Some(SampleSpread {
            least: *values.first()?,
            median: median(values.iter().copied())?,
            most: *values.last()?,
        })
    }

    pub(super) fn of_walls(samples: &[RunSample]) -> Option<SampleSpread> {
        SampleSpread::of(samples.iter().map(|sample| sample.wall).map(|wall: Duration| wall.as_secs_f64()))
    }
}

/// The middle value, or the mean of the two in the middle.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A sample that took this many milliseconds.
    pub(in crate::bench) fn sample(milliseconds: u64) -> RunSample {
        let wall = Duration::from_millis(milliseconds);
        RunSample { wall, cpu: wall * 2, peak_rss: milliseconds * 1000, disk: 4096, files: 2 }
    }

    /// A series with one sample per entry; 0 stands for a round that failed.
    pub(in crate::bench) fn series(competitor: &'static str, jobs: usize, walls: &[u64]) -> SampleSeries {
        let rounds = walls.iter().map(|wall| (*wall > 0).then(|| sample(*wall))).collect();
        SampleSeries { competitor, jobs, rounds, trouble: None }
    }

    fn close(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-9)
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median([].into_iter()), None);
        assert!(close(median([3.0, 1.0, 2.0].into_iter()), 2.0));
        assert!(close(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5));
    }

    #[test]
    fn ratios_are_computed_within_one_round() {
        // The machine is half as fast in the second round; the ratio is 1.5 in both.
        let all = [series("floor", 10, &[100, 200, 100]), series("windlass", 10, &[150, 300, 150])];
        let summary = all[1].summary(&all).unwrap();
        assert!(close(summary.over_floor, 1.5));
        assert!(close(summary.beyond_floor, 5.0));
        assert_eq!(summary.over_xargs, None);
    }

    #[test]
    fn series_of_different_job_counts_compare_per_job() {
        let all = [series("xargs", 1000, &[1000]), series("snakemake", 10, &[500])];
        let summary = all[1].summary(&all).unwrap();
        assert!(close(summary.over_xargs, 50.0));
        assert!(close(Some(summary.per_job), 50.0));
        assert!(close(Some(summary.cpu_per_job), 100.0));
    }

    #[test]
    fn round_failed_on_either_side_is_ignored() {
        let all = [series("floor", 1, &[100, 0, 100]), series("make", 1, &[200, 900, 0])];
        let summary = all[1].summary(&all).unwrap();
        assert!(close(summary.over_floor, 2.0));
        assert!(close(Some(summary.wall.most), 0.9));
        assert_eq!(series("make", 1, &[0, 0]).summary(&all), None);
    }

    #[test]
    fn memory_and_disk_are_maxima() {
        let all = [series("make", 1, &[300, 200])];
        let summary = all[0].summary(&all).unwrap();
        assert_eq!((summary.peak_rss, summary.disk, summary.files), (300_000, 4096, 2));
    }
}
