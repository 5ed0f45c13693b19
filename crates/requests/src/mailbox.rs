//! What the reconciler's thread is told between two passes. Telling it costs nothing and never waits; the same thing told
//! a hundred times is one thing to see to.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use windlass_types::WorkflowId;

/// What was told since the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WakeEvents {
    /// Look at everything.
    pub(crate) all: bool,
    /// Requests that something happened to.
    pub(crate) requests: BTreeSet<String>,
    /// Workflows of the engine that something happened to.
    pub(crate) workflows: BTreeSet<WorkflowId>,
    /// Runs, by their UUIDs, that something happened to.
    pub(crate) runs: BTreeSet<String>,
}

impl WakeEvents {
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.requests.is_empty() && self.workflows.is_empty() && self.runs.is_empty()
    }
}

/// Tells the reconciler that something happened; cheap to clone, and there before the reconciler is.
#[derive(Clone, Debug, Default)]
pub struct ReconcilerWaker(pub(crate) Arc<ReconcilerMailbox>);

impl ReconcilerWaker {
    /// Something happened to this request.
    pub fn wake_request(&self, name: &str) {
        self.0.post_events(|heard| heard.requests.extend([name.to_owned()]));
    }

    /// Something changed that may concern any request.
    pub fn wake_all(&self) {
        self.0.post_events(|heard| heard.all = true);
    }

    /// Something happened to a run that is watched.
    pub(crate) fn wake_run(&self, uuid: &str) {
        self.0.post_events(|heard| heard.runs.extend([uuid.to_owned()]));
    }

    /// Something happened to a workflow of the engine, which may be the run of a request.
    pub fn wake_workflow(&self, workflow: WorkflowId) {
        self.0.post_events(|heard| heard.workflows.extend([workflow]));
    }
}

#[derive(Debug, Default)]
struct MailboxState {
    events: WakeEvents,
    is_stopped: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ReconcilerMailbox {
    state: Mutex<MailboxState>,
    changed: Condvar,
}

impl ReconcilerMailbox {
    /// Nothing in here can be left half done by a panic.
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

    /// Waits until something was told, but not longer than `until`, and takes it. `None`: it is over.
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

    /// Waits, whatever is told meanwhile. `false`: it is over.
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
