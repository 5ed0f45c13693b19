//! Where runs of requests execute: today the engine of this server.

mod engine;
mod jobs;
mod roles;

pub(crate) use engine::EngineError;
pub(crate) use engine::{Engine, Handed};
pub(crate) use jobs::{JobSize, Submission};
pub(crate) use roles::Retries;
