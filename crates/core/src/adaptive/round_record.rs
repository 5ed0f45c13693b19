//! Estimate and measurement of each round, for people who want to check the estimates.

use super::measurements::median;
use super::tuning::{JobTuning, SizingSource};
use serde::{Deserialize, Serialize};
use windlass_types::payload::{StepSummary, WorkUnitMetrics};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundRecord {
    /// Counted from 0.
    pub round: u32,
    pub asked: RoundEstimate,
    /// Absent until some of its work units are completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<RoundMeasurement>,
}

/// The estimate that a round was planned with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundEstimate {
    pub from: SizingSource,
    pub cores: u32,
    /// Memory that a job requests.
    pub memory_mb: u64,
    /// Memory that a job was expected to use.
    pub expected_memory_mb: f64,
    pub time_per_event_sec: f64,
    /// The planned number; where jobs are not split by events, that of the largest job.
    pub events_per_job: u64,
    pub units: u32,
    pub jobs: u64,
    pub events: u64,
}

/// Usage of its jobs: medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundMeasurement {
    pub jobs: u64,
    pub memory_mb: f64,
    pub time_per_event_sec: f64,
    /// CPU time divided by the time of all requested cores.
    pub cpu_efficiency: f64,
    pub events_per_job: f64,
    pub events_per_core_hour: f64,
}

impl RoundEstimate {
    /// Builds the estimate of a round; `jobs` are the events of each job.
    pub fn new(decision: &JobTuning, units: u32, jobs: impl Iterator<Item = u64>) -> Self {
        let (mut count, mut events, mut largest) = (0, 0u64, 0);
        for of_job in jobs {
            count += 1;
            events = events.saturating_add(of_job);
            largest = of_job.max(largest);
        }
        Self {
            from: decision.source,
            cores: decision.cores,
            memory_mb: decision.memory_mb,
            expected_memory_mb: decision.expected_mb,
            time_per_event_sec: decision.time_per_event,
            events_per_job: decision.events_per_job.unwrap_or(largest),
            units,
            jobs: count,
            events,
        }
    }
}

impl RoundMeasurement {
    /// Summarizes the jobs that ran with this number of cores; excludes probe jobs, which have another layout.
    pub fn from_units(units: &[WorkUnitMetrics], cores: u32) -> Option<Self> {
        let jobs: u64 = units.iter().map(|unit| unit.jobs_sampled).sum();
        if jobs == 0 {
            return None;
        }
        let over = |value: &dyn Fn(&WorkUnitMetrics) -> f64| {
            median(units.iter().map(|unit| (value(unit), unit.jobs_sampled)))
        };
        let memory = over(&|unit| unit.steps.values().map(step_memory).fold(0.0, f64::max));
        // The steps of a job run one after another; events are input events.
        let wall = |unit: &WorkUnitMetrics| unit.steps.values().map(|step| step.totals.wall_sec).sum::<f64>();
        let cpu = |unit: &WorkUnitMetrics| unit.steps.values().map(|step| step.totals.cpu_sec).sum::<f64>();
        let each = |total: f64, count: f64| if count > 0.0 { total / count } else { f64::NAN };
        let cores = f64::from(cores.max(1));
        let time = over(&|unit| each(wall(unit), unit_events(unit)));
        Some(Self {
            jobs,
            memory_mb: memory,
            time_per_event_sec: time,
            cpu_efficiency: over(&|unit| each(cpu(unit), wall(unit) * cores)),
            events_per_job: over(&|unit| each(unit_events(unit), unit_samples(unit))),
            events_per_core_hour: if time > 0.0 { 3600.0 / (time * cores) } else { 0.0 },
        })
    }
}

/// Memory of all instances of a step together.
fn step_memory(step: &StepSummary) -> f64 {
    let alone = step.peak_rss_mb.median * f64::from(step.instances.max(1));
    step.cgroup_memory_mb.map_or(alone, |all| all.median)
}

fn unit_events(unit: &WorkUnitMetrics) -> f64 {
    unit.steps.values().map(|step| step.totals.events_read).max().unwrap_or(0) as f64
}

fn unit_samples(unit: &WorkUnitMetrics) -> f64 {
    unit.steps.values().map(|step| step.samples).max().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::payload::{SampleStatistics, StepTotals};

    #[test]
    fn round_record_summarizes_its_jobs() {
        let step = |instances: u32, rss: f64, wall_sec: f64| StepSummary {
            threads: 4,
            instances,
            samples: 10,
            peak_rss_mb: SampleStatistics { median: rss, ..SampleStatistics::default() },
            totals: StepTotals {
                wall_sec,
                cpu_sec: wall_sec * 2.0,
                events_read: 1000,
                ..StepTotals::default()
            },
            ..StepSummary::default()
        };
        let steps = [("A".to_owned(), step(2, 700.0, 300.0)), ("B".to_owned(), step(1, 1000.0, 100.0))];
        let unit = WorkUnitMetrics { jobs_sampled: 10, steps: steps.into(), ..WorkUnitMetrics::default() };
        let found = RoundMeasurement::from_units(&[unit], 8).unwrap();
        assert_eq!((found.jobs, found.memory_mb, found.time_per_event_sec), (10, 1400.0, 0.4));
        assert_eq!((found.cpu_efficiency, found.events_per_job), (0.25, 100.0));
        assert!((found.events_per_core_hour - 1125.0).abs() < 1e-9);
        assert_eq!(RoundMeasurement::from_units(&[], 8), None);
        assert_eq!(RoundMeasurement::from_units(&[WorkUnitMetrics::default()], 8), None);
    }
}
