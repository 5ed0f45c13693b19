//! What goes into the store ([`new`]), what comes out of it ([`rows`]), what users change by hand ([`edit`]), a workflow as
//! a file ([`export`]), what is known of failures ([`failures`]), workers ([`fleet`]), who may do what ([`access`]), and
//! what else the contract asks for ([`parts`]); and about requests ([`requests`]) and
//! allocations ([`allocations`]).

pub mod access;
pub mod allocations;
pub mod decisions;
pub mod edits;
pub mod export;
pub mod failures;
pub mod new_workflow;
pub mod requests;
pub mod rows;
pub mod workers;
pub mod workflow_parts;

pub use access::*;
pub use allocations::*;
pub use decisions::*;
pub use edits::*;
pub use export::{ExportOptions, ImportOptions, WorkflowExport};
pub use failures::*;
pub use new_workflow::*;
pub use requests::*;
pub use rows::*;
pub use workers::*;
pub use workflow_parts::*;

/// For fields where saying `null` is something else than saying nothing.
pub(crate) fn given<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}
