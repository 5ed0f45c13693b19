//! Resource requests of jobs and capacities of workers.

use crate::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The resource request of one job. `memory` and `runtime` are enforced only if the user set them (see
/// [`crate::worker_messages::AttemptLimits`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resources {
    pub cpus: u32,
    pub memory: Bytes,
    pub gpus: u32,
    pub nodes: u32,
    /// `None`: unlimited. Such a job never times out; estimates count it as [`Resources::ASSUMED_RUNTIME`].
    pub runtime: Option<Duration>,
}

impl Resources {
    /// The default runtime of the contract for requirements without one.
    pub const ASSUMED_RUNTIME: Duration = Duration::from_hours(1);

    /// The request of a job without requirements: one CPU, one MiB, nothing enforced.
    pub const DEFAULT: Self = Self { cpus: 1, memory: Bytes(1 << 20), gpus: 0, nodes: 1, runtime: None };

    /// The same where the number of parallel jobs was given: that number limits the jobs, not the CPUs.
    pub const DEFAULT_WITHOUT_CPUS: Self =
        Self { cpus: 0, memory: Bytes(0), gpus: 0, nodes: 1, runtime: None };
}

/// The capacity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    pub cpus: u32,
    pub memory: Bytes,
    pub gpus: u32,
    pub nodes: u32,
    /// Maximum number of parallel jobs, regardless of their requests.
    pub max_jobs: Option<u32>,
}

impl Capacity {
    /// Estimates how many jobs the worker can run in parallel, at least one.
    pub fn approximate_slots(&self) -> usize {
        self.max_jobs.unwrap_or(self.cpus.saturating_mul(self.nodes.max(1))).max(1) as usize
    }
}
