//! What a job asks for and what a worker can give.

use crate::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What one job asks for. `memory` and `runtime` are limits only where the user wrote them (see [`crate::worker_messages::Limits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resources {
    pub cpus: u32,
    pub memory: Bytes,
    pub gpus: u32,
    pub nodes: u32,
    /// `None`: not said. Such a job is never ended for its time, and counts as [`Resources::UNSAID_RUNTIME`] when
    /// somebody has to guess.
    pub runtime: Option<Duration>,
}

impl Resources {
    /// The contract's default for a requirement that does not name a runtime.
    pub const ASSUMED_RUNTIME: Duration = Duration::from_hours(1);

    /// What a job that names no requirements counts as: one CPU, one MiB, nothing enforced.
    pub const DEFAULT: Self = Self { cpus: 1, memory: Bytes(1 << 20), gpus: 0, nodes: 1, runtime: None };

    /// The same where a number of jobs at once was given: then that number says how many, not the CPUs.
    pub const DEFAULT_WITHOUT_CPUS: Self =
        Self { cpus: 0, memory: Bytes(0), gpus: 0, nodes: 1, runtime: None };
}

/// What a worker can give at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    pub cpus: u32,
    pub memory: Bytes,
    pub gpus: u32,
    pub nodes: u32,
    /// At most so many jobs at once, whatever they ask for.
    pub max_jobs: Option<u32>,
}

impl Capacity {
    /// Roughly how many jobs it can run at once, and at least one.
    pub fn approximate_slots(&self) -> usize {
        self.max_jobs.unwrap_or(self.cpus.saturating_mul(self.nodes.max(1))).max(1) as usize
    }
}
