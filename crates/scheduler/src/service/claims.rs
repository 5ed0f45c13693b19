//! Claims jobs for waiting workers: the workflows take turns, and each worker gets jobs that fit it.

use super::active_workflow::{ActiveWorkflow, ClaimedJob};
use super::metrics::add_to_gauge;
use super::panic_recovery::SchedulerActivity;
use super::scheduler::{Scheduler, WorkflowSlot};
use super::worker_session::WorkerSession;
use crate::execution_settings::load_assignments;
use std::collections::{BTreeSet, HashSet};
use windlass_core::change::WorkflowChange;
use windlass_core::dispatch::ClaimLimits;
use windlass_core::node_quarantine::NodeEligibility;
use windlass_store::StoreError;
use windlass_types::{JobId, Resources, WorkerId, WorkflowId};

impl Scheduler {
    /// Updates the position of the workflow in the turn order of each worker group.
    pub(super) fn update_turns(&mut self, workflow: WorkflowId) {
        let is_paused = self.is_paused(workflow);
        let Self { workflows: slots, groups: worker_groups, .. } = self;
        match slots.get(&workflow) {
            Some(WorkflowSlot::Active(active)) if active.is_active && !active.is_canceled && !is_paused => {
                worker_groups.update_turns(workflow, |selector| active.state.top_priority(selector));
            }
            _ => worker_groups.update_turns(workflow, |_| None),
        }
    }

    /// Claims jobs for waiting workers: for those with changes, and for any others that wait for jobs that
    /// became ready.
    pub(super) fn serve_waiting_workers(&mut self, changed_workflows: &BTreeSet<WorkflowId>) {
        let with_waiting_suspect = if self.dirty_workers.is_empty() {
            BTreeSet::new()
        } else {
            std::mem::take(&mut self.workflows_with_waiting_suspect)
        };
        for &workflow in changed_workflows.union(&with_waiting_suspect) {
            self.reserve_worker_for_suspect(workflow);
        }
        for &workflow in changed_workflows {
            self.find_workers_for_actions(workflow);
        }
        let changed_workers: Vec<WorkerId> = self.dirty_workers.iter().copied().collect();
        for worker in changed_workers {
            self.update_waiting(worker);
            self.find_actions_for_worker(worker);
            self.serve_worker(worker);
        }
        for &workflow in changed_workflows {
            if !self.may_claim(workflow) {
                continue;
            }
            for worker in self.groups.waiting_workers(workflow) {
                if !self.groups.is_listed(workflow) {
                    break;
                }
                self.serve_worker(worker);
            }
        }
    }

    fn serve_worker(&mut self, worker: WorkerId) {
        let Some(session) = self.sessions.get(&worker).filter(|session| session.may_take_jobs()) else {
            return;
        };
        if let Some(workflow) = session.reserved_for {
            self.try_suspect_alone(worker, workflow);
            return;
        }
        let (ahead, is_attached) = (session.claims_ahead(), session.attached.is_some());
        // More come with the next report; until then a part of the jobs claimed ahead has to suffice.
        let enough = if is_attached { ahead / 4 } else { ahead / 2 };
        if session.usage.is_full() && session.usage.queued() > enough {
            return;
        }
        let before = session.held_jobs.len();
        if session.standing == NodeEligibility::OnProbation {
            self.probe_node(worker);
        } else if is_attached {
            // There are no other workers and workflows to leave a share for.
            self.claim_in_turn(worker, ahead, Some(usize::MAX));
        } else {
            self.claim_in_turn(worker, 0, None);
            if ahead > 0 {
                self.claim_in_turn(worker, ahead, None);
            }
        }
        let Some(session) = self.sessions.get_mut(&worker) else { return };
        if session.held_jobs.len() > before {
            session.claim_ahead.on_claimed(session.usage.running());
            let (group, served) = (session.group, session.last_served_turn);
            session.last_served_turn = self.groups.next_turn_number();
            if let Some(group) = group {
                self.groups.set_waiting(group, worker, served, false);
                self.update_waiting(worker);
            }
        }
    }

    /// Claims one job to test a node on probation.
    fn probe_node(&mut self, worker: WorkerId) {
        if !self.may_be_probed(worker) {
            return;
        }
        let held = self.sessions.get(&worker).map(|session| session.held_jobs.keys().copied().collect());
        let before: HashSet<JobId> = held.unwrap_or_default();
        self.claim_in_turn(worker, 0, Some(1));
        self.record_probe(worker, &before);
    }

    /// Claims jobs from the workflows in turn until the worker has enough, or the given maximum.
    fn claim_in_turn(&mut self, worker: WorkerId, ahead: usize, most: Option<usize>) {
        let Some(group) = self.sessions.get(&worker).and_then(|session| session.group) else { return };
        let mut after = None;
        while let Some(turn) = self.groups.next_workflow(group, after) {
            let (_, _, workflow) = turn;
            after = Some(turn);
            let listed_workflows = self.groups.count_listed_workflows(group).max(1);
            if !self.may_claim(workflow)
                || self.is_cooling_down(worker, workflow)
                || self.start_first_action(worker, workflow)
            {
                continue;
            }
            let Some(session) = self.sessions.get(&worker) else { return };
            let share = (session.estimated_slots() + ahead).div_ceil(listed_workflows);
            self.activity =
                SchedulerActivity { worker: Some(worker), ..SchedulerActivity::for_upkeep(workflow) };
            if self.claim_from_workflow(worker, workflow, most.unwrap_or(share), ahead) {
                self.groups.move_to_back(group, workflow);
                self.update_turns(workflow);
                if most.is_some() {
                    return;
                }
            }
            let Some(session) = self.sessions.get(&worker) else { return };
            if session.usage.is_full() && session.usage.queued() >= ahead {
                return;
            }
        }
    }

    /// Whether the worker recently failed to start jobs of this workflow.
    fn is_cooling_down(&self, worker: WorkerId, workflow: WorkflowId) -> bool {
        self.sessions.get(&worker).is_some_and(|session| session.is_cooling_down(workflow, self.now.instant))
    }

    fn may_claim(&mut self, workflow: WorkflowId) -> bool {
        !self.is_paused(workflow) && self.find_workflow(workflow).is_some_and(|active| active.may_claim())
    }

    /// Claims jobs of one workflow; returns whether there were any.
    fn claim_from_workflow(
        &mut self,
        worker: WorkerId,
        workflow: WorkflowId,
        most: usize,
        ahead: usize,
    ) -> bool {
        let Some(site) = self.sessions.get(&worker).map(|session| session.usage.site()) else { return false };
        let is_open = self.may_start_units(workflow, site);
        let is_open_to_others = site.is_none_or(|site| !self.closed_sites.contains(site));
        let (Some(WorkflowSlot::Active(active)), Some(session)) =
            (self.workflows.get_mut(&workflow), self.sessions.get_mut(&worker))
        else {
            return false;
        };
        // It is unknown when a job queued at the worker would start.
        let ahead =
            if session.usage.has_limited_time() && active.state.has_runtime_requests() { 0 } else { ahead };
        let ahead = ahead
            .min(active.retry_policy.max_claims_ahead(active.state.counts().total(), active.held_jobs.len()));
        let want = ClaimLimits { max_jobs: most, queue_ahead: ahead };
        session.usage.set_accepts_elections(is_open && is_open_to_others);
        session.usage.prefer_scheduler(session.allocation.map(|_| session.scheduler));
        let mut taken =
            active.state.claim_ready(worker, &mut session.usage, want, &mut active.open_batch.changes);
        session.usage.prefer_scheduler(None);
        if taken.is_empty() && session.allocation.is_some() {
            // Jobs meant for other schedulers come only if there are no others.
            taken =
                active.state.claim_ready(worker, &mut session.usage, want, &mut active.open_batch.changes);
        }
        session.usage.set_accepts_elections(is_open_to_others);
        if !taken.is_empty() {
            self.assign_claimed(worker, workflow, &taken);
        }
        !taken.is_empty()
    }

    /// Holds claimed jobs for the worker; they are sent after the commit.
    fn assign_claimed(&mut self, worker: WorkerId, workflow: WorkflowId, jobs: &[u32]) {
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let (Some(WorkflowSlot::Active(active)), Some(session)) =
            (slots.get_mut(&workflow), worker_sessions.get_mut(&worker))
        else {
            return;
        };
        for &job in jobs {
            let key = active.state.attempt_key(job);
            active.hold_job(worker, &key, false);
            session.held_jobs.insert(key.job, workflow);
            active.open_batch.claimed_jobs.push(ClaimedJob { worker, job, key });
        }
        // The worker's waiting exchange stays open for the assignment.
        let newest = session.exchanges.newest_number();
        self.wait_for_commit(worker, newest, workflow);
        self.dirty_workflows.insert(workflow);
    }

    /// Reads the assignments of claimed jobs: all at once, because the database may be remote.
    pub(super) fn load_claimed_jobs(&mut self, workflow: WorkflowId) {
        let Self { workflows: slots, store, sessions, .. } = self;
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&workflow) else { return };
        let claimed = std::mem::take(&mut active.open_batch.claimed_jobs);
        if claimed.is_empty() {
            return;
        }
        let jobs: Vec<u32> = claimed.iter().map(|claimed| claimed.job).collect();
        match load_assignments(&**store, &active.state, &active.settings, &jobs) {
            Ok(assigned) => {
                for (claimed, mut assignment) in claimed.iter().zip(assigned) {
                    let capacity = sessions.get(&claimed.worker).map(|session| session.capacity);
                    let counts_jobs = capacity.is_some_and(|capacity| capacity.max_jobs.is_some());
                    if counts_jobs && !assignment.asked_for_resources {
                        assignment.resources = Resources::DEFAULT_WITHOUT_CPUS;
                    }
                    active.open_batch.assignments.push((claimed.worker, assignment));
                }
                add_to_gauge(&self.gauges.assigned_jobs, jobs.len());
            }
            Err(error) => self.unclaim(workflow, &claimed, error),
        }
    }

    /// Takes back claims that were neither sent nor submitted: the jobs are ready again.
    fn unclaim(&mut self, workflow: WorkflowId, claimed: &[ClaimedJob], error: StoreError) {
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&workflow) else { return };
        // The last claim of each job: an earlier one was returned.
        let mut jobs: HashSet<JobId> = claimed.iter().map(|claimed| claimed.key.job).collect();
        let changes = std::mem::take(&mut active.open_batch.changes).into_iter().rev();
        let kept =
            changes.filter(|change| !matches!(change, WorkflowChange::Claim { job, .. } if jobs.remove(job)));
        active.open_batch.changes = kept.collect();
        active.open_batch.changes.reverse();
        for ClaimedJob { worker, key, .. } in claimed {
            // It is held under this key, so it is not stale; and the claim was never written, so neither is
            // its return. Only the changes of its unit remain, and are reversed.
            let mut undone = Vec::new();
            drop(active.state.on_claim_returned(*worker, key, &mut undone));
            active
                .open_batch
                .changes
                .extend(undone.into_iter().filter(|change| matches!(change, WorkflowChange::Unit(_))));
            active.held_jobs.remove(&key.job);
            if let Some(session) = worker_sessions.get_mut(worker) {
                session.release_job(key.job);
            }
        }
        self.on_store_error(workflow, error);
        self.update_turns(workflow);
    }

    /// Reserves a worker for a crash suspect, which has to run alone: it is kept free until it is idle.
    fn reserve_worker_for_suspect(&mut self, workflow: WorkflowId) {
        let is_paused = self.is_paused(workflow);
        let Some(active) = self.find_workflow(workflow) else { return };
        if !active.state.has_isolated_waiting()
            || active.reserved_worker.is_some()
            || !active.may_claim()
            || is_paused
        {
            return;
        }
        let (candidates, now) = (self.groups.workers_for(workflow), self.now.instant);
        let Some(WorkflowSlot::Active(active)) = self.workflows.get_mut(&workflow) else { return };
        let suits = |session: &WorkerSession| {
            let free = session.reserved_for.is_none()
                && session.exclusive_job.is_none()
                && session.standing == NodeEligibility::Trusted;
            let may = !session.is_draining && !session.is_to_drain && !session.is_cooling_down(workflow, now);
            free && may && active.state.could_claim_isolated(&session.usage)
        };
        let loads = candidates.into_iter().filter_map(|worker| {
            let session = self.sessions.get(&worker).filter(|session| suits(session))?;
            Some((session.held_jobs.len(), worker))
        });
        let Some((_, worker)) = loads.min() else {
            self.workflows_with_waiting_suspect.insert(workflow);
            return;
        };
        active.reserved_worker = Some(worker);
        if let Some(session) = self.sessions.get_mut(&worker) {
            session.reserved_for = Some(workflow);
        }
        self.dirty_workers.insert(worker);
    }

    /// Claims the suspect for the reserved worker when the worker is idle.
    fn try_suspect_alone(&mut self, worker: WorkerId, workflow: WorkflowId) {
        let (is_paused, now) = (self.is_paused(workflow), self.now.instant);
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let Some(session) = worker_sessions.get_mut(&worker) else { return };
        let Some(WorkflowSlot::Active(active)) = slots.get_mut(&workflow) else {
            session.reserved_for = None;
            return;
        };
        if active.in_flight.is_some() {
            return;
        }
        let rests = session.is_cooling_down(workflow, now);
        if !active.state.has_isolated_waiting() || !active.may_claim() || is_paused || rests {
            release_reservation(session, active);
            return;
        }
        if self.start_first_action(worker, workflow) {
            return;
        }
        let Self { workflows: slots, sessions: worker_sessions, .. } = self;
        let (Some(WorkflowSlot::Active(active)), Some(session)) =
            (slots.get_mut(&workflow), worker_sessions.get_mut(&worker))
        else {
            return;
        };
        if let Some(job) =
            active.state.claim_isolated(worker, &mut session.usage, &mut active.open_batch.changes)
        {
            session.exclusive_job = Some(active.state.attempt_key(job).job);
            release_reservation(session, active);
            self.assign_claimed(worker, workflow, &[job]);
        }
    }
}

/// Ends the reservation of a worker.
fn release_reservation(session: &mut WorkerSession, active: &mut ActiveWorkflow) {
    session.reserved_for = None;
    active.reserved_worker = None;
}
