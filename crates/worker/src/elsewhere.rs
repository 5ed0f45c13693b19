//! Jobs that are launched elsewhere: why they ended, as the launcher tells it, and calling them off.
//!
//! The launcher is Slurm's `srun`, which says on standard error what its exit code does not.

use crate::lock;
use crate::service::Worker;
use crate::slot::{Elsewhere, Running, State};
use std::time::{Duration, Instant};
use windlass_proc::{Pid, Signal, tree};
use windlass_types::work::{EndCause, StopReason};

/// A launcher that was asked to end waits until what it launched is gone. One that takes longer than this is killed.
const CALLING_OFF: Duration = Duration::from_secs(20);

/// Why a job ended badly that somebody else has run, by the end of what it and its launcher wrote. `ran_out`: the kernel ended
/// some process of it for lack of memory.
pub(crate) fn cause(words: Option<&str>, ran_out: bool) -> EndCause {
    let told = words.unwrap_or_default().lines().filter(|line| is_slurms(line));
    let told = told.filter_map(cause_in).next_back();
    told.unwrap_or(if ran_out { EndCause::OutOfMemory } else { EndCause::Itself })
}

/// Where the kernel keeps the limit, and where Slurm itself does.
const OUT_OF_MEMORY: [&str; 5] = [
    ": Out Of Memory",
    "oom-kill event",
    "oom_kill event",
    "exceeded memory limit (",
    "Exceeded job memory limit",
];

fn is_slurms(line: &str) -> bool {
    line.starts_with("srun: ") || line.starts_with("slurmstepd")
}

fn cause_in(line: &str) -> Option<EndCause> {
    let has = |text: &str| line.contains(text);
    if OUT_OF_MEMORY.iter().any(|text| has(text)) {
        Some(EndCause::OutOfMemory)
    } else if has("*** STEP ") && has("DUE TO TIME LIMIT") {
        Some(EndCause::Timeout)
    } else if has("DUE TO PREEMPTION") || has("DUE TO NODE FAILURE") {
        Some(EndCause::Stopped(StopReason::Interrupted))
    } else {
        None
    }
}

impl Worker {
    /// Has it end elsewhere, and here then. Only once: a second signal would make the launcher leave without it.
    pub(crate) fn call_off(running: &mut Running, now: Instant) -> bool {
        let Some(elsewhere) = &mut running.elsewhere else { return false };
        if !elsewhere.is_called_off {
            *elsewhere = Elsewhere { is_called_off: true };
            tree::signal_one(running.pid, Signal::TERM);
            if let Some(stop) = &mut running.stop {
                stop.kill_at = now + CALLING_OFF;
            }
        }
        true
    }

    /// Before everything here is killed: what would stay behind elsewhere.
    pub(crate) fn call_off_all(&self) {
        let slots = lock(&self.yard).slots.clone();
        let mut launchers: Vec<Pid> = Vec::new();
        for slot in slots {
            if let State::Running(running) = &mut *lock(&slot.state)
                && Self::call_off(running, Instant::now())
            {
                launchers.push(running.pid);
            }
        }
        let give_up = Instant::now() + CALLING_OFF;
        while !launchers.is_empty() && Instant::now() < give_up {
            tree::await_exit(&launchers, give_up.saturating_duration_since(Instant::now()));
            launchers.retain(|pid| !windlass_proc::wait::is_over(*pid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_says_why() {
        let interrupted = EndCause::Stopped(StopReason::Interrupted);
        for (words, expected) in [
            (None, EndCause::Itself),
            (Some(""), EndCause::Itself),
            (Some("srun: error: n1: task 0: Exited with exit code 3"), EndCause::Itself),
            (Some("srun: error: n1: task 0: Out Of Memory"), EndCause::OutOfMemory),
            (
                Some(
                    "Killed\nslurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=8.2. Some of your processes may \
                     have been killed by the cgroup out-of-memory handler.",
                ),
                EndCause::OutOfMemory,
            ),
            (Some("slurmstepd: error: Detected 1 oom_kill event in StepId=8.2."), EndCause::OutOfMemory),
            (
                Some(
                    "slurmstepd-n1: error: StepId=8.2 exceeded memory limit (419430400 > 104857600), being killed",
                ),
                EndCause::OutOfMemory,
            ),
            (Some("slurmstepd: error: Exceeded job memory limit"), EndCause::OutOfMemory),
            (
                Some(
                    "slurmstepd-n1: error: *** STEP 8.5 ON n1 CANCELLED AT 2026-11-16T11:05:19 DUE TO TIME LIMIT ***",
                ),
                EndCause::Timeout,
            ),
            (
                Some(
                    "slurmstepd: error: *** STEP 8.5 ON n1 CANCELLED AT 2026-11-16T11:05:19 DUE TO PREEMPTION ***",
                ),
                interrupted,
            ),
            (
                Some("slurmstepd-n1: error: *** STEP 8.5 ON n1 CANCELLED AT 2026-11-16T11:05:19 ***"),
                EndCause::Itself,
            ),
            (Some("solver: oom-kill event in the model"), EndCause::Itself),
        ] {
            assert_eq!(cause(words, false), expected, "{words:?}");
            let seen = if expected == EndCause::Itself { EndCause::OutOfMemory } else { expected };
            assert_eq!(cause(words, true), seen, "{words:?}, and the kernel ended something");
        }
    }
}
