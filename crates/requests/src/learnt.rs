//! What the rounds of a request have found out: remembered with its process, and on disk where its jobs left it.

use crate::outline;
use windlass_core::adaptive::Experience;
use windlass_core::requests::book::{Process, RunRow};

fn remembered(process: &Process) -> Experience {
    process.step_metrics.as_ref().and_then(Experience::remembered).unwrap_or_default()
}

/// What a round is planned by: the last one as it left it on disk, those before it as they are remembered. The plan of the
/// same round once more finds the same.
pub(crate) fn before(process: &Process, last: Option<&RunRow>, round: u32) -> Experience {
    let before = remembered(process);
    match last.filter(|run| run.round < round) {
        Some(run) => {
            let units = outline::unit_metrics(run);
            before.measured(run.round, &units).with(round, &units)
        }
        None => before,
    }
}

/// What is known now, the work units of the latest round included that are completed. Reads a small file for each.
pub fn so_far(process: &Process, latest: Option<&RunRow>) -> Experience {
    let before = remembered(process);
    let is_told = |run: &&RunRow| before.rounds.last().is_none_or(|record| record.round == run.round);
    match latest.filter(is_told) {
        Some(run) => {
            let units = outline::unit_metrics(run);
            before.measured(run.round, &units).with(run.round, &units)
        }
        None => before,
    }
}
