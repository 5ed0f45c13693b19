//! What can be asked about requests, sites and datasets: use cases over the books, in the words of the REST interface.
//!
//! Routes find out who calls and hand over to these; the command line calls them directly where no server has the
//! database. Nothing here waits or decides about the life of a request: what somebody wants is noted, and the reconciler
//! sees to it.

pub mod admission;
pub mod alerts;
pub mod catalog;
pub mod change;
pub mod dags;
pub mod endings;
pub mod errors;
pub mod files;
pub mod import;
pub mod look;
pub mod release;
mod retry;
pub mod sites;
mod steps;
pub mod submit;
pub mod workflows;

use crate::error::{Answer, ApiError};
use windlass_core::requests::book::RequestRow;
use windlass_store::Database;

/// More are not listed at once.
pub const MOST: u64 = 10_000;
/// As many as are listed where nobody says how many.
pub const USUAL: u64 = 1000;
/// Reasons and the like are no longer.
pub const LONGEST_TEXT: usize = 1000;

/// Who acts, and whether he may do so to what belongs to somebody. A person at his own database may.
#[derive(Clone, Copy)]
pub struct Actor<'a> {
    pub name: &'a str,
    pub may: &'a (dyn Fn(&str) -> Answer<()> + Sync),
}

impl Actor<'_> {
    /// Somebody at his own database.
    pub fn owner(name: &str) -> Actor<'_> {
        Actor { name, may: &|_| Ok(()) }
    }
}

impl std::fmt::Debug for Actor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Actor").field(&self.name).finish()
    }
}

pub(crate) fn request(db: &dyn Database, name: &str) -> Answer<RequestRow> {
    db.request(name)?.ok_or_else(|| ApiError::not_found(format_args!("request `{name}`")))
}

/// The user whose request it is.
pub(crate) fn requestor(db: &dyn Database, name: &str) -> Answer<String> {
    Ok(request(db, name)?.request.requestor)
}

fn text(what: &str, text: &str) -> Answer<()> {
    if text.len() > LONGEST_TEXT {
        return Err(ApiError::invalid(format!("`{what}` is longer than {LONGEST_TEXT} bytes")));
    }
    Ok(())
}

fn page(limit: Option<u64>) -> u64 {
    limit.unwrap_or(USUAL).min(MOST)
}
