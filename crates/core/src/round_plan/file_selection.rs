//! Selection of files and lumis to process, their sites, and their order.

use super::input::PlanInput;
use super::parameters::PlanParameters;
use super::problems::{PlanProblemCause, PlanProblems};
use super::site_sets::{SiteSetId, SiteSets};
use std::collections::BTreeSet;
use windlass_types::LumiMask;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::{FileRemainder, SplittingAlgo, SplittingParams};

pub(super) struct SelectedFiles<'a> {
    /// In processing order: earlier failures last; files at the same sites are adjacent, and among them those
    /// of the same run.
    pub(super) files: Vec<SelectedFile<'a>>,
    /// LFNs of files without selected events, ascending.
    pub(super) nothing_to_do: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SelectedFile<'a> {
    pub(super) file: &'a CatalogFile,
    pub(super) sites: SiteSetId,
    pub(super) attempted: bool,
    /// The first selected run of it; 0 if unknown.
    pub(super) run: u32,
    /// Whether all of its lumis are selected and unprocessed.
    pub(super) all_lumis: bool,
    /// What earlier rounds left of it; `None`: everything.
    pub(super) remaining: Option<&'a FileRemainder>,
}

impl SelectedFile<'_> {
    /// Whether all of it is to be processed.
    pub(super) fn is_whole(&self) -> bool {
        self.all_lumis && self.remaining_events().is_none()
    }

    /// Returns the remaining event positions, if known as such.
    pub(super) fn remaining_events(&self) -> Option<&[(u64, u64)]> {
        match self.remaining {
            Some(FileRemainder::Events(ranges)) => Some(ranges),
            Some(FileRemainder::Lumis(_)) | None => None,
        }
    }

    /// Whether this lumi, or part of it, is to be processed.
    pub(super) fn wants_lumi(&self, lumi: &FileLumi, selection: &LumiSelection) -> bool {
        self.all_lumis
            || selection.includes_lumi(lumi.run, lumi.lumi)
                && self.remaining.is_none_or(|left| has_remaining_part(left, lumi))
    }
}

fn has_remaining_part(left: &FileRemainder, lumi: &FileLumi) -> bool {
    match left {
        FileRemainder::Lumis(mask) => mask.contains(lumi.run.into(), lumi.lumi.into()),
        // Only event counts show where a lumi begins and ends: see `wanted_windows`.
        FileRemainder::Events(_) => true,
    }
}

/// The selected lumis: run lists, and the mask.
#[derive(Debug)]
pub(super) struct LumiSelection {
    run_whitelist: BTreeSet<u32>,
    run_blacklist: BTreeSet<u32>,
    mask: Option<LumiMask>,
}

impl LumiSelection {
    pub(super) fn from_params(params: &SplittingParams, faults: &mut PlanProblems) -> Self {
        let run_whitelist: BTreeSet<u32> = params.run_whitelist.iter().copied().collect();
        let run_blacklist: BTreeSet<u32> = params.run_blacklist.iter().copied().collect();
        if let Some(run) = run_whitelist.intersection(&run_blacklist).next() {
            let what = format!("run {run} is also in `run_whitelist`");
            faults.add_request_problem("splitting_params.run_blacklist", what, "leave it out of one of them");
        }
        let ranges = params.lumi_mask.iter().flatten();
        let wrong = ranges.flat_map(|(run, ranges)| ranges.iter().map(move |range| (run, range)));
        for (run, (first, last)) in wrong.filter(|(_, (first, last))| first > last) {
            let what = format!("in run {run} the end of the range [{first}, {last}] is before its start");
            faults.add_request_problem("splitting_params.lumi_mask", what, "write the smaller number first");
        }
        Self { run_whitelist, run_blacklist, mask: params.lumi_mask.clone().map(LumiMask::normalized) }
    }

    pub(super) fn is_all(&self) -> bool {
        self.run_whitelist.is_empty() && self.run_blacklist.is_empty() && self.mask.is_none()
    }

    pub(super) fn includes_lumi(&self, run: u32, lumi: u32) -> bool {
        (self.run_whitelist.is_empty() || self.run_whitelist.contains(&run))
            && !self.run_blacklist.contains(&run)
            && self.mask.as_ref().is_none_or(|mask| mask.contains(run.into(), lumi.into()))
    }
}

pub(super) fn select_files<'a>(
    input: &PlanInput<'a>,
    terms: &PlanParameters,
    sets: &mut SiteSets,
    faults: &mut PlanProblems,
) -> SelectedFiles<'a> {
    let mut by_name: Vec<&CatalogFile> = input.files.iter().collect();
    by_name.sort_unstable_by(|a, b| a.lfn.cmp(&b.lfn));
    for pair in by_name.windows(2).filter(|pair| pair[0].lfn == pair[1].lfn) {
        let what = || "is listed twice".to_owned();
        faults.add_data_problem(
            PlanProblemCause::Catalog,
            || pair[0].lfn.clone(),
            what,
            "its events would be processed twice: remove one",
        );
    }

    let mut files = Vec::with_capacity(by_name.len());
    let mut nothing_to_do = Vec::new();
    for file in by_name {
        match check_file(file, input, terms, sets, faults) {
            FileCheck::Wanted(chosen) => files.push(chosen),
            FileCheck::Unwanted => nothing_to_do.push(file.lfn.clone()),
            FileCheck::Faulty => {}
        }
    }
    if files.is_empty() && nothing_to_do.len() == input.files.len() {
        let what = format!("of {} files, nothing is left to process", input.files.len());
        let remedy =
            "check `run_whitelist`, `run_blacklist` and `lumi_mask`, and the numbers of events of the files";
        faults.add_nothing_to_do("splitting_params", what, remedy);
    }
    let places = sets.site_order();
    files.sort_by_key(|chosen| (chosen.attempted, places[chosen.sites as usize], chosen.run));
    SelectedFiles { files, nothing_to_do }
}

enum FileCheck<'a> {
    Wanted(SelectedFile<'a>),
    Unwanted,
    Faulty,
}

fn check_file<'a>(
    file: &'a CatalogFile,
    input: &PlanInput<'a>,
    terms: &PlanParameters,
    sets: &mut SiteSets,
    faults: &mut PlanProblems,
) -> FileCheck<'a> {
    let algo = input.request.splitting_algo;
    let left = input.remaining.get(&file.lfn);
    if let Some((what, remedy)) = missing_description(file, algo, &terms.selection, left) {
        faults.add_data_problem(PlanProblemCause::Catalog, || file.lfn.clone(), || what.to_owned(), remedy);
        return FileCheck::Faulty;
    }
    let attempted = input.attempted.contains(&file.lfn);
    let mut chosen = SelectedFile { file, sites: 0, attempted, run: 0, all_lumis: false, remaining: left };
    let mut kept = file.lumis.iter().filter(|lumi| chosen.wants_lumi(lumi, &terms.selection));
    let first = kept.next();
    let by_lumis = matches!(left, Some(FileRemainder::Lumis(_))) || !terms.selection.is_all();
    let all_lumis = !by_lumis || first.is_some() && kept.count() + 1 == file.lumis.len();
    if !all_lumis && first.is_none() {
        return FileCheck::Unwanted;
    }
    chosen.all_lumis = all_lumis;
    chosen.run = first.map_or(0, |lumi| lumi.run);
    let by_position = algo == SplittingAlgo::EventBased || chosen.remaining_events().is_some();
    if by_position && !all_lumis && !counts_add_up(file) {
        let what = "only some of its lumis are selected, and the catalog has no event counts of its lumis";
        let remedy =
            "add the events of each lumi (their sum must equal those of the file), or split by lumis";
        faults.add_data_problem(PlanProblemCause::Catalog, || file.lfn.clone(), || what.to_owned(), remedy);
        return FileCheck::Faulty;
    }
    if by_position && wanted_events(&chosen, &terms.selection) == 0 {
        return FileCheck::Unwanted;
    }
    let Some(sites) = allowed_sites(file, input.request.trust_sitelists, terms, sets) else {
        let remedy = "replicate it to an allowed site, or set `trust_sitelists` to read it remotely";
        faults.add_data_problem(
            PlanProblemCause::Sites,
            || file.lfn.clone(),
            || file_location_text(file),
            remedy,
        );
        return FileCheck::Faulty;
    };
    FileCheck::Wanted(SelectedFile { sites, ..chosen })
}

/// Returns what is missing in the catalog entry of a file, and a remedy.
fn missing_description(
    file: &CatalogFile,
    algo: SplittingAlgo,
    selection: &LumiSelection,
    left: Option<&FileRemainder>,
) -> Option<(&'static str, &'static str)> {
    let by_lumis = matches!(algo, SplittingAlgo::LumiBased | SplittingAlgo::EventAwareLumiBased);
    if by_lumis && matches!(left, Some(FileRemainder::Events(_))) {
        return Some((
            "only event positions are known of its remaining part, but it is to be split by lumis",
            "process it with another request that splits by events",
        ));
    }
    let asks_for_lumis = by_lumis || !selection.is_all() || matches!(left, Some(FileRemainder::Lumis(_)));
    if file.lumis.is_empty() && asks_for_lumis {
        return Some((
            "the catalog has no lumis for it",
            "add its lumis to the catalog, or split by files or events, without run lists and mask",
        ));
    }
    if !file.lumis.is_sorted_by(|a, b| (a.run, a.lumi) < (b.run, b.lumi)) {
        return Some((
            "its lumis are not in order, or one is listed twice",
            "list each lumi once, in ascending order of run and lumi",
        ));
    }
    None
}

fn file_location_text(file: &CatalogFile) -> String {
    if file.replicas.is_empty() {
        return "is at no site".to_owned();
    }
    let places: Vec<_> = file.replicas.keys().map(String::as_str).collect();
    format!("is at {}, none of which is allowed", places.join(", "))
}

/// Returns the allowed sites that have the file. All allowed sites if the request trusts its lists, as in
/// ReqMgr2.
fn allowed_sites(
    file: &CatalogFile,
    trusts: bool,
    terms: &PlanParameters,
    sets: &mut SiteSets,
) -> Option<SiteSetId> {
    let all = 0..terms.sites.len() as u32;
    let places: Vec<u32> = if trusts {
        all.collect()
    } else {
        // Both are in ascending order of name.
        let mut index =
            file.replicas.keys().filter_map(|site| terms.sites.binary_search(site).ok()).peekable();
        index.peek()?;
        index.map(|site| site as u32).collect()
    };
    Some(sets.intern(places))
}

fn counts_add_up(file: &CatalogFile) -> bool {
    let known: Option<u64> = file.lumis.iter().map(|lumi| lumi.events.map(u64::from)).sum();
    known == Some(file.events)
}

/// Returns the lumis of a file with their events. Without event counts, the remaining events are distributed
/// evenly: an estimate with the correct sum.
pub(super) fn lumis_with_events(file: &CatalogFile) -> impl Iterator<Item = (FileLumi, u64)> {
    let known: u64 = file.lumis.iter().filter_map(|lumi| lumi.events).map(u64::from).sum();
    let unknown = file.lumis.iter().filter(|lumi| lumi.events.is_none()).count() as u128;
    let spread = u128::from(file.events.saturating_sub(known));
    let mut before = 0u128;
    file.lumis.iter().map(move |lumi| {
        let events = lumi.events.map_or_else(
            || {
                let share = (before + 1) * spread / unknown - before * spread / unknown;
                before += 1;
                share as u64
            },
            u64::from,
        );
        (*lumi, events)
    })
}

/// Returns the number of selected events of a file.
pub(super) fn wanted_events(chosen: &SelectedFile<'_>, selection: &LumiSelection) -> u64 {
    if chosen.is_whole() {
        return chosen.file.events;
    }
    if chosen.remaining_events().is_some() {
        return wanted_windows(chosen, selection).iter().map(|(first, last)| last - first + 1).sum();
    }
    let lumis = lumis_with_events(chosen.file);
    lumis.filter(|(lumi, _)| chosen.wants_lumi(lumi, selection)).map(|(_, events)| events).sum()
}

/// Returns the positions of the selected events, from 1, inclusive, ascending.
pub(super) fn wanted_windows(chosen: &SelectedFile<'_>, selection: &LumiSelection) -> Vec<(u64, u64)> {
    let wanted = match (chosen.all_lumis, chosen.file.events) {
        (true, 0) => Vec::new(),
        (true, events) => vec![(1, events)],
        (false, _) => windows_by_lumi(chosen, selection),
    };
    match chosen.remaining_events() {
        Some(left) => intersect_ranges(&wanted, left),
        None => wanted,
    }
}

/// Uses the event counts of the lumis, which are known here.
fn windows_by_lumi(chosen: &SelectedFile<'_>, selection: &LumiSelection) -> Vec<(u64, u64)> {
    let mut windows: Vec<(u64, u64)> = Vec::new();
    let mut before = 0;
    for lumi in &chosen.file.lumis {
        let last = before + lumi.events.map_or(0, u64::from);
        if last > before && chosen.wants_lumi(lumi, selection) {
            match windows.last_mut() {
                Some(window) if window.1 == before => window.1 = last,
                _ => windows.push((before + 1, last)),
            }
        }
        before = last;
    }
    windows
}

/// Intersects two lists of ranges, each ascending and without overlap.
fn intersect_ranges(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut common = Vec::new();
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(&&(a, b)), Some(&&(c, d))) = (one.peek(), other.peek()) {
        if a.max(c) <= b.min(d) {
            common.push((a.max(c), b.min(d)));
        }
        // The range that ends first cannot overlap later ones of the other list.
        if b <= d {
            one.next();
        } else {
            other.next();
        }
    }
    common
}
