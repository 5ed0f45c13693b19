//! Units at their sites: landing, processing, merge and end.

use super::{
    SimulatedAttemptFailure, SimulatedFailedAttempt, SimulatedNodeId, SimulatedNodeState, SimulatedUnit,
};
use crate::simulation::{RequestSimulation, SimulationEvent};
use crate::sites::SiteHealth;
use std::time::Duration;
use windlass_core::failure_handlers::{self, HandlerDecision, RetryBudgetUsage};
use windlass_types::requests::{NodeRole, RequestUnitStatus, WorkUnitName};
use windlass_types::{Attempt, FailureClass};

/// Maximum number of active units of a run.
const MAX_ACTIVE_UNITS: u32 = 10;

impl RequestSimulation {
    /// Starts waiting units, up to the maximum number of active ones.
    pub(crate) fn start_units(&mut self, at: usize) {
        let workflow = &self.backends.workflows[at];
        if workflow.active_run.is_none() || workflow.is_paused {
            return;
        }
        let free = MAX_ACTIVE_UNITS.saturating_sub(workflow.count(RequestUnitStatus::Active)) as usize;
        let waiting =
            workflow.units.iter().zip(0..).filter(|(unit, _)| unit.status == RequestUnitStatus::Waiting);
        let next: Vec<u32> = waiting.map(|(_, number)| number).take(free).collect();
        for unit in next {
            self.start_unit(at, unit);
        }
    }

    fn start_unit(&mut self, workflow: usize, number: u32) {
        let unit = &mut self.backends.workflows[workflow].units[number as usize];
        unit.status = RequestUnitStatus::Active;
        unit.landings = 0;
        let id = SimulatedNodeId { workflow, unit: number, node: 0, generation: unit.generation };
        if unit.site.is_some() { self.on_landed(id) } else { self.start_landing(id) }
    }

    /// Selects a site; if no site starts jobs, tries again later.
    pub(crate) fn start_landing(&mut self, id: SimulatedNodeId) {
        if self
            .backends
            .unit(id)
            .is_none_or(|unit| unit.status != RequestUnitStatus::Active || unit.site.is_some())
        {
            return;
        }
        let workflow = &self.backends.workflows[id.workflow];
        let plan = std::sync::Arc::clone(&workflow.plan);
        let Some(planned) = plan.unit(id.unit) else { return };
        let site = self.grid.elect_site(planned.sites(), &workflow.closed_sites, &mut self.backends.random);
        let Some(site) = site else {
            let later = self.backends.random.random_minutes(20.0, 60.0);
            return self.schedule_after(later, SimulationEvent::StartLanding(id));
        };
        let takes = self.backends.random.random_minutes(2.0, 10.0);
        // Half of the landings at a black hole fail, the others fail later.
        let fails = self.grid.sites[site].health == SiteHealth::BlackHole && self.backends.random.chance(0.5);
        self.schedule_after(takes, SimulationEvent::Landed { id, site, fails });
    }

    pub(crate) fn on_landing_ended(&mut self, id: SimulatedNodeId, site: usize, fails: bool) {
        let Some(unit) = self.backends.unit(id).filter(|unit| unit.status == RequestUnitStatus::Active)
        else {
            return;
        };
        unit.landings += 1;
        let attempt = unit.landings;
        self.count_ended_attempt(id.workflow, site, NodeRole::Landing);
        if !fails && self.grid.sites[site].health != SiteHealth::Down {
            if let Some(unit) = self.backends.unit(id) {
                unit.site = Some(site);
            }
            return self.on_landed(id);
        }
        let retries = self.backends.workflows[id.workflow].plan.retries.landing;
        let is_final = attempt > retries;
        self.record_failure(
            id,
            NodeRole::Landing,
            attempt,
            site,
            SimulatedAttemptFailure::site_failure(),
            is_final,
        );
        if is_final {
            self.on_unit_ended(id, RequestUnitStatus::Failed);
        } else {
            self.schedule_after(Duration::from_mins(5), SimulationEvent::StartLanding(id));
        }
    }

    /// Requests slots for all unfinished nodes; the merge follows when the others are done.
    fn on_landed(&mut self, id: SimulatedNodeId) {
        let Some(unit) = self.backends.unit(id) else { return };
        let merge = unit.nodes.len() as u32 - 1;
        let is_idle =
            |unit: &SimulatedUnit, node: u32| unit.nodes[node as usize].state == SimulatedNodeState::Idle;
        let idle: Vec<u32> = (0..merge).filter(|&node| is_idle(unit, node)).collect();
        if idle.is_empty() {
            return self.merge_or_fail_unit(id);
        }
        for node in idle {
            self.request_slot(SimulatedNodeId { node, ..id });
        }
    }

    pub(crate) fn request_slot(&mut self, id: SimulatedNodeId) {
        let Some(site) = self.backends.unit(id).and_then(|unit| unit.site) else { return };
        if let Some(node) = self.backends.node(id) {
            node.state = SimulatedNodeState::Queued;
            self.grid.sites[site].queue.push_back(id);
            self.fill_slots(site);
        }
    }

    /// Starts waiting nodes while there are free slots and the site starts jobs.
    pub(crate) fn fill_slots(&mut self, site: usize) {
        while self.grid.sites[site].health != SiteHealth::Down {
            let Some(&id) = self.grid.sites[site].queue.front() else { return };
            let cores = match self.backends.node(id) {
                Some(node) if node.state == SimulatedNodeState::Queued => node.requested.cpus,
                _ => {
                    self.grid.sites[site].queue.pop_front();
                    continue;
                }
            };
            if self.grid.sites[site].free < cores {
                return;
            }
            self.grid.sites[site].queue.pop_front();
            self.grid.sites[site].free -= cores;
            self.start_attempt(id, site);
        }
    }

    fn start_attempt(&mut self, id: SimulatedNodeId, site: usize) {
        self.backends.attempts += 1;
        let attempt = self.backends.attempts;
        if let Some(node) = self.backends.node(id) {
            node.attempts_in_run += 1;
            node.attempts += 1;
            node.state = SimulatedNodeState::Running(attempt);
        }
        self.grid.sites[site].running.insert(attempt, id);
        let outcome = self.decide_attempt_outcome(id, site);
        self.schedule_after(
            outcome.after,
            SimulationEvent::Attempt { id, attempt, site, failure: outcome.failure.map(Box::new) },
        );
    }

    /// Releases the slot. Returns `false` if the attempt had already ended and its end must be ignored.
    fn release_slot(&mut self, id: SimulatedNodeId, attempt: u64, site: usize) -> bool {
        if self.grid.sites[site].running.remove(&attempt).is_none() {
            return false;
        }
        let cores = self.backends.workflows[id.workflow].plan.resources.cores;
        self.grid.sites[site].free += cores;
        true
    }

    /// Handles the end of an attempt, caused by itself or by its site.
    pub(crate) fn on_attempt_ended(
        &mut self,
        id: SimulatedNodeId,
        attempt: u64,
        site: usize,
        failure: Option<SimulatedAttemptFailure>,
    ) {
        if !self.release_slot(id, attempt, site) {
            return;
        }
        self.count_ended_attempt(id.workflow, site, self.node_role(id));
        match failure {
            None => self.on_node_done(id),
            Some(failure) => self.on_node_failed(id, site, failure),
        }
        self.fill_slots(site);
    }

    /// Fails all attempts that run at a site.
    pub(crate) fn fail_site_attempts(&mut self, site: usize) {
        let running: Vec<(u64, SimulatedNodeId)> =
            self.grid.sites[site].running.iter().map(|(attempt, id)| (*attempt, *id)).collect();
        for (attempt, id) in running {
            self.on_attempt_ended(id, attempt, site, Some(SimulatedAttemptFailure::site_failure()));
        }
    }

    fn count_ended_attempt(&mut self, workflow: usize, site: usize, role: NodeRole) {
        let name = self.grid.sites[site].name.clone();
        self.backends.workflows[workflow].ended_attempts.entry(name).or_default().add_attempts(role, 1);
    }

    fn on_node_done(&mut self, id: SimulatedNodeId) {
        let Some(unit) = self.backends.unit(id) else { return };
        unit.nodes[id.node as usize].state = SimulatedNodeState::Done;
        if id.node as usize + 1 == unit.nodes.len() {
            return self.on_unit_ended(id, RequestUnitStatus::Completed);
        }
        self.merge_or_fail_unit(id);
    }

    /// Starts the merge if all processing nodes are done; fails the unit if one failed and no other is
    /// unfinished.
    fn merge_or_fail_unit(&mut self, id: SimulatedNodeId) {
        let Some(unit) = self.backends.unit(id) else { return };
        let (merge, others) = match unit.nodes.split_last() {
            Some((merge, others)) if merge.state == SimulatedNodeState::Idle => (others.len() as u32, others),
            _ => return,
        };
        let is_settled = |state| matches!(state, SimulatedNodeState::Done | SimulatedNodeState::Failed);
        if !others.iter().all(|node| is_settled(node.state)) {
            return;
        }
        if others.iter().any(|node| node.state == SimulatedNodeState::Failed) {
            self.on_unit_ended(id, RequestUnitStatus::Failed);
        } else {
            self.request_slot(SimulatedNodeId { node: merge, ..id });
        }
    }

    /// Retries or fails the node by the failure rules, as in production.
    fn on_node_failed(&mut self, id: SimulatedNodeId, site: usize, failure: SimulatedAttemptFailure) {
        let rng = self.backends.random.next_number();
        let role = self.node_role(id);
        let Some((used, attempts, asked)) =
            self.backends.node(id).map(|node| (node.attempts_in_run, node.attempts, node.requested))
        else {
            return;
        };
        let handler = &self.backends.workflows[id.workflow].handlers[&role];
        let failed = failure_handlers::FailedAttemptFacts {
            return_code: 1,
            exit: None,
            cause: None,
            class: failure.class,
            stderr_tail: failure.message,
        };
        let situation = failure_handlers::RetryContext {
            attempt: Attempt(attempts),
            used_attempts: used,
            asked: Some(asked),
            workers: &[],
            max_worker_lifetime: None,
            budget: RetryBudgetUsage { granted: 0, limit: u64::MAX },
            random: rng,
        };
        let decision = failure_handlers::decide_retry(Some(handler), &failed, &situation);
        let is_final = matches!(decision, HandlerDecision::Final(_));
        self.record_failure(id, role, attempts, site, failure, is_final);
        let Some(node) = self.backends.node(id) else { return };
        match decision {
            HandlerDecision::Retry(retry) => {
                node.requested = retry.resources.unwrap_or(node.requested);
                node.state = SimulatedNodeState::CoolingOff;
                self.schedule_after(retry.delay, SimulationEvent::Retry(id));
            }
            HandlerDecision::Final(_) => {
                node.state = SimulatedNodeState::Failed;
                if role == NodeRole::Merge {
                    self.on_unit_ended(id, RequestUnitStatus::Failed);
                } else {
                    self.merge_or_fail_unit(id);
                }
            }
        }
    }

    pub(crate) fn on_cooled_off(&mut self, id: SimulatedNodeId) {
        if self.backends.node(id).is_some_and(|node| node.state == SimulatedNodeState::CoolingOff) {
            self.request_slot(id);
        }
    }

    fn node_role(&self, id: SimulatedNodeId) -> NodeRole {
        let nodes = self.backends.workflows[id.workflow].units[id.unit as usize].nodes.len() as u32;
        if id.node + 1 == nodes { NodeRole::Merge } else { NodeRole::Processing }
    }

    fn record_failure(
        &mut self,
        id: SimulatedNodeId,
        role: NodeRole,
        attempt: u32,
        site: usize,
        failure: SimulatedAttemptFailure,
        is_final: bool,
    ) {
        // The site of some failures is unknown.
        let is_known = failure.class != FailureClass::Unknown;
        let name = self.grid.sites[site].name.clone();
        let request = self.backends.workflows[id.workflow].request.clone();
        self.histories.record_detail(self.now, &request, || {
            let last = if is_final { ", final" } else { "" };
            format!("{} node {} at {name}: {}{last}", WorkUnitName(id.unit), id.node, failure.message)
        });
        let now = self.now;
        self.backends.workflows[id.workflow].failed_attempts.push(SimulatedFailedAttempt {
            unit: id.unit,
            node: format!("proc_{:06}", id.node),
            role,
            attempt,
            site: is_known.then_some(name),
            failure,
            is_final,
            at: now,
        });
    }

    /// Handles the end of a unit, and of its run if it was the last one.
    fn on_unit_ended(&mut self, id: SimulatedNodeId, status: RequestUnitStatus) {
        let Some(unit) = self.backends.unit(id) else { return };
        unit.status = status;
        unit.generation += 1;
        let workflow = &mut self.backends.workflows[id.workflow];
        workflow.unit_events.push((id.unit, status));
        let is_open = |status| matches!(status, RequestUnitStatus::Waiting | RequestUnitStatus::Active);
        if !workflow.units.iter().any(|unit| is_open(unit.status)) {
            workflow.active_run = None;
        }
        let (request, round, is_condor) = (workflow.request.clone(), workflow.round, workflow.is_condor);
        self.histories.record_detail(self.now, &request, || {
            format!("round {round}: {} {status}", WorkUnitName(id.unit))
        });
        self.start_units(id.workflow);
        // The engine notifies at once; a schedd is polled.
        let hears =
            if is_condor { self.backends.random.random_minutes(0.2, 5.0) } else { Duration::from_secs(1) };
        self.schedule_after(hears, SimulationEvent::WakeServer(request));
    }
}
