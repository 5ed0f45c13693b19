//! Tests on a real HTCondor pool.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod bed;
mod dags;
mod decided;
mod handed;
mod rendered;
mod specs;
mod submission;
#[path = "../support/mod.rs"]
mod support;
mod verbs;
mod watch;
