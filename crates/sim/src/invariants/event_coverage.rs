//! The events in the outputs: each at most once, despite retries.

use std::collections::BTreeMap;
use windlass_core::round_plan::{PlanJobInput, RoundPlan};
use windlass_types::catalog::CatalogFile;

/// Disjoint ranges: first → last.
#[derive(Debug, Default)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds a range; returns `false` if it overlaps.
    fn add_range(&mut self, first: u64, last: u64) -> bool {
        let is_taken = self.0.range(..=last).next_back().is_some_and(|(_, &end)| end >= first);
        self.0.insert(first, last);
        !is_taken
    }

    fn total_length(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }
}

/// The events of a request in its outputs.
#[derive(Debug, Default)]
pub(crate) struct EventCoverage {
    /// Positions of events, by LFN.
    files: BTreeMap<String, RangeSet>,
    generated: RangeSet,
    /// The number of events registered in the catalog.
    pub(crate) events: u64,
}

impl EventCoverage {
    /// Adds the registered outputs of a work unit.
    pub(crate) fn add_unit<'f>(
        &mut self,
        plan: &RoundPlan,
        unit: u32,
        file: impl Fn(&str) -> Option<&'f CatalogFile>,
    ) -> Result<(), String> {
        let Some(unit) = plan.unit(unit) else { return Err(format!("there is no work unit {unit}")) };
        for node in unit.nodes() {
            if let Some(made) = node.generated()
                && !self.generated.add_range(made.first_event, made.last_event)
            {
                return Err(format!("events {}–{} are generated twice", made.first_event, made.last_event));
            }
            for input in node.inputs() {
                let lfn = &input.file().lfn;
                let known = file(lfn).ok_or_else(|| format!("{lfn} is not a file of its dataset"))?;
                for (first, last) in event_positions(&input, known) {
                    if !self.files.entry(lfn.clone()).or_default().add_range(first, last) {
                        return Err(format!("events {first}–{last} of {lfn} are processed twice"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the number of events of a file in the outputs.
    pub(crate) fn covered_events(&self, lfn: &str) -> u64 {
        self.files.get(lfn).map_or(0, RangeSet::total_length)
    }
}

/// Returns the positions of the events that a job reads from a file.
fn event_positions(input: &PlanJobInput<'_>, file: &CatalogFile) -> Vec<(u64, u64)> {
    if let Some(window) = input.event_window() {
        return vec![window];
    }
    let Some(wanted) = input.lumi_ranges() else { return vec![(1, file.events)] };
    let mut at = 0;
    let mut found = Vec::new();
    for lumi in &file.lumis {
        let (first, events) = (at + 1, u64::from(lumi.events.unwrap_or_default()));
        at += events;
        let is_wanted = wanted
            .iter()
            .any(|range| range.run == lumi.run && (range.first..=range.last).contains(&lumi.lumi));
        if is_wanted && events > 0 {
            found.push((first, at));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_detected() {
        let mut ranges = RangeSet::default();
        assert!(ranges.add_range(10, 19) && ranges.add_range(30, 39) && ranges.add_range(20, 29));
        assert_eq!(ranges.total_length(), 30);
        for (first, last) in [(5, 10), (39, 39), (25, 26), (1, 100)] {
            let mut ranges = RangeSet(ranges.0.clone());
            assert!(!ranges.add_range(first, last), "{first}–{last}");
        }
        assert!(ranges.add_range(1, 9) && ranges.add_range(40, 50));
    }
}
