//! Measurements of a request's rounds: stored with its process, and on disk where its jobs left them.

use crate::planned_run_units;
use windlass_core::adaptive::RequestMeasurements;
use windlass_core::requests::rows::{RequestProgress, RunRow};

fn stored_experience(process: &RequestProgress) -> RequestMeasurements {
    process.step_metrics.as_ref().and_then(RequestMeasurements::from_metrics).unwrap_or_default()
}

/// The measurements for planning a round: the last round from disk, earlier ones from the database. Planning the
/// same round again uses the same.
pub(crate) fn experience_before(
    process: &RequestProgress,
    last: Option<&RunRow>,
    round: u32,
) -> RequestMeasurements {
    let before = stored_experience(process);
    match last.filter(|run| run.round < round) {
        Some(run) => {
            let units = planned_run_units::read_unit_metrics(run);
            before.with_round_measurement(run.round, &units).with_units(round, &units)
        }
        None => before,
    }
}

/// The current measurements, including the completed units of the latest round. Reads a small file for each
/// unit.
pub fn current_experience(process: &RequestProgress, latest: Option<&RunRow>) -> RequestMeasurements {
    let before = stored_experience(process);
    let is_told = |run: &&RunRow| before.rounds.last().is_none_or(|record| record.round == run.round);
    match latest.filter(is_told) {
        Some(run) => {
            let units = planned_run_units::read_unit_metrics(run);
            before.with_round_measurement(run.round, &units).with_units(run.round, &units)
        }
        None => before,
    }
}
