//! One job in a slot, from its logs to its report.

use crate::environment::Given;
use crate::lease::unfreeze_group;
use crate::logs::{JobLogs, Spares};
use crate::service::Worker;
use crate::site::Site;
use crate::slot::{CLOSE_WATCH, Elsewhere, FIRST_LOOK, Running, Slot, State, Stop, StopCause, TENDING};
use crate::step::Notes;
use crate::yard::Work;
use crate::{elsewhere, environment, lock, step};
use std::borrow::Cow;
use std::io::Write as _;
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use windlass_proc::ledger::Open;
use windlass_proc::sample::{self, EndUsage, Series};
use windlass_proc::spawn::{self, Additions, Launch};
use windlass_proc::wait::{self, Reaped};
use windlass_proc::{Pid, cgroup, identity};
use windlass_types::work::{
    Assignment, EndCause, Ended, Exit, FileState, FilesSeen, Limits, Recovered, Recovery, Report,
    ReturnReason, Usage, return_code,
};
use windlass_types::{Bytes, Timestamp};

/// What a slot's thread keeps from job to job.
#[derive(Debug)]
pub(crate) struct Hand {
    additions: Additions,
    spares: Spares,
    /// The thread is in its slot's cgroup, so all its jobs are.
    in_cgroup: bool,
    /// Kills for lack of memory in that group that were accounted for.
    oom_kills: u64,
}

impl Hand {
    /// Called on the slot's own thread.
    pub(crate) fn new(slot: &Slot) -> Self {
        let in_cgroup = slot.cgroup.as_ref().is_some_and(|group| matches!(group.enter_thread(), Ok(true)));
        Self { additions: Additions::default(), spares: Spares::default(), in_cgroup, oom_kills: 0 }
    }

    /// The slot closes.
    pub(crate) fn put_away(&mut self) {
        self.spares.discard();
    }

    /// Whether the kernel ended something in the slot's cgroup for lack of memory since this was last asked.
    fn lost_some_to_memory(&mut self, slot: &Slot) -> bool {
        let Some(group) = &slot.cgroup else { return false };
        let kills = group.oom_kills();
        mem::replace(&mut self.oom_kills, kills) < kills
    }
}

/// Why a job has no process.
enum NotStarted {
    Recalled,
    /// Not the job's fault.
    Trouble(String),
    Never(String),
}

/// A job that runs, as its own slot sees it.
struct Started {
    pid: Pid,
    record: Open,
    logs: JobLogs,
    /// Its input files as they were.
    inputs: Vec<Option<FileState>>,
    /// The kernel itself keeps its memory limit.
    bound: bool,
    /// Where it leaves what it used, if it runs elsewhere and is measured there.
    notes: Option<Notes>,
}

/// What runs in a slot: a job, or what comes before it.
#[derive(Clone, Copy)]
struct Task<'a> {
    assignment: &'a Assignment,
    site: &'a Site,
    devices: &'a [u32],
    /// It is the recovery of that failure, and not the job.
    recovery: Option<&'a Recovery>,
}

/// What is known of a job before it has a process.
struct Birth {
    started: Instant,
    started_at: Timestamp,
    born_after: u64,
    bound: bool,
    in_cgroup: bool,
    peak_is_its_own: bool,
    oom_kills: u64,
}

impl Worker {
    /// Runs one job to its end, and before it what an earlier failure calls for.
    pub(crate) fn run(self: &Arc<Self>, slot: &Slot, hand: &mut Hand, work: &Work) -> Report {
        let Work { assignment, site, grant } = work;
        let key = assignment.key;
        let job = Task { assignment, site, devices: &grant.devices, recovery: None };
        let outcome = self.recover(slot, hand, job).and_then(|recovered| {
            let ended = match self.start(slot, hand, job) {
                Ok(started) => self.see_through(slot, hand, job, started),
                Err(NotStarted::Never(text)) => never_started(assignment, self.clock.now(), text),
                Err(other) => return Err(other),
            };
            Ok(Ended { recovered, ..ended })
        });
        match outcome {
            Ok(ended) => Report::Ended(ended),
            Err(NotStarted::Recalled) => Report::Returned { key, why: ReturnReason::Recalled },
            Err(NotStarted::Trouble(text) | NotStarted::Never(text)) => {
                Report::Returned { key, why: ReturnReason::WorkerTrouble(text) }
            }
        }
    }

    /// Runs the recovery that a job brings along, if it does. Whatever becomes of it, the job follows, unless somebody
    /// wants it to stop or the machine is in trouble.
    fn recover(
        &self,
        slot: &Slot,
        hand: &mut Hand,
        job: Task<'_>,
    ) -> Result<Option<Box<Recovered>>, NotStarted> {
        let Some(recovery) = job.assignment.recovery.as_deref() else { return Ok(None) };
        let assignment = Assignment {
            limits: Limits { runtime: Some(recovery.limit), ..job.assignment.limits },
            env: job.assignment.env.clone(),
            params: job.assignment.params.clone(),
            asked_for_resources: job.assignment.asked_for_resources,
            launcher: job.assignment.launcher.clone(),
            ..Assignment::plain(
                job.assignment.key,
                job.assignment.name.clone(),
                Recovery::COMMAND.to_owned(),
                job.assignment.resources,
            )
        };
        let task = Task { assignment: &assignment, recovery: Some(recovery), ..job };
        let recovered = match self.start(slot, hand, task) {
            Ok(started) => {
                let ended = self.see_through(slot, hand, task, started);
                match ended.cause {
                    EndCause::Stopped(_) => return Err(NotStarted::Recalled),
                    EndCause::Timeout => Recovered::TimedOut { limit: recovery.limit },
                    _ => Recovered::Ended { exit: ended.exit, wall: ended.wall },
                }
            }
            Err(NotStarted::Never(text)) => Recovered::CannotStart(text),
            Err(other) => return Err(other),
        };
        start_over(slot, job.assignment);
        Ok(Some(Box::new(recovered)))
    }

    fn start(&self, slot: &Slot, hand: &mut Hand, task: Task<'_>) -> Result<Started, NotStarted> {
        let Task { assignment, site, .. } = task;
        if matches!(&*lock(&slot.state), State::Starting { stop: Some(_), .. }) {
            return Err(NotStarted::Recalled);
        }
        let trouble = |error: &dyn std::error::Error| NotStarted::Trouble(error.to_string());
        let logs = match task.recovery {
            None => site.logs.open(&assignment.key, assignment.stdio.mode, &mut hand.spares),
            Some(recovery) => site.logs.open_recovery(&assignment.key, recovery),
        };
        let mut logs = logs.map_err(|error| trouble(&error))?;
        if is_elsewhere(assignment) {
            logs.listen().map_err(|error| trouble(&error))?;
        }
        let given = Given {
            devices: &self.devices(task.devices),
            has_cards: !self.devices.is_empty(),
            recovery: task.recovery,
            deadline: assignment.limits.runtime.map(|runtime| self.clock.now().after(runtime)),
            threads_unsaid: self.threads_unsaid,
        };
        environment::add(&mut hand.additions, assignment, &given);
        let inputs = site.files.see(&assignment.input_files, assignment.hash_files);
        let record = self.ledger.open(assignment.key).map_err(|error| trouble(&error))?;
        let group = slot.cgroup.as_ref().filter(|group| hand.in_cgroup || group.entry().is_some());
        let group = group.filter(|_| !is_elsewhere(assignment));
        let bound = bind(group, assignment.limits.memory);

        let peak_is_its_own = group.is_some_and(cgroup::Slot::reset_peak);
        let birth = Birth {
            peak_is_its_own,
            started: Instant::now(),
            started_at: self.clock.now(),
            born_after: identity::boot_ticks(),
            bound,
            in_cgroup: bound || hand.in_cgroup,
            oom_kills: hand.oom_kills,
        };
        let (launcher, notes) = self.launcher(task);
        match spawn(task, &launcher, hand, &logs, if bound { group } else { None }) {
            Ok(pid) => {
                // Without the pid in the ledger the job is still found by its name in the environment.
                self.ledger.started(&record, pid).ok();
                self.register(slot, task, pid, &birth);
                Ok(Started { pid, record, logs, inputs, bound, notes })
            }
            Err(error) => {
                self.ledger.forget(record);
                unbind(group, bound);
                Err(refused(&error, &logs))
            }
        }
    }

    /// Makes the job known to the supervisor, and ends or freezes it if that was asked for while it started.
    fn register(&self, slot: &Slot, task: Task<'_>, pid: Pid, birth: &Birth) {
        let Task { assignment, site, .. } = task;
        let Birth { started, started_at, born_after, bound, in_cgroup, peak_is_its_own, oom_kills } = *birth;
        // What launched it uses next to nothing.
        let limits = if is_elsewhere(assignment) {
            Limits { memory: None, ..assignment.limits }
        } else {
            assignment.limits
        };
        let watched = limits.memory.is_some() && !bound;
        let (sample_every, first) = match (watched, site.measure_jobs) {
            _ if is_elsewhere(assignment) => (site.sample_interval, None),
            (true, _) => (CLOSE_WATCH, Some(CLOSE_WATCH)),
            (false, true) => (site.sample_interval, Some(FIRST_LOOK)),
            // Bound by the kernel: a sample tells whether it lost a process.
            (false, false) => (site.sample_interval, limits.memory.map(|_| FIRST_LOOK)),
        };
        let mut running = Running {
            key: assignment.key,
            pid,
            started,
            started_at,
            born_after,
            limits,
            termination: assignment.termination,
            frozen_since: None,
            paused: Duration::ZERO,
            was_warned: false,
            elsewhere: is_elsewhere(assignment).then(Elsewhere::default),
            in_cgroup,
            peak_is_its_own,
            oom_kills,
            told: false,
            sample_every,
            next_sample: first.map(|first| started + first),
            series: Series::new(started),
            stop: None,
        };
        lock(&slot.orphans).begin(pid);
        let mut state = lock(&slot.state);
        if let State::Starting { stop: Some(stop), .. } = &*state {
            let grace = stop.kill_at.saturating_duration_since(Instant::now());
            self.stop_running(slot, &mut running, stop.cause, grace);
        }
        if self.lease.is_over() {
            self.freeze_running(slot, &mut running);
        }
        let due = running.next_act().map_or(started + TENDING, |(at, _)| at.min(started + TENDING));
        *state = State::Running(Box::new(running));
        drop(state);
        self.alarm.set(due);
    }

    /// Waits for the end of a job, clears up after it, and says how it went.
    fn see_through(&self, slot: &Slot, hand: &mut Hand, task: Task<'_>, started: Started) -> Ended {
        let assignment = task.assignment;
        // Only fails if somebody else took our child, of which there is nobody.
        wait::until_over(started.pid).ok();
        let (over, ended_at) = (Instant::now(), self.clock.now());
        let running = self.leave(slot, over);
        let left_nothing = self.adopted.is_empty();
        if !left_nothing {
            self.clear_away(slot, &assignment.key, started.pid);
        }
        let reaped = wait::reap(started.pid).unwrap_or(Reaped {
            exit: Exit::Signal(9),
            cpu_time: Duration::ZERO,
            max_rss: Bytes(0),
        });
        self.ledger.close(started.record);
        unbind(slot.cgroup.as_ref(), started.bound);
        let ran_out = hand.lost_some_to_memory(slot);

        let wall = running.ran_until(over);
        // Orphans that another thread is reaping are counted first.
        drop(lock(&self.reaping));
        let orphans = lock(&slot.orphans).close();
        let cpu_time = reaped.cpu_time.saturating_add(orphans.cpu_time);
        let peak_rss = self.peak_of(slot, &running, reaped.max_rss).max(known(orphans.max_rss));
        let end = EndUsage { wall, cpu_time, peak_rss };
        let cause = end_cause(&running, ran_out, reaped.exit);
        let seen = started.notes.as_ref().and_then(Notes::take).unwrap_or_default();
        let cause = if is_elsewhere(assignment) && cause == EndCause::Itself && reaped.exit != Exit::Code(0) {
            let words = started.logs.last_words(&environment::redactor(assignment));
            elsewhere::cause(words.as_deref(), seen.ran_out)
        } else {
            cause
        };
        let (cause, files) = look_at_files(task, cause, reaped.exit, started.inputs);
        let succeeded = cause == EndCause::Itself && reaped.exit == Exit::Code(0);
        let failed = !succeeded && !matches!(cause, EndCause::Stopped(_));
        let mut last_words = None;
        if task.recovery.is_some() {
            // One log more, of a slot that has no use for it when it is empty.
            let delete = left_nothing && started.logs.are_empty();
            started.logs.finish(None, delete);
        } else {
            let words = || started.logs.last_words(&environment::redactor(assignment));
            last_words = failed.then(words).flatten();
            let delete = succeeded && assignment.stdio.delete_on_success;
            started.logs.finish(left_nothing.then_some(&mut hand.spares), delete);
        }
        Ended {
            key: assignment.key,
            started_at: running.started_at,
            ended_at,
            wall,
            exit: reaped.exit,
            cause,
            usage: if is_elsewhere(assignment) { seen.usage } else { running.series.usage(&end) },
            files,
            last_words,
            recovered: None,
        }
    }

    /// From here on nobody signals the job but its own slot.
    fn leave(&self, slot: &Slot, now: Instant) -> Box<Running> {
        let mut state = lock(&slot.state);
        match mem::replace(&mut *state, State::Idle) {
            State::Running(running) => {
                let frozen = running.frozen_since.is_some();
                let grace = if frozen { Duration::ZERO } else { self.options.leftover_grace };
                let kill_at = running.stop.map_or(now + grace, |stop| stop.kill_at);
                *state = State::Leaving { key: running.key, kill_at, stop: None };
                if frozen {
                    unfreeze_group(slot);
                }
                running
            }
            other => unreachable!("only its own slot ends a running job: {other:?}"),
        }
    }

    /// The peak of the first process and those it waited for. What is too small to be told from our own is taken from the
    /// cgroup, whose number also has copies of files: but then it is not larger than what the process can have had.
    fn peak_of(&self, slot: &Slot, running: &Running, max_rss: Bytes) -> Option<Bytes> {
        let of_group = || {
            let group = slot.cgroup.as_ref().filter(|_| running.in_cgroup && running.peak_is_its_own)?;
            known(group.peak_memory()?.min(max_rss))
        };
        self.trusted_peak(max_rss).or_else(of_group)
    }

    /// Our own peak only grows, so it has to be looked up again only for what is above the last value.
    fn trusted_peak(&self, max_rss: Bytes) -> Option<Bytes> {
        let known = Bytes(self.own_peak.load(Ordering::Relaxed));
        sample::trusted_peak(max_rss, known)?;
        let own = sample::own_peak_rss()?;
        self.own_peak.store(own.0, Ordering::Relaxed);
        sample::trusted_peak(max_rss, own)
    }

    /// What has it run elsewhere, and where its tasks leave what they used there. What comes before a job is not measured.
    fn launcher<'a>(&self, task: Task<'a>) -> (Cow<'a, [String]>, Option<Notes>) {
        let Task { assignment, site, recovery, .. } = task;
        let plain = (Cow::Borrowed(&*assignment.launcher), None);
        let Some(program) = self.options.program.as_ref().filter(|_| recovery.is_none()) else {
            return plain;
        };
        if !is_elsewhere(assignment) {
            return plain;
        }
        let (logs, tasks) = (site.logs.directory(), assignment.resources.nodes.max(1));
        step::clear_before(logs, &assignment.key, tasks);
        // No two launches have the same, whichever machine they are on.
        let mark = format!("{}-{}", self.clock.now().0, std::process::id());
        let notes = Notes::new(logs, &assignment.key, mark, tasks);
        match notes.words(program, site.measure_jobs.then_some(site.sample_interval)) {
            Some(words) => ([&*assignment.launcher, &words].concat().into(), Some(notes)),
            None => plain,
        }
    }

    fn devices(&self, granted: &[u32]) -> Vec<&str> {
        granted.iter().map(|index| self.devices[*index as usize].as_str()).collect()
    }
}

fn known(amount: Bytes) -> Option<Bytes> {
    (amount > Bytes(0)).then_some(amount)
}

/// It is not run here, but handed to something that has it run elsewhere.
const fn is_elsewhere(assignment: &Assignment) -> bool {
    !assignment.launcher.is_empty()
}

/// The job follows its recovery in the same slot; a stop that came in between is still to be obeyed.
fn start_over(slot: &Slot, assignment: &Assignment) {
    let mut state = lock(&slot.state);
    let stop = match &*state {
        State::Leaving { stop, .. } | State::Starting { stop, .. } => *stop,
        State::Idle | State::Running(_) => None,
    };
    *state = State::Starting { key: assignment.key, stop };
}

fn spawn(
    task: Task<'_>,
    launcher: &[String],
    hand: &Hand,
    logs: &JobLogs,
    group: Option<&cgroup::Slot>,
) -> Result<Pid, spawn::Error> {
    let enter = group.and_then(cgroup::Slot::entry);
    let spawner = &task.site.spawner;
    spawner.spawn(&Launch {
        command: &task.assignment.command,
        launcher,
        environment: &task.site.environment,
        additions: &hand.additions,
        stdout: logs.output_log().map_or(spawner.null(), |file| file.as_fd()),
        stderr: logs.error_log().map_or(spawner.null(), |file| file.as_fd()),
        enter: enter.as_deref(),
    })
}

/// The outputs of an attempt that ended well are looked at once, for what is missing and for what they are.
fn look_at_files(
    task: Task<'_>,
    cause: EndCause,
    exit: Exit,
    inputs: Vec<Option<FileState>>,
) -> (EndCause, Option<Box<FilesSeen>>) {
    let Task { assignment, site, .. } = task;
    let outputs = &assignment.output_files;
    if inputs.is_empty() && outputs.is_empty() {
        return (cause, None);
    }
    if cause != EndCause::Itself || exit != Exit::Code(0) {
        return (cause, Some(Box::new(FilesSeen { inputs, outputs: Vec::new() })));
    }
    let seen = site.files.see(outputs, assignment.hash_files);
    let missing = outputs.iter().zip(&seen).filter(|(_, state)| state.is_none());
    let missing: Vec<String> = missing.map(|(path, _)| path.clone()).collect();
    let cause = if missing.is_empty() { cause } else { EndCause::MissingOutputs(missing) };
    (cause, Some(Box::new(FilesSeen { inputs, outputs: seen })))
}

/// Who ended it. `ran_out`: the kernel ended some process of it for lack of memory.
fn end_cause(running: &Running, ran_out: bool, exit: Exit) -> EndCause {
    let (limited, succeeded) = (running.limits.memory.is_some(), exit == Exit::Code(0));
    match running.stop {
        Some(Stop { cause: StopCause::Timeout, .. }) if ran_out && limited => EndCause::OutOfMemory,
        Some(stop) => stop.cause.into(),
        // A job without a limit that got over the loss of a process has not failed for it.
        None if ran_out && (limited || !succeeded) => EndCause::OutOfMemory,
        // Told that its time would soon be over, and still done in time: that is what telling it early is for.
        None if running.was_warned && !succeeded => EndCause::Timeout,
        None => EndCause::Itself,
    }
}

fn never_started(assignment: &Assignment, now: Timestamp, why: String) -> Ended {
    Ended {
        key: assignment.key,
        started_at: now,
        ended_at: now,
        wall: Duration::ZERO,
        exit: Exit::Code(return_code::CANNOT_START),
        cause: EndCause::CannotStart(why),
        usage: Usage::default(),
        files: None,
        last_words: None,
        recovered: None,
    }
}

fn refused(error: &spawn::Error, logs: &JobLogs) -> NotStarted {
    let text = error.to_string();
    if error.is_transient() {
        return NotStarted::Trouble(text);
    }
    if let Some(mut log) = logs.error_log() {
        // The reason travels in the report as well.
        writeln!(log, "windlass: {text}").ok();
    }
    NotStarted::Never(text)
}

/// Whether the kernel keeps the limit; if it will not, the sampler does.
fn bind(group: Option<&cgroup::Slot>, limit: Option<Bytes>) -> bool {
    match (group, limit) {
        (Some(group), Some(limit)) => group.limit(limit).is_ok(),
        _ => false,
    }
}

fn unbind(group: Option<&cgroup::Slot>, bound: bool) {
    if let (Some(group), true) = (group, bound) {
        // A limit that cannot be lifted now is replaced by that of the next job that has one.
        group.unlimit().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::tests::running;
    use windlass_types::work::StopReason;

    #[test]
    fn who_ended_it() {
        let stop = |cause| Some(Stop { cause, kill_at: Instant::now() });
        let (ok, killed) = (Exit::Code(0), Exit::Signal(9));
        let canceled = EndCause::Stopped(StopReason::Canceled);
        for (stop, ran_out, limited, exit, cause) in [
            (None, false, false, ok, EndCause::Itself),
            (None, false, true, killed, EndCause::Itself),
            (None, true, true, killed, EndCause::OutOfMemory),
            (None, true, true, ok, EndCause::OutOfMemory),
            (None, true, false, killed, EndCause::OutOfMemory),
            (None, true, false, ok, EndCause::Itself),
            (stop(StopCause::Timeout), false, true, ok, EndCause::Timeout),
            (stop(StopCause::Timeout), true, true, killed, EndCause::OutOfMemory),
            (stop(StopCause::OutOfMemory), false, true, killed, EndCause::OutOfMemory),
            (stop(StopCause::Engine(StopReason::Canceled)), true, true, killed, canceled),
        ] {
            let mut job = Running { stop, ..running(Instant::now(), None) };
            job.limits.memory = limited.then_some(Bytes(1));
            assert_eq!(end_cause(&job, ran_out, exit), cause, "{stop:?} {ran_out} {limited} {exit:?}");
        }
    }

    #[test]
    fn a_job_that_was_warned_is_done_if_it_says_so() {
        let warned = Running { was_warned: true, ..running(Instant::now(), None) };
        assert_eq!(end_cause(&warned, false, Exit::Code(0)), EndCause::Itself);
        assert_eq!(end_cause(&warned, false, Exit::Code(1)), EndCause::Timeout);
        assert_eq!(end_cause(&warned, false, Exit::Signal(15)), EndCause::Timeout);
    }
}
