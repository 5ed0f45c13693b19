//! Ends of jobs that may be the allocation's doing.
//!
//! Whoever ends an allocation signals all processes in it: the jobs, and this agent. It may hear of a job's death first. So
//! what looks like such a death is kept for a moment before it is called the job's own.

use std::time::{Duration, Instant};
use windlass_types::work::{EndCause, Ended, Exit, StopReason};

/// How long an end that looks like somebody's signal is kept.
const AFTER_SIGNAL: Duration = Duration::from_secs(2);
/// The same for one that a job may have chosen itself when it was signalled.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// After this nothing is in doubt any more.
pub(crate) const LONGEST: Duration = AFTER_SIGNAL;

const TERM: i32 = 15;
const KILL: i32 = 9;

/// How long it is in doubt whose fault this end is; `None`: it is not.
fn doubt(ended: &Ended) -> Option<Duration> {
    if ended.cause != EndCause::Itself {
        return None;
    }
    let is_signalled = |signal| ended.exit == Exit::Signal(signal) || ended.exit == Exit::Code(128 + signal);
    match ended.exit {
        Exit::Code(0) => None,
        _ if is_signalled(TERM) || is_signalled(KILL) => Some(AFTER_SIGNAL),
        _ => Some(AFTER_FAILURE),
    }
}

/// Those that wait for certainty.
#[derive(Debug, Default)]
pub(crate) struct Doubtful {
    waiting: Vec<(Instant, Ended)>,
}

impl Doubtful {
    /// Keeps it, if it is in doubt; otherwise gives it back.
    pub(crate) fn keep(&mut self, ended: Ended, now: Instant) -> Option<Ended> {
        match doubt(&ended) {
            Some(time) => {
                self.waiting.push((now + time, ended));
                None
            }
            None => Some(ended),
        }
    }

    /// When the next one is certain.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    /// Those that are certain by now: the allocation is being ended, or enough time went by without that.
    pub(crate) fn release(&mut self, now: Instant, is_being_ended: bool) -> Vec<Ended> {
        let (certain, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(at, _)| is_being_ended || *at <= now);
        self.waiting = waiting;
        let certain: Vec<(Instant, Ended)> = certain;
        let told = |(_, ended): (Instant, Ended)| {
            if is_being_ended {
                Ended { cause: EndCause::Stopped(StopReason::Interrupted), ..ended }
            } else {
                ended
            }
        };
        certain.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::work::{AttemptKey, Usage};
    use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

    fn ended(exit: Exit, cause: EndCause) -> Ended {
        Ended {
            key: AttemptKey { workflow: WorkflowId(1), job: JobId(1), run: RunId(1), attempt: Attempt(1) },
            started_at: Timestamp(0),
            ended_at: Timestamp(0),
            wall: Duration::ZERO,
            exit,
            cause,
            usage: Usage::default(),
            files: None,
            last_words: None,
            recovered: None,
        }
    }

    #[test]
    fn only_what_nobody_here_ordered_and_no_success_is_in_doubt() {
        for (exit, cause, expected) in [
            (Exit::Code(0), EndCause::Itself, None),
            (Exit::Code(1), EndCause::Itself, Some(AFTER_FAILURE)),
            (Exit::Code(143), EndCause::Itself, Some(AFTER_SIGNAL)),
            (Exit::Signal(15), EndCause::Itself, Some(AFTER_SIGNAL)),
            (Exit::Signal(9), EndCause::Itself, Some(AFTER_SIGNAL)),
            (Exit::Signal(11), EndCause::Itself, Some(AFTER_FAILURE)),
            (Exit::Signal(9), EndCause::OutOfMemory, None),
            (Exit::Signal(15), EndCause::Timeout, None),
            (Exit::Signal(15), EndCause::Stopped(StopReason::Canceled), None),
        ] {
            assert_eq!(doubt(&ended(exit, cause.clone())), expected, "{exit:?} {cause:?}");
        }
    }

    #[test]
    fn time_makes_it_the_jobs_own_and_the_end_of_the_allocation_does_not() {
        let now = Instant::now();
        let mut doubtful = Doubtful::default();
        let good = ended(Exit::Code(0), EndCause::Itself);
        assert_eq!(doubtful.keep(good.clone(), now), Some(good));
        let killed = ended(Exit::Signal(9), EndCause::Itself);
        assert_eq!(doubtful.keep(killed.clone(), now), None);
        assert_eq!(doubtful.release(now, false), []);
        assert_eq!(doubtful.due(), Some(now + AFTER_SIGNAL));
        assert_eq!(doubtful.release(now + AFTER_SIGNAL, false), std::slice::from_ref(&killed));
        doubtful.keep(killed.clone(), now);
        let interrupted = Ended { cause: EndCause::Stopped(StopReason::Interrupted), ..killed };
        assert_eq!(doubtful.release(now, true), [interrupted]);
        assert_eq!(doubtful.due(), None);
    }
}
