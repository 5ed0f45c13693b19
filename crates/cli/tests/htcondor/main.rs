//! Requests on a real HTCondor pool, from their submission to archived blocks, with the real binary.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod changed_requests;
mod concurrent_requests;
mod continuation;
mod credentials;
mod directories;
mod new_versions;
mod outages;
mod queries;
mod recovery;
mod rejected_runs;
mod step_commands;
#[path = "../../../htcondor/tests/support/mod.rs"]
#[expect(dead_code, reason = "these tests need only a part of the shared module")]
mod support;
mod test_server;
