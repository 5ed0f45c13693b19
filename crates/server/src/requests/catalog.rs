//! The catalog that is in our own database.

use super::page;
use crate::error::{Answer, ApiError};
use windlass_api::requests::{Blocks, Datasets, Files, Import, Imported};
use windlass_core::catalog;
use windlass_store::Database;
use windlass_types::Timestamp;
use windlass_types::catalog::DatasetSummary;

pub fn list(db: &dyn Database, pattern: Option<&str>) -> Answer<Datasets> {
    Ok(Datasets { items: db.datasets(pattern)? })
}

pub fn show(db: &dyn Database, name: &str) -> Answer<DatasetSummary> {
    db.dataset(name)?.ok_or_else(|| ApiError::not_found(format_args!("dataset `{name}`")))
}

pub fn files(
    db: &dyn Database,
    dataset: &str,
    only_valid: bool,
    offset: u64,
    limit: Option<u64>,
) -> Answer<Files> {
    let (items, total) = db.page_of_dataset_files(dataset, only_valid, offset, page(limit))?;
    Ok(Files { items, total, offset })
}

pub fn blocks(db: &dyn Database, dataset: &str) -> Answer<Blocks> {
    show(db, dataset)?;
    Ok(Blocks { items: db.catalog_blocks(dataset)? })
}

/// All of it or nothing; the same once more changes nothing.
pub fn import(db: &dyn Database, import: &Import, now: Timestamp) -> Answer<Imported> {
    let faults = catalog::faults(&import.dataset, &import.files);
    if !faults.is_empty() {
        return Err(ApiError::invalid(catalog::tell(&faults)));
    }
    let added = db.add_dataset_files(&import.dataset, &import.files, now)?;
    Ok(Imported { added, dataset: show(db, &import.dataset)? })
}

/// Forgets a dataset; its files stay where they are.
pub fn forget(db: &dyn Database, name: &str) -> Answer<()> {
    if db.delete_dataset(name)? {
        return Ok(());
    }
    Err(ApiError::not_found(format_args!("dataset `{name}`")))
}
