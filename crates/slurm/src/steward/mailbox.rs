//! What the steward is told between two passes. Telling costs nothing and never waits; the same thing told a hundred times is
//! one thing to see to.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use windlass_engine::service::Silent;
use windlass_types::WorkflowId;

/// What was told since the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Anything may have changed: a start, or allocations that somebody asked for or wants gone.
    pub(super) all: bool,
    /// Workflows that something happened to: an action is due, a run has begun or is over.
    pub(super) workflows: BTreeSet<WorkflowId>,
    /// Workers that are not heard of, whose jobs wait until what they left in Slurm is gone.
    pub(super) silent: Vec<Silent>,
    /// Slurm is to be asked now: the number of whoever wanted that last.
    pub(super) look: Option<u64>,
}

/// What came of asking Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It answered, or there was nothing to ask it.
    Answered,
    /// It did not, or was not asked: why. Nothing follows from that.
    Silent(String),
}

#[derive(Debug, Default)]
struct Inside {
    heard: Heard,
    is_stopped: bool,
    /// So often somebody wanted Slurm to be asked now.
    looks: u64,
    /// What came of it the last time, up to whose wish.
    looked: Option<(u64, Looked)>,
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

    /// What this worker has left in Slurm is to be ended, and the service told when it is.
    pub fn silent(&self, worker: Silent) {
        self.tell(|heard| heard.silent.push(worker));
    }

    /// Slurm is to be asked now. Whoever says so gets a number, and the pass after which his answer is there bears it or a higher
    /// one.
    pub(super) fn look(&self) -> u64 {
        let mut inside = self.inside();
        inside.looks += 1;
        let number = inside.looks;
        inside.heard.look = Some(number);
        drop(inside);
        self.0.1.notify_all();
        number
    }

    /// What came of it.
    pub(super) fn has_looked(&self, number: u64, looked: Looked) {
        self.inside().looked = Some((number, looked));
        self.0.1.notify_all();
    }

    /// Waits for what came of it, but not longer than `until`.
    pub(super) fn await_look(&self, number: u64, until: Instant) -> Looked {
        let is_done =
            |inside: &Inside| inside.looked.as_ref().is_some_and(|(answered, _)| *answered >= number);
        let inside = self.sleep(until, |inside| !inside.is_stopped && !is_done(inside));
        match &inside.looked {
            Some((answered, looked)) if *answered >= number => looked.clone(),
            _ if inside.is_stopped => Looked::Silent("the server is about to end".to_owned()),
            _ => Looked::Silent("it takes too long".to_owned()),
        }
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
    fn whoever_wants_a_look_gets_what_came_of_it_or_of_a_later_one() {
        let nudge = Nudge::default();
        let (first, second) = (nudge.look(), nudge.look());
        let far = Instant::now() + Duration::from_hours(1);
        assert_eq!(nudge.wait(far).unwrap().look, Some(second));
        let late = Looked::Silent("it takes too long".to_owned());
        assert_eq!(nudge.await_look(first, Instant::now()), late);
        nudge.has_looked(second, Looked::Answered);
        assert_eq!(nudge.await_look(first, far), Looked::Answered);
        assert_eq!(nudge.await_look(second, far), Looked::Answered);
        let third = nudge.look();
        assert_eq!(nudge.await_look(third, Instant::now()), late);
        nudge.stop();
        assert!(matches!(nudge.await_look(third, far), Looked::Silent(_)));
    }

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
