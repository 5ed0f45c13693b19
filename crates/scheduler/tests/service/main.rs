//! The service with a real database, workers that are plain calls, and a manual clock.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize that this is test code")]

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
