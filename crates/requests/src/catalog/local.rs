//! The catalog in the own database: the default, and sufficient for a laptop.

use super::{CatalogError, DatasetCatalog};
use std::sync::Arc;
use windlass_store::{StoreDatabase, StoreError};
use windlass_types::SystemClock;
use windlass_types::catalog::{CatalogFile, NewReplicationRule};

#[derive(Clone)]
pub struct LocalCatalog {
    database: Arc<dyn StoreDatabase>,
    /// The allowed sites for archived outputs.
    tape_expression: String,
}

impl LocalCatalog {
    pub fn new(database: Arc<dyn StoreDatabase>, tape: &str) -> Self {
        Self { database, tape_expression: tape.to_owned() }
    }

    fn create_rule(&self, block: &str, rse_expression: &str, comment: &str) -> Result<String, CatalogError> {
        let rule = NewReplicationRule {
            name: block.to_owned(),
            rse_expression: rse_expression.to_owned(),
            copies: 1,
            lifetime: None,
            comment: Some(comment.to_owned()),
        };
        self.database.add_rule(&rule, SystemClock.now()).map_err(|error| catalog_error(&error))
    }
}

impl std::fmt::Debug for LocalCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalCatalog").field("tape", &self.tape_expression).finish_non_exhaustive()
    }
}

/// The database will reject the same again; an unavailable database is a temporary failure.
fn catalog_error(error: &StoreError) -> CatalogError {
    if error.is_transient() { CatalogError::transient(error) } else { CatalogError::permanent(error) }
}

impl DatasetCatalog for LocalCatalog {
    fn has_dataset(&self, dataset: &str) -> Result<bool, CatalogError> {
        Ok(self.database.dataset(dataset).map_err(|error| catalog_error(&error))?.is_some())
    }

    fn list_files(&self, dataset: &str) -> Result<Vec<CatalogFile>, CatalogError> {
        self.database.dataset_files(dataset, true).map_err(|error| catalog_error(&error))
    }

    fn open_block(&self, dataset: &str, block: &str) -> Result<(), CatalogError> {
        self.database.open_block(dataset, block, SystemClock.now()).map_err(|error| catalog_error(&error))
    }

    fn register_files(&self, block: &str, _site: &str, files: &[CatalogFile]) -> Result<(), CatalogError> {
        self.database.register_files(block, files).map(drop).map_err(|error| catalog_error(&error))
    }

    fn protect_block(&self, block: &str, site: &str) -> Result<String, CatalogError> {
        self.create_rule(block, site, "outputs stay where they were produced")
    }

    fn close_block(&self, block: &str) -> Result<(), CatalogError> {
        self.database.close_block(block, SystemClock.now()).map_err(|error| catalog_error(&error))
    }

    fn archive_block(&self, block: &str) -> Result<String, CatalogError> {
        self.create_rule(block, &self.tape_expression, "outputs are archived")
    }

    fn remove_rule(&self, rule: &str) -> Result<(), CatalogError> {
        self.database.delete_rule(rule).map(drop).map_err(|error| catalog_error(&error))
    }

    fn invalidate_block(&self, block: &str) -> Result<(), CatalogError> {
        if self.database.catalog_block(block).map_err(|error| catalog_error(&error))?.is_none() {
            return Ok(());
        }
        for rule in self.database.rules(Some(block)).map_err(|error| catalog_error(&error))? {
            self.remove_rule(&rule.id)?;
        }
        let files = self.database.block_files(block, true).map_err(|error| catalog_error(&error))?;
        let lfns: Vec<String> = files.into_iter().map(|file| file.lfn).collect();
        self.database.invalidate_files(&lfns).map(drop).map_err(|error| catalog_error(&error))
    }
}
