//! The decisions of Windlass, as pure functions: job states, the dependency graph, readiness, dispatch; and what is
//! decided before and after a run: plans, what may be reused, what goes back, why something is as it is.
//!
//! No I/O, no clock, no randomness, no threads. `(state, event)` goes in, [`change::Change`]s come out; the store
//! commits them and only then does anybody act on them.

pub mod actions;
pub mod adaptive;
pub mod board;
pub mod catalog;
pub mod change;
pub mod classify;
pub mod dispatch;
pub mod edges;
pub mod graph;
pub mod handlers;
pub mod judge;
pub mod lines;
pub mod nodes;
mod order;
pub mod orders;
pub mod outline;
pub mod plan;
pub mod recovery;
pub mod redact;
pub mod requests;
pub mod reset;
pub mod reuse;
mod room;
pub mod signature;
pub mod sizing;
pub mod slurm;
pub mod spawn;
pub mod state;
pub mod suspects;
pub mod telltale;
pub mod why;
mod words;
