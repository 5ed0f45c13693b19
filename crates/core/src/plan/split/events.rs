//! EventBased: windows of events. A job that is not full at the end of a file goes on in the next one.

use super::{Draft, Item, borders};
use crate::plan::choose::{ChosenFile, wanted_events, windows};
use crate::plan::sites::{SetId, SiteSets};
use crate::plan::terms::Terms;
use crate::plan::value::{Part, Slice};

pub(super) fn split(terms: &Terms, files: &[ChosenFile<'_>], sets: &mut SiteSets, max_nodes: u32) -> Draft {
    let most = terms.limits.most_events().unwrap_or(u64::MAX);
    let items: Vec<Item> = files
        .iter()
        .map(|chosen| Item {
            events: wanted_events(chosen, &terms.selection),
            sites: chosen.sites,
            run: chosen.run,
            attempted: chosen.attempted,
            file: None,
        })
        .collect();
    let borders = borders(&items, &terms.limits);
    let mut draft = Draft::default();
    let mut open: Option<Open> = None;
    for (index, chosen) in files.iter().enumerate() {
        open = match open {
            Some(job) if !borders[index] => match sets.meet(job.sites, chosen.sites) {
                Some(sites) => Some(Open { sites, ..job }),
                None => job.close(&mut draft, files),
            },
            Some(job) => job.close(&mut draft, files),
            None => None,
        };
        for (mut first, last) in windows(chosen, &terms.selection) {
            while first <= last {
                // Some parameter is far off: what follows would only take memory.
                if draft.jobs.len() > max_nodes as usize {
                    return draft;
                }
                let job = open.get_or_insert(Open {
                    from: draft.slices.len(),
                    sites: chosen.sites,
                    attempted: chosen.attempted,
                    events: 0,
                });
                let taken = (last - first + 1).min(most - job.events);
                let part = Part::Events { first, last: first + taken - 1 };
                draft.slices.push(Slice { file: index as u32, part });
                job.events += taken;
                first += taken;
                if job.events == most {
                    open = open.take().and_then(|job| job.close(&mut draft, files));
                }
            }
        }
    }
    if let Some(job) = open {
        job.close(&mut draft, files);
    }
    draft
}

/// A job that is not full yet.
struct Open {
    from: usize,
    sites: SetId,
    attempted: bool,
    events: u64,
}

impl Open {
    /// Always `None`: nothing is open afterwards.
    fn close(self, draft: &mut Draft, files: &[ChosenFile<'_>]) -> Option<Self> {
        draft.close(self.from, self.events, self.sites, self.attempted, files);
        None
    }
}
