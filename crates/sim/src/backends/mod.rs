//! Simulated backends: the submitted runs, as visible to the lifecycle.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | workflows, units, nodes |
//! | `runs.rs` | submitting, stopping, pausing and observing runs |
//! | `units.rs` | landing, nodes and end of units |
//! | `attempt_outcome.rs` | the outcomes of attempts |

mod attempt_outcome;
mod runs;
mod units;

use crate::seeded_random::SeededRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::failure_handlers::CompiledHandler;
use windlass_core::requests::failures::RoleCounts;
use windlass_core::round_plan::RoundPlan;
use windlass_types::requests::{NodeRole, RequestUnitStatus};
use windlass_types::{FailureClass, Resources, Timestamp};

/// A node of a unit. Events for an earlier `generation` of the unit are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SimulatedNodeId {
    pub(crate) workflow: usize,
    pub(crate) unit: u32,
    pub(crate) node: u32,
    pub(crate) generation: u32,
}

#[derive(Debug)]
pub(crate) struct SimulatedBackends {
    pub(crate) workflows: Vec<SimulatedWorkflow>,
    /// Workflow indexes by the directory that all runs of a round share.
    directories: BTreeMap<String, usize>,
    /// Runs that were reported as not running; they must not be submitted later.
    abandoned_runs: BTreeSet<String>,
    attempts: u64,
    /// Whether the HTCondor schedd responds.
    pub(crate) is_schedd_up: bool,
    random: SeededRandom,
}

impl SimulatedBackends {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            workflows: Vec::new(),
            directories: BTreeMap::new(),
            abandoned_runs: BTreeSet::new(),
            attempts: 0,
            is_schedd_up: true,
            random: SeededRandom::for_part(seed, "grid"),
        }
    }

    pub(crate) const fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(crate) fn workflow(&self, directory: &str) -> Option<&SimulatedWorkflow> {
        self.directories.get(directory).map(|&at| &self.workflows[at])
    }

    fn node(&mut self, id: SimulatedNodeId) -> Option<&mut SimulatedNode> {
        let unit = self.unit(id)?;
        unit.nodes.get_mut(id.node as usize)
    }

    /// Returns `None` for an earlier generation.
    fn unit(&mut self, id: SimulatedNodeId) -> Option<&mut SimulatedUnit> {
        let unit = self.workflows.get_mut(id.workflow)?.units.get_mut(id.unit as usize)?;
        (unit.generation == id.generation).then_some(unit)
    }
}

/// The workflow of a round on a backend, with one run after the other.
#[derive(Debug)]
pub(crate) struct SimulatedWorkflow {
    pub(crate) request: String,
    pub(crate) round: u32,
    pub(crate) is_condor: bool,
    pub(crate) plan: Arc<RoundPlan>,
    handlers: BTreeMap<NodeRole, CompiledHandler>,
    /// Sites where no more units of it start.
    pub(crate) closed_sites: BTreeSet<String>,
    pub(crate) is_paused: bool,
    /// The active run.
    pub(crate) active_run: Option<String>,
    /// All its runs, in order.
    runs: Vec<String>,
    pub(crate) units: Vec<SimulatedUnit>,
    /// (unit, status), in order of time; the position is the `seq`.
    unit_events: Vec<(u32, RequestUnitStatus)>,
    /// In order of failure; the position is the `seq`.
    failed_attempts: Vec<SimulatedFailedAttempt>,
    /// Ended attempts by site.
    ended_attempts: BTreeMap<String, RoleCounts>,
}

impl SimulatedWorkflow {
    pub(crate) fn count(&self, status: RequestUnitStatus) -> u32 {
        self.units.iter().filter(|unit| unit.status == status).count() as u32
    }

    pub(crate) fn completed(&self) -> impl Iterator<Item = u32> {
        let done = self.units.iter().zip(0..).filter(|(unit, _)| unit.status == RequestUnitStatus::Completed);
        done.map(|(_, number)| number)
    }
}

#[derive(Debug)]
pub(crate) struct SimulatedUnit {
    pub(crate) status: RequestUnitStatus,
    generation: u32,
    site: Option<usize>,
    landings: u32,
    /// The processing nodes, then the merge node.
    nodes: Vec<SimulatedNode>,
}

#[derive(Debug)]
struct SimulatedNode {
    state: SimulatedNodeState,
    /// Attempts in this run.
    attempts_in_run: u32,
    /// In all runs.
    attempts: u32,
    requested: Resources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedNodeState {
    Idle,
    /// Waiting for a slot.
    Queued,
    Running(u64),
    CoolingOff,
    Done,
    Failed,
}

/// A failed attempt with the reported details.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedFailedAttempt {
    pub(crate) unit: u32,
    pub(crate) node: String,
    pub(crate) role: NodeRole,
    pub(crate) attempt: u32,
    pub(crate) site: Option<String>,
    pub(crate) failure: SimulatedAttemptFailure,
    pub(crate) is_final: bool,
    pub(crate) at: Timestamp,
}

/// The failure of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SimulatedAttemptFailure {
    pub(crate) class: FailureClass,
    pub(crate) code: i32,
    pub(crate) message: &'static str,
    pub(crate) bad_files: Vec<String>,
    pub(crate) memory_mb: Option<u64>,
}
