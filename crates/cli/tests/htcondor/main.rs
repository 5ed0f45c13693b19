//! Requests on a real HTCondor pool, from their submission to archived blocks, with the real binary.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

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
#[expect(dead_code, reason = "these tests need only a part of the shared module")]
mod support;
mod together;
