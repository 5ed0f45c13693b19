//! Use cases for requests, sites and datasets, with the types of the REST interface.
//!
//! Routes authenticate the caller and call these functions; the command line calls them directly if no server
//! has the database open. They never wait, and decide nothing about the lifecycle of a request: commands are
//! stored, and the reconciler performs them.

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

/// Maximum page length.
pub const MAX_PAGE_LENGTH: u64 = 10_000;
/// Default page length.
pub const DEFAULT_PAGE_LENGTH: u64 = 1000;
/// Maximum length of reasons and similar texts.
pub const MAX_TEXT_LENGTH: usize = 1000;

/// The acting user, and a check of what that user may do. A user with direct access to the database may do
/// everything.
#[derive(Clone, Copy)]
pub struct RequestActor<'a> {
    pub name: &'a str,
    pub authorize: &'a (dyn Fn(&str) -> ApiResult<()> + Sync),
}

impl RequestActor<'_> {
    /// The user with direct access to the database.
    pub fn owner(name: &str) -> RequestActor<'_> {
        RequestActor { name, authorize: &|_| Ok(()) }
    }
}

impl std::fmt::Debug for RequestActor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RequestActor").field(&self.name).finish()
    }
}

pub(crate) fn load_request(db: &dyn StoreDatabase, name: &str) -> ApiResult<RequestRow> {
    db.request(name)?.ok_or_else(|| ApiError::not_found(format_args!("request `{name}`")))
}

/// Returns the owner of the request.
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
