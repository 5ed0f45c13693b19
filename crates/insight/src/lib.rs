//! What can be told about a workflow, gathered from the books and the logs: where it stands, why a job is where it is,
//! where output lies, what classes of jobs used, what a recovery would do. And what both a person at the command line and
//! an agent do with it: making workflows of specs, giving orders. Used by the command line and by [`windlass_mcp`]; the
//! judging itself is pure and lives in `windlass_core`.
//!
//! [`windlass_mcp`]: ../windlass_mcp/index.html

pub mod allocation_planning;
pub mod explain;
pub mod failure_commands;
pub mod job_groups;
pub mod log_tail;
pub mod logs;
pub mod recovery;
pub mod slurm_planning;
pub mod workflow_creation;
mod workflow_phase;

pub use workflow_phase::{WorkflowPhase, has_active_process, is_remote_store, needs_decision};
