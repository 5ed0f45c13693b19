//! Tests specific to PostgreSQL.

mod lock_loss;
mod lost_commits;
mod server;
mod timeouts;
mod tls;

use crate::kit::Fixture;
use crate::postgres_server::{self, database};
use windlass_store::StoreDatabase;
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::OpenMode;

pub(crate) fn empty_store() -> Fixture<dyn StoreDatabase> {
    let database = database();
    Fixture { store: Box::new(open(&database)), _keep: Box::new(database) }
}

fn open(database: &postgres_server::Database) -> PgStore {
    PgStore::open(&database.url(), OpenMode::ReadWrite).unwrap()
}
