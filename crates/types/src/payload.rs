//! What a work unit is told and what it leaves: its manifest, the reports of its nodes, what its merge wrote.
//!
//! Plain data, each one a JSON file in the directory of a run. The planner and the executor write manifests and step
//! profiles; `windlass payload` reads them and writes the rest.
//!
//! | file | what | written by |
//! |---|---|---|
//! | `mg_000012.json` | [`UnitManifest`] | the executor |
//! | `step_profile.json` | [`StepProfile`] | the executor, once something was measured |
//! | `mg_000012/proc_3.json` | [`NodeReport`] | the processing job of node 3 |
//! | `mg_000012/metrics.json` | [`UnitMetrics`] | the merge job |
//! | `mg_000012/merge_output.json` | [`MergeOutput`] | the merge job, last of all |

mod manifest;
mod names;
mod report;

pub use manifest::{
    Estimates, EventWindow, Fault, FaultKind, Generation, Input, Merge, Node, Output, Simulation, Site, Step,
    UnitManifest,
};
pub use names::{NameError, check_lfn, check_name};
pub use report::{
    EventsFrom, MergeCounts, MergeOutput, MergedFile, NodeFailure, NodeReport, ProducedFile, Spread,
    StepMetrics, StepProfile, StepSummary, StepTuning, Totals, UnitMetrics,
};

use std::collections::BTreeMap;

/// Luminosity sections of runs: run → ranges of sections, both ends included, ascending.
pub type LumiMask = BTreeMap<u64, Vec<(u64, u64)>>;

/// Whether a luminosity section is in the mask.
pub fn mask_contains(mask: &LumiMask, run: u64, lumi: u64) -> bool {
    mask.get(&run).is_some_and(|ranges| ranges.iter().any(|&(first, last)| (first..=last).contains(&lumi)))
}

/// Adds one section. Sections that come in order make few ranges.
pub fn mask_insert(mask: &mut LumiMask, run: u64, lumi: u64) {
    mask_insert_range(mask, run, (lumi, lumi));
}

/// Adds a range and joins it with those that it touches.
pub fn mask_insert_range(mask: &mut LumiMask, run: u64, (first, last): (u64, u64)) {
    let ranges = mask.entry(run).or_default();
    // Those that end before it, with a gap, stay before it; those that begin after it, with a gap, stay after it.
    let from = ranges.partition_point(|&(_, end)| end.saturating_add(1) < first);
    let to = ranges.partition_point(|&(begin, _)| begin <= last.saturating_add(1)).max(from);
    let joined =
        ranges[from..to].iter().fold((first, last), |(low, high), &(a, b)| (low.min(a), high.max(b)));
    ranges.splice(from..to, [joined]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_ranges_whatever_their_order() {
        let mut mask = LumiMask::new();
        for lumi in [5, 1, 2, 9, 3, 5, 8, 4, 20] {
            mask_insert(&mut mask, 1, lumi);
        }
        mask_insert_range(&mut mask, 2, (u64::MAX, u64::MAX));
        assert_eq!(mask[&1], [(1, 5), (8, 9), (20, 20)]);
        mask_insert_range(&mut mask, 1, (6, 19));
        assert_eq!(mask[&1], [(1, 20)]);
        assert!(mask_contains(&mask, 1, 20) && mask_contains(&mask, 2, u64::MAX));
        assert!(!mask_contains(&mask, 1, 21) && !mask_contains(&mask, 3, 1));
    }
}
