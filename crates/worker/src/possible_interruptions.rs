//! Failures that may be interruptions.
//!
//! The shutdown of a machine, service unit or allocation signals all its processes: the jobs, this worker and
//! the engine. The signals arrive in any order, so a job may be seen to end by SIGTERM before this worker or
//! the engine knows of the shutdown. Such an end is held back for a moment, neither recorded nor reported. If
//! the shutdown becomes known in that time, the job was interrupted and runs again; otherwise the job failed.

use crate::lock_ignoring_poison;
use crate::report_outbox::ReportUrgency;
use crate::worker_process::WorkerState;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windlass_process::signals;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptReport, ProcessExit, StopReason,
};

/// How long an end is held that looks like a signal from outside.
const HOLD_AFTER_SIGNAL: Duration = Duration::from_secs(2);
/// How long a failure is held that may be the job's reaction to a signal. This worker is signaled as well, and
/// its handler runs within this time.
const HOLD_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The same where only the engine is signaled and then stops this worker.
const HOLD_AFTER_FAILURE_IF_NOTIFIED: Duration = Duration::from_millis(500);

/// SIGHUP, SIGINT, SIGKILL and SIGTERM.
const SHUTDOWN_SIGNALS: [i32; 4] = [1, 2, 9, 15];

#[derive(Debug)]
pub(crate) struct PossibleInterruptions {
    waiting: Mutex<Vec<(Instant, AttemptEndReport)>>,
    /// The engine stopped all jobs because it was interrupted, and has assigned none since.
    is_interrupted: AtomicBool,
    after_failure: Duration,
}

impl PossibleInterruptions {
    /// `is_only_told`: this process ignores SIGTERM; the engine reacts to it and sends a message.
    pub(crate) fn new(is_only_told: bool) -> Self {
        let after_failure = if is_only_told { HOLD_AFTER_FAILURE_IF_NOTIFIED } else { HOLD_AFTER_FAILURE };
        Self { waiting: Mutex::default(), is_interrupted: AtomicBool::new(false), after_failure }
    }

    pub(crate) fn on_interrupted(&self) {
        self.is_interrupted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn on_assigned(&self) {
        self.is_interrupted.store(false, Ordering::SeqCst);
    }

    /// How long it is uncertain whether this end is a failure; `None` if it is certain.
    fn uncertainty_period(&self, ended: &AttemptEndReport) -> Option<Duration> {
        if ended.cause != AttemptEndCause::Itself || ended.exit == ProcessExit::Code(0) {
            return None;
        }
        let is_by = |signal| {
            ended.exit == ProcessExit::Signal(signal) || ended.exit == ProcessExit::Code(128 + signal)
        };
        Some(if SHUTDOWN_SIGNALS.into_iter().any(is_by) { HOLD_AFTER_SIGNAL } else { self.after_failure })
    }

    /// Returns the end with its final cause, or `None` if it is held from now on.
    fn hold_if_uncertain(
        &self,
        ended: AttemptEndReport,
        now: Instant,
        was_terminated: bool,
    ) -> Option<AttemptEndReport> {
        // A job that was signaled together with this worker may exit with any code, also with 0.
        if was_terminated && ended.cause == AttemptEndCause::Itself {
            return Some(mark_interrupted(ended));
        }
        let Some(time) = self.uncertainty_period(&ended) else { return Some(ended) };
        let mut waiting = lock_ignoring_poison(&self.waiting);
        if self.is_interrupted.load(Ordering::SeqCst) {
            return Some(mark_interrupted(ended));
        }
        waiting.push((now + time, ended));
        None
    }

    /// The ends whose cause is certain now, and the time at which the next one will be.
    fn take_certain(&self, now: Instant, was_terminated: bool) -> (Vec<AttemptEndReport>, Option<Instant>) {
        let mut waiting = lock_ignoring_poison(&self.waiting);
        let is_shutdown = was_terminated || self.is_interrupted.load(Ordering::SeqCst);
        let taken = std::mem::take(&mut *waiting).into_iter();
        let (certain, held): (Vec<_>, Vec<_>) = taken.partition(|(at, _)| is_shutdown || *at <= now);
        *waiting = held;
        let certain = certain.into_iter();
        let certain = certain.map(|(_, ended)| if is_shutdown { mark_interrupted(ended) } else { ended });
        (certain.collect(), waiting.iter().map(|(at, _)| *at).min())
    }
}

fn mark_interrupted(ended: AttemptEndReport) -> AttemptEndReport {
    AttemptEndReport { cause: AttemptEndCause::Stopped(StopReason::Interrupted), ..ended }
}

impl WorkerState {
    /// Reports a job as soon as its cause of end is certain.
    pub(crate) fn deliver_report(&self, report: AttemptReport, urgency: ReportUrgency) {
        let report = match report {
            AttemptReport::Ended(ended) => {
                let now = Instant::now();
                let Some(ended) =
                    self.possible_interruptions.hold_if_uncertain(ended, now, signals::was_terminated())
                else {
                    self.alarm.wake_at(now + HOLD_AFTER_FAILURE);
                    // Reports waiting in the outbox stay urgent.
                    return self.outbox.push([], urgency);
                };
                self.end_log.append(&ended);
                AttemptReport::Ended(ended)
            }
            other => other,
        };
        self.outbox.push([report], urgency);
    }

    /// Reports the held ends whose cause is certain now; returns when to check again.
    pub(crate) fn deliver_certain_ends(&self, urgency: ReportUrgency) -> Option<Instant> {
        let (certain, next) =
            self.possible_interruptions.take_certain(Instant::now(), signals::was_terminated());
        if !certain.is_empty() {
            for ended in &certain {
                self.end_log.append(ended);
            }
            self.outbox.push(certain.into_iter().map(AttemptReport::Ended), urgency);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::worker_messages::{AttemptKey, AttemptUsage};
    use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

    pub(crate) fn ended(exit: ProcessExit, cause: AttemptEndCause) -> AttemptEndReport {
        AttemptEndReport {
            key: AttemptKey { workflow: WorkflowId(1), job: JobId(1), run: RunId(1), attempt: Attempt(1) },
            started_at: Timestamp(0),
            ended_at: Timestamp(0),
            wall: Duration::ZERO,
            exit,
            cause,
            usage: AttemptUsage::default(),
            files: None,
            last_words: None,
            recovered: None,
        }
    }

    const BY_SIGTERM: ProcessExit = ProcessExit::Signal(15);

    #[test]
    fn only_failures_of_the_job_itself_are_held() {
        let held = PossibleInterruptions::new(false);
        for (exit, cause, expected) in [
            (ProcessExit::Code(0), AttemptEndCause::Itself, None),
            (ProcessExit::Code(1), AttemptEndCause::Itself, Some(HOLD_AFTER_FAILURE)),
            (ProcessExit::Code(143), AttemptEndCause::Itself, Some(HOLD_AFTER_SIGNAL)),
            (BY_SIGTERM, AttemptEndCause::Itself, Some(HOLD_AFTER_SIGNAL)),
            (ProcessExit::Signal(9), AttemptEndCause::Itself, Some(HOLD_AFTER_SIGNAL)),
            (ProcessExit::Signal(11), AttemptEndCause::Itself, Some(HOLD_AFTER_FAILURE)),
            (ProcessExit::Signal(9), AttemptEndCause::OutOfMemory, None),
            (BY_SIGTERM, AttemptEndCause::Timeout, None),
            (BY_SIGTERM, AttemptEndCause::Stopped(StopReason::Canceled), None),
        ] {
            assert_eq!(held.uncertainty_period(&ended(exit, cause.clone())), expected, "{exit:?} {cause:?}");
        }
        assert_eq!(
            PossibleInterruptions::new(true)
                .uncertainty_period(&ended(ProcessExit::Code(1), AttemptEndCause::Itself)),
            Some(HOLD_AFTER_FAILURE_IF_NOTIFIED)
        );
    }

    #[test]
    fn a_held_end_is_a_failure_without_a_shutdown() {
        let (held, now) = (PossibleInterruptions::new(false), Instant::now());
        let killed = ended(ProcessExit::Signal(9), AttemptEndCause::Itself);
        assert_eq!(held.hold_if_uncertain(killed.clone(), now, false), None);
        assert_eq!(held.take_certain(now, false), (vec![], Some(now + HOLD_AFTER_SIGNAL)));
        assert_eq!(held.take_certain(now + HOLD_AFTER_SIGNAL, false), (vec![killed], None));
    }

    #[test]
    fn a_shutdown_before_or_after_the_end_makes_it_an_interruption() {
        let now = Instant::now();
        let (killed, interrupted) = (
            ended(BY_SIGTERM, AttemptEndCause::Itself),
            ended(BY_SIGTERM, AttemptEndCause::Stopped(StopReason::Interrupted)),
        );
        // The job ends first, then this worker is signaled.
        let held = PossibleInterruptions::new(false);
        assert_eq!(held.hold_if_uncertain(killed.clone(), now, false), None);
        assert_eq!(held.take_certain(now, true).0, std::slice::from_ref(&interrupted));
        // The job ends first, then the message of the engine arrives.
        assert_eq!(held.hold_if_uncertain(killed.clone(), now, false), None);
        held.on_interrupted();
        assert_eq!(held.take_certain(now, false).0, std::slice::from_ref(&interrupted));
        // The message of the engine arrives first.
        assert_eq!(held.hold_if_uncertain(killed.clone(), now, false), Some(interrupted.clone()));
        // Jobs that are assigned later are not affected.
        held.on_assigned();
        assert_eq!(held.hold_if_uncertain(killed.clone(), now, false), None);
        // The worker is signaled first: then even a success counts as interrupted.
        assert_eq!(held.hold_if_uncertain(killed, now, true), Some(interrupted));
        let success = held.hold_if_uncertain(ended(ProcessExit::Code(0), AttemptEndCause::Itself), now, true);
        assert_eq!(success.unwrap().cause, AttemptEndCause::Stopped(StopReason::Interrupted));
    }
}
