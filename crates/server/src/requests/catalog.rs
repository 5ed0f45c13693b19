//! The catalog in the server's database.

use super::{RequestActor, page_length};
use crate::error::{ApiError, ApiResult};
use windlass_api::requests::{DatasetBlockList, DatasetFileList, DatasetList, ImportFiles, ImportResponse};
use windlass_core::catalog_checks;
use windlass_store::{AddedFiles, DatasetEditor, StoreDatabase};
use windlass_types::Timestamp;
use windlass_types::catalog::DatasetSummary;

pub fn list_datasets(db: &dyn StoreDatabase, pattern: Option<&str>) -> ApiResult<DatasetList> {
    Ok(DatasetList { items: db.datasets(pattern)? })
}

pub fn get_dataset(db: &dyn StoreDatabase, name: &str) -> ApiResult<DatasetSummary> {
    db.dataset(name)?.ok_or_else(|| ApiError::not_found(format_args!("dataset `{name}`")))
}

pub fn list_dataset_files(
    db: &dyn StoreDatabase,
    dataset: &str,
    only_valid: bool,
    offset: u64,
    limit: Option<u64>,
) -> ApiResult<DatasetFileList> {
    let (items, total) = db.list_dataset_files(dataset, only_valid, offset, page_length(limit))?;
    Ok(DatasetFileList { items, total, offset })
}

pub fn list_dataset_blocks(db: &dyn StoreDatabase, dataset: &str) -> ApiResult<DatasetBlockList> {
    get_dataset(db, dataset)?;
    Ok(DatasetBlockList { items: db.catalog_blocks(dataset)? })
}

/// Adds files atomically; repeating the call changes nothing. Only the owner of a dataset and operators may
/// change it.
pub fn import_files(
    db: &dyn StoreDatabase,
    import: &ImportFiles,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<ImportResponse> {
    let faults = catalog_checks::check_catalog_files(&import.dataset, &import.files);
    if !faults.is_empty() {
        return Err(ApiError::invalid(catalog_checks::join_problems(&faults)));
    }
    let AddedFiles { added, changed } =
        db.add_dataset_files(&import.dataset, &import.files, dataset_writer(actor), now)?;
    Ok(ImportResponse { added, changed, dataset: get_dataset(db, &import.dataset)? })
}

/// Datasets without a known owner may be changed only by operators.
fn dataset_writer(actor: RequestActor<'_>) -> DatasetEditor<'_> {
    const NO_USER: &str = "";
    DatasetEditor { user: actor.name, may_change_others: (actor.authorize)(NO_USER).is_ok() }
}

/// Removes a dataset from the catalog; its files are not deleted.
pub fn forget_dataset(
    db: &dyn StoreDatabase,
    name: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<()> {
    if db.delete_dataset(name, dataset_writer(actor), now)? {
        return Ok(());
    }
    Err(ApiError::not_found(format_args!("dataset `{name}`")))
}
