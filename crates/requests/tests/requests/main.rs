//! Requests from start to end: a real database, the real engine, workers that do what `windlass payload` does.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod bans;
mod catalogs;
mod crashes;
mod inputs;
mod kit;
mod lifecycle;
mod recovery;
mod recovery_transitions;
mod reqmgr2;
#[path = "../reqmgr2_stub/mod.rs"]
mod reqmgr2_stub;
mod stuck_requests;
mod worker;
