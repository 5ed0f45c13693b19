//! Performs effects. They may fail, or succeed and lose their response.

use super::{SimulatedEffectKey, StartedEffect};
use crate::backends::SimulatedWorkflow;
use crate::seeded_random::SeededRandom;
use crate::setup::failure_rates;
use crate::simulation::RequestSimulation;
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_core::requests::bans;
use windlass_core::requests::lifecycle::{EffectFailure, LifecycleEffect, LifecycleEvent};
use windlass_core::requests::rows::RunRow;

/// Minimum delay before an effect is repeated.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time for a run to stop before the effect is repeated.
const STOP_RETRY_INTERVAL: Duration = Duration::from_secs(30);

pub(super) fn effect_duration(effect: &LifecycleEffect, random: &mut SeededRandom) -> Duration {
    match effect {
        LifecycleEffect::Import | LifecycleEffect::WriteManifest | LifecycleEffect::Step(_) => {
            random.random_minutes(0.02, 0.2)
        }
        LifecycleEffect::Plan { .. } => random.random_minutes(0.2, 3.0),
        _ => random.random_minutes(0.1, 1.0),
    }
}

impl RequestSimulation {
    /// Handles the end of started effects.
    pub(crate) fn on_effect_done(&mut self, life: u32, key: &SimulatedEffectKey) {
        if life != self.server.generation || !self.server.is_up {
            return;
        }
        let together = self.server.memory.running_effects.remove(key).unwrap_or_default();
        for begun in together {
            let (news, pause) = self.attempt_effect(&key.request, &begun);
            let until = self.now.plus(pause);
            let memory = &mut self.server.memory;
            memory.paused_effects.insert((key.request.clone(), begun.effect.effect_key()), until);
            memory.news.entry(key.request.clone()).or_default().extend(news);
        }
        self.wake_server(&key.request);
    }

    /// Attempts an effect; it may fail, or its response may be lost.
    fn attempt_effect(&mut self, request: &str, begun: &StartedEffect) -> (Vec<LifecycleEvent>, Duration) {
        let may_fail = !self.are_faults_over;
        if may_fail && self.server.random.chance(failure_rates::EFFECT_FAILS) {
            return self.failed_effect_events(begun);
        }
        if may_fail && self.server.random.chance(failure_rates::ANSWER_LOST) {
            self.perform_effect(request, begun);
            return self.failed_effect_events(begun);
        }
        let news = self.perform_effect(request, begun);
        let pause = match (&begun.effect, news.iter().any(is_problem)) {
            (_, true) => self.lifecycle_settings.retry_after,
            (LifecycleEffect::Stop { .. } | LifecycleEffect::Pause { .. }, false) => STOP_RETRY_INTERVAL,
            _ => MIN_RETRY_DELAY,
        };
        (news, pause)
    }

    fn failed_effect_events(&self, begun: &StartedEffect) -> (Vec<LifecycleEvent>, Duration) {
        let trouble = transient_problem("no answer");
        let news = match &begun.effect {
            LifecycleEffect::Import => vec![LifecycleEvent::ImportFailed(trouble)],
            LifecycleEffect::Plan { .. } => vec![LifecycleEvent::PlanFailed(trouble)],
            LifecycleEffect::Submit { run } | LifecycleEffect::Resume { run } => {
                vec![LifecycleEvent::SubmitFailed { run: run.clone(), failure: trouble }]
            }
            LifecycleEffect::Stop { run, .. } => {
                vec![LifecycleEvent::StopFailed { run: run.clone(), failure: trouble }]
            }
            LifecycleEffect::Pause { .. }
            | LifecycleEffect::Unpause { .. }
            | LifecycleEffect::AvoidSites { .. }
            | LifecycleEffect::Prioritize { .. } => Vec::new(),
            LifecycleEffect::Settle { round, .. } => {
                vec![LifecycleEvent::SettleFailed { round: *round, failure: trouble }]
            }
            LifecycleEffect::WriteManifest => vec![LifecycleEvent::ManifestFailed { reason: trouble.reason }],
            LifecycleEffect::Step(step) => vec![LifecycleEvent::Step {
                block: step.block.clone(),
                unit: step.unit,
                kind: step.kind,
                outcome: Err(trouble.reason),
            }],
        };
        (news, self.lifecycle_settings.retry_after)
    }

    /// Performs an effect.
    pub(super) fn perform_effect(&mut self, request: &str, begun: &StartedEffect) -> Vec<LifecycleEvent> {
        match &begun.effect {
            LifecycleEffect::Import => self.import_input(request),
            LifecycleEffect::Plan { round } => vec![self.plan_effect(request, begun, *round)],
            LifecycleEffect::Submit { run } | LifecycleEffect::Resume { run } => {
                let Some(row) = begun.run.as_ref().filter(|row| row.uuid == *run) else { return Vec::new() };
                let closed = self.closed_sites(request, row);
                vec![match self.submit_run(request, row, closed) {
                    Ok(backend) => LifecycleEvent::Submitted { run: run.clone(), backend, priority: None },
                    Err(_) => LifecycleEvent::SubmitFailed {
                        run: run.clone(),
                        failure: transient_problem("the schedd does not respond"),
                    },
                }]
            }
            LifecycleEffect::Stop { run, .. } => {
                let Some(row) = begun.run.as_ref().filter(|row| row.uuid == *run) else { return Vec::new() };
                match self.stop_run(row) {
                    // An unnoticed submission is reported first.
                    Ok(Some(backend)) => vec![
                        LifecycleEvent::Submitted { run: run.clone(), backend, priority: None },
                        LifecycleEvent::Stopped { run: run.clone(), was_running: true },
                    ],
                    Ok(None) => vec![LifecycleEvent::Stopped { run: run.clone(), was_running: false }],
                    Err(_) => {
                        vec![LifecycleEvent::StopFailed {
                            run: run.clone(),
                            failure: transient_problem("the schedd does not respond"),
                        }]
                    }
                }
            }
            LifecycleEffect::Pause { .. } => {
                self.restrict_run(begun, |workflow| workflow.is_paused = true);
                Vec::new()
            }
            LifecycleEffect::Unpause { run } => {
                let is_done = self.restrict_run(begun, |workflow| workflow.is_paused = false);
                Vec::from_iter(is_done.then(|| LifecycleEvent::Unpaused { run: run.clone() }))
            }
            LifecycleEffect::AvoidSites { .. } => {
                let closed =
                    begun.run.as_ref().map(|run| self.closed_sites(request, run)).unwrap_or_default();
                self.restrict_run(begun, |workflow| workflow.closed_sites = closed);
                Vec::new()
            }
            LifecycleEffect::Prioritize { run, priority } => {
                vec![LifecycleEvent::Prioritized { run: run.clone(), priority: *priority }]
            }
            LifecycleEffect::Settle { run, .. } => {
                let row = begun.run.as_ref().filter(|row| row.uuid == *run);
                row.map(|row| self.credit_round(request, row)).into_iter().collect()
            }
            LifecycleEffect::WriteManifest => {
                vec![LifecycleEvent::ManifestWritten { path: format!("{request}/invalidation.json") }]
            }
            LifecycleEffect::Step(step) => {
                let outcome = self.record_step(request, step, begun.block.as_ref());
                vec![LifecycleEvent::Step {
                    block: step.block.clone(),
                    unit: step.unit,
                    kind: step.kind,
                    outcome,
                }]
            }
        }
    }
}

impl RequestSimulation {
    /// Returns the sites where no more units of a run may start and that it does not require.
    pub(super) fn closed_sites(&self, request: &str, run: &RunRow) -> BTreeSet<String> {
        let places = self.allowed_sites_of_run(run);
        bans::dispensable_sites(&self.store.banned_sites(request, self.now), &places)
    }

    /// Restricts a run; returns whether the backend responded.
    fn restrict_run(&mut self, begun: &StartedEffect, how: impl FnOnce(&mut SimulatedWorkflow)) -> bool {
        begun.run.as_ref().is_some_and(|run| self.update_backend_run(run, how).is_ok())
    }
}

pub(super) fn transient_problem(reason: &str) -> EffectFailure {
    EffectFailure { reason: reason.to_owned(), is_retryable: true }
}

fn is_problem(news: &LifecycleEvent) -> bool {
    matches!(
        news,
        LifecycleEvent::ImportFailed(_) | LifecycleEvent::PlanFailed(_) | LifecycleEvent::SubmitFailed { .. }
    )
}
