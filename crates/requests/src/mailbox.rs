//! What the reconciler's thread is told between two passes. Telling it costs nothing and never waits; the same thing told
//! a hundred times is one thing to see to.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use windlass_types::WorkflowId;

/// What was told since the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Look at everything.
    pub(crate) all: bool,
    /// Requests that something happened to.
    pub(crate) requests: BTreeSet<String>,
    /// Workflows of the engine that something happened to.
    pub(crate) workflows: BTreeSet<WorkflowId>,
    /// Runs, by their UUIDs, that something happened to.
    pub(crate) runs: BTreeSet<String>,
}

impl Heard {
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.requests.is_empty() && self.workflows.is_empty() && self.runs.is_empty()
    }
}

/// Tells the reconciler that something happened; cheap to clone, and there before the reconciler is.
#[derive(Clone, Debug, Default)]
pub struct Nudge(pub(crate) Arc<Mailbox>);

impl Nudge {
    /// Something happened to this request.
    pub fn request(&self, name: &str) {
        self.0.tell(|heard| heard.requests.extend([name.to_owned()]));
    }

    /// Something changed that may concern any request.
    pub fn all(&self) {
        self.0.tell(|heard| heard.all = true);
    }

    /// Something happened to a run that is watched.
    pub(crate) fn run(&self, uuid: &str) {
        self.0.tell(|heard| heard.runs.extend([uuid.to_owned()]));
    }

    /// Something happened to a workflow of the engine, which may be the run of a request.
    pub fn workflow(&self, workflow: WorkflowId) {
        self.0.tell(|heard| heard.workflows.extend([workflow]));
    }
}

#[derive(Debug, Default)]
struct Inside {
    heard: Heard,
    is_stopped: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    told: Condvar,
}

impl Mailbox {
    /// Nothing in here can be left half done by a panic.
    fn open(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, what: impl FnOnce(&mut Heard)) {
        what(&mut self.open().heard);
        self.told.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.open().is_stopped = true;
        self.told.notify_all();
    }

    /// Waits until something was told, but not longer than `until`, and takes it. `None`: it is over.
    pub(crate) fn wait(&self, until: Instant) -> Option<Heard> {
        let mut inside = self.open();
        loop {
            if inside.is_stopped {
                return None;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !inside.heard.is_empty() || left.is_zero() {
                return Some(mem::take(&mut inside.heard));
            }
            (inside, _) = self.told.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits, whatever is told meanwhile. `false`: it is over.
    pub(crate) fn rest(&self, until: Instant) -> bool {
        let mut inside = self.open();
        while !inside.is_stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            (inside, _) = self.told.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner);
        }
        false
    }
}
