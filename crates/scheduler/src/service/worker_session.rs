//! A worker elsewhere, as the service sees it.

use super::actions::ActionAssignment;
use super::exchange_sequence::ExchangeSequence;
use super::node_quarantine::NodeKey;
use super::protocol::CallReply;
use super::worker_groups::WorkerGroupId;
use super::worker_list::StartProblems;
use crate::claim_pacer::ClaimPacer;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use windlass_core::actions::ActionRunKey;
use windlass_core::dispatch::{WorkerSelector, WorkerUsage};
use windlass_core::node_quarantine::NodeStanding;
use windlass_types::worker_messages::Assignment;
use windlass_types::worker_protocol::{ActionCommand, ExchangeReply, StopCommand, WorkflowSetup};
use windlass_types::{AllocationId, Capacity, JobId, RunId, WorkflowId};

/// Claim as many jobs ahead as end within this time: a few exchanges' worth.
const CLAIM_AHEAD_TIME: Duration = Duration::from_millis(150);
/// How long a worker that could not start a job of a workflow gets none of it: twice as long each time, within these.
const MIN_COOLDOWN: Duration = Duration::from_secs(1);
const MAX_COOLDOWN: Duration = Duration::from_secs(30);

pub(super) struct WorkerSession {
    /// Who introduced it.
    pub(super) user: String,
    /// The node that it is on, and whether that one is given jobs.
    pub(super) node: NodeKey,
    pub(super) standing: NodeStanding,
    /// It may be given everybody's jobs.
    pub(super) sees_all: bool,
    pub(super) secret_hash: String,
    pub(super) capacity: Capacity,
    /// `None` until it has introduced itself to this service; until then it only has its lease.
    pub(super) group: Option<WorkerGroupId>,
    /// It works for this one only.
    pub(super) bound_workflow: Option<WorkflowId>,
    /// The allocation that it is in, if it is in one of Slurm's.
    pub(super) allocation: Option<AllocationId>,
    /// The scheduler that this was made from. It takes jobs that are meant for it, or for none, before others.
    pub(super) scheduler: Option<i64>,
    pub(super) usage: WorkerUsage<JobId>,
    pub(super) held_jobs: HashMap<JobId, WorkflowId>,
    /// Actions that it is to carry out, or carries out.
    pub(super) actions: HashMap<ActionRunKey, ActionAssignment>,
    /// The job that it has with nothing beside it.
    pub(super) exclusive_job: Option<JobId>,
    /// It is kept free for a job of this workflow that is to be tried alone.
    pub(super) reserved_for: Option<WorkflowId>,
    pub(super) claim_pacer: ClaimPacer,
    /// How long it stays altogether, as far as it said so; `None`: for good.
    pub(super) time_limit: Option<Duration>,
    pub(super) lease_until: Instant,
    /// Workflows of which it could start nothing lately, and none since.
    cooldowns: HashMap<WorkflowId, WorkflowCooldown>,
    /// It wants nothing more, or is to want nothing more.
    pub(super) is_draining: bool,
    pub(super) is_to_drain: bool,
    pub(super) is_dismissed: bool,
    pub(super) is_leaving: bool,
    /// Its lease is over, and it is not taken back: what it held goes to others as soon as nothing of it runs any more.
    pub(super) is_given_up: bool,
    /// It has spoken since, under another number.
    pub(super) has_returned: bool,
    /// It is dead, and another one delivers what it left.
    pub(super) has_successor: bool,
    pub(super) exchanges: ExchangeSequence<CallReply<ExchangeReply>>,
    pub(super) outbox: SessionOutbox,
    /// Workflows that it has heard of.
    known_workflows: HashSet<(WorkflowId, RunId)>,
    /// When it last got something, in turns.
    pub(super) last_served_turn: u64,
    /// What it said that it cannot do.
    pub(super) start_problems: StartProblems,
}

/// How long it gets nothing of a workflow.
struct WorkflowCooldown {
    until: Instant,
    duration: Duration,
    is_over: bool,
}

/// What it is to be told.
#[derive(Default)]
pub(super) struct SessionOutbox {
    /// Can wait until there is something to do.
    pub(super) ended_workflows: Vec<WorkflowId>,
    pub(super) workflows: Vec<WorkflowSetup>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) actions: Vec<ActionCommand>,
    pub(super) stops: Vec<StopCommand>,
    /// Something about itself: that it is to drain, or is dismissed.
    pub(super) has_session_change: bool,
    /// When its allocation ends, which is another time than before.
    pub(super) allocation_end: Option<Instant>,
}

impl SessionOutbox {
    /// There is something to do for it.
    fn has_work_for(&self, workflow: WorkflowId) -> bool {
        self.assignments.iter().any(|assignment| assignment.key.workflow == workflow)
            || self.actions.iter().any(|order| order.workflow == workflow)
    }

    pub(super) fn is_empty(&self) -> bool {
        let has_orders = !self.assignments.is_empty() || !self.actions.is_empty() || !self.stops.is_empty();
        !has_orders && !self.has_session_change && self.allocation_end.is_none()
    }
}

impl WorkerSession {
    pub(super) fn new(
        user: &str,
        secret_hash: String,
        capacity: Capacity,
        selector: WorkerSelector,
        lease_until: Instant,
    ) -> Self {
        Self {
            user: user.to_owned(),
            node: NodeKey::default(),
            standing: NodeStanding::Trusted,
            sees_all: false,
            secret_hash,
            capacity,
            group: None,
            bound_workflow: None,
            allocation: None,
            scheduler: None,
            usage: WorkerUsage::with_selector(capacity, selector),
            held_jobs: HashMap::new(),
            actions: HashMap::new(),
            exclusive_job: None,
            reserved_for: None,
            claim_pacer: ClaimPacer::with_claim_ahead_time(CLAIM_AHEAD_TIME),
            time_limit: None,
            lease_until,
            cooldowns: HashMap::new(),
            is_draining: false,
            is_to_drain: false,
            is_dismissed: false,
            is_leaving: false,
            is_given_up: false,
            has_returned: false,
            has_successor: false,
            exchanges: ExchangeSequence::default(),
            outbox: SessionOutbox::default(),
            known_workflows: HashSet::new(),
            last_served_turn: 0,
            start_problems: StartProblems::default(),
        }
    }

    /// It stays for so long yet; `None`: for good.
    pub(super) fn set_time_limit(&mut self, left: Option<Duration>) {
        self.usage.limit_time(left);
        self.time_limit = left.max(self.time_limit.filter(|_| left.is_some()));
    }

    /// It was introduced anew: what it knew of us it knows no more.
    pub(super) fn reset(
        &mut self,
        capacity: Capacity,
        selector: WorkerSelector,
    ) -> Vec<CallReply<ExchangeReply>> {
        self.capacity = capacity;
        self.usage = WorkerUsage::with_selector(capacity, selector);
        self.outbox = SessionOutbox::default();
        self.known_workflows.clear();
        self.exclusive_job = None;
        self.is_draining = false;
        self.exchanges.reset()
    }

    pub(super) fn is_secret_valid(&self, secret: &str) -> bool {
        self.secret_hash == hash_secret(secret)
    }

    /// It may be given something now, if something fits.
    pub(super) fn may_take_jobs(&self) -> bool {
        let willing = !(self.is_draining || self.is_to_drain || self.is_leaving || self.is_dismissed);
        willing
            && self.group.is_some()
            && self.exclusive_job.is_none()
            && self.standing != NodeStanding::SetAside
            && self.exchanges.has_waiting_caller()
    }

    /// Nothing says that it will go.
    pub(super) fn is_staying(&self) -> bool {
        let goes = self.is_draining || self.is_to_drain || self.is_leaving || self.is_dismissed;
        !goes && !self.has_successor
    }

    /// It may be given an action now.
    pub(super) fn may_take_actions(&self) -> bool {
        self.is_staying() && self.group.is_some() && self.exchanges.has_waiting_caller()
    }

    /// It has heard of this execution, or will with its next answer.
    pub(super) fn knows_action(&self, key: ActionRunKey) -> bool {
        let is_told = self.actions.get(&key).is_some_and(|errand| errand.is_sent);
        is_told || self.outbox.actions.iter().any(|order| (order.action, order.attempt) == key)
    }

    /// Takes an order back that it has not heard of. `false`: it has.
    pub(super) fn withdraw_action(&mut self, key: ActionRunKey) -> bool {
        let before = self.outbox.actions.len();
        self.outbox.actions.retain(|order| (order.action, order.attempt) != key);
        self.outbox.actions.len() < before
    }

    /// How many jobs should wait there, beside those that run.
    pub(super) fn claims_ahead(&self) -> usize {
        self.claim_pacer.claims_ahead(self.usage.running())
    }

    /// Roughly how many jobs it runs at once.
    pub(super) fn estimated_slots(&self) -> usize {
        self.capacity.approximate_slots()
    }

    /// It no longer has the job.
    pub(super) fn release_job(&mut self, job: JobId) {
        self.usage.remove(job);
        self.held_jobs.remove(&job);
        if self.exclusive_job == Some(job) {
            self.exclusive_job = None;
        }
        self.outbox.assignments.retain(|assignment| assignment.key.job != job);
    }

    /// It could not start a job of this workflow. Its directory may be missing there, which says nothing about others.
    pub(super) fn start_cooldown(&mut self, workflow: WorkflowId, now: Instant) {
        let before = self.cooldowns.get(&workflow).map(|rest| rest.duration);
        let length = before.map_or(MIN_COOLDOWN, |before| (before * 2).min(MAX_COOLDOWN));
        self.cooldowns
            .insert(workflow, WorkflowCooldown { until: now + length, duration: length, is_over: false });
    }

    /// It has started one.
    pub(super) fn clear_cooldown(&mut self, workflow: WorkflowId) {
        self.cooldowns.remove(&workflow);
    }

    pub(super) fn is_cooling_down(&self, workflow: WorkflowId, now: Instant) -> bool {
        self.cooldowns.get(&workflow).is_some_and(|rest| rest.until > now)
    }

    /// When the next rest is over.
    pub(super) fn next_cooldown_end(&self) -> Option<Instant> {
        self.cooldowns.values().filter(|rest| !rest.is_over).map(|rest| rest.until).min()
    }

    /// Whether a rest is over since this was last asked.
    pub(super) fn take_cooldown_ended(&mut self, now: Instant) -> bool {
        let mut has_rested = false;
        for rest in self.cooldowns.values_mut().filter(|rest| !rest.is_over && rest.until <= now) {
            rest.is_over = true;
            has_rested = true;
        }
        has_rested
    }

    /// It is to be told of these, and before that of the workflow if it has not heard of it.
    pub(super) fn queue_assignment(&mut self, assignment: Assignment, site: impl FnOnce() -> WorkflowSetup) {
        if self.known_workflows.insert((assignment.key.workflow, assignment.key.run)) {
            self.outbox.workflows.push(site());
        }
        self.outbox.assignments.push(assignment);
    }

    /// The workflow is over, and the worker may forget it: should there be more of it one day, it hears of it anew.
    pub(super) fn forget_workflow(&mut self, workflow: WorkflowId) {
        let before = self.known_workflows.len();
        self.known_workflows.retain(|(known, _)| *known != workflow);
        self.start_problems.retain(|(known, _)| *known != workflow);
        self.cooldowns.remove(&workflow);
        if !self.outbox.has_work_for(workflow) {
            self.outbox.workflows.retain(|site| site.workflow != workflow);
        }
        if self.known_workflows.len() < before {
            self.outbox.ended_workflows.push(workflow);
        }
    }

    pub(super) fn queue_action(&mut self, order: ActionCommand, site: impl FnOnce() -> WorkflowSetup) {
        if self.known_workflows.insert((order.workflow, order.run)) {
            self.outbox.workflows.push(site());
        }
        self.outbox.actions.push(order);
    }

    /// All that there is to be told, as the answer to an exchange.
    pub(super) fn fill_reply(&mut self, answer: ExchangeReply, now: Instant) -> ExchangeReply {
        let news = std::mem::take(&mut self.outbox);
        for order in &news.actions {
            if let Some(errand) = self.actions.get_mut(&(order.action, order.attempt)) {
                errand.is_sent = true;
            }
        }
        ExchangeReply {
            over: news.ended_workflows,
            workflows: news.workflows,
            assignments: news.assignments,
            actions: news.actions,
            stops: news.stops,
            drain: self.is_to_drain,
            dismissed: self.is_dismissed,
            ends_in: news.allocation_end.map(|end| end.saturating_duration_since(now)),
            ..answer
        }
    }
}

/// Of a worker with these labels at this site.
pub(super) fn worker_selector(labels: &[String], site: Option<&str>) -> WorkerSelector {
    WorkerSelector::default().with_labels(labels.to_vec()).at_site(site)
}

/// Secrets are long and random, so nothing slower is needed to keep them from being guessed.
pub(super) fn hash_secret(secret: &str) -> String {
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
        assert_eq!(hash_secret("abc").len(), 64);
        assert!(hash_secret("abc").starts_with("ba7816bf"), "as SHA-256 has it");
    }
}
