//! Handles messages of workers: registrations, exchanges, and reports.

use super::call_types::{CallError, CallReply, WorkerCaller, WorkerOwner};
use super::exchange_sequence::ExchangeReceipt;
use super::lost_workers::WorkerLossCause;
use super::panic_recovery::SchedulerActivity;
use super::scheduler::{Scheduler, WorkflowSlot, store_call_error, unavailable_error};
use super::worker_groups::WorkerGroupKey;
use super::worker_session::{WorkerSession, hash_secret, new_secret, worker_selector};
use super::{WorkflowPredicate, active_workflow};
use std::collections::HashSet;
use windlass_core::crash_suspects::CrashEvidence;
use windlass_core::workflow_state::{OrphanDecision, StaleAttemptReport};
use windlass_store::model::{NewWorker, WorkerKind, WorkerUpdate};
use windlass_types::worker_bounds::UserWorkerCount;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptKey, AttemptReport, ReturnReason,
};
use windlass_types::worker_protocol::{
    ExchangeReply, RegistrationReply, StaleReport, WorkerExchange, WorkerReconnect, WorkerRegistration,
};
use windlass_types::{JobStatus, ParseSiteError, RunId, WorkerId, WorkflowId, check_site_name};

impl Scheduler {
    pub(super) fn on_register_worker(
        &mut self,
        who: &WorkerRegistration,
        owner: WorkerOwner,
        reply: CallReply<RegistrationReply>,
    ) {
        let registration_reply = self.register_worker(who, owner);
        reply(registration_reply);
    }

    fn register_worker(
        &mut self,
        who: &WorkerRegistration,
        owner: WorkerOwner,
    ) -> Result<RegistrationReply, CallError> {
        let invalid =
            |error: ParseSiteError| CallError::Invalid { code: "bad_site", detail: error.to_string() };
        check_site_name(&who.site).map_err(invalid)?;
        let user = &*owner.user;
        let run = self.find_bound_run(who, &owner.may_work_for)?;
        let allocation_row = self.check_allocation(who, &owner.may_work_for)?;
        let known = who.before.as_ref().filter(|before| {
            let worker_session = self.sessions.get(&before.worker);
            worker_session.is_some_and(|worker_session| {
                worker_session.user == user
                    && worker_session.is_secret_valid(&before.secret)
                    && !worker_session.is_given_up
            })
        });
        self.check_user_workers(user, known.map(|before| before.worker), who)?;
        let is_successor = who.before.as_ref().is_some_and(|before| !self.is_same_process(before, who));
        let (worker, secret, lost, lost_actions) = if let Some(before) = known {
            self.record_worker_return(before.worker, who)?;
            if let Some(worker_session) = self.sessions.get_mut(&before.worker) {
                worker_session.has_successor |= is_successor;
            }
            let lost = self.restore_worker(before.worker, who, &before.held);
            let lost_actions = self.restore_action_assignments(before.worker, &before.actions);
            (before.worker, before.secret.clone(), lost, lost_actions)
        } else {
            let (worker, secret) = self.insert_worker(who, user, run)?;
            if let Some(before) = who.before.as_ref().filter(|_| !is_successor) {
                self.on_lost_worker_returned(before.worker);
                if let Some(given_up) = self.sessions.get_mut(&before.worker) {
                    given_up.has_returned = true;
                }
            }
            // Its former session has been declared lost, and its jobs were reassigned.
            let before = who.before.as_ref().map(|before| (before.held.clone(), before.actions.clone()));
            let (lost, lost_actions) = before.unwrap_or_default();
            (worker, secret, lost, lost_actions)
        };
        self.join_group(worker, who, owner);
        if let Some(row) = allocation_row {
            self.send_allocation_end(worker, &row);
        }
        self.dirty_workers.insert(worker);
        Ok(RegistrationReply { worker, secret, lease: self.options.lease, lost, lost_actions })
    }

    /// Rejects a worker beyond the limits of one user. A returning worker without additional nodes is not
    /// counted again.
    fn check_user_workers(
        &self,
        user: &str,
        known: Option<WorkerId>,
        who: &WorkerRegistration,
    ) -> Result<(), CallError> {
        let before = known.and_then(|worker| self.sessions.get(&worker));
        if before.is_some_and(|session| session.capacity.nodes >= who.capacity.nodes) {
            return Ok(());
        }
        let others = self.sessions.iter().filter(|(id, session)| session.user == user && Some(**id) != known);
        let others: UserWorkerCount = others.map(|(_, session)| session.capacity).collect();
        others.check_further(&who.capacity).map_err(|error| CallError::Conflict {
            code: "too_many_workers",
            detail: format!("user `{user}` has too many workers here: {error}"),
        })
    }

    /// The run of the only workflow that the worker serves.
    fn find_bound_run(
        &self,
        who: &WorkerRegistration,
        may: &WorkflowPredicate,
    ) -> Result<Option<RunId>, CallError> {
        let Some(id) = who.workflow else { return Ok(None) };
        let row = self.store.workflow(id).map_err(|error| store_call_error(&error))?;
        match row.filter(|row| may(row)) {
            Some(row) => Ok(Some(row.run_id)),
            None => Err(CallError::NotFound(format!("there is no workflow {id}"))),
        }
    }

    /// Whether the worker itself returns, and not another one that acts for it after its death.
    fn is_same_process(&self, before: &WorkerReconnect, who: &WorkerRegistration) -> bool {
        let Ok(Some(row)) = self.store.worker(before.worker) else { return false };
        let is_same = (row.worker.pid, row.worker.pid_start_ticks) == (who.pid, who.pid_start_ticks);
        is_same
            && row.worker.boot_id == who.boot_id
            && row.worker.secret_hash == Some(hash_secret(&before.secret))
    }

    /// Adds a new worker.
    fn insert_worker(
        &mut self,
        who: &WorkerRegistration,
        user: &str,
        run: Option<RunId>,
    ) -> Result<(WorkerId, String), CallError> {
        let secret = new_secret();
        let row = NewWorker {
            kind: WorkerKind::Remote,
            workflow: who.workflow,
            run,
            user: user.to_owned(),
            version: who.version.clone(),
            labels: who.labels.clone(),
            site: Some(who.site.clone()),
            host: who.host.clone(),
            boot_id: who.boot_id.clone(),
            pid: who.pid,
            pid_start_ticks: who.pid_start_ticks,
            secret_hash: Some(hash_secret(&secret)),
            capacity: who.capacity,
            allocation: who.allocation,
            ..NewWorker::default()
        };
        let worker =
            self.store.add_worker(&row, self.now.timestamp).map_err(|error| store_call_error(&error))?;
        self.notify_commit();
        let selector = worker_selector(&who.labels, Some(&who.site));
        let worker_session =
            WorkerSession::new(user, hash_secret(&secret), who.capacity, selector, self.lease_from_now());
        self.sessions.insert(worker, worker_session);
        Ok((worker, secret))
    }

    fn record_worker_return(&self, worker: WorkerId, who: &WorkerRegistration) -> Result<(), CallError> {
        let update = WorkerUpdate {
            host: Some(who.host.clone()),
            boot_id: Some(who.boot_id.clone()),
            pid: Some(who.pid),
            pid_start_ticks: Some(who.pid_start_ticks),
            version: Some(who.version.clone()),
            labels: Some(who.labels.clone()),
            site: Some(who.site.clone()),
            capacity: Some(who.capacity),
            ..WorkerUpdate::default()
        };
        self.store
            .update_worker(worker, &update, self.now.timestamp)
            .map_err(|error| store_call_error(&error))
    }

    /// Restores a returning worker. It keeps the attempts that it still holds and may hold; attempts that it
    /// holds only according to the database were never started. Returns those that it has lost.
    fn restore_worker(
        &mut self,
        worker: WorkerId,
        who: &WorkerRegistration,
        held: &[AttemptKey],
    ) -> Vec<AttemptKey> {
        let lease_until = self.lease_from_now();
        let Some(worker_session) = self.sessions.get_mut(&worker) else { return held.to_vec() };
        worker_session.lease_until = lease_until;
        worker_session.bound_workflow = who.workflow;
        let (had, group, served) = (
            std::mem::take(&mut worker_session.held_jobs),
            worker_session.group.take(),
            worker_session.last_served_turn,
        );
        for reply in worker_session.reset(who.capacity, worker_selector(&who.labels, Some(&who.site))) {
            reply(Err(superseded_error()));
        }
        if let Some(group) = group {
            self.groups.remove_worker(group, worker, served);
        }
        let mut lost = Vec::new();
        let mut kept = HashSet::new();
        for key in held {
            if self.confirm_held_attempt(worker, key) {
                kept.insert(key.job);
            } else {
                lost.push(*key);
            }
        }
        let mut returned: Vec<_> = had.into_iter().filter(|(job, _)| !kept.contains(job)).collect();
        returned.sort_unstable();
        for (job, workflow) in returned {
            let Some(active) = self.find_workflow(workflow) else { continue };
            let Some(number) = active.state.job_index(job) else { continue };
            let attempt =
                active.held_jobs.remove(&job).map(|hold| hold.orphaned_attempt()).unwrap_or_default();
            // If it had reported the start and does not know the job now, it has lost its state.
            let decision = if attempt.started_at.is_some() {
                OrphanDecision::RunAgain(None)
            } else {
                OrphanDecision::NeverStarted
            };
            self.orphan_job(workflow, number, worker, decision, attempt);
        }
        lost
    }

    /// Whether an attempt that a worker claims to hold is its own; if so it is added to its usage.
    fn confirm_held_attempt(&mut self, worker: WorkerId, key: &AttemptKey) -> bool {
        let Some(active) = self.find_workflow(key.workflow) else { return false };
        let Ok(job) = active.check_fencing(worker, key) else { return false };
        if let Some(hold) = active.held_jobs.get_mut(&key.job) {
            hold.is_sent = true;
        }
        let (demand, alone) = (active.state.demand(job).clone(), active.state.is_running_isolated(job));
        if let Some(worker_session) = self.sessions.get_mut(&worker) {
            worker_session.usage.take_unchecked(key.job, &demand);
            worker_session.held_jobs.insert(key.job, key.workflow);
            worker_session.exclusive_job = alone.then_some(key.job).or(worker_session.exclusive_job);
        }
        true
    }

    fn join_group(&mut self, worker: WorkerId, who: &WorkerRegistration, owner: WorkerOwner) {
        let WorkerOwner { user, sees_all, may_work_for: may } = owner;
        let mut labels = who.labels.clone();
        labels.sort_unstable();
        labels.dedup();
        let (site, workflow, jobs_of) = (who.site.clone(), who.workflow, who.jobs_of.clone());
        let user = user.to_string();
        let is_only_worker = false;
        let identity = WorkerGroupKey { user, sees_all, jobs_of, labels, site, workflow, is_only_worker };
        let mut allowed = HashSet::new();
        for (id, slot) in &self.workflows {
            if let WorkflowSlot::Active(active) = slot
                && who.workflow.is_none_or(|bound| bound == *id)
                && may(&active.row)
            {
                allowed.insert(*id);
            }
        }
        let places = allowed.clone();
        let (group, is_new) = self.groups.add_worker(worker, identity, allowed, may);
        if is_new {
            self.dirty_workflows.extend(places);
        }
        if let Some(worker_session) = self.sessions.get_mut(&worker) {
            worker_session.group = Some(group);
            worker_session.sees_all = sees_all;
            worker_session.bound_workflow = who.workflow;
        }
        if !self.closed_sites.is_empty() {
            self.apply_closed_sites();
        }
        self.assign_to_node(worker, &who.host);
        self.dismiss_if_unneeded(worker);
    }

    /// Dismisses a worker whose only workflow has ended or does not need it any more.
    pub(super) fn dismiss_if_unneeded(&mut self, worker: WorkerId) {
        let Some(bound) = self.sessions.get(&worker).and_then(|worker_session| worker_session.bound_workflow)
        else {
            return;
        };
        let is_over = match self.find_workflow(bound) {
            Some(active) => {
                (!active.is_active && active.row.started_at.is_some()) || active.waits_for_decision
            }
            None => match self.store.workflow(bound) {
                Ok(Some(row)) => row.started_at.is_some() && !active_workflow::is_active(&row),
                Ok(None) => true,
                // It is dismissed later.
                Err(_) => false,
            },
        };
        let is_over = is_over || self.is_unneeded(worker);
        if let Some(worker_session) = self.sessions.get_mut(&worker)
            && worker_session.is_dismissed != is_over
        {
            worker_session.is_dismissed = is_over;
            worker_session.outbox.has_session_change |= is_over;
            self.dirty_workers.insert(worker);
        }
    }

    /// Authenticates a worker by its secret and renews its lease, regardless of the content of the exchange.
    pub(super) fn authenticate_worker(
        &mut self,
        exchange: &WorkerExchange,
        speaker: &WorkerCaller,
    ) -> Result<(), CallError> {
        let worker = exchange.worker;
        if self
            .sessions
            .get(&worker)
            .is_some_and(|worker_session| !speaker.may_call_for(&worker_session.user))
        {
            return Err(CallError::NotFound(format!("there is no worker {worker}")));
        }
        if !self.is_leadership_certain() {
            return Err(uncertain_error());
        }
        let lease_until = self.lease_from_now();
        let Some(worker_session) = self
            .sessions
            .get_mut(&worker)
            .filter(|worker_session| worker_session.is_secret_valid(&exchange.secret))
        else {
            self.reject_unknown_worker(exchange, speaker);
            return Err(unknown_worker_error());
        };
        if worker_session.group.is_none() {
            // It connected before this service started: it has to report what it holds.
            return Err(unknown_worker_error());
        }
        worker_session.lease_until = lease_until;
        if worker_session.sees_all && *speaker != WorkerCaller::Operator {
            // The caller has fewer permissions than the user who registered it.
            self.require_registration(worker);
            return Err(unknown_worker_error());
        }
        Ok(())
    }

    /// Gives the worker nothing more until it has registered again. It keeps its jobs.
    pub(super) fn require_registration(&mut self, worker: WorkerId) {
        let Some(worker_session) = self.sessions.get_mut(&worker) else { return };
        let Some(group) = worker_session.group.take() else { return };
        for reply in worker_session.exchanges.reset() {
            reply(Err(unknown_worker_error()));
        }
        let served = worker_session.last_served_turn;
        self.groups.remove_worker(group, worker, served);
        self.release_reserved_worker(worker);
    }

    pub(super) fn on_access_changed(&mut self) {
        let bound = |(id, worker_session): (&WorkerId, &WorkerSession)| {
            Some((*id, worker_session.group?, worker_session.bound_workflow?))
        };
        let bound: Vec<_> = self.sessions.iter().filter_map(bound).collect();
        for (worker, group, workflow) in bound {
            let row = match self.find_workflow(workflow) {
                Some(active) => Some(active.row.clone()),
                None => self.store.workflow(workflow).ok().flatten(),
            };
            if !row.is_some_and(|row| self.groups.may_accept_workflow(group, &row)) {
                self.require_registration(worker);
            }
        }
    }

    pub(super) fn on_exchange(&mut self, exchange: WorkerExchange, reply: CallReply<ExchangeReply>) {
        let (worker, is_certain) = (exchange.worker, self.is_leadership_certain());
        let Some(worker_session) = self.sessions.get_mut(&worker) else {
            return reply(Err(unknown_worker_error()));
        };
        let longest = self.options.lease / 3;
        let deadline = self.now.instant + exchange.wait.min(longest);
        let is_report = !exchange.reports.is_empty() || !exchange.actions.is_empty() || exchange.leaving;
        self.dirty_workers.insert(worker);
        match worker_session.exchanges.receive_exchange(exchange.number, reply, deadline, is_report) {
            ExchangeReceipt::New => self.process_exchange(exchange),
            ExchangeReceipt::Repeated { earlier_caller: before } => {
                if let Some(before) = before {
                    before(Err(superseded_error()));
                }
            }
            ExchangeReceipt::Answered(reply, answer) if is_certain => reply(Ok(*answer)),
            ExchangeReceipt::Answered(reply, _) => reply(Err(uncertain_error())),
            ExchangeReceipt::TooOld(reply) => reply(Err(superseded_error())),
        }
    }

    fn process_exchange(&mut self, exchange: WorkerExchange) {
        let (worker, number) = (exchange.worker, exchange.number);
        let mut stale = Vec::new();
        for report in exchange.reports {
            self.activity = SchedulerActivity::for_report(worker, report.key());
            let workflow = report.key().workflow;
            match self.apply_report(worker, report) {
                Ok(()) => self.wait_for_commit(worker, number, workflow),
                Err(late) => stale.push(late),
            }
        }
        self.activity = SchedulerActivity {
            description: "exchange",
            worker: Some(worker),
            ..SchedulerActivity::default()
        };
        self.record_stale(worker, number, &stale);
        self.on_action_reports(worker, number, exchange.actions);
        let Some(worker_session) = self.sessions.get_mut(&worker) else { return };
        worker_session.set_time_limit(exchange.time_left);
        worker_session.is_draining = exchange.draining;
        if exchange.draining {
            self.release_reserved_worker(worker);
        }
        if exchange.leaving && !self.start_final_actions(worker) {
            self.on_leaving(worker, number);
        }
        self.dismiss_if_unneeded(worker);
    }

    /// Makes the reply to an exchange wait for the next commit of a workflow.
    pub(super) fn wait_for_commit(&mut self, worker: WorkerId, number: u64, workflow: WorkflowId) {
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let (Some(WorkflowSlot::Active(active)), Some(worker_session)) =
            (slots.get_mut(&workflow), worker_sessions.get_mut(&worker))
        else {
            return;
        };
        if worker_session.attached.is_some() {
            return;
        }
        let ticket = worker_session.exchanges.commit_ticket(worker, number);
        if !active.open_batch.tickets.contains(&ticket) {
            active.open_batch.tickets.push(ticket);
            worker_session.exchanges.add_pending_commit(ticket);
        }
    }

    /// Applies a report, and keeps it until the commit.
    pub(super) fn apply_report(
        &mut self,
        worker: WorkerId,
        report: AttemptReport,
    ) -> Result<(), StaleAttemptReport> {
        self.is_rejected(worker, report.key())?;
        self.on_report(worker, &report)?;
        let workflow = report.key().workflow;
        if let Some(active) = self.find_workflow(workflow) {
            active.open_batch.reports.push((worker, report));
        }
        self.dirty_workflows.insert(workflow);
        Ok(())
    }

    fn on_report(&mut self, worker: WorkerId, report: &AttemptReport) -> Result<(), StaleAttemptReport> {
        let key = *report.key();
        let over = || StaleAttemptReport { key, found: format!("workflow {} has ended", key.workflow) };
        let active = self.find_workflow(key.workflow).ok_or_else(over)?;
        let job = active.check_fencing(worker, &key)?;
        match report {
            AttemptReport::Started { at, pid, .. } => {
                if let Some(hold) = active.held_jobs.get_mut(&key.job) {
                    hold.started_at = Some(*at);
                }
                active.state.on_started(worker, &key, *at, *pid, &mut active.open_batch.changes)?;
                self.record_attached_start(worker, key.job);
            }
            AttemptReport::Ended(ended) => self.on_ended(worker, ended)?,
            AttemptReport::LeftBehind { usage, .. } => {
                if let Some(hold) = active.held_jobs.get_mut(&key.job) {
                    hold.leftover_usage = *usage;
                }
            }
            AttemptReport::Returned { why: ReturnReason::WorkerDied, .. } => {
                self.on_attempt_died(worker, &key, CrashEvidence::Observed);
            }
            AttemptReport::Returned { why: ReturnReason::WorkerHung, .. } => {
                self.on_attempt_died(worker, &key, CrashEvidence::Unconfirmed);
            }
            AttemptReport::Returned { why, .. } => {
                let lost =
                    active.held_jobs.remove(&key.job).map(|hold| hold.orphaned_attempt()).unwrap_or_default();
                if lost.started_at.is_some() {
                    self.orphan_job(key.workflow, job, worker, OrphanDecision::RunAgain(None), lost);
                } else {
                    active.state.on_claim_returned(worker, &key, &mut active.open_batch.changes)?;
                }
                if let ReturnReason::WorkerTrouble(trouble) = &why {
                    self.record_start_problem(worker, &key, trouble);
                }
                let is_in_trouble = matches!(why, ReturnReason::WorkerTrouble(_));
                self.release_held_job(worker, &key, is_in_trouble);
            }
        }
        Ok(())
    }

    /// Handles the death of the worker process, as reported by its remote worker; or, with weaker evidence, by
    /// a successor.
    fn on_attempt_died(&mut self, worker: WorkerId, key: &AttemptKey, evidence: CrashEvidence) {
        let worker_session = self.sessions.get(&worker);
        let is_running =
            worker_session.is_some_and(|worker_session| worker_session.usage.is_running(key.job));
        let evidence = if worker_session.is_some_and(|worker_session| worker_session.has_successor) {
            CrashEvidence::Unconfirmed
        } else {
            evidence
        };
        let eviction = self.eviction_of(worker_session.and_then(|worker_session| worker_session.allocation));
        let by = eviction.map_or(WorkerLossCause::Died(evidence), WorkerLossCause::Evicted);
        self.orphan_held_job(key.workflow, key.job, worker, is_running, by);
        self.release_held_job(worker, key, false);
    }

    pub(super) fn on_ended(
        &mut self,
        worker: WorkerId,
        ended: &AttemptEndReport,
    ) -> Result<(), StaleAttemptReport> {
        let key = ended.key;
        let outcome = self.apply_attempt_end(worker, ended)?;
        let Some(active) = self.find_workflow(key.workflow) else { return Ok(()) };
        active.held_jobs.remove(&key.job);
        active.crash_suspects.on_attempt_ended(key.job);
        if outcome.job_status.is_settled() {
            active.ended_attempts.push(key);
        }
        if let Some(worker_session) = self.sessions.get_mut(&worker) {
            worker_session.claim_ahead.on_ended(ended.wall);
            if !matches!(ended.cause, AttemptEndCause::CannotStart(_)) {
                worker_session.clear_cooldown(key.workflow);
            }
        }
        // An interrupted attempt has no outcome; one that is retried has failed.
        if outcome.job_status != JobStatus::Ready || outcome.attempt_status == JobStatus::Failed {
            self.gauges.record_ended_attempt(outcome.attempt_status);
        }
        self.record_attached_end(worker, ended, outcome);
        self.release_held_job(worker, &key, false);
        Ok(())
    }

    fn release_held_job(&mut self, worker: WorkerId, key: &AttemptKey, is_in_trouble: bool) {
        let now = self.now.instant;
        if let Some(worker_session) = self.sessions.get_mut(&worker) {
            worker_session.release_job(key.job);
            if is_in_trouble {
                worker_session.start_cooldown(key.workflow, now);
            }
        }
    }

    /// Rejects stale reports visibly: in the reply and as events.
    fn record_stale(&mut self, worker: WorkerId, number: u64, stale: &[StaleAttemptReport]) {
        if let Some(worker_session) = self.sessions.get_mut(&worker) {
            for StaleAttemptReport { key, found } in stale {
                worker_session
                    .exchanges
                    .add_stale_report(number, StaleReport { key: *key, found: found.clone() });
            }
        }
        self.record_stale_reports(worker, stale);
    }

    /// Handles a call of a worker that was considered lost or is unknown.
    fn reject_unknown_worker(&mut self, exchange: &WorkerExchange, speaker: &WorkerCaller) {
        let Some(row) = self.store.worker(exchange.worker).ok().flatten() else { return };
        if row.worker.secret_hash == Some(hash_secret(&exchange.secret)) {
            self.on_lost_worker_returned(exchange.worker);
            let found = "its worker was considered lost";
            let stale =
                |report: &AttemptReport| StaleAttemptReport { key: *report.key(), found: found.to_owned() };
            let stale: Vec<StaleAttemptReport> = exchange.reports.iter().map(stale).collect();
            self.record_stale_of_lost_worker(row, speaker, &stale);
        }
    }

    pub(super) fn on_hang_up(&mut self, worker: WorkerId, number: u64, secret: &str) {
        if let Some(worker_session) =
            self.sessions.get_mut(&worker).filter(|worker_session| worker_session.is_secret_valid(secret))
        {
            drop(worker_session.exchanges.hang_up(number));
            self.dirty_workers.insert(worker);
        }
    }

    /// Replies to all callers that can get a reply, and keeps the replies.
    pub(super) fn reply_to_dirty_workers(&mut self) {
        for worker in std::mem::take(&mut self.dirty_workers) {
            self.reply_to_worker(worker);
        }
    }

    /// Whether no other server can have taken over. A reply renews the lease of its worker.
    fn is_leadership_certain(&self) -> bool {
        self.options.is_leadership_certain.as_ref().is_none_or(|is_certain| is_certain())
    }

    fn reply_to_worker(&mut self, worker: WorkerId) {
        let (now, stopping) = (self.now.instant, self.is_stopping());
        let is_certain = self.is_leadership_certain();
        let Some(worker_session) = self.sessions.get_mut(&worker) else { return };
        if worker_session.attached.is_some() {
            return self.update_waiting(worker);
        }
        let at_once = stopping || !worker_session.outbox.is_empty();
        let mut told = Vec::new();
        for due in worker_session.exchanges.take_due(now, at_once) {
            let mut answer =
                ExchangeReply { number: due.number, stale: due.stale_reports, ..ExchangeReply::default() };
            if !due.is_superseded {
                answer = worker_session.fill_reply(answer, now);
                told.extend(answer.assignments.iter().map(|assignment| assignment.key));
            }
            worker_session.exchanges.record_reply(answer.clone());
            if let Some(reply) = due.reply {
                reply(if is_certain { Ok(answer) } else { Err(uncertain_error()) });
            }
        }
        for reply in worker_session.exchanges.take_overdue(now) {
            reply(Err(unavailable_error("the reports are not committed yet")));
        }
        self.mark_sent(&told);
        self.update_waiting(worker);
    }

    /// From now on they may have started.
    pub(super) fn mark_sent(&mut self, keys: &[AttemptKey]) {
        for key in keys {
            if let Some(hold) =
                self.find_workflow(key.workflow).and_then(|active| active.held_jobs.get_mut(&key.job))
            {
                hold.is_sent = true;
            }
        }
    }

    pub(super) fn update_waiting(&mut self, worker: WorkerId) {
        let Some(worker_session) = self.sessions.get(&worker) else { return };
        if let Some(group) = worker_session.group {
            self.groups.set_waiting(
                group,
                worker,
                worker_session.last_served_turn,
                worker_session.may_take_jobs(),
            );
        }
    }
}

fn uncertain_error() -> CallError {
    unavailable_error(
        "this server has not reached its database for some seconds, and another server may have taken over",
    )
}

pub(super) fn unknown_worker_error() -> CallError {
    let detail = "this server does not know the worker, or considers it lost: register it again".to_owned();
    CallError::Conflict { code: "unknown_worker", detail }
}

pub(super) fn superseded_error() -> CallError {
    let detail = "superseded by a newer call of the same worker".to_owned();
    CallError::Conflict { code: "superseded", detail }
}
