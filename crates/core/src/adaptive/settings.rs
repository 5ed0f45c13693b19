//! What a deployment may set.

use serde::{Deserialize, Serialize};

/// How rounds learn. Numbers that are not said in the specification are those of reference programs in production.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveSettings {
    /// For all requests; a request can be excepted by its `adaptive`.
    pub enabled: bool,
    /// What fewer jobs have measured changes nothing: the hints stand.
    pub min_samples: u64,

    /// A job is never cut down to fewer cores than this.
    pub min_cores: u32,
    /// A step that uses a smaller share of its threads is run in several instances side by side.
    pub split_below: f64,
    /// No more of them than this, however small they are.
    pub max_instances: u32,
    /// Threads for each core, at most. 1: none are lent.
    pub overcommit_max: f64,
    /// A step that uses a larger share of its threads has no use for more of them.
    pub overcommit_below: f64,
    /// MB that a thread more takes, where nobody has measured it.
    pub mb_per_thread: f64,

    /// Seconds that a job is to take, all in all …
    pub target_job_sec: u64,
    /// … of which so many are spent before the first event and after the last.
    pub job_overhead_sec: u64,
    pub min_events_per_job: u64,
    /// Events per job grow and shrink by no more than this from one round to the next.
    pub max_change: f64,

    /// Jobs of the first round that try out half the threads side by side, if another round follows. 0: none.
    pub probe_jobs: u32,
    /// Work units of the first round. 0: all of them.
    pub first_round_units: u32,
    /// Processing jobs of the first round. 0: no limit but that of the units.
    pub first_round_jobs: u64,
    /// Each round may have so many times more of both than the one before it.
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

/// The memory that jobs may ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryWindow {
    /// MB per core.
    pub default_per_core: u64,
    pub max_per_core: u64,
    /// What was measured, times this, is asked for.
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

    /// What is asked for where so much is used, and whether that is less than it should be.
    pub fn request_memory(&self, used_mb: f64, cores: u32) -> (u64, bool) {
        let wanted = (used_mb * self.safety).ceil() as u64;
        (
            wanted.clamp(self.default_memory_mb(cores), self.max_memory_mb(cores)),
            wanted > self.max_memory_mb(cores),
        )
    }

    /// Whether so much may be used.
    pub fn fits_memory(&self, used_mb: f64, cores: u32) -> bool {
        used_mb * self.safety <= self.max_memory_mb(cores) as f64
    }
}
