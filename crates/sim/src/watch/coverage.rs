//! Which events are in the outputs: each at most once, whatever was tried how often.

use std::collections::BTreeMap;
use windlass_core::plan::{InputView, Plan};
use windlass_types::catalog::CatalogFile;

/// Ranges that do not overlap: first → last.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// `false`: some of it is there already.
    fn add(&mut self, first: u64, last: u64) -> bool {
        let is_taken = self.0.range(..=last).next_back().is_some_and(|(_, &end)| end >= first);
        self.0.insert(first, last);
        !is_taken
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }
}

/// What of a request is in its outputs.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// Positions of events, by LFN.
    files: BTreeMap<String, Ranges>,
    generated: Ranges,
    /// That the catalog was told of.
    pub(crate) events: u64,
}

impl Coverage {
    /// The outputs of a work unit are registered.
    pub(crate) fn add<'f>(
        &mut self,
        plan: &Plan,
        unit: u32,
        file: impl Fn(&str) -> Option<&'f CatalogFile>,
    ) -> Result<(), String> {
        let Some(unit) = plan.unit(unit) else { return Err(format!("there is no work unit {unit}")) };
        for node in unit.nodes() {
            if let Some(made) = node.generated()
                && !self.generated.add(made.first_event, made.last_event)
            {
                return Err(format!("events {}–{} are generated twice", made.first_event, made.last_event));
            }
            for input in node.inputs() {
                let lfn = &input.file().lfn;
                let known = file(lfn).ok_or_else(|| format!("{lfn} is no file of its dataset"))?;
                for (first, last) in positions(&input, known) {
                    if !self.files.entry(lfn.clone()).or_default().add(first, last) {
                        return Err(format!("events {first}–{last} of {lfn} are processed twice"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Events of a file that are in the outputs.
    pub(crate) fn of(&self, lfn: &str) -> u64 {
        self.files.get(lfn).map_or(0, Ranges::total)
    }
}

/// Positions of the events that a job reads of a file.
fn positions(input: &InputView<'_>, file: &CatalogFile) -> Vec<(u64, u64)> {
    if let Some(window) = input.window() {
        return vec![window];
    }
    let Some(wanted) = input.lumis() else { return vec![(1, file.events)] };
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
    fn what_overlaps_is_noticed() {
        let mut ranges = Ranges::default();
        assert!(ranges.add(10, 19) && ranges.add(30, 39) && ranges.add(20, 29));
        assert_eq!(ranges.total(), 30);
        for (first, last) in [(5, 10), (39, 39), (25, 26), (1, 100)] {
            let mut ranges = Ranges(ranges.0.clone());
            assert!(!ranges.add(first, last), "{first}–{last}");
        }
        assert!(ranges.add(1, 9) && ranges.add(40, 50));
    }
}
