//! The simulated server: passes over requests, as in production. Its state is in the store; it can lose
//! everything else at any time.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | its memory, crashes and restarts |
//! | `reconcile_pass.rs` | decisions, commits and effects |
//! | `effects.rs` | performing effects |
//! | `bans.rs` | promotion and expiry of bans |
//! | `round_usage.rs` | resource usage for planning the next round |
//! | `planning.rs` | planning and crediting of rounds |

mod bans;
mod effects;
mod planning;
mod reconcile_pass;
mod round_usage;

pub(crate) use planning::round_directory;

use crate::seeded_random::SeededRandom;
use crate::setup::failure_rates;
use crate::simulation::{RequestSimulation, SimulationEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::requests::RequestView;
use windlass_core::requests::lifecycle::{LifecycleEffect, LifecycleEvent};
use windlass_core::requests::rows::{BlockRow, RequestProgress, RunRow};
use windlass_types::Timestamp;

#[derive(Debug)]
pub(crate) struct SimulatedServer {
    pub(crate) is_up: bool,
    /// Number of starts: events of an earlier generation are ignored.
    pub(crate) generation: u32,
    memory: ServerMemory,
    random: SeededRandom,
    /// Counter for unique names.
    names: u64,
}

/// State that a crash loses.
#[derive(Debug, Default)]
struct ServerMemory {
    news: BTreeMap<String, Vec<LifecycleEvent>>,
    /// Requests with notifications.
    notified_requests: BTreeSet<String>,
    wake_at: BTreeMap<String, Timestamp>,
    /// Effects that must not be repeated before a time, by request and effect.
    paused_effects: BTreeMap<(String, String), Timestamp>,
    running_effects: BTreeMap<SimulatedEffectKey, Vec<StartedEffect>>,
    /// Time of the next pass.
    next_pass_at: Option<Timestamp>,
    /// Time of the last check of all requests.
    last_full_scan: Option<Timestamp>,
}

/// Effects with the same key are performed one after the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SimulatedEffectKey {
    pub(crate) request: String,
    subject: EffectSubject,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EffectSubject {
    Plan,
    Run,
    Block(String),
}

/// An effect with the rows that it was decided from.
#[derive(Clone, Debug)]
struct StartedEffect {
    effect: LifecycleEffect,
    process: Option<RequestProgress>,
    run: Option<RunRow>,
    block: Option<BlockRow>,
}

impl StartedEffect {
    fn new(view: &RequestView, effect: &LifecycleEffect) -> Self {
        let block = match effect {
            LifecycleEffect::Step(step) => view.find_block(&step.block).cloned(),
            _ => None,
        };
        Self { effect: effect.clone(), process: view.process.clone(), run: view.run.clone(), block }
    }
}

impl SimulatedServer {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            is_up: true,
            generation: 0,
            memory: ServerMemory::default(),
            random: SeededRandom::for_part(seed, "server"),
            names: 0,
        }
    }
}

impl RequestSimulation {
    /// Notifies the server about a request.
    pub(crate) fn wake_server(&mut self, request: &str) {
        if self.server.is_up {
            self.server.memory.notified_requests.insert(request.to_owned());
            self.schedule_pass(self.now.plus(Duration::from_secs(2)));
        }
    }

    /// Schedules a pass for this time or earlier.
    fn schedule_pass(&mut self, at: Timestamp) {
        let at = at.max(self.now);
        if self.server.memory.next_pass_at.is_none_or(|known| at < known) {
            self.server.memory.next_pass_at = Some(at);
            let life = self.server.generation;
            self.events.schedule(at, SimulationEvent::Pass { generation: life });
        }
    }

    /// Crashes the server: only the store remains, and some of the running effects are performed.
    pub(crate) fn crash_server(&mut self) {
        if !self.server.is_up {
            return;
        }
        self.statistics.crashes += 1;
        self.server.is_up = false;
        self.server.generation += 1;
        let memory = std::mem::take(&mut self.server.memory);
        for (key, effects) in memory.running_effects {
            let done = self.server.random.number_below(effects.len() as u64 + 1) as usize;
            for begun in &effects[..done] {
                self.perform_effect(&key.request, begun);
            }
        }
        self.clear_restrictions();
        let away = self.server.random.random_minutes(0.2, 45.0);
        self.schedule_after(away, SimulationEvent::Restart);
    }

    pub(crate) fn restart_server(&mut self) {
        self.server.is_up = true;
        self.schedule_pass(self.now);
    }

    /// Whether a check of all requests is due.
    fn is_full_scan_due(&mut self) -> bool {
        let is_due = self
            .server
            .memory
            .last_full_scan
            .is_none_or(|last| self.now.since(last) >= failure_rates::FULL_SCAN_INTERVAL);
        if is_due {
            self.server.memory.last_full_scan = Some(self.now);
        }
        is_due
    }
}
