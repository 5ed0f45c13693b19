//! A worker from the view of the scheduler.

use super::actions::ActionAssignment;
use super::attached_worker::AttachedWorker;
use super::call_types::CallReply;
use super::exchange_sequence::ExchangeSequence;
use super::node_quarantine::NodeKey;
use super::worker_groups::WorkerGroupId;
use super::worker_list::StartProblems;
use crate::claim_ahead::ClaimAheadEstimator;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use windlass_core::actions::ActionRunKey;
use windlass_core::dispatch::{WorkerSelector, WorkerUsage};
use windlass_core::node_quarantine::NodeEligibility;
use windlass_types::worker_messages::Assignment;
use windlass_types::worker_protocol::{ActionCommand, ExchangeReply, StopCommand, WorkflowSetup};
use windlass_types::{AllocationId, Capacity, JobId, RunId, WorkflowId};

/// Claim as many jobs ahead as end within this time: a few exchanges' worth.
const CLAIM_AHEAD_TIME: Duration = Duration::from_millis(150);
/// The range of the time for which a worker gets no jobs of a workflow that it could not start: doubled each
/// time.
const MIN_COOLDOWN: Duration = Duration::from_secs(1);
const MAX_COOLDOWN: Duration = Duration::from_secs(30);

pub(super) struct WorkerSession {
    /// The user who registered it.
    pub(super) user: String,
    /// Its node, and the standing of that.
    pub(super) node: NodeKey,
    pub(super) standing: NodeEligibility,
    /// It may get the jobs of all users.
    pub(super) sees_all: bool,
    pub(super) secret_hash: String,
    pub(super) capacity: Capacity,
    /// `None` until it has registered with this service; until then it only has its lease.
    pub(super) group: Option<WorkerGroupId>,
    /// It works only for this workflow.
    pub(super) bound_workflow: Option<WorkflowId>,
    /// Its Slurm allocation, if any.
    pub(super) allocation: Option<AllocationId>,
    /// The scheduler definition of the allocation. Jobs that name it, or none, come before others.
    pub(super) scheduler: Option<i64>,
    pub(super) usage: WorkerUsage<JobId>,
    pub(super) held_jobs: HashMap<JobId, WorkflowId>,
    /// Actions assigned to it.
    pub(super) actions: HashMap<ActionRunKey, ActionAssignment>,
    /// The job that it runs alone.
    pub(super) exclusive_job: Option<JobId>,
    /// It is reserved for an isolated suspect of this workflow.
    pub(super) reserved_for: Option<WorkflowId>,
    pub(super) claim_ahead: ClaimAheadEstimator,
    /// Its largest stated lifetime; `None`: unlimited.
    pub(super) time_limit: Option<Duration>,
    pub(super) lease_until: Instant,
    /// Its link, if it is a process attached to this one; such a worker has no lease and no exchanges.
    pub(super) attached: Option<AttachedWorker>,
    /// Workflows whose last job it could not start.
    cooldowns: HashMap<WorkflowId, WorkflowCooldown>,
    /// It drains by its own decision, or on request.
    pub(super) is_draining: bool,
    pub(super) is_to_drain: bool,
    pub(super) is_dismissed: bool,
    /// It has signed off.
    pub(super) has_left: bool,
    /// Its lease has expired, and it cannot return: its jobs are reassigned as soon as no step of it runs.
    pub(super) is_given_up: bool,
    /// It has returned under another id.
    pub(super) has_returned: bool,
    /// It is dead, and another worker delivers its results.
    pub(super) has_successor: bool,
    pub(super) exchanges: ExchangeSequence<CallReply<ExchangeReply>>,
    pub(super) outbox: SessionOutbox,
    /// Workflows that were introduced to it.
    known_workflows: HashSet<(WorkflowId, RunId)>,
    /// The turn in which it last got something.
    pub(super) last_served_turn: u64,
    /// The problems that it reported.
    pub(super) start_problems: StartProblems,
}

/// The time for which a worker gets no jobs of a workflow.
struct WorkflowCooldown {
    until: Instant,
    duration: Duration,
    is_over: bool,
}

/// Messages for the next reply.
#[derive(Default)]
pub(super) struct SessionOutbox {
    /// Not urgent: sent with other messages.
    pub(super) ended_workflows: Vec<WorkflowId>,
    pub(super) workflows: Vec<WorkflowSetup>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) actions: Vec<ActionCommand>,
    pub(super) stops: Vec<StopCommand>,
    /// A change of its own state: it has to drain, or is dismissed.
    pub(super) has_session_change: bool,
    /// The changed end of its allocation.
    pub(super) allocation_end: Option<Instant>,
}

impl SessionOutbox {
    /// Whether there are jobs or actions of this workflow.
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
            standing: NodeEligibility::Trusted,
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
            claim_ahead: ClaimAheadEstimator::with_claim_ahead_time(CLAIM_AHEAD_TIME),
            time_limit: None,
            lease_until,
            attached: None,
            cooldowns: HashMap::new(),
            is_draining: false,
            is_to_drain: false,
            is_dismissed: false,
            has_left: false,
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

    /// Sets its remaining lifetime; `None`: unlimited.
    pub(super) fn set_time_limit(&mut self, left: Option<Duration>) {
        self.usage.limit_time(left);
        self.time_limit = left.max(self.time_limit.filter(|_| left.is_some()));
    }

    /// Resets the session at a new registration: the worker has forgotten what was sent before.
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

    /// Whether it may get jobs now, if any fits.
    pub(super) fn may_take_jobs(&self) -> bool {
        let willing = !(self.is_draining || self.is_to_drain || self.is_leaving() || self.is_dismissed);
        willing
            && self.group.is_some()
            && self.exclusive_job.is_none()
            && self.standing != NodeEligibility::Quarantined
            && self.is_listening()
    }

    /// Whether nothing indicates that it will leave.
    pub(super) fn is_staying(&self) -> bool {
        let goes = self.is_draining || self.is_to_drain || self.is_leaving() || self.is_dismissed;
        !goes && !self.has_successor
    }

    /// Whether it may get an action now.
    pub(super) fn may_take_actions(&self) -> bool {
        self.is_staying() && self.group.is_some() && self.is_listening()
    }

    /// Whether it would get a new job at once.
    fn is_listening(&self) -> bool {
        self.attached.as_ref().map_or_else(|| self.exchanges.has_waiting_caller(), |link| link.is_ready)
    }

    /// Whether it starts nothing more: it has signed off, or was asked to stop.
    pub(super) fn is_leaving(&self) -> bool {
        self.has_left || self.attached.as_ref().is_some_and(|link| link.is_stopping)
    }

    /// Whether this execution was sent, or will be with the next reply.
    pub(super) fn knows_action(&self, key: ActionRunKey) -> bool {
        let is_told = self.actions.get(&key).is_some_and(|action_assignment| action_assignment.is_sent);
        is_told || self.outbox.actions.iter().any(|order| (order.action, order.attempt) == key)
    }

    /// Withdraws an unsent action. `false`: it was sent.
    pub(super) fn withdraw_action(&mut self, key: ActionRunKey) -> bool {
        let before = self.outbox.actions.len();
        self.outbox.actions.retain(|order| (order.action, order.attempt) != key);
        self.outbox.actions.len() < before
    }

    /// The number of jobs to queue there, in addition to running ones.
    pub(super) fn claims_ahead(&self) -> usize {
        self.claim_ahead.claims_ahead(self.usage.running())
    }

    /// Roughly the number of jobs that it runs at once.
    pub(super) fn estimated_slots(&self) -> usize {
        self.capacity.approximate_slots()
    }

    /// Removes a job that it does not hold any more.
    pub(super) fn release_job(&mut self, job: JobId) {
        self.usage.remove(job);
        self.held_jobs.remove(&job);
        if self.exclusive_job == Some(job) {
            self.exclusive_job = None;
        }
        self.outbox.assignments.retain(|assignment| assignment.key.job != job);
    }

    /// Starts a cooldown after it could not start a job of this workflow. For example its directory may be
    /// missing there; other workflows are not affected.
    pub(super) fn start_cooldown(&mut self, workflow: WorkflowId, now: Instant) {
        let before = self.cooldowns.get(&workflow).map(|rest| rest.duration);
        let length = before.map_or(MIN_COOLDOWN, |before| (before * 2).min(MAX_COOLDOWN));
        self.cooldowns
            .insert(workflow, WorkflowCooldown { until: now + length, duration: length, is_over: false });
    }

    /// Ends the cooldown after a successful start.
    pub(super) fn clear_cooldown(&mut self, workflow: WorkflowId) {
        self.cooldowns.remove(&workflow);
    }

    pub(super) fn is_cooling_down(&self, workflow: WorkflowId, now: Instant) -> bool {
        self.cooldowns.get(&workflow).is_some_and(|rest| rest.until > now)
    }

    /// The end of the next cooldown.
    pub(super) fn next_cooldown_end(&self) -> Option<Instant> {
        self.cooldowns.values().filter(|rest| !rest.is_over).map(|rest| rest.until).min()
    }

    /// Whether a cooldown has ended since the last call.
    pub(super) fn take_cooldown_ended(&mut self, now: Instant) -> bool {
        let mut has_cooled_down = false;
        for rest in self.cooldowns.values_mut().filter(|rest| !rest.is_over && rest.until <= now) {
            rest.is_over = true;
            has_cooled_down = true;
        }
        has_cooled_down
    }

    /// Queues an assignment for the next reply, after the introduction of its workflow if necessary.
    pub(super) fn queue_assignment(&mut self, assignment: Assignment, site: impl FnOnce() -> WorkflowSetup) {
        if self.known_workflows.insert((assignment.key.workflow, assignment.key.run)) {
            self.outbox.workflows.push(site());
        }
        self.outbox.assignments.push(assignment);
    }

    /// Makes the worker forget an ended workflow: if it becomes active again, it is introduced again.
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

    /// Moves all messages into the reply to an exchange.
    pub(super) fn fill_reply(&mut self, answer: ExchangeReply, now: Instant) -> ExchangeReply {
        let news = std::mem::take(&mut self.outbox);
        for order in &news.actions {
            if let Some(action_assignment) = self.actions.get_mut(&(order.action, order.attempt)) {
                action_assignment.is_sent = true;
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

/// The selector of a worker with these labels at this site.
pub(super) fn worker_selector(labels: &[String], site: Option<&str>) -> WorkerSelector {
    WorkerSelector::default().with_labels(labels.to_vec()).at_site(site)
}

/// Secrets are long and random, so a slower hash is not needed against guessing.
pub(super) fn hash_secret(secret: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or_default();
    let hash = Sha256::digest(secret.as_bytes());
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Creates the secret that a worker gets at its registration and sends with every call.
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
        assert!(hash_secret("abc").starts_with("ba7816bf"), "the SHA-256 of abc");
    }
}
