//! What can be told about a workflow, gathered from the books and the logs: where it stands, why a job is where it is,
//! where output lies, what classes of jobs used. Read by the command line and by agents ([`windlass_mcp`] shows it to
//! them); the judging itself is pure and lives in `windlass_core`.
//!
//! [`windlass_mcp`]: ../windlass_mcp/index.html

pub mod classes;
pub mod logs;
mod standing;
pub mod tail;
pub mod why;

pub use standing::{State, is_elsewhere, is_run_by_somebody, needs_verdict};
