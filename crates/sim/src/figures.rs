//! What is counted, and what is told of a world that has ended.

use crate::watch::Violation;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::requests::book::{RunCause, RunRow};
use windlass_types::requests::RequestStatus;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
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
    pub acts: BTreeMap<String, u64>,
    /// By kind.
    pub alerts: BTreeMap<String, u64>,
}

impl Figures {
    pub(crate) fn note_run(&mut self, run: &RunRow) {
        match run.cause {
            RunCause::First => self.rounds += 1,
            RunCause::Failure => self.rescues += 1,
            RunCause::Stop => self.stops += 1,
            RunCause::Person => {}
        }
    }
}

/// What became of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub seed: u64,
    pub ends: BTreeMap<RequestStatus, u64>,
    pub figures: Figures,
    pub violations: Vec<Violation>,
    /// Of the request that everything was to be told of.
    pub story: Vec<String>,
    pub simulated: Duration,
    /// Of all that happened: two worlds that are the same have the same one.
    pub digest: u64,
}
