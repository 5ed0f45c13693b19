//! Measurements of the steps of a request: metrics of completed work units, gathered over its rounds (R-162,
//!

use super::round_record::{RoundMeasurement, RoundRecord};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_types::payload::{StepProfile, StepSummary, StepTuning, WorkUnitMetrics};

/// All measurements of the rounds of a request. Stored as `step_metrics` of its process; the requests API shows
/// only the profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestMeasurements {
    /// Each step as the latest round ran it.
    #[serde(flatten)]
    pub profile: StepProfile,
    /// By step name.
    #[serde(default)]
    pub known: BTreeMap<String, StepMeasurements>,
    /// Output size per input event, all datasets together, and the number of events that it was measured with.
    #[serde(default)]
    pub kb_per_event: f64,
    #[serde(default)]
    pub events_sized: u64,
    /// Input events of all jobs of completed work units so far.
    #[serde(default)]
    pub events_in: u64,
    /// Oldest first, at most [`MAX_ROUND_RECORDS`].
    #[serde(default)]
    pub rounds: Vec<RoundRecord>,
}

/// A step at each number of threads that it was measured with, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMeasurements {
    pub points: Vec<ThreadCountMedians>,
    pub can_split: bool,
}

/// Medians over jobs that ran a step with this number of threads, for one instance of the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadCountMedians {
    pub threads: u32,
    /// Number of jobs.
    pub samples: u64,
    pub cpu_efficiency: f64,
    pub rss_mb: f64,
    /// Wall time per input event of the job, for an instance that processes all of them.
    pub wall_sec_per_event: f64,
}

impl ThreadCountMedians {
    /// Whether its times can be used.
    pub(super) fn has_times(&self) -> bool {
        let is_amount = |value: f64| value.is_finite() && value > 0.0;
        self.threads > 0 && is_amount(self.wall_sec_per_event) && is_amount(self.cpu_efficiency)
    }

    /// CPU seconds per event.
    pub(super) fn cpu_sec_per_event(&self) -> f64 {
        self.wall_sec_per_event * self.cpu_efficiency * f64::from(self.threads)
    }
}

/// Maximum number of thread counts kept for each step (mostly powers of two).
const MAX_POINTS_PER_STEP: usize = 8;
/// Maximum number of rounds kept: the first and the latest.
const MAX_ROUND_RECORDS: usize = 40;

impl RequestMeasurements {
    /// Reads stored metrics. Unreadable metrics are dropped, and the hints apply again.
    pub fn from_metrics(metrics: &Value) -> Option<Self> {
        let all: Self = serde_json::from_value(metrics.clone()).ok()?;
        // Older databases contain only the profile.
        Some(if all.known.is_empty() {
            Self { known: Self::from(all.profile.clone()).known, ..all }
        } else {
            all
        })
    }

    /// Merges the measurements of completed work units: medians over their jobs, weighted with the earlier ones
    /// by the number of jobs. `round` is the round to be planned from the result.
    #[must_use]
    pub fn with_units(mut self, round: u32, units: &[WorkUnitMetrics]) -> Self {
        self.profile.round = round;
        self.profile.jobs_sampled += units.iter().map(|unit| unit.jobs_sampled).sum::<u64>();
        self.events_in += units.iter().map(|unit| unit.events_in).sum::<u64>();
        self.update_output_size(units);
        let shares = EventShares::from_units(units);
        for ((name, ..), summaries) in group_by_layout(units) {
            let point = summarize_point(&summaries, shares.step_share(name));
            let known = self.known.entry(name.to_owned()).or_default();
            known.can_split = summaries.iter().any(|one| one.can_split);
            known.add_point(point);
        }
        // The layout of most jobs, not that of probe jobs.
        let usual = units.iter().flat_map(|unit| &unit.steps).filter(|(_, one)| one.samples > 0);
        for (name, summary) in usual {
            let Some(known) = self.known.get(name) else { continue };
            if let Some(point) = known.points.iter().find(|point| point.threads == summary.threads) {
                self.profile.steps.insert(name.clone(), step_tuning(point));
            }
        }
        self
    }

    fn update_output_size(&mut self, units: &[WorkUnitMetrics]) {
        let sized = || units.iter().filter(|unit| unit.events_in > 0 && unit.output_bytes > 0);
        let events: u64 = sized().map(|unit| unit.events_in).sum();
        let kb: f64 = sized().map(|unit| unit.output_bytes as f64 / 1024.0).sum();
        if events > 0 {
            let before = self.kb_per_event * self.events_sized as f64;
            self.events_sized += events;
            self.kb_per_event = (before + kb) / self.events_sized as f64;
        }
    }

    /// Records what the jobs of a round used, next to its estimate.
    #[must_use]
    pub fn with_round_measurement(mut self, round: u32, units: &[WorkUnitMetrics]) -> Self {
        if let Some(record) = self.rounds.iter_mut().find(|record| record.round == round) {
            record.measured = RoundMeasurement::from_units(units, record.asked.cores);
        }
        self
    }

    /// Records the estimate of a round; replaces an earlier one of the same round.
    pub fn record_round(&mut self, record: RoundRecord) {
        self.rounds.retain(|known| known.round < record.round);
        self.rounds.push(record);
        if self.rounds.len() > MAX_ROUND_RECORDS {
            self.rounds.remove(1);
        }
    }
}

impl From<StepProfile> for RequestMeasurements {
    /// Converts a profile alone: one number of threads, and no information on other layouts.
    fn from(profile: StepProfile) -> Self {
        let known = |(name, step): (&String, &StepTuning)| {
            let point = ThreadCountMedians {
                threads: step.threads,
                samples: profile.jobs_sampled,
                cpu_efficiency: step.cpu_efficiency,
                rss_mb: step.rss_mb,
                wall_sec_per_event: step.wall_sec_per_event,
            };
            (name.clone(), StepMeasurements { points: vec![point], can_split: false })
        };
        let known = profile.steps.iter().map(known).collect();
        Self { profile, known, ..Self::default() }
    }
}

impl StepMeasurements {
    /// Another number of threads is a new point.
    fn add_point(&mut self, now: ThreadCountMedians) {
        let before = self.points.iter().position(|point| point.threads == now.threads);
        let point = before.map_or(now, |at| merge_points(&self.points.remove(at), &now));
        self.points.push(point);
        if self.points.len() > MAX_POINTS_PER_STEP {
            self.points.remove(0);
        }
    }
}

/// Step name, threads, and number of instances side by side.
type StepLayoutKey<'a> = (&'a str, u32, u32);

/// Groups summaries of the same step with the same layout. Layouts with few threads come first, so that the
/// layout of most jobs comes last and counts as the latest.
fn group_by_layout(units: &[WorkUnitMetrics]) -> Vec<(StepLayoutKey<'_>, Vec<&StepSummary>)> {
    let mut ways: BTreeMap<StepLayoutKey<'_>, Vec<&StepSummary>> = BTreeMap::new();
    for unit in units {
        let probes = unit.others.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one)));
        for (name, summary) in unit.steps.iter().chain(probes).filter(|(_, one)| one.samples > 0) {
            let way = (name.as_str(), summary.threads, summary.instances.max(1));
            ways.entry(way).or_default().push(summary);
        }
    }
    ways.into_iter().collect()
}

/// Summarizes all jobs of a round with the same layout. Memory is the kernel's measurement where there is one.
fn summarize_point(of: &[&StepSummary], share: f64) -> ThreadCountMedians {
    let of_all = |value: &dyn Fn(&StepSummary) -> f64| median(of.iter().map(|one| (value(one), one.samples)));
    let side_by_side = |one: &StepSummary| f64::from(one.instances.max(1));
    ThreadCountMedians {
        threads: of.first().map_or(0, |one| one.threads),
        samples: of.iter().map(|one| one.samples).sum(),
        cpu_efficiency: of_all(&|one| one.cpu_efficiency.median),
        rss_mb: of_all(&|one| {
            one.cgroup_memory_mb.map_or(one.peak_rss_mb.median, |all| all.median / side_by_side(one))
        }),
        wall_sec_per_event: of_all(&|one| one.time_per_event_sec.median * side_by_side(one)) * share,
    }
}

/// Shares of the job's input events. Behind a filter a step sees fewer events, but times refer to the input
/// events.
struct EventShares<'a> {
    events_by_step: BTreeMap<&'a str, u64>,
    max_events: u64,
}

impl<'a> EventShares<'a> {
    fn from_units(units: &'a [WorkUnitMetrics]) -> Self {
        let mut events_by_step: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, summary) in units.iter().flat_map(|unit| &unit.steps) {
            *events_by_step.entry(name).or_default() += summary.totals.events_read;
        }
        Self { max_events: events_by_step.values().copied().max().unwrap_or(0), events_by_step }
    }

    fn step_share(&self, name: &str) -> f64 {
        match self.events_by_step.get(name) {
            Some(read) if *read > 0 => *read as f64 / self.max_events as f64,
            _ => 1.0,
        }
    }
}

fn step_tuning(point: &ThreadCountMedians) -> StepTuning {
    StepTuning {
        cpu_efficiency: point.cpu_efficiency,
        rss_mb: point.rss_mb,
        wall_sec_per_event: point.wall_sec_per_event,
        threads: point.threads,
        ..StepTuning::default()
    }
}

/// Weighted median.
pub(super) fn median(values: impl Iterator<Item = (f64, u64)>) -> f64 {
    let mut values: Vec<(f64, u64)> = values.filter(|(value, _)| value.is_finite()).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, jobs)| jobs).sum::<u64>().div_ceil(2);
    let mut reached = 0;
    let middle = values.iter().find(|(_, jobs)| {
        reached += jobs;
        reached >= half
    });
    middle.map_or(0.0, |(value, _)| *value)
}

/// Average of both points, weighted by their number of jobs.
fn merge_points(before: &ThreadCountMedians, now: &ThreadCountMedians) -> ThreadCountMedians {
    let (known, sampled) = (before.samples as f64, now.samples as f64);
    // 0 means too short to be measured, and does not reduce the other value.
    let mean = |a: f64, b: f64| match (a > 0.0, b > 0.0) {
        (true, true) => (a * known + b * sampled) / (known + sampled),
        (true, false) => a,
        _ => b,
    };
    ThreadCountMedians {
        threads: now.threads,
        samples: before.samples + now.samples,
        cpu_efficiency: mean(before.cpu_efficiency, now.cpu_efficiency),
        rss_mb: mean(before.rss_mb, now.rss_mb),
        wall_sec_per_event: mean(before.wall_sec_per_event, now.wall_sec_per_event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::payload::{SampleStatistics, StepTotals};

    fn all(value: f64) -> SampleStatistics {
        SampleStatistics { min: value, max: value, mean: value, median: value }
    }

    fn summary(jobs: u64, threads: u32, time_per_event: f64, rss: f64) -> StepSummary {
        StepSummary {
            threads,
            samples: jobs,
            time_per_event_sec: all(time_per_event),
            peak_rss_mb: all(rss),
            cpu_efficiency: all(0.5),
            ..StepSummary::default()
        }
    }

    fn unit(jobs: u64, threads: u32, time_per_event: f64, rss: f64) -> WorkUnitMetrics {
        let steps = [("RECO".to_owned(), summary(jobs, threads, time_per_event, rss))].into();
        WorkUnitMetrics { jobs_sampled: jobs, steps, ..WorkUnitMetrics::default() }
    }

    fn reco(experience: &RequestMeasurements) -> (f64, f64, u32) {
        let step = &experience.profile.steps["RECO"];
        (step.wall_sec_per_event, step.rss_mb, step.threads)
    }

    #[test]
    fn work_units_are_weighted_by_their_jobs() {
        let units = [unit(1, 8, 9.0, 900.0), unit(10, 8, 2.0, 200.0), unit(3, 8, 1.0, 100.0)];
        let found = RequestMeasurements::default().with_units(1, &units);
        assert_eq!((found.profile.round, found.profile.jobs_sampled, reco(&found)), (1, 14, (2.0, 200.0, 8)));
    }

    #[test]
    fn rounds_are_weighted_by_their_jobs() {
        let first = RequestMeasurements::default().with_units(1, &[unit(30, 8, 1.0, 1000.0)]);
        let both = first.clone().with_units(2, &[unit(10, 8, 2.0, 2000.0)]);
        assert_eq!((both.profile.round, both.profile.jobs_sampled, reco(&both)), (2, 40, (1.25, 1250.0, 8)));
        let other = first.clone().with_units(2, &[unit(10, 4, 2.0, 700.0)]);
        assert_eq!(reco(&other), (2.0, 700.0, 4), "the latest layout is shown");
        let threads: Vec<u32> = other.known["RECO"].points.iter().map(|point| point.threads).collect();
        assert_eq!(threads, [8, 4], "and both are kept");
        let unchanged = first.clone().with_units(2, &[]);
        assert_eq!(reco(&unchanged), reco(&first));
    }

    /// Jobs of a second or less often have no measured memory and time.
    #[test]
    fn missing_measurements_are_not_zero() {
        let known = RequestMeasurements::default().with_units(1, &[unit(10, 8, 1.0, 1000.0)]);
        let nothing = known.clone().with_units(2, &[unit(30, 8, 0.0, 0.0)]);
        assert_eq!(reco(&nothing), (1.0, 1000.0, 8));
        let at_last = RequestMeasurements::default()
            .with_units(1, &[unit(30, 8, 0.0, 0.0)])
            .with_units(2, &[unit(2, 8, 1.0, 1000.0)]);
        assert_eq!(reco(&at_last), (1.0, 1000.0, 8));
    }

    #[test]
    fn cgroup_memory_precedes_rss() {
        let mut measured_both = unit(2, 1, 1.0, 100.0);
        let step = measured_both.steps.get_mut("RECO").unwrap();
        step.cgroup_memory_mb = SampleStatistics::from_values([300.0]);
        assert_eq!(reco(&RequestMeasurements::default().with_units(1, &[measured_both])), (1.0, 300.0, 1));
    }

    #[test]
    fn measurements_are_per_instance() {
        let mut split = unit(4, 2, 0.5, 900.0);
        let step = split.steps.get_mut("RECO").unwrap();
        (step.instances, step.cgroup_memory_mb) = (4, SampleStatistics::from_values([4000.0]));
        let found = RequestMeasurements::default().with_units(1, &[split]);
        assert_eq!(reco(&found), (2.0, 1000.0, 2));
    }

    #[test]
    fn thread_probes_are_separate_points() {
        let mut probed = unit(9, 8, 1.0, 3000.0);
        let probe = StepSummary { instances: 2, ..summary(1, 4, 0.7, 2000.0) };
        probed.others.insert("RECO".to_owned(), vec![probe]);
        let found = RequestMeasurements::default().with_units(1, &[probed]);
        assert_eq!(reco(&found), (1.0, 3000.0, 8), "the layout of most jobs");
        let points: Vec<_> =
            found.known["RECO"].points.iter().map(|p| (p.threads, p.samples, p.rss_mb)).collect();
        assert_eq!(points, [(4, 1, 2000.0), (8, 9, 3000.0)]);
    }

    #[test]
    fn wall_time_is_per_event_read_by_the_first_step() {
        let mut filtered = unit(5, 1, 1.0, 100.0);
        let mut reco = filtered.steps["RECO"].clone();
        reco.totals = StepTotals { events_read: 10, ..StepTotals::default() };
        filtered.steps.insert("RECO".to_owned(), reco.clone());
        reco.totals.events_read = 100;
        filtered.steps.insert("GEN".to_owned(), reco);
        let found = RequestMeasurements::default().with_units(1, &[filtered]);
        let wall = |name: &str| found.profile.steps[name].wall_sec_per_event;
        assert_eq!((wall("GEN"), wall("RECO")), (1.0, 0.1));
    }

    #[test]
    fn measurements_round_trip_as_metrics_json() {
        let units = [WorkUnitMetrics { events_in: 100, output_bytes: 51_200, ..unit(3, 4, 1.0, 700.0) }];
        let found = RequestMeasurements::default().with_units(2, &units);
        assert_eq!((found.kb_per_event, found.events_sized), (0.5, 100));
        let text = serde_json::to_value(&found).unwrap();
        assert_eq!((&text["round"], &text["jobs_sampled"]), (&2.into(), &3.into()));
        assert_eq!(text["steps"]["RECO"]["rss_mb"], 700.0);
        assert_eq!(RequestMeasurements::from_metrics(&text), Some(found));
        let old =
            serde_json::json!({"round": 1, "jobs_sampled": 4, "steps": {"A": {"rss_mb": 5.0, "threads": 2}}});
        let old = RequestMeasurements::from_metrics(&old).unwrap();
        assert_eq!((old.profile.jobs_sampled, old.known["A"].points[0].rss_mb), (4, 5.0));
        assert_eq!(RequestMeasurements::from_metrics(&serde_json::json!({"a": 1})), None);
    }

    #[test]
    fn number_of_remembered_rounds_is_bounded() {
        let mut all = RequestMeasurements::default();
        for round in 0..100 {
            all.record_round(RoundRecord { round, ..RoundRecord::default() });
        }
        let rounds: Vec<u32> = all.rounds.iter().map(|record| record.round).collect();
        assert_eq!((rounds.len(), rounds[0], rounds[1], rounds[39]), (40, 0, 61, 99));
        all.record_round(RoundRecord { round: 98, ..RoundRecord::default() });
        assert_eq!(all.rounds.last().unwrap().round, 98, "a round planned again replaces its record");
    }
}
