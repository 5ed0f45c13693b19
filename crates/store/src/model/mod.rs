//! What goes into the store ([`new`]), what comes out of it ([`rows`]), what users change by hand ([`edit`]), a workflow as
//! a file ([`export`]), what is known of failures ([`failures`]), workers ([`fleet`]), who may do what ([`access`]), and
//! what else the contract asks for ([`parts`]); and about requests ([`requests`]) and
//! allocations ([`allocations`]).

pub mod access;
pub mod allocations;
pub mod edit;
pub mod export;
pub mod failures;
pub mod fleet;
pub mod new;
pub mod orders;
pub mod parts;
pub mod requests;
pub mod rows;

pub use access::*;
pub use allocations::*;
pub use edit::*;
pub use export::{Export, ExportOptions, ImportOptions};
pub use failures::*;
pub use fleet::*;
pub use new::*;
pub use orders::*;
pub use parts::*;
pub use requests::*;
pub use rows::*;

/// For fields where saying `null` is something else than saying nothing.
pub(crate) fn given<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}
