//! The catalog that is in our own database: datasets, their files and where those are, blocks of outputs, rules.
//!
//! Whatever changes something may be done twice: steps are repeated after a crash.

use crate::StoreError;
use windlass_types::Timestamp;
use windlass_types::catalog::{
    CatalogBlock, CatalogFile, CatalogReplica, DatasetSummary, NewReplicationRule, ReplicationRule,
};

/// Who changes a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetWriter<'a> {
    pub user: &'a str,
    /// Also datasets of others, and those of which no owner is known.
    pub may_change_others: bool,
}

impl<'a> DatasetWriter<'a> {
    /// At a database of one's own.
    pub const fn with_full_access(user: &'a str) -> Self {
        Self { user, may_change_others: true }
    }
}

pub trait DatasetStore: Send + Sync {
    /// By name; `*` in the pattern stands for anything. Without their sites, which are told of one at a time.
    fn datasets(&self, pattern: Option<&str>) -> Result<Vec<DatasetSummary>, StoreError>;
    fn dataset(&self, name: &str) -> Result<Option<DatasetSummary>, StoreError>;
    /// All or none, and the dataset too if it is new. A file that is there gets what is said now, is valid again, and keeps
    /// replicas that are not named; one of another dataset is refused. How many are new.
    ///
    /// A dataset that is new belongs to `by`; one of another owner, or that a request of another user writes, is refused
    /// ([`Error::NotOwner`]). An event tells of it.
    fn add_dataset_files(
        &self,
        dataset: &str,
        files: &[CatalogFile],
        by: DatasetWriter<'_>,
        now: Timestamp,
    ) -> Result<u64, StoreError>;
    /// In the order in which they came. Refused if there is no such dataset.
    fn dataset_files(&self, dataset: &str, only_valid: bool) -> Result<Vec<CatalogFile>, StoreError>;
    /// At most so many of them after the first `offset`, and how many there are in all.
    fn list_dataset_files(
        &self,
        dataset: &str,
        only_valid: bool,
        offset: u64,
        limit: u64,
    ) -> Result<(Vec<CatalogFile>, u64), StoreError>;
    /// Forgets it: files, blocks and replicas. What is on disk stays. `false`: there was none. An event tells of it.
    fn delete_dataset(
        &self,
        dataset: &str,
        by: DatasetWriter<'_>,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Replicas of files that are there; one at the same site gets the new path.
    fn add_replicas(&self, replicas: &[CatalogReplica]) -> Result<(), StoreError>;
    /// How many there were.
    fn remove_replicas(&self, site: &str, lfns: &[String]) -> Result<u64, StoreError>;
    /// How many were valid until now. Those that are not there are left out.
    fn invalidate_files(&self, lfns: &[String]) -> Result<u64, StoreError>;

    /// The dataset and the block are made unless they are there. One that was closed stays closed. A dataset that is new
    /// belongs to the requestor of the request that writes it.
    fn open_block(&self, dataset: &str, block: &str, now: Timestamp) -> Result<(), StoreError>;
    /// Files that are in the block already stay as they are; one of another block or dataset is refused, and so is a new one
    /// if the block is closed. All or none. How many are new.
    fn register_files(&self, block: &str, files: &[CatalogFile]) -> Result<u64, StoreError>;
    fn close_block(&self, block: &str, now: Timestamp) -> Result<(), StoreError>;
    fn catalog_block(&self, block: &str) -> Result<Option<CatalogBlock>, StoreError>;
    /// In the order in which they were opened.
    fn catalog_blocks(&self, dataset: &str) -> Result<Vec<CatalogBlock>, StoreError>;
    fn block_files(&self, block: &str, only_valid: bool) -> Result<Vec<CatalogFile>, StoreError>;

    /// Its id; of the one that there is, if the same was wished for before.
    fn add_rule(&self, rule: &NewReplicationRule, now: Timestamp) -> Result<String, StoreError>;
    /// `false`: there was none.
    fn delete_rule(&self, id: &str) -> Result<bool, StoreError>;
    /// Of a block or dataset, or all; oldest first.
    fn rules(&self, name: Option<&str>) -> Result<Vec<ReplicationRule>, StoreError>;
}
