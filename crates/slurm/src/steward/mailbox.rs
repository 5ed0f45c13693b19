//! What the steward is told between two passes. Telling costs nothing and never waits; the same thing told a hundred times is
//! one thing to see to.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use windlass_types::WorkflowId;

/// What was told since the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Anything may have changed: a start, or allocations that somebody asked for or wants gone.
    pub(super) all: bool,
    /// Workflows that something happened to: an action is due, a run has begun or is over.
    pub(super) workflows: BTreeSet<WorkflowId>,
}

#[derive(Debug, Default)]
struct Inside {
    heard: Heard,
    is_stopped: bool,
}

/// Tells the steward that something happened; cheap to clone, and there before the steward is.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<(Mutex<Inside>, Condvar)>);

impl Nudge {
    /// Somebody asked for allocations, or wants some gone.
    pub fn all(&self) {
        self.tell(|heard| heard.all = true);
    }

    /// Something happened to this workflow.
    pub fn workflow(&self, workflow: WorkflowId) {
        self.tell(|heard| heard.workflows.extend([workflow]));
    }

    /// Nothing in here can be left half done by a panic.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, what: impl FnOnce(&mut Heard)) {
        what(&mut self.inside().heard);
        self.0.1.notify_all();
    }

    /// A steward begins: one that was told by it before has ended.
    pub(super) fn begin(&self) {
        self.inside().is_stopped = false;
        self.all();
    }

    pub(super) fn stop(&self) {
        self.inside().is_stopped = true;
        self.0.1.notify_all();
    }

    /// Waits until something was told, but not longer than `until`, and takes it. `None`: it is over.
    pub(super) fn wait(&self, until: Instant) -> Option<Heard> {
        let is_idle = |inside: &Inside| !inside.is_stopped && inside.heard == Heard::default();
        let mut inside = self.sleep(until, is_idle);
        (!inside.is_stopped).then(|| mem::take(&mut inside.heard))
    }

    /// Waits, whatever is told meanwhile. `false`: it is over.
    pub(super) fn rest(&self, until: Instant) -> bool {
        !self.sleep(until, |inside| !inside.is_stopped).is_stopped
    }

    fn sleep(&self, until: Instant, goes_on: impl Fn(&Inside) -> bool) -> MutexGuard<'_, Inside> {
        let mut inside = self.inside();
        while goes_on(&inside) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (inside, _) = self.0.1.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner);
        }
        inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_told_often_is_heard_once() {
        let nudge = Nudge::default();
        for _ in 0..100 {
            nudge.workflow(WorkflowId(7));
        }
        let far = Instant::now() + Duration::from_hours(1);
        let heard = nudge.wait(far).unwrap();
        assert_eq!((heard.all, heard.workflows), (false, [WorkflowId(7)].into()));
        assert_eq!(nudge.wait(Instant::now()).unwrap(), Heard::default(), "nothing more");
        assert!(nudge.rest(Instant::now()));
        nudge.stop();
        assert!(nudge.wait(far).is_none() && !nudge.rest(far));
        nudge.begin();
        assert!(nudge.wait(far).unwrap().all, "the next steward hears again");
    }
}
