//! Windlass on a real Slurm cluster.
#![expect(clippy::unwrap_used, reason = "the lint does not see that all of this is a test")]

mod house;
mod looked_after;
mod steps;
#[path = "../../../slurm/tests/support/mod.rs"]
#[expect(dead_code, reason = "these tests need only some of what those of the crate need")]
mod support;
mod workers;
