//! Limits the size of a round. Files are planned as a whole, together with those that share lumis with them:
//! then the result of a file is known when its round is over, and the next round begins with other files. Files
//! that failed before wait until no others are left, and then have separate rounds.

use super::file_selection::SelectedFile;
use super::input::PlanInput;
use super::parameters::PlanParameters;
use super::plan_tables::PlanJobWork;
use super::problems::PlanProblem;
use super::site_sets::SiteSets;
use super::split::{PlanDraft, split_input};
use super::work_units::{PlannedUnit, group_into_units};

pub(super) struct FittedRound<'a> {
    pub(super) files: Vec<SelectedFile<'a>>,
    pub(super) draft: PlanDraft,
    pub(super) units: Vec<PlannedUnit>,
    /// Files left to later rounds.
    pub(super) deferred: u64,
    /// Those that failed before.
    pub(super) deferred_attempted: u64,
}

pub(super) fn fit_round<'a>(
    input: &PlanInput<'_>,
    terms: &PlanParameters,
    mut files: Vec<SelectedFile<'a>>,
    sets: &mut SiteSets,
) -> Result<FittedRound<'a>, Vec<PlanProblem>> {
    let (all, all_attempted) = (files.len(), count_attempted(&files));
    loop {
        let draft = split_input(input, terms, &files, sets)?;
        let units = group_into_units(&draft, sets, terms);
        let mut joined = LinkedFiles::from_draft(&draft, files.len());
        let last_units = last_units(&draft, &units, &mut joined);
        let most = max_units(input, &units);
        let is_limited = most.is_some() || input.until_step.is_some();
        let keep = is_limited.then(|| fresh_files(&files, &mut joined)).flatten();
        let keep = keep.or_else(|| {
            let most = most.filter(|most| units.len() > *most as usize)?;
            Some(files_within(&draft, &last_units, most, &mut joined))
        });
        let keep = keep.or_else(|| first_files(input.until_step?, &last_units, &mut joined));
        // Without these files the rest may be split differently: check again.
        let before = files.len();
        let mut kept = keep.unwrap_or_else(|| vec![true; before]).into_iter();
        files.retain(|_| kept.next() == Some(true));
        if files.len() == before {
            let later_attempted = all_attempted - count_attempted(&files);
            return Ok(FittedRound {
                deferred: (all - before) as u64,
                deferred_attempted: later_attempted,
                files,
                draft,
                units,
            });
        }
    }
}

/// Returns the maximum number of units, at least one. `None`: unlimited.
fn max_units(input: &PlanInput<'_>, units: &[PlannedUnit]) -> Option<u32> {
    let in_jobs = input.max_jobs.map(|most| {
        let is_within = |unit: &&PlannedUnit| u64::from(unit.jobs.end) <= most;
        (units.iter().take_while(is_within).count() as u32).max(1)
    });
    [input.max_units, in_jobs].into_iter().flatten().min()
}

fn count_attempted(files: &[SelectedFile<'_>]) -> u64 {
    files.iter().filter(|chosen| chosen.attempted).count() as u64
}

/// Returns the files not linked to any that failed before; `None` if there are only files of one kind.
fn fresh_files(files: &[SelectedFile<'_>], joined: &mut LinkedFiles) -> Option<Vec<bool>> {
    let mut fresh = vec![true; files.len()];
    for (index, _) in files.iter().enumerate().filter(|(_, chosen)| chosen.attempted) {
        fresh[joined.find_root(index as u32) as usize] = false;
    }
    let keep: Vec<bool> =
        (0..files.len() as u32).map(|file| fresh[joined.find_root(file) as usize]).collect();
    (keep.contains(&true) && keep.contains(&false)).then_some(keep)
}

/// Returns the last unit of each file, including linked files.
fn last_units(draft: &PlanDraft, units: &[PlannedUnit], joined: &mut LinkedFiles) -> Vec<u32> {
    let files = joined.0.len();
    let mut last_unit = vec![0u32; files];
    for (index, unit) in units.iter().enumerate() {
        for job in &draft.jobs[unit.jobs.start as usize..unit.jobs.end as usize] {
            let PlanJobWork::Read { from, to } = job.work else { continue };
            for slice in &draft.slices[from as usize..to as usize] {
                let group = joined.find_root(slice.file) as usize;
                last_unit[group] = last_unit[group].max(index as u32);
            }
        }
    }
    (0..files as u32).map(|file| last_unit[joined.find_root(file) as usize]).collect()
}

/// Returns the files that are in the first units and in no later one; at least those linked to the first file.
fn files_within(draft: &PlanDraft, last_units: &[u32], most: u32, joined: &mut LinkedFiles) -> Vec<bool> {
    let files = joined.0.len();
    let mut keep: Vec<bool> = last_units.iter().map(|unit| *unit < most).collect();
    if !keep.contains(&true) {
        let first = draft.slices.first().map_or(0, |slice| joined.find_root(slice.file));
        keep = (0..files as u32).map(|file| joined.find_root(file) == first).collect();
    }
    keep
}

/// Returns the first `most` files in the order of their units, at least one, with linked files; `None` if that
/// is all.
fn first_files(most: u64, last_units: &[u32], joined: &mut LinkedFiles) -> Option<Vec<bool>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
    let mut in_order: Vec<u32> = (0..last_units.len() as u32).collect();
    in_order.sort_by_key(|file| last_units[*file as usize]);
    let mut first = vec![false; last_units.len()];
    for file in in_order.into_iter().take(most) {
        first[joined.find_root(file) as usize] = true;
    }
    let keep: Vec<bool> =
        (0..last_units.len() as u32).map(|file| first[joined.find_root(file) as usize]).collect();
    keep.contains(&false).then_some(keep)
}

/// Groups of linked files: those that share lumis.
struct LinkedFiles(Vec<u32>);

impl LinkedFiles {
    fn from_draft(draft: &PlanDraft, files: usize) -> Self {
        let mut joined = Self((0..files as u32).collect());
        for &(one, other) in &draft.linked_files {
            joined.link_files(one, other);
        }
        joined
    }

    fn find_root(&mut self, mut file: u32) -> u32 {
        while self.0[file as usize] != file {
            let above = self.0[self.0[file as usize] as usize];
            self.0[file as usize] = above;
            file = above;
        }
        file
    }

    fn link_files(&mut self, one: u32, other: u32) {
        let (one, other) = (self.find_root(one), self.find_root(other));
        self.0[one.max(other) as usize] = one.min(other);
    }
}
