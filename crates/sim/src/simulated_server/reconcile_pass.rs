//! A pass: reads, decides, commits, and starts effects, like the reconciler of production.

use super::{EffectSubject, SimulatedEffectKey, StartedEffect};
use crate::memory_store::{CommitRefusal, is_open};
use crate::setup::{InjectedFault, failure_rates};
use crate::simulation::{RequestSimulation, SimulationEvent};
use std::collections::BTreeSet;
use std::convert::Infallible;
use windlass_core::requests::RequestView;
use windlass_core::requests::admission::{self, AdmissionCandidate};
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::lifecycle::{
    self, LifecycleDecision, LifecycleEffect, LifecycleEvent, LifecycleInputs, decide_request, takes_slot,
};
use windlass_core::requests::rows::{BlockRow, RunRow};
use windlass_core::requests::versions;
use windlass_types::requests::{CleanupPolicy, RequestStatus};

/// Maximum number of consecutive decisions in a pass.
const MAX_TURNS: usize = 16;

impl RequestSimulation {
    pub(crate) fn run_pass(&mut self, life: u32) {
        if life != self.server.generation
            || !self.server.is_up
            || self.server.memory.next_pass_at != Some(self.now)
        {
            return;
        }
        self.server.memory.next_pass_at = None;
        let mut due = self.due_requests();
        for name in &due {
            self.observe_active_run(name);
        }
        for _ in 0..MAX_TURNS {
            let admitted = self.admitted_requests();
            due.extend(admitted.iter().cloned());
            due = self.run_turn(&due, &admitted);
            if due.is_empty() {
                break;
            }
        }
        for name in due {
            self.server.memory.wake_at.insert(name, self.now);
        }
        let memory = &self.server.memory;
        let next = memory.wake_at.values().chain(memory.paused_effects.values()).copied().min();
        let next_full_scan = memory.last_full_scan.map(|last| last.plus(failure_rates::FULL_SCAN_INTERVAL));
        if let Some(at) = next.into_iter().chain(next_full_scan).min() {
            self.schedule_pass(at.max(self.now.plus(std::time::Duration::from_secs(1))));
        }
    }

    /// Returns the requests with notifications, and those whose next check is due.
    fn due_requests(&mut self) -> BTreeSet<String> {
        let now = self.now;
        let memory = &mut self.server.memory;
        let mut due = std::mem::take(&mut memory.notified_requests);
        due.extend(memory.wake_at.extract_if(.., |_, at| *at <= now).map(|(name, _)| name));
        let paused = memory.paused_effects.extract_if(.., |_, until| *until <= now);
        due.extend(paused.map(|((name, _), _)| name));
        if self.is_full_scan_due() {
            self.update_bans();
            due.extend(self.store.open_requests().map(|view| view.row.request.request_name.clone()));
        }
        if self.has_fault(InjectedFault::ForgetRequest) {
            due.retain(|name| !name.ends_with("7_v1"));
        }
        due
    }

    fn observe_active_run(&mut self, name: &str) {
        let Some(view) = self.store.views.get(name).filter(|view| !view.row.status.is_terminal()) else {
            return;
        };
        if let Some(run) = view.run.as_ref().filter(|run| run.status.is_active()) {
            let news = self.observe_run(name, run, view.failures.read);
            self.server.memory.news.entry(name.to_owned()).or_default().push(news);
        }
    }

    /// Returns the queued requests that are admitted.
    fn admitted_requests(&self) -> BTreeSet<String> {
        let waiting = self.store.views.values().filter(|view| view.row.status == RequestStatus::Queued);
        let candidates: Vec<AdmissionCandidate<'_>> = waiting.map(admission_candidate).collect();
        if candidates.is_empty() {
            return BTreeSet::new();
        }
        let holders: Vec<&str> = self
            .store
            .views
            .values()
            .filter(|view| takes_slot(view))
            .map(|view| view.row.request.requestor.as_str())
            .collect();
        let queue = admission::order_queue(&candidates, &holders, &self.admission_settings, self.now);
        queue.iter().filter(|turn| turn.admitted).map(|turn| turn.name.to_owned()).collect()
    }

    /// Decides about the due requests, commits, and starts effects. Returns the changed requests.
    fn run_turn(&mut self, due: &BTreeSet<String>, admitted: &BTreeSet<String>) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for name in due {
            let Some(view) = self.store.views.get(name).filter(|view| is_open(view)) else { continue };
            self.statistics.decisions += 1;
            self.server.names += 1;
            let fresh_uuid = format!("{name}.{}", self.server.names);
            let previous = self.previous_blocks(view);
            let situation = LifecycleInputs {
                events: self.server.memory.news.get(name).map_or(&[], Vec::as_slice),
                admitted: admitted.contains(name),
                previous: &previous,
                unit_sites: &self.allowed_sites(view),
                new_run_uuid: &fresh_uuid,
            };
            let mut decision = decide_request(view, &situation, &self.lifecycle_settings, self.now);
            self.inject_fault(name, &mut decision);
            let commit = decision.to_commit(&self.store.views[name], self.now);
            // A person may change the request between the decision and its commit.
            self.apply_racing_changes(name);
            match commit.map(|commit| self.commit(&commit)) {
                None => self.start_effects(name, &decision),
                Some(Ok(())) => {
                    self.start_effects(name, &decision);
                    changed.insert(name.clone());
                }
                Some(Err(CommitRefusal::Outdated)) => drop(changed.insert(name.clone())),
                Some(Err(CommitRefusal::Invalid(what))) => self.record_violation(name, what),
            }
        }
        changed
    }

    /// Commits changes by the server or a person, and checks the invariants.
    pub(crate) fn commit(&mut self, commit: &RequestCommit) -> Result<(), CommitRefusal> {
        let Some(before) = self.store.views.get(&commit.request).cloned() else { return Ok(()) };
        self.store.commit(commit)?;
        for change in &commit.changes {
            self.on_change(&before, change);
        }
        self.check_commit(&before, commit);
        Ok(())
    }

    /// Records and counts a change, and schedules reactions of people.
    fn on_change(&mut self, before: &RequestView, change: &RequestChange) {
        let name = &before.row.request.request_name;
        match change {
            RequestChange::Status { from, to, reason } => {
                let why = reason.as_deref().unwrap_or_default();
                self.histories.record(self.now, name, &format!("{from} → {to} {why}"));
                if *to == RequestStatus::Held {
                    self.statistics.holds += 1;
                    self.schedule_operator(name);
                }
            }
            RequestChange::AddRun(run) => {
                self.statistics.record_run(run);
                let what = format!("run {} of round {}, {:?}", run.uuid, run.round, run.cause);
                self.histories.record(self.now, name, &what);
            }
            RequestChange::Alert(alert) => {
                *self.statistics.alerts.entry(alert.kind.clone()).or_default() += 1;
                self.histories.record(self.now, name, &format!("alert {}: {}", alert.kind, alert.message));
            }
            RequestChange::Ban(ban) => {
                self.statistics.bans += 1;
                self.histories.record(self.now, name, &format!("{} is banned: {}", ban.site, ban.reason));
            }
            RequestChange::AddVersion(new, _) => {
                let truth = self.request_facts[name].clone();
                self.request_facts.insert(new.request_name.clone(), truth);
                self.histories.record(self.now, name, &format!("superseded by {}", new.request_name));
                self.wake_server(&new.request_name);
            }
            _ => {}
        }
    }

    /// Injects a fault.
    fn inject_fault(&mut self, name: &str, decision: &mut LifecycleDecision) {
        if self.has_fault(InjectedFault::LoseAlerts) {
            decision.changes.retain(|change| !matches!(change, RequestChange::Alert(_)));
        }
        let status = self.store.views[name].row.status;
        if self.has_fault(InjectedFault::FailByItself) && status == RequestStatus::Held {
            let to = RequestStatus::Failed;
            decision.changes.push(RequestChange::Status { from: status, to, reason: None });
        }
    }

    /// Returns the allowed sites of the units of the run, if a decision may ban sites.
    fn allowed_sites(&self, view: &RequestView) -> Vec<BTreeSet<String>> {
        let name = &view.row.request.request_name;
        let news = self.server.memory.news.get(name).into_iter().flatten();
        let may_ban = |news: &LifecycleEvent| match news {
            LifecycleEvent::RunReported(news) => lifecycle::may_ban_sites(
                &view.failures,
                news,
                &self.lifecycle_settings.failure_response,
                self.now,
            ),
            _ => false,
        };
        let Some(run) = view.run.as_ref().filter(|_| news.into_iter().any(may_ban)) else {
            return Vec::new();
        };
        let banned = self.store.banned_sites(name, self.now);
        let open = |sites: BTreeSet<String>| sites.difference(&banned).cloned().collect();
        self.allowed_sites_of_run(run).into_iter().map(open).collect()
    }

    /// Returns the distinct sets of sites of the units of a run.
    pub(super) fn allowed_sites_of_run(&self, run: &RunRow) -> Vec<BTreeSet<String>> {
        let Some(plan) = self.written_plans.get(&run.submit_dir) else { return Vec::new() };
        let sets: BTreeSet<BTreeSet<String>> =
            plan.units().map(|unit| unit.sites().map(str::to_owned).collect()).collect();
        sets.into_iter().collect()
    }

    /// Returns the blocks of earlier versions that are removed when this one is completed.
    fn previous_blocks(&self, view: &RequestView) -> Vec<BlockRow> {
        let request = &view.row.request;
        let wanted = request.cleanup_policy == CleanupPolicy::ImmediateCleanup;
        if !wanted {
            return Vec::new();
        }
        let read = |name: &str| Ok::<_, Infallible>(self.store.views.get(name));
        let Ok(earlier) = versions::earlier_versions(request, read, |view| &view.row.request);
        earlier.into_iter().flat_map(|view| view.blocks.clone()).collect()
    }

    /// Removes the processed events, and starts the effects of a decision.
    fn start_effects(&mut self, name: &str, decision: &LifecycleDecision) {
        let now = self.now;
        let memory = &mut self.server.memory;
        memory.news.remove(name);
        if let Some(at) = decision.next_check {
            let wake = memory.wake_at.entry(name.to_owned()).or_insert(at);
            *wake = at.min(*wake);
        }
        let Some(view) = self.store.views.get(name) else { return };
        let mut groups: Vec<(SimulatedEffectKey, Vec<StartedEffect>)> = Vec::new();
        for effect in &decision.effects {
            let pause = memory.paused_effects.get(&(name.to_owned(), effect.effect_key()));
            let key = SimulatedEffectKey { request: name.to_owned(), subject: effect_subject(effect) };
            if pause.is_some_and(|until| *until > now) || memory.running_effects.contains_key(&key) {
                continue;
            }
            let begun = StartedEffect::new(view, effect);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, together)) => together.push(begun),
                None => groups.push((key, vec![begun])),
            }
        }
        for (key, together) in groups {
            let takes = super::effects::effect_duration(&together[0].effect, &mut self.server.random);
            self.server.memory.running_effects.insert(key.clone(), together);
            let life = self.server.generation;
            self.schedule_after(takes, SimulationEvent::EffectDone { generation: life, key });
        }
    }
}

fn effect_subject(effect: &LifecycleEffect) -> EffectSubject {
    match effect {
        LifecycleEffect::Import
        | LifecycleEffect::Plan { .. }
        | LifecycleEffect::Settle { .. }
        | LifecycleEffect::WriteManifest => EffectSubject::Plan,
        LifecycleEffect::Step(step) => EffectSubject::Block(step.block.clone()),
        _ => EffectSubject::Run,
    }
}

fn admission_candidate(view: &RequestView) -> AdmissionCandidate<'_> {
    let request = &view.row.request;
    AdmissionCandidate {
        name: &request.request_name,
        requestor: &request.requestor,
        urgent: request.urgent,
        priority: request.priority,
        created_at: view.row.created_at,
        queued_since: view.row.since,
    }
}
