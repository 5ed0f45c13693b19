//! Tests specific to SQLite.

mod child;
mod concurrency;
mod crash;
mod deleting;
mod full_disk;
mod locks;
mod rejected_files;

use crate::kit::Fixture;
use windlass_store::StoreDatabase;
use windlass_store::sqlite::SqliteStore;

pub(crate) fn empty_store() -> Fixture<dyn StoreDatabase> {
    let directory = tempfile::tempdir().unwrap();
    let opened = SqliteStore::create(directory.path().join("windlass.db")).unwrap();
    Fixture { store: Box::new(opened.store), _keep: Box::new(directory) }
}
