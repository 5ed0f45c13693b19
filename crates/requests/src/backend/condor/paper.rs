//! A planned run as HTCondor's files: what is in its outline, in the words of `windlass-condor`.

use super::CondorOptions;
use crate::backend::jobs::{JobSize, Submission, largest};
use crate::outline::Outline;
use std::path::Path;
use windlass_condor::render::{Credentials, NodeSize, Programs, RenderError, Retries, Run, Unit, render_run};
use windlass_condor::terms::Care;

/// Landings and cleanups write next to nothing.
const LITTLE_KB: u64 = 1 << 20;

/// What is to be written of a run besides its outline.
#[derive(Debug)]
pub(crate) struct Paper<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) run: &'a str,
    pub(crate) submission: &'a Submission,
    pub(crate) priority: i64,
    pub(crate) banned: &'a [String],
}

pub(super) fn write(
    paper: &Paper<'_>,
    outline: &Outline,
    options: &CondorOptions,
) -> Result<(), RenderError> {
    let submission = paper.submission;
    let size = |size: JobSize, disk_kb: u64| NodeSize {
        cpus: size.cores.max(1),
        memory_mb: size.memory_mb,
        disk_kb,
        runtime_sec: size.runtime_sec,
    };
    let sizes: Vec<NodeSize> = outline.sizes.iter().map(|one| size(*one, outline.disk_kb)).collect();
    let units = outline.units.iter().map(|unit| Unit { sites: unit.sites, nodes: unit.nodes.clone() });
    let units: Vec<Unit> = units.collect();
    let largest = largest(outline);
    let counts = submission.retries.counts;
    render_run(&Run {
        directory: paper.directory,
        request: &submission.name,
        run: paper.run,
        programs: Programs { here: &options.program, on_workers: options.on_workers.as_deref() },
        site_sets: &outline.sites,
        sizes: &sizes,
        landing: size(largest.to_land(), LITTLE_KB),
        merge: size(largest.of_one_core(8), outline.disk_kb),
        cleanup: size(largest.of_one_core(1), LITTLE_KB),
        units: &units,
        retries: Retries {
            landing: counts.landing,
            processing: counts.processing,
            merge: counts.merge,
            cleanup: counts.cleanup,
        },
        throttles: &submission.throttles,
        care: care(submission),
        priority: i32::try_from(paper.priority).unwrap_or(i32::MAX),
        accounting: &options.accounting,
        credentials: Credentials { proxy: options.proxy.as_deref(), token: options.token.as_deref() },
        banned: paper.banned,
    })
}

fn care(submission: &Submission) -> Care {
    let cool_off_sec = submission.retries.cool_off.as_secs();
    let usual = Care::default();
    Care {
        cool_off_sec,
        longest_cool_off_sec: usual.longest_cool_off_sec.max(cool_off_sec),
        max_memory_per_core_mb: submission.max_memory_per_core,
        ..usual
    }
}
