//! Sets of sites. There are hundreds of thousands of files, but only dozens of distinct sets: each is stored
//! once and referred to by number.

use rustc_hash::FxHashMap;

pub(super) type SiteSetId = u32;

#[derive(Debug, Default)]
pub(super) struct SiteSets {
    /// Each in ascending order: indices into the sites of the plan.
    sets: Vec<Vec<u32>>,
    known: FxHashMap<Vec<u32>, SiteSetId>,
    intersections: FxHashMap<(SiteSetId, SiteSetId), Option<SiteSetId>>,
}

impl SiteSets {
    /// `set` must be in ascending order.
    pub(super) fn intern(&mut self, set: Vec<u32>) -> SiteSetId {
        if let Some(&id) = self.known.get(&set) {
            return id;
        }
        let id = self.sets.len() as SiteSetId;
        self.sets.push(set.clone());
        self.known.insert(set, id);
        id
    }

    /// Returns the sites in both; `None` if there are none.
    pub(super) fn intersect(&mut self, one: SiteSetId, other: SiteSetId) -> Option<SiteSetId> {
        if one == other {
            return Some(one);
        }
        let pair = (one.min(other), one.max(other));
        if let Some(&known) = self.intersections.get(&pair) {
            return known;
        }
        let (a, b) = (&self.sets[one as usize], &self.sets[other as usize]);
        let both: Vec<u32> = a.iter().copied().filter(|site| b.binary_search(site).is_ok()).collect();
        let meet = if both.is_empty() { None } else { Some(self.intern(both)) };
        self.intersections.insert(pair, meet);
        meet
    }

    /// Returns a rank for each set, by its sites: adjacent sets mostly have sites in common.
    pub(super) fn site_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.sets.len() as u32).collect();
        order.sort_unstable_by_key(|&id| &self.sets[id as usize]);
        let mut places = vec![0; order.len()];
        for (place, id) in order.into_iter().enumerate() {
            places[id as usize] = place as u32;
        }
        places
    }

    pub(super) fn all(&self) -> &[Vec<u32>] {
        &self.sets
    }
}
