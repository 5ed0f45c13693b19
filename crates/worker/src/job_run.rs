//! One job in a slot, from its logs to its report.

use crate::environment::GrantedEnvironment;
use crate::job_queue::GrantedJob;
use crate::job_slot::{
    FIRST_SAMPLE_AFTER, JobSlot, LaunchedJob, MAX_CHECK_INTERVAL, MEMORY_LIMIT_SAMPLE_INTERVAL, PendingStop,
    RunningAttempt, SlotState, StopCause,
};
use crate::lease::unfreeze_group;
use crate::logs::{AttemptLogs, SpareLogs};
use crate::step_measurement::StepUsageFiles;
use crate::worker_process::WorkerState;
use crate::workflow_context::WorkflowContext;
use crate::{environment, launched_jobs, lock_ignoring_poison, step_measurement};
use std::borrow::Cow;
use std::io::Write as _;
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use windlass_process::child_wait::{self, ReapedChild};
use windlass_process::ledger::OpenLedgerRecord;
use windlass_process::spawn::{self, EnvironmentAdditions, SpawnParameters};
use windlass_process::usage_sample::{self, FinalUsage, UsageSummary};
use windlass_process::{Pid, cgroup, process_identity};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptEndReport, AttemptFiles, AttemptLimits, AttemptReport, AttemptUsage,
    FileSnapshot, ProcessExit, RecoveryScript, RecoveryScriptResult, ReturnReason, return_code,
};
use windlass_types::{Bytes, Timestamp, log_attempt};

/// State that the thread of a slot keeps from job to job.
#[derive(Debug)]
pub(crate) struct SlotContext {
    variables: EnvironmentAdditions,
    spare_logs: SpareLogs,
    /// The thread itself is in its slot's cgroup, and so are all its jobs.
    in_cgroup: bool,
    /// Out-of-memory kills in that cgroup that were already attributed to a job.
    oom_kills: u64,
}

impl SlotContext {
    /// Creates the state; called on the slot's own thread.
    pub(crate) fn new(slot: &JobSlot) -> Self {
        let in_cgroup = slot.cgroup.as_ref().is_some_and(|group| matches!(group.enter_thread(), Ok(true)));
        Self {
            variables: EnvironmentAdditions::default(),
            spare_logs: SpareLogs::default(),
            in_cgroup,
            oom_kills: 0,
        }
    }

    /// Cleans up when the slot closes.
    pub(crate) fn close(&mut self) {
        self.spare_logs.discard();
    }

    /// Whether the kernel killed a process in the slot's cgroup for lack of memory since the last call.
    fn take_oom_kill(&mut self, slot: &JobSlot) -> bool {
        let Some(group) = &slot.cgroup else { return false };
        let kills = group.oom_kills();
        mem::replace(&mut self.oom_kills, kills) < kills
    }
}

/// Why a job has no process.
enum StartFailure {
    Withdrawn,
    /// A problem of this worker, not of the job.
    MachineProblem(String),
    JobProblem(String),
}

/// A running job, as its own slot sees it.
struct StartedJob {
    pid: Pid,
    record: OpenLedgerRecord,
    logs: AttemptLogs,
    /// The states of its input files before it started.
    inputs: Vec<Option<FileSnapshot>>,
    /// The kernel enforces its memory limit.
    has_cgroup_limit: bool,
    /// The files with the usage of a job that runs and is measured elsewhere.
    step_usage: Option<StepUsageFiles>,
}

/// A process to run in a slot: a job, or the recovery script before it.
#[derive(Clone, Copy)]
struct SlotTask<'a> {
    assignment: &'a Assignment,
    context: &'a WorkflowContext,
    devices: &'a [u32],
    /// The failure, if this is its recovery script and not the job.
    recovery: Option<&'a RecoveryScript>,
}

/// The files and logs of a job before it has a process.
struct StartRecord {
    started: Instant,
    started_at: Timestamp,
    started_after: u64,
    has_cgroup_limit: bool,
    in_cgroup: bool,
    peak_is_its_own: bool,
    oom_kills: u64,
}

impl WorkerState {
    /// Runs one job to its end, after the recovery script for an earlier failure if there is one.
    pub(crate) fn run_job(
        self: &Arc<Self>,
        slot: &JobSlot,
        slot_context: &mut SlotContext,
        work: &GrantedJob,
    ) -> AttemptReport {
        let GrantedJob { assignment, context, grant } = work;
        let key = assignment.key;
        let job = SlotTask { assignment, context, devices: &grant.devices, recovery: None };
        let outcome = self.run_recovery(slot, slot_context, job).and_then(|recovered| {
            let ended = match self.start_job(slot, slot_context, job) {
                Ok(started) => self.wait_for_end(slot, slot_context, job, started),
                Err(StartFailure::JobProblem(text)) => never_started_end(assignment, self.clock.now(), text),
                Err(other) => return Err(other),
            };
            Ok(AttemptEndReport { recovered, ..ended })
        });
        match outcome {
            Ok(ended) => AttemptReport::Ended(ended),
            Err(StartFailure::Withdrawn) => AttemptReport::Returned { key, why: ReturnReason::Recalled },
            Err(StartFailure::MachineProblem(text) | StartFailure::JobProblem(text)) => {
                AttemptReport::Returned { key, why: ReturnReason::WorkerTrouble(text) }
            }
        }
    }

    /// Runs the recovery script of an assignment, if any. The job follows regardless of its exit code, unless
    /// it was stopped or the worker has a problem.
    fn run_recovery(
        &self,
        slot: &JobSlot,
        slot_context: &mut SlotContext,
        job: SlotTask<'_>,
    ) -> Result<Option<Box<RecoveryScriptResult>>, StartFailure> {
        let Some(recovery) = job.assignment.recovery.as_deref() else { return Ok(None) };
        let assignment = Assignment {
            limits: AttemptLimits { runtime: Some(recovery.limit), ..job.assignment.limits },
            env: job.assignment.env.clone(),
            params: job.assignment.params.clone(),
            asked_for_resources: job.assignment.asked_for_resources,
            launcher: job.assignment.launcher.clone(),
            ..Assignment::from_command(
                job.assignment.key,
                job.assignment.name.clone(),
                RecoveryScript::COMMAND.to_owned(),
                job.assignment.resources,
            )
        };
        let task = SlotTask { assignment: &assignment, recovery: Some(recovery), ..job };
        let recovered = match self.start_job(slot, slot_context, task) {
            Ok(started) => {
                let ended = self.wait_for_end(slot, slot_context, task, started);
                match ended.cause {
                    AttemptEndCause::Stopped(_) => return Err(StartFailure::Withdrawn),
                    AttemptEndCause::Timeout => RecoveryScriptResult::TimedOut { limit: recovery.limit },
                    _ => RecoveryScriptResult::Ended { exit: ended.exit, wall: ended.wall },
                }
            }
            Err(StartFailure::JobProblem(text)) => RecoveryScriptResult::CannotStart(text),
            Err(other) => return Err(other),
        };
        reset_slot_to_starting(slot, job.assignment);
        Ok(Some(Box::new(recovered)))
    }

    fn start_job(
        &self,
        slot: &JobSlot,
        slot_context: &mut SlotContext,
        task: SlotTask<'_>,
    ) -> Result<StartedJob, StartFailure> {
        let SlotTask { assignment, context, .. } = task;
        if matches!(&*lock_ignoring_poison(&slot.state), SlotState::Starting { stop: Some(_), .. }) {
            return Err(StartFailure::Withdrawn);
        }
        let trouble = |error: &dyn std::error::Error| StartFailure::MachineProblem(error.to_string());
        let logs = match task.recovery {
            None => {
                context.logs.open_logs(&assignment.key, assignment.stdio.mode, &mut slot_context.spare_logs)
            }
            Some(recovery) => context.logs.open_recovery(&assignment.key, recovery),
        };
        let mut logs = logs.map_err(|error| trouble(&error))?;
        if has_launcher(assignment) {
            logs.capture_launcher_stderr().map_err(|error| trouble(&error))?;
        }
        let given = GrantedEnvironment {
            devices: &self.device_ids(task.devices),
            has_gpus: !self.devices.is_empty(),
            recovery: task.recovery,
            deadline: assignment.limits.runtime.map(|runtime| self.clock.now().plus(runtime)),
            is_thread_count_unset: self.is_thread_count_unset,
        };
        environment::add_job_variables(&mut slot_context.variables, assignment, &given);
        let inputs = context.files.inspect_files(&assignment.input_files, assignment.hash_files);
        let record = self.ledger.open_record(assignment.key).map_err(|error| trouble(&error))?;
        let group =
            slot.cgroup.as_ref().filter(|group| slot_context.in_cgroup || group.entry_file().is_some());
        let group = group.filter(|_| !has_launcher(assignment));
        let bound = set_cgroup_limit(group, assignment.limits.memory);

        let peak_is_its_own = group.is_some_and(cgroup::SlotCgroup::reset_peak);
        let start_record = StartRecord {
            peak_is_its_own,
            started: Instant::now(),
            started_at: self.clock.now(),
            started_after: process_identity::boot_ticks(),
            has_cgroup_limit: bound,
            in_cgroup: bound || slot_context.in_cgroup,
            oom_kills: slot_context.oom_kills,
        };
        let (launcher, notes) = self.launcher_words(task);
        match spawn_process(task, &launcher, slot_context, &logs, if bound { group } else { None }) {
            Ok(pid) => {
                log_attempt!(debug, assignment.key, %pid, is_recovery_script = task.recovery.is_some(), "process started");
                // Without the pid in the ledger the job is still found by its environment.
                self.ledger.record_started(&record, pid).ok();
                self.register_running(slot, task, pid, &start_record);
                Ok(StartedJob { pid, record, logs, inputs, has_cgroup_limit: bound, step_usage: notes })
            }
            Err(error) => {
                log_attempt!(debug, assignment.key, %error, "process cannot be started");
                self.ledger.discard_record(record);
                clear_cgroup_limit(group, bound);
                Err(classify_spawn_error(&error, &logs))
            }
        }
    }

    /// Registers the job with the supervisor, and ends or freezes it if that was requested while it started.
    fn register_running(&self, slot: &JobSlot, task: SlotTask<'_>, pid: Pid, start_record: &StartRecord) {
        let SlotTask { assignment, context, .. } = task;
        let StartRecord {
            started,
            started_at,
            started_after,
            has_cgroup_limit: bound,
            in_cgroup,
            peak_is_its_own,
            oom_kills,
        } = *start_record;
        // The launcher itself uses next to nothing.
        let limits = if has_launcher(assignment) {
            AttemptLimits { memory: None, ..assignment.limits }
        } else {
            assignment.limits
        };
        let watched = limits.memory.is_some() && !bound;
        let (sample_every, first) = match (watched, context.measure_jobs) {
            _ if has_launcher(assignment) => (context.sample_interval, None),
            (true, _) => (MEMORY_LIMIT_SAMPLE_INTERVAL, Some(MEMORY_LIMIT_SAMPLE_INTERVAL)),
            (false, true) => (context.sample_interval, Some(FIRST_SAMPLE_AFTER)),
            // The kernel enforces the limit; a sample shows whether the job lost a process.
            (false, false) => (context.sample_interval, limits.memory.map(|_| FIRST_SAMPLE_AFTER)),
        };
        let mut running = RunningAttempt {
            key: assignment.key,
            pid,
            started,
            started_at,
            started_after,
            limits,
            termination: assignment.termination,
            frozen_since: None,
            frozen_time: Duration::ZERO,
            was_warned: false,
            remote_launch: has_launcher(assignment).then(LaunchedJob::default),
            in_cgroup,
            peak_is_its_own,
            page_cache: Bytes(0),
            oom_kills,
            is_start_reported: false,
            sample_interval: sample_every,
            next_sample: first.map(|first| started + first),
            series: UsageSummary::new(started),
            stop: None,
        };
        lock_ignoring_poison(&slot.orphan_usage).start_job(pid);
        let mut state = lock_ignoring_poison(&slot.state);
        if let SlotState::Starting { stop: Some(stop), .. } = &*state {
            let grace = stop.kill_at.saturating_duration_since(Instant::now());
            self.stop_running(slot, &mut running, stop.cause, grace);
        }
        if self.lease.is_over() {
            self.freeze_running(slot, &mut running);
        }
        let due = running
            .next_action()
            .map_or(started + MAX_CHECK_INTERVAL, |(at, _)| at.min(started + MAX_CHECK_INTERVAL));
        *state = SlotState::Running(Box::new(running));
        drop(state);
        self.alarm.wake_at(due);
    }

    /// Waits for the end of a job, cleans up after it, and returns its outcome.
    fn wait_for_end(
        &self,
        slot: &JobSlot,
        slot_context: &mut SlotContext,
        task: SlotTask<'_>,
        started: StartedJob,
    ) -> AttemptEndReport {
        let assignment = task.assignment;
        // Fails only if another thread reaped the child, which none does.
        child_wait::wait_until_over(started.pid).ok();
        let (over, ended_at) = (Instant::now(), self.clock.now());
        let running = self.unregister_running(slot, over);
        let left_nothing = self.adopted.is_empty();
        if !left_nothing {
            self.end_leftovers(slot, &assignment.key, started.pid);
        }
        let reaped = child_wait::reap_child(started.pid).unwrap_or(ReapedChild {
            exit: ProcessExit::Signal(9),
            cpu_time: Duration::ZERO,
            max_rss: Bytes(0),
        });
        self.ledger.close_record(started.record);
        clear_cgroup_limit(slot.cgroup.as_ref(), started.has_cgroup_limit);
        let ran_out = slot_context.take_oom_kill(slot);

        let wall = running.run_time_until(over);
        // Wait until another thread has counted the orphans that it reaps.
        drop(lock_ignoring_poison(&self.reaping_lock));
        let orphans = lock_ignoring_poison(&slot.orphan_usage).take_totals();
        let cpu_time = reaped.cpu_time.saturating_add(orphans.cpu_time);
        let largest_process = self.trusted_peak(reaped.max_rss).max(nonzero(orphans.max_rss));
        let peak_rss = largest_process.max(cgroup_peak(slot, &running));
        let end = FinalUsage { wall, cpu_time, peak_rss };
        let cause = classify_end(&running, ran_out, reaped.exit);
        let seen = started.step_usage.as_ref().and_then(StepUsageFiles::take_usage).unwrap_or_default();
        let cause = if has_launcher(assignment)
            && cause == AttemptEndCause::Itself
            && reaped.exit != ProcessExit::Code(0)
        {
            let words = started.logs.error_tail(&environment::build_redactor(assignment));
            launched_jobs::classify_launcher_end(words.as_deref(), seen.ran_out)
        } else {
            cause
        };
        let (cause, files) = inspect_outputs(task, cause, reaped.exit, started.inputs);
        let succeeded = cause == AttemptEndCause::Itself && reaped.exit == ProcessExit::Code(0);
        let failed = !succeeded && !matches!(cause, AttemptEndCause::Stopped(_));
        let mut last_words = None;
        if task.recovery.is_some() {
            // Deletes the log, if empty, instead of keeping it as a spare.
            let delete = left_nothing && started.logs.are_empty();
            started.logs.finish(None, delete);
        } else {
            let words = || started.logs.error_tail(&environment::build_redactor(assignment));
            last_words = failed.then(words).flatten();
            let delete = succeeded && assignment.stdio.delete_on_success;
            started.logs.finish(left_nothing.then_some(&mut slot_context.spare_logs), delete);
        }
        AttemptEndReport {
            key: assignment.key,
            started_at: running.started_at,
            ended_at,
            wall,
            exit: reaped.exit,
            cause,
            usage: if has_launcher(assignment) { seen.usage } else { running.series.summarize_usage(&end) },
            files,
            last_words,
            recovered: None,
        }
    }

    /// From here on only the job's own slot signals it.
    fn unregister_running(&self, slot: &JobSlot, now: Instant) -> Box<RunningAttempt> {
        let mut state = lock_ignoring_poison(&slot.state);
        match mem::replace(&mut *state, SlotState::Idle) {
            SlotState::Running(running) => {
                let frozen = running.frozen_since.is_some();
                let grace = if frozen { Duration::ZERO } else { self.options.leftover_grace };
                let kill_at = running.stop.map_or(now + grace, |stop| stop.kill_at);
                *state = SlotState::Ending { key: running.key, kill_at, stop: None };
                if frozen {
                    unfreeze_group(slot);
                }
                running
            }
            other => unreachable!("only its own slot ends a running job: {other:?}"),
        }
    }

    /// The peak of the largest among the first process and the descendants it waited for, if it can be
    /// distinguished from our own. That only grows, so it is read again only if the value is above the last
    /// one.
    fn trusted_peak(&self, max_rss: Bytes) -> Option<Bytes> {
        let known = Bytes(self.own_peak_memory.load(Ordering::Relaxed));
        usage_sample::peak_if_trusted(max_rss, known)?;
        let own = usage_sample::own_peak_rss()?;
        self.own_peak_memory.store(own.0, Ordering::Relaxed);
        usage_sample::peak_if_trusted(max_rss, own)
    }

    /// The words of the launcher, and the files in which its tasks leave their usage. Recovery scripts are not
    /// measured.
    fn launcher_words<'a>(&self, task: SlotTask<'a>) -> (Cow<'a, [String]>, Option<StepUsageFiles>) {
        let SlotTask { assignment, context, recovery, .. } = task;
        let plain = (Cow::Borrowed(&*assignment.launcher), None);
        let Some(program) = self.options.program.as_ref().filter(|_| recovery.is_none()) else {
            return plain;
        };
        if !has_launcher(assignment) {
            return plain;
        }
        let (logs, tasks) = (context.logs.directory(), assignment.resources.nodes.max(1));
        step_measurement::remove_stale_files(logs, &assignment.key, tasks);
        // Unique for each launch, on all machines.
        let mark = format!("{}-{}", self.clock.now().0, std::process::id());
        let notes = StepUsageFiles::new(logs, &assignment.key, mark, tasks);
        match notes.measuring_command(program, context.measure_jobs.then_some(context.sample_interval)) {
            Some(words) => ([&*assignment.launcher, &words].concat().into(), Some(notes)),
            None => plain,
        }
    }

    fn device_ids(&self, granted: &[u32]) -> Vec<&str> {
        granted.iter().map(|index| self.devices[*index as usize].as_str()).collect()
    }
}

/// Up to this peak the page cache is not subtracted: reading its size takes as long as a job of this size.
const SMALL_PEAK: Bytes = Bytes(4 << 20);

/// The peak of all processes of a job together, from its cgroup. The kernel counts the page cache in; the most
/// that is known of it is subtracted.
fn cgroup_peak(slot: &JobSlot, running: &RunningAttempt) -> Option<Bytes> {
    let group = slot.cgroup.as_ref().filter(|_| running.in_cgroup && running.peak_is_its_own)?;
    let peak = group.peak_memory()?;
    if peak <= SMALL_PEAK {
        return nonzero(peak);
    }
    let page_cache = group.memory()?.page_cache.max(running.page_cache);
    nonzero(Bytes(peak.0.saturating_sub(page_cache.0)))
}

fn nonzero(amount: Bytes) -> Option<Bytes> {
    (amount > Bytes(0)).then_some(amount)
}

/// Whether the job is started elsewhere by a launcher.
const fn has_launcher(assignment: &Assignment) -> bool {
    !assignment.launcher.is_empty()
}

/// The job follows its recovery script in the same slot; a stop requested in between still applies.
fn reset_slot_to_starting(slot: &JobSlot, assignment: &Assignment) {
    let mut state = lock_ignoring_poison(&slot.state);
    let stop = match &*state {
        SlotState::Ending { stop, .. } | SlotState::Starting { stop, .. } => *stop,
        SlotState::Idle | SlotState::Running(_) => None,
    };
    *state = SlotState::Starting { key: assignment.key, stop };
}

fn spawn_process(
    task: SlotTask<'_>,
    launcher: &[String],
    slot_context: &SlotContext,
    logs: &AttemptLogs,
    group: Option<&cgroup::SlotCgroup>,
) -> Result<Pid, spawn::SpawnError> {
    let enter = group.and_then(cgroup::SlotCgroup::entry_file);
    let spawner = &task.context.spawner;
    spawner.spawn(&SpawnParameters {
        command: &task.assignment.command,
        launcher,
        environment: &task.context.environment,
        additions: &slot_context.variables,
        stdout: logs.output_log().map_or(spawner.dev_null(), |file| file.as_fd()),
        stderr: logs.error_log().map_or(spawner.dev_null(), |file| file.as_fd()),
        enter: enter.as_deref(),
    })
}

/// The outputs of an attempt that succeeded are inspected at once: for missing files and for their states.
fn inspect_outputs(
    task: SlotTask<'_>,
    cause: AttemptEndCause,
    exit: ProcessExit,
    inputs: Vec<Option<FileSnapshot>>,
) -> (AttemptEndCause, Option<Box<AttemptFiles>>) {
    let SlotTask { assignment, context, .. } = task;
    let outputs = &assignment.output_files;
    if inputs.is_empty() && outputs.is_empty() {
        return (cause, None);
    }
    if cause != AttemptEndCause::Itself || exit != ProcessExit::Code(0) {
        return (cause, Some(Box::new(AttemptFiles { inputs, outputs: Vec::new() })));
    }
    let seen = context.files.inspect_files(outputs, assignment.hash_files);
    let missing = outputs.iter().zip(&seen).filter(|(_, state)| state.is_none());
    let missing: Vec<String> = missing.map(|(path, _)| path.clone()).collect();
    let cause = if missing.is_empty() { cause } else { AttemptEndCause::MissingOutputs(missing) };
    (cause, Some(Box::new(AttemptFiles { inputs, outputs: seen })))
}

/// Classifies the end of a job. `ran_out`: the kernel killed a process of it for lack of memory.
fn classify_end(running: &RunningAttempt, ran_out: bool, exit: ProcessExit) -> AttemptEndCause {
    let (limited, succeeded) = (running.limits.memory.is_some(), exit == ProcessExit::Code(0));
    match running.stop {
        Some(PendingStop { cause: StopCause::Timeout, .. }) if ran_out && limited => {
            AttemptEndCause::OutOfMemory
        }
        Some(stop) => stop.cause.into(),
        // A job without a limit that succeeds despite the loss of a process has not failed.
        None if ran_out && (limited || !succeeded) => AttemptEndCause::OutOfMemory,
        // A job that succeeds after the warning about its runtime has used the warning as intended.
        None if running.was_warned && !succeeded => AttemptEndCause::Timeout,
        None => AttemptEndCause::Itself,
    }
}

fn never_started_end(assignment: &Assignment, now: Timestamp, why: String) -> AttemptEndReport {
    AttemptEndReport {
        key: assignment.key,
        started_at: now,
        ended_at: now,
        wall: Duration::ZERO,
        exit: ProcessExit::Code(return_code::CANNOT_START),
        cause: AttemptEndCause::CannotStart(why),
        usage: AttemptUsage::default(),
        files: None,
        last_words: None,
        recovered: None,
    }
}

fn classify_spawn_error(error: &spawn::SpawnError, logs: &AttemptLogs) -> StartFailure {
    let text = error.to_string();
    if error.is_transient() {
        return StartFailure::MachineProblem(text);
    }
    if let Some(mut log) = logs.error_log() {
        // The reason is also in the report.
        writeln!(log, "windlass: {text}").ok();
    }
    StartFailure::JobProblem(text)
}

/// Whether the kernel enforces the limit; otherwise the sampler does.
fn set_cgroup_limit(group: Option<&cgroup::SlotCgroup>, limit: Option<Bytes>) -> bool {
    match (group, limit) {
        (Some(group), Some(limit)) => group.set_memory_limit(limit).is_ok(),
        _ => false,
    }
}

fn clear_cgroup_limit(group: Option<&cgroup::SlotCgroup>, bound: bool) {
    if let (Some(group), true) = (group, bound) {
        // A limit that cannot be lifted now is replaced by that of the next job with one.
        group.clear_memory_limit().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_slot::tests::running;
    use windlass_types::worker_messages::StopReason;

    #[test]
    fn the_cause_of_an_end_is_classified() {
        let stop = |cause| Some(PendingStop { cause, kill_at: Instant::now() });
        let (ok, killed) = (ProcessExit::Code(0), ProcessExit::Signal(9));
        let canceled = AttemptEndCause::Stopped(StopReason::Canceled);
        for (stop, ran_out, limited, exit, cause) in [
            (None, false, false, ok, AttemptEndCause::Itself),
            (None, false, true, killed, AttemptEndCause::Itself),
            (None, true, true, killed, AttemptEndCause::OutOfMemory),
            (None, true, true, ok, AttemptEndCause::OutOfMemory),
            (None, true, false, killed, AttemptEndCause::OutOfMemory),
            (None, true, false, ok, AttemptEndCause::Itself),
            (stop(StopCause::Timeout), false, true, ok, AttemptEndCause::Timeout),
            (stop(StopCause::Timeout), true, true, killed, AttemptEndCause::OutOfMemory),
            (stop(StopCause::OutOfMemory), false, true, killed, AttemptEndCause::OutOfMemory),
            (stop(StopCause::Engine(StopReason::Canceled)), true, true, killed, canceled),
        ] {
            let mut job = RunningAttempt { stop, ..running(Instant::now(), None) };
            job.limits.memory = limited.then_some(Bytes(1));
            assert_eq!(classify_end(&job, ran_out, exit), cause, "{stop:?} {ran_out} {limited} {exit:?}");
        }
    }

    #[test]
    fn a_warned_job_that_exits_with_0_has_succeeded() {
        let warned = RunningAttempt { was_warned: true, ..running(Instant::now(), None) };
        assert_eq!(classify_end(&warned, false, ProcessExit::Code(0)), AttemptEndCause::Itself);
        assert_eq!(classify_end(&warned, false, ProcessExit::Code(1)), AttemptEndCause::Timeout);
        assert_eq!(classify_end(&warned, false, ProcessExit::Signal(15)), AttemptEndCause::Timeout);
    }
}
