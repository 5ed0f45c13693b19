//! LumiBased and EventAwareLumiBased: a lumi is never split. A lumi with events in several files is processed
//! by one job that reads all of them.

use super::{PlanDraft, SplitItem, pack_items};
use crate::round_plan::file_selection::{SelectedFile, lumis_with_events};
use crate::round_plan::parameters::PlanParameters;
use crate::round_plan::problems::{PlanProblemCause, PlanProblems};
use crate::round_plan::site_sets::{SiteSetId, SiteSets};
use std::ops::Range;

/// The part of a lumi in one file.
#[derive(Clone, Copy)]
struct LumiPiece {
    run: u32,
    lumi: u32,
    file: u32,
    events: u64,
}

/// A lumi: its pieces, and the sites that have all of them.
struct SplitLumi {
    pieces: Range<u32>,
    number: u32,
    split_item: SplitItem,
}

pub(super) fn split_by_lumis(
    terms: &PlanParameters,
    files: &[SelectedFile<'_>],
    sets: &mut SiteSets,
    faults: &mut PlanProblems,
) -> PlanDraft {
    let pieces = collect_pieces(terms, files);
    let mut draft = PlanDraft::default();
    let lumis = collect_lumis(&pieces, files, sets, faults, &mut draft);
    if let Some(most) = terms.limits.events_per_lumi {
        report_large_lumis(&lumis, most, faults);
    }

    let items: Vec<SplitItem> = lumis.iter().map(|lumi| lumi.split_item).collect();
    let mut read = Vec::new();
    for (range, sites) in pack_items(&items, &terms.limits, sets) {
        let from = draft.slices.len();
        let attempted = items[range.start].attempted;
        let events = items[range.clone()].iter().map(|item| item.events).sum();
        read.clear();
        for lumi in &lumis[range] {
            read.extend_from_slice(&pieces[lumi.pieces.start as usize..lumi.pieces.end as usize]);
        }
        read.sort_unstable_by_key(|piece| (piece.file, piece.run, piece.lumi));
        for of_file in read.chunk_by(|a, b| a.file == b.file) {
            draft.push_lumis(of_file[0].file, of_file.iter().map(|piece| (piece.run, piece.lumi)));
        }
        draft.close_job(from, events, sites, attempted, files);
    }
    draft
}

/// By run, lumi and file.
fn collect_pieces(terms: &PlanParameters, files: &[SelectedFile<'_>]) -> Vec<LumiPiece> {
    let mut pieces = Vec::with_capacity(files.iter().map(|chosen| chosen.file.lumis.len()).sum());
    for (index, chosen) in files.iter().enumerate() {
        let kept =
            lumis_with_events(chosen.file).filter(|(lumi, _)| chosen.wants_lumi(lumi, &terms.selection));
        pieces.extend(kept.map(|(lumi, events)| LumiPiece {
            run: lumi.run,
            lumi: lumi.lumi,
            file: index as u32,
            events,
        }));
    }
    pieces.sort_unstable_by_key(|piece| (piece.run, piece.lumi, piece.file));
    pieces
}

/// In the order of assignment to jobs.
fn collect_lumis(
    pieces: &[LumiPiece],
    files: &[SelectedFile<'_>],
    sets: &mut SiteSets,
    faults: &mut PlanProblems,
    draft: &mut PlanDraft,
) -> Vec<SplitLumi> {
    let mut lumis = Vec::with_capacity(pieces.len());
    let mut start = 0u32;
    for of_lumi in pieces.chunk_by(|a, b| (a.run, a.lumi) == (b.run, b.lumi)) {
        let LumiPiece { run, lumi, file, .. } = of_lumi[0];
        let end = start + of_lumi.len() as u32;
        match common_sites(of_lumi, files, sets) {
            Some(sites) => {
                let item = SplitItem {
                    events: of_lumi.iter().map(|piece| piece.events).sum(),
                    sites,
                    run,
                    attempted: of_lumi.iter().any(|piece| files[piece.file as usize].attempted),
                    file: (of_lumi.len() == 1).then_some(file),
                };
                lumis.push(SplitLumi { pieces: start..end, number: lumi, split_item: item });
            }
            None => report_no_common_site(of_lumi, files, faults),
        }
        draft.linked_files.extend(of_lumi.windows(2).map(|pair| (pair[0].file, pair[1].file)));
        start = end;
    }
    let places = sets.site_order();
    lumis.sort_unstable_by_key(|SplitLumi { split_item: item, number, .. }| {
        (item.attempted, places[item.sites as usize], item.run, *number)
    });
    lumis
}

fn common_sites(of_lumi: &[LumiPiece], files: &[SelectedFile<'_>], sets: &mut SiteSets) -> Option<SiteSetId> {
    let first = files[of_lumi[0].file as usize].sites;
    of_lumi[1..]
        .iter()
        .try_fold(first, |sites, piece| sets.intersect(sites, files[piece.file as usize].sites))
}

fn report_no_common_site(of_lumi: &[LumiPiece], files: &[SelectedFile<'_>], faults: &mut PlanProblems) {
    let at = || format!("run {} lumi {}", of_lumi[0].run, of_lumi[0].lumi);
    let what = || {
        let names: Vec<&str> =
            of_lumi.iter().map(|piece| files[piece.file as usize].file.lfn.as_str()).collect();
        format!("is in several files, and no allowed site has all of them: {}", names.join(", "))
    };
    let remedy = "replicate them to one site, set `trust_sitelists`, or split by files or events";
    faults.add_data_problem(PlanProblemCause::Sites, at, what, remedy);
}

fn report_large_lumis(lumis: &[SplitLumi], most: u64, faults: &mut PlanProblems) {
    for lumi in lumis.iter().filter(|lumi| lumi.split_item.events > most) {
        let at = || format!("run {} lumi {}", lumi.split_item.run, lumi.number);
        let what =
            || format!("has {} events, more than max_events_per_lumi ({most})", lumi.split_item.events);
        faults.add_data_problem(
            PlanProblemCause::Catalog,
            at,
            what,
            "increase `max_events_per_lumi`, or exclude the lumi in `lumi_mask`",
        );
    }
}
