//! The catalog that is in our own database.

use super::{Actor, page};
use crate::error::{Answer, ApiError};
use windlass_api::requests::{Blocks, Datasets, Files, Import, Imported};
use windlass_core::catalog;
use windlass_store::{Database, DatasetWriter};
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

/// All of it or nothing; the same once more changes nothing. Only the owner of a dataset and operators change it.
pub fn import(db: &dyn Database, import: &Import, actor: Actor<'_>, now: Timestamp) -> Answer<Imported> {
    let faults = catalog::faults(&import.dataset, &import.files);
    if !faults.is_empty() {
        return Err(ApiError::invalid(catalog::tell(&faults)));
    }
    let added = db.add_dataset_files(&import.dataset, &import.files, writer(actor), now)?;
    Ok(Imported { added, dataset: show(db, &import.dataset)? })
}

/// What belongs to no user that is known is for those who may change everybody's.
fn writer(actor: Actor<'_>) -> DatasetWriter<'_> {
    const NO_USER: &str = "";
    DatasetWriter { user: actor.name, may_change_others: (actor.may)(NO_USER).is_ok() }
}

/// Forgets a dataset; its files stay where they are.
pub fn forget(db: &dyn Database, name: &str, actor: Actor<'_>, now: Timestamp) -> Answer<()> {
    if db.delete_dataset(name, writer(actor), now)? {
        return Ok(());
    }
    Err(ApiError::not_found(format_args!("dataset `{name}`")))
}
