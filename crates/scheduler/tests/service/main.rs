//! The service with a real database, workers that are plain calls, and a clock that is moved by hand.
#![expect(clippy::unwrap_used, reason = "the lint does not see that all of this is a test")]

mod actions;
mod allocations;
mod basics;
mod clients;
mod closed;
mod failures;
mod fairness;
mod fuzz;
mod hostile;
mod leases;
mod model;
mod nodes;
mod poison;
mod scale;
mod trouble;
mod units;
mod world;
