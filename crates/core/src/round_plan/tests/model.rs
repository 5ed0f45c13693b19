//! A simple model: what has to be processed, event by event; and what a plan processes, read in the same way.

use super::*;
use std::fmt::Write as _;

/// An event of a file by its position, from 1.
pub(super) type Event<'a> = (&'a str, u64);
/// The part of a lumi in a file.
pub(super) type Piece<'a> = (&'a str, u32, u32);

impl Fixture {
    fn keeps(&self, run: u32, lumi: u32) -> bool {
        let params = &self.request.splitting_params;
        let is_masked = params.lumi_mask.as_ref().is_some_and(|mask| {
            !mask
                .0
                .get(&run.into())
                .is_some_and(|ranges| ranges.iter().any(|&(a, b)| (a..=b).contains(&lumi.into())))
        });
        (params.run_whitelist.is_empty() || params.run_whitelist.contains(&run))
            && !params.run_blacklist.contains(&run)
            && !is_masked
    }

    pub(super) fn wants(&self, lumi: &FileLumi) -> bool {
        self.keeps(lumi.run, lumi.lumi)
    }

    pub(super) fn wanted_events(&self) -> BTreeSet<Event<'_>> {
        let mut wanted = BTreeSet::new();
        for file in &self.files {
            if file.lumis.is_empty() {
                wanted.extend((1..=file.events).map(|event| (file.lfn.as_str(), event)));
            }
            wanted.extend(
                positions(file)
                    .filter(|(lumi, _)| self.wants(lumi))
                    .map(|(_, event)| (file.lfn.as_str(), event)),
            );
        }
        wanted
    }

    pub(super) fn wanted_pieces(&self) -> BTreeSet<Piece<'_>> {
        let each = self.files.iter().flat_map(|file| file.lumis.iter().map(|lumi| (file.lfn.as_str(), lumi)));
        each.filter(|(_, lumi)| self.wants(lumi)).map(|(lfn, lumi)| (lfn, lumi.run, lumi.lumi)).collect()
    }

    pub(super) fn file(&self, lfn: &str) -> &CatalogFile {
        self.files.iter().find(|file| file.lfn == lfn).unwrap()
    }

    pub(super) fn allowed(&self) -> BTreeSet<&str> {
        let Request { site_whitelist, site_blacklist, .. } = &self.request;
        let sites = self.sites.keys().filter(|site| {
            (site_whitelist.is_empty() || site_whitelist.contains(site)) && !site_blacklist.contains(site)
        });
        sites.map(String::as_str).collect()
    }

    /// Allowed sites at which a job could read these files.
    pub(super) fn readable_at<'a>(&'a self, lfns: &BTreeSet<&str>) -> BTreeSet<&'a str> {
        let mut sites = self.allowed();
        if !self.request.trust_sitelists {
            sites.retain(|site| lfns.iter().all(|lfn| self.file(lfn).replicas.contains_key(*site)));
        }
        sites
    }

    /// Whether all input that belongs together can be read at some site, and there is any.
    pub(super) fn is_possible(&self) -> bool {
        let algo = self.request.splitting_algo;
        let mut together: BTreeMap<(u32, u32), BTreeSet<&str>> = BTreeMap::new();
        for (lfn, run, lumi) in self.wanted_pieces() {
            together.entry((run, lumi)).or_default().insert(lfn);
        }
        let by_lumis = matches!(algo, SplittingAlgo::LumiBased | SplittingAlgo::EventAwareLumiBased);
        let single = self.files.iter().filter(|file| match algo {
            SplittingAlgo::EventBased => self.wants_an_event_of(file),
            _ => self.wants_some_of(file),
        });
        let single: Vec<&str> = single.map(|file| file.lfn.as_str()).collect();
        !single.is_empty()
            && single.iter().all(|lfn| !self.readable_at(&[*lfn].into()).is_empty())
            && (!by_lumis || together.values().all(|lfns| !self.readable_at(lfns).is_empty()))
    }

    fn wants_an_event_of(&self, file: &CatalogFile) -> bool {
        self.wanted_events().iter().any(|(lfn, _)| *lfn == file.lfn)
    }

    fn wants_some_of(&self, file: &CatalogFile) -> bool {
        file.lumis.is_empty() || file.lumis.iter().any(|lumi| self.wants(lumi))
    }
}

/// Each event of a file with its lumi.
pub(super) fn positions(file: &CatalogFile) -> impl Iterator<Item = (FileLumi, u64)> {
    let each = file.lumis.iter().flat_map(|lumi| (0..lumi.events.unwrap_or(0)).map(|_| *lumi));
    each.zip(1..)
}

/// Each event that a node processes; twice if it is processed twice.
pub(super) fn events_of<'a>(fixture: &'a Fixture, node: &PlanJob<'_>) -> Vec<Event<'a>> {
    let mut events = Vec::new();
    for input in node.inputs() {
        let file = fixture.file(&input.file().lfn);
        let lfn = file.lfn.as_str();
        if let Some((first, last)) = input.event_window() {
            assert!(first >= 1 && last <= file.events, "{lfn} has no event {first} or {last}");
            events.extend((first..=last).map(|event| (lfn, event)));
        } else if let Some(ranges) = input.lumi_ranges() {
            let within = |lumi: &FileLumi| {
                ranges.iter().filter(|r| r.run == lumi.run && (r.first..=r.last).contains(&lumi.lumi)).count()
            };
            for (lumi, event) in positions(file) {
                events.extend(std::iter::repeat_n((lfn, event), within(&lumi)));
            }
        } else {
            events.extend((1..=file.events).map(|event| (lfn, event)));
        }
    }
    events
}

/// Each piece of a lumi that a node reads.
pub(super) fn pieces_of<'a>(node: &PlanJob<'a>) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    for input in node.inputs() {
        for range in input.lumi_ranges().unwrap() {
            pieces
                .extend((range.first..=range.last).map(|lumi| (input.file().lfn.as_str(), range.run, lumi)));
        }
    }
    pieces
}

/// The duplicates.
pub(super) fn repeated<T: Ord + Clone + std::fmt::Debug>(all: &[T]) -> String {
    let mut sorted = all.to_vec();
    sorted.sort();
    let mut said = String::new();
    for pair in sorted.windows(2).filter(|pair| pair[0] == pair[1]) {
        write!(said, "{:?} ", pair[0]).unwrap();
    }
    said
}
