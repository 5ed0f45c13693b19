//! Nodes that fail jobs which others do not: when one is set aside, for how long, and what it takes to be trusted again.
//!
//! A node is compared with all others by what they did of the *same work* lately: a workflow that fails says nothing about
//! the node that happens to run it, nor do jobs that only nodes with certain labels get. For the same reason a failure does
//! not count if the same job failed elsewhere too; nor, if the program or its input is said to be at fault, where that is so
//! elsewhere as well.
//!
//! A node that was set aside gets nothing for a spell. Then it is *on probation*: it is given one job, and what becomes of
//! that decides.

#[cfg(test)]
mod tests;

use crate::classify::NodeFailureCounts;
use crate::dispatch::LocationConstraint;
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::time::Duration;
use windlass_types::worker_messages::AttemptEndCause;
use windlass_types::{FailureClass, JobId, JobStatus, Timestamp, WorkflowId};

/// The first time a node is set aside.
pub const FIRST_QUARANTINE: Duration = Duration::from_mins(10);
/// Each further spell is twice as long as the one before, but no longer than this.
pub const MAX_QUARANTINE: Duration = Duration::from_hours(4);

/// So many attempts of each node are remembered.
const RECENT_ATTEMPTS: usize = 32;
/// Fewer failures than this, or failures of fewer jobs, say nothing.
const MIN_FAILED: u32 = 5;
const MIN_JOBS: usize = 3;
/// Of work of which others have done less than this, nothing is known.
const MIN_COMMON_ATTEMPTS: u32 = 3;
/// Others have to have done this much of all that is compared.
const MIN_PEER_ATTEMPTS: u32 = 10;

/// What nodes have in common: jobs of one workflow that belong to the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComparableWork {
    workflow: WorkflowId,
    location_hash: u64,
}

impl ComparableWork {
    pub fn new(workflow: WorkflowId, place: &LocationConstraint) -> Self {
        Self { workflow, location_hash: FxBuildHasher.hash_one(place) }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAttemptOutcome {
    pub work: ComparableWork,
    pub job: JobId,
    /// `None`: it did not fail.
    pub failure_class: Option<FailureClass>,
}

/// Whether the end of an attempt says anything of its node: not that of one that somebody ended, nor that of one that asked for
/// less than it needs. It would go over its own limits wherever it runs.
pub const fn concerns_node(status: JobStatus, cause: &AttemptEndCause) -> bool {
    matches!(status, JobStatus::Completed | JobStatus::Failed)
        && !matches!(cause, AttemptEndCause::OutOfMemory | AttemptEndCause::Timeout)
}

/// How attempts ended lately, by node. To note one, and to weigh a node, costs the same however many nodes there are.
#[derive(Clone, Debug, Default)]
pub struct NodeRecords {
    nodes: HashMap<String, VecDeque<NodeAttemptOutcome>>,
    totals: HashMap<ComparableWork, WorkTotals>,
    /// How often each job failed, over all nodes.
    failures: HashMap<JobId, u32>,
}

/// What is remembered of one work, over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WorkTotals {
    ended: u32,
    failed: HashMap<FailureClass, u32>,
}

/// What speaks against a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvidence {
    pub failed: u32,
    pub ended: u32,
    pub peers_failed: u32,
    pub peers_ended: u32,
    /// The jobs that failed there.
    pub jobs: Vec<JobId>,
}

/// Whether a node is given jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeStanding {
    #[default]
    Trusted,
    /// It gets none.
    SetAside,
    /// It gets one at a time, until one of them goes well.
    OnProbation,
}

/// What the end of an attempt on a node on probation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    Passed,
    Failed,
    /// The job fails elsewhere too, or was there before.
    Unclear,
}

impl NodeStanding {
    /// Of a node that was set aside until then.
    pub fn from_quarantine(until: Option<Timestamp>, now: Timestamp) -> Self {
        match until {
            None => Self::Trusted,
            Some(until) if now < until => Self::SetAside,
            Some(_) => Self::OnProbation,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::SetAside => "set_aside",
            Self::OnProbation => "on_probation",
        }
    }
}

/// How long a node is set aside that was set aside for so long before.
pub fn quarantine_duration(before: Option<Duration>) -> Duration {
    before.map_or(FIRST_QUARANTINE, |before| before.saturating_mul(2).clamp(FIRST_QUARANTINE, MAX_QUARANTINE))
}

impl NodeRecords {
    pub fn record_attempt(&mut self, node: &str, outcome: NodeAttemptOutcome) {
        if !self.nodes.contains_key(node) {
            self.nodes.insert(node.to_owned(), VecDeque::with_capacity(RECENT_ATTEMPTS));
        }
        let Some(lately) = self.nodes.get_mut(node) else { return };
        let forgotten = if lately.len() < RECENT_ATTEMPTS { None } else { lately.pop_front() };
        lately.push_back(outcome);
        if let Some(forgotten) = forgotten {
            self.remove_attempt(&forgotten);
        }
        let done = self.totals.entry(outcome.work).or_default();
        done.ended += 1;
        if let Some(class) = outcome.failure_class {
            *done.failed.entry(class).or_default() += 1;
            *self.failures.entry(outcome.job).or_default() += 1;
        }
    }

    /// The node begins anew, or is gone.
    pub fn forget_node(&mut self, node: &str) {
        for outcome in self.nodes.remove(node).into_iter().flatten() {
            self.remove_attempt(&outcome);
        }
    }

    fn remove_attempt(&mut self, outcome: &NodeAttemptOutcome) {
        if let Some(done) = self.totals.get_mut(&outcome.work) {
            done.ended -= 1;
            if let Some(class) = outcome.failure_class {
                decrement_count(&mut done.failed, &class);
            }
            if done.ended == 0 {
                self.totals.remove(&outcome.work);
            }
        }
        if outcome.failure_class.is_some() {
            decrement_count(&mut self.failures, &outcome.job);
        }
    }

    /// How the node did lately, and how the others did with the same work.
    pub fn failure_counts(&self, node: &str) -> NodeFailureCounts {
        let Some(lately) = self.nodes.get(node) else { return NodeFailureCounts::default() };
        let ended = lately.len() as u32;
        let failed = lately.iter().filter(|outcome| outcome.failure_class.is_some()).count() as u32;
        let works: BTreeSet<ComparableWork> = lately.iter().map(|outcome| outcome.work).collect();
        let (mut all_failed, mut all_ended) = (0, 0);
        for done in works.iter().filter_map(|work| self.totals.get(work)) {
            all_ended += done.ended;
            all_failed += done.failed.values().sum::<u32>();
        }
        NodeFailureCounts { failed, ended, peers_failed: all_failed - failed, peers_ended: all_ended - ended }
    }

    /// What speaks against the node, if it is enough to set it aside. Whether anybody else is there to do its work is for
    /// the caller to know.
    pub fn find_evidence(&self, node: &str) -> Option<NodeEvidence> {
        let lately = self.nodes.get(node)?;
        let mut evidence = NodeEvidence::default();
        let mut jobs = BTreeSet::new();
        let works: BTreeSet<ComparableWork> = lately.iter().map(|outcome| outcome.work).collect();
        for work in works {
            let mine = || lately.iter().filter(move |outcome| outcome.work == work);
            let peers = self.totals.get(&work).map(|done| done.without(mine())).unwrap_or_default();
            if peers.ended < MIN_COMMON_ATTEMPTS {
                continue;
            }
            evidence.peers_ended += peers.ended;
            evidence.peers_failed += peers.failed.values().sum::<u32>();
            for outcome in mine() {
                match outcome.failure_class {
                    Some(class) if self.is_own_fault(outcome.job, class, lately, &peers) => continue,
                    Some(_) => {
                        evidence.failed += 1;
                        jobs.insert(outcome.job);
                    }
                    None => {}
                }
                evidence.ended += 1;
            }
        }
        evidence.jobs = jobs.into_iter().collect();
        evidence.is_sufficient().then_some(evidence)
    }

    /// The job failed elsewhere as well, or others like it do for a reason that is not the node's.
    fn is_own_fault(
        &self,
        job: JobId,
        class: FailureClass,
        here: &VecDeque<NodeAttemptOutcome>,
        peers: &WorkTotals,
    ) -> bool {
        let blames_job = matches!(class, FailureClass::Permanent | FailureClass::Data);
        self.failed_elsewhere(job, here) || (blames_job && peers.failed.contains_key(&class))
    }

    fn failed_elsewhere(&self, job: JobId, here: &VecDeque<NodeAttemptOutcome>) -> bool {
        let failed_here = here.iter().filter(|outcome| outcome.job == job && outcome.failure_class.is_some());
        let everywhere = self.failures.get(&job).copied().unwrap_or_default();
        everywhere as usize > failed_here.count()
    }

    /// What an attempt that ended on a node on probation says of it. Ask before it is noted. `is_probe`: it was given to the
    /// node because of that; what ran there before says nothing of how the node is now.
    pub fn decide_probe(&self, node: &str, outcome: NodeAttemptOutcome, is_probe: bool) -> ProbeResult {
        let nothing = VecDeque::new();
        let here = self.nodes.get(node).unwrap_or(&nothing);
        match outcome.failure_class {
            _ if !is_probe => ProbeResult::Unclear,
            None => ProbeResult::Passed,
            Some(_) if self.failed_elsewhere(outcome.job, here) => ProbeResult::Unclear,
            Some(_) => ProbeResult::Failed,
        }
    }
}

impl WorkTotals {
    /// The same without what one node did.
    fn without<'a>(&self, mine: impl Iterator<Item = &'a NodeAttemptOutcome>) -> Self {
        let mut rest = self.clone();
        for outcome in mine {
            rest.ended -= 1;
            if let Some(class) = outcome.failure_class {
                decrement_count(&mut rest.failed, &class);
            }
        }
        rest
    }
}

fn decrement_count<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl NodeEvidence {
    /// It fails at least half of what it is given, and three times as often as the others would if one more failed there.
    fn is_sufficient(&self) -> bool {
        let [failed, ended, peers_failed, peers_ended] =
            [self.failed, self.ended, self.peers_failed, self.peers_ended].map(u64::from);
        self.failed >= MIN_FAILED
            && self.jobs.len() >= MIN_JOBS
            && self.peers_ended >= MIN_PEER_ATTEMPTS
            && failed * 2 >= ended
            && failed * (peers_ended + 1) >= 3 * (peers_failed + 1) * ended
    }
}

impl std::fmt::Display for NodeEvidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { failed, ended, peers_failed, peers_ended, .. } = self;
        write!(f, "{failed} of its last {ended} attempts failed; {peers_failed} of {peers_ended} elsewhere")
    }
}
