//! A request as it was wished for.

use super::{CleanupPolicy, SplittingAlgo};
use crate::LumiMask;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What somebody wants produced. Made and checked by `windlass-core`; kept whole, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub request_name: String,

    pub requestor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requestor_dn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,

    /// `None` for generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_dataset: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secondary_input_dataset: Option<String>,
    pub output_datasets: Vec<String>,
    /// Events that are made rather than read. Then there is no input dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationParams>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmssw_version: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scram_arch: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_tag: Option<String>,

    /// Of a whole job, all its cores together.
    pub memory_mb: u64,
    pub time_per_event_sec: f64,
    pub size_per_event_kb: f64,
    pub multicore: u32,

    #[serde(default)]
    pub site_whitelist: Vec<String>,
    #[serde(default)]
    pub site_blacklist: Vec<String>,
    /// Jobs may run at any site that is allowed, wherever their inputs are kept (ReqMgr2: `TrustSitelists`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_sitelists: bool,

    pub splitting_algo: SplittingAlgo,
    #[serde(default)]
    pub splitting_params: SplittingParams,
    /// Rounds learn from those before them. Without it the hints above stand, and all is one round.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub adaptive: bool,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_string: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquisition_era: Option<String>,
    pub processing_version: u32,
    /// Higher goes first.
    pub priority: i64,
    /// Goes before all that are not.
    #[serde(default)]
    pub urgent: bool,
    #[serde(default)]
    pub production_steps: Vec<ProductionStep>,

    /// Handed on to what runs on the worker, and never branched on. `RequestType` and the steps are in here.
    #[serde(default)]
    pub payload_config: Map<String, Value>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_version_request: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by_request: Option<String>,
    pub cleanup_policy: CleanupPolicy,
}

/// Events without input. 64 bits throughout: generation with a small filter efficiency exceeds 32.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationParams {
    /// That are wanted in the end, after the filter.
    pub events: u64,
    #[serde(default = "one")]
    pub first_event: u64,
    #[serde(default = "one_u32")]
    pub first_lumi: u32,
    pub events_per_lumi: u64,
    /// Of the events that are made, this share is kept: 0 < e ≤ 1.
    #[serde(default = "all")]
    pub filter_efficiency: f64,
}

const fn one() -> u64 {
    1
}
const fn one_u32() -> u32 {
    1
}
const fn yes() -> bool {
    true
}
const fn all() -> f64 {
    1.0
}

/// The priority of a request that names none.
pub const DEFAULT_PRIORITY: i64 = 100_000;

/// When so much is done, the rest goes on with this priority.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductionStep {
    /// Of the work units, counted from the beginning: 0 < fraction < 1.
    pub fraction: f64,
    pub priority: i64,
}

/// How the work is cut. What is not said has a default in the planner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SplittingParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_per_job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lumis_per_job: Option<u64>,
    /// A single lumi with more events than this is refused (EventAwareLumiBased).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events_per_lumi: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_per_job: Option<u64>,
    /// Only these; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_whitelist: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_blacklist: Vec<u32>,
    /// Only these lumis; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lumi_mask: Option<LumiMask>,
    /// A job reads no more than one file (LumiBased, EventAwareLumiBased).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub halt_job_on_file_boundaries: bool,
    /// Merged files are to be about so large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_merged_size_kb: Option<u64>,
    /// Blocks are to be about so large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_block_size_kb: Option<u64>,
}
