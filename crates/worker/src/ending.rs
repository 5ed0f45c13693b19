//! Ending jobs: one that is told to stop, what one leaves behind, and everything when the engine is gone.

use crate::lock;
use crate::outbox::Urgency;
use crate::service::Worker;
use crate::slot::{Running, Slot, State, Stop, StopCause};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use windlass_proc::ledger::StrayNote;
use windlass_proc::tree::{self, Family, Mark};
use windlass_proc::wait::Reaped;
use windlass_proc::{Pid, Signal, cgroup, identity, procfs, wait};
use windlass_types::fleet::StopOrder;
use windlass_types::work::{AttemptKey, StopReason};

/// How long to wait for somebody to end before looking again.
const ROUND: Duration = Duration::from_millis(50);
/// A process that survives SIGKILL for so long hangs in the kernel; nobody can end it, so nobody waits for it.
const HOPELESS: Duration = Duration::from_secs(10);

/// How often to look again for leftovers when a look found none but could have overlooked some.
const DOUBTFUL_LOOKS: u32 = 50;
const DOUBTFUL_PAUSE: Duration = Duration::from_millis(1);
/// How often the list of the adopted is read again because some of them were over.
const REAPING_ROUNDS: u32 = 100;

/// The strays that the ledger names, by pid and start time.
pub(crate) type Strays = HashMap<(Pid, u64), StrayNote>;

impl Worker {
    /// Hands back what has not started and asks what runs to end.
    pub(crate) fn stop(self: &Arc<Self>, why: StopReason, grace: Duration) {
        self.is_told_to_stop.store(true, Ordering::SeqCst);
        if why == StopReason::Interrupted {
            self.held_ends.on_interrupted();
        }
        self.stop_those(why, grace, |_| true);
        self.deliver_certain_ends(Urgency::CanWait);
    }

    /// The same for one workflow, or single attempts.
    pub(crate) fn stop_some(self: &Arc<Self>, order: &StopOrder) {
        let attempts: HashSet<&AttemptKey> = order.attempts.iter().collect();
        self.stop_those(order.why, order.grace, |key| {
            key.workflow == order.workflow && (attempts.is_empty() || attempts.contains(key))
        });
    }

    fn stop_those(
        self: &Arc<Self>,
        why: StopReason,
        grace: Duration,
        meant: impl Fn(&AttemptKey) -> bool + Copy,
    ) {
        self.recall(meant);
        let slots = lock(&self.yard).slots.clone();
        for slot in slots {
            self.stop_slot(&slot, StopCause::Engine(why), grace, meant);
        }
        self.alarm.set(Instant::now());
    }

    fn stop_slot(&self, slot: &Slot, cause: StopCause, grace: Duration, meant: impl Fn(&AttemptKey) -> bool) {
        let mut state = lock(&slot.state);
        if !state.key().is_some_and(meant) {
            return;
        }
        let by = Instant::now() + grace;
        match &mut *state {
            State::Idle => {}
            State::Starting { stop, .. } => {
                let kill_at = stop.map_or(by, |stop| stop.kill_at.min(by));
                *stop = Some(Stop { cause, kill_at });
            }
            State::Running(running) => self.stop_running(slot, running, cause, grace),
            State::Leaving { kill_at, stop, .. } => {
                *kill_at = by.min(*kill_at);
                *stop = Some(Stop { cause, kill_at: *kill_at });
            }
        }
    }

    /// The first cause stands; a later one can only shorten the grace. A job that ended by itself, of which its slot has
    /// only not taken note yet, is not stopped any more: what it left behind is ended in any case.
    pub(crate) fn stop_running(&self, slot: &Slot, running: &mut Running, cause: StopCause, grace: Duration) {
        if running.stop.is_none() && wait::is_over(running.pid) {
            return;
        }
        // One that is frozen could not end by itself, and must not be woken for it.
        let grace = if running.frozen_since.is_some() { Duration::ZERO } else { grace };
        let now = Instant::now();
        let by = now + grace;
        if let Some(stop) = &mut running.stop {
            if running.elsewhere.is_some() {
                return;
            }
            stop.kill_at = stop.kill_at.min(by);
        } else {
            running.stop = Some(Stop { cause, kill_at: by });
            if Self::call_off(running, now) {
                return;
            }
            if !grace.is_zero() {
                self.ask_to_end(slot, running);
            }
        }
        if grace.is_zero() {
            self.kill_running(slot, running, now);
        }
    }

    pub(crate) fn ask_to_end(&self, slot: &Slot, running: &Running) {
        self.signal_family(slot, &running.key, running.pid, running.polite_signal());
    }

    pub(crate) fn kill_running(&self, slot: &Slot, running: &mut Running, now: Instant) {
        kill_group(slot);
        self.signal_family(slot, &running.key, running.pid, Signal::KILL);
        running.killed(now);
    }

    /// All processes of a job that can be told to be its own.
    pub(crate) fn family(&self, slot: &Slot, key: &AttemptKey, leader: Pid) -> Vec<Pid> {
        let in_cgroup = processes_in(slot);
        let family = Family { key, token: &self.options.token, group: leader, cgroup: &in_cgroup };
        family.members(&self.adopted.list())
    }

    fn signal_family(&self, slot: &Slot, key: &AttemptKey, leader: Pid, signal: Signal) {
        let members = self.family(slot, key, leader);
        lock(&slot.orphans).see(&members);
        tree::signal(leader, &members, signal);
    }

    /// Ends what a job left behind. Its first process is a zombie still, which keeps its group's id from being reused.
    pub(crate) fn clear_away(&self, slot: &Slot, key: &AttemptKey, leader: Pid) {
        let mut asked: HashSet<Pid> = HashSet::new();
        let (mut killing_since, mut doubtful_looks) = (None, 0);
        loop {
            let Leftovers { left, is_certain } = self.leftovers(slot, key, leader);
            if left.is_empty() && !is_certain && doubtful_looks < DOUBTFUL_LOOKS {
                doubtful_looks += 1;
                thread::sleep(DOUBTFUL_PAUSE);
                continue;
            }
            doubtful_looks = 0;
            lock(&slot.orphans).see(&left);
            let now = Instant::now();
            let kill_at = match &*lock(&slot.state) {
                State::Leaving { kill_at, .. } => *kill_at,
                State::Idle | State::Starting { .. } | State::Running(_) => now,
            };
            let hopeless = killing_since.is_some_and(|since| now.saturating_duration_since(since) > HOPELESS);
            if left.is_empty() || hopeless {
                return;
            }
            if now >= kill_at {
                killing_since.get_or_insert(now);
                kill_group(slot);
                tree::signal(leader, &left, Signal::KILL);
            } else if asked.is_empty() {
                asked.extend(&left);
                tree::signal(leader, &left, Signal::TERM);
            } else {
                // Those that were born since.
                left.iter()
                    .filter(|pid| asked.insert(**pid))
                    .for_each(|pid| tree::signal_one(*pid, Signal::TERM));
            }
            // Not until `kill_at`: somebody may have moved it closer meanwhile.
            tree::await_exit(&left, ROUND);
        }
    }

    /// What runs of this job after its first process, and what nobody that runs could have started.
    fn leftovers(&self, slot: &Slot, key: &AttemptKey, leader: Pid) -> Leftovers {
        let adopted = self.reap_adopted();
        if adopted.is_empty() {
            return Leftovers { left: Vec::new(), is_certain: true };
        }
        let all = adopted.clone();
        let in_cgroup = processes_in(slot);
        let family = Family { key, token: &self.options.token, group: leader, cgroup: &in_cgroup };
        let mut left = family.members(&adopted);
        let others = self.others(slot);
        let strays = adopted.into_iter().filter(|pid| !left.contains(pid)).collect::<Vec<_>>();
        let ownerless = strays.into_iter().filter(|pid| self.is_ownerless(*pid, &others));
        left.extend(tree::with_descendants(ownerless));
        // One that ended since the list was made may have left a child that is not in it.
        let is_certain = !all.iter().any(|pid| !procfs::is_running(*pid) || tree::may_be_executing(*pid));
        Leftovers { left, is_certain }
    }

    /// Takes note of the dead among the adopted; returns the others. One at a time, so that a pid that another slot has
    /// just taken off the books, and that a new job got, is not waited for here.
    fn reap_adopted(&self) -> Vec<Pid> {
        let _one_at_a_time = lock(&self.reaping);
        let mut adopted = Vec::new();
        for _ in 0..REAPING_ROUNDS {
            adopted = self.adopted.list();
            let before = adopted.len();
            adopted.retain(|pid| !self.reap_if_over(*pid));
            // The children of one that ended after the list was made are not in it.
            if adopted.len() == before {
                break;
            }
        }
        adopted
    }

    /// Says whether it was over.
    fn reap_if_over(&self, pid: Pid) -> bool {
        if !self.may_reap(pid) || !wait::is_over(pid) {
            return false;
        }
        let stat = procfs::stat(pid);
        let Some(reaped) = wait::reap_if_over(pid) else { return false };
        self.account_for_orphan(pid, stat.as_ref(), &reaped);
        true
    }

    /// Adds its usage to that of its job. One that left its group unseen is counted if only one job runs.
    fn account_for_orphan(&self, pid: Pid, stat: Option<&procfs::Stat>, reaped: &Reaped) {
        let slots = lock(&self.yard).slots.clone();
        let open: Vec<&Arc<Slot>> = slots.iter().filter(|slot| lock(&slot.orphans).is_open()).collect();
        let owner = open.iter().find(|slot| lock(&slot.orphans).includes(pid, stat));
        if let Some(slot) = owner.or(open.first().filter(|_| open.len() == 1)) {
            lock(&slot.orphans).add(reaped);
        }
    }

    /// Where the system does not list children by thread, first processes of jobs are among the adopted. They lead their
    /// groups, and their slots wait for them.
    fn may_reap(&self, pid: Pid) -> bool {
        self.adopted.is_exact()
            || procfs::stat(pid).is_some_and(|stat| stat.group != pid.as_raw_nonzero().get())
    }

    /// The jobs in the other slots that may have started something.
    fn others(&self, own: &Slot) -> Vec<Other> {
        let slots = lock(&self.yard).slots.clone();
        slots.iter().filter(|slot| !std::ptr::eq(&raw const ***slot, own)).filter_map(Other::of).collect()
    }

    /// Nobody that runs can have started it: it is none of theirs by any mark, and older than all of them.
    fn is_ownerless(&self, pid: Pid, others: &[Other]) -> bool {
        let Some(stat) = procfs::stat(pid) else { return false };
        let mark = Mark::read(pid, &self.options.token);
        match mark {
            Mark::Ours { .. } => !others.iter().any(|other| mark.names(&other.key)),
            Mark::None => !others.iter().any(|other| other.may_own(pid, &stat)),
        }
    }

    /// Takes note of the dead among the adopted, and notes in the ledger those of the living that could not be found
    /// again after our own death: the ones without a mark.
    pub(crate) fn tend_adopted(&self, strays: &mut Strays) {
        if self.adopted.is_empty() && strays.is_empty() {
            return;
        }
        let mut living = Strays::new();
        for pid in self.reap_adopted() {
            let Some(stat) = procfs::stat(pid).filter(|stat| !stat.is_over()) else { continue };
            let stray = (pid, stat.start_ticks);
            // If noting fails there is one safeguard less, and the next look tries again.
            let note = strays.remove(&stray).or_else(|| self.note_if_unmarked(stray));
            living.extend(note.map(|note| (stray, note)));
        }
        for (_, note) in std::mem::replace(strays, living) {
            self.ledger.close_stray(note);
        }
    }

    fn note_if_unmarked(&self, (pid, start_ticks): (Pid, u64)) -> Option<StrayNote> {
        let unmarked = Mark::read(pid, &self.options.token) == Mark::None;
        unmarked.then(|| self.ledger.note_stray(pid, start_ticks).ok()).flatten()
    }

    /// Kills all that we or our jobs ever started, until nothing is left.
    pub(crate) fn kill_everything(&self) {
        let give_up = Instant::now() + HOPELESS;
        while Instant::now() < give_up {
            let adopted = self.reap_adopted();
            let own = identity::own_pid();
            let mut living = tree::with_descendants([own]);
            living.retain(|pid| *pid != own);
            // One that ended while this looked may have left a child.
            if living.is_empty() && adopted.is_empty() && lock(&self.yard).busy == 0 {
                return;
            }
            for pid in &living {
                tree::kill(*pid);
            }
            tree::await_exit(&living, if living.is_empty() { DOUBTFUL_PAUSE } else { ROUND });
        }
    }
}

/// What a job left behind.
struct Leftovers {
    left: Vec<Pid>,
    /// No process ended or began while they were looked for: otherwise one that forks and exits all the time may have been
    /// overlooked.
    is_certain: bool,
}

/// Where the system can do it at once.
fn kill_group(slot: &Slot) {
    if let Some(group) = &slot.cgroup {
        group.kill_all();
    }
}

/// A job in another slot, as far as it matters for whose an orphan is.
struct Other {
    key: AttemptKey,
    /// In boot ticks; `None`: about to start, so anything may be its own.
    born_after: Option<u64>,
    in_cgroup: Vec<Pid>,
}

impl Other {
    fn of(slot: &Arc<Slot>) -> Option<Self> {
        let (key, born_after) = match &*lock(&slot.state) {
            State::Idle | State::Leaving { .. } => return None,
            State::Starting { key, .. } => (*key, None),
            State::Running(running) => (running.key, Some(running.born_after)),
        };
        Some(Self { key, born_after, in_cgroup: processes_in(slot) })
    }

    fn may_own(&self, pid: Pid, stat: &procfs::Stat) -> bool {
        self.in_cgroup.contains(&pid) || self.born_after.is_none_or(|born| stat.start_ticks >= born)
    }
}

/// Who is in a slot's cgroup, if it has one.
pub(crate) fn processes_in(slot: &Slot) -> Vec<Pid> {
    slot.cgroup.as_ref().map(cgroup::Slot::processes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::tests::{running, spawn, worker};

    #[test]
    fn a_job_that_ended_by_itself_before_the_stop_is_not_called_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let worker = worker(directory.path());
        let slot = Slot::new(State::Idle, None);
        for (command, ends_first) in [("exit 0", true), ("exec sleep 1000", false)] {
            let pid = spawn(&worker, command);
            if ends_first {
                wait::until_over(pid).unwrap();
            }
            let mut job = Running { pid, ..running(Instant::now(), None) };
            worker.stop_running(&slot, &mut job, StopCause::Engine(StopReason::Canceled), Duration::ZERO);
            assert_eq!(job.stop.is_none(), ends_first, "{command}");
            wait::reap(pid).unwrap();
        }
    }
}
