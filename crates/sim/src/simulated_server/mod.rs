//! The server: passes over requests, as production makes them. All that it knows is in the books; everything else it may
//! forget at any moment.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what it keeps in mind, its crashes and restarts |
//! | `pass.rs` | decisions, commits, and what follows from them |
//! | `effects.rs` | what is done outside |
//! | `bans.rs` | bans that become one for all, and those that are over |
//! | `learning.rs` | what jobs used is known to the next round |
//! | `planning.rs` | a round is planned, and credited when it is over |

mod bans;
mod effects;
mod learning;
mod planning;
mod reconcile_pass;

pub(crate) use planning::round_directory;

use crate::seeded_random::SeededRandom;
use crate::setup::weather;
use crate::simulation::{RequestSimulation, SimulationEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::requests::RequestView;
use windlass_core::requests::lifecycle::{LifecycleEffect, LifecycleEvent};
use windlass_core::requests::rows::{BlockRow, RequestProcess, RunRow};
use windlass_types::Timestamp;

#[derive(Debug)]
pub(crate) struct SimulatedServer {
    pub(crate) is_up: bool,
    /// How often it was started: what was begun in an earlier life is of no interest.
    pub(crate) generation: u32,
    memory: ServerMemory,
    dice: SeededRandom,
    /// Of all names that were ever given.
    names: u64,
}

/// What a crash forgets.
#[derive(Debug, Default)]
struct ServerMemory {
    news: BTreeMap<String, Vec<LifecycleEvent>>,
    /// Requests that something was heard of.
    notified_requests: BTreeSet<String>,
    wake_at: BTreeMap<String, Timestamp>,
    /// What is not to be done again at once, by request and effect.
    paused_effects: BTreeMap<(String, String), Timestamp>,
    running_effects: BTreeMap<SimulatedEffectKey, Vec<StartedEffect>>,
    /// When the next pass is.
    next_pass_at: Option<Timestamp>,
    /// Everybody was looked at.
    last_full_scan: Option<Timestamp>,
}

/// Those with the same one are done one after the other.
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
    process: Option<RequestProcess>,
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
            dice: SeededRandom::for_part(seed, "server"),
            names: 0,
        }
    }
}

impl RequestSimulation {
    /// Something was heard of a request.
    pub(crate) fn wake_server(&mut self, request: &str) {
        if self.server.is_up {
            self.server.memory.notified_requests.insert(request.to_owned());
            self.schedule_pass(self.now.after(Duration::from_secs(2)));
        }
    }

    /// There is to be a pass then, or earlier.
    fn schedule_pass(&mut self, at: Timestamp) {
        let at = at.max(self.now);
        if self.server.memory.next_pass_at.is_none_or(|known| at < known) {
            self.server.memory.next_pass_at = Some(at);
            let life = self.server.generation;
            self.events.schedule(at, SimulationEvent::Pass { generation: life });
        }
    }

    /// Everything but the books is forgotten. Of what was under way some was done, some was not.
    pub(crate) fn crash_server(&mut self) {
        if !self.server.is_up {
            return;
        }
        self.statistics.crashes += 1;
        self.server.is_up = false;
        self.server.generation += 1;
        let mind = std::mem::take(&mut self.server.memory);
        for (key, effects) in mind.running_effects {
            let done = self.server.dice.number_below(effects.len() as u64 + 1) as usize;
            for begun in &effects[..done] {
                self.perform_effect(&key.request, begun);
            }
        }
        self.clear_restrictions();
        let away = self.server.dice.random_minutes(0.2, 45.0);
        self.schedule_after(away, SimulationEvent::Restart);
    }

    pub(crate) fn restart_server(&mut self) {
        self.server.is_up = true;
        self.schedule_pass(self.now);
    }

    /// Whether it is time to look at everybody.
    fn is_full_scan_due(&mut self) -> bool {
        let is_due = self
            .server
            .memory
            .last_full_scan
            .is_none_or(|last| self.now.since(last) >= weather::FULL_SCAN_INTERVAL);
        if is_due {
            self.server.memory.last_full_scan = Some(self.now);
        }
        is_due
    }
}
