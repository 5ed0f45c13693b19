//! Counters and the outcome of a simulation.

use crate::invariants::InvariantViolation;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::requests::rows::{RequestRunCause, RunRow};
use windlass_types::requests::RequestStatus;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulationStatistics {
    pub rounds: u64,
    /// Automatic rescues.
    pub rescues: u64,
    pub stops: u64,
    pub bans: u64,
    /// Bans of single requests that were promoted to all.
    pub promotions: u64,
    pub holds: u64,
    pub crashes: u64,
    pub attempts: u64,
    pub decisions: u64,
    /// Actions of people by type.
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

/// The outcome of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationOutcome {
    pub seed: u64,
    pub final_statuses: BTreeMap<RequestStatus, u64>,
    pub statistics: SimulationStatistics,
    pub violations: Vec<InvariantViolation>,
    /// Complete history of the selected request.
    pub history: Vec<String>,
    pub simulated: Duration,
    /// Digest of all events: equal simulations have equal digests.
    pub digest: u64,
}
