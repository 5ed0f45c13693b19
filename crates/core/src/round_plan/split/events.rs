//! EventBased: windows of events. A job that is not full at the end of a file continues in the next one.

use super::{PlanDraft, SplitItem, find_borders};
use crate::round_plan::file_selection::{SelectedFile, wanted_events, wanted_windows};
use crate::round_plan::parameters::PlanParameters;
use crate::round_plan::plan_tables::{FileSlice, SlicePart};
use crate::round_plan::site_sets::{SiteSetId, SiteSets};

pub(super) fn split_by_events(
    terms: &PlanParameters,
    files: &[SelectedFile<'_>],
    sets: &mut SiteSets,
    max_nodes: u32,
) -> PlanDraft {
    let most = terms.limits.max_events().unwrap_or(u64::MAX);
    let items: Vec<SplitItem> = files
        .iter()
        .map(|chosen| SplitItem {
            events: wanted_events(chosen, &terms.selection),
            sites: chosen.sites,
            run: chosen.run,
            attempted: chosen.attempted,
            file: None,
        })
        .collect();
    let borders = find_borders(&items, &terms.limits);
    let mut draft = PlanDraft::default();
    let mut open: Option<OpenJob> = None;
    for (index, chosen) in files.iter().enumerate() {
        open = match open {
            Some(job) if !borders[index] => match sets.intersect(job.sites, chosen.sites) {
                Some(sites) => Some(OpenJob { sites, ..job }),
                None => job.close_job(&mut draft, files),
            },
            Some(job) => job.close_job(&mut draft, files),
            None => None,
        };
        for (mut first, last) in wanted_windows(chosen, &terms.selection) {
            while first <= last {
                // A parameter is far too small: continuing would only use memory.
                if draft.jobs.len() > max_nodes as usize {
                    return draft;
                }
                let job = open.get_or_insert(OpenJob {
                    from: draft.slices.len(),
                    sites: chosen.sites,
                    attempted: chosen.attempted,
                    events: 0,
                });
                let taken = (last - first + 1).min(most - job.events);
                let part = SlicePart::Events { first, last: first + taken - 1 };
                draft.slices.push(FileSlice { file: index as u32, part });
                job.events += taken;
                first += taken;
                if job.events == most {
                    open = open.take().and_then(|job| job.close_job(&mut draft, files));
                }
            }
        }
    }
    if let Some(job) = open {
        job.close_job(&mut draft, files);
    }
    draft
}

/// A job that is not full yet.
struct OpenJob {
    from: usize,
    sites: SiteSetId,
    attempted: bool,
    events: u64,
}

impl OpenJob {
    /// Always returns `None`: no job is open afterwards.
    fn close_job(self, draft: &mut PlanDraft, files: &[SelectedFile<'_>]) -> Option<Self> {
        draft.close_job(self.from, self.events, self.sites, self.attempted, files);
        None
    }
}
