//! Windlass on a real Slurm cluster.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod allocation_timing;
mod automatic_allocations;
#[path = "../../../store/tests/free_port/mod.rs"]
mod free_port;
mod idle_allocations;
mod lost_allocations;
mod many_jobs;
mod outages;
mod recovery;
mod reports;
mod stages;
mod steps;
mod submission;
#[path = "../../../slurm/tests/support/mod.rs"]
mod support;
mod test_server;
mod workers;
