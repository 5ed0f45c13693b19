//! FileBased: some files a job. Where only a part of a file is wanted, the job is told which lumis, or which events.

use super::{Draft, Item, pack};
use crate::plan::choose::{ChosenFile, wanted_events, windows};
use crate::plan::sites::SiteSets;
use crate::plan::terms::Terms;
use crate::plan::value::{Part, Slice};

pub(super) fn split(terms: &Terms, files: &[ChosenFile<'_>], sets: &mut SiteSets) -> Draft {
    let items: Vec<Item> = files
        .iter()
        .enumerate()
        .map(|(index, chosen)| Item {
            events: wanted_events(chosen, &terms.selection),
            sites: chosen.sites,
            run: chosen.run,
            attempted: chosen.attempted,
            file: Some(index as u32),
        })
        .collect();
    // One file a job is for lumis; here it is `files_per_job` that counts.
    let limits = crate::plan::terms::Limits { one_file: false, ..terms.limits };
    let mut draft = Draft::default();
    for (range, sites) in pack(&items, &limits, sets) {
        let from = draft.slices.len();
        let attempted = files[range.start].attempted;
        let events = items[range.clone()].iter().map(|item| item.events).sum();
        for index in range {
            push(&mut draft, index as u32, &files[index], terms);
        }
        draft.close(from, events, sites, attempted, files);
    }
    draft
}

fn push(draft: &mut Draft, index: u32, chosen: &ChosenFile<'_>, terms: &Terms) {
    if chosen.is_whole() {
        draft.slices.push(Slice { file: index, part: Part::Whole });
    } else if chosen.left_events().is_some() {
        let windows = windows(chosen, &terms.selection).into_iter();
        let part = |(first, last)| Slice { file: index, part: Part::Events { first, last } };
        draft.slices.extend(windows.map(part));
    } else {
        let kept = chosen.file.lumis.iter().filter(|lumi| chosen.wants(lumi, &terms.selection));
        draft.push_lumis(index, kept.map(|lumi| (lumi.run, lumi.lumi)));
    }
}
