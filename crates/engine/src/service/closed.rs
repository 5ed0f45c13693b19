//! What is not begun: sites that get no new units, of any workflow or of one; and workflows of which nothing new begins. What
//! is under way is finished.
//!
//! None of it is in the books: whoever knows it says it again after a restart.

use super::Service;
use super::call::Call;
use super::office::Office;
use std::collections::BTreeSet;
use windlass_types::{WorkerId, WorkflowId};

/// What holds a single workflow back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Restraint {
    /// Nothing new of it begins.
    is_paused: bool,
    /// No unit of it elects one of these.
    closed: BTreeSet<String>,
}

impl Service {
    /// From now on no unit elects one of these sites, and every other may be elected.
    pub fn close_sites(&self, closed: BTreeSet<String>) {
        self.call(Call::CloseSites(closed));
    }

    /// The same for the units of one workflow, besides what holds for all.
    pub fn close_sites_for(&self, workflow: WorkflowId, closed: BTreeSet<String>) {
        self.call(Call::CloseSitesFor { workflow, closed });
    }

    /// Nothing new of a workflow begins until this is taken back.
    pub fn pause(&self, workflow: WorkflowId, is_paused: bool) {
        self.call(Call::Pause { workflow, is_paused });
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

    pub(super) fn on_close_sites_for(&mut self, workflow: WorkflowId, closed: BTreeSet<String>) {
        self.restrain(workflow, |restraint| restraint.closed = closed);
    }

    pub(super) fn on_pause(&mut self, workflow: WorkflowId, is_paused: bool) {
        self.restrain(workflow, |restraint| restraint.is_paused = is_paused);
    }

    fn restrain(&mut self, workflow: WorkflowId, change: impl FnOnce(&mut Restraint)) {
        let mut restraint = self.restraints.remove(&workflow).unwrap_or_default();
        change(&mut restraint);
        if restraint != Restraint::default() {
            self.restraints.insert(workflow, restraint);
        }
        // It may have something for whoever waits, or nothing any more.
        self.stirred.insert(workflow);
        self.place(workflow);
    }

    pub(super) fn is_paused(&self, workflow: WorkflowId) -> bool {
        self.restraints.get(&workflow).is_some_and(|restraint| restraint.is_paused)
    }

    /// Whether a worker that is there may begin units of this workflow, for all that is known of the workflow alone.
    pub(super) fn is_open_for(&self, workflow: WorkflowId, site: Option<&str>) -> bool {
        let closed = self.restraints.get(&workflow).map(|restraint| &restraint.closed);
        closed.zip(site).is_none_or(|(closed, site)| !closed.contains(site))
    }
}
