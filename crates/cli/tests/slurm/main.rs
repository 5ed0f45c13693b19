//! Windlass on a real Slurm cluster.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod disturbed;
mod gates;
mod house;
mod idle;
mod looked_after;
mod lost;
mod recovery;
mod reports;
mod stages;
mod steps;
mod submitting;
#[path = "../../../slurm/tests/support/mod.rs"]
mod support;
mod whole;
mod workers;
