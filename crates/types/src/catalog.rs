//! Datasets, their files and replicas, as plain data that is the same for every catalog.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The events of one lumi section in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileLumi {
    pub run: u32,
    pub lumi: u32,
    /// `None`: not recorded in the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u32>,
}

/// A file of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CatalogFile {
    pub lfn: String,
    pub size: u64,
    pub events: u64,
    /// Checksums by algorithm: `adler32`, `md5`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<String, String>,
    /// Ascending by run and lumi, which is also the order of the events in the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lumis: Vec<FileLumi>,
    /// Site → path or URL at that site.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

/// A summary of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetSummary {
    pub name: String,
    /// The user who may change it besides operators. `None`: operators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Number of valid files; the totals below count only these.
    pub files: u64,
    pub events: u64,
    /// A lumi whose events are spread over two files counts twice.
    pub lumis: u64,
    pub size: u64,
    pub invalid_files: u64,
    pub blocks: u64,
    /// Number of files by site.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sites: BTreeMap<String, u64>,
}

/// A group of files of a dataset; it is open until it is full and closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogBlock {
    pub name: String,
    pub dataset: String,
    /// Whether files may still be added.
    pub is_open: bool,
    pub files: u64,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

/// A replica of a file at a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogReplica {
    pub lfn: String,
    pub site: String,
    /// Path or URL at the site.
    pub path: String,
}

/// The parameters of a replication rule. A second request for the same block or dataset, sites and copies
/// returns the existing rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewReplicationRule {
    /// The name of a block or a dataset.
    pub name: String,
    /// Permitted sites: a Rucio expression or the name of a site.
    pub rse_expression: String,
    pub copies: u32,
    /// Lifetime in seconds; `None`: no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// A replication rule: the number of copies of a block or dataset to keep at the permitted sites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationRule {
    pub id: String,
    #[serde(flatten)]
    pub rule: NewReplicationRule,
    pub created_at: Timestamp,
}
