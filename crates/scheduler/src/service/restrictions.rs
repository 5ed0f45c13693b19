//! Restrictions of what may start: sites closed for new units, of all workflows or of one; and paused
//! workflows. Running jobs complete.
//!
//! They are not in the database: their owner sets them again after a restart.

use super::SchedulerHandle;
use super::scheduler::Scheduler;
use super::scheduler_call::SchedulerCall;
use std::collections::BTreeSet;
use windlass_types::{WorkerId, WorkflowId};

/// The restrictions of one workflow.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WorkflowRestriction {
    /// Nothing new of it starts.
    is_paused: bool,
    /// None of its units elects one of these sites.
    closed_sites: BTreeSet<String>,
}

impl SchedulerHandle {
    /// Closes these sites for the election by units, and opens all others.
    pub fn set_closed_sites(&self, closed: BTreeSet<String>) {
        self.send_call(SchedulerCall::CloseSites(closed));
    }

    /// The same for the units of one workflow, in addition to the sites closed for all.
    pub fn set_closed_sites_for(&self, workflow: WorkflowId, closed: BTreeSet<String>) {
        self.send_call(SchedulerCall::CloseSitesFor { workflow, closed });
    }

    /// Pauses or resumes a workflow: while paused, nothing new of it starts.
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
        // Waiting workers may get more than before, or less.
        self.dirty_workflows.extend(self.workflows.keys());
        self.dirty_workers.extend(self.sessions.keys().copied().collect::<Vec<WorkerId>>());
    }

    /// Applies the closed sites to all workers, including new ones.
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
        self.update_restriction(workflow, |restriction| restriction.closed_sites = closed);
    }

    pub(super) fn on_set_paused(&mut self, workflow: WorkflowId, is_paused: bool) {
        self.update_restriction(workflow, |restriction| restriction.is_paused = is_paused);
    }

    fn update_restriction(&mut self, workflow: WorkflowId, change: impl FnOnce(&mut WorkflowRestriction)) {
        let mut restriction = self.restrictions.remove(&workflow).unwrap_or_default();
        change(&mut restriction);
        if restriction != WorkflowRestriction::default() {
            self.restrictions.insert(workflow, restriction);
        }
        // There may be more or fewer jobs for waiting workers.
        self.dirty_workflows.insert(workflow);
        self.update_turns(workflow);
    }

    pub(super) fn is_paused(&self, workflow: WorkflowId) -> bool {
        self.restrictions.get(&workflow).is_some_and(|restriction| restriction.is_paused)
    }

    /// Whether a worker at this site may start units of this workflow, by the restrictions of the workflow.
    pub(super) fn may_start_units(&self, workflow: WorkflowId, site: Option<&str>) -> bool {
        let closed = self.restrictions.get(&workflow).map(|restriction| &restriction.closed_sites);
        closed.zip(site).is_none_or(|(closed, site)| !closed.contains(site))
    }
}
