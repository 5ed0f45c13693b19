//! One slot and what it is doing, with the pure decision of what is due next for a running job.

use std::sync::Mutex;
use std::time::{Duration, Instant};
use windlass_proc::sample::Series;
use windlass_proc::{Pid, cgroup};
use windlass_types::Timestamp;
use windlass_types::work::{AttemptKey, EndCause, Limits, StopReason};

/// Jobs that are over before this never cost a sample or a `Started`.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(150);
/// With only samples to keep a memory limit, they come early and often.
pub(crate) const CLOSE_WATCH: Duration = Duration::from_millis(100);
/// How often SIGKILL is repeated, for what was born between the look and the signal.
const KILL_AGAIN: Duration = Duration::from_millis(100);

/// A thread's place to run one job at a time.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: Mutex<State>,
    /// Its own, if cgroups may be used. All jobs of the slot are born in it, or (v2) those with a memory limit.
    pub(crate) cgroup: Option<cgroup::Slot>,
}

#[derive(Debug)]
pub(crate) enum State {
    Idle,
    /// Taken from the queue; no process yet that we know of.
    Starting {
        key: AttemptKey,
        stop: Option<Stop>,
    },
    Running(Box<Running>),
    /// Its first process is over (and still a zombie, so that nobody gets its pid); what it left is being ended.
    Leaving {
        kill_at: Instant,
    },
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) key: AttemptKey,
    pub(crate) pid: Pid,
    pub(crate) started: Instant,
    pub(crate) started_at: Timestamp,
    /// No process of this job is older (boot ticks).
    pub(crate) born_after: u64,
    pub(crate) limits: Limits,
    /// Its slot's cgroup holds it and nothing else.
    pub(crate) in_cgroup: bool,
    /// Kills for lack of memory in that cgroup before it started.
    pub(crate) oom_kills: u64,
    pub(crate) told: bool,
    pub(crate) sample_every: Duration,
    pub(crate) next_sample: Instant,
    pub(crate) series: Series,
    pub(crate) stop: Option<Stop>,
}

/// A job that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) cause: StopCause,
    /// When SIGKILL is due (again).
    pub(crate) kill_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    Timeout,
    OutOfMemory,
    Engine(StopReason),
}

impl From<StopCause> for EndCause {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::Timeout => Self::Timeout,
            StopCause::OutOfMemory => Self::OutOfMemory,
            StopCause::Engine(why) => Self::Stopped(why),
        }
    }
}

/// What the supervisor does for a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Report that it has started.
    Tell,
    Sample,
    /// Its runtime is over.
    TimeOut,
    Kill,
}

impl Running {
    /// The next thing to do and when.
    pub(crate) fn next_act(&self) -> (Instant, Act) {
        if let Some(stop) = &self.stop {
            return (stop.kill_at, Act::Kill);
        }
        let timeout = self.limits.runtime.and_then(|runtime| self.started.checked_add(runtime));
        let tell = (!self.told).then(|| self.started + FIRST_LOOK);
        [(timeout, Act::TimeOut), (tell, Act::Tell), (Some(self.next_sample), Act::Sample)]
            .into_iter()
            .filter_map(|(at, act)| Some((at?, act)))
            .min_by_key(|(at, _)| *at)
            .unwrap_or((self.next_sample, Act::Sample))
    }

    /// Its memory limit is kept by samples alone, as it turned out.
    pub(crate) fn watch_closely(&mut self, now: Instant) {
        self.sample_every = self.sample_every.min(CLOSE_WATCH);
        self.next_sample = self.next_sample.min(now + self.sample_every);
    }

    pub(crate) fn killed(&mut self, now: Instant) {
        if let Some(stop) = &mut self.stop {
            stop.kill_at = now + KILL_AGAIN;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use windlass_types::{Attempt, JobId, RunId, WorkflowId};

    const MS: Duration = Duration::from_millis(1);

    pub(crate) fn running(started: Instant, runtime: Option<Duration>) -> Running {
        Running {
            key: AttemptKey {
                workflow: WorkflowId(1),
                job: JobId(1),
                run: RunId(1),
                attempt: Attempt::FIRST,
            },
            pid: Pid::INIT,
            started,
            started_at: Timestamp(0),
            born_after: 0,
            limits: Limits { memory: None, runtime },
            in_cgroup: false,
            oom_kills: 0,
            told: false,
            sample_every: Duration::from_secs(1),
            next_sample: started + FIRST_LOOK,
            series: Series::new(started),
            stop: None,
        }
    }

    #[test]
    fn things_fall_due_in_the_order_of_their_times() {
        let start = Instant::now();
        let mut job = running(start, Some(200 * MS));
        assert_eq!(job.next_act(), (start + FIRST_LOOK, Act::Tell));
        job.told = true;
        assert_eq!(job.next_act(), (start + FIRST_LOOK, Act::Sample));
        job.next_sample = start + 1150 * MS;
        assert_eq!(job.next_act(), (start + 200 * MS, Act::TimeOut));
        job.stop = Some(Stop { cause: StopCause::Timeout, kill_at: start + 10_200 * MS });
        assert_eq!(job.next_act(), (start + 10_200 * MS, Act::Kill));
        job.killed(start + 10_200 * MS);
        assert_eq!(job.next_act(), (start + 10_300 * MS, Act::Kill));
    }

    #[test]
    fn a_short_runtime_is_over_before_the_first_look() {
        let start = Instant::now();
        assert_eq!(running(start, Some(50 * MS)).next_act(), (start + 50 * MS, Act::TimeOut));
    }

    #[test]
    fn a_runtime_beyond_all_clocks_is_no_limit() {
        let start = Instant::now();
        let mut job = running(start, Some(Duration::MAX));
        job.told = true;
        assert_eq!(job.next_act().1, Act::Sample);
    }
}
