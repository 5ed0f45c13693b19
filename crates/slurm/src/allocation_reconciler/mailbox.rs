//! What the steward is told between two passes. Telling costs nothing and never waits; the same thing told a hundred times is
//! one thing to see to.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use windlass_scheduler::service::SilentWorker;
use windlass_types::WorkflowId;

/// What was told since the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedNotices {
    /// Anything may have changed: a start, or allocations that somebody asked for or wants gone.
    pub(super) is_any_change: bool,
    /// Workflows that something happened to: an action is due, a run has begun or is over.
    pub(super) workflows: BTreeSet<WorkflowId>,
    /// Workers that are not heard of, whose jobs wait until what they left in Slurm is gone.
    pub(super) silent_workers: Vec<SilentWorker>,
    /// Slurm is to be asked now: the number of whoever wanted that last.
    pub(super) poll_request: Option<u64>,
}

/// What came of asking Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// It answered, or there was nothing to ask it.
    Answered,
    /// It did not, or was not asked: why. Nothing follows from that.
    NoAnswer(String),
}

#[derive(Debug, Default)]
struct MailboxState {
    received: ReceivedNotices,
    is_stopped: bool,
    /// So often somebody wanted Slurm to be asked now.
    poll_requests: u64,
    /// What came of it the last time, up to whose wish.
    last_poll: Option<(u64, PollOutcome)>,
}

/// Tells the steward that something happened; cheap to clone, and there before the steward is.
#[derive(Clone, Debug, Default)]
pub struct ReconcilerMailbox(Arc<(Mutex<MailboxState>, Condvar)>);

impl ReconcilerMailbox {
    /// Somebody asked for allocations, or wants some gone.
    pub fn notify_all(&self) {
        self.notify(|heard| heard.is_any_change = true);
    }

    /// Something happened to this workflow.
    pub fn notify_workflow(&self, workflow: WorkflowId) {
        self.notify(|heard| heard.workflows.extend([workflow]));
    }

    /// What this worker has left in Slurm is to be ended, and the service told when it is.
    pub fn notify_silent_worker(&self, worker: SilentWorker) {
        self.notify(|heard| heard.silent_workers.push(worker));
    }

    /// Slurm is to be asked now. Whoever says so gets a number, and the pass after which his answer is there bears it or a higher
    /// one.
    pub(super) fn request_poll(&self) -> u64 {
        let mut inside = self.lock_state();
        inside.poll_requests += 1;
        let number = inside.poll_requests;
        inside.received.poll_request = Some(number);
        drop(inside);
        self.0.1.notify_all();
        number
    }

    /// What came of it.
    pub(super) fn complete_poll(&self, number: u64, looked: PollOutcome) {
        self.lock_state().last_poll = Some((number, looked));
        self.0.1.notify_all();
    }

    /// Waits for what came of it, but not longer than `until`.
    pub(super) fn wait_for_poll(&self, number: u64, until: Instant) -> PollOutcome {
        let is_done = |inside: &MailboxState| {
            inside.last_poll.as_ref().is_some_and(|(answered, _)| *answered >= number)
        };
        let inside = self.wait_while(until, |inside| !inside.is_stopped && !is_done(inside));
        match &inside.last_poll {
            Some((answered, looked)) if *answered >= number => looked.clone(),
            _ if inside.is_stopped => PollOutcome::NoAnswer("the server is about to end".to_owned()),
            _ => PollOutcome::NoAnswer("it takes too long".to_owned()),
        }
    }

    /// Nothing in here can be left half done by a panic.
    fn lock_state(&self) -> MutexGuard<'_, MailboxState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, what: impl FnOnce(&mut ReceivedNotices)) {
        what(&mut self.lock_state().received);
        self.0.1.notify_all();
    }

    /// A steward begins: one that was told by it before has ended.
    pub(super) fn reopen(&self) {
        self.lock_state().is_stopped = false;
        self.notify_all();
    }

    pub(super) fn stop(&self) {
        self.lock_state().is_stopped = true;
        self.0.1.notify_all();
    }

    /// Waits until something was told, but not longer than `until`, and takes it. `None`: it is over.
    pub(super) fn wait_for_notice(&self, until: Instant) -> Option<ReceivedNotices> {
        let is_idle =
            |inside: &MailboxState| !inside.is_stopped && inside.received == ReceivedNotices::default();
        let mut inside = self.wait_while(until, is_idle);
        (!inside.is_stopped).then(|| mem::take(&mut inside.received))
    }

    /// Waits, whatever is told meanwhile. `false`: it is over.
    pub(super) fn wait_until(&self, until: Instant) -> bool {
        !self.wait_while(until, |inside| !inside.is_stopped).is_stopped
    }

    fn wait_while(
        &self,
        until: Instant,
        goes_on: impl Fn(&MailboxState) -> bool,
    ) -> MutexGuard<'_, MailboxState> {
        let mut inside = self.lock_state();
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
        let nudge = ReconcilerMailbox::default();
        let (first, second) = (nudge.request_poll(), nudge.request_poll());
        let far = Instant::now() + Duration::from_hours(1);
        assert_eq!(nudge.wait_for_notice(far).unwrap().poll_request, Some(second));
        let late = PollOutcome::NoAnswer("it takes too long".to_owned());
        assert_eq!(nudge.wait_for_poll(first, Instant::now()), late);
        nudge.complete_poll(second, PollOutcome::Answered);
        assert_eq!(nudge.wait_for_poll(first, far), PollOutcome::Answered);
        assert_eq!(nudge.wait_for_poll(second, far), PollOutcome::Answered);
        let third = nudge.request_poll();
        assert_eq!(nudge.wait_for_poll(third, Instant::now()), late);
        nudge.stop();
        assert!(matches!(nudge.wait_for_poll(third, far), PollOutcome::NoAnswer(_)));
    }

    #[test]
    fn what_is_told_often_is_heard_once() {
        let nudge = ReconcilerMailbox::default();
        for _ in 0..100 {
            nudge.notify_workflow(WorkflowId(7));
        }
        let far = Instant::now() + Duration::from_hours(1);
        let heard = nudge.wait_for_notice(far).unwrap();
        assert_eq!((heard.is_any_change, heard.workflows), (false, [WorkflowId(7)].into()));
        assert_eq!(
            nudge.wait_for_notice(Instant::now()).unwrap(),
            ReceivedNotices::default(),
            "nothing more"
        );
        assert!(nudge.wait_until(Instant::now()));
        nudge.stop();
        assert!(nudge.wait_for_notice(far).is_none() && !nudge.wait_until(far));
        nudge.reopen();
        assert!(nudge.wait_for_notice(far).unwrap().is_any_change, "the next steward hears again");
    }
}
