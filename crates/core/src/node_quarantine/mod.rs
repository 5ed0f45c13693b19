//! Node quarantine: when a node that fails jobs is quarantined, for how long, and when it is trusted again.
//!
//! A node is compared with all others by their recent results for the *same work*: a failing workflow does not
//! count against the node that happens to run it, nor do jobs that only nodes with certain labels get. For the
//! same reason a failure does not count if the same job also failed elsewhere; nor do failures attributed to
//! the program or its input, if they occur elsewhere too.
//!
//! A quarantined node gets no jobs for some time. Then it is *on probation*: it gets one job, and the result of
//! that job decides.

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

/// Duration of the first quarantine of a node.
pub const FIRST_QUARANTINE: Duration = Duration::from_mins(10);
/// Each further quarantine is twice as long, up to this limit.
pub const MAX_QUARANTINE: Duration = Duration::from_hours(4);

/// Number of attempts kept for each node.
const RECENT_ATTEMPTS: usize = 32;
/// Fewer failures than this, or failures of fewer jobs, are not sufficient.
const MIN_FAILED: u32 = 5;
const MIN_JOBS: usize = 3;
/// Work with fewer attempts on other nodes is not compared.
const MIN_COMMON_ATTEMPTS: u32 = 3;
/// Minimum number of attempts of other nodes in all compared work.
const MIN_PEER_ATTEMPTS: u32 = 10;

/// Comparable work: jobs of one workflow with the same location constraint.
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

/// Whether the end of an attempt counts for its node. It does not if a user ended it, or if it exceeded its own
/// limits, which would happen on any node.
pub const fn concerns_node(status: JobStatus, cause: &AttemptEndCause) -> bool {
    matches!(status, JobStatus::Completed | JobStatus::Failed)
        && !matches!(cause, AttemptEndCause::OutOfMemory | AttemptEndCause::Timeout)
}

/// Recent attempts by node. Recording and evaluation cost the same however many nodes there are.
#[derive(Clone, Debug, Default)]
pub struct NodeAttemptHistory {
    nodes: HashMap<String, VecDeque<NodeAttemptOutcome>>,
    totals: HashMap<ComparableWork, WorkTotals>,
    /// Number of failures of each job, over all nodes.
    failures: HashMap<JobId, u32>,
}

/// Recent results of one kind of work, over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WorkTotals {
    ended: u32,
    failed: HashMap<FailureClass, u32>,
}

/// Evidence against a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvidence {
    pub failed: u32,
    pub ended: u32,
    pub peers_failed: u32,
    pub peers_ended: u32,
    /// The jobs that failed there.
    pub jobs: Vec<JobId>,
}

/// Whether a node gets jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeEligibility {
    #[default]
    Trusted,
    /// It gets none.
    Quarantined,
    /// It gets one at a time until one completes.
    OnProbation,
}

/// What the end of an attempt says about a node on probation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    Passed,
    Failed,
    /// The job also fails elsewhere, or ran there before.
    Unclear,
}

impl NodeEligibility {
    /// Returns the standing of a node that was quarantined until that time.
    pub fn from_quarantine(until: Option<Timestamp>, now: Timestamp) -> Self {
        match until {
            None => Self::Trusted,
            Some(until) if now < until => Self::Quarantined,
            Some(_) => Self::OnProbation,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Quarantined => "quarantined",
            Self::OnProbation => "on_probation",
        }
    }
}

/// Returns the duration of the next quarantine after one of this duration.
pub fn quarantine_duration(before: Option<Duration>) -> Duration {
    before.map_or(FIRST_QUARANTINE, |before| before.saturating_mul(2).clamp(FIRST_QUARANTINE, MAX_QUARANTINE))
}

impl NodeAttemptHistory {
    pub fn record_attempt(&mut self, node: &str, outcome: NodeAttemptOutcome) {
        if !self.nodes.contains_key(node) {
            self.nodes.insert(node.to_owned(), VecDeque::with_capacity(RECENT_ATTEMPTS));
        }
        let Some(recent_attempts) = self.nodes.get_mut(node) else { return };
        let forgotten =
            if recent_attempts.len() < RECENT_ATTEMPTS { None } else { recent_attempts.pop_front() };
        recent_attempts.push_back(outcome);
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

    /// Forgets a node that starts over or is gone.
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

    /// Returns recent counts of the node and of other nodes with the same work.
    pub fn failure_counts(&self, node: &str) -> NodeFailureCounts {
        let Some(recent_attempts) = self.nodes.get(node) else { return NodeFailureCounts::default() };
        let ended = recent_attempts.len() as u32;
        let failed = recent_attempts.iter().filter(|outcome| outcome.failure_class.is_some()).count() as u32;
        let works: BTreeSet<ComparableWork> = recent_attempts.iter().map(|outcome| outcome.work).collect();
        let (mut all_failed, mut all_ended) = (0, 0);
        for done in works.iter().filter_map(|work| self.totals.get(work)) {
            all_ended += done.ended;
            all_failed += done.failed.values().sum::<u32>();
        }
        NodeFailureCounts { failed, ended, peers_failed: all_failed - failed, peers_ended: all_ended - ended }
    }

    /// Returns the evidence against the node if it suffices for quarantine. The caller checks whether other
    /// nodes can do its work.
    pub fn find_evidence(&self, node: &str) -> Option<NodeEvidence> {
        let recent_attempts = self.nodes.get(node)?;
        let mut evidence = NodeEvidence::default();
        let mut jobs = BTreeSet::new();
        let works: BTreeSet<ComparableWork> = recent_attempts.iter().map(|outcome| outcome.work).collect();
        for work in works {
            let mine = || recent_attempts.iter().filter(move |outcome| outcome.work == work);
            let peers = self.totals.get(&work).map(|done| done.without(mine())).unwrap_or_default();
            if peers.ended < MIN_COMMON_ATTEMPTS {
                continue;
            }
            evidence.peers_ended += peers.ended;
            evidence.peers_failed += peers.failed.values().sum::<u32>();
            for outcome in mine() {
                match outcome.failure_class {
                    Some(class) if self.is_own_fault(outcome.job, class, recent_attempts, &peers) => continue,
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

    /// Whether the failure is not the node's: the job also failed elsewhere, or similar jobs fail there for a
    /// reason unrelated to the node.
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

    /// Decides what an ended attempt says about a node on probation. Call it before recording the attempt.
    /// `is_probe`: it was assigned as a probe; attempts that began earlier say nothing about the present state
    /// of the node.
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
    /// Subtracts the attempts of one node.
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
    /// Whether the node fails at least half of its attempts, and three times as often as the others with one
    /// more failure.
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
