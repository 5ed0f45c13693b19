//! Datasets, the files they consist of, and where those are. Plain data, the same for every catalog.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Events of one lumi section that are in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileLumi {
    pub run: u32,
    pub lumi: u32,
    /// `None`: the catalog does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u32>,
}

/// A file of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CatalogFile {
    pub lfn: String,
    pub size: u64,
    pub events: u64,
    /// By algorithm: `adler32`, `md5`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<String, String>,
    /// Ascending by run and lumi. The events of the file are in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lumis: Vec<FileLumi>,
    /// Site → path or URL there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

/// A dataset, summed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetSummary {
    pub name: String,
    /// Files that are valid, and what is in them.
    pub files: u64,
    pub events: u64,
    /// A lumi of which parts are in two files counts twice.
    pub lumis: u64,
    pub size: u64,
    pub invalid_files: u64,
    pub blocks: u64,
    /// Where files of it are, and how many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sites: BTreeMap<String, u64>,
}

/// Files of a dataset that belong together: opened, filled, closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogBlock {
    pub name: String,
    pub dataset: String,
    /// Files may still come.
    pub is_open: bool,
    pub files: u64,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

/// That a file is at a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub lfn: String,
    pub site: String,
    /// Path or URL there.
    pub path: String,
}

/// What is wished for of a rule. Who wishes for the same block or dataset, sites and copies again is told of the rule that
/// there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRule {
    /// A block or a dataset, by its name.
    pub name: String,
    /// Which places are good: an expression, as Rucio has them, or the name of a site.
    pub rse_expression: String,
    pub copies: u32,
    /// In seconds; `None`: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// So many copies of a block or dataset are to be kept at such places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub id: String,
    #[serde(flatten)]
    pub rule: NewRule,
    pub created_at: Timestamp,
}

/// Which lumis of which runs: run → ranges, both ends included. As CMS writes it: `{"356164": [[11, 15], [40, 40]]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LumiMask(pub BTreeMap<u32, Vec<(u32, u32)>>);

impl LumiMask {
    /// Ranges ascending, without overlap, neighbours joined.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        for ranges in self.0.values_mut() {
            ranges.sort_unstable();
            let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
            for &(first, last) in ranges.iter() {
                match joined.last_mut() {
                    Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                    _ => joined.push((first, last)),
                }
            }
            *ranges = joined;
        }
        self.0.retain(|_, ranges| !ranges.is_empty());
        self
    }

    /// For a normalized mask.
    pub fn contains(&self, run: u32, lumi: u32) -> bool {
        self.0.get(&run).is_some_and(|ranges| {
            let after = ranges.partition_point(|&(first, _)| first <= lumi);
            after > 0 && lumi <= ranges[after - 1].1
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(ranges: &[(u32, &[(u32, u32)])]) -> LumiMask {
        LumiMask(ranges.iter().map(|(run, ranges)| (*run, ranges.to_vec())).collect())
    }

    #[test]
    fn ranges_are_joined_and_searched() {
        let mask = mask(&[(1, &[(5, 9), (1, 2), (3, 3), (8, 12), (20, 20)]), (2, &[])]).normalized();
        assert_eq!(mask, super::tests::mask(&[(1, &[(1, 3), (5, 12), (20, 20)])]));
        let inside: Vec<u32> = (0..25).filter(|lumi| mask.contains(1, *lumi)).collect();
        assert_eq!(inside, [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 20]);
        assert!(!mask.contains(2, 1));
    }

    #[test]
    fn a_mask_is_written_as_cms_does() {
        let text = r#"{"356164":[[11,15],[40,40]],"356165":[[1,10]]}"#;
        let mask: LumiMask = serde_json::from_str(text).unwrap();
        assert!(mask.contains(356_164, 40) && !mask.contains(356_165, 11));
        assert_eq!(serde_json::to_string(&mask).unwrap(), text);
    }
}
