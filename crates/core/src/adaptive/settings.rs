//! Settings of a deployment.

use serde::{Deserialize, Serialize};

/// Settings of adaptive rounds. Values that the specification does not give are those of reference programs in
/// production.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveSettings {
    /// For all requests; the `adaptive` field of a request can override it.
    pub enabled: bool,
    /// Minimum number of measured jobs; below it the hints apply.
    pub min_samples: u64,

    /// Minimum number of cores that a job is reduced to.
    pub min_cores: u32,
    /// A step that uses a smaller share of its threads runs in several instances side by side.
    pub split_below: f64,
    /// Maximum number of instances.
    pub max_instances: u32,
    /// Maximum number of threads per core. 1: no overcommit.
    pub overcommit_max: f64,
    /// A step that uses a larger share of its threads gets no overcommit.
    pub overcommit_below: f64,
    /// MB per additional thread, where it is not measured.
    pub mb_per_thread: f64,

    /// Target wall time of a job in seconds, including overhead …
    pub target_job_sec: u64,
    /// … and the part of it before the first and after the last event.
    pub job_overhead_sec: u64,
    pub min_events_per_job: u64,
    /// Maximum factor by which events per job change from one round to the next.
    pub max_change: f64,

    /// Jobs of the first round that run two instances with half the threads, if another round follows. 0: none.
    pub probe_jobs: u32,
    /// Work units of the first round. 0: all of them.
    pub first_round_units: u32,
    /// Processing jobs of the first round. 0: no limit other than the units.
    pub first_round_jobs: u64,
    /// Factor by which both limits may grow from each round to the next.
    pub growth: u32,
}

impl Default for AdaptiveSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            min_samples: 5,
            min_cores: 4,
            split_below: 0.50,
            max_instances: 4,
            overcommit_max: 1.0,
            overcommit_below: 0.90,
            mb_per_thread: 250.0,
            target_job_sec: 8 * 3600,
            job_overhead_sec: 600,
            min_events_per_job: 1,
            max_change: 2.0,
            probe_jobs: 2,
            first_round_units: 100,
            first_round_jobs: 1000,
            growth: 10,
        }
    }
}

/// The range of memory that jobs may request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryWindow {
    /// MB per core.
    pub default_per_core: u64,
    pub max_per_core: u64,
    /// Factor between measured and requested memory.
    pub safety: f64,
}

impl Default for MemoryWindow {
    fn default() -> Self {
        Self { default_per_core: 2000, max_per_core: 3000, safety: 1.20 }
    }
}

impl MemoryWindow {
    pub const fn default_memory_mb(&self, cores: u32) -> u64 {
        self.default_per_core.saturating_mul(cores as u64)
    }

    pub const fn max_memory_mb(&self, cores: u32) -> u64 {
        let per_core =
            if self.max_per_core > self.default_per_core { self.max_per_core } else { self.default_per_core };
        per_core.saturating_mul(cores as u64)
    }

    /// Returns the memory to request for this usage, and whether it is capped below what is needed.
    pub fn request_memory(&self, used_mb: f64, cores: u32) -> (u64, bool) {
        let wanted = (used_mb * self.safety).ceil() as u64;
        (
            wanted.clamp(self.default_memory_mb(cores), self.max_memory_mb(cores)),
            wanted > self.max_memory_mb(cores),
        )
    }

    /// Whether this memory usage is allowed.
    pub fn fits_memory(&self, used_mb: f64, cores: u32) -> bool {
        used_mb * self.safety <= self.max_memory_mb(cores) as f64
    }
}
