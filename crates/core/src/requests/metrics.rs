//! What the jobs of a round have used becomes what the next one is planned by.

use std::collections::BTreeMap;
use windlass_types::payload::{StepProfile, StepSummary, StepTuning, UnitMetrics};

/// What is known once these units of a round are measured: medians over their jobs, and what earlier rounds had found,
/// each for as much as it has jobs. `round` is that which is planned by it. `None`: nothing was ever measured.
pub fn measured(before: Option<&StepProfile>, round: u32, units: &[UnitMetrics]) -> Option<StepProfile> {
    let sampled: u64 = units.iter().map(|unit| unit.jobs_sampled).sum();
    if sampled == 0 {
        return before.cloned();
    }
    let mut by_step: BTreeMap<&str, Vec<&StepSummary>> = BTreeMap::new();
    for (name, summary) in units.iter().flat_map(|unit| &unit.steps).filter(|(_, one)| one.samples > 0) {
        by_step.entry(name).or_default().push(summary);
    }
    let known = before.map_or(0, |before| before.jobs_sampled);
    let mut steps = before.map(|before| before.steps.clone()).unwrap_or_default();
    for (name, summaries) in by_step {
        let now = tuning(&summaries);
        let step = steps.entry(name.to_owned()).or_insert(now);
        // With another number of threads it is another thing.
        *step = if step.threads == now.threads { blend(step, known, &now, sampled) } else { now };
    }
    Some(StepProfile { round, jobs_sampled: known + sampled, steps })
}

/// Of all units of a round. Memory is what the kernel counted, where it was asked.
fn tuning(of: &[&StepSummary]) -> StepTuning {
    let of_all = |value: fn(&StepSummary) -> f64| median(of.iter().map(|one| (value(one), one.samples)));
    let memory = |one: &StepSummary| one.cgroup_memory_mb.unwrap_or(one.peak_rss_mb).median;
    StepTuning {
        cpu_efficiency: of_all(|one| one.cpu_efficiency.median),
        rss_mb: of_all(memory),
        wall_sec_per_event: of_all(|one| one.time_per_event_sec.median),
        threads: of.last().map_or(0, |one| one.threads),
        run_threads: None,
        instances: None,
    }
}

/// The value at which half of all jobs is reached.
fn median(values: impl Iterator<Item = (f64, u64)>) -> f64 {
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

/// Both, each for as much as it has jobs. How the step is to be run stays as it was.
fn blend(before: &StepTuning, known: u64, now: &StepTuning, sampled: u64) -> StepTuning {
    let (known, sampled) = (known as f64, sampled as f64);
    let mean = |a: f64, b: f64| (a * known + b * sampled) / (known + sampled);
    StepTuning {
        cpu_efficiency: mean(before.cpu_efficiency, now.cpu_efficiency),
        rss_mb: mean(before.rss_mb, now.rss_mb),
        wall_sec_per_event: mean(before.wall_sec_per_event, now.wall_sec_per_event),
        ..*before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::payload::Spread;

    fn unit(jobs: u64, threads: u32, time_per_event: f64, rss: f64) -> UnitMetrics {
        let all = |value| Spread { min: value, max: value, mean: value, median: value };
        let summary = StepSummary {
            threads,
            samples: jobs,
            time_per_event_sec: all(time_per_event),
            peak_rss_mb: all(rss),
            cpu_efficiency: all(0.5),
            ..StepSummary::default()
        };
        let steps = [("RECO".to_owned(), summary)].into();
        UnitMetrics { jobs_sampled: jobs, steps, ..UnitMetrics::default() }
    }

    fn reco(profile: &StepProfile) -> (f64, f64, u32) {
        let step = &profile.steps["RECO"];
        (step.wall_sec_per_event, step.rss_mb, step.threads)
    }

    #[test]
    fn a_unit_counts_for_as_much_as_it_has_jobs() {
        let units = [unit(1, 8, 9.0, 900.0), unit(10, 8, 2.0, 200.0), unit(3, 8, 1.0, 100.0)];
        let found = measured(None, 1, &units).unwrap();
        assert_eq!((found.round, found.jobs_sampled, reco(&found)), (1, 14, (2.0, 200.0, 8)));
    }

    #[test]
    fn rounds_are_weighed_by_their_jobs() {
        let first = measured(None, 1, &[unit(30, 8, 1.0, 1000.0)]).unwrap();
        let both = measured(Some(&first), 2, &[unit(10, 8, 2.0, 2000.0)]).unwrap();
        assert_eq!((both.round, both.jobs_sampled, reco(&both)), (2, 40, (1.25, 1250.0, 8)));
        let other = measured(Some(&first), 2, &[unit(10, 4, 2.0, 700.0)]).unwrap();
        assert_eq!(reco(&other), (2.0, 700.0, 4), "with other threads only the new ones say something");
        assert_eq!(measured(Some(&first), 2, &[]), Some(first));
        assert_eq!(measured(None, 1, &[UnitMetrics::default()]), None);
    }

    #[test]
    fn what_the_kernel_counted_is_believed_first() {
        let mut measured_both = unit(2, 1, 1.0, 100.0);
        let step = measured_both.steps.get_mut("RECO").unwrap();
        step.cgroup_memory_mb = Spread::of([300.0]);
        assert_eq!(reco(&measured(None, 1, &[measured_both]).unwrap()), (1.0, 300.0, 1));
    }
}
