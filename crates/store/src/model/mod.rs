//! The data model of the store: input ([`new_workflow`]), rows and filters ([`rows`]), manual edits
//! ([`edits`]), export files ([`export`]), failures ([`failures`]), workers ([`workers`]), permissions
//! ([`access`]), other parts of the contract ([`workflow_parts`]), requests ([`requests`]) and allocations
//! ([`allocations`]).

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

/// For fields where `null` differs from an absent value.
pub(crate) fn deserialize_present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}
