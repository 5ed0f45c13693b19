//! After a crash: makes sure that a worker of which only the records are left, and all that it ever started, is dead.
//!
//! First the worker itself, so that it starts nothing more. Then, round by round until a whole round finds nothing: what
//! its ledger names (by pid *and* start time), what carries its token in the environment, what is in its cgroups, and
//! whatever descends from these or shares a group with them.

use crate::identity::{self, Identity, from_pid};
use crate::ledger::{Contents, Subject};
use crate::procfs::{self, Stat};
use crate::{cgroup, machine, tree};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use windlass_types::work::AttemptKey;

/// How long one round waits for somebody to end before it looks again.
const ROUND: Duration = Duration::from_millis(50);

/// A worker as it was remembered.
#[derive(Clone, Copy, Debug)]
pub struct Deceased<'a> {
    pub host: &'a str,
    pub boot_id: &'a str,
    pub process: Identity,
    pub token: &'a str,
    pub ledger: &'a Path,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The worker itself still ran.
    pub worker_was_alive: bool,
    /// Processes that had to be ended, the worker aside.
    pub ended: Vec<u32>,
    /// The attempts that had started, or may have. `None`: nobody can tell (there is no ledger, or the machine was
    /// started anew and it may not have reached the disk), so any claim may have.
    pub started: Option<Vec<AttemptKey>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the worker ran on {host}, and this is {here}: from here nobody can tell whether its jobs still run"
    )]
    OtherHost { host: String, here: String },
    #[error(
        "this process was itself started by the worker that is to be ended (process {pid}); run it from outside"
    )]
    OurOwnAncestor { pid: u32 },
    #[error("these processes of the worker do not end: {}", list(pids))]
    StillAlive { pids: Vec<u32> },
    #[error("cannot read the boot id: {0}")]
    BootId(#[source] io::Error),
}

/// Returns when nothing of that worker lives, or says why that cannot be.
pub fn make_sure_dead(worker: &Deceased<'_>, patience: Duration) -> Result<Report, Error> {
    let here = machine::hostname();
    if here != worker.host {
        return Err(Error::OtherHost { host: worker.host.to_owned(), here });
    }
    if identity::boot_id().map_err(Error::BootId)? != worker.boot_id {
        return Ok(Report { worker_was_alive: false, ended: Vec::new(), started: None });
    }
    let give_up = Instant::now() + patience;
    let worker_was_alive = worker.process.is_alive();
    if worker_was_alive {
        end_worker(worker.process, give_up)?;
    }
    // Only now: until its end the worker wrote to it.
    let ledger = Contents::read(worker.ledger).ok();
    let ended = Search::new(worker, ledger.as_ref()).end_all(give_up)?;
    if let Some(directory) = ledger.as_ref().and_then(|ledger| ledger.cgroup.as_deref()) {
        cgroup::remove(directory);
    }
    Ok(Report { worker_was_alive, ended, started: ledger.map(|ledger| ledger.started()) })
}

fn end_worker(worker: Identity, give_up: Instant) -> Result<(), Error> {
    if is_self_or_ancestor(worker.pid) {
        return Err(Error::OurOwnAncestor { pid: worker.pid });
    }
    while worker.is_alive() {
        if Instant::now() >= give_up {
            return Err(Error::StillAlive { pids: vec![worker.pid] });
        }
        kill(worker);
        tree::await_exit(identity::to_pid(worker.pid).as_slice(), ROUND);
    }
    Ok(())
}

/// Looks for the family of a dead worker.
struct Search<'a> {
    token: &'a str,
    ledger: Option<&'a Contents>,
    /// All members ever found: a group or session that one of them leads is the family's too, so that a child born
    /// between the look and the kill is found in the next round.
    known: HashSet<i32>,
}

impl<'a> Search<'a> {
    fn new(worker: &Deceased<'a>, ledger: Option<&'a Contents>) -> Self {
        Self { token: worker.token, ledger, known: HashSet::new() }
    }

    fn end_all(mut self, give_up: Instant) -> Result<Vec<u32>, Error> {
        let mut ended: Vec<u32> = Vec::new();
        loop {
            let living = self.living();
            if living.is_empty() {
                ended.sort_unstable();
                ended.dedup();
                return Ok(ended);
            }
            if let Some(own) = living.iter().find(|found| is_self_or_ancestor(found.pid)) {
                return Err(Error::OurOwnAncestor { pid: own.pid });
            }
            if Instant::now() >= give_up {
                return Err(Error::StillAlive { pids: living.iter().map(|found| found.pid).collect() });
            }
            for found in &living {
                kill(*found);
                ended.push(found.pid);
            }
            let pids: Vec<Pid> = living.iter().filter_map(|found| identity::to_pid(found.pid)).collect();
            tree::await_exit(&pids, ROUND);
        }
    }

    /// All members that run now.
    fn living(&mut self) -> Vec<Identity> {
        let everybody: HashMap<Pid, Stat> =
            procfs::all_pids().into_iter().filter_map(|pid| Some((pid, procfs::stat(pid)?))).collect();
        let in_cgroup: Vec<Pid> = self
            .ledger
            .and_then(|ledger| ledger.cgroup.as_deref())
            .map(cgroup::processes_below)
            .unwrap_or_default();
        let mut members: HashSet<Pid> = everybody
            .iter()
            .filter(|(pid, stat)| in_cgroup.contains(pid) || self.is_member(**pid, stat))
            .map(|(pid, _)| *pid)
            .collect();
        add_descendants(&mut members, &everybody);
        self.known.extend(members.iter().map(|pid| pid.as_raw_nonzero().get()));
        members
            .into_iter()
            .filter_map(|pid| everybody.get(&pid).map(|stat| (pid, stat)))
            .filter(|(_, stat)| !stat.is_over())
            .map(|(pid, stat)| Identity { pid: from_pid(pid), start_ticks: stat.start_ticks })
            .collect()
    }

    fn is_member(&self, pid: Pid, stat: &Stat) -> bool {
        self.known.contains(&stat.group)
            || self.known.contains(&stat.session)
            || self.ledger.is_some_and(|ledger| is_noted(ledger, pid, stat))
            || procfs::environment(pid, [tree::tag::WORKER])[0].as_deref() == Some(self.token)
    }
}

/// In the ledger itself, or in the group of one that is: a group outlives its leader, and as long as it does nobody
/// else gets that id. The session tells it from a later group of the same id.
fn is_noted(ledger: &Contents, pid: Pid, stat: &Stat) -> bool {
    ledger.entries.iter().any(|entry| {
        let in_its_group = matches!(entry.subject, Subject::Attempt(_))
            && entry.pid.is_some_and(|leader| leader.as_raw_nonzero().get() == stat.group)
            && stat.session == ledger.session
            && stat.start_ticks >= entry.window.0
            && entry.pid != Some(pid)
            && leader_is_gone_or_noted(entry);
        entry.is(pid, stat.start_ticks) || in_its_group
    })
}

fn leader_is_gone_or_noted(entry: &crate::ledger::Entry) -> bool {
    let leader = entry.pid.and_then(|pid| Some((pid, procfs::stat(pid)?)));
    leader.is_none_or(|(pid, stat)| entry.is(pid, stat.start_ticks))
}

fn add_descendants(members: &mut HashSet<Pid>, everybody: &HashMap<Pid, Stat>) {
    let mut children: HashMap<i32, Vec<Pid>> = HashMap::new();
    for (pid, stat) in everybody {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let mut open: Vec<Pid> = members.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid.as_raw_nonzero().get()).into_iter().flatten() {
            if members.insert(*child) {
                open.push(*child);
            }
        }
    }
}

/// By a handle, with the start time looked at once more behind it, so that a reused pid is never hit.
fn kill(target: Identity) {
    let Some(pid) = identity::to_pid(target.pid) else { return };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) if target.is_alive() => {
            // It may be over by now, which is as good.
            pidfd_send_signal(&handle, Signal::KILL).ok();
        }
        Ok(_) | Err(rustix::io::Errno::SRCH) => {}
        // Kernels before 5.3 have no such handles.
        Err(_) if target.is_alive() => {
            rustix::process::kill_process(pid, Signal::KILL).ok();
        }
        Err(_) => {}
    }
}

fn is_self_or_ancestor(pid: u32) -> bool {
    let mut at = Some(rustix::process::getpid());
    while let Some(current) = at {
        if from_pid(current) == pid {
            return true;
        }
        at = procfs::stat(current).and_then(|stat| Pid::from_raw(stat.parent));
    }
    false
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;

    const NOBODY: Identity = Identity { pid: u32::MAX, start_ticks: 0 };

    fn deceased<'a>(host: &'a str, boot_id: &'a str, token: &'a str) -> Deceased<'a> {
        Deceased { host, boot_id, process: NOBODY, token, ledger: Path::new("/no/such/ledger") }
    }

    #[test]
    fn another_host_cannot_be_judged_from_here() {
        let error = make_sure_dead(&deceased("elsewhere", "x", "t"), Duration::ZERO).unwrap_err();
        assert!(matches!(&error, Error::OtherHost { host, .. } if host == "elsewhere"), "{error}");
    }

    #[test]
    fn after_a_boot_nothing_lives_and_nobody_knows_what_had_started() {
        let report =
            make_sure_dead(&deceased(&machine::hostname(), "another boot", "t"), Duration::ZERO).unwrap();
        assert_eq!(report, Report { worker_was_alive: false, ended: vec![], started: None });
    }

    #[test]
    fn what_carries_the_token_is_ended_with_its_descendants() {
        let (host, boot) = (machine::hostname(), identity::boot_id().unwrap());
        let token = format!("bury-test-{}", std::process::id());
        let mut job = std::process::Command::new("sh")
            .args(["-c", "env -i sh -c 'echo ready; sleep 1000' & wait"])
            .env(tree::tag::WORKER, &token)
            .process_group(0)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut io::BufReader::new(job.stdout.take().unwrap()), &mut line).unwrap();

        let report = make_sure_dead(&deceased(&host, &boot, &token), Duration::from_secs(20)).unwrap();
        // `sh`, its `sh`, and the `sleep` of that, if it had got that far.
        assert!(report.ended.contains(&job.id()) && report.ended.len() >= 2, "{report:?}");
        job.wait().unwrap();
        let again = make_sure_dead(&deceased(&host, &boot, &token), Duration::from_secs(20)).unwrap();
        assert_eq!(again, Report { worker_was_alive: false, ended: vec![], started: None });
    }
}
