//! The metrics of a unit from those of its nodes. Pure.

use std::collections::BTreeMap;
use windlass_types::payload::{NodeReport, Spread, StepMetrics, StepSummary, Totals};

/// By the names of the steps: numbers mean one thing to whoever counts from 0 and another to whoever counts from 1.
pub fn summarize<'a>(reports: impl IntoIterator<Item = &'a NodeReport>) -> BTreeMap<String, StepSummary> {
    let mut by_step: BTreeMap<&str, Vec<&StepMetrics>> = BTreeMap::new();
    for metrics in reports.into_iter().flat_map(|report| &report.steps) {
        by_step.entry(&metrics.step).or_default().push(metrics);
    }
    by_step.into_iter().map(|(step, samples)| (step.to_owned(), summary(&samples))).collect()
}

fn summary(samples: &[&StepMetrics]) -> StepSummary {
    let spread = |value: fn(&StepMetrics) -> f64| {
        Spread::of(samples.iter().map(|sample| value(sample))).unwrap_or_default()
    };
    let sum = |value: fn(&StepMetrics) -> f64| samples.iter().map(|sample| value(sample)).sum();
    StepSummary {
        threads: samples.iter().map(|sample| sample.threads).max().unwrap_or(0),
        samples: samples.len() as u64,
        wall_sec: spread(|s| s.wall_sec),
        cpu_sec: spread(|s| s.cpu_sec),
        cpu_efficiency: spread(|s| s.cpu_efficiency),
        peak_rss_mb: spread(|s| s.peak_rss_mb),
        cgroup_memory_mb: Spread::of(samples.iter().filter_map(|sample| sample.cgroup_memory_mb)),
        time_per_event_sec: spread(|s| s.time_per_event_sec),
        read_mb: spread(|s| s.read_mb),
        write_mb: spread(|s| s.write_mb),
        events_read: spread(|s| s.events_read as f64),
        events_written: spread(|s| s.events_written as f64),
        totals: Totals {
            wall_sec: sum(|s| s.wall_sec),
            cpu_sec: sum(|s| s.cpu_sec),
            events_read: samples.iter().map(|sample| sample.events_read).sum(),
            events_written: samples.iter().map(|sample| sample.events_written).sum(),
            read_mb: sum(|s| s.read_mb),
            write_mb: sum(|s| s.write_mb),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_summed_by_name() {
        let report = |wall: f64, events: u64| NodeReport {
            steps: ["GEN", "RECO"]
                .map(|step| StepMetrics {
                    step: step.to_owned(),
                    threads: 4,
                    wall_sec: wall,
                    events_written: events,
                    ..StepMetrics::default()
                })
                .into(),
            ..NodeReport::default()
        };
        let steps = summarize(&[report(1.0, 10), report(3.0, 20), report(8.0, 30)]);
        assert_eq!(steps.keys().collect::<Vec<_>>(), ["GEN", "RECO"]);
        let reco = &steps["RECO"];
        assert_eq!((reco.samples, reco.threads, reco.totals.events_written), (3, 4, 60));
        assert_eq!((reco.wall_sec.min, reco.wall_sec.max), (1.0, 8.0));
        assert_eq!((reco.wall_sec.mean, reco.wall_sec.median), (4.0, 3.0));
        assert_eq!(reco.cgroup_memory_mb, None);
    }
}
