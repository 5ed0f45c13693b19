//! Notices for the thread of the reconciler between two passes. Sending never blocks; repeated notices count as
//! one.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use windlass_types::WorkflowId;

/// Notices since the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WakeEvents {
    /// Check everything.
    pub(crate) all: bool,
    /// Changed requests.
    pub(crate) requests: BTreeSet<String>,
    /// Changed workflows of the engine.
    pub(crate) workflows: BTreeSet<WorkflowId>,
    /// Changed runs, by their UUIDs.
    pub(crate) runs: BTreeSet<String>,
}

impl WakeEvents {
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.requests.is_empty() && self.workflows.is_empty() && self.runs.is_empty()
    }
}

/// Wakes the reconciler; cheap to clone, and created before it.
#[derive(Clone, Debug, Default)]
pub struct RequestReconcilerWaker(pub(crate) Arc<RequestReconcilerMailbox>);

impl RequestReconcilerWaker {
    /// This request has changed.
    pub fn wake_request(&self, name: &str) {
        self.0.post_events(|wake_events| wake_events.requests.extend([name.to_owned()]));
    }

    /// A change that may concern any request.
    pub fn wake_all(&self) {
        self.0.post_events(|wake_events| wake_events.all = true);
    }

    /// A watched run has changed.
    pub(crate) fn wake_run(&self, uuid: &str) {
        self.0.post_events(|wake_events| wake_events.runs.extend([uuid.to_owned()]));
    }

    /// A workflow of the engine has changed, which may be the run of a request.
    pub fn wake_workflow(&self, workflow: WorkflowId) {
        self.0.post_events(|wake_events| wake_events.workflows.extend([workflow]));
    }
}

#[derive(Debug, Default)]
struct MailboxState {
    events: WakeEvents,
    is_stopped: bool,
}

#[derive(Debug, Default)]
pub(crate) struct RequestReconcilerMailbox {
    state: Mutex<MailboxState>,
    changed: Condvar,
}

impl RequestReconcilerMailbox {
    /// A panic leaves nothing inconsistent in here.
    fn lock_state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn post_events(&self, what: impl FnOnce(&mut WakeEvents)) {
        what(&mut self.lock_state().events);
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.lock_state().is_stopped = true;
        self.changed.notify_all();
    }

    /// Waits for a notice until `until` and takes it. `None`: shut down.
    pub(crate) fn wait_for_events(&self, until: Instant) -> Option<WakeEvents> {
        let mut inside = self.lock_state();
        loop {
            if inside.is_stopped {
                return None;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !inside.events.is_empty() || left.is_zero() {
                return Some(mem::take(&mut inside.events));
            }
            (inside, _) = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits regardless of notices. `false`: shut down.
    pub(crate) fn sleep_until(&self, until: Instant) -> bool {
        let mut inside = self.lock_state();
        while !inside.is_stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            (inside, _) = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner);
        }
        false
    }
}
