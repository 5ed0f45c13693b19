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
    /// Who may change it, beside operators. Absent: operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
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
pub struct CatalogReplica {
    pub lfn: String,
    pub site: String,
    /// Path or URL there.
    pub path: String,
}

/// What is wished for of a rule. Who wishes for the same block or dataset, sites and copies again is told of the rule that
/// there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewReplicationRule {
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
pub struct ReplicationRule {
    pub id: String,
    #[serde(flatten)]
    pub rule: NewReplicationRule,
    pub created_at: Timestamp,
}
