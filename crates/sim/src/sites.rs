//! Sites: their slots, queues and health.

use crate::backends::SimulatedNodeId;
use crate::seeded_random::SeededRandom;
use crate::setup::failure_rates;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The true health of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteHealth {
    Healthy,
    /// Nothing starts, and running attempts are lost.
    Down,
    /// All attempts fail at once.
    BlackHole,
}

#[derive(Debug)]
pub(crate) struct SimulatedSite {
    pub(crate) name: String,
    pub(crate) slots: u32,
    pub(crate) free: u32,
    pub(crate) health: SiteHealth,
    /// Factor for the duration of attempts.
    pub(crate) slowness: f64,
    /// Running attempts.
    pub(crate) running: BTreeMap<u64, SimulatedNodeId>,
    /// Nodes waiting for a slot. Nodes that no longer wait are skipped.
    pub(crate) queue: VecDeque<SimulatedNodeId>,
}

#[derive(Debug, Default)]
pub(crate) struct SimulatedGrid {
    pub(crate) sites: Vec<SimulatedSite>,
    index: BTreeMap<String, usize>,
}

impl SimulatedGrid {
    pub(crate) fn new(count: u32, seed: u64) -> Self {
        let mut random = SeededRandom::for_part(seed, "sites");
        let sites: Vec<SimulatedSite> = (0..count)
            .map(|number| {
                let slots = random.number_within(16, 120) as u32;
                let is_slow = random.chance(failure_rates::SLOW_SITES);
                SimulatedSite {
                    name: format!(
                        "T2_{}_{number:03}",
                        random.pick_one(&["DE", "US", "IT", "FR", "UK", "CH"])
                    ),
                    slots,
                    free: slots,
                    health: SiteHealth::Healthy,
                    slowness: if is_slow {
                        random.fraction_between(2.0, 5.0)
                    } else {
                        random.fraction_between(0.8, 1.3)
                    },
                    running: BTreeMap::new(),
                    queue: VecDeque::new(),
                }
            })
            .collect();
        let index = sites.iter().enumerate().map(|(number, site)| (site.name.clone(), number)).collect();
        Self { sites, index }
    }

    pub(crate) fn find_number(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.sites.iter().map(|site| site.name.clone()).collect()
    }

    /// Selects one of these sites where jobs start, preferring free slots; a black hole looks empty.
    pub(crate) fn elect_site<'n>(
        &self,
        among: impl Iterator<Item = &'n str>,
        closed: &BTreeSet<String>,
        random: &mut SeededRandom,
    ) -> Option<usize> {
        let open: Vec<(usize, u64)> = among
            .filter(|name| !closed.contains(*name))
            .filter_map(|name| self.find_number(name))
            .filter(|&number| self.sites[number].health != SiteHealth::Down)
            .map(|number| (number, u64::from(self.sites[number].free) + 1))
            .collect();
        let mut at = random.number_below(open.iter().map(|(_, weight)| weight).sum());
        open.iter().find_map(|&(number, weight)| {
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it.then_some(number)
        })
    }
}
