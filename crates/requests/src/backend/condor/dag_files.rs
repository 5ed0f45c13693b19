//! Renders a planned run as HTCondor's files: its outline, in the types of `windlass-htcondor`.

use super::CondorOptions;
use crate::backend::engine_jobs::{JobSize, RunSubmission, largest_job_size, unit_job_sizes};
use crate::planned_run_units::PlannedRunUnits;
use std::path::Path;
use windlass_htcondor::render::{
    self, DagRenderError, DagUnit, NodeResources, ProgramPaths, RequestDagRun, RoleRetries,
    StorageCredentials, UnitNodeResources,
};
use windlass_htcondor::script_settings::RequestRetrySettings;

/// Landings and cleanups write very little.
const SMALL_JOB_DISK_KB: u64 = 1 << 20;

/// Parameters of a run besides its outline.
#[derive(Debug)]
pub(crate) struct DagFileParameters<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) run: &'a str,
    /// The UUID of the workflow that the run belongs to.
    pub(crate) workflow: &'a str,
    pub(crate) submission: &'a RunSubmission,
    pub(crate) banned_sites: &'a [String],
}

/// All of it.
pub(super) fn write_dag_files(
    parameters: &DagFileParameters<'_>,
    outline: &PlannedRunUnits,
    options: &CondorOptions,
) -> Result<(), DagRenderError> {
    with_dag_run(parameters, outline, options, render::render_run)
}

/// Values that may have changed since it was planned.
pub(super) fn rewrite_dag_files(
    parameters: &DagFileParameters<'_>,
    outline: &PlannedRunUnits,
    options: &CondorOptions,
) -> Result<(), DagRenderError> {
    with_dag_run(parameters, outline, options, render::rewrite_run_files)
}

/// Values for new nodes while DAGMan runs.
pub(super) fn rewrite_submit_files(
    parameters: &DagFileParameters<'_>,
    outline: &PlannedRunUnits,
    options: &CondorOptions,
) -> Result<(), DagRenderError> {
    with_dag_run(parameters, outline, options, render::rewrite_submit_files)
}

fn with_dag_run(
    parameters: &DagFileParameters<'_>,
    outline: &PlannedRunUnits,
    options: &CondorOptions,
    write: impl FnOnce(&RequestDagRun<'_>) -> Result<(), DagRenderError>,
) -> Result<(), DagRenderError> {
    let submission = parameters.submission;
    let size = |size: JobSize, disk_kb: u64| NodeResources {
        cpus: size.cores.max(1),
        memory_mb: size.memory_mb,
        disk_kb,
        runtime_sec: size.runtime_sec,
    };
    let sizes: Vec<NodeResources> = outline.sizes.iter().map(|one| size(*one, outline.disk_kb)).collect();
    let (unit_sizes, size_of_unit) = unit_job_sizes(outline);
    let units = outline.units.iter().zip(size_of_unit);
    let units: Vec<DagUnit> =
        units.map(|(unit, size)| DagUnit { sites: unit.sites, size, nodes: unit.nodes.clone() }).collect();
    let unit_size = |largest: &JobSize| UnitNodeResources {
        landing: size(largest.for_landing(), SMALL_JOB_DISK_KB),
        merge: size(largest.single_core(8), outline.disk_kb),
        cleanup: size(largest.single_core(1), SMALL_JOB_DISK_KB),
    };
    let unit_sizes: Vec<UnitNodeResources> = unit_sizes.iter().map(unit_size).collect();
    let largest = largest_job_size(outline);
    let counts = submission.retries.counts;
    write(&RequestDagRun {
        directory: parameters.directory,
        request: &submission.name,
        run: parameters.run,
        workflow: parameters.workflow,
        programs: ProgramPaths { on_this_host: &options.program, on_workers: options.on_workers.as_deref() },
        site_sets: &outline.sites,
        sizes: &sizes,
        unit_sizes: &unit_sizes,
        units: &units,
        retries: RoleRetries {
            landing: counts.landing,
            processing: counts.processing,
            merge: counts.merge,
            cleanup: counts.cleanup,
        },
        throttles: &submission.throttles,
        retry_policy: retry_settings(submission, largest),
        priority: condor_priority(submission),
        accounting: &options.accounting,
        credentials: StorageCredentials { proxy: options.proxy.as_deref(), token: options.token.as_deref() },
        banned_sites: parameters.banned_sites,
        memory_override_mb: submission.memory_mb,
    })
}

/// Priority among the jobs of HTCondor: higher first, and merges before jobs of new units.
pub(super) fn condor_priority(submission: &RunSubmission) -> i32 {
    i32::try_from(submission.priority).unwrap_or(if submission.priority < 0 { i32::MIN } else { i32::MAX })
}

fn retry_settings(submission: &RunSubmission, largest: JobSize) -> RequestRetrySettings {
    let text = submission.memory_mb.unwrap_or(0).div_ceil(u64::from(largest.cores.max(1)));
    let cool_off_sec = submission.retries.cool_off.as_secs();
    let usual = RequestRetrySettings::default();
    RequestRetrySettings {
        cool_off_sec,
        longest_cool_off_sec: usual.longest_cool_off_sec.max(cool_off_sec),
        max_memory_per_core_mb: submission.max_memory_per_core.max(text),
        ..usual
    }
}
