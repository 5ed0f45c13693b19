//! Which files and lumis are to be processed, where they are, and in what order they are cut.

use super::fault::{Cause, Faults};
use super::input::PlanInput;
use super::sites::{SetId, SiteSets};
use super::terms::Terms;
use std::collections::BTreeSet;
use windlass_types::LumiMask;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::{Left, SplittingAlgo, SplittingParams};

pub(super) struct Chosen<'a> {
    /// In the order in which they are cut: what failed before comes last; files at the same sites are neighbours, and
    /// among them those of the same run.
    pub(super) files: Vec<ChosenFile<'a>>,
    /// LFNs of files of which nothing is wanted, ascending.
    pub(super) nothing_to_do: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ChosenFile<'a> {
    pub(super) file: &'a CatalogFile,
    pub(super) sites: SetId,
    pub(super) attempted: bool,
    /// The first one that is wanted of it; 0 if the catalog does not say.
    pub(super) run: u32,
    /// None of its lumis is unwanted or done.
    pub(super) all_lumis: bool,
    /// What earlier rounds have left of it; `None`: all.
    pub(super) left: Option<&'a Left>,
}

impl ChosenFile<'_> {
    /// All that is in it is to be processed.
    pub(super) fn is_whole(&self) -> bool {
        self.all_lumis && self.left_events().is_none()
    }

    /// What is left of it, where that is known by the positions of events.
    pub(super) fn left_events(&self) -> Option<&[(u64, u64)]> {
        match self.left {
            Some(Left::Events(ranges)) => Some(ranges),
            Some(Left::Lumis(_)) | None => None,
        }
    }

    /// Whether this one of its lumis is to be processed, or some of it.
    pub(super) fn wants(&self, lumi: &FileLumi, selection: &Selection) -> bool {
        self.all_lumis
            || selection.keeps(lumi.run, lumi.lumi) && self.left.is_none_or(|left| has_some_of(left, lumi))
    }
}

fn has_some_of(left: &Left, lumi: &FileLumi) -> bool {
    match left {
        Left::Lumis(mask) => mask.contains(lumi.run.into(), lumi.lumi.into()),
        // Where a lumi begins and ends only its events tell: see `windows`.
        Left::Events(_) => true,
    }
}

/// Which lumis are wanted: lists of runs, and the mask.
#[derive(Debug)]
pub(super) struct Selection {
    white: BTreeSet<u32>,
    black: BTreeSet<u32>,
    mask: Option<LumiMask>,
}

impl Selection {
    pub(super) fn of(params: &SplittingParams, faults: &mut Faults) -> Self {
        let white: BTreeSet<u32> = params.run_whitelist.iter().copied().collect();
        let black: BTreeSet<u32> = params.run_blacklist.iter().copied().collect();
        if let Some(run) = white.intersection(&black).next() {
            let what = format!("run {run} is in `run_whitelist` too");
            faults.request("splitting_params.run_blacklist", what, "leave it out of one of them");
        }
        let ranges = params.lumi_mask.iter().flatten();
        let wrong = ranges.flat_map(|(run, ranges)| ranges.iter().map(move |range| (run, range)));
        for (run, (first, last)) in wrong.filter(|(_, (first, last))| first > last) {
            let what = format!("in run {run} the range [{first}, {last}] ends before it begins");
            faults.request("splitting_params.lumi_mask", what, "write the smaller number first");
        }
        Self { white, black, mask: params.lumi_mask.clone().map(LumiMask::normalized) }
    }

    pub(super) fn is_all(&self) -> bool {
        self.white.is_empty() && self.black.is_empty() && self.mask.is_none()
    }

    pub(super) fn keeps(&self, run: u32, lumi: u32) -> bool {
        (self.white.is_empty() || self.white.contains(&run))
            && !self.black.contains(&run)
            && self.mask.as_ref().is_none_or(|mask| mask.contains(run.into(), lumi.into()))
    }
}

pub(super) fn choose<'a>(
    input: &PlanInput<'a>,
    terms: &Terms,
    sets: &mut SiteSets,
    faults: &mut Faults,
) -> Chosen<'a> {
    let mut by_name: Vec<&CatalogFile> = input.files.iter().collect();
    by_name.sort_unstable_by(|a, b| a.lfn.cmp(&b.lfn));
    for pair in by_name.windows(2).filter(|pair| pair[0].lfn == pair[1].lfn) {
        let what = || "is there twice".to_owned();
        faults.data(
            Cause::Catalog,
            || pair[0].lfn.clone(),
            what,
            "its events would be processed twice: remove one",
        );
    }

    let mut files = Vec::with_capacity(by_name.len());
    let mut nothing_to_do = Vec::new();
    for file in by_name {
        match look_at(file, input, terms, sets, faults) {
            Look::Wanted(chosen) => files.push(chosen),
            Look::Unwanted => nothing_to_do.push(file.lfn.clone()),
            Look::Faulty => {}
        }
    }
    if files.is_empty() && nothing_to_do.len() == input.files.len() {
        let what = format!("of {} files nothing is left to process", input.files.len());
        let remedy =
            "look at `run_whitelist`, `run_blacklist` and `lumi_mask`, and at the events of the files";
        faults.nothing("splitting_params", what, remedy);
    }
    let places = sets.places();
    files.sort_by_key(|chosen| (chosen.attempted, places[chosen.sites as usize], chosen.run));
    Chosen { files, nothing_to_do }
}

enum Look<'a> {
    Wanted(ChosenFile<'a>),
    Unwanted,
    Faulty,
}

fn look_at<'a>(
    file: &'a CatalogFile,
    input: &PlanInput<'a>,
    terms: &Terms,
    sets: &mut SiteSets,
    faults: &mut Faults,
) -> Look<'a> {
    let algo = input.request.splitting_algo;
    let left = input.left.get(&file.lfn);
    if let Some((what, remedy)) = ill_described(file, algo, &terms.selection, left) {
        faults.data(Cause::Catalog, || file.lfn.clone(), || what.to_owned(), remedy);
        return Look::Faulty;
    }
    let attempted = input.attempted.contains(&file.lfn);
    let mut chosen = ChosenFile { file, sites: 0, attempted, run: 0, all_lumis: false, left };
    let mut kept = file.lumis.iter().filter(|lumi| chosen.wants(lumi, &terms.selection));
    let first = kept.next();
    let by_lumis = matches!(left, Some(Left::Lumis(_))) || !terms.selection.is_all();
    let all_lumis = !by_lumis || first.is_some() && kept.count() + 1 == file.lumis.len();
    if !all_lumis && first.is_none() {
        return Look::Unwanted;
    }
    chosen.all_lumis = all_lumis;
    chosen.run = first.map_or(0, |lumi| lumi.run);
    let by_position = algo == SplittingAlgo::EventBased || chosen.left_events().is_some();
    if by_position && !all_lumis && !counts_add_up(file) {
        let what = "only some of its lumis are wanted, and the catalog does not say how many events each of them has";
        let remedy = "give the events of each lumi (they add up to those of the file), or split by lumis";
        faults.data(Cause::Catalog, || file.lfn.clone(), || what.to_owned(), remedy);
        return Look::Faulty;
    }
    if by_position && wanted_events(&chosen, &terms.selection) == 0 {
        return Look::Unwanted;
    }
    let Some(sites) = places_of(file, input.request.trust_sitelists, terms, sets) else {
        let remedy = "replicate it to an allowed site, or set `trust_sitelists` to have it read from afar";
        faults.data(Cause::Sites, || file.lfn.clone(), || whereabouts(file), remedy);
        return Look::Faulty;
    };
    Look::Wanted(ChosenFile { sites, ..chosen })
}

/// What is missing of a file's description, and what can be done.
fn ill_described(
    file: &CatalogFile,
    algo: SplittingAlgo,
    selection: &Selection,
    left: Option<&Left>,
) -> Option<(&'static str, &'static str)> {
    let by_lumis = matches!(algo, SplittingAlgo::LumiBased | SplittingAlgo::EventAwareLumiBased);
    if by_lumis && matches!(left, Some(Left::Events(_))) {
        return Some((
            "of what is left of it only the positions of events are known, and it is to be cut by lumis",
            "process it with another request that cuts by events",
        ));
    }
    let asks_for_lumis = by_lumis || !selection.is_all() || matches!(left, Some(Left::Lumis(_)));
    if file.lumis.is_empty() && asks_for_lumis {
        return Some((
            "the catalog does not say which lumis are in it",
            "add its lumis to the catalog, or split by files or events, without lists of runs and mask",
        ));
    }
    if !file.lumis.is_sorted_by(|a, b| (a.run, a.lumi) < (b.run, b.lumi)) {
        return Some((
            "its lumis are not in order, or one is there twice",
            "list each lumi once, ascending by run and lumi",
        ));
    }
    None
}

fn whereabouts(file: &CatalogFile) -> String {
    if file.replicas.is_empty() {
        return "is at no site".to_owned();
    }
    let places: Vec<_> = file.replicas.keys().map(String::as_str).collect();
    format!("is at {}, none of which may be used", places.join(", "))
}

/// The allowed sites that have the file. All allowed ones where the request trusts its lists, as in ReqMgr2.
fn places_of(file: &CatalogFile, trusts: bool, terms: &Terms, sets: &mut SiteSets) -> Option<SetId> {
    let all = 0..terms.sites.len() as u32;
    let places: Vec<u32> = if trusts {
        all.collect()
    } else {
        // Both ascend by name.
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

/// The lumis of a file with their events. Where the catalog does not say, what is left of the file's events is taken
/// to be spread evenly: an estimate that adds up.
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

/// Of a file, the events that are wanted.
pub(super) fn wanted_events(chosen: &ChosenFile<'_>, selection: &Selection) -> u64 {
    if chosen.is_whole() {
        return chosen.file.events;
    }
    if chosen.left_events().is_some() {
        return windows(chosen, selection).iter().map(|(first, last)| last - first + 1).sum();
    }
    let lumis = lumis_with_events(chosen.file);
    lumis.filter(|(lumi, _)| chosen.wants(lumi, selection)).map(|(_, events)| events).sum()
}

/// Positions of the events that are wanted, from 1, both ends included, ascending.
pub(super) fn windows(chosen: &ChosenFile<'_>, selection: &Selection) -> Vec<(u64, u64)> {
    let wanted = match (chosen.all_lumis, chosen.file.events) {
        (true, 0) => Vec::new(),
        (true, events) => vec![(1, events)],
        (false, _) => kept_windows(chosen, selection),
    };
    match chosen.left_events() {
        Some(left) => common(&wanted, left),
        None => wanted,
    }
}

/// By the events of each lumi, which are known here.
fn kept_windows(chosen: &ChosenFile<'_>, selection: &Selection) -> Vec<(u64, u64)> {
    let mut windows: Vec<(u64, u64)> = Vec::new();
    let mut before = 0;
    for lumi in &chosen.file.lumis {
        let last = before + lumi.events.map_or(0, u64::from);
        if last > before && chosen.wants(lumi, selection) {
            match windows.last_mut() {
                Some(window) if window.1 == before => window.1 = last,
                _ => windows.push((before + 1, last)),
            }
        }
        before = last;
    }
    windows
}

/// What is in both of two lists of ranges, each ascending and without overlap.
fn common(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut common = Vec::new();
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(&&(a, b)), Some(&&(c, d))) = (one.peek(), other.peek()) {
        if a.max(c) <= b.min(d) {
            common.push((a.max(c), b.min(d)));
        }
        // Whichever ends first has nothing to do with what follows in the other list.
        if b <= d {
            one.next();
        } else {
            other.next();
        }
    }
    common
}
