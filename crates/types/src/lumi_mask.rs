//! Masks of luminosity sections, the pieces into which data taking divides runs.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, btree_map};

type LumiBounds = (u64, u64);

/// The selected lumis of each run: run → inclusive ranges, in the format of CMS: `{"356164": [[11, 15], [40,
/// 40]]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LumiMask(pub BTreeMap<u64, Vec<LumiBounds>>);

impl LumiMask {
    /// Sorts the ranges, removes overlaps and joins neighbours.
    #[must_use]
    pub fn normalized(self) -> Self {
        let mut mask = Self::default();
        for (run, mut ranges) in self.0 {
            // In sorted order each range either extends the last one or follows it.
            ranges.sort_unstable();
            for range in ranges {
                mask.insert_range(run, range);
            }
        }
        mask
    }

    /// Whether the lumi is selected. The mask has to be normalized.
    pub fn contains(&self, run: u64, lumi: u64) -> bool {
        self.0.get(&run).is_some_and(|ranges| {
            let after = ranges.partition_point(|&(first, _)| first <= lumi);
            after > 0 && lumi <= ranges[after - 1].1
        })
    }

    /// Adds one lumi to a normalized mask. Lumis added in order produce few ranges.
    pub fn insert(&mut self, run: u64, lumi: u64) {
        self.insert_range(run, (lumi, lumi));
    }

    /// Adds a range to a normalized mask and merges it with the ranges that it touches.
    pub fn insert_range(&mut self, run: u64, (first, last): LumiBounds) {
        let ranges = self.0.entry(run).or_default();
        // Ranges that end before it, with a gap, stay in front; ranges that begin after it, with a gap, stay
        // behind.
        let from = ranges.partition_point(|&(_, end)| end.saturating_add(1) < first);
        let to = ranges.partition_point(|&(begin, _)| begin <= last.saturating_add(1)).max(from);
        let joined =
            ranges[from..to].iter().fold((first, last), |(low, high), &(a, b)| (low.min(a), high.max(b)));
        ranges.splice(from..to, [joined]);
    }

    /// Runs with their ranges, ascending.
    pub fn iter(&self) -> btree_map::Iter<'_, u64, Vec<LumiBounds>> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<const N: usize> From<[(u64, Vec<LumiBounds>); N]> for LumiMask {
    fn from(runs: [(u64, Vec<LumiBounds>); N]) -> Self {
        Self(runs.into())
    }
}

impl<'m> IntoIterator for &'m LumiMask {
    type Item = (&'m u64, &'m Vec<LumiBounds>);
    type IntoIter = btree_map::Iter<'m, u64, Vec<LumiBounds>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_searched() {
        let mask = LumiMask::from([(1, vec![(5, 9), (1, 2), (3, 3), (8, 12), (20, 20)]), (2, vec![])]);
        let mask = mask.normalized();
        assert_eq!(mask, LumiMask::from([(1, vec![(1, 3), (5, 12), (20, 20)])]));
        let inside: Vec<u64> = (0..25).filter(|lumi| mask.contains(1, *lumi)).collect();
        assert_eq!(inside, [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 20]);
        assert!(!mask.contains(2, 1));
    }

    #[test]
    fn lumis_in_any_order_become_ranges() {
        let mut mask = LumiMask::default();
        for lumi in [5, 1, 2, 9, 3, 5, 8, 4, 20] {
            mask.insert(1, lumi);
        }
        mask.insert_range(2, (u64::MAX, u64::MAX));
        assert_eq!(mask.0[&1], [(1, 5), (8, 9), (20, 20)]);
        mask.insert_range(1, (6, 19));
        assert_eq!(mask.0[&1], [(1, 20)]);
        assert!(mask.contains(1, 20) && mask.contains(2, u64::MAX));
        assert!(!mask.contains(1, 21) && !mask.contains(3, 1));
    }

    #[test]
    fn lumi_mask_has_the_cms_format() {
        let text = r#"{"356164":[[11,15],[40,40]],"356165":[[1,10]]}"#;
        let mask: LumiMask = serde_json::from_str(text).unwrap();
        assert!(mask.contains(356_164, 40) && !mask.contains(356_165, 11));
        assert_eq!(serde_json::to_string(&mask).unwrap(), text);
    }
}
