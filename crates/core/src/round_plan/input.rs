//! Input of a plan: the request, its files, the sites, and the settings of the deployment.

use crate::adaptive::{AdaptiveSettings, MemoryWindow, RequestMeasurements};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::{FileRemainder, Request};

#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    pub request: &'a Request,
    /// Files still to be processed, in any order. Empty for generation.
    pub files: &'a [CatalogFile],
    /// LFNs of files of failed work units: they come last, in separate rounds.
    pub attempted: &'a BTreeSet<String>,
    /// By LFN: the remaining part of partly processed files. Of all others, everything selected remains.
    pub remaining: &'a BTreeMap<String, FileRemainder>,
    /// Sites usable at present, without disabled or banned ones; with their slots if known.
    pub sites: &'a BTreeMap<String, Option<u64>>,
    pub settings: &'a PlanSettings,
    pub start: RoundStart,
    /// Events still wanted after the filter, for generation. `None`: as many as the request asks for.
    pub events_wanted: Option<u64>,
    /// Memory of a job in MB, set by an operator; overrides the request and measurements.
    pub memory_mb: Option<u64>,
    /// Seconds per event, likewise.
    pub time_per_event: Option<f64>,
    /// Measurements of earlier rounds.
    pub metrics: Option<&'a RequestMeasurements>,
    /// Maximum number of work units; the rest is left to later rounds. Files are not divided between rounds, so
    /// a single file with more units is planned whole. Files that failed before have separate rounds, after all
    /// others.
    pub max_units: Option<u32>,
    /// Maximum number of processing jobs, as far as whole units allow.
    pub max_jobs: Option<u64>,
    /// Maximum number of wanted events, or of files, as far as whole units allow: then a production step is
    /// reached, and the following work is planned with new measurements.
    pub until_step: Option<u64>,
}

/// First numbers of a round: beyond everything planned before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundStart {
    pub first_event: u64,
    pub first_lumi: u32,
    /// Common to all output datasets: their blocks contain the same work units.
    pub first_block: u32,
}

impl Default for RoundStart {
    fn default() -> Self {
        Self { first_event: 1, first_lumi: 1, first_block: 0 }
    }
}

/// Settings for all requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanSettings {
    /// MB. Offered by nearly every site.
    pub default_memory_per_core: u64,
    /// MB. Requests above it are rejected.
    pub max_memory_per_core: u64,
    /// Factor between measured and requested memory.
    pub memory_safety: f64,
    /// Settings of adaptive rounds.
    pub adaptive: AdaptiveSettings,

    /// Default if the request does not give it.
    pub files_per_job: u64,
    pub events_per_job: u64,
    pub lumis_per_job: u64,

    pub target_merged_size_kb: u64,
    pub target_block_size_kb: u64,
    /// Maximum even if outputs are small: the whole unit is lost when one of its jobs is.
    pub max_jobs_per_unit: u32,

    /// Minimum for the estimated time and disk space of a job.
    pub min_time_sec: u64,
    pub min_disk_kb: u64,

    /// Maximum number of processing jobs of a plan: more indicate a wrong parameter.
    pub max_nodes: u32,
    pub retries: RetriesByRole,
    /// Maximum number of concurrent jobs, by category.
    pub throttles: BTreeMap<String, u64>,
}

/// Number of retries of a job, by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetriesByRole {
    pub landing: u32,
    pub processing: u32,
    pub merge: u32,
    pub cleanup: u32,
}

impl Default for RetriesByRole {
    fn default() -> Self {
        Self { landing: 3, processing: 3, merge: 2, cleanup: 1 }
    }
}

impl PlanSettings {
    /// Sets the range of memory that jobs may request.
    pub const fn set_memory_window(&mut self, window: MemoryWindow) {
        self.default_memory_per_core = window.default_per_core;
        self.max_memory_per_core = window.max_per_core;
        self.memory_safety = window.safety;
    }

    /// Returns the range of memory that jobs may request.
    pub const fn memory_window(&self) -> MemoryWindow {
        MemoryWindow {
            default_per_core: self.default_memory_per_core,
            max_per_core: self.max_memory_per_core,
            safety: self.memory_safety,
        }
    }
}

impl Default for PlanSettings {
    fn default() -> Self {
        let window = MemoryWindow::default();
        let throttles = [("Processing", 5000), ("Merge", 100), ("Cleanup", 50), ("MergeGroup", 10)];
        Self {
            default_memory_per_core: window.default_per_core,
            max_memory_per_core: window.max_per_core,
            memory_safety: window.safety,
            adaptive: AdaptiveSettings::default(),
            files_per_job: 5,
            events_per_job: 10_000,
            lumis_per_job: 8,
            target_merged_size_kb: 4_000_000,
            target_block_size_kb: 1_000_000_000,
            max_jobs_per_unit: 100,
            min_time_sec: 300,
            min_disk_kb: 1_000_000,
            max_nodes: 1_000_000,
            retries: RetriesByRole::default(),
            throttles: throttles.map(|(category, limit)| (category.to_owned(), limit)).into(),
        }
    }
}
