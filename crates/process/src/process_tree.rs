//! The processes of a job: its process group, its descendants, and processes that left both but can still be
//! attributed.
//!
//! A process that left the group (`setsid`) is found as a descendant; one whose parent died is found as a child
//! that the worker adopted, recognized by its group, its cgroup, or the variables that the worker put into its
//! environment.

use crate::{process_identity, procfs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::collections::HashSet;
use std::time::Duration;
use windlass_types::worker_messages::AttemptKey;

/// The variables in a job's environment that identify its attempt.
pub mod marker_variable {
    pub const WORKER: &str = "WINDLASS_WORKER";
    pub const JOB: &str = "WINDLASS_JOB_ID";
    pub const RUN: &str = "WINDLASS_RUN_ID";
    pub const ATTEMPT: &str = "WINDLASS_ATTEMPT_ID";
}

/// The attempt that the environment of a process names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessMark {
    /// Of this worker, and this attempt.
    Ours { job: i64, run: i64, attempt: u32 },
    /// Of another worker, or without a mark.
    None,
}

impl ProcessMark {
    pub fn read_process(pid: Pid, token: &str) -> Self {
        let [worker, job, run, attempt] = procfs::read_environment_values(
            pid,
            [marker_variable::WORKER, marker_variable::JOB, marker_variable::RUN, marker_variable::ATTEMPT],
        );
        if worker.as_deref() != Some(token) {
            return Self::None;
        }
        let number = |text: Option<String>| text.and_then(|text| text.parse::<i64>().ok());
        match (number(job), number(run), number(attempt).and_then(|n| u32::try_from(n).ok())) {
            (Some(job), Some(run), Some(attempt)) => Self::Ours { job, run, attempt },
            _ => Self::None,
        }
    }

    pub fn is_of_attempt(&self, key: &AttemptKey) -> bool {
        *self == Self::Ours { job: key.job.0, run: key.run.0, attempt: key.attempt.0 }
    }
}

/// What identifies the processes of one job.
#[derive(Clone, Copy, Debug)]
pub struct JobProcesses<'a> {
    pub key: &'a AttemptKey,
    pub token: &'a str,
    /// The pid of the first process, which stays the id of the group after that process has ended.
    pub group: Pid,
    /// The processes in its cgroup, if it has one of its own.
    pub cgroup: &'a [Pid],
}

impl JobProcesses<'_> {
    /// Whether a process that the worker adopted belongs to the job.
    pub fn includes(&self, adopted: Pid) -> bool {
        let group = self.group.as_raw_nonzero().get();
        self.cgroup.contains(&adopted)
            || procfs::read_stat(adopted).is_some_and(|stat| stat.group == group || stat.session == group)
            || ProcessMark::read_process(adopted, self.token).is_of_attempt(self.key)
    }

    /// All members that still run, given the processes that the worker adopted.
    pub fn members(&self, adopted: &[Pid]) -> Vec<Pid> {
        let roots = adopted.iter().copied().filter(|pid| self.includes(*pid));
        with_descendants([self.group].into_iter().chain(roots).chain(self.cgroup.iter().copied()))
    }
}

/// The roots and all their descendants, without zombies, each once.
pub fn with_descendants(roots: impl IntoIterator<Item = Pid>) -> Vec<Pid> {
    let mut known = HashSet::new();
    let mut found: Vec<Pid> = Vec::new();
    let mut open: Vec<Pid> = roots.into_iter().collect();
    while let Some(pid) = open.pop() {
        if known.insert(pid) {
            open.extend(procfs::list_children(pid));
            found.push(pid);
        }
    }
    found.retain(|pid| procfs::is_running(*pid));
    found
}

/// All running processes with this in their environment: also those without parents, which cannot be attributed
/// otherwise.
pub fn find_with_variable(name: &str, value: &str) -> Vec<Pid> {
    let is_tagged = |pid: &Pid| procfs::read_environment_values(*pid, [name])[0].as_deref() == Some(value);
    procfs::all_pids().into_iter().filter(is_tagged).filter(|pid| procfs::is_running(*pid)).collect()
}

/// Younger processes without an environment may be executing a program: the environment is empty for a moment
/// then.
const EXEC_WINDOW: Duration = Duration::from_secs(1);

/// Whether this process cannot be attributed yet, because it is just being started.
pub fn may_be_executing(pid: Pid) -> bool {
    procfs::read_environment(pid).is_empty() && is_just_started(pid)
}

/// Whether it runs and was started a moment ago.
pub(crate) fn is_just_started(pid: Pid) -> bool {
    procfs::read_stat(pid).is_some_and(|stat| {
        let age = process_identity::boot_ticks().saturating_sub(stat.start_ticks);
        !stat.is_over() && age <= EXEC_WINDOW.as_secs() * procfs::ticks_per_second()
    })
}

/// Signals the group as one, then the members outside of it. Stopped processes are continued so that they can
/// react.
pub fn signal_group_and_members(group: Pid, members: &[Pid], signal: Signal) {
    let wake = (signal != Signal::KILL).then_some(Signal::CONT);
    for signal in [Some(signal), wake].into_iter().flatten() {
        // Errors mean that the process is already gone, as wanted.
        rustix::process::kill_process_group(group, signal).ok();
        for pid in members {
            let outside =
                procfs::read_stat(*pid).is_some_and(|stat| stat.group != group.as_raw_nonzero().get());
            if outside {
                rustix::process::kill_process(*pid, signal).ok();
            }
        }
    }
}

/// The number of scans of [`freeze_processes`] before it gives up on processes that hang in the kernel: they
/// stop when they leave it.
const MAX_FREEZE_ROUNDS: u32 = 100;
const FREEZE_ROUND_DELAY: Duration = Duration::from_millis(2);

/// Stops processes until two scans in a row find none that still runs: a process born between a scan and its
/// signals is found by the next scan, also if its parent has ended. Returns whether all of them are stopped.
pub fn freeze_processes(members: impl Fn() -> Vec<Pid>) -> bool {
    let mut was_quiet = false;
    for _ in 0..MAX_FREEZE_ROUNDS {
        let mut awake = members();
        awake.retain(|pid| procfs::read_stat(*pid).is_some_and(|stat| !stat.is_stopped() && !stat.is_over()));
        if awake.is_empty() && was_quiet {
            return true;
        }
        was_quiet = awake.is_empty();
        signal_all(&awake, Signal::STOP);
        std::thread::sleep(FREEZE_ROUND_DELAY);
    }
    false
}

/// Continues frozen processes.
pub fn thaw_processes(members: &[Pid]) {
    signal_all(members, Signal::CONT);
}

fn signal_all(members: &[Pid], signal: Signal) {
    for pid in members {
        // An error means that it is gone.
        rustix::process::kill_process(*pid, signal).ok();
    }
}

pub fn kill_process(pid: Pid) {
    // An error means that it is gone already, or that signaling it is not permitted.
    rustix::process::kill_process(pid, Signal::KILL).ok();
}

/// Signals only this process, and continues it if it was stopped.
pub fn signal_process(pid: Pid, signal: Signal) {
    for signal in [signal, Signal::CONT] {
        // As above.
        rustix::process::kill_process(pid, signal).ok();
    }
}

/// Returns when one of these has ended, or after this time.
pub fn wait_for_exit(pids: &[Pid], at_most: Duration) {
    let mut handles = Vec::with_capacity(pids.len());
    for pid in pids {
        match pidfd_open(*pid, PidfdFlags::empty()) {
            Ok(handle) => handles.push(handle),
            Err(rustix::io::Errno::SRCH) => return,
            // No pidfd available (an old kernel, too many files): the caller checks again after the wait.
            Err(_) => {}
        }
    }
    let mut polls: Vec<PollFd<'_>> =
        handles.iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    // An interrupted wait is only shorter.
    poll(&mut polls, Some(&timeout)).ok();
}
