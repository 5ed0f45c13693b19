//! What is done outside, and what comes of it. It may fail; and it may be done and its answer get lost.

use super::{Begun, EffectKey};
use crate::dice::Dice;
use crate::grid::Workflow;
use crate::setup::weather;
use crate::sim::Sim;
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_core::requests::bans;
use windlass_core::requests::book::RunRow;
use windlass_core::requests::lifecycle::{Effect, News, Trouble};

/// Nothing is done again at once, whatever happens.
const SHORT: Duration = Duration::from_secs(1);
/// What was told to stop is given time to do so.
const STOP_AGAIN: Duration = Duration::from_secs(30);

pub(super) fn takes(effect: &Effect, dice: &mut Dice) -> Duration {
    match effect {
        Effect::Import | Effect::Manifest | Effect::Step(_) => dice.minutes(0.02, 0.2),
        Effect::Plan { .. } => dice.minutes(0.2, 3.0),
        _ => dice.minutes(0.1, 1.0),
    }
}

impl Sim {
    /// Effects that were begun are done.
    pub(crate) fn outcome(&mut self, life: u32, key: &EffectKey) {
        if life != self.server.life || !self.server.is_up {
            return;
        }
        let together = self.server.mind.under_way.remove(key).unwrap_or_default();
        for begun in together {
            let (news, pause) = self.try_to(&key.request, &begun);
            let until = self.now.after(pause);
            let mind = &mut self.server.mind;
            mind.pauses.insert((key.request.clone(), begun.effect.tag()), until);
            mind.news.entry(key.request.clone()).or_default().extend(news);
        }
        self.nudge(&key.request);
    }

    /// With bad luck it fails, or nobody hears that it did not.
    fn try_to(&mut self, request: &str, begun: &Begun) -> (Vec<News>, Duration) {
        let is_windy = !self.is_calm;
        if is_windy && self.server.dice.chance(weather::EFFECT_FAILS) {
            return self.unlucky(begun);
        }
        if is_windy && self.server.dice.chance(weather::ANSWER_LOST) {
            self.perform(request, begun);
            return self.unlucky(begun);
        }
        let news = self.perform(request, begun);
        let pause = match (&begun.effect, news.iter().any(is_trouble)) {
            (_, true) => self.decisions.retry_after,
            (Effect::Stop { .. } | Effect::Pause { .. }, false) => STOP_AGAIN,
            _ => SHORT,
        };
        (news, pause)
    }

    fn unlucky(&self, begun: &Begun) -> (Vec<News>, Duration) {
        let trouble = passing("no answer");
        let news = match &begun.effect {
            Effect::Import => vec![News::ImportFailed(trouble)],
            Effect::Plan { .. } => vec![News::PlanFailed(trouble)],
            Effect::Submit { run } | Effect::Resume { run } => {
                vec![News::SubmitFailed { run: run.clone(), trouble }]
            }
            Effect::Stop { run, .. } => vec![News::StopFailed { run: run.clone(), trouble }],
            Effect::Pause { .. }
            | Effect::Unpause { .. }
            | Effect::Avoid { .. }
            | Effect::Prioritize { .. } => Vec::new(),
            Effect::Settle { round, .. } => vec![News::SettleFailed { round: *round, trouble }],
            Effect::Manifest => vec![News::ManifestFailed { reason: trouble.reason }],
            Effect::Step(step) => vec![News::Step {
                block: step.block.clone(),
                unit: step.unit,
                kind: step.kind,
                outcome: Err(trouble.reason),
            }],
        };
        (news, self.decisions.retry_after)
    }

    /// Does it.
    pub(super) fn perform(&mut self, request: &str, begun: &Begun) -> Vec<News> {
        match &begun.effect {
            Effect::Import => self.import(request),
            Effect::Plan { round } => vec![self.plan(request, begun, *round)],
            Effect::Submit { run } | Effect::Resume { run } => {
                let Some(row) = begun.run.as_ref().filter(|row| row.uuid == *run) else { return Vec::new() };
                let closed = self.closed(request, row);
                vec![match self.hand_over(request, row, closed) {
                    Ok(backend) => News::Submitted { run: run.clone(), backend, priority: None },
                    Err(_) => News::SubmitFailed { run: run.clone(), trouble: passing("the schedd is away") },
                }]
            }
            Effect::Stop { run, .. } => {
                let Some(row) = begun.run.as_ref().filter(|row| row.uuid == *run) else { return Vec::new() };
                match self.stop(row) {
                    // One that came there unnoticed is first told of.
                    Ok(Some(backend)) => vec![
                        News::Submitted { run: run.clone(), backend, priority: None },
                        News::Stopped { run: run.clone(), there: true },
                    ],
                    Ok(None) => vec![News::Stopped { run: run.clone(), there: false }],
                    Err(_) => {
                        vec![News::StopFailed { run: run.clone(), trouble: passing("the schedd is away") }]
                    }
                }
            }
            Effect::Pause { .. } => {
                self.restrain(begun, |workflow| workflow.is_paused = true);
                Vec::new()
            }
            Effect::Unpause { run } => {
                let is_done = self.restrain(begun, |workflow| workflow.is_paused = false);
                Vec::from_iter(is_done.then(|| News::Unpaused { run: run.clone() }))
            }
            Effect::Avoid { .. } => {
                let closed = begun.run.as_ref().map(|run| self.closed(request, run)).unwrap_or_default();
                self.restrain(begun, |workflow| workflow.closed = closed);
                Vec::new()
            }
            Effect::Prioritize { run, priority } => {
                vec![News::Prioritized { run: run.clone(), priority: *priority }]
            }
            Effect::Settle { run, .. } => {
                let row = begun.run.as_ref().filter(|row| row.uuid == *run);
                row.map(|row| self.settle(request, row)).into_iter().collect()
            }
            Effect::Manifest => vec![News::ManifestWritten { path: format!("{request}/invalidation.json") }],
            Effect::Step(step) => {
                let outcome = self.record(request, step, begun.block.as_ref());
                vec![News::Step { block: step.block.clone(), unit: step.unit, kind: step.kind, outcome }]
            }
        }
    }
}

impl Sim {
    /// Sites where nothing of a run is to begin, and that it can do without.
    pub(super) fn closed(&self, request: &str, run: &RunRow) -> BTreeSet<String> {
        let places = self.places_of(run);
        bans::bearable(&self.books.banned(request, self.now), &places)
    }

    /// Whether the backend could be told.
    fn restrain(&mut self, begun: &Begun, how: impl FnOnce(&mut Workflow)) -> bool {
        begun.run.as_ref().is_some_and(|run| self.tell_backend(run, how).is_ok())
    }
}

pub(super) fn passing(reason: &str) -> Trouble {
    Trouble { reason: reason.to_owned(), again: true }
}

fn is_trouble(news: &News) -> bool {
    matches!(news, News::ImportFailed(_) | News::PlanFailed(_) | News::SubmitFailed { .. })
}
