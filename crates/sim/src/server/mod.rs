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
mod pass;
mod planning;

pub(crate) use planning::directory;

use crate::dice::Dice;
use crate::setup::weather;
use crate::sim::{Event, Sim};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::requests::View;
use windlass_core::requests::book::{BlockRow, Process, RunRow};
use windlass_core::requests::lifecycle::{Effect, News};
use windlass_types::Timestamp;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) is_up: bool,
    /// How often it was started: what was begun in an earlier life is of no interest.
    pub(crate) life: u32,
    mind: Mind,
    dice: Dice,
    /// Of all names that were ever given.
    names: u64,
}

/// What a crash forgets.
#[derive(Debug, Default)]
struct Mind {
    news: BTreeMap<String, Vec<News>>,
    /// Requests that something was heard of.
    nudged: BTreeSet<String>,
    wake: BTreeMap<String, Timestamp>,
    /// What is not to be done again at once, by request and effect.
    pauses: BTreeMap<(String, String), Timestamp>,
    under_way: BTreeMap<EffectKey, Vec<Begun>>,
    /// When the next pass is.
    pass_at: Option<Timestamp>,
    /// Everybody was looked at.
    looked_at_all: Option<Timestamp>,
}

/// Those with the same one are done one after the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EffectKey {
    pub(crate) request: String,
    about: About,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Plan,
    Run,
    Block(String),
}

/// An effect with the rows that it was decided from.
#[derive(Clone, Debug)]
struct Begun {
    effect: Effect,
    process: Option<Process>,
    run: Option<RunRow>,
    block: Option<BlockRow>,
}

impl Begun {
    fn new(view: &View, effect: &Effect) -> Self {
        let block = match effect {
            Effect::Step(step) => view.block(&step.block).cloned(),
            _ => None,
        };
        Self { effect: effect.clone(), process: view.process.clone(), run: view.run.clone(), block }
    }
}

impl Server {
    pub(crate) fn new(seed: u64) -> Self {
        Self { is_up: true, life: 0, mind: Mind::default(), dice: Dice::of(seed, "server"), names: 0 }
    }
}

impl Sim {
    /// Something was heard of a request.
    pub(crate) fn nudge(&mut self, request: &str) {
        if self.server.is_up {
            self.server.mind.nudged.insert(request.to_owned());
            self.pass_by(self.now.after(Duration::from_secs(2)));
        }
    }

    /// There is to be a pass then, or earlier.
    fn pass_by(&mut self, at: Timestamp) {
        let at = at.max(self.now);
        if self.server.mind.pass_at.is_none_or(|known| at < known) {
            self.server.mind.pass_at = Some(at);
            let life = self.server.life;
            self.agenda.note(at, Event::Pass { life });
        }
    }

    /// Everything but the books is forgotten. Of what was under way some was done, some was not.
    pub(crate) fn crash(&mut self) {
        if !self.server.is_up {
            return;
        }
        self.figures.crashes += 1;
        self.server.is_up = false;
        self.server.life += 1;
        let mind = std::mem::take(&mut self.server.mind);
        for (key, effects) in mind.under_way {
            let done = self.server.dice.below(effects.len() as u64 + 1) as usize;
            for begun in &effects[..done] {
                self.perform(&key.request, begun);
            }
        }
        self.forget_restraints();
        let away = self.server.dice.minutes(0.2, 45.0);
        self.later(away, Event::Restart);
    }

    pub(crate) fn restart(&mut self) {
        self.server.is_up = true;
        self.pass_by(self.now);
    }

    /// Whether it is time to look at everybody.
    fn looks_at_all(&mut self) -> bool {
        let is_due =
            self.server.mind.looked_at_all.is_none_or(|last| self.now.since(last) >= weather::LOOK_AT_ALL);
        if is_due {
            self.server.mind.looked_at_all = Some(self.now);
        }
        is_due
    }
}
