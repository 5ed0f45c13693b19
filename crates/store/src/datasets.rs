//! The built-in catalog in the database: datasets, their files and replicas, output blocks, rules.
//!
//! All changes are idempotent, because steps are repeated after a crash.

use crate::StoreError;
use windlass_types::Timestamp;
use windlass_types::catalog::{
    CatalogBlock, CatalogFile, CatalogReplica, DatasetSummary, NewReplicationRule, ReplicationRule,
};

/// The user who changes a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetEditor<'a> {
    pub user: &'a str,
    /// May also change datasets of other users, and those without a known owner.
    pub may_change_others: bool,
}

impl<'a> DatasetEditor<'a> {
    /// For a private database.
    pub const fn with_full_access(user: &'a str) -> Self {
        Self { user, may_change_others: true }
    }
}

/// What adding files to a dataset did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedFiles {
    /// Files that the catalog did not have.
    pub added: u64,
    /// Files that the catalog had with other properties (size, events, checksums, ...) or as invalid.
    pub changed: u64,
}

pub trait DatasetStore: Send + Sync {
    /// Lists datasets by name; `*` in the pattern matches anything. Sites are omitted; a single dataset has
    /// them.
    fn datasets(&self, pattern: Option<&str>) -> Result<Vec<DatasetSummary>, StoreError>;
    fn dataset(&self, name: &str) -> Result<Option<DatasetSummary>, StoreError>;
    /// Adds files, all or none, and the dataset if it is new. An existing file is updated, becomes valid again,
    /// and keeps replicas that are not listed; a file of another dataset is rejected.
    ///
    /// A new dataset belongs to `by`; one of another owner, or one that a request of another user writes, is
    /// rejected ([`StoreError::NotOwner`]). Recorded as an event.
    fn add_dataset_files(
        &self,
        dataset: &str,
        files: &[CatalogFile],
        by: DatasetEditor<'_>,
        now: Timestamp,
    ) -> Result<AddedFiles, StoreError>;
    /// Returns the files in the order in which they were added. Rejected if the dataset does not exist.
    fn dataset_files(&self, dataset: &str, only_valid: bool) -> Result<Vec<CatalogFile>, StoreError>;
    /// Returns a page of files after the first `offset`, and the total number.
    fn list_dataset_files(
        &self,
        dataset: &str,
        only_valid: bool,
        offset: u64,
        limit: u64,
    ) -> Result<(Vec<CatalogFile>, u64), StoreError>;
    /// Deletes the record of a dataset with its files, blocks and replicas, not the data on disk. `false`: it
    /// did not exist. Recorded as an event.
    fn delete_dataset(
        &self,
        dataset: &str,
        by: DatasetEditor<'_>,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Adds replicas of existing files; an existing replica at the site gets the new path.
    fn add_replicas(&self, replicas: &[CatalogReplica]) -> Result<(), StoreError>;
    /// Returns how many existed.
    fn remove_replicas(&self, site: &str, lfns: &[String]) -> Result<u64, StoreError>;
    /// Returns how many were valid before. Unknown files are skipped.
    fn invalidate_files(&self, lfns: &[String]) -> Result<u64, StoreError>;

    /// Opens a block; creates the dataset and the block if necessary. A closed block stays closed. A new
    /// dataset belongs to the requestor of the request that writes it.
    fn open_block(&self, dataset: &str, block: &str, now: Timestamp) -> Result<(), StoreError>;
    /// Adds files to a block, all or none. Files that are already in it stay as they are; a file of another
    /// block or dataset is rejected, and so is a new file if the block is closed. Returns how many are new.
    fn register_files(&self, block: &str, files: &[CatalogFile]) -> Result<u64, StoreError>;
    fn close_block(&self, block: &str, now: Timestamp) -> Result<(), StoreError>;
    fn catalog_block(&self, block: &str) -> Result<Option<CatalogBlock>, StoreError>;
    /// In the order in which they were opened.
    fn catalog_blocks(&self, dataset: &str) -> Result<Vec<CatalogBlock>, StoreError>;
    fn block_files(&self, block: &str, only_valid: bool) -> Result<Vec<CatalogFile>, StoreError>;

    /// Returns the id of the new rule, or of the existing one with the same parameters.
    fn add_rule(&self, rule: &NewReplicationRule, now: Timestamp) -> Result<String, StoreError>;
    /// `false`: it did not exist.
    fn delete_rule(&self, id: &str) -> Result<bool, StoreError>;
    /// Returns the rules of a block or dataset, or all; oldest first.
    fn rules(&self, name: Option<&str>) -> Result<Vec<ReplicationRule>, StoreError>;
}
