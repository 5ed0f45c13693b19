//! The decisions of Windlass as pure functions: job states, the dependency graph, dispatch and retries; and
//! decisions before and after a run: plans, reuse of results, resets, explanations.
//!
//! No I/O, no clock, no randomness, no threads. `(state, event)` goes in, [`change::WorkflowChange`]s come out;
//! the store commits them, and only then are they acted on.

pub mod actions;
pub mod adaptive;
pub mod attempt_outcome;
pub mod catalog_checks;
pub mod change;
pub mod classify;
pub mod crash_suspects;
pub mod dependency_edges;
pub mod dependency_graph;
pub mod dispatch;
pub mod failure_commands;
pub mod failure_handlers;
pub mod failure_signature;
mod growth_limits;
pub mod job_explanation;
pub mod job_state;
pub mod log_excerpt;
pub mod log_lines;
pub mod node_quarantine;
pub mod recovery;
pub mod redact;
pub mod requests;
pub mod reset;
pub mod reuse;
pub mod round_plan;
pub mod sizing;
pub mod slurm;
pub mod spawn;
mod topological_order;
mod word_matcher;
pub mod workflow_outline;
pub mod workflow_state;
