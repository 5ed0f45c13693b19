//! A worker process that is attached to this one, as in a local run: its messages come over a socket pair, and
//! its orders are written to it as soon as they are committed. It has no lease, because the end of its process
//! is seen on the socket.
//!
//! The host of the run ([`super::local_run`]) starts and replaces the process. The scheduler leaves in
//! [`LocalRunOutput`] what the host has to do, or to show to the user.

use super::active_workflow::ActiveWorkflow;
use super::lost_workers::WorkerLossCause;
use super::panic_recovery::SchedulerActivity;
use super::scheduler::{Scheduler, WorkflowSlot};
use super::scheduler_call::LocalRunEvent;
use super::worker_groups::WorkerGroupKey;
use super::worker_session::WorkerSession;
use crate::claim_ahead::ClaimAheadEstimator;
use crate::worker_host::{DeadWorkerReport, WorkerSender};
use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::crash_suspects::CrashEvidence;
use windlass_core::workflow_state::{AttemptOutcome, OrphanDecision};
use windlass_store::StoreError;
use windlass_store::model::WorkerRow;
use windlass_types::worker_messages::{AttemptEndReport, AttemptKey, FromWorker, StopReason, ToWorker};
use windlass_types::worker_protocol::{AcceptedJobOwners, ActionCommand};
use windlass_types::{JobId, LOCAL_SITE, WorkerId, WorkflowId};

/// How long completions without ready dependents are collected before they are committed.
pub(super) const COMMIT_DELAY: Duration = Duration::from_millis(10);
/// … or until this many have been collected.
const MAX_DELAYED_BATCH: usize = 256;

/// The link to an attached worker.
pub(super) struct AttachedWorker {
    sender: WorkerSender,
    /// It has started, and was not signaled.
    pub(super) is_ready: bool,
    /// It was asked to stop all jobs, and starts no more.
    pub(super) is_stopping: bool,
    /// The attempts that were sent to it, for display.
    attempts: HashMap<JobId, ObservedAttempt>,
}

struct ObservedAttempt {
    name: String,
    /// Short jobs are never reported as started.
    started: Option<Instant>,
}

/// The end of an attempt, for the observer of the run.
pub(super) struct ObservedAttemptEnd {
    pub(super) key: AttemptKey,
    pub(super) name: String,
    pub(super) outcome: AttemptOutcome,
    pub(super) wall_time: Duration,
}

/// Messages of the scheduler for the host of a local run.
#[derive(Default)]
pub(super) struct LocalRunOutput {
    /// Committed ends of attempts.
    pub(super) attempt_ends: Vec<ObservedAttemptEnd>,
    /// Committed starts of actions.
    pub(super) actions: Vec<(WorkerId, ActionCommand)>,
    pub(super) notices: Vec<String>,
    /// Problems that pass, like a full disk.
    pub(super) problems: Vec<String>,
    /// The error of the database that ends the run.
    pub(super) failure: Option<StoreError>,
}

impl Scheduler {
    /// Adds a worker process that was started for a workflow. It gets jobs when it is ready.
    pub(super) fn attach_worker(
        &mut self,
        row: &WorkerRow,
        workflow: WorkflowId,
        labels: &[String],
        sender: WorkerSender,
    ) {
        let key = only_worker_key(workflow, &row.worker.user, labels);
        let mut session = WorkerSession::new(
            &row.worker.user,
            String::new(),
            row.worker.capacity,
            key.selector(),
            self.now.instant,
        );
        session.claim_ahead = ClaimAheadEstimator::default();
        session.sees_all = true;
        session.bound_workflow = Some(workflow);
        session.attached =
            Some(AttachedWorker { sender, is_ready: false, is_stopping: false, attempts: HashMap::new() });
        let (group, _) = self.groups.add_worker(
            row.id,
            key,
            HashSet::from([workflow]),
            Arc::new(move |row| row.id == workflow),
        );
        session.group = Some(group);
        self.sessions.insert(row.id, session);
        self.dirty_workflows.insert(workflow);
    }

    /// Removes the session of a worker that was shut down.
    pub(super) fn detach_worker(&mut self, worker: WorkerId) {
        if let Some(session) = self.sessions.remove(&worker)
            && let Some(group) = session.group
        {
            self.groups.remove_worker(group, worker, session.last_served_turn);
        }
    }

    pub(super) fn on_attached_message(&mut self, worker: WorkerId, message: FromWorker) {
        let Some(session) = self.sessions.get_mut(&worker) else { return };
        let Some(link) = &mut session.attached else { return };
        self.dirty_workers.insert(worker);
        match message {
            // The host that started it stated the capacity.
            FromWorker::Hello { .. } => link.is_ready = true,
            FromWorker::Reports(reports) => {
                for report in reports {
                    self.activity = SchedulerActivity::for_report(worker, report.key());
                    if let Err(stale) = self.apply_report(worker, report) {
                        self.record_stale_report(worker, &stale);
                        self.add_notice(stale.to_string());
                    }
                }
            }
            // Sent only by workers with a lease.
            FromWorker::Alive { .. } => {}
            // It starts nothing more. Usually this process was signaled too and stops the jobs; otherwise the
            // worker soon ends.
            FromWorker::Terminated => link.is_ready = false,
        }
    }

    /// Sends the orders for attached workers: all of them are committed.
    pub(super) fn send_to_attached_workers(&mut self) {
        let Some(local_run) = &mut self.local_run else { return };
        let mut sent = Vec::new();
        for (&worker, session) in &mut self.sessions {
            let Some(link) = &mut session.attached else { continue };
            // It got the settings of its workflow at its start.
            let orders = mem::take(&mut session.outbox);
            let mut is_alive = true;
            if !orders.assignments.is_empty() {
                for assignment in &orders.assignments {
                    let attempt = ObservedAttempt { name: assignment.name.clone(), started: None };
                    link.attempts.insert(assignment.key.job, attempt);
                    sent.push(assignment.key);
                }
                is_alive = link.sender.send(&ToWorker::Assign(orders.assignments)).is_ok();
            }
            if let Some(stop) = orders.stops.first().filter(|_| !link.is_stopping) {
                let order = ToWorker::Stop { why: stop.why, grace: stop.grace };
                is_alive &= link.sender.send(&order).is_ok();
            }
            for order in orders.actions {
                if let Some(assignment) = session.actions.get_mut(&(order.action, order.attempt)) {
                    assignment.is_sent = true;
                }
                local_run.actions.push((worker, order));
            }
            if !is_alive {
                // It is gone or does not read: in both cases it has to be replaced.
                drop(self.sender.send(LocalRunEvent::WorkerGone { worker, protocol_error: None }.into()));
            }
        }
        self.mark_sent(&sent);
    }

    /// Asks an attached worker to stop all jobs; claims that it did not get are returned.
    pub(super) fn stop_attached_worker(&mut self, worker: WorkerId, why: StopReason, grace: Duration) {
        let Some(link) = self.sessions.get_mut(&worker).and_then(|session| session.attached.as_mut()) else {
            return;
        };
        link.is_stopping = true;
        if link.sender.send(&ToWorker::Stop { why, grace }).is_err() {
            drop(self.sender.send(LocalRunEvent::WorkerGone { worker, protocol_error: None }.into()));
        }
        self.dirty_workers.insert(worker);
    }

    /// Asks an attached worker without jobs to exit.
    pub(super) fn dismiss_attached_worker(&mut self, worker: WorkerId) {
        if let Some(link) = self.sessions.get_mut(&worker).and_then(|session| session.attached.as_mut()) {
            // An error means that it is gone already.
            link.sender.send(&ToWorker::Quit).unwrap_or_default();
        }
    }

    /// Handles the death of an attached worker: ends that it recorded are applied, all other jobs that it held
    /// are orphans. Returns how many of these had started, and whether one was failed as the cause.
    pub(super) fn on_attached_worker_dead(
        &mut self,
        worker: WorkerId,
        dead_worker: &DeadWorkerReport,
    ) -> (usize, bool) {
        let (mut lost, mut given_up) = (0, false);
        self.pending_retirements.entry(worker).or_default();
        for key in self.attempts_held_by(worker) {
            if let Some(ended) = dead_worker.recorded_ends.get(&key)
                && self.on_ended(worker, ended).is_ok()
            {
                self.await_commit_before_retiring(worker, key.workflow);
                continue;
            }
            let may_have_started = dead_worker.may_have_started(&key);
            lost += usize::from(may_have_started);
            let Some(hold) =
                self.find_workflow(key.workflow).and_then(|active| active.held_jobs.get_mut(&key.job))
            else {
                continue;
            };
            hold.is_sent &= may_have_started;
            hold.leftover_usage = dead_worker.leftover_usage.get(&key).copied().unwrap_or_default();
            let by = WorkerLossCause::Died(CrashEvidence::Observed);
            let decision = self.orphan_held_job(key.workflow, key.job, worker, may_have_started, by);
            if decision == Some(OrphanDecision::GiveUp) {
                given_up = true;
                if let Some(active) = self.find_workflow(key.workflow) {
                    active.awaits_added_jobs = true;
                }
            }
            if let Some(session) = self.sessions.get_mut(&worker) {
                session.release_job(key.job);
            }
        }
        self.on_worker_lost(worker, "its process died", CrashEvidence::Observed);
        (lost, given_up)
    }

    fn attempts_held_by(&mut self, worker: WorkerId) -> Vec<AttemptKey> {
        let Some(session) = self.sessions.get(&worker) else { return Vec::new() };
        let key = |(job, workflow): (&JobId, &WorkflowId)| match self.workflows.get(workflow)? {
            WorkflowSlot::Active(active) => Some(active.state.attempt_key(active.state.job_index(*job)?)),
            WorkflowSlot::Suspended(_) => None,
        };
        let mut keys: Vec<AttemptKey> = session.held_jobs.iter().filter_map(key).collect();
        keys.sort_unstable();
        keys
    }

    pub(super) fn record_attached_start(&mut self, worker: WorkerId, job: JobId) {
        let link = self.sessions.get_mut(&worker).and_then(|session| session.attached.as_mut());
        if let Some(attempt) = link.and_then(|link| link.attempts.get_mut(&job)) {
            attempt.started = Some(self.now.instant);
        }
    }

    /// Records the end of an attempt for the observer, who is told after the commit.
    pub(super) fn record_attached_end(
        &mut self,
        worker: WorkerId,
        ended: &AttemptEndReport,
        outcome: AttemptOutcome,
    ) {
        let Self { workflows, sessions, .. } = self;
        let link = sessions.get_mut(&worker).and_then(|session| session.attached.as_mut());
        let (Some(link), Some(WorkflowSlot::Active(active))) = (link, workflows.get_mut(&ended.key.workflow))
        else {
            return;
        };
        let name = link.attempts.remove(&ended.key.job).map(|attempt| attempt.name).unwrap_or_default();
        active.awaits_added_jobs = true;
        let end = ObservedAttemptEnd { key: ended.key, name, outcome, wall_time: ended.wall };
        active.open_batch.attempt_ends.push(end);
    }

    /// The jobs that an attached worker runs, with their start.
    pub(super) fn running_on_attached(
        &self,
        worker: WorkerId,
    ) -> impl Iterator<Item = (JobId, &str, Instant)> {
        let session = self.sessions.get(&worker);
        let attempts = session.and_then(|session| Some((session, session.attached.as_ref()?))).into_iter();
        attempts.flat_map(|(session, link)| {
            let is_held = |(job, _): &(&JobId, &ObservedAttempt)| session.held_jobs.contains_key(job);
            link.attempts
                .iter()
                .filter(is_held)
                .filter_map(|(job, attempt)| Some((*job, attempt.name.as_str(), attempt.started?)))
        })
    }

    /// Whether the commit of a local run is delayed, to collect further completions: not if it is awaited, for
    /// assignments, actions or calls, or because nothing else runs.
    pub(super) fn delays_commit(&mut self, workflow: WorkflowId) -> bool {
        if self.local_run.is_none() {
            return false;
        }
        let is_working = |session: &WorkerSession| {
            session.attached.as_ref().is_some_and(|link| link.is_ready) && !session.usage.is_idle()
        };
        let (is_any_working, now) = (self.sessions.values().any(is_working), self.now.instant);
        let Some(active) = self.find_workflow(workflow) else { return false };
        let open = &active.open_batch;
        let has_orders = !open.claimed_jobs.is_empty() || !open.action_commands.is_empty();
        let is_awaited = has_orders || !open.callbacks.is_empty() || active.is_closing();
        if is_awaited || !is_any_working || open.changes.len() >= MAX_DELAYED_BATCH {
            return false;
        }
        now < *active.batch_open_since.get_or_insert(now) + COMMIT_DELAY
    }

    pub(super) fn add_notice(&mut self, text: String) {
        if let Some(local_run) = &mut self.local_run {
            local_run.notices.push(text);
        }
    }

    /// Tells the host of a local run about an error of the database: it passes, or ends the run.
    pub(super) fn report_store_error(&mut self, error: StoreError) {
        let Some(local_run) = &mut self.local_run else { return };
        if error.is_transient() {
            local_run.problems.push(error.to_string());
        } else {
            local_run.failure = Some(error);
        }
    }
}

impl ActiveWorkflow {
    /// When collected completions are committed.
    pub(super) fn commit_deadline(&self) -> Option<Instant> {
        self.batch_open_since.map(|since| since + COMMIT_DELAY)
    }
}

/// The group of the only worker of a local run: it accepts all jobs for this machine.
pub(super) fn only_worker_key(workflow: WorkflowId, user: &str, labels: &[String]) -> WorkerGroupKey {
    WorkerGroupKey {
        user: user.to_owned(),
        sees_all: true,
        jobs_of: AcceptedJobOwners::All,
        labels: labels.to_vec(),
        site: LOCAL_SITE.to_owned(),
        workflow: Some(workflow),
        is_only_worker: true,
    }
}
