//! Requests on a real HTCondor pool, from their submission to archived blocks, with the real binary.
#![expect(clippy::unwrap_used, reason = "the lint does not see that all of this is a test")]

mod anew;
mod asking;
mod changed;
mod credentials;
mod directories;
mod disturbed;
mod going_on;
mod house;
mod recovering;
mod refused;
mod step_commands;
#[path = "../../../htcondor/tests/support/mod.rs"]
#[expect(dead_code, reason = "these tests need only some of what those of the crate need")]
mod support;
mod together;
