//! Backends: the runs that were handed to them, as far as the lifecycle can see them.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what there is: workflows, units, nodes |
//! | `runs.rs` | handing over, stopping, pausing, looking |
//! | `units.rs` | units land, their nodes run one after the other, and are over |
//! | `fate.rs` | what becomes of an attempt |

mod attempt_fate;
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

/// A node of a unit. `life`: what was meant for an earlier life of the unit does not reach it any more.
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
    /// By the directory that all runs of a round have in common.
    directories: BTreeMap<String, usize>,
    /// Runs of which somebody was told that they do not run and will not.
    renounced_runs: BTreeSet<String>,
    attempts: u64,
    /// The schedd of HTCondor answers.
    pub(crate) is_schedd_up: bool,
    dice: SeededRandom,
}

impl SimulatedBackends {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            workflows: Vec::new(),
            directories: BTreeMap::new(),
            renounced_runs: BTreeSet::new(),
            attempts: 0,
            is_schedd_up: true,
            dice: SeededRandom::for_part(seed, "grid"),
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

    /// `None`: its time is over.
    fn unit(&mut self, id: SimulatedNodeId) -> Option<&mut SimulatedUnit> {
        let unit = self.workflows.get_mut(id.workflow)?.units.get_mut(id.unit as usize)?;
        (unit.generation == id.generation).then_some(unit)
    }
}

/// What a backend has of a round: one run after the other.
#[derive(Debug)]
pub(crate) struct SimulatedWorkflow {
    pub(crate) request: String,
    pub(crate) round: u32,
    pub(crate) is_condor: bool,
    pub(crate) plan: Arc<RoundPlan>,
    handlers: BTreeMap<NodeRole, CompiledHandler>,
    /// Sites where nothing more of it begins.
    pub(crate) closed_sites: BTreeSet<String>,
    pub(crate) is_paused: bool,
    /// The run that is under way.
    pub(crate) active_run: Option<String>,
    /// All that there were, in order.
    runs: Vec<String>,
    pub(crate) units: Vec<SimulatedUnit>,
    /// (unit, status), in the order in which it happened; its place is its `seq`.
    unit_events: Vec<(u32, RequestUnitStatus)>,
    /// In the order in which they failed; their place is their `seq`.
    failed_attempts: Vec<SimulatedFailedAttempt>,
    /// Attempts that ended, by site.
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
    /// The processing nodes, and the merge after them.
    nodes: Vec<SimulatedNode>,
}

#[derive(Debug)]
struct SimulatedNode {
    state: SimulatedNodeState,
    /// Attempts of this run.
    attempts_in_run: u32,
    /// Over all runs.
    attempts: u32,
    requested: Resources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedNodeState {
    Idle,
    /// Waits for a slot.
    Queued,
    Running(u64),
    CoolingOff,
    Done,
    Failed,
}

/// An attempt that failed, with all that is told of it.
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

/// How an attempt fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SimulatedAttemptFailure {
    pub(crate) class: FailureClass,
    pub(crate) code: i32,
    pub(crate) message: &'static str,
    pub(crate) bad_files: Vec<String>,
    pub(crate) memory_mb: Option<u64>,
}
