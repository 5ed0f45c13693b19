//! The catalog that is in our own database: the default, and all that a laptop needs.

use super::{Catalog, CatalogError};
use std::sync::Arc;
use windlass_store::{Database, Error};
use windlass_types::Clock;
use windlass_types::catalog::{CatalogFile, NewRule};

#[derive(Clone)]
pub struct LocalCatalog {
    books: Arc<dyn Database>,
    /// Which places are good for what is to stay.
    tape: String,
}

impl LocalCatalog {
    pub fn new(books: Arc<dyn Database>, tape: &str) -> Self {
        Self { books, tape: tape.to_owned() }
    }

    fn rule(&self, block: &str, rse_expression: &str, comment: &str) -> Result<String, CatalogError> {
        let rule = NewRule {
            name: block.to_owned(),
            rse_expression: rse_expression.to_owned(),
            copies: 1,
            lifetime: None,
            comment: Some(comment.to_owned()),
        };
        self.books.add_rule(&rule, Clock.now()).map_err(|error| told(&error))
    }
}

impl std::fmt::Debug for LocalCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalCatalog").field("tape", &self.tape).finish_non_exhaustive()
    }
}

/// What the database refuses it will refuse again; when it cannot be used, it is another time.
fn told(error: &Error) -> CatalogError {
    if error.is_transient() { CatalogError::later(error) } else { CatalogError::never(error) }
}

impl Catalog for LocalCatalog {
    fn has(&self, dataset: &str) -> Result<bool, CatalogError> {
        Ok(self.books.dataset(dataset).map_err(|error| told(&error))?.is_some())
    }

    fn files(&self, dataset: &str) -> Result<Vec<CatalogFile>, CatalogError> {
        self.books.dataset_files(dataset, true).map_err(|error| told(&error))
    }

    fn open_block(&self, dataset: &str, block: &str) -> Result<(), CatalogError> {
        self.books.open_block(dataset, block, Clock.now()).map_err(|error| told(&error))
    }

    fn register(&self, block: &str, _site: &str, files: &[CatalogFile]) -> Result<(), CatalogError> {
        self.books.register_files(block, files).map(drop).map_err(|error| told(&error))
    }

    fn protect(&self, block: &str, site: &str) -> Result<String, CatalogError> {
        self.rule(block, site, "outputs stay where they were made")
    }

    fn close_block(&self, block: &str) -> Result<(), CatalogError> {
        self.books.close_block(block, Clock.now()).map_err(|error| told(&error))
    }

    fn archive(&self, block: &str) -> Result<String, CatalogError> {
        self.rule(block, &self.tape, "outputs stay for good")
    }

    fn remove_rule(&self, rule: &str) -> Result<(), CatalogError> {
        self.books.delete_rule(rule).map(drop).map_err(|error| told(&error))
    }

    fn invalidate(&self, block: &str) -> Result<(), CatalogError> {
        if self.books.catalog_block(block).map_err(|error| told(&error))?.is_none() {
            return Ok(());
        }
        for rule in self.books.rules(Some(block)).map_err(|error| told(&error))? {
            self.remove_rule(&rule.id)?;
        }
        let files = self.books.block_files(block, true).map_err(|error| told(&error))?;
        let lfns: Vec<String> = files.into_iter().map(|file| file.lfn).collect();
        self.books.invalidate_files(&lfns).map(drop).map_err(|error| told(&error))
    }
}
