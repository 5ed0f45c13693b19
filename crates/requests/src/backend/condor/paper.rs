//! A planned run as HTCondor's files: what is in its outline, in the words of `windlass-condor`.

use super::CondorOptions;
use crate::backend::jobs::{JobSize, Submission, largest, unit_sizes};
use crate::outline::Outline;
use std::path::Path;
use windlass_condor::render::{
    self, Credentials, NodeSize, Programs, RenderError, Retries, Run, Unit, UnitSize,
};
use windlass_condor::terms::Care;

/// Landings and cleanups write next to nothing.
const LITTLE_KB: u64 = 1 << 20;

/// What is to be written of a run besides its outline.
#[derive(Debug)]
pub(crate) struct Paper<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) run: &'a str,
    /// The UUID of the workflow that the run belongs to.
    pub(crate) workflow: &'a str,
    pub(crate) submission: &'a Submission,
    pub(crate) banned: &'a [String],
}

/// All of it.
pub(super) fn write(
    paper: &Paper<'_>,
    outline: &Outline,
    options: &CondorOptions,
) -> Result<(), RenderError> {
    with_run(paper, outline, options, render::render_run)
}

/// What may have changed since it was planned.
pub(super) fn renew(
    paper: &Paper<'_>,
    outline: &Outline,
    options: &CondorOptions,
) -> Result<(), RenderError> {
    with_run(paper, outline, options, render::renew)
}

/// What new nodes are submitted with while DAGMan works.
pub(super) fn renew_submit_files(
    paper: &Paper<'_>,
    outline: &Outline,
    options: &CondorOptions,
) -> Result<(), RenderError> {
    with_run(paper, outline, options, render::renew_submit_files)
}

fn with_run(
    paper: &Paper<'_>,
    outline: &Outline,
    options: &CondorOptions,
    write: impl FnOnce(&Run<'_>) -> Result<(), RenderError>,
) -> Result<(), RenderError> {
    let submission = paper.submission;
    let size = |size: JobSize, disk_kb: u64| NodeSize {
        cpus: size.cores.max(1),
        memory_mb: size.memory_mb,
        disk_kb,
        runtime_sec: size.runtime_sec,
    };
    let sizes: Vec<NodeSize> = outline.sizes.iter().map(|one| size(*one, outline.disk_kb)).collect();
    let (unit_sizes, size_of_unit) = unit_sizes(outline);
    let units = outline.units.iter().zip(size_of_unit);
    let units: Vec<Unit> =
        units.map(|(unit, size)| Unit { sites: unit.sites, size, nodes: unit.nodes.clone() }).collect();
    let unit_size = |largest: &JobSize| UnitSize {
        landing: size(largest.to_land(), LITTLE_KB),
        merge: size(largest.of_one_core(8), outline.disk_kb),
        cleanup: size(largest.of_one_core(1), LITTLE_KB),
    };
    let unit_sizes: Vec<UnitSize> = unit_sizes.iter().map(unit_size).collect();
    let largest = largest(outline);
    let counts = submission.retries.counts;
    write(&Run {
        directory: paper.directory,
        request: &submission.name,
        run: paper.run,
        workflow: paper.workflow,
        programs: Programs { here: &options.program, on_workers: options.on_workers.as_deref() },
        site_sets: &outline.sites,
        sizes: &sizes,
        unit_sizes: &unit_sizes,
        units: &units,
        retries: Retries {
            landing: counts.landing,
            processing: counts.processing,
            merge: counts.merge,
            cleanup: counts.cleanup,
        },
        throttles: &submission.throttles,
        care: care(submission, largest),
        priority: priority(submission),
        accounting: &options.accounting,
        credentials: Credentials { proxy: options.proxy.as_deref(), token: options.token.as_deref() },
        banned: paper.banned,
        memory_mb: submission.memory_mb,
    })
}

/// Among the jobs of HTCondor. Higher goes first, and merges go before what has just begun.
pub(super) fn priority(submission: &Submission) -> i32 {
    i32::try_from(submission.priority).unwrap_or(if submission.priority < 0 { i32::MIN } else { i32::MAX })
}

fn care(submission: &Submission, largest: JobSize) -> Care {
    let said = submission.memory_mb.unwrap_or(0).div_ceil(u64::from(largest.cores.max(1)));
    let cool_off_sec = submission.retries.cool_off.as_secs();
    let usual = Care::default();
    Care {
        cool_off_sec,
        longest_cool_off_sec: usual.longest_cool_off_sec.max(cool_off_sec),
        max_memory_per_core_mb: submission.max_memory_per_core.max(said),
        ..usual
    }
}
