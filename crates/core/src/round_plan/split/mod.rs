//! Splitting: splitters, and packing of indivisible items into jobs.
//!
//! | splitter | indivisible | a job is full with |
//! |---|---|---|
//! | FileBased | a file | `files_per_job` |
//! | EventBased | an event; jobs continue from one file to the next | `events_per_job` |
//! | LumiBased | a lumi, with all files that contain a part of it | `lumis_per_job` |
//! | EventAwareLumiBased | the same | events as close to `events_per_job` as possible |
//!
//! All of them begin a new job if no site has both the job's input and the next item, where files begin that
//! failed before, and at the border of a run that fills whole jobs.

mod events;
mod files;
mod generation;
mod lumis;

pub(super) use generation::generate_jobs;

use super::file_selection::SelectedFile;
use super::input::PlanInput;
use super::parameters::{PlanParameters, SplitLimits};
use super::plan_tables::{FileSlice, GeneratedRange, LumiRange, PlanJobWork, SlicePart};
use super::problems::{PlanProblem, PlanProblems};
use super::site_sets::{SiteSetId, SiteSets};
use std::ops::Range;
use windlass_types::requests::SplittingAlgo;

/// Processing jobs in order. Files are indices into the selected ones.
#[derive(Debug, Default)]
pub(super) struct PlanDraft {
    pub(super) jobs: Vec<DraftJob>,
    pub(super) slices: Vec<FileSlice>,
    pub(super) ranges: Vec<LumiRange>,
    /// Pairs of files that share a lumi, and so belong to the same round.
    pub(super) linked_files: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DraftJob {
    pub(super) work: PlanJobWork,
    pub(super) events: u64,
    pub(super) sites: SiteSetId,
    pub(super) input_bytes: u64,
    pub(super) attempted: bool,
}

impl PlanDraft {
    pub(super) fn push_generated(&mut self, made: GeneratedRange, sites: SiteSetId) {
        let events = made.last_event - made.first_event + 1;
        let work = PlanJobWork::Generate(made);
        self.jobs.push(DraftJob { work, events, sites, input_bytes: 0, attempted: false });
    }

    /// Adds a job that reads the slices from this one on.
    fn close_job(
        &mut self,
        from: usize,
        events: u64,
        sites: SiteSetId,
        attempted: bool,
        files: &[SelectedFile<'_>],
    ) {
        let slices = &self.slices[from..];
        // Slices of one file are adjacent.
        let mut before = None;
        let mut input_bytes = 0u64;
        for slice in slices {
            if before.replace(slice.file) != Some(slice.file) {
                input_bytes = input_bytes.saturating_add(files[slice.file as usize].file.size);
            }
        }
        let work = PlanJobWork::Read { from: from as u32, to: self.slices.len() as u32 };
        self.jobs.push(DraftJob { work, events, sites, input_bytes, attempted });
    }

    /// Adds the lumis of one file, ascending.
    fn push_lumis(&mut self, file: u32, lumis: impl Iterator<Item = (u32, u32)>) {
        let from = self.ranges.len();
        for (run, lumi) in lumis {
            match self.ranges[from..].last_mut() {
                Some(range) if range.run == run && range.last.checked_add(1) == Some(lumi) => {
                    range.last = lumi;
                }
                _ => self.ranges.push(LumiRange { run, first: lumi, last: lumi }),
            }
        }
        let part = SlicePart::Lumis { from: from as u32, to: self.ranges.len() as u32 };
        self.slices.push(FileSlice { file, part });
    }
}

pub(super) fn split_input(
    input: &PlanInput<'_>,
    terms: &PlanParameters,
    files: &[SelectedFile<'_>],
    sets: &mut SiteSets,
) -> Result<PlanDraft, Vec<PlanProblem>> {
    let mut faults = PlanProblems::default();
    let draft = match input.request.splitting_algo {
        SplittingAlgo::FileBased => files::split_by_files(terms, files, sets),
        SplittingAlgo::EventBased => events::split_by_events(terms, files, sets, input.settings.max_nodes),
        SplittingAlgo::LumiBased | SplittingAlgo::EventAwareLumiBased => {
            lumis::split_by_lumis(terms, files, sets, &mut faults)
        }
    };
    if draft.jobs.len() > input.settings.max_nodes as usize {
        report_too_many_jobs(input, &mut faults);
    }
    faults.into_result()?;
    Ok(draft)
}

fn report_too_many_jobs(input: &PlanInput<'_>, faults: &mut PlanProblems) {
    let field = match input.request.splitting_algo {
        SplittingAlgo::FileBased => "splitting_params.files_per_job",
        SplittingAlgo::LumiBased => "splitting_params.lumis_per_job",
        SplittingAlgo::EventBased | SplittingAlgo::EventAwareLumiBased => "splitting_params.events_per_job",
    };
    let what = format!("makes more than {} jobs", input.settings.max_nodes);
    faults.add_request_problem(field, what, "use larger jobs (`time_per_job` also limits them)");
}

/// An indivisible item of a job.
#[derive(Clone, Copy, Debug)]
struct SplitItem {
    events: u64,
    sites: SiteSetId,
    run: u32,
    attempted: bool,
    /// The only file that contains it.
    file: Option<u32>,
}

/// Finds where a job has to end: between the previous item and this one. Runs that fill whole jobs share none
/// with others; smaller ones are combined with adjacent ones.
fn find_borders(items: &[SplitItem], limits: &SplitLimits) -> Vec<bool> {
    let mut borders = vec![false; items.len()];
    let mut was_full = false;
    let mut start = 0;
    for stretch in items.chunk_by(|a, b| a.run == b.run && a.attempted == b.attempted) {
        let events = stretch.iter().fold(0u64, |sum, item| sum.saturating_add(item.events));
        let is_full = limits.is_full(stretch.len() as u64, events);
        let is_again = start > 0 && items[start - 1].attempted != items[start].attempted;
        borders[start] = start > 0 && (is_full || was_full || is_again);
        was_full = is_full;
        start += stretch.len();
    }
    borders
}

/// Packs items, in their order, into jobs with the sites that have all of them.
fn pack_items(
    items: &[SplitItem],
    limits: &SplitLimits,
    sets: &mut SiteSets,
) -> Vec<(Range<usize>, SiteSetId)> {
    let borders = find_borders(items, limits);
    let mut jobs = Vec::new();
    let Some(first) = items.first() else { return jobs };
    let (mut from, mut sites, mut events) = (0, first.sites, first.events);
    for (index, item) in items.iter().enumerate().skip(1) {
        let count = (index - from) as u64;
        let is_over = borders[index]
            || count >= limits.count
            || is_full_enough(events, item.events, limits)
            || limits.one_file && (item.file.is_none() || item.file != items[from].file);
        match sets.intersect(sites, item.sites) {
            Some(meet) if !is_over => {
                sites = meet;
                events = events.saturating_add(item.events);
            }
            _ => {
                jobs.push((from..index, sites));
                (from, sites, events) = (index, item.sites, item.events);
            }
        }
    }
    jobs.push((from..items.len(), sites));
    jobs
}

/// Whether a job with this number of events should end before the next item.
fn is_full_enough(events: u64, next: u64, limits: &SplitLimits) -> bool {
    let with = events.saturating_add(next);
    if limits.events_in_time.is_some_and(|most| with > most) {
        return true;
    }
    // As close to the target as possible: above it only if that is closer than below.
    limits
        .events
        .is_some_and(|target| with > target && (events >= target || with - target >= target - events))
}
