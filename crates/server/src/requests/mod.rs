//! What can be asked about requests, sites and datasets: use cases over the books, in the words of the REST interface.
//!
//! Routes find out who calls and hand over to these; the command line calls them directly where no server has the
//! database. Nothing here waits or decides about the life of a request: what somebody wants is noted, and the reconciler
//! sees to it.

pub mod admission;
pub mod alerts;
pub mod catalog;
pub mod dags;
pub mod errors;
pub mod files;
mod output_retry;
mod production_steps;
pub mod release;
pub mod reqmgr2_import;
pub mod request_queries;
pub mod request_update;
pub mod sites;
pub mod submit;
pub mod termination;
pub mod workflows;

use crate::error::{ApiError, ApiResult};
use windlass_core::requests::rows::RequestRow;
use windlass_store::StoreDatabase;

/// More are not listed at once.
pub const MAX_PAGE_LENGTH: u64 = 10_000;
/// As many as are listed where nobody says how many.
pub const DEFAULT_PAGE_LENGTH: u64 = 1000;
/// Reasons and the like are no longer.
pub const MAX_TEXT_LENGTH: usize = 1000;

/// Who acts, and whether he may do so to what belongs to somebody. A person at his own database may.
#[derive(Clone, Copy)]
pub struct RequestActor<'a> {
    pub name: &'a str,
    pub authorize: &'a (dyn Fn(&str) -> ApiResult<()> + Sync),
}

impl RequestActor<'_> {
    /// Somebody at his own database.
    pub fn owner(name: &str) -> RequestActor<'_> {
        RequestActor { name, authorize: &|_| Ok(()) }
    }
}

impl std::fmt::Debug for RequestActor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Actor").field(&self.name).finish()
    }
}

pub(crate) fn load_request(db: &dyn StoreDatabase, name: &str) -> ApiResult<RequestRow> {
    db.request(name)?.ok_or_else(|| ApiError::not_found(format_args!("request `{name}`")))
}

/// The user whose request it is.
pub(crate) fn load_requestor(db: &dyn StoreDatabase, name: &str) -> ApiResult<String> {
    Ok(load_request(db, name)?.request.requestor)
}

fn check_text(what: &str, text: &str) -> ApiResult<()> {
    if text.len() > MAX_TEXT_LENGTH {
        return Err(ApiError::invalid(format!("`{what}` is longer than {MAX_TEXT_LENGTH} bytes")));
    }
    Ok(())
}

fn page_length(limit: Option<u64>) -> u64 {
    limit.unwrap_or(DEFAULT_PAGE_LENGTH).min(MAX_PAGE_LENGTH)
}
