//! Tests on a real HTCondor pool.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod dags;
mod pool_checks;
mod post_scripts;
mod rendered;
mod schedd_commands;
mod small_dags;
mod specs;
mod submission;
#[path = "../support/mod.rs"]
mod support;
mod watch;
