//! The service with a real database, workers that are plain calls, and a manual clock.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize that this is test code")]

mod actions;
mod allocations;
mod basics;
mod clients;
mod crash_suspects;
mod database_faults;
mod failures;
mod fairness;
mod fuzz;
mod invalid_messages;
mod kit;
mod leases;
mod model;
mod nodes;
mod paused_workflows;
mod scale;
mod units;
