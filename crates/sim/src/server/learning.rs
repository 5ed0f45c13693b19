//! What the jobs of a round used, as the next one is planned by it; gathered by the functions of production.

use crate::sim::Sim;
use windlass_core::adaptive::Experience;
use windlass_core::requests::book::{Process, RunRow};
use windlass_types::payload::{Spread, StepSummary, UnitMetrics};

impl Sim {
    /// All that is known before a round is planned. The same round once more finds the same.
    pub(super) fn experience(&self, process: &Process, last: Option<&RunRow>, round: u32) -> Experience {
        let before = process.step_metrics.as_ref().and_then(Experience::remembered).unwrap_or_default();
        match last.filter(|run| run.round < round) {
            Some(run) => {
                let units = self.unit_metrics(run);
                before.measured(run.round, &units).with(round, &units)
            }
            None => before,
        }
    }

    /// What the completed units of a round have measured: the truth, as far as jobs can see it.
    fn unit_metrics(&self, run: &RunRow) -> Vec<UnitMetrics> {
        let Some(workflow) = self.grid.workflow(&run.submit_dir) else { return Vec::new() };
        let truth = &self.truths[&workflow.request];
        let cores = workflow.plan.resources.cores;
        let all = |value: f64| Spread { min: value, max: value, mean: value, median: value };
        let of_unit = |number: u32| {
            let unit = workflow.plan.unit(number)?;
            let samples = u64::from(unit.len());
            let summary = StepSummary {
                threads: cores,
                samples,
                cpu_efficiency: all(0.8),
                peak_rss_mb: all(truth.wish.memory_per_core * f64::from(cores)),
                time_per_event_sec: all(truth.time_hint * truth.wish.time_factor),
                ..StepSummary::default()
            };
            let steps = [("RECO".to_owned(), summary)].into();
            let events_in = unit.events();
            Some(UnitMetrics { jobs_sampled: samples, steps, events_in, ..UnitMetrics::default() })
        };
        workflow.completed().filter_map(of_unit).collect()
    }
}
