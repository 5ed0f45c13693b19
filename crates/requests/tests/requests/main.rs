//! Requests from start to end: a real database, the real engine, workers that do what `windlass payload` does.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

mod arrows;
mod blame;
mod catalogs;
mod crashes;
mod flows;
mod inputs;
mod kit;
mod recovery;
mod reqmgr2;
#[path = "../reqmgr2_stub/mod.rs"]
mod reqmgr2_stub;
mod stuck;
mod worker;
