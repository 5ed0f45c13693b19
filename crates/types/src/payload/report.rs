//! The files that jobs of a work unit write: reports, metrics, merged files.

use crate::LumiMask;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `proc_<node>.json`: the report of a node. Written last: a node is completed if its report has no failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessingReport {
    pub unit: String,
    pub node: u32,
    pub site: String,
    pub attempt: u32,
    /// LFNs of its inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// The steps that ran, including the failed one.
    pub steps: Vec<StepMetrics>,
    pub outputs: Vec<ProducedFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ProcessingFailure>,
    /// LFNs of unreadable inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_inputs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessingFailure {
    /// Absent if the failure was outside of a step: inputs, storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Exit code of the job report if there is one, else of the process. Codes above 255 are those of CMS.
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub message: String,
}

/// An unmerged file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducedFile {
    pub lfn: String,
    pub dataset: String,
    pub tier: String,
    pub step: String,
    pub size: u64,
    /// Adler-32 checksum, eight hexadecimal digits.
    pub adler32: String,
    pub events: u64,
    pub events_from: EventCountSource,
    #[serde(default, skip_serializing_if = "LumiMask::is_empty")]
    pub lumis: LumiMask,
}

/// Source of the number of events of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventCountSource {
    /// The job report of the step.
    Report,
    /// Counted by Windlass, because it is an event file.
    File,
    /// Not counted: the number expected of the node. Used only for files that another step reads and that are
    /// not registered.
    Expected,
}

/// The resource usage and the results of a step on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    pub step: String,
    /// Threads of each instance.
    pub threads: u32,
    /// Number of parallel instances; 0 and 1 mean the same.
    #[serde(default, skip_serializing_if = "is_alone")]
    pub instances: u32,
    /// Whether it could run in several instances.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_split: bool,
    /// Wall time until the last instance ended.
    pub wall_sec: f64,
    /// CPU time of the step and all its descendants.
    pub cpu_sec: f64,
    /// CPU time divided by wall time and threads.
    pub cpu_efficiency: f64,
    /// Peak memory of the largest instance.
    pub peak_rss_mb: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_vsize_mb: Option<f64>,
    /// Total of all instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_memory_mb: Option<f64>,
    pub events_read: u64,
    pub events_written: u64,
    pub time_per_event_sec: f64,
    pub read_mb: f64,
    pub write_mb: f64,
    pub exit_code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// `merge_output.json`: the outputs of a unit. If the file exists, all outputs exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeOutput {
    pub request: String,
    pub unit: String,
    pub number: u32,
    pub site: String,
    pub datasets: BTreeMap<String, Vec<MergedFile>>,
    pub counts: MergeCounts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedFile {
    pub lfn: String,
    pub size: u64,
    pub adler32: String,
    pub events: u64,
    #[serde(default, skip_serializing_if = "LumiMask::is_empty")]
    pub lumis: LumiMask,
    /// LFNs of the inputs of the nodes whose outputs it contains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeCounts {
    pub nodes: u64,
    pub files: u64,
    pub bytes: u64,
    /// Total over all datasets.
    pub events: u64,
}

/// `metrics.json`: the resource usage of the nodes of a unit by step. Steps are named, not numbered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkUnitMetrics {
    pub request: String,
    pub unit: String,
    pub site: String,
    pub jobs_sampled: u64,
    pub steps: BTreeMap<String, StepSummary>,
    /// Steps that some jobs ran with a different number of threads than most, as probes do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, Vec<StepSummary>>,
    /// Events read by its jobs; `output_bytes` is the total of all outputs.
    #[serde(default)]
    pub events_in: u64,
    #[serde(default)]
    pub output_bytes: u64,
}

/// Metrics of the jobs that ran a step with the same number of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepSummary {
    pub threads: u32,
    #[serde(default, skip_serializing_if = "is_alone")]
    pub instances: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_split: bool,
    pub samples: u64,
    pub wall_sec: SampleStatistics,
    pub cpu_sec: SampleStatistics,
    pub cpu_efficiency: SampleStatistics,
    pub peak_rss_mb: SampleStatistics,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_memory_mb: Option<SampleStatistics>,
    pub time_per_event_sec: SampleStatistics,
    pub read_mb: SampleStatistics,
    pub write_mb: SampleStatistics,
    pub events_read: SampleStatistics,
    pub events_written: SampleStatistics,
    pub totals: StepTotals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTotals {
    pub wall_sec: f64,
    pub cpu_sec: f64,
    pub events_read: u64,
    pub events_written: u64,
    pub read_mb: f64,
    pub write_mb: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleStatistics {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub median: f64,
}

impl SampleStatistics {
    /// Computes the statistics of the finite values; `None` if there are none.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { min, max, mean: values.iter().sum::<f64>() / values.len() as f64, median })
    }
}

/// `step_profile.json`: measurements of earlier rounds and the settings derived from them for the steps of this
/// one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepProfile {
    pub round: u32,
    pub jobs_sampled: u64,
    pub steps: BTreeMap<String, StepTuning>,
}

/// Medians over the sampled jobs, and how to run the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepTuning {
    pub cpu_efficiency: f64,
    pub rss_mb: f64,
    pub wall_sec_per_event: f64,
    /// Number of threads during the measurement.
    pub threads: u32,
    /// Number of threads to use from now on. Absent: as in the manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_threads: Option<u32>,
    /// Number of parallel instances, each with a share of the events. Absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<u32>,
    /// Estimated memory of one instance with its threads. No more instances run than fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_mb: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
const fn is_alone(instances: &u32) -> bool {
    *instances <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "the values are exactly representable")]
    fn statistics_of_values_ignore_non_finite_ones() {
        let spread = SampleStatistics::from_values([4.0, 1.0, f64::NAN, 2.0, 9.0]).unwrap();
        assert_eq!((spread.min, spread.max, spread.mean, spread.median), (1.0, 9.0, 4.0, 3.0));
        assert_eq!(SampleStatistics::from_values([5.0, 1.0, 3.0]).unwrap().median, 3.0);
        assert_eq!(SampleStatistics::from_values([f64::INFINITY]), None);
    }

    #[test]
    fn profile_of_the_specification_is_parsed() {
        let text = r#"{"round": 1, "jobs_sampled": 42, "steps": {"DIGI":
            {"cpu_efficiency": 0.85, "rss_mb": 1800, "wall_sec_per_event": 0.05, "threads": 8}}}"#;
        let profile: StepProfile = serde_json::from_str(text).unwrap();
        assert_eq!(profile.steps["DIGI"].threads, 8);
        assert_eq!(profile.steps["DIGI"].instances, None);
    }
}
