//! After a crash: makes sure that a worker of which only the records are left, and all that it ever started, is dead.
//!
//! First the worker itself, so that it starts nothing more. Then, round by round until a whole round finds nothing: what
//! its ledger names (by pid *and* start time), what is in the session it led, what carries its token in the environment,
//! what is in its cgroups, and whatever descends from these or shares a group with them.
//!
//! A number alone never convicts: the ledger names pids of jobs that ended long ago, and by now a group or session of
//! somebody else may have such a number.

use crate::identity::{self, FileIdentity, Identity, from_pid};
use crate::ledger::Contents;
use crate::procfs::{self, Stat};
use crate::{cgroup, machine, tree};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
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
    /// The file of the database that remembers it. A copy of that file remembers it too, but has no say in what becomes of
    /// its processes.
    pub database: Option<FileIdentity>,
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
    #[error(
        "processes of the worker still run ({}), but it was started for another database file, beside {}; this one may \
         be a copy of it", list(pids), ledger.display()
    )]
    OfAnotherDatabase { pids: Vec<u32>, ledger: PathBuf },
    #[error("cannot read the boot id: {0}")]
    BootId(#[source] io::Error),
}

/// What can be told of a worker from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Alive,
    /// Its process is not there any more, or was on a machine or in a container that has been started anew.
    Gone,
    /// It ran on another machine.
    OutOfSight,
}

/// Looks for a worker, and does nothing to it.
pub fn look_for(worker: &Deceased<'_>) -> Result<Life, Error> {
    let here = Place { host: &machine::hostname(), boot_id: &identity::boot_id().map_err(Error::BootId)? };
    Ok(match here.sight_of(&Place { host: worker.host, boot_id: worker.boot_id }) {
        Sight::Full if worker.process.is_alive() => Life::Alive,
        Sight::Full | Sight::OtherNamespace | Sight::EarlierBoot => Life::Gone,
        Sight::None => Life::OutOfSight,
    })
}

/// Returns when nothing of that worker lives, or says why that cannot be.
pub fn make_sure_dead(worker: &Deceased<'_>, patience: Duration) -> Result<Report, Error> {
    let here = Place { host: &machine::hostname(), boot_id: &identity::boot_id().map_err(Error::BootId)? };
    let pids_are_ours = match here.sight_of(&Place { host: worker.host, boot_id: worker.boot_id }) {
        Sight::Full => true,
        Sight::OtherNamespace => false,
        Sight::EarlierBoot => {
            return Ok(Report { worker_was_alive: false, ended: Vec::new(), started: None });
        }
        Sight::None => {
            return Err(Error::OtherHost { host: worker.host.to_owned(), here: here.host.to_owned() });
        }
    };
    if is_of_another_database(worker) {
        return leave_alone(worker, pids_are_ours);
    }
    let give_up = Instant::now() + patience;
    let worker_was_alive = pids_are_ours && worker.process.is_alive();
    if worker_was_alive {
        end_worker(worker.process, give_up)?;
    }
    // Only now: until its end the worker wrote to it.
    let ledger = Contents::read(worker.ledger).ok();
    let records = pids_are_ours.then_some(Records { worker: worker.process, ledger: ledger.as_ref() });
    let ended = Search::new(worker.token, records).end_all(give_up)?;
    if let Some(directory) = ledger.as_ref().and_then(|ledger| ledger.cgroup.as_deref()) {
        cgroup::remove(directory);
    }
    Ok(Report { worker_was_alive, ended, started: ledger.map(|ledger| ledger.started()) })
}

/// Whether the worker ran jobs of another database file than the one that remembers it, which is then a copy.
pub fn is_of_another_database(worker: &Deceased<'_>) -> bool {
    let of_worker = Contents::read(worker.ledger).ok().and_then(|ledger| ledger.database);
    of_worker.is_some_and(|of_worker| worker.database.is_some_and(|ours| ours != of_worker))
}

/// Nothing is ended that belongs to another database. While it runs, the same jobs must not run from here as well.
fn leave_alone(worker: &Deceased<'_>, pids_are_ours: bool) -> Result<Report, Error> {
    let ledger = Contents::read(worker.ledger).ok();
    let records = pids_are_ours.then_some(Records { worker: worker.process, ledger: ledger.as_ref() });
    let own = Some(worker.process).filter(|process| pids_are_ours && process.is_alive());
    let living = Search::new(worker.token, records).look().living;
    let mut pids: Vec<u32> = own.into_iter().chain(living).map(|process| process.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    if pids.is_empty() {
        return Ok(Report { worker_was_alive: false, ended: Vec::new(), started: None });
    }
    Err(Error::OfAnotherDatabase { pids, ledger: worker.ledger.to_owned() })
}

/// What a worker that is dead had launched elsewhere was asked to end by that death, and ends elsewhere what it launched. Killed
/// before that is done it would leave it behind: so it has this long.
pub fn await_called_off(ledger: &Path, at_most: Duration) {
    let Ok(contents) = Contents::read(ledger) else { return };
    let give_up = Instant::now() + at_most;
    loop {
        let is_there = |pid: &Pid| {
            let found = Identity::of(from_pid(*pid)).filter(|found| found.is_alive());
            found.is_some_and(|found| contents.entries.iter().any(|entry| entry.is(*pid, found.start_ticks)))
        };
        let pids = contents.entries.iter().filter_map(|entry| entry.pid);
        let left: Vec<Pid> = pids.filter(is_there).collect();
        if left.is_empty() || Instant::now() >= give_up {
            return;
        }
        tree::await_exit(&left, ROUND);
    }
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

/// Where a process runs.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    host: &'a str,
    boot_id: &'a str,
}

/// What can be seen from one place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// Everything, under the same pids.
    Full,
    /// What runs there runs here too if this namespace is above that one, but under other pids; if it is not (a
    /// container that was started anew), all of it died with its namespace.
    OtherNamespace,
    /// What ran before the machine was started does not run now.
    EarlierBoot,
    None,
}

impl Place<'_> {
    /// One kernel is one machine, whatever it is called: names change while machines run.
    fn sight_of(self, other: &Place<'_>) -> Sight {
        let same_kernel = identity::kernel_boot(self.boot_id) == identity::kernel_boot(other.boot_id);
        if self.boot_id == other.boot_id {
            Sight::Full
        } else if self.host != other.host {
            Sight::None
        } else if same_kernel {
            Sight::OtherNamespace
        } else {
            Sight::EarlierBoot
        }
    }
}

/// What is known of a dead worker by pids that mean the same here.
#[derive(Clone, Copy)]
struct Records<'a> {
    worker: Identity,
    ledger: Option<&'a Contents>,
}

impl Records<'_> {
    fn name(&self, pid: Pid, stat: &Stat, everybody: &HashMap<Pid, Stat>) -> bool {
        let in_ledger =
            |ledger: &Contents| ledger.entries.iter().any(|entry| entry.is(pid, stat.start_ticks));
        self.ledger.is_some_and(in_ledger) || self.is_in_its_session(stat, everybody)
    }

    /// A worker leads a session of its own, and none that is left in it is anybody else's. The number of a session is
    /// free for others only when nobody is left in it, and who then gets it is younger and has that pid.
    fn is_in_its_session(&self, stat: &Stat, everybody: &HashMap<Pid, Stat>) -> bool {
        let led_one = self.ledger.is_some_and(|ledger| ledger.session.cast_unsigned() == self.worker.pid);
        led_one
            && stat.session.cast_unsigned() == self.worker.pid
            && stat.start_ticks >= self.worker.start_ticks
            && is_free_or_of(self.worker, everybody)
    }
}

/// Nobody else has this pid by now.
fn is_free_or_of(process: Identity, everybody: &HashMap<Pid, Stat>) -> bool {
    let holder = identity::to_pid(process.pid).and_then(|pid| everybody.get(&pid));
    holder.is_none_or(|stat| stat.start_ticks == process.start_ticks)
}

/// How often to look again if nothing is found, but processes ended or began while they were looked at: one that forks
/// and exits all the time can be overlooked.
const DOUBTFUL_LOOKS: u32 = 5;
/// The same, once something was found.
const DOUBTFUL_LOOKS_AFTER_A_FIND: u32 = 20;

/// What one look at all processes found.
struct Look {
    living: Vec<Identity>,
    /// No process ended or began meanwhile.
    is_certain: bool,
}

/// Looks for the family of a dead worker.
struct Search<'a> {
    token: &'a str,
    records: Option<Records<'a>>,
    /// All members ever found, with their start times: a group or session that one of them leads is the family's too, so
    /// that a child born between the look and the kill is found in the next round.
    known: HashMap<i32, u64>,
}

impl<'a> Search<'a> {
    fn new(token: &'a str, records: Option<Records<'a>>) -> Self {
        Self { token, records, known: HashMap::new() }
    }

    fn end_all(mut self, give_up: Instant) -> Result<Vec<u32>, Error> {
        let mut ended: Vec<u32> = Vec::new();
        let mut doubtful_looks = 0;
        loop {
            let Look { living, is_certain } = self.look();
            if living.is_empty() {
                let enough = if ended.is_empty() { DOUBTFUL_LOOKS } else { DOUBTFUL_LOOKS_AFTER_A_FIND };
                doubtful_looks += 1;
                if is_certain || doubtful_looks >= enough {
                    ended.sort_unstable();
                    ended.dedup();
                    return Ok(ended);
                }
                continue;
            }
            doubtful_looks = 0;
            if let Some(own) = living.iter().find(|found| is_self_or_ancestor(found.pid)) {
                return Err(Error::OurOwnAncestor { pid: own.pid });
            }
            if Instant::now() >= give_up {
                return Err(Error::StillAlive { pids: living.iter().map(|found| found.pid).collect() });
            }
            if let Some(directory) = self.cgroup() {
                cgroup::kill_below(directory);
            }
            for found in &living {
                kill(*found);
                ended.push(found.pid);
            }
            let pids: Vec<Pid> = living.iter().filter_map(|found| identity::to_pid(found.pid)).collect();
            tree::await_exit(&pids, ROUND);
        }
    }

    fn cgroup(&self) -> Option<&'a Path> {
        self.records.and_then(|records| records.ledger?.cgroup.as_deref())
    }

    /// All members that run now.
    fn look(&mut self) -> Look {
        let in_cgroup: Vec<Pid> = self.cgroup().map(cgroup::processes_below).unwrap_or_default();
        let pids: HashSet<Pid> = procfs::all_pids().into_iter().chain(in_cgroup.iter().copied()).collect();
        let mut everybody: HashMap<Pid, Stat> = HashMap::with_capacity(pids.len());
        let mut marked: HashSet<Pid> = HashSet::new();
        let mut is_certain = true;
        for pid in pids {
            match self.mark_of(pid) {
                Some(true) => _ = marked.insert(pid),
                Some(false) => {}
                None => is_certain &= !tree::is_young(pid),
            }
            // After that: what ended before leaves a child that the next look sees.
            match procfs::stat(pid) {
                Some(stat) => {
                    is_certain &= !(stat.is_over() && marked.contains(&pid));
                    everybody.insert(pid, stat);
                }
                None => is_certain = false,
            }
        }
        let mut members: HashSet<Pid> = everybody
            .iter()
            .filter(|(pid, stat)| {
                in_cgroup.contains(pid) || marked.contains(pid) || self.is_member(**pid, stat, &everybody)
            })
            .map(|(pid, _)| *pid)
            .collect();
        add_descendants(&mut members, &everybody);
        let found = members.iter().filter_map(|pid| Some((pid, everybody.get(pid)?)));
        self.known.extend(found.map(|(pid, stat)| (pid.as_raw_nonzero().get(), stat.start_ticks)));
        let living = members
            .into_iter()
            .filter_map(|pid| everybody.get(&pid).map(|stat| (pid, stat)))
            .filter(|(_, stat)| !stat.is_over())
            .map(|(pid, stat)| Identity { pid: from_pid(pid), start_ticks: stat.start_ticks })
            .collect();
        Look { living, is_certain }
    }

    /// Whether its environment has the token of the worker; `None`: nothing can be read of it.
    fn mark_of(&self, pid: Pid) -> Option<bool> {
        let text = procfs::environment_text(pid);
        let value = procfs::value_in(&text, tree::tag::WORKER);
        (!text.is_empty()).then(|| value.as_deref() == Some(self.token))
    }

    fn is_member(&self, pid: Pid, stat: &Stat, everybody: &HashMap<Pid, Stat>) -> bool {
        [stat.group, stat.session].into_iter().any(|number| self.is_known(number, everybody))
            || self.records.is_some_and(|records| records.name(pid, stat, everybody))
    }

    fn is_known(&self, number: i32, everybody: &HashMap<Pid, Stat>) -> bool {
        self.known.get(&number).is_some_and(|&start_ticks| {
            is_free_or_of(Identity { pid: number.cast_unsigned(), start_ticks }, everybody)
        })
    }
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
    use crate::ledger::Ledger;
    use std::os::unix::process::CommandExt as _;

    use windlass_types::{Attempt, JobId, RunId, WorkflowId};

    const NOBODY: Identity = Identity { pid: u32::MAX, start_ticks: 0 };

    fn deceased<'a>(host: &'a str, boot_id: &'a str, token: &'a str) -> Deceased<'a> {
        let ledger = Path::new("/no/such/ledger");
        Deceased { host, boot_id, process: NOBODY, token, ledger, database: None }
    }

    #[test]
    fn another_host_cannot_be_judged_from_here() {
        let error = make_sure_dead(&deceased("elsewhere", "x", "t"), Duration::ZERO).unwrap_err();
        assert!(matches!(&error, Error::OtherHost { host, .. } if host == "elsewhere"), "{error}");
    }

    #[test]
    fn what_can_be_seen_from_where() {
        let here = Place { host: "h", boot_id: "b/pidns-1" };
        for (host, boot_id, sight) in [
            ("h", "b/pidns-1", Sight::Full),
            ("renamed", "b/pidns-1", Sight::Full),
            ("h", "b/pidns-2", Sight::OtherNamespace),
            ("container", "b/pidns-2", Sight::None),
            ("h", "earlier/pidns-1", Sight::EarlierBoot),
            ("elsewhere", "another/pidns-1", Sight::None),
        ] {
            assert_eq!(here.sight_of(&Place { host, boot_id }), sight, "{host} {boot_id}");
        }
    }

    /// A session or group whose number is that of a job that ended long ago: the number was free and is somebody else's.
    #[test]
    fn a_stranger_with_the_number_of_a_finished_job_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let ledger = Ledger::create(&path, None, None).unwrap();
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(1), run: RunId(1), attempt: Attempt(1) };
        let record = ledger.open(key).unwrap();
        // As `true | sleep 1000 &` in somebody's shell: the first process led the group and is over.
        let mut leader = std::process::Command::new("sh")
            .args(["-c", "sleep 1000 >&2 & echo $!"])
            .process_group(0)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        ledger.started(&record, identity::to_pid(leader.id()).unwrap()).unwrap();
        ledger.close(record);
        let mut line = String::new();
        io::Read::read_to_string(&mut leader.stdout.take().unwrap(), &mut line).unwrap();
        leader.wait().unwrap();
        let stranger = Identity::of(line.trim().parse().unwrap()).unwrap();

        let (host, boot) = (machine::hostname(), identity::boot_id().unwrap());
        let worker = Deceased { ledger: &path, ..deceased(&host, &boot, "no such token") };
        let report = make_sure_dead(&worker, Duration::from_secs(20)).unwrap();
        let survived = stranger.is_alive();
        kill(stranger);
        assert_eq!((report.ended, report.started), (vec![], Some(vec![key])));
        assert!(survived);
    }

    #[test]
    fn after_a_boot_nothing_lives_and_nobody_knows_what_had_started() {
        let report =
            make_sure_dead(&deceased(&machine::hostname(), "another boot", "t"), Duration::ZERO).unwrap();
        assert_eq!(report, Report { worker_was_alive: false, ended: vec![], started: None });
    }

    #[test]
    fn processes_of_the_original_of_a_copied_database_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let [original, copy, path] = ["a.db", "b.db", "ledger"].map(|name| directory.path().join(name));
        for database in [&original, &copy] {
            std::fs::write(database, "the same").unwrap();
        }
        let [original, copy] = [original, copy].map(|path| FileIdentity::of(&path));
        Ledger::create(&path, None, original).unwrap();
        let (host, boot) = (machine::hostname(), identity::boot_id().unwrap());
        let token = format!("copy-test-{}", std::process::id());
        let mut job =
            std::process::Command::new("sleep").arg("1000").env(tree::tag::WORKER, &token).spawn().unwrap();

        let worker = |database| Deceased { ledger: &path, database, ..deceased(&host, &boot, &token) };
        let error = make_sure_dead(&worker(copy), Duration::from_secs(20)).unwrap_err();
        assert!(matches!(&error, Error::OfAnotherDatabase { pids, .. } if *pids == [job.id()]), "{error}");
        assert!(Identity::of(job.id()).is_some_and(Identity::is_alive));

        let report = make_sure_dead(&worker(original), Duration::from_secs(20)).unwrap();
        assert_eq!(report.ended, [job.id()]);
        job.wait().unwrap();
        let nothing_runs = make_sure_dead(&worker(copy), Duration::from_secs(20)).unwrap();
        assert_eq!((nothing_runs.ended, nothing_runs.started), (vec![], None));
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
