//! Sites that get no new units: what is there is finished, and nothing is begun.

use super::Service;
use super::call::Call;
use super::office::Office;
use std::collections::BTreeSet;
use windlass_types::WorkerId;

impl Service {
    /// From now on no unit elects one of these sites, and every other may be elected. Not in the books: whoever knows it
    /// says it again after a restart.
    pub fn close_sites(&self, closed: BTreeSet<String>) {
        self.call(Call::CloseSites(closed));
    }
}

impl Office {
    pub(super) fn on_close_sites(&mut self, closed: BTreeSet<String>) {
        if self.closed_sites == closed {
            return;
        }
        self.closed_sites = closed;
        self.keep_sites_closed();
        // Whoever waits may be given more than before, or has to be passed over.
        self.stirred.extend(self.slots.keys());
        self.roused.extend(self.mates.keys().copied().collect::<Vec<WorkerId>>());
    }

    /// Tells all workers, those that have just come included.
    pub(super) fn keep_sites_closed(&mut self) {
        let Self { mates, crews, closed_sites, .. } = self;
        let may_elect = |site: Option<&str>| site.is_none_or(|site| !closed_sites.contains(site));
        for mate in mates.values_mut() {
            let may = may_elect(mate.mirror.site());
            mate.mirror.take_elections(may);
        }
        crews.take_elections(may_elect);
    }
}
