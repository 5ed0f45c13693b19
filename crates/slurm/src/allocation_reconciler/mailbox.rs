//! Notices for the reconciler between two passes. Sending never blocks; repeated notices count as one.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use windlass_scheduler::service::UnreachableAllocationWorker;
use windlass_types::WorkflowId;

/// Notices since the last pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedNotices {
    /// Anything may have changed: a start, or allocations that a user requested or canceled.
    pub(super) is_any_change: bool,
    /// Workflows with a change: an action is due, or a run started or ended.
    pub(super) workflows: BTreeSet<WorkflowId>,
    /// Silent workers whose jobs wait until their steps in Slurm have ended.
    pub(super) silent_workers: Vec<UnreachableAllocationWorker>,
    /// A poll of Slurm was requested: the number of the last request.
    pub(super) poll_request: Option<u64>,
}

/// The result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// Slurm answered, or there was nothing to query.
    Answered,
    /// Slurm did not answer or was not called, with the reason. Nothing follows from that.
    NoAnswer(String),
}

#[derive(Debug, Default)]
struct MailboxState {
    received: ReceivedNotices,
    is_stopped: bool,
    /// Number of requests for a poll.
    poll_requests: u64,
    /// The last result, and the number of the last request that it covers.
    last_poll: Option<(u64, PollOutcome)>,
}

/// Wakes the reconciler; cheap to clone, and created before it.
#[derive(Clone, Debug, Default)]
pub struct AllocationReconcilerWaker(Arc<(Mutex<MailboxState>, Condvar)>);

impl AllocationReconcilerWaker {
    /// A user requested or canceled allocations.
    pub fn notify_all(&self) {
        self.notify(|notices| notices.is_any_change = true);
    }

    /// This workflow has changed.
    pub fn notify_workflow(&self, workflow: WorkflowId) {
        self.notify(|notices| notices.workflows.extend([workflow]));
    }

    /// Requests that the steps of this worker are canceled; the service is notified when they have ended.
    pub fn notify_silent_worker(&self, worker: UnreachableAllocationWorker) {
        self.notify(|notices| notices.silent_workers.push(worker));
    }

    /// Requests a poll of Slurm. Returns a number; the first pass with this number or a higher one has the
    /// result.
    pub(super) fn request_poll(&self) -> u64 {
        let mut inside = self.lock_state();
        inside.poll_requests += 1;
        let number = inside.poll_requests;
        inside.received.poll_request = Some(number);
        drop(inside);
        self.0.1.notify_all();
        number
    }

    /// The result of the poll.
    pub(super) fn complete_poll(&self, number: u64, looked: PollOutcome) {
        self.lock_state().last_poll = Some((number, looked));
        self.0.1.notify_all();
    }

    /// Waits for the result, at most until `until`.
    pub(super) fn wait_for_poll(&self, number: u64, until: Instant) -> PollOutcome {
        let is_done = |inside: &MailboxState| {
            inside.last_poll.as_ref().is_some_and(|(answered, _)| *answered >= number)
        };
        let inside = self.wait_while(until, |inside| !inside.is_stopped && !is_done(inside));
        match &inside.last_poll {
            Some((answered, looked)) if *answered >= number => looked.clone(),
            _ if inside.is_stopped => PollOutcome::NoAnswer("the server is shutting down".to_owned()),
            _ => PollOutcome::NoAnswer("timed out waiting for Slurm".to_owned()),
        }
    }

    /// A panic leaves nothing inconsistent in here.
    fn lock_state(&self) -> MutexGuard<'_, MailboxState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, what: impl FnOnce(&mut ReceivedNotices)) {
        what(&mut self.lock_state().received);
        self.0.1.notify_all();
    }

    /// Called when a reconciler starts; an earlier one with this handle has ended.
    pub(super) fn reopen(&self) {
        self.lock_state().is_stopped = false;
        self.notify_all();
    }

    pub(super) fn stop(&self) {
        self.lock_state().is_stopped = true;
        self.0.1.notify_all();
    }

    /// Waits for a notice until `until` and takes it. `None`: shut down.
    pub(super) fn wait_for_notice(&self, until: Instant) -> Option<ReceivedNotices> {
        let is_idle =
            |inside: &MailboxState| !inside.is_stopped && inside.received == ReceivedNotices::default();
        let mut inside = self.wait_while(until, is_idle);
        (!inside.is_stopped).then(|| mem::take(&mut inside.received))
    }

    /// Waits regardless of notices. `false`: shut down.
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
    fn poll_request_gets_its_own_or_a_later_outcome() {
        let waker = AllocationReconcilerWaker::default();
        let (first, second) = (waker.request_poll(), waker.request_poll());
        let far = Instant::now() + Duration::from_hours(1);
        assert_eq!(waker.wait_for_notice(far).unwrap().poll_request, Some(second));
        let late = PollOutcome::NoAnswer("timed out waiting for Slurm".to_owned());
        assert_eq!(waker.wait_for_poll(first, Instant::now()), late);
        waker.complete_poll(second, PollOutcome::Answered);
        assert_eq!(waker.wait_for_poll(first, far), PollOutcome::Answered);
        assert_eq!(waker.wait_for_poll(second, far), PollOutcome::Answered);
        let third = waker.request_poll();
        assert_eq!(waker.wait_for_poll(third, Instant::now()), late);
        waker.stop();
        assert!(matches!(waker.wait_for_poll(third, far), PollOutcome::NoAnswer(_)));
    }

    #[test]
    fn repeated_notices_are_merged() {
        let waker = AllocationReconcilerWaker::default();
        for _ in 0..100 {
            waker.notify_workflow(WorkflowId(7));
        }
        let far = Instant::now() + Duration::from_hours(1);
        let notices = waker.wait_for_notice(far).unwrap();
        assert_eq!((notices.is_any_change, notices.workflows), (false, [WorkflowId(7)].into()));
        assert_eq!(
            waker.wait_for_notice(Instant::now()).unwrap(),
            ReceivedNotices::default(),
            "no further notices"
        );
        assert!(waker.wait_until(Instant::now()));
        waker.stop();
        assert!(waker.wait_for_notice(far).is_none() && !waker.wait_until(far));
        waker.reopen();
        assert!(waker.wait_for_notice(far).unwrap().is_any_change, "the next reconciler gets notices again");
    }
}
