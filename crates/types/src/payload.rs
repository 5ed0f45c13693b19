//! The files of a work unit: its manifest, the reports of its nodes, and the output of its merge.
//!
//! Plain data, each one a JSON file in the directory of a run. The planner and the executor write manifests and
//! step profiles; `windlass payload` reads them and writes the rest.
//!
//! | file | content | written by |
//! |---|---|---|
//! | `mg_000012.json` | [`WorkUnitManifest`] | the executor |
//! | `step_profile.json` | [`StepProfile`] | the executor, after the first measurements |
//! | `mg_000012/proc_3.json` | [`ProcessingReport`] | the processing job of node 3 |
//! | `mg_000012/metrics.json` | [`WorkUnitMetrics`] | the merge job |
//! | `mg_000012/merge_output.json` | [`MergeOutput`] | the merge job, last of all |

mod manifest;
mod path_names;
mod report;

pub use manifest::{
    EventGeneration, EventWindow, ManifestInput, ManifestSite, ManifestStep, MergeSettings,
    ProcessingEstimates, ProcessingJob, SimulatedFailure, SimulatedFailureKind, StepParallelism,
    StepSimulation, WorkUnitManifest, WorkUnitOutput,
};
pub use path_names::{PathNameError, check_lfn, check_name};
pub use report::{
    EventCountSource, MergeCounts, MergeOutput, MergedFile, ProcessingFailure, ProcessingReport,
    ProducedFile, SampleStatistics, StepMetrics, StepProfile, StepSummary, StepTotals, StepTuning,
    WorkUnitMetrics,
};
