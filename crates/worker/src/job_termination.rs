//! Ends jobs on request, their leftover processes, and everything when the engine is gone.

use crate::job_slot::{JobSlot, PendingStop, RunningAttempt, SlotState, StopCause};
use crate::lock_ignoring_poison;
use crate::report_outbox::ReportUrgency;
use crate::worker_process::WorkerState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use windlass_process::child_wait::ReapedChild;
use windlass_process::ledger::StrayProcessRecord;
use windlass_process::process_tree::{self, JobProcesses, ProcessMark};
use windlass_process::{Pid, Signal, cgroup, child_wait, process_identity, procfs};
use windlass_types::log_attempt;
use windlass_types::worker_messages::{AttemptKey, StopReason};
use windlass_types::worker_protocol::StopCommand;

/// How long to wait for processes to end before checking again.
const WAIT_STEP: Duration = Duration::from_millis(50);
/// A process that survives SIGKILL for this long hangs in the kernel; waiting for it would be in vain.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often to scan again for leftovers when a scan found none but could have missed some.
const MAX_UNCERTAIN_SCANS: u32 = 50;
const UNCERTAIN_SCAN_DELAY: Duration = Duration::from_millis(1);
/// How often the list of adopted processes is read again because some of them had ended.
const MAX_REAPING_ROUNDS: u32 = 100;

/// Adopted processes recorded in the ledger, by pid and start time.
pub(crate) type StrayProcessRecords = HashMap<(Pid, u64), StrayProcessRecord>;

impl WorkerState {
    /// Returns assignments that have not started, and asks running jobs to end.
    pub(crate) fn stop_all(self: &Arc<Self>, why: StopReason, grace: Duration) {
        self.is_told_to_stop.store(true, Ordering::SeqCst);
        if why == StopReason::Interrupted {
            self.possible_interruptions.on_interrupted();
        }
        self.stop_matching(why, grace, |_| true);
        self.deliver_certain_ends(ReportUrgency::CanWait);
    }

    /// The same for one workflow or single attempts.
    pub(crate) fn stop_selected(self: &Arc<Self>, order: &StopCommand) {
        let attempts: HashSet<&AttemptKey> = order.attempts.iter().collect();
        self.stop_matching(order.why, order.grace, |key| {
            key.workflow == order.workflow && (attempts.is_empty() || attempts.contains(key))
        });
    }

    fn stop_matching(
        self: &Arc<Self>,
        why: StopReason,
        grace: Duration,
        meant: impl Fn(&AttemptKey) -> bool + Copy,
    ) {
        self.return_unstarted(meant);
        let slots = lock_ignoring_poison(&self.job_queue).slots.clone();
        for slot in slots {
            self.stop_slot(&slot, StopCause::Engine(why), grace, meant);
        }
        self.alarm.wake_at(Instant::now());
    }

    fn stop_slot(
        &self,
        slot: &JobSlot,
        cause: StopCause,
        grace: Duration,
        meant: impl Fn(&AttemptKey) -> bool,
    ) {
        let mut state = lock_ignoring_poison(&slot.state);
        if !state.key().is_some_and(meant) {
            return;
        }
        let by = Instant::now() + grace;
        match &mut *state {
            SlotState::Idle => {}
            SlotState::Starting { stop, .. } => {
                let kill_at = stop.map_or(by, |stop| stop.kill_at.min(by));
                *stop = Some(PendingStop { cause, kill_at });
            }
            SlotState::Running(running) => self.stop_running(slot, running, cause, grace),
            SlotState::Ending { kill_at, stop, .. } => {
                *kill_at = by.min(*kill_at);
                *stop = Some(PendingStop { cause, kill_at: *kill_at });
            }
        }
    }

    /// Stops a job. The first cause stands; a later one can only shorten the grace period. A job that already
    /// ended by itself but was not yet handled by its slot is not stopped any more: its leftovers are ended in
    /// any case.
    pub(crate) fn stop_running(
        &self,
        slot: &JobSlot,
        running: &mut RunningAttempt,
        cause: StopCause,
        grace: Duration,
    ) {
        if running.stop.is_none() && child_wait::is_over(running.pid) {
            return;
        }
        // A frozen job cannot end by itself, and must not be thawed for it.
        let grace = if running.frozen_since.is_some() { Duration::ZERO } else { grace };
        let now = Instant::now();
        let by = now + grace;
        if let Some(stop) = &mut running.stop {
            if running.remote_launch.is_some() {
                return;
            }
            stop.kill_at = stop.kill_at.min(by);
        } else {
            log_attempt!(debug, running.key, ?cause, ?grace, "job is stopped");
            running.stop = Some(PendingStop { cause, kill_at: by });
            if Self::cancel_launched(running, now) {
                return;
            }
            if !grace.is_zero() {
                self.send_stop_signal(slot, running);
            }
        }
        if grace.is_zero() {
            self.kill_running(slot, running, now);
        }
    }

    pub(crate) fn send_stop_signal(&self, slot: &JobSlot, running: &RunningAttempt) {
        self.signal_job(slot, &running.key, running.pid, running.termination_signal());
    }

    pub(crate) fn kill_running(&self, slot: &JobSlot, running: &mut RunningAttempt, now: Instant) {
        log_attempt!(debug, running.key, "job is killed");
        kill_group(slot);
        self.signal_job(slot, &running.key, running.pid, Signal::KILL);
        running.schedule_kill_retry(now);
    }

    /// All processes that are known to belong to a job.
    pub(crate) fn job_processes(&self, slot: &JobSlot, key: &AttemptKey, leader: Pid) -> Vec<Pid> {
        let in_cgroup = cgroup_processes(slot);
        let job_processes =
            JobProcesses { key, token: &self.options.token, group: leader, cgroup: &in_cgroup };
        job_processes.members(&self.adopted.list())
    }

    fn signal_job(&self, slot: &JobSlot, key: &AttemptKey, leader: Pid, signal: Signal) {
        let members = self.job_processes(slot, key, leader);
        lock_ignoring_poison(&slot.orphan_usage).record_processes(&members);
        process_tree::signal_group_and_members(leader, &members, signal);
    }

    /// Ends the leftover processes of a job. Its first process is still a zombie, which keeps its group id from
    /// being reused.
    pub(crate) fn end_leftovers(&self, slot: &JobSlot, key: &AttemptKey, leader: Pid) {
        let mut asked: HashSet<Pid> = HashSet::new();
        let (mut killing_since, mut doubtful_looks) = (None, 0);
        loop {
            let LeftoverProcesses { processes: left, is_certain } = self.find_leftovers(slot, key, leader);
            if left.is_empty() && !is_certain && doubtful_looks < MAX_UNCERTAIN_SCANS {
                doubtful_looks += 1;
                thread::sleep(UNCERTAIN_SCAN_DELAY);
                continue;
            }
            doubtful_looks = 0;
            lock_ignoring_poison(&slot.orphan_usage).record_processes(&left);
            let now = Instant::now();
            let kill_at = match &*lock_ignoring_poison(&slot.state) {
                SlotState::Ending { kill_at, .. } => *kill_at,
                SlotState::Idle | SlotState::Starting { .. } | SlotState::Running(_) => now,
            };
            let hopeless =
                killing_since.is_some_and(|since| now.saturating_duration_since(since) > KILL_TIMEOUT);
            if left.is_empty() || hopeless {
                return;
            }
            if now >= kill_at {
                killing_since.get_or_insert(now);
                kill_group(slot);
                process_tree::signal_group_and_members(leader, &left, Signal::KILL);
            } else if asked.is_empty() {
                asked.extend(&left);
                process_tree::signal_group_and_members(leader, &left, Signal::TERM);
            } else {
                // Processes started since then.
                left.iter()
                    .filter(|pid| asked.insert(**pid))
                    .for_each(|pid| process_tree::signal_process(*pid, Signal::TERM));
            }
            // Wait in short steps: another thread may have shortened `kill_at`.
            process_tree::wait_for_exit(&left, WAIT_STEP);
        }
    }

    /// The processes of this job that outlive its first process, and those that no running job could have
    /// started.
    fn find_leftovers(&self, slot: &JobSlot, key: &AttemptKey, leader: Pid) -> LeftoverProcesses {
        let adopted = self.reap_adopted();
        if adopted.is_empty() {
            return LeftoverProcesses { processes: Vec::new(), is_certain: true };
        }
        let all = adopted.clone();
        let in_cgroup = cgroup_processes(slot);
        let job_processes =
            JobProcesses { key, token: &self.options.token, group: leader, cgroup: &in_cgroup };
        let mut left = job_processes.members(&adopted);
        let others = self.other_jobs(slot);
        let strays = adopted.into_iter().filter(|pid| !left.contains(pid)).collect::<Vec<_>>();
        let ownerless = strays.into_iter().filter(|pid| self.is_ownerless(*pid, &others));
        left.extend(process_tree::with_descendants(ownerless));
        // A process that ended since the list was made may have left a child that is not in it.
        let is_certain =
            !all.iter().any(|pid| !procfs::is_running(*pid) || process_tree::may_be_executing(*pid));
        LeftoverProcesses { processes: left, is_certain }
    }

    /// Reaps the dead among the adopted processes; returns the others. Locked, so that no thread waits for a
    /// pid that another slot has just reaped and a new job got.
    fn reap_adopted(&self) -> Vec<Pid> {
        let _one_at_a_time = lock_ignoring_poison(&self.reaping_lock);
        let mut adopted = Vec::new();
        for _ in 0..MAX_REAPING_ROUNDS {
            adopted = self.adopted.list();
            let before = adopted.len();
            adopted.retain(|pid| !self.reap_if_over(*pid));
            // The children of a process that ended after the list was made are not in it.
            if adopted.len() == before {
                break;
            }
        }
        adopted
    }

    /// Returns whether it had ended.
    fn reap_if_over(&self, pid: Pid) -> bool {
        if !self.may_reap(pid) || !child_wait::is_over(pid) {
            return false;
        }
        let stat = procfs::read_stat(pid);
        let Some(reaped) = child_wait::reap_if_over(pid) else { return false };
        self.record_orphan_usage(pid, stat.as_ref(), &reaped);
        true
    }

    /// Adds its usage to that of its job. A process that left its group unseen is counted only if a single job
    /// runs.
    fn record_orphan_usage(&self, pid: Pid, stat: Option<&procfs::ProcessStat>, reaped: &ReapedChild) {
        let slots = lock_ignoring_poison(&self.job_queue).slots.clone();
        let open: Vec<&Arc<JobSlot>> =
            slots.iter().filter(|slot| lock_ignoring_poison(&slot.orphan_usage).is_open()).collect();
        let owner = open.iter().find(|slot| lock_ignoring_poison(&slot.orphan_usage).is_of_job(pid, stat));
        if let Some(slot) = owner.or(open.first().filter(|_| open.len() == 1)) {
            lock_ignoring_poison(&slot.orphan_usage).add_reaped(reaped);
        }
    }

    /// Where the system does not list children by thread, the first processes of jobs are among the adopted.
    /// They lead their groups, and their slots wait for them.
    fn may_reap(&self, pid: Pid) -> bool {
        self.adopted.is_exact()
            || procfs::read_stat(pid).is_some_and(|stat| stat.group != pid.as_raw_nonzero().get())
    }

    /// The jobs in the other slots that may have started a process.
    fn other_jobs(&self, own: &JobSlot) -> Vec<OtherJob> {
        let slots = lock_ignoring_poison(&self.job_queue).slots.clone();
        slots
            .iter()
            .filter(|slot| !std::ptr::eq(&raw const ***slot, own))
            .filter_map(OtherJob::from_slot)
            .collect()
    }

    /// Whether no running job can have started it: it has the mark of none of them and is older than all of
    /// them.
    fn is_ownerless(&self, pid: Pid, others: &[OtherJob]) -> bool {
        let Some(stat) = procfs::read_stat(pid) else { return false };
        let mark = ProcessMark::read_process(pid, &self.options.token);
        match mark {
            ProcessMark::Ours { .. } => !others.iter().any(|other| mark.is_of_attempt(&other.key)),
            ProcessMark::None => !others.iter().any(|other| other.may_own(pid, &stat)),
        }
    }

    /// Reaps the dead among the adopted processes, and records in the ledger those of the living that could not
    /// be found after the death of this worker: the ones without a mark.
    pub(crate) fn reap_and_record_adopted(&self, strays: &mut StrayProcessRecords) {
        if self.adopted.is_empty() && strays.is_empty() {
            return;
        }
        let mut living = StrayProcessRecords::new();
        for pid in self.reap_adopted() {
            let Some(stat) = procfs::read_stat(pid).filter(|stat| !stat.is_over()) else { continue };
            let stray = (pid, stat.start_ticks);
            // If recording fails, one safeguard is missing, and the next check tries again.
            let note = strays.remove(&stray).or_else(|| self.record_if_unmarked(stray));
            living.extend(note.map(|note| (stray, note)));
        }
        for (_, note) in std::mem::replace(strays, living) {
            self.ledger.close_stray(note);
        }
    }

    fn record_if_unmarked(&self, (pid, start_ticks): (Pid, u64)) -> Option<StrayProcessRecord> {
        let unmarked = ProcessMark::read_process(pid, &self.options.token) == ProcessMark::None;
        unmarked.then(|| self.ledger.record_stray(pid, start_ticks).ok()).flatten()
    }

    /// Kills all processes that this worker or its jobs started, until none is left.
    pub(crate) fn kill_everything(&self) {
        let give_up = Instant::now() + KILL_TIMEOUT;
        while Instant::now() < give_up {
            let adopted = self.reap_adopted();
            let own = process_identity::own_pid();
            let mut living = process_tree::with_descendants([own]);
            living.retain(|pid| *pid != own);
            // A process that ended during the scan may have left a child.
            if living.is_empty() && adopted.is_empty() && lock_ignoring_poison(&self.job_queue).busy_jobs == 0
            {
                return;
            }
            for pid in &living {
                process_tree::kill_process(*pid);
            }
            process_tree::wait_for_exit(
                &living,
                if living.is_empty() { UNCERTAIN_SCAN_DELAY } else { WAIT_STEP },
            );
        }
    }
}

/// The leftover processes of a job.
struct LeftoverProcesses {
    processes: Vec<Pid>,
    /// No process ended or began during the scan: otherwise one that keeps forking and exiting may have been
    /// missed.
    is_certain: bool,
}

/// Kills all processes of the cgroup at once, where the system can.
fn kill_group(slot: &JobSlot) {
    if let Some(group) = &slot.cgroup {
        group.kill_all();
    }
}

/// A job in another slot, as far as it matters for the ownership of an orphan.
struct OtherJob {
    key: AttemptKey,
    /// In boot ticks; `None`: about to start, so that any process may be its own.
    started_after: Option<u64>,
    in_cgroup: Vec<Pid>,
}

impl OtherJob {
    fn from_slot(slot: &Arc<JobSlot>) -> Option<Self> {
        let (key, started_after) = match &*lock_ignoring_poison(&slot.state) {
            SlotState::Idle | SlotState::Ending { .. } => return None,
            SlotState::Starting { key, .. } => (*key, None),
            SlotState::Running(running) => (running.key, Some(running.started_after)),
        };
        Some(Self { key, started_after, in_cgroup: cgroup_processes(slot) })
    }

    fn may_own(&self, pid: Pid, stat: &procfs::ProcessStat) -> bool {
        self.in_cgroup.contains(&pid) || self.started_after.is_none_or(|born| stat.start_ticks >= born)
    }
}

/// The processes in a slot's cgroup, if it has one.
pub(crate) fn cgroup_processes(slot: &JobSlot) -> Vec<Pid> {
    slot.cgroup.as_ref().map(cgroup::SlotCgroup::processes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_slot::tests::{running, spawn, worker};

    #[test]
    fn a_job_that_ended_before_the_stop_is_not_reported_as_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let worker = worker(directory.path());
        let slot = JobSlot::new(SlotState::Idle, None);
        for (command, ends_first) in [("exit 0", true), ("exec sleep 1000", false)] {
            let pid = spawn(&worker, command);
            if ends_first {
                child_wait::wait_until_over(pid).unwrap();
            }
            let mut job = RunningAttempt { pid, ..running(Instant::now(), None) };
            worker.stop_running(&slot, &mut job, StopCause::Engine(StopReason::Canceled), Duration::ZERO);
            assert_eq!(job.stop.is_none(), ends_first, "{command}");
            child_wait::reap_child(pid).unwrap();
        }
    }
}
