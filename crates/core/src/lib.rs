//! The decisions of Windlass, as pure functions: job states, the dependency graph, readiness, dispatch.
//!
//! No I/O, no clock, no randomness, no threads. `(state, event)` goes in, [`change::Change`]s come out; the store
//! commits them and only then does anybody act on them.

pub mod board;
pub mod change;
pub mod dispatch;
pub mod edges;
pub mod graph;
pub mod judge;
pub mod state;
