//! State of input files: processed, attempted or excluded; how a round changes it, and what the next round
//! reads (R-187, R-188).
//!
//! ```text
//! fresh ──► processed                  all units that read it are completed
//!   └─────► attempted ──► processed    some are not: the rest is read again, after all fresh files
//!   └───────────┴───────► excluded     a failed unit reported it as bad, or a user excluded it; processed parts are kept
//! ```
//!
//! Fresh files have no row. A file may be in several units, of which only some complete: then the remaining
//! events or lumis are stored, so that each is processed once.

#[cfg(test)]
mod tests;

use super::failures::FailureTally;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use windlass_types::LumiMask;
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::{
    FileRemainder, RequestFileCounts, RequestFileRow, RequestFileState, WorkUnitName,
};

/// What a work unit reads of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitInput {
    pub unit: u32,
    pub lfn: String,
    pub part: FilePart,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePart {
    Whole,
    /// By position in the file, from 1, inclusive.
    Events(u64, u64),
    Lumis(LumiMask),
}

/// Results of the units of a round, over all its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundUnitOutcome {
    /// Units whose outputs count.
    pub completed: BTreeSet<u32>,
    /// Bad files found by units.
    pub bad_files: BTreeMap<u32, BTreeSet<String>>,
}

/// Returns the bad files found by the units of a round, from the tallies of its runs in order. For each unit
/// the last run in which it failed decides: a file that became readable is not reported again.
pub fn find_bad_files(tallies: &[FailureTally]) -> BTreeMap<u32, BTreeSet<String>> {
    let mut bad: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for tally in tallies {
        bad.retain(|unit, _| !tally.units.contains_key(unit));
        for (lfn, file) in &tally.files {
            for unit in &file.units {
                bad.entry(*unit).or_default().insert(lfn.clone());
            }
        }
    }
    bad
}

/// A round whose parts of a file cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work units of round {round} read {lfn} partly by events and partly by lumis")]
pub struct MixedPartsError {
    pub lfn: String,
    pub round: u32,
}

/// Returns the new rows of the files that a round has read, by LFN. Idempotent, even if its result is among the
/// earlier rows.
pub fn settle_files(
    round: u32,
    readings: impl IntoIterator<Item = UnitInput>,
    outcome: &RoundUnitOutcome,
    earlier: &[RequestFileRow],
) -> Result<Vec<RequestFileRow>, MixedPartsError> {
    let mut files: BTreeMap<String, FileProgress> = BTreeMap::new();
    for UnitInput { unit, lfn, part } in readings {
        let is_bad = || outcome.bad_files.get(&unit).is_some_and(|bad| bad.contains(&lfn));
        let bad_by = if outcome.completed.contains(&unit) { None } else { is_bad().then_some(unit) };
        let seen = files.entry(lfn).or_default();
        seen.bad_by = seen.bad_by.or(bad_by);
        if outcome.completed.contains(&unit) {
            seen.is_partly_done = true;
        } else {
            seen.left.push(part);
        }
    }
    for row in earlier {
        if let Some(seen) = files.get_mut(&row.lfn) {
            seen.is_partly_done |= row.left.is_some();
        }
    }
    files.into_iter().map(|(lfn, seen)| seen.into_row(lfn, round)).collect()
}

/// Progress of a file in a round.
#[derive(Debug, Default)]
struct FileProgress {
    /// Whether a unit of this or an earlier round processed part of it.
    is_partly_done: bool,
    /// What units read that did not complete.
    left: Vec<FilePart>,
    /// The first unit that reported it as bad.
    bad_by: Option<u32>,
}

impl FileProgress {
    fn into_row(self, lfn: String, round: u32) -> Result<RequestFileRow, MixedPartsError> {
        if self.left.is_empty() {
            return Ok(RequestFileRow {
                lfn,
                state: RequestFileState::Processed,
                round,
                left: None,
                reason: None,
            });
        }
        let left = if self.is_partly_done {
            merge_parts(self.left).map_err(|()| MixedPartsError { lfn: lfn.clone(), round })?
        } else {
            None
        };
        let reason =
            self.bad_by.map(|unit| format!("work unit {} of round {round} found it bad", WorkUnitName(unit)));
        let state = if reason.is_some() { RequestFileState::Excluded } else { RequestFileState::Attempted };
        Ok(RequestFileRow { lfn, state, round, left, reason })
    }
}

/// Merges parts of one file; `None`: all of it.
fn merge_parts(parts: Vec<FilePart>) -> Result<Option<FileRemainder>, ()> {
    let (mut events, mut lumis) = (Vec::new(), LumiMask::default());
    for part in parts {
        match part {
            FilePart::Whole => return Ok(None),
            FilePart::Events(first, last) => events.push((first, last)),
            FilePart::Lumis(mask) => {
                for (&run, ranges) in &mask {
                    for &range in ranges {
                        lumis.insert_range(run, range);
                    }
                }
            }
        }
    }
    match (events.is_empty(), lumis.is_empty()) {
        (false, true) => Ok(Some(FileRemainder::Events(merge_ranges(events)))),
        (true, _) => Ok(Some(FileRemainder::Lumis(lumis))),
        (false, false) => Err(()),
    }
}

/// Sorts ranges and merges adjacent ones.
fn merge_ranges(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let touches = next.0 <= before.1.saturating_add(1);
        if touches {
            before.1 = before.1.max(next.1);
        }
        touches
    });
    ranges
}

/// The input left for the next round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemainingInput {
    /// Files of the dataset that are neither processed nor excluded.
    pub files: Vec<CatalogFile>,
    /// LFNs of those that were attempted before.
    pub attempted: BTreeSet<String>,
    /// The remaining parts of partly processed files.
    pub left: BTreeMap<String, FileRemainder>,
    /// Rows of files that will not be read, though no unit reported them as bad. Store them before planning.
    pub excluded: Vec<RequestFileRow>,
}

/// Returns the input left in the current dataset. Files added after earlier rounds are fresh; an attempted file
/// that is gone from the dataset is excluded, since it can never be read. `unwanted` are files excluded by
/// users, with the user.
pub fn remaining_input(
    dataset: Vec<CatalogFile>,
    rows: Vec<RequestFileRow>,
    unwanted: &BTreeMap<String, String>,
    round: u32,
) -> RemainingInput {
    let mut rows: HashMap<String, RequestFileRow> =
        rows.into_iter().map(|row| (row.lfn.clone(), row)).collect();
    let mut remaining = RemainingInput::default();
    for file in dataset {
        let row = rows.remove(&file.lfn);
        if row.as_ref().is_some_and(|row| row.state != RequestFileState::Attempted) {
            continue;
        }
        if let Some(by) = unwanted.get(&file.lfn) {
            let left = row.and_then(|row| row.left);
            remaining.excluded.push(excluded_row(file.lfn, round, left, format!("by {by}")));
            continue;
        }
        if let Some(row) = row {
            remaining.left.extend(row.left.map(|left| (file.lfn.clone(), left)));
            remaining.attempted.insert(row.lfn);
        }
        remaining.files.push(file);
    }
    let gone = rows.into_values().filter(|row| row.state == RequestFileState::Attempted);
    let why = "it is no longer in the dataset";
    remaining.excluded.extend(gone.map(|row| excluded_row(row.lfn, round, row.left, why.to_owned())));
    remaining.excluded.sort_unstable_by(|a, b| a.lfn.cmp(&b.lfn));
    remaining
}

fn excluded_row(lfn: String, round: u32, left: Option<FileRemainder>, reason: String) -> RequestFileRow {
    RequestFileRow { lfn, state: RequestFileState::Excluded, round, left, reason: Some(reason) }
}

pub fn count_files(rows: &[RequestFileRow]) -> RequestFileCounts {
    let mut counts = RequestFileCounts::default();
    for row in rows {
        match row.state {
            RequestFileState::Attempted => counts.attempted += 1,
            RequestFileState::Processed => counts.processed += 1,
            RequestFileState::Excluded => counts.excluded += 1,
        }
    }
    counts
}

/// Input that is missing in the outputs, with reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputExclusions {
    pub files: u64,
    /// Files that were partly processed; these parts are in the outputs.
    pub partly_processed: u64,
    /// Number of files for each reason, the most frequent first.
    pub reasons: Vec<(String, u64)>,
}

impl InputExclusions {
    /// Counts over all rows of a request.
    pub fn from_rows(rows: &[RequestFileRow]) -> Self {
        let mut told = Self::default();
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.state == RequestFileState::Excluded) {
            told.files += 1;
            told.partly_processed += u64::from(row.left.is_some());
            *reasons.entry(row.reason.as_deref().unwrap_or("no reason given")).or_default() += 1;
        }
        told.reasons = reasons.into_iter().map(|(reason, files)| (reason.to_owned(), files)).collect();
        told.reasons.sort_by_key(|(_, files)| std::cmp::Reverse(*files));
        told
    }
}
