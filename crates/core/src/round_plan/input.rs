//! What a plan is made of: the request, its files, the sites, and what the deployment has set.

use crate::adaptive::{AdaptiveSettings, MemoryWindow, RequestMeasurements};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::{FileRemainder, Request};

#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    pub request: &'a Request,
    /// Those that are still to be processed, in any order. None for generation.
    pub files: &'a [CatalogFile],
    /// LFNs of files that were in a work unit that failed: they come after all others, apart from them.
    pub attempted: &'a BTreeSet<String>,
    /// By LFN: what is still to be done of files that were processed in part. Of all others, all that is wanted is.
    pub remaining: &'a BTreeMap<String, FileRemainder>,
    /// Sites that may be used at present, those that are disabled or banned left out; with their slots where known.
    pub sites: &'a BTreeMap<String, Option<u64>>,
    pub settings: &'a PlanSettings,
    pub start: RoundStart,
    /// Of events that are generated, so many are still wanted after the filter. `None`: all that the request asks for.
    pub events_wanted: Option<u64>,
    /// MB of a whole job, by the word of a person: it stands over what the request says and over what was measured.
    pub memory_mb: Option<u64>,
    /// Seconds that an event takes, likewise.
    pub time_per_event: Option<f64>,
    /// What earlier rounds have measured.
    pub metrics: Option<&'a RequestMeasurements>,
    /// No more work units than this; the rest is for a later round. Files are never divided between rounds, so a single
    /// file that makes more units than this is planned whole. Files that failed before have rounds of their own, after
    /// all others.
    pub max_units: Option<u32>,
    /// Nor more processing jobs than this, as far as whole units allow.
    pub max_jobs: Option<u64>,
    /// Nor more of the events that are wanted, or of the files, than this, as far as whole units allow: a production step is
    /// reached then, and what follows it is planned by what was measured.
    pub until_step: Option<u64>,
}

/// Where the numbers of a round begin: past everything that was ever planned before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundStart {
    pub first_event: u64,
    pub first_lumi: u32,
    /// The same for all output datasets: their blocks consist of the same work units.
    pub first_block: u32,
}

impl Default for RoundStart {
    fn default() -> Self {
        Self { first_event: 1, first_lumi: 1, first_block: 0 }
    }
}

/// What is set for all requests together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanSettings {
    /// MB. What nearly every site offers.
    pub default_memory_per_core: u64,
    /// MB. Nothing that needs more is accepted.
    pub max_memory_per_core: u64,
    /// What was measured, times this, is asked for.
    pub memory_safety: f64,
    /// How rounds learn from those before them.
    pub adaptive: AdaptiveSettings,

    /// Where the request does not say how to cut.
    pub files_per_job: u64,
    pub events_per_job: u64,
    pub lumis_per_job: u64,

    pub target_merged_size_kb: u64,
    pub target_block_size_kb: u64,
    /// However small their outputs are: all of a unit is lost when one of its jobs is.
    pub max_jobs_per_unit: u32,

    /// However small a job is, it is said to take this long and to need this much room.
    pub min_time_sec: u64,
    pub min_disk_kb: u64,

    /// A plan with more processing jobs is refused: somebody has mistaken a parameter.
    pub max_nodes: u32,
    pub retries: RetriesByRole,
    /// How many at once, by category.
    pub throttles: BTreeMap<String, u64>,
}

/// How often a job is tried again, by its role.
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
    /// With this memory that jobs may ask for.
    pub const fn set_memory_window(&mut self, window: MemoryWindow) {
        self.default_memory_per_core = window.default_per_core;
        self.max_memory_per_core = window.max_per_core;
        self.memory_safety = window.safety;
    }

    /// The memory that jobs may ask for.
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
