//! Data kept for recovery: the completed parts of the input, and an operator's overrides of a request.

use crate::LumiMask;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Overrides of a request by operators while it runs. They take precedence over the request and the settings of
/// the deployment. Excluded sites are stored as bans instead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestOverrides {
    /// Number of retries of a processing job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<u32>,
    /// Fraction of failed work units from which the request is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_hold_threshold: Option<f64>,
    /// Number of rescues of a round after failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rescue_attempts: Option<u32>,
    /// Memory of a whole job, for all its cores together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Time per event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_per_event_sec: Option<f64>,
    /// Input files to exclude.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_files: BTreeSet<String>,
    /// The user who excluded the file, by file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub excluded_by: BTreeMap<String, String>,
}

impl RequestOverrides {
    /// Whether there are no overrides.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Records the user who excludes these files.
    #[must_use]
    pub fn record_excluded_by(mut self, who: &str) -> Self {
        self.excluded_by = self.excluded_files.iter().map(|lfn| (lfn.clone(), who.to_owned())).collect();
        self
    }

    /// Merges newer overrides, which take precedence. Excluded files stay excluded, with the user who excluded
    /// them first.
    #[must_use]
    pub fn merged_with(mut self, mut now: Self) -> Self {
        now.excluded_by.retain(|lfn, _| !self.excluded_files.contains(lfn));
        self.excluded_files.extend(now.excluded_files);
        self.excluded_by.extend(now.excluded_by);
        Self {
            retry_count: now.retry_count.or(self.retry_count),
            error_hold_threshold: now.error_hold_threshold.or(self.error_hold_threshold),
            max_rescue_attempts: now.max_rescue_attempts.or(self.max_rescue_attempts),
            memory_mb: now.memory_mb.or(self.memory_mb),
            time_per_event_sec: now.time_per_event_sec.or(self.time_per_event_sec),
            excluded_files: self.excluded_files,
            excluded_by: self.excluded_by,
        }
    }
}

/// An input file that a round has used. Fresh files have no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFileRow {
    pub lfn: String,
    pub state: super::RequestFileState,
    /// The round in which it reached this state.
    pub round: u32,
    /// For an attempted file: the part that is still to be processed. `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<FileRemainder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRemainder {
    /// Inclusive ranges of positions in the file, ascending.
    Events(Vec<(u64, u64)>),
    Lumis(LumiMask),
}

/// Number of input files by state; all other files are fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestFileCounts {
    pub attempted: u64,
    pub processed: u64,
    pub excluded: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_overrides_win_and_exclusions_add_up() {
        let files = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let before = RequestOverrides {
            retry_count: Some(5),
            memory_mb: Some(3000),
            excluded_files: files(&["/a"]),
            ..RequestOverrides::default()
        };
        let now = RequestOverrides {
            memory_mb: Some(6000),
            excluded_files: files(&["/b"]),
            ..RequestOverrides::default()
        };
        let both = before.merged_with(now);
        assert_eq!((both.retry_count, both.memory_mb), (Some(5), Some(6000)));
        assert_eq!(both.excluded_files, files(&["/a", "/b"]));
        let again = RequestOverrides { excluded_files: files(&["/b", "/c"]), ..RequestOverrides::default() };
        let all = RequestOverrides::default()
            .merged_with(both.record_excluded_by("ada"))
            .merged_with(again.record_excluded_by("eve"));
        let by =
            [("/a", "ada"), ("/b", "ada"), ("/c", "eve")].map(|(lfn, who)| (lfn.to_owned(), who.to_owned()));
        assert_eq!(all.excluded_by, by.into(), "the first user is kept");
        let both = all;
        assert!(!both.is_empty() && RequestOverrides::default().is_empty());
        assert_eq!(serde_json::to_string(&RequestOverrides::default()).unwrap(), "{}");
    }

    #[test]
    fn file_remainder_has_plain_json() {
        let left = |text: &str| serde_json::from_str::<FileRemainder>(text).unwrap();
        assert_eq!(left(r#"{"events":[[1,10],[21,30]]}"#), FileRemainder::Events(vec![(1, 10), (21, 30)]));
        let mask = LumiMask::from([(7, vec![(1, 3)])]);
        assert_eq!(left(r#"{"lumis":{"7":[[1,3]]}}"#), FileRemainder::Lumis(mask));
    }
}
