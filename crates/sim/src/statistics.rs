//! What is counted, and what is told of a world that has ended.

use crate::invariants::InvariantViolation;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::requests::rows::{RequestRunCause, RunRow};
use windlass_types::requests::RequestStatus;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulationStatistics {
    pub rounds: u64,
    /// Runs that go on after failures, by themselves.
    pub rescues: u64,
    pub stops: u64,
    pub bans: u64,
    /// Bans of single requests that became one for all.
    pub promotions: u64,
    pub holds: u64,
    pub crashes: u64,
    pub attempts: u64,
    pub decisions: u64,
    /// What people did, by what it was.
    pub operator_actions: BTreeMap<String, u64>,
    /// By kind.
    pub alerts: BTreeMap<String, u64>,
}

impl SimulationStatistics {
    pub(crate) fn record_run(&mut self, run: &RunRow) {
        match run.cause {
            RequestRunCause::First => self.rounds += 1,
            RequestRunCause::Failure => self.rescues += 1,
            RequestRunCause::Stop => self.stops += 1,
            RequestRunCause::Person => {}
        }
    }
}

/// What became of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationOutcome {
    pub seed: u64,
    pub final_statuses: BTreeMap<RequestStatus, u64>,
    pub statistics: SimulationStatistics,
    pub violations: Vec<InvariantViolation>,
    /// Of the request that everything was to be told of.
    pub history: Vec<String>,
    pub simulated: Duration,
    /// Of all that happened: two worlds that are the same have the same one.
    pub digest: u64,
}
