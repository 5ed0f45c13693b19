//! A request as submitted.

use super::{CleanupPolicy, SplittingAlgo};
use crate::LumiMask;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A request for data. Created and validated by `windlass-core`; stored whole, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub request_name: String,

    pub requestor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requestor_dn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,

    /// `None` for generation requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_dataset: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secondary_input_dataset: Option<String>,
    pub output_datasets: Vec<String>,
    /// Events to generate. Set only if there is no input dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationParams>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmssw_version: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scram_arch: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_tag: Option<String>,

    /// Memory of a whole job, for all its cores together.
    pub memory_mb: u64,
    pub time_per_event_sec: f64,
    pub size_per_event_kb: f64,
    pub multicore: u32,

    #[serde(default)]
    pub site_whitelist: Vec<String>,
    #[serde(default)]
    pub site_blacklist: Vec<String>,
    /// Jobs may run at any allowed site, wherever their inputs are stored (ReqMgr2: `TrustSitelists`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_sitelists: bool,

    pub splitting_algo: SplittingAlgo,
    #[serde(default)]
    pub splitting_params: SplittingParams,
    /// Later rounds use the measurements of earlier ones. Without it the hints above apply, and there is one
    /// round.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub adaptive: bool,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_string: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquisition_era: Option<String>,
    pub processing_version: u32,
    /// Higher values go first.
    pub priority: i64,
    /// Goes before all requests that are not urgent.
    #[serde(default)]
    pub urgent: bool,
    #[serde(default)]
    pub production_steps: Vec<PriorityStep>,

    /// Passed on to the payload on the worker; the scheduler never interprets it. Contains
    /// `RequestType` and the steps.
    #[serde(default)]
    pub payload_config: Map<String, Value>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_version_request: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by_request: Option<String>,
    pub cleanup_policy: CleanupPolicy,
}

/// Generation of events without input. 64 bits throughout: with a small filter efficiency the numbers exceed 32
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationParams {
    /// Number of events wanted after the filter.
    pub events: u64,
    #[serde(default = "one")]
    pub first_event: u64,
    #[serde(default = "one_u32")]
    pub first_lumi: u32,
    pub events_per_lumi: u64,
    /// Fraction of the generated events that passes the filter: 0 < e ≤ 1.
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

/// The priority of a request that does not set one.
pub const DEFAULT_PRIORITY: i64 = 100_000;

/// Once this fraction is completed, the rest continues with the new priority.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorityStep {
    /// Fraction of the work units, counted from the beginning: 0 < fraction < 1.
    pub fraction: f64,
    pub priority: i64,
}

/// How the input is split into jobs. Missing values have defaults in the planner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SplittingParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_per_job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lumis_per_job: Option<u64>,
    /// Maximum number of events in a single lumi; a request with a larger one is rejected
    /// (EventAwareLumiBased).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events_per_lumi: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_per_job: Option<u64>,
    /// Runs to include; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_whitelist: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_blacklist: Vec<u32>,
    /// Lumis to include; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lumi_mask: Option<LumiMask>,
    /// A job reads at most one file (LumiBased, EventAwareLumiBased).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub halt_job_on_file_boundaries: bool,
    /// Target size of merged files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_merged_size_kb: Option<u64>,
    /// Target size of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_block_size_kb: Option<u64>,
}
