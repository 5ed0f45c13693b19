//! What can be told about a workflow, gathered from the books and the logs: where it stands, why a job is where it is,
//! where output lies, what classes of jobs used, what a recovery would do. And what both a person at the command line and
//! an agent do with it: making workflows of specs, giving orders. Used by the command line and by [`windlass_mcp`]; the
//! judging itself is pure and lives in `windlass_core`.
//!
//! [`windlass_mcp`]: ../windlass_mcp/index.html

pub mod allocating;
pub mod classes;
pub mod logs;
pub mod making;
pub mod orders;
pub mod packing;
pub mod recovery;
mod standing;
pub mod tail;
pub mod why;

pub use standing::{State, is_elsewhere, is_run_by_somebody, needs_verdict};
