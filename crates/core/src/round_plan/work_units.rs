//! Grouping of jobs into work units and of units into blocks: each filled in order up to an expected output
//! size.

use super::parameters::PlanParameters;
use super::site_sets::{SiteSetId, SiteSets};
use super::split::PlanDraft;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct PlannedUnit {
    pub(super) jobs: Range<u32>,
    /// Sites that can run all of its jobs: a unit runs at one site.
    pub(super) sites: SiteSetId,
    pub(super) output_bytes: u64,
}

/// a unit is closed before its output exceeds the size of merged files, and before it has too many jobs,
/// since one failed job fails the unit.
pub(super) fn group_into_units(
    draft: &PlanDraft,
    sets: &mut SiteSets,
    terms: &PlanParameters,
) -> Vec<PlannedUnit> {
    let (target, most) = (kb_to_bytes(terms.target_merged_kb), terms.max_jobs_per_unit as usize);
    let mut units: Vec<PlannedUnit> = Vec::new();
    for (index, job) in draft.jobs.iter().enumerate() {
        let index = index as u32;
        let output_bytes = terms.estimates.output_bytes(job.events);
        if let Some(unit) = units.last_mut() {
            let with = unit.output_bytes.saturating_add(output_bytes);
            let is_alike = draft.jobs[unit.jobs.start as usize].attempted == job.attempted;
            if with <= target
                && unit.jobs.len() < most
                && is_alike
                && let Some(sites) = sets.intersect(unit.sites, job.sites)
            {
                *unit = PlannedUnit { jobs: unit.jobs.start..index + 1, sites, output_bytes: with };
                continue;
            }
        }
        units.push(PlannedUnit { jobs: index..index + 1, sites: job.sites, output_bytes });
    }
    units
}

/// Returns the number of jobs of this size in a unit, limited only by output size and number.
pub(super) fn jobs_per_unit(events_per_job: u64, terms: &PlanParameters) -> u64 {
    let each = terms.estimates.output_bytes(events_per_job);
    kb_to_bytes(terms.target_merged_kb)
        .checked_div(each)
        .unwrap_or(u64::MAX)
        .clamp(1, u64::from(terms.max_jobs_per_unit))
}

/// consecutive units. Sizes of single datasets are unknown: each is assumed to have an equal share, so
/// all datasets have the same blocks.
pub(super) fn group_into_blocks(
    units: &[PlannedUnit],
    datasets: usize,
    terms: &PlanParameters,
) -> Vec<(Range<u32>, u64)> {
    let target = kb_to_bytes(terms.target_block_kb);
    let mut blocks: Vec<(Range<u32>, u64)> = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let index = index as u32;
        let share = unit.output_bytes / datasets.max(1) as u64;
        match blocks.last_mut() {
            Some((range, size)) if size.saturating_add(share) <= target => {
                range.end = index + 1;
                *size += share;
            }
            _ => blocks.push((index..index + 1, share)),
        }
    }
    blocks
}

const fn kb_to_bytes(kb: u64) -> u64 {
    kb.saturating_mul(1024)
}
