//! Jobs that a launcher runs elsewhere: why they ended, according to the launcher, and how to cancel them.
//!
//! The launcher is Slurm's `srun`, which writes to standard error what its exit code does not tell.

use crate::job_slot::{LaunchedJob, RunningAttempt, SlotState};
use crate::lock_ignoring_poison;
use crate::worker_process::WorkerState;
use std::time::{Duration, Instant};
use windlass_process::{Pid, Signal, process_tree};
use windlass_types::worker_messages::{AttemptEndCause, StopReason};

/// A launcher that was asked to end waits until what it launched is gone. After this time it is killed.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a failed job that a launcher ran ended, from the end of its own and its launcher's output. `ran_out`:
/// the kernel killed a process of it for lack of memory.
pub(crate) fn classify_launcher_end(words: Option<&str>, ran_out: bool) -> AttemptEndCause {
    let told = words.unwrap_or_default().lines().filter(|line| is_slurm_message(line));
    let told = told.filter_map(parse_end_cause).next_back();
    told.unwrap_or(if ran_out { AttemptEndCause::OutOfMemory } else { AttemptEndCause::Itself })
}

/// The first ones where the kernel enforces the limit, the others where Slurm does.
const OUT_OF_MEMORY: [&str; 5] = [
    ": Out Of Memory",
    "oom-kill event",
    "oom_kill event",
    "exceeded memory limit (",
    "Exceeded job memory limit",
];

fn is_slurm_message(line: &str) -> bool {
    line.starts_with("srun: ") || line.starts_with("slurmstepd")
}

fn parse_end_cause(line: &str) -> Option<AttemptEndCause> {
    let has = |text: &str| line.contains(text);
    if OUT_OF_MEMORY.iter().any(|text| has(text)) {
        Some(AttemptEndCause::OutOfMemory)
    } else if has("*** STEP ") && has("DUE TO TIME LIMIT") {
        Some(AttemptEndCause::Timeout)
    } else if has("DUE TO PREEMPTION") || has("DUE TO NODE FAILURE") {
        Some(AttemptEndCause::Stopped(StopReason::Interrupted))
    } else {
        None
    }
}

impl WorkerState {
    /// Ends the job elsewhere and then its launcher. Only once: a second signal would make the launcher exit
    /// without the job.
    pub(crate) fn cancel_launched(running: &mut RunningAttempt, now: Instant) -> bool {
        let Some(elsewhere) = &mut running.remote_launch else { return false };
        if !elsewhere.is_canceled {
            *elsewhere = LaunchedJob { is_canceled: true };
            process_tree::signal_process(running.pid, Signal::TERM);
            if let Some(stop) = &mut running.stop {
                stop.kill_at = now + CANCEL_TIMEOUT;
            }
        }
        true
    }

    /// Cancels launched jobs before all processes here are killed: they would stay behind elsewhere.
    pub(crate) fn cancel_all_launched(&self) {
        let slots = lock_ignoring_poison(&self.job_queue).slots.clone();
        let mut launchers: Vec<Pid> = Vec::new();
        for slot in slots {
            if let SlotState::Running(running) = &mut *lock_ignoring_poison(&slot.state)
                && Self::cancel_launched(running, Instant::now())
            {
                launchers.push(running.pid);
            }
        }
        let give_up = Instant::now() + CANCEL_TIMEOUT;
        while !launchers.is_empty() && Instant::now() < give_up {
            process_tree::wait_for_exit(&launchers, give_up.saturating_duration_since(Instant::now()));
            launchers.retain(|pid| !windlass_process::child_wait::is_over(*pid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_messages_give_the_cause_of_an_end() {
        let interrupted = AttemptEndCause::Stopped(StopReason::Interrupted);
        for (words, expected) in [
            (None, AttemptEndCause::Itself),
            (Some(""), AttemptEndCause::Itself),
            (Some("srun: error: n1: task 0: Exited with exit code 3"), AttemptEndCause::Itself),
            (Some("srun: error: n1: task 0: Out Of Memory"), AttemptEndCause::OutOfMemory),
            (
                Some(
                    "Killed\nslurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=8.2. Some of your processes may \
                     have been killed by the cgroup out-of-memory handler.",
                ),
                AttemptEndCause::OutOfMemory,
            ),
            (
                Some("slurmstepd: error: Detected 1 oom_kill event in StepId=8.2."),
                AttemptEndCause::OutOfMemory,
            ),
            (
                Some(
                    "slurmstepd-n1: error: StepId=8.2 exceeded memory limit (419430400 > 104857600), being killed",
                ),
                AttemptEndCause::OutOfMemory,
            ),
            (Some("slurmstepd: error: Exceeded job memory limit"), AttemptEndCause::OutOfMemory),
            (
                Some(
                    "slurmstepd-n1: error: *** STEP 8.5 ON n1 CANCELLED AT 2026-11-16T11:05:19 DUE TO TIME LIMIT ***",
                ),
                AttemptEndCause::Timeout,
            ),
            (
                Some(
                    "slurmstepd: error: *** STEP 8.5 ON n1 CANCELLED AT 2026-11-16T11:05:19 DUE TO PREEMPTION ***",
                ),
                interrupted,
            ),
            (
                Some("slurmstepd-n1: error: *** STEP 8.5 ON n1 CANCELLED AT 2026-11-16T11:05:19 ***"),
                AttemptEndCause::Itself,
            ),
            (Some("solver: oom-kill event in the model"), AttemptEndCause::Itself),
        ] {
            assert_eq!(classify_launcher_end(words, false), expected, "{words:?}");
            let seen =
                if expected == AttemptEndCause::Itself { AttemptEndCause::OutOfMemory } else { expected };
            assert_eq!(classify_launcher_end(words, true), seen, "{words:?}, with an out-of-memory kill");
        }
    }
}
