//! Models of the job-level contract that clients written for Torc 1.0 use, field by field.
//!
//! Names and shapes are those of the contract and change only with it. A missing field and `null` mean the
//! same; empty fields are omitted.

mod access;
mod action;
mod data;
mod job;
mod node;
mod page;
pub mod query;
mod resources;
mod result;
mod system;
mod workflow;

pub use access::*;
pub use action::*;
pub use data::*;
pub use job::*;
pub use node::*;
pub use page::*;
pub use resources::*;
pub use result::*;
pub use system::*;
pub use workflow::*;

use utoipa::ToSchema;

/// Version of the contract, compared by clients with the version they were built for.
pub const API_VERSION: &str = "0.23.0";

/// The names of [`windlass_types::JobStatus`], for the OpenAPI description.
#[derive(Debug, ToSchema)]
#[schema(as = JobStatus, rename_all = "snake_case")]
pub enum JobStatusName {
    Uninitialized,
    Blocked,
    Ready,
    Pending,
    Running,
    Completed,
    Failed,
    Canceled,
    Terminated,
    Disabled,
    PendingFailed,
}
