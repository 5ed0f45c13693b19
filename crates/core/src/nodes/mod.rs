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

use crate::classify::NodeRecord;
use crate::dispatch::Place;
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::time::Duration;
use windlass_types::work::EndCause;
use windlass_types::{FailureClass, JobId, JobStatus, Timestamp, WorkflowId};

/// The first time a node is set aside.
pub const FIRST_SPELL: Duration = Duration::from_mins(10);
/// Each further spell is twice as long as the one before, but no longer than this.
pub const LONGEST_SPELL: Duration = Duration::from_hours(4);

/// So many attempts of each node are remembered.
const LATELY: usize = 32;
/// Fewer failures than this, or failures of fewer jobs, say nothing.
const LEAST_FAILED: u32 = 5;
const LEAST_JOBS: usize = 3;
/// Of work of which others have done less than this, nothing is known.
const LEAST_IN_COMMON: u32 = 3;
/// Others have to have done this much of all that is compared.
const LEAST_PEERS: u32 = 10;

/// What nodes have in common: jobs of one workflow that belong to the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Work {
    workflow: WorkflowId,
    place: u64,
}

impl Work {
    pub fn of(workflow: WorkflowId, place: &Place) -> Self {
        Self { workflow, place: FxBuildHasher.hash_one(place) }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub work: Work,
    pub job: JobId,
    /// `None`: it did not fail.
    pub failed: Option<FailureClass>,
}

/// Whether the end of an attempt says anything of its node: not that of one that somebody ended, nor that of one that asked for
/// less than it needs. It would go over its own limits wherever it runs.
pub const fn is_telling(status: JobStatus, cause: &EndCause) -> bool {
    matches!(status, JobStatus::Completed | JobStatus::Failed)
        && !matches!(cause, EndCause::OutOfMemory | EndCause::Timeout)
}

/// How attempts ended lately, by node. To note one, and to weigh a node, costs the same however many nodes there are.
#[derive(Clone, Debug, Default)]
pub struct Records {
    nodes: HashMap<String, VecDeque<Outcome>>,
    done: HashMap<Work, Done>,
    /// How often each job failed, over all nodes.
    failures: HashMap<JobId, u32>,
}

/// What is remembered of one work, over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Done {
    ended: u32,
    failed: HashMap<FailureClass, u32>,
}

/// What speaks against a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
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
pub enum Standing {
    #[default]
    Trusted,
    /// It gets none.
    SetAside,
    /// It gets one at a time, until one of them goes well.
    OnProbation,
}

/// What the end of an attempt on a node on probation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Passed,
    Failed,
    /// The job fails elsewhere too, or was there before.
    Unclear,
}

impl Standing {
    /// Of a node that was set aside until then.
    pub fn of(until: Option<Timestamp>, now: Timestamp) -> Self {
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
pub fn spell(before: Option<Duration>) -> Duration {
    before.map_or(FIRST_SPELL, |before| before.saturating_mul(2).clamp(FIRST_SPELL, LONGEST_SPELL))
}

impl Records {
    pub fn note(&mut self, node: &str, outcome: Outcome) {
        if !self.nodes.contains_key(node) {
            self.nodes.insert(node.to_owned(), VecDeque::with_capacity(LATELY));
        }
        let Some(lately) = self.nodes.get_mut(node) else { return };
        let forgotten = if lately.len() < LATELY { None } else { lately.pop_front() };
        lately.push_back(outcome);
        if let Some(forgotten) = forgotten {
            self.uncount(&forgotten);
        }
        let done = self.done.entry(outcome.work).or_default();
        done.ended += 1;
        if let Some(class) = outcome.failed {
            *done.failed.entry(class).or_default() += 1;
            *self.failures.entry(outcome.job).or_default() += 1;
        }
    }

    /// The node begins anew, or is gone.
    pub fn forget(&mut self, node: &str) {
        for outcome in self.nodes.remove(node).into_iter().flatten() {
            self.uncount(&outcome);
        }
    }

    fn uncount(&mut self, outcome: &Outcome) {
        if let Some(done) = self.done.get_mut(&outcome.work) {
            done.ended -= 1;
            if let Some(class) = outcome.failed {
                decrease(&mut done.failed, &class);
            }
            if done.ended == 0 {
                self.done.remove(&outcome.work);
            }
        }
        if outcome.failed.is_some() {
            decrease(&mut self.failures, &outcome.job);
        }
    }

    /// How the node did lately, and how the others did with the same work.
    pub fn record(&self, node: &str) -> NodeRecord {
        let Some(lately) = self.nodes.get(node) else { return NodeRecord::default() };
        let ended = lately.len() as u32;
        let failed = lately.iter().filter(|outcome| outcome.failed.is_some()).count() as u32;
        let works: BTreeSet<Work> = lately.iter().map(|outcome| outcome.work).collect();
        let (mut all_failed, mut all_ended) = (0, 0);
        for done in works.iter().filter_map(|work| self.done.get(work)) {
            all_ended += done.ended;
            all_failed += done.failed.values().sum::<u32>();
        }
        NodeRecord { failed, ended, peers_failed: all_failed - failed, peers_ended: all_ended - ended }
    }

    /// What speaks against the node, if it is enough to set it aside. Whether anybody else is there to do its work is for
    /// the caller to know.
    pub fn weigh(&self, node: &str) -> Option<Evidence> {
        let lately = self.nodes.get(node)?;
        let mut evidence = Evidence::default();
        let mut jobs = BTreeSet::new();
        let works: BTreeSet<Work> = lately.iter().map(|outcome| outcome.work).collect();
        for work in works {
            let mine = || lately.iter().filter(move |outcome| outcome.work == work);
            let peers = self.done.get(&work).map(|done| done.without(mine())).unwrap_or_default();
            if peers.ended < LEAST_IN_COMMON {
                continue;
            }
            evidence.peers_ended += peers.ended;
            evidence.peers_failed += peers.failed.values().sum::<u32>();
            for outcome in mine() {
                match outcome.failed {
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
        evidence.is_enough().then_some(evidence)
    }

    /// The job failed elsewhere as well, or others like it do for a reason that is not the node's.
    fn is_own_fault(&self, job: JobId, class: FailureClass, here: &VecDeque<Outcome>, peers: &Done) -> bool {
        let blames_job = matches!(class, FailureClass::Permanent | FailureClass::Data);
        self.failed_elsewhere(job, here) || (blames_job && peers.failed.contains_key(&class))
    }

    fn failed_elsewhere(&self, job: JobId, here: &VecDeque<Outcome>) -> bool {
        let failed_here = here.iter().filter(|outcome| outcome.job == job && outcome.failed.is_some());
        let everywhere = self.failures.get(&job).copied().unwrap_or_default();
        everywhere as usize > failed_here.count()
    }

    /// What an attempt that ended on a node on probation says of it. Ask before it is noted. `is_probe`: it was given to the
    /// node because of that; what ran there before says nothing of how the node is now.
    pub fn judge_probe(&self, node: &str, outcome: Outcome, is_probe: bool) -> Probe {
        let nothing = VecDeque::new();
        let here = self.nodes.get(node).unwrap_or(&nothing);
        match outcome.failed {
            _ if !is_probe => Probe::Unclear,
            None => Probe::Passed,
            Some(_) if self.failed_elsewhere(outcome.job, here) => Probe::Unclear,
            Some(_) => Probe::Failed,
        }
    }
}

impl Done {
    /// The same without what one node did.
    fn without<'a>(&self, mine: impl Iterator<Item = &'a Outcome>) -> Self {
        let mut rest = self.clone();
        for outcome in mine {
            rest.ended -= 1;
            if let Some(class) = outcome.failed {
                decrease(&mut rest.failed, &class);
            }
        }
        rest
    }
}

fn decrease<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Evidence {
    /// It fails at least half of what it is given, and three times as often as the others would if one more failed there.
    fn is_enough(&self) -> bool {
        let [failed, ended, peers_failed, peers_ended] =
            [self.failed, self.ended, self.peers_failed, self.peers_ended].map(u64::from);
        self.failed >= LEAST_FAILED
            && self.jobs.len() >= LEAST_JOBS
            && self.peers_ended >= LEAST_PEERS
            && failed * 2 >= ended
            && failed * (peers_ended + 1) >= 3 * (peers_failed + 1) * ended
    }
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { failed, ended, peers_failed, peers_ended, .. } = self;
        write!(f, "{failed} of its last {ended} attempts failed; {peers_failed} of {peers_ended} elsewhere")
    }
}
