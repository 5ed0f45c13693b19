//! A worker elsewhere, as the service sees it.

use super::actions::Errand;
use super::crews::CrewId;
use super::exchanges::Exchanges;
use super::nodes::NodeKey;
use super::roster::Troubles;
use super::talk::Reply;
use crate::pace::Pace;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use windlass_core::actions::Key;
use windlass_core::dispatch::{Mirror, Taste};
use windlass_core::nodes::Standing;
use windlass_types::fleet::{ActionOrder, ExchangeAnswer, StopOrder, WorkflowSite};
use windlass_types::work::Assignment;
use windlass_types::{AllocationId, Capacity, JobId, RunId, WorkflowId};

/// Claim as many jobs ahead as end within this time: a few exchanges' worth.
const REACH: Duration = Duration::from_millis(150);
/// How long a worker that could not start a job of a workflow gets none of it: twice as long each time, within these.
const SHORTEST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

pub(super) struct Mate {
    /// Who introduced it.
    pub(super) user: String,
    /// The node that it is on, and whether that one is given jobs.
    pub(super) node: NodeKey,
    pub(super) standing: Standing,
    /// It may be given everybody's jobs.
    pub(super) sees_all: bool,
    pub(super) secret_hash: String,
    pub(super) capacity: Capacity,
    /// `None` until it has introduced itself to this service; until then it only has its lease.
    pub(super) crew: Option<CrewId>,
    /// It works for this one only.
    pub(super) bound: Option<WorkflowId>,
    /// The allocation that it is in, if it is in one of Slurm's.
    pub(super) allocation: Option<AllocationId>,
    /// The scheduler that this was made from. It takes jobs that are meant for it, or for none, before others.
    pub(super) scheduler: Option<i64>,
    pub(super) mirror: Mirror<JobId>,
    pub(super) held: HashMap<JobId, WorkflowId>,
    /// Actions that it is to carry out, or carries out.
    pub(super) actions: HashMap<Key, Errand>,
    /// The job that it has with nothing beside it.
    pub(super) alone: Option<JobId>,
    /// It is kept free for a job of this workflow that is to be tried alone.
    pub(super) reserved: Option<WorkflowId>,
    pub(super) pace: Pace,
    /// How long it stays altogether, as far as it said so; `None`: for good.
    pub(super) stays: Option<Duration>,
    pub(super) lease_until: Instant,
    /// Workflows of which it could start nothing lately, and none since.
    rests: HashMap<WorkflowId, Rest>,
    /// It wants nothing more, or is to want nothing more.
    pub(super) is_draining: bool,
    pub(super) is_to_drain: bool,
    pub(super) is_dismissed: bool,
    pub(super) is_leaving: bool,
    /// Its lease is over, and it is not taken back: what it held goes to others as soon as nothing of it runs any more.
    pub(super) is_given_up: bool,
    /// It has spoken since, under another number.
    pub(super) has_spoken: bool,
    /// It is dead, and another one delivers what it left.
    pub(super) has_heir: bool,
    pub(super) exchanges: Exchanges<Reply<ExchangeAnswer>>,
    pub(super) outbox: Outbox,
    /// Workflows that it has heard of.
    knows: HashSet<(WorkflowId, RunId)>,
    /// When it last got something, in turns.
    pub(super) served: u64,
    /// What it said that it cannot do.
    pub(super) troubles: Troubles,
}

/// How long it gets nothing of a workflow.
struct Rest {
    until: Instant,
    length: Duration,
    is_over: bool,
}

/// What it is to be told.
#[derive(Default)]
pub(super) struct Outbox {
    /// Can wait until there is something to do.
    pub(super) over: Vec<WorkflowId>,
    pub(super) workflows: Vec<WorkflowSite>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) actions: Vec<ActionOrder>,
    pub(super) stops: Vec<StopOrder>,
    /// Something about itself: that it is to drain, or is dismissed.
    pub(super) has_word: bool,
    /// When its allocation ends, which is another time than before.
    pub(super) ends: Option<Instant>,
}

impl Outbox {
    /// There is something to do for it.
    fn speaks_of(&self, workflow: WorkflowId) -> bool {
        self.assignments.iter().any(|assignment| assignment.key.workflow == workflow)
            || self.actions.iter().any(|order| order.workflow == workflow)
    }

    pub(super) fn is_empty(&self) -> bool {
        let has_orders = !self.assignments.is_empty() || !self.actions.is_empty() || !self.stops.is_empty();
        !has_orders && !self.has_word && self.ends.is_none()
    }
}

impl Mate {
    pub(super) fn new(
        user: &str,
        secret_hash: String,
        capacity: Capacity,
        taste: Taste,
        lease_until: Instant,
    ) -> Self {
        Self {
            user: user.to_owned(),
            node: NodeKey::default(),
            standing: Standing::Trusted,
            sees_all: false,
            secret_hash,
            capacity,
            crew: None,
            bound: None,
            allocation: None,
            scheduler: None,
            mirror: Mirror::with_taste(capacity, taste),
            held: HashMap::new(),
            actions: HashMap::new(),
            alone: None,
            reserved: None,
            pace: Pace::reaching(REACH),
            stays: None,
            lease_until,
            rests: HashMap::new(),
            is_draining: false,
            is_to_drain: false,
            is_dismissed: false,
            is_leaving: false,
            is_given_up: false,
            has_spoken: false,
            has_heir: false,
            exchanges: Exchanges::default(),
            outbox: Outbox::default(),
            knows: HashSet::new(),
            served: 0,
            troubles: Troubles::default(),
        }
    }

    /// It stays for so long yet; `None`: for good.
    pub(super) fn limit_time(&mut self, left: Option<Duration>) {
        self.mirror.limit_time(left);
        self.stays = left.max(self.stays.filter(|_| left.is_some()));
    }

    /// It was introduced anew: what it knew of us it knows no more.
    pub(super) fn begin_anew(&mut self, capacity: Capacity, taste: Taste) -> Vec<Reply<ExchangeAnswer>> {
        self.capacity = capacity;
        self.mirror = Mirror::with_taste(capacity, taste);
        self.outbox = Outbox::default();
        self.knows.clear();
        self.alone = None;
        self.is_draining = false;
        self.exchanges.begin_anew()
    }

    pub(super) fn quotes(&self, secret: &str) -> bool {
        self.secret_hash == secret_hash(secret)
    }

    /// It may be given something now, if something fits.
    pub(super) fn may_take(&self) -> bool {
        let willing = !(self.is_draining || self.is_to_drain || self.is_leaving || self.is_dismissed);
        willing
            && self.crew.is_some()
            && self.alone.is_none()
            && self.standing != Standing::SetAside
            && self.exchanges.has_wait()
    }

    /// Nothing says that it will go.
    pub(super) fn is_staying(&self) -> bool {
        let goes = self.is_draining || self.is_to_drain || self.is_leaving || self.is_dismissed;
        !goes && !self.has_heir
    }

    /// It may be given an action now.
    pub(super) fn may_act(&self) -> bool {
        self.is_staying() && self.crew.is_some() && self.exchanges.has_wait()
    }

    /// It has heard of this execution, or will with its next answer.
    pub(super) fn has_heard_of(&self, key: Key) -> bool {
        let is_told = self.actions.get(&key).is_some_and(|errand| errand.is_told);
        is_told || self.outbox.actions.iter().any(|order| (order.action, order.attempt) == key)
    }

    /// Takes an order back that it has not heard of. `false`: it has.
    pub(super) fn forget_order(&mut self, key: Key) -> bool {
        let before = self.outbox.actions.len();
        self.outbox.actions.retain(|order| (order.action, order.attempt) != key);
        self.outbox.actions.len() < before
    }

    /// How many jobs should wait there, beside those that run.
    pub(super) fn ahead(&self) -> usize {
        self.pace.ahead(self.mirror.running())
    }

    /// Roughly how many jobs it runs at once.
    pub(super) fn slots(&self) -> usize {
        self.capacity.slots()
    }

    /// It no longer has the job.
    pub(super) fn let_go(&mut self, job: JobId) {
        self.mirror.remove(job);
        self.held.remove(&job);
        if self.alone == Some(job) {
            self.alone = None;
        }
        self.outbox.assignments.retain(|assignment| assignment.key.job != job);
    }

    /// It could not start a job of this workflow. Its directory may be missing there, which says nothing about others.
    pub(super) fn rest_from(&mut self, workflow: WorkflowId, now: Instant) {
        let before = self.rests.get(&workflow).map(|rest| rest.length);
        let length = before.map_or(SHORTEST_REST, |before| (before * 2).min(LONGEST_REST));
        self.rests.insert(workflow, Rest { until: now + length, length, is_over: false });
    }

    /// It has started one.
    pub(super) fn trust_with(&mut self, workflow: WorkflowId) {
        self.rests.remove(&workflow);
    }

    pub(super) fn rests_from(&self, workflow: WorkflowId, now: Instant) -> bool {
        self.rests.get(&workflow).is_some_and(|rest| rest.until > now)
    }

    /// When the next rest is over.
    pub(super) fn rested_at(&self) -> Option<Instant> {
        self.rests.values().filter(|rest| !rest.is_over).map(|rest| rest.until).min()
    }

    /// Whether a rest is over since this was last asked.
    pub(super) fn has_rested(&mut self, now: Instant) -> bool {
        let mut has_rested = false;
        for rest in self.rests.values_mut().filter(|rest| !rest.is_over && rest.until <= now) {
            rest.is_over = true;
            has_rested = true;
        }
        has_rested
    }

    /// It is to be told of these, and before that of the workflow if it has not heard of it.
    pub(super) fn tell(&mut self, assignment: Assignment, site: impl FnOnce() -> WorkflowSite) {
        if self.knows.insert((assignment.key.workflow, assignment.key.run)) {
            self.outbox.workflows.push(site());
        }
        self.outbox.assignments.push(assignment);
    }

    /// The workflow is over, and the worker may forget it: should there be more of it one day, it hears of it anew.
    pub(super) fn forget(&mut self, workflow: WorkflowId) {
        let before = self.knows.len();
        self.knows.retain(|(known, _)| *known != workflow);
        self.troubles.retain(|(known, _)| *known != workflow);
        self.rests.remove(&workflow);
        if !self.outbox.speaks_of(workflow) {
            self.outbox.workflows.retain(|site| site.workflow != workflow);
        }
        if self.knows.len() < before {
            self.outbox.over.push(workflow);
        }
    }

    pub(super) fn tell_action(&mut self, order: ActionOrder, site: impl FnOnce() -> WorkflowSite) {
        if self.knows.insert((order.workflow, order.run)) {
            self.outbox.workflows.push(site());
        }
        self.outbox.actions.push(order);
    }

    /// All that there is to be told, as the answer to an exchange.
    pub(super) fn news(&mut self, answer: ExchangeAnswer, now: Instant) -> ExchangeAnswer {
        let news = std::mem::take(&mut self.outbox);
        for order in &news.actions {
            if let Some(errand) = self.actions.get_mut(&(order.action, order.attempt)) {
                errand.is_told = true;
            }
        }
        ExchangeAnswer {
            over: news.over,
            workflows: news.workflows,
            assignments: news.assignments,
            actions: news.actions,
            stops: news.stops,
            drain: self.is_to_drain,
            dismissed: self.is_dismissed,
            ends_in: news.ends.map(|end| end.saturating_duration_since(now)),
            ..answer
        }
    }
}

/// Of a worker with these labels at this site.
pub(super) fn taste(labels: &[String], site: Option<&str>) -> Taste {
    Taste::default().with_labels(labels.to_vec()).at_site(site)
}

/// Secrets are long and random, so nothing slower is needed to keep them from being guessed.
pub(super) fn secret_hash(secret: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or_default();
    let hash = Sha256::digest(secret.as_bytes());
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Handed to a worker when it is introduced: what it has to quote ever after.
pub(super) fn new_secret() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_kept_as_hashes() {
        let secret = new_secret();
        assert_ne!(secret, new_secret());
        assert_eq!(secret_hash("abc").len(), 64);
        assert!(secret_hash("abc").starts_with("ba7816bf"), "as SHA-256 has it");
    }
}
