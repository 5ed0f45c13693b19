//! The metrics of a unit from those of its nodes. Pure.

use std::collections::BTreeMap;
use windlass_types::payload::{
    ProcessingReport, SampleStatistics, StepMetrics, StepSummary, StepTotals, WorkUnitMetrics,
};

/// Summaries by the names of the steps, because numbers are ambiguous between counting from 0 and from 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepSummaries {
    /// With the settings of most jobs.
    pub usual: BTreeMap<String, StepSummary>,
    /// Jobs with other settings (threads, instances), which are not mixed in.
    pub others: BTreeMap<String, Vec<StepSummary>>,
}

/// The resources that the nodes of a unit used.
pub fn unit_metrics(request: &str, unit: &str, site: &str, reports: &[ProcessingReport]) -> WorkUnitMetrics {
    let StepSummaries { usual, others } = summarize_steps(reports);
    // The first step reads all inputs, before any filter.
    let first = reports.iter().filter_map(|report| report.steps.first());
    WorkUnitMetrics {
        request: request.to_owned(),
        unit: unit.to_owned(),
        site: site.to_owned(),
        jobs_sampled: reports.len() as u64,
        events_in: first.map(|step| step.events_read).sum(),
        output_bytes: reports.iter().flat_map(|report| &report.outputs).map(|file| file.size).sum(),
        steps: usual,
        others,
    }
}

pub fn summarize_steps<'a>(reports: impl IntoIterator<Item = &'a ProcessingReport>) -> StepSummaries {
    let mut by_step: BTreeMap<&str, BTreeMap<(u32, u32), Vec<&StepMetrics>>> = BTreeMap::new();
    for metrics in reports.into_iter().flat_map(|report| &report.steps) {
        let way = (metrics.threads, metrics.instances.max(1));
        by_step.entry(&metrics.step).or_default().entry(way).or_default().push(metrics);
    }
    let mut summaries = StepSummaries::default();
    for (step, ways) in by_step {
        let mut ways: Vec<StepSummary> = ways.values().map(|samples| summarize_samples(samples)).collect();
        // With equal numbers of jobs, the setting with more threads: probes try fewer.
        ways.sort_by_key(|way| (way.samples, way.threads));
        if let Some(usual) = ways.pop() {
            summaries.usual.insert(step.to_owned(), usual);
        }
        if !ways.is_empty() {
            summaries.others.insert(step.to_owned(), ways);
        }
    }
    summaries
}

fn summarize_samples(samples: &[&StepMetrics]) -> StepSummary {
    let spread = |value: fn(&StepMetrics) -> f64| {
        SampleStatistics::from_values(samples.iter().map(|sample| value(sample))).unwrap_or_default()
    };
    let sum = |value: fn(&StepMetrics) -> f64| samples.iter().map(|sample| value(sample)).sum();
    StepSummary {
        threads: samples.first().map_or(0, |sample| sample.threads),
        instances: samples.first().map_or(1, |sample| sample.instances.max(1)),
        can_split: samples.iter().any(|sample| sample.can_split),
        samples: samples.len() as u64,
        wall_sec: spread(|s| s.wall_sec),
        cpu_sec: spread(|s| s.cpu_sec),
        cpu_efficiency: spread(|s| s.cpu_efficiency),
        peak_rss_mb: spread(|s| s.peak_rss_mb),
        cgroup_memory_mb: SampleStatistics::from_values(
            samples.iter().filter_map(|sample| sample.cgroup_memory_mb),
        ),
        time_per_event_sec: spread(|s| s.time_per_event_sec),
        read_mb: spread(|s| s.read_mb),
        write_mb: spread(|s| s.write_mb),
        events_read: spread(|s| s.events_read as f64),
        events_written: spread(|s| s.events_written as f64),
        totals: StepTotals {
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
    fn step_metrics_are_summed_by_name() {
        let report = |wall: f64, events: u64| ProcessingReport {
            steps: ["GEN", "RECO"]
                .map(|step| StepMetrics {
                    step: step.to_owned(),
                    threads: 4,
                    wall_sec: wall,
                    events_written: events,
                    ..StepMetrics::default()
                })
                .into(),
            ..ProcessingReport::default()
        };
        let StepSummaries { usual: steps, others } =
            summarize_steps(&[report(1.0, 10), report(3.0, 20), report(8.0, 30)]);
        assert!(others.is_empty());
        assert_eq!(steps.keys().collect::<Vec<_>>(), ["GEN", "RECO"]);
        let reco = &steps["RECO"];
        assert_eq!((reco.samples, reco.threads, reco.totals.events_written), (3, 4, 60));
        assert_eq!((reco.wall_sec.min, reco.wall_sec.max), (1.0, 8.0));
        assert_eq!((reco.wall_sec.mean, reco.wall_sec.median), (4.0, 3.0));
        assert_eq!(reco.cgroup_memory_mb, None);
    }
    #[test]
    fn probe_metrics_are_kept_separate() {
        let report = |threads: u32, instances: u32, wall_sec: f64| ProcessingReport {
            steps: vec![StepMetrics {
                step: "RECO".to_owned(),
                threads,
                instances,
                wall_sec,
                ..StepMetrics::default()
            }],
            ..ProcessingReport::default()
        };
        let found = summarize_steps(&[report(8, 1, 1.0), report(8, 0, 3.0), report(4, 2, 9.0)]);
        let usual = &found.usual["RECO"];
        assert_eq!((usual.threads, usual.samples, usual.wall_sec.max), (8, 2, 3.0));
        let probe = &found.others["RECO"][0];
        assert_eq!((probe.threads, probe.instances, probe.samples), (4, 2, 1));
        // A probe that is alone in its unit does not show the usual setting.
        let found = summarize_steps(&[report(4, 2, 9.0), report(8, 1, 1.0)]);
        assert_eq!(found.usual["RECO"].threads, 8);
    }
}
