//! Tests on a real Slurm cluster.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod cluster_checks;
mod kit;
mod outages;
mod reconciler;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "tests of other crates need the rest")]
mod support;
