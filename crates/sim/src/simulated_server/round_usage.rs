//! The resource usage of the jobs of a round, as input for planning the next one; collected by the functions of
//! production.

use crate::simulation::RequestSimulation;
use windlass_core::adaptive::RequestMeasurements;
use windlass_core::requests::rows::{RequestProgress, RunRow};
use windlass_types::payload::{SampleStatistics, StepSummary, WorkUnitMetrics};

impl RequestSimulation {
    /// Returns everything known before a round is planned. Planning the same round again gives the same result.
    pub(super) fn load_experience(
        &self,
        process: &RequestProgress,
        last: Option<&RunRow>,
        round: u32,
    ) -> RequestMeasurements {
        let before =
            process.step_metrics.as_ref().and_then(RequestMeasurements::from_metrics).unwrap_or_default();
        match last.filter(|run| run.round < round) {
            Some(run) => {
                let units = self.load_unit_metrics(run);
                before.with_round_measurement(run.round, &units).with_units(round, &units)
            }
            None => before,
        }
    }

    /// Returns the measurements of the completed units of a round: the true values, as far as jobs can measure
    /// them.
    fn load_unit_metrics(&self, run: &RunRow) -> Vec<WorkUnitMetrics> {
        let Some(workflow) = self.backends.workflow(&run.submit_dir) else { return Vec::new() };
        let truth = &self.request_facts[&workflow.request];
        let cores = workflow.plan.resources.cores;
        let all = |value: f64| SampleStatistics { min: value, max: value, mean: value, median: value };
        let of_unit = |number: u32| {
            let unit = workflow.plan.unit(number)?;
            let samples = u64::from(unit.len());
            let summary = StepSummary {
                threads: cores,
                samples,
                cpu_efficiency: all(0.8),
                peak_rss_mb: all(truth.truth.memory_per_core * f64::from(cores)),
                time_per_event_sec: all(truth.time_hint * truth.truth.time_factor),
                ..StepSummary::default()
            };
            let steps = [("RECO".to_owned(), summary)].into();
            let events_in = unit.events();
            Some(WorkUnitMetrics { jobs_sampled: samples, steps, events_in, ..WorkUnitMetrics::default() })
        };
        workflow.completed().filter_map(of_unit).collect()
    }
}
