//! Units at their sites: landing, processing, merge; and the end of them.

use super::{FailedAttempt, Failure, NodeId, NodeState, Unit};
use crate::land::Health;
use crate::sim::{Event, Sim};
use std::time::Duration;
use windlass_core::handlers::{self, Budget, Decision};
use windlass_types::requests::{NodeRole, UnitName, UnitStatus};
use windlass_types::{Attempt, FailureClass};

/// So many units of a run are under way at once.
const AT_ONCE: u32 = 10;

impl Sim {
    /// Units that wait begin, as many as may be under way.
    pub(crate) fn begin_units(&mut self, at: usize) {
        let workflow = &self.grid.workflows[at];
        if workflow.live.is_none() || workflow.is_paused {
            return;
        }
        let free = AT_ONCE.saturating_sub(workflow.count(UnitStatus::Active)) as usize;
        let waiting = workflow.units.iter().zip(0..).filter(|(unit, _)| unit.status == UnitStatus::Waiting);
        let next: Vec<u32> = waiting.map(|(_, number)| number).take(free).collect();
        for unit in next {
            self.begin_unit(at, unit);
        }
    }

    fn begin_unit(&mut self, workflow: usize, number: u32) {
        let unit = &mut self.grid.workflows[workflow].units[number as usize];
        unit.status = UnitStatus::Active;
        unit.landings = 0;
        let id = NodeId { workflow, unit: number, node: 0, life: unit.life };
        if unit.site.is_some() { self.landed(id) } else { self.land(id) }
    }

    /// It looks for a site; if there is none that starts anything, it waits.
    pub(crate) fn land(&mut self, id: NodeId) {
        if self.grid.unit(id).is_none_or(|unit| unit.status != UnitStatus::Active || unit.site.is_some()) {
            return;
        }
        let workflow = &self.grid.workflows[id.workflow];
        let plan = std::sync::Arc::clone(&workflow.plan);
        let Some(planned) = plan.unit(id.unit) else { return };
        let site = self.land.elect(planned.sites(), &workflow.closed, &mut self.grid.dice);
        let Some(site) = site else {
            let later = self.grid.dice.minutes(20.0, 60.0);
            return self.later(later, Event::Land(id));
        };
        let takes = self.grid.dice.minutes(2.0, 10.0);
        // Half of those that a black hole takes do not notice before they are there.
        let fails = self.land.sites[site].health == Health::BlackHole && self.grid.dice.chance(0.5);
        self.later(takes, Event::Landed { id, site, fails });
    }

    pub(crate) fn landing_over(&mut self, id: NodeId, site: usize, fails: bool) {
        let Some(unit) = self.grid.unit(id).filter(|unit| unit.status == UnitStatus::Active) else { return };
        unit.landings += 1;
        let attempt = unit.landings;
        self.count_ended(id.workflow, site, NodeRole::Landing);
        if !fails && self.land.sites[site].health != Health::Dark {
            if let Some(unit) = self.grid.unit(id) {
                unit.site = Some(site);
            }
            return self.landed(id);
        }
        let retries = self.grid.workflows[id.workflow].plan.retries.landing;
        let is_final = attempt > retries;
        self.note_failure(id, NodeRole::Landing, attempt, site, Failure::of_site(), is_final);
        if is_final {
            self.unit_over(id, UnitStatus::Failed);
        } else {
            self.later(Duration::from_mins(5), Event::Land(id));
        }
    }

    /// All its nodes that are not done want a slot; the merge when the others are done.
    fn landed(&mut self, id: NodeId) {
        let Some(unit) = self.grid.unit(id) else { return };
        let merge = unit.nodes.len() as u32 - 1;
        let is_idle = |unit: &Unit, node: u32| unit.nodes[node as usize].state == NodeState::Idle;
        let idle: Vec<u32> = (0..merge).filter(|&node| is_idle(unit, node)).collect();
        if idle.is_empty() {
            return self.processed(id);
        }
        for node in idle {
            self.want_slot(NodeId { node, ..id });
        }
    }

    pub(crate) fn want_slot(&mut self, id: NodeId) {
        let Some(site) = self.grid.unit(id).and_then(|unit| unit.site) else { return };
        if let Some(node) = self.grid.node(id) {
            node.state = NodeState::Queued;
            self.land.sites[site].queue.push_back(id);
            self.fill_slots(site);
        }
    }

    /// Those that wait start, as long as there is room and the site starts anything.
    pub(crate) fn fill_slots(&mut self, site: usize) {
        while self.land.sites[site].health != Health::Dark {
            let Some(&id) = self.land.sites[site].queue.front() else { return };
            let cores = match self.grid.node(id) {
                Some(node) if node.state == NodeState::Queued => node.asked.cpus,
                _ => {
                    self.land.sites[site].queue.pop_front();
                    continue;
                }
            };
            if self.land.sites[site].free < cores {
                return;
            }
            self.land.sites[site].queue.pop_front();
            self.land.sites[site].free -= cores;
            self.start(id, site);
        }
    }

    fn start(&mut self, id: NodeId, site: usize) {
        self.grid.attempts += 1;
        let attempt = self.grid.attempts;
        if let Some(node) = self.grid.node(id) {
            node.used += 1;
            node.attempts += 1;
            node.state = NodeState::Running(attempt);
        }
        self.land.sites[site].running.insert(attempt, id);
        let fate = self.fate(id, site);
        self.later(fate.after, Event::Attempt { id, attempt, site, failure: fate.failure.map(Box::new) });
    }

    /// Its slot is free again. `false`: it was ended before, and this is no news.
    fn leave(&mut self, id: NodeId, attempt: u64, site: usize) -> bool {
        if self.land.sites[site].running.remove(&attempt).is_none() {
            return false;
        }
        let cores = self.grid.workflows[id.workflow].plan.resources.cores;
        self.land.sites[site].free += cores;
        true
    }

    /// An attempt ended by itself, or with its site.
    pub(crate) fn attempt_over(&mut self, id: NodeId, attempt: u64, site: usize, failure: Option<Failure>) {
        if !self.leave(id, attempt, site) {
            return;
        }
        self.count_ended(id.workflow, site, self.role(id));
        match failure {
            None => self.node_done(id),
            Some(failure) => self.node_failed(id, site, failure),
        }
        self.fill_slots(site);
    }

    /// Everything that runs at a site fails.
    pub(crate) fn site_down(&mut self, site: usize) {
        let running: Vec<(u64, NodeId)> =
            self.land.sites[site].running.iter().map(|(attempt, id)| (*attempt, *id)).collect();
        for (attempt, id) in running {
            self.attempt_over(id, attempt, site, Some(Failure::of_site()));
        }
    }

    fn count_ended(&mut self, workflow: usize, site: usize, role: NodeRole) {
        let name = self.land.sites[site].name.clone();
        self.grid.workflows[workflow].ended.entry(name).or_default().count(role, 1);
    }

    fn node_done(&mut self, id: NodeId) {
        let Some(unit) = self.grid.unit(id) else { return };
        unit.nodes[id.node as usize].state = NodeState::Done;
        if id.node as usize + 1 == unit.nodes.len() {
            return self.unit_over(id, UnitStatus::Completed);
        }
        self.processed(id);
    }

    /// If all that is processed is done, it is merged; if something failed for good and nothing else goes on, that was it.
    fn processed(&mut self, id: NodeId) {
        let Some(unit) = self.grid.unit(id) else { return };
        let (merge, others) = match unit.nodes.split_last() {
            Some((merge, others)) if merge.state == NodeState::Idle => (others.len() as u32, others),
            _ => return,
        };
        let is_settled = |state| matches!(state, NodeState::Done | NodeState::Failed);
        if !others.iter().all(|node| is_settled(node.state)) {
            return;
        }
        if others.iter().any(|node| node.state == NodeState::Failed) {
            self.unit_over(id, UnitStatus::Failed);
        } else {
            self.want_slot(NodeId { node: merge, ..id });
        }
    }

    /// The rules say whether it is tried again, as in production.
    fn node_failed(&mut self, id: NodeId, site: usize, failure: Failure) {
        let dice = self.grid.dice.number();
        let role = self.role(id);
        let Some((used, attempts, asked)) =
            self.grid.node(id).map(|node| (node.used, node.attempts, node.asked))
        else {
            return;
        };
        let handler = &self.grid.workflows[id.workflow].handlers[&role];
        let failed = handlers::Failure {
            return_code: 1,
            exit: None,
            cause: None,
            class: failure.class,
            last_words: failure.message,
        };
        let situation = handlers::Situation {
            attempt: Attempt(attempts),
            used,
            asked: Some(asked),
            workers: &[],
            longest: None,
            budget: Budget { granted: 0, limit: u64::MAX },
            dice,
        };
        let decision = handlers::decide(Some(handler), &failed, &situation);
        let is_final = matches!(decision, Decision::Final(_));
        self.note_failure(id, role, attempts, site, failure, is_final);
        let Some(node) = self.grid.node(id) else { return };
        match decision {
            Decision::Retry(retry) => {
                node.asked = retry.resources.unwrap_or(node.asked);
                node.state = NodeState::CoolingOff;
                self.later(retry.delay, Event::Retry(id));
            }
            Decision::Final(_) => {
                node.state = NodeState::Failed;
                if role == NodeRole::Merge {
                    self.unit_over(id, UnitStatus::Failed);
                } else {
                    self.processed(id);
                }
            }
        }
    }

    pub(crate) fn cooled_off(&mut self, id: NodeId) {
        if self.grid.node(id).is_some_and(|node| node.state == NodeState::CoolingOff) {
            self.want_slot(id);
        }
    }

    fn role(&self, id: NodeId) -> NodeRole {
        let nodes = self.grid.workflows[id.workflow].units[id.unit as usize].nodes.len() as u32;
        if id.node + 1 == nodes { NodeRole::Merge } else { NodeRole::Processing }
    }

    fn note_failure(
        &mut self,
        id: NodeId,
        role: NodeRole,
        attempt: u32,
        site: usize,
        failure: Failure,
        is_final: bool,
    ) {
        // Now and then nobody knows where it was.
        let is_known = failure.class != FailureClass::Unknown;
        let name = self.land.sites[site].name.clone();
        let request = self.grid.workflows[id.workflow].request.clone();
        self.stories.whisper(self.now, &request, || {
            let last = if is_final { ", for good" } else { "" };
            format!("{} node {} at {name}: {}{last}", UnitName(id.unit), id.node, failure.message)
        });
        let now = self.now;
        self.grid.workflows[id.workflow].failed.push(FailedAttempt {
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

    /// The unit is over, and perhaps its run with it.
    fn unit_over(&mut self, id: NodeId, status: UnitStatus) {
        let Some(unit) = self.grid.unit(id) else { return };
        unit.status = status;
        unit.life += 1;
        let workflow = &mut self.grid.workflows[id.workflow];
        workflow.told.push((id.unit, status));
        let is_open = |status| matches!(status, UnitStatus::Waiting | UnitStatus::Active);
        if !workflow.units.iter().any(|unit| is_open(unit.status)) {
            workflow.live = None;
        }
        let (request, round, is_condor) = (workflow.request.clone(), workflow.round, workflow.is_condor);
        self.stories.whisper(self.now, &request, || format!("round {round}: {} {status}", UnitName(id.unit)));
        self.begin_units(id.workflow);
        // The engine tells at once; what happens at a schedd has to be looked for.
        let hears = if is_condor { self.grid.dice.minutes(0.2, 5.0) } else { Duration::from_secs(1) };
        self.later(hears, Event::Nudge(request));
    }
}
