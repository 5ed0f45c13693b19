//! Queries and operations on workflows over the database and the logs: workflow phase, explanations of jobs,
//! locations of output, usage of job groups, recovery plans, creating workflows from specs, and failure
//! commands. Used by the command line and by [`windlass_mcp`]; the decisions are pure and are in
//! `windlass_core`.
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
