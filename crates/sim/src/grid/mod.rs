//! Backends: the runs that were handed to them, as far as the lifecycle can see them.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what there is: workflows, units, nodes |
//! | `runs.rs` | handing over, stopping, pausing, looking |
//! | `units.rs` | units land, their nodes run one after the other, and are over |
//! | `fate.rs` | what becomes of an attempt |

mod fate;
mod runs;
mod units;

use crate::dice::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::handlers::Handler;
use windlass_core::plan::Plan;
use windlass_core::requests::failures::ByRole;
use windlass_types::requests::{NodeRole, UnitStatus};
use windlass_types::{FailureClass, Resources, Timestamp};

/// A node of a unit. `life`: what was meant for an earlier life of the unit does not reach it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub(crate) workflow: usize,
    pub(crate) unit: u32,
    pub(crate) node: u32,
    pub(crate) life: u32,
}

#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) workflows: Vec<Workflow>,
    /// By the directory that all runs of a round have in common.
    directories: BTreeMap<String, usize>,
    /// Runs of which somebody was told that they do not run and will not.
    renounced: BTreeSet<String>,
    attempts: u64,
    /// The schedd of HTCondor answers.
    pub(crate) is_schedd_up: bool,
    dice: Dice,
}

impl Grid {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            workflows: Vec::new(),
            directories: BTreeMap::new(),
            renounced: BTreeSet::new(),
            attempts: 0,
            is_schedd_up: true,
            dice: Dice::of(seed, "grid"),
        }
    }

    pub(crate) const fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(crate) fn workflow(&self, directory: &str) -> Option<&Workflow> {
        self.directories.get(directory).map(|&at| &self.workflows[at])
    }

    fn node(&mut self, id: NodeId) -> Option<&mut Node> {
        let unit = self.unit(id)?;
        unit.nodes.get_mut(id.node as usize)
    }

    /// `None`: its time is over.
    fn unit(&mut self, id: NodeId) -> Option<&mut Unit> {
        let unit = self.workflows.get_mut(id.workflow)?.units.get_mut(id.unit as usize)?;
        (unit.life == id.life).then_some(unit)
    }
}

/// What a backend has of a round: one run after the other.
#[derive(Debug)]
pub(crate) struct Workflow {
    pub(crate) request: String,
    pub(crate) round: u32,
    pub(crate) is_condor: bool,
    pub(crate) plan: Arc<Plan>,
    handlers: BTreeMap<NodeRole, Handler>,
    /// Sites where nothing more of it begins.
    pub(crate) closed: BTreeSet<String>,
    pub(crate) is_paused: bool,
    /// The run that is under way.
    pub(crate) live: Option<String>,
    /// All that there were, in order.
    runs: Vec<String>,
    pub(crate) units: Vec<Unit>,
    /// (unit, status), in the order in which it happened; its place is its `seq`.
    told: Vec<(u32, UnitStatus)>,
    /// In the order in which they failed; their place is their `seq`.
    failed: Vec<FailedAttempt>,
    /// Attempts that ended, by site.
    ended: BTreeMap<String, ByRole>,
}

impl Workflow {
    pub(crate) fn count(&self, status: UnitStatus) -> u32 {
        self.units.iter().filter(|unit| unit.status == status).count() as u32
    }

    pub(crate) fn completed(&self) -> impl Iterator<Item = u32> {
        let done = self.units.iter().zip(0..).filter(|(unit, _)| unit.status == UnitStatus::Completed);
        done.map(|(_, number)| number)
    }
}

#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) status: UnitStatus,
    life: u32,
    site: Option<usize>,
    landings: u32,
    /// The processing nodes, and the merge after them.
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    state: NodeState,
    /// Attempts of this run.
    used: u32,
    /// Over all runs.
    attempts: u32,
    asked: Resources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
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
pub(crate) struct FailedAttempt {
    pub(crate) unit: u32,
    pub(crate) node: String,
    pub(crate) role: NodeRole,
    pub(crate) attempt: u32,
    pub(crate) site: Option<String>,
    pub(crate) failure: Failure,
    pub(crate) is_final: bool,
    pub(crate) at: Timestamp,
}

/// How an attempt fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) class: FailureClass,
    pub(crate) code: i32,
    pub(crate) message: &'static str,
    pub(crate) bad_files: Vec<String>,
    pub(crate) memory_mb: Option<u64>,
}
