//! FileBased: a number of files per job. If only a part of a file is selected, the job gets its lumis or
//! events.

use super::{PlanDraft, SplitItem, pack_items};
use crate::round_plan::file_selection::{SelectedFile, wanted_events, wanted_windows};
use crate::round_plan::parameters::PlanParameters;
use crate::round_plan::plan_tables::{FileSlice, SlicePart};
use crate::round_plan::site_sets::SiteSets;

pub(super) fn split_by_files(
    terms: &PlanParameters,
    files: &[SelectedFile<'_>],
    sets: &mut SiteSets,
) -> PlanDraft {
    let items: Vec<SplitItem> = files
        .iter()
        .enumerate()
        .map(|(index, chosen)| SplitItem {
            events: wanted_events(chosen, &terms.selection),
            sites: chosen.sites,
            run: chosen.run,
            attempted: chosen.attempted,
            file: Some(index as u32),
        })
        .collect();
    // One file per job applies to lumis; here `files_per_job` counts.
    let limits = crate::round_plan::parameters::SplitLimits { one_file: false, ..terms.limits };
    let mut draft = PlanDraft::default();
    for (range, sites) in pack_items(&items, &limits, sets) {
        let from = draft.slices.len();
        let attempted = files[range.start].attempted;
        let events = items[range.clone()].iter().map(|item| item.events).sum();
        for index in range {
            push_file(&mut draft, index as u32, &files[index], terms);
        }
        draft.close_job(from, events, sites, attempted, files);
    }
    draft
}

fn push_file(draft: &mut PlanDraft, index: u32, chosen: &SelectedFile<'_>, terms: &PlanParameters) {
    if chosen.is_whole() {
        draft.slices.push(FileSlice { file: index, part: SlicePart::Whole });
    } else if chosen.remaining_events().is_some() {
        let windows = wanted_windows(chosen, &terms.selection).into_iter();
        let part = |(first, last)| FileSlice { file: index, part: SlicePart::Events { first, last } };
        draft.slices.extend(windows.map(part));
    } else {
        let kept = chosen.file.lumis.iter().filter(|lumi| chosen.wants_lumi(lumi, &terms.selection));
        draft.push_lumis(index, kept.map(|lumi| (lumi.run, lumi.lumi)));
    }
}
