//! One slot and its state, with the pure decision of what is due next for a running job.

use crate::orphan_usage::OrphanUsage;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use windlass_process::usage_sample::UsageSummary;
use windlass_process::{Pid, Signal, cgroup};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptKey, AttemptLimits, StopReason, TerminationSettings,
};
use windlass_types::{Bytes, Timestamp};

/// Shorter jobs cost neither a sample nor a `Started` report.
pub(crate) const FIRST_SAMPLE_AFTER: Duration = Duration::from_millis(150);
/// Where only samples enforce a memory limit, they come early and often.
pub(crate) const MEMORY_LIMIT_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// The interval of checks while a job runs, even if nothing else is due: orphans may have to be reaped.
pub(crate) const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which SIGKILL is repeated, for processes born between listing and signaling.
const KILL_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Runs one job at a time, on a thread of its own.
#[derive(Debug)]
pub(crate) struct JobSlot {
    pub(crate) state: Mutex<SlotState>,
    /// The cgroup of the slot, if cgroups may be used. All jobs of the slot start in it, or (v2) those with a
    /// memory limit.
    pub(crate) cgroup: Option<cgroup::SlotCgroup>,
    /// The usage of orphans of the running job.
    pub(crate) orphan_usage: Mutex<OrphanUsage>,
}

impl JobSlot {
    pub(crate) fn new(state: SlotState, cgroup: Option<cgroup::SlotCgroup>) -> Self {
        Self { state: state.into(), cgroup, orphan_usage: Mutex::default() }
    }
}

#[derive(Debug)]
pub(crate) enum SlotState {
    Idle,
    /// Taken from the queue; its process is not known yet.
    Starting {
        key: AttemptKey,
        stop: Option<PendingStop>,
    },
    Running(Box<RunningAttempt>),
    /// Its first process has ended (and stays a zombie, so that its pid is not reused); its leftover processes
    /// are being ended.
    Ending {
        key: AttemptKey,
        kill_at: Instant,
        /// A stop requested in the meantime: nothing further of the same attempt runs in this slot.
        stop: Option<PendingStop>,
    },
}

#[derive(Debug)]
pub(crate) struct RunningAttempt {
    pub(crate) key: AttemptKey,
    pub(crate) pid: Pid,
    pub(crate) started: Instant,
    pub(crate) started_at: Timestamp,
    /// No process of this job is older (boot ticks).
    pub(crate) started_after: u64,
    pub(crate) limits: AttemptLimits,
    pub(crate) termination: Option<TerminationSettings>,
    /// Frozen since this time, because the lease has expired.
    pub(crate) frozen_since: Option<Instant>,
    /// How long it was frozen before.
    pub(crate) frozen_time: Duration,
    /// It was warned that its runtime will soon end.
    pub(crate) was_warned: bool,
    /// It runs elsewhere; only its launcher runs here.
    pub(crate) remote_launch: Option<LaunchedJob>,
    /// Its slot's cgroup holds only its processes.
    pub(crate) in_cgroup: bool,
    /// The peak memory of the cgroup was reset when it started.
    pub(crate) peak_is_its_own: bool,
    /// The most page cache that a sample found in the cgroup.
    pub(crate) page_cache: Bytes,
    /// Out-of-memory kills in that cgroup before it started.
    pub(crate) oom_kills: u64,
    pub(crate) is_start_reported: bool,
    pub(crate) sample_interval: Duration,
    /// `None`: not measured.
    pub(crate) next_sample: Option<Instant>,
    pub(crate) series: UsageSummary,
    pub(crate) stop: Option<PendingStop>,
}

/// When a job is sampled again: more often while it is young, so that a short job has more than one sample.
pub(crate) fn next_sample(started: Instant, now: Instant, interval: Duration) -> Instant {
    let age = now.saturating_duration_since(started).max(FIRST_SAMPLE_AFTER);
    now + interval.min(age)
}

/// A job that a launcher here runs elsewhere. Killing the launcher would leave the job behind; on a request to
/// end, the launcher kills the job first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchedJob {
    pub(crate) is_canceled: bool,
}

/// A stop of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingStop {
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

impl From<StopCause> for AttemptEndCause {
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
pub(crate) enum SupervisorAction {
    /// Report that it has started.
    ReportStart,
    Sample,
    /// Warn it that its runtime will soon end.
    Warn,
    /// Its runtime has ended.
    TimeOut,
    Kill,
}

impl SlotState {
    /// The attempt in this slot.
    pub(crate) fn key(&self) -> Option<&AttemptKey> {
        match self {
            Self::Idle => None,
            Self::Starting { key, .. } | Self::Ending { key, .. } => Some(key),
            Self::Running(running) => Some(&running.key),
        }
    }
}

impl RunningAttempt {
    /// The next action and its time.
    pub(crate) fn next_action(&self) -> Option<(Instant, SupervisorAction)> {
        if let Some(stop) = &self.stop {
            return Some((stop.kill_at, SupervisorAction::Kill));
        }
        if self.frozen_since.is_some() {
            return None;
        }
        let timeout = self.limits.runtime.and_then(|runtime| self.effective_start().checked_add(runtime));
        let tell = (!self.is_start_reported).then(|| self.started + FIRST_SAMPLE_AFTER);
        [
            (self.warning_time(), SupervisorAction::Warn),
            (timeout, SupervisorAction::TimeOut),
            (tell, SupervisorAction::ReportStart),
            (self.next_sample, SupervisorAction::Sample),
        ]
        .into_iter()
        .filter_map(|(at, act)| Some((at?, act)))
        .min_by_key(|(at, _)| *at)
    }

    /// When to warn that the runtime will soon end; not before half of the runtime.
    fn warning_time(&self) -> Option<Instant> {
        let runtime = self.limits.runtime?;
        let lead = self.termination?.lead?.min(runtime / 2);
        if self.was_warned { None } else { self.effective_start().checked_add(runtime.saturating_sub(lead)) }
    }

    /// The start time, moved by the time that the job was frozen.
    fn effective_start(&self) -> Instant {
        self.started + self.frozen_time
    }

    /// How long it has run, without the time that it was frozen.
    pub(crate) fn run_time_until(&self, end: Instant) -> Duration {
        self.frozen_since
            .map_or(end, |since| since.min(end))
            .saturating_duration_since(self.effective_start())
    }

    /// Continues the runtime; returns whether it was frozen.
    pub(crate) fn thaw(&mut self, now: Instant) -> bool {
        let Some(since) = self.frozen_since.take() else { return false };
        self.frozen_time += now.saturating_duration_since(since);
        true
    }

    /// The signal that asks it to end.
    pub(crate) fn termination_signal(&self) -> Signal {
        self.termination.and_then(|how| Signal::from_named_raw(how.signal)).unwrap_or(Signal::TERM)
    }

    /// The grace period between SIGTERM and SIGKILL after a timeout; zero if the job was warned before.
    pub(crate) fn grace_after_timeout(&self, usual: Duration) -> Duration {
        if self.was_warned { Duration::ZERO } else { usual }
    }

    /// Only samples enforce its memory limit, because the cgroup failed.
    pub(crate) fn sample_for_memory_limit(&mut self, now: Instant) {
        self.sample_interval = self.sample_interval.min(MEMORY_LIMIT_SAMPLE_INTERVAL);
        let soon = now + self.sample_interval;
        self.next_sample = Some(self.next_sample.map_or(soon, |next| next.min(soon)));
    }

    pub(crate) fn schedule_kill_retry(&mut self, now: Instant) {
        if let Some(stop) = &mut self.stop {
            stop.kill_at = now + KILL_RETRY_INTERVAL;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::WorkerOptions;
    use crate::worker_process::WorkerState;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use windlass_process::spawn::{EnvironmentAdditions, SpawnParameters};
    use windlass_types::{Attempt, Capacity, JobId, RunId, WorkflowId};

    const MS: Duration = Duration::from_millis(1);

    /// A worker without an engine, whose threads do not run.
    pub(crate) fn worker(path: &Path) -> WorkerState {
        let capacity = Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: 1, max_jobs: None };
        let mut options = WorkerOptions::new(capacity, path.into(), path.into(), path.join("l"), "t".into());
        options.cgroups = false;
        WorkerState::new(options, UnixStream::pair().unwrap().0).unwrap()
    }

    /// A process of a job, as the worker starts it.
    pub(crate) fn spawn(worker: &WorkerState, command: &str) -> Pid {
        let context = worker.contexts.lock().unwrap().find_context(WorkflowId(1)).unwrap();
        let launch = SpawnParameters {
            command,
            launcher: &[],
            environment: &context.environment,
            additions: &EnvironmentAdditions::default(),
            stdout: context.spawner.dev_null(),
            stderr: context.spawner.dev_null(),
            enter: None,
        };
        context.spawner.spawn(&launch).unwrap()
    }

    pub(crate) fn running(started: Instant, runtime: Option<Duration>) -> RunningAttempt {
        RunningAttempt {
            key: AttemptKey {
                workflow: WorkflowId(1),
                job: JobId(1),
                run: RunId(1),
                attempt: Attempt::FIRST,
            },
            pid: Pid::INIT,
            started,
            started_at: Timestamp(0),
            started_after: 0,
            limits: AttemptLimits { memory: None, runtime },
            termination: None,
            frozen_since: None,
            frozen_time: Duration::ZERO,
            was_warned: false,
            remote_launch: None,
            in_cgroup: false,
            peak_is_its_own: false,
            page_cache: Bytes(0),
            oom_kills: 0,
            is_start_reported: false,
            sample_interval: Duration::from_secs(1),
            next_sample: Some(started + FIRST_SAMPLE_AFTER),
            series: UsageSummary::new(started),
            stop: None,
        }
    }

    #[test]
    fn actions_are_due_in_order_of_time() {
        let start = Instant::now();
        let mut job = running(start, Some(200 * MS));
        assert_eq!(job.next_action(), Some((start + FIRST_SAMPLE_AFTER, SupervisorAction::ReportStart)));
        job.is_start_reported = true;
        assert_eq!(job.next_action(), Some((start + FIRST_SAMPLE_AFTER, SupervisorAction::Sample)));
        job.next_sample = Some(start + 1150 * MS);
        assert_eq!(job.next_action(), Some((start + 200 * MS, SupervisorAction::TimeOut)));
        job.stop = Some(PendingStop { cause: StopCause::Timeout, kill_at: start + 10_200 * MS });
        assert_eq!(job.next_action(), Some((start + 10_200 * MS, SupervisorAction::Kill)));
        job.schedule_kill_retry(start + 10_200 * MS);
        assert_eq!(job.next_action(), Some((start + 10_300 * MS, SupervisorAction::Kill)));
    }

    #[test]
    fn frozen_time_does_not_count_as_runtime() {
        let start = Instant::now();
        let mut job = running(start, Some(200 * MS));
        (job.is_start_reported, job.next_sample) = (true, None);
        job.frozen_since = Some(start + 50 * MS);
        assert_eq!((job.next_action(), job.run_time_until(start + 900 * MS)), (None, 50 * MS));
        assert!(job.thaw(start + 1050 * MS) && !job.thaw(start + 1060 * MS));
        assert_eq!(job.next_action(), Some((start + 1200 * MS, SupervisorAction::TimeOut)));
        assert_eq!(job.run_time_until(start + 1100 * MS), 100 * MS);
        job.frozen_since = Some(start + 1100 * MS);
        job.stop = Some(PendingStop { cause: StopCause::Timeout, kill_at: start });
        assert_eq!(
            job.next_action(),
            Some((start, SupervisorAction::Kill)),
            "a job that was asked to end is killed all the same"
        );
    }

    #[test]
    fn a_short_runtime_ends_before_the_first_sample() {
        let start = Instant::now();
        assert_eq!(
            running(start, Some(50 * MS)).next_action(),
            Some((start + 50 * MS, SupervisorAction::TimeOut))
        );
    }

    #[test]
    fn a_runtime_beyond_the_clock_range_is_no_limit() {
        let start = Instant::now();
        let mut job = running(start, Some(Duration::MAX));
        job.is_start_reported = true;
        assert_eq!(job.next_action(), Some((start + FIRST_SAMPLE_AFTER, SupervisorAction::Sample)));
    }

    #[test]
    fn a_job_without_measurement_or_limits_has_nothing_due_after_its_start_report() {
        let mut job = running(Instant::now(), None);
        (job.is_start_reported, job.next_sample) = (true, None);
        assert_eq!(job.next_action(), None);
    }

    #[test]
    fn a_warning_comes_before_the_timeout_but_not_before_half_of_it() {
        let start = Instant::now();
        let grace = 10_000 * MS;
        for (lead, at) in [(30 * MS, 70 * MS), (90 * MS, 50 * MS)] {
            let mut job = running(start, Some(100 * MS));
            job.termination = Some(TerminationSettings { signal: 10, lead: Some(lead) });
            assert_eq!(job.next_action(), Some((start + at, SupervisorAction::Warn)));
            assert_eq!(job.termination_signal(), Signal::USR1);
            job.was_warned = true;
            assert_eq!(job.next_action(), Some((start + 100 * MS, SupervisorAction::TimeOut)));
            assert_eq!(job.grace_after_timeout(grace), Duration::ZERO);
        }
        let unwarned = running(start, Some(100 * MS));
        assert_eq!(
            (unwarned.termination_signal(), unwarned.grace_after_timeout(grace)),
            (Signal::TERM, grace)
        );
    }
}
