//! What is not begun: sites that get no new units, of any workflow or of one; and workflows of which nothing new begins. What
//! is under way is finished.
//!
//! None of it is in the books: whoever knows it says it again after a restart.

use super::SchedulerHandle;
use super::scheduler::Scheduler;
use super::scheduler_call::SchedulerCall;
use std::collections::BTreeSet;
use windlass_types::{WorkerId, WorkflowId};

/// What holds a single workflow back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WorkflowRestriction {
    /// Nothing new of it begins.
    is_paused: bool,
    /// No unit of it elects one of these.
    closed_sites: BTreeSet<String>,
}

impl SchedulerHandle {
    /// From now on no unit elects one of these sites, and every other may be elected.
    pub fn set_closed_sites(&self, closed: BTreeSet<String>) {
        self.send_call(SchedulerCall::CloseSites(closed));
    }

    /// The same for the units of one workflow, besides what holds for all.
    pub fn set_closed_sites_for(&self, workflow: WorkflowId, closed: BTreeSet<String>) {
        self.send_call(SchedulerCall::CloseSitesFor { workflow, closed });
    }

    /// Nothing new of a workflow begins until this is taken back.
    pub fn set_paused(&self, workflow: WorkflowId, is_paused: bool) {
        self.send_call(SchedulerCall::SetPaused { workflow, is_paused });
    }
}

impl Scheduler {
    pub(super) fn on_close_sites(&mut self, closed: BTreeSet<String>) {
        if self.closed_sites == closed {
            return;
        }
        self.closed_sites = closed;
        self.apply_closed_sites();
        // Whoever waits may be given more than before, or has to be passed over.
        self.dirty_workflows.extend(self.workflows.keys());
        self.dirty_workers.extend(self.sessions.keys().copied().collect::<Vec<WorkerId>>());
    }

    /// Tells all workers, those that have just come included.
    pub(super) fn apply_closed_sites(&mut self) {
        let Self { sessions: worker_sessions, groups: worker_groups, closed_sites, .. } = self;
        let may_elect = |site: Option<&str>| site.is_none_or(|site| !closed_sites.contains(site));
        for session in worker_sessions.values_mut() {
            let may = may_elect(session.usage.site());
            session.usage.set_accepts_elections(may);
        }
        worker_groups.update_allowed_elections(may_elect);
    }

    pub(super) fn on_close_sites_for(&mut self, workflow: WorkflowId, closed: BTreeSet<String>) {
        self.update_restriction(workflow, |restraint| restraint.closed_sites = closed);
    }

    pub(super) fn on_set_paused(&mut self, workflow: WorkflowId, is_paused: bool) {
        self.update_restriction(workflow, |restraint| restraint.is_paused = is_paused);
    }

    fn update_restriction(&mut self, workflow: WorkflowId, change: impl FnOnce(&mut WorkflowRestriction)) {
        let mut restraint = self.restrictions.remove(&workflow).unwrap_or_default();
        change(&mut restraint);
        if restraint != WorkflowRestriction::default() {
            self.restrictions.insert(workflow, restraint);
        }
        // It may have something for whoever waits, or nothing any more.
        self.dirty_workflows.insert(workflow);
        self.update_turns(workflow);
    }

    pub(super) fn is_paused(&self, workflow: WorkflowId) -> bool {
        self.restrictions.get(&workflow).is_some_and(|restraint| restraint.is_paused)
    }

    /// Whether a worker that is there may begin units of this workflow, for all that is known of the workflow alone.
    pub(super) fn may_start_units(&self, workflow: WorkflowId, site: Option<&str>) -> bool {
        let closed = self.restrictions.get(&workflow).map(|restraint| &restraint.closed_sites);
        closed.zip(site).is_none_or(|(closed, site)| !closed.contains(site))
    }
}
