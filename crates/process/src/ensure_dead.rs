//! After a crash: ensures that a recorded worker, and all processes that it ever started, are dead.
//!
//! First the worker itself, so that it starts nothing more. Then, in rounds until a whole round finds nothing:
//! processes named in its ledger (by pid *and* start time), in its session, with its token in the environment,
//! or in its cgroups, and all that descend from these or share a process group with them.
//!
//! A number alone is no evidence: the ledger contains pids of jobs that ended long ago, and an unrelated
//! process group or session may have such a number by now.

use crate::ledger::{LedgerContents, LedgerSubject};
use crate::process_identity::{self, FileIdentity, ProcessIdentity, from_pid};
use crate::process_tree::ProcessMark;
use crate::procfs::{self, ProcessStat};
use crate::{cgroup, machine, process_tree, usage_sample};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_types::Bytes;
use windlass_types::worker_messages::{AttemptKey, AttemptUsage};

/// How long one round waits for processes to end before it scans again.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// A worker as recorded in the database.
#[derive(Clone, Copy, Debug)]
pub struct RecordedWorker<'a> {
    pub host: &'a str,
    pub boot_id: &'a str,
    pub process: ProcessIdentity,
    pub token: &'a str,
    pub ledger: &'a Path,
    /// The database file with the record. A copy of that file has the record too, but must not end the
    /// processes.
    pub database: Option<FileIdentity>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsureDeadReport {
    /// The worker itself was still running.
    pub worker_was_alive: bool,
    /// Processes that had to be ended, without the worker.
    pub killed_pids: Vec<u32>,
    /// The attempts that have or may have started. `None` if unknown (there is no ledger, or the machine was
    /// rebooted and the ledger may not have reached the disk): then any claim may have started.
    pub started_attempts: Option<Vec<AttemptKey>>,
    /// The usage of the processes that had to be ended, by the attempt that started them.
    pub leftover_usage: HashMap<AttemptKey, LeftoverUsage>,
}

/// The usage of the leftover processes of an attempt until they were ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftoverUsage {
    /// CPU time of the processes and of the children that they waited for.
    pub cpu_time: Duration,
    /// The peak of the largest process.
    pub peak_memory: Bytes,
}

impl From<LeftoverUsage> for AttemptUsage {
    fn from(usage: LeftoverUsage) -> Self {
        Self { cpu_time: usage.cpu_time, peak_memory: Some(usage.peak_memory), ..Self::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EnsureDeadError {
    #[error(
        "the worker ran on {host}, and this is {here}: whether its jobs still run cannot be determined from here"
    )]
    OtherHost { host: String, here: String },
    #[error(
        "this process was started by the worker that has to be ended (process {pid}); run the command from outside of its jobs"
    )]
    IsOwnAncestor { pid: u32 },
    #[error("processes of the worker cannot be ended: {}", list(pids))]
    StillAlive { pids: Vec<u32> },
    #[error(
        "processes of the worker still run ({}), but it was started for another database file, beside {}; this database may \
         be a copy of that one", list(pids), ledger.display()
    )]
    OfAnotherDatabase { pids: Vec<u32>, ledger: PathBuf },
    #[error("cannot read the boot id: {0}")]
    BootId(#[source] io::Error),
}

/// The state of a worker as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerLiveness {
    Alive,
    /// Its process does not exist any more, or was on a machine or in a container that has been restarted.
    Gone,
    /// It ran on another machine.
    OtherHost,
}

/// Checks the state of a worker without changing it.
pub fn check_liveness(worker: &RecordedWorker<'_>) -> Result<WorkerLiveness, EnsureDeadError> {
    let here = ProcessLocation {
        host: &machine::hostname(),
        boot_id: &process_identity::boot_id().map_err(EnsureDeadError::BootId)?,
    };
    Ok(match here.visibility_of(&ProcessLocation { host: worker.host, boot_id: worker.boot_id }) {
        ProcessVisibility::Full if worker.process.is_alive() => WorkerLiveness::Alive,
        ProcessVisibility::Full | ProcessVisibility::OtherNamespace | ProcessVisibility::EarlierBoot => {
            WorkerLiveness::Gone
        }
        ProcessVisibility::None => WorkerLiveness::OtherHost,
    })
}

/// Ends the worker and its processes. Returns when none of them lives, or an error if that cannot be achieved.
pub fn ensure_worker_dead(
    worker: &RecordedWorker<'_>,
    max_wait: Duration,
) -> Result<EnsureDeadReport, EnsureDeadError> {
    let here = ProcessLocation {
        host: &machine::hostname(),
        boot_id: &process_identity::boot_id().map_err(EnsureDeadError::BootId)?,
    };
    let pids_are_ours =
        match here.visibility_of(&ProcessLocation { host: worker.host, boot_id: worker.boot_id }) {
            ProcessVisibility::Full => true,
            ProcessVisibility::OtherNamespace => false,
            ProcessVisibility::EarlierBoot => {
                return Ok(EnsureDeadReport {
                    worker_was_alive: false,
                    killed_pids: Vec::new(),
                    started_attempts: None,
                    leftover_usage: HashMap::new(),
                });
            }
            ProcessVisibility::None => {
                return Err(EnsureDeadError::OtherHost {
                    host: worker.host.to_owned(),
                    here: here.host.to_owned(),
                });
            }
        };
    if is_of_another_database(worker) {
        return check_other_database(worker, pids_are_ours);
    }
    let give_up = Instant::now() + max_wait;
    let worker_was_alive = pids_are_ours && worker.process.is_alive();
    if worker_was_alive {
        kill_worker(worker.process, give_up)?;
    }
    // Read only now, because the worker wrote to it until its end.
    let ledger = LedgerContents::read(worker.ledger).ok();
    let records = pids_are_ours.then_some(WorkerRecords { worker: worker.process, ledger: ledger.as_ref() });
    let EndedProcesses { pids, usage } = ProcessSearch::new(worker.token, records).kill_all(give_up)?;
    if let Some(directory) = ledger.as_ref().and_then(|ledger| ledger.cgroup.as_deref()) {
        cgroup::remove_group(directory);
    }
    Ok(EnsureDeadReport {
        worker_was_alive,
        killed_pids: pids,
        started_attempts: ledger.map(|ledger| ledger.started_attempts()),
        leftover_usage: usage,
    })
}

/// Whether the worker ran jobs of another database file than the one with its record, which is then a copy.
pub fn is_of_another_database(worker: &RecordedWorker<'_>) -> bool {
    let of_worker = LedgerContents::read(worker.ledger).ok().and_then(|ledger| ledger.database);
    of_worker.is_some_and(|of_worker| worker.database.is_some_and(|ours| ours != of_worker))
}

/// Fails if processes of another database's worker run: they must not be ended, and the same jobs must not run
/// from here.
fn check_other_database(
    worker: &RecordedWorker<'_>,
    pids_are_ours: bool,
) -> Result<EnsureDeadReport, EnsureDeadError> {
    let ledger = LedgerContents::read(worker.ledger).ok();
    let records = pids_are_ours.then_some(WorkerRecords { worker: worker.process, ledger: ledger.as_ref() });
    let own = Some(worker.process).filter(|process| pids_are_ours && process.is_alive());
    let living = ProcessSearch::new(worker.token, records).scan().living;
    let mut pids: Vec<u32> = own.into_iter().chain(living).map(|process| process.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    if pids.is_empty() {
        return Ok(EnsureDeadReport {
            worker_was_alive: false,
            killed_pids: Vec::new(),
            started_attempts: None,
            leftover_usage: HashMap::new(),
        });
    }
    Err(EnsureDeadError::OfAnotherDatabase { pids, ledger: worker.ledger.to_owned() })
}

/// How long launchers of a dead worker have to end: the worker's death made them cancel the jobs that they
/// launched elsewhere, and killing them earlier would leave those jobs behind.
pub fn wait_for_launched_jobs(ledger: &Path, at_most: Duration) {
    let Ok(contents) = LedgerContents::read(ledger) else { return };
    let give_up = Instant::now() + at_most;
    loop {
        let is_there = |pid: &Pid| {
            let found = ProcessIdentity::from_pid(from_pid(*pid)).filter(|found| found.is_alive());
            found.is_some_and(|found| {
                contents.entries.iter().any(|entry| entry.matches_process(*pid, found.start_ticks))
            })
        };
        let pids = contents.entries.iter().filter_map(|entry| entry.pid);
        let left: Vec<Pid> = pids.filter(is_there).collect();
        if left.is_empty() || Instant::now() >= give_up {
            return;
        }
        process_tree::wait_for_exit(&left, WAIT_STEP);
    }
}

fn kill_worker(worker: ProcessIdentity, give_up: Instant) -> Result<(), EnsureDeadError> {
    if is_self_or_ancestor(worker.pid) {
        return Err(EnsureDeadError::IsOwnAncestor { pid: worker.pid });
    }
    while worker.is_alive() {
        if Instant::now() >= give_up {
            return Err(EnsureDeadError::StillAlive { pids: vec![worker.pid] });
        }
        kill_process(worker);
        process_tree::wait_for_exit(process_identity::to_pid(worker.pid).as_slice(), WAIT_STEP);
    }
    Ok(())
}

/// Where a process runs.
#[derive(Clone, Copy, Debug)]
struct ProcessLocation<'a> {
    host: &'a str,
    boot_id: &'a str,
}

/// Which processes of another location are visible from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessVisibility {
    /// All, under the same pids.
    Full,
    /// Processes there run here too if this namespace is above that one, but under other pids; if it is not (a
    /// restarted container), they died with their namespace.
    OtherNamespace,
    /// Processes from before a reboot of the machine do not run any more.
    EarlierBoot,
    None,
}

impl ProcessLocation<'_> {
    /// A machine is identified by its kernel's boot id, because host names can change while it runs.
    fn visibility_of(self, other: &ProcessLocation<'_>) -> ProcessVisibility {
        let same_kernel =
            process_identity::kernel_boot(self.boot_id) == process_identity::kernel_boot(other.boot_id);
        if self.boot_id == other.boot_id {
            ProcessVisibility::Full
        } else if self.host != other.host {
            ProcessVisibility::None
        } else if same_kernel {
            ProcessVisibility::OtherNamespace
        } else {
            ProcessVisibility::EarlierBoot
        }
    }
}

/// The records of a dead worker, if its pids have the same meaning here.
#[derive(Clone, Copy)]
struct WorkerRecords<'a> {
    worker: ProcessIdentity,
    ledger: Option<&'a LedgerContents>,
}

impl WorkerRecords<'_> {
    fn is_recorded(&self, pid: Pid, stat: &ProcessStat, all_processes: &HashMap<Pid, ProcessStat>) -> bool {
        let in_ledger = |ledger: &LedgerContents| {
            ledger.entries.iter().any(|entry| entry.matches_process(pid, stat.start_ticks))
        };
        self.ledger.is_some_and(in_ledger) || self.is_in_its_session(stat, all_processes)
    }

    /// A worker leads a session of its own that contains only its processes. The session id can be reused only
    /// when the session is empty, and the process that then gets it is younger and has that pid.
    fn is_in_its_session(&self, stat: &ProcessStat, all_processes: &HashMap<Pid, ProcessStat>) -> bool {
        let led_one = self.ledger.is_some_and(|ledger| ledger.session.cast_unsigned() == self.worker.pid);
        led_one
            && stat.session.cast_unsigned() == self.worker.pid
            && stat.start_ticks >= self.worker.start_ticks
            && is_pid_unclaimed(self.worker, all_processes)
    }
}

/// Whether no other process has this pid now.
fn is_pid_unclaimed(process: ProcessIdentity, all_processes: &HashMap<Pid, ProcessStat>) -> bool {
    let holder = process_identity::to_pid(process.pid).and_then(|pid| all_processes.get(&pid));
    holder.is_none_or(|stat| stat.start_ticks == process.start_ticks)
}

/// How often to scan again if nothing is found but processes ended or began during the scan: one that keeps
/// forking and exiting can be missed.
const MAX_UNCERTAIN_SCANS: u32 = 5;
/// The same, after a process was found.
const MAX_UNCERTAIN_SCANS_AFTER_FIND: u32 = 20;

/// The result of one scan of all processes.
struct ProcessScan {
    living: Vec<ProcessIdentity>,
    /// No process ended or began during the scan.
    is_certain: bool,
}

/// Searches the processes of a dead worker.
struct ProcessSearch<'a> {
    token: &'a str,
    records: Option<WorkerRecords<'a>>,
    /// All members ever found, with their start times: a group or session that one of them leads belongs to the
    /// worker too, so that a child born between the scan and the kill is found in the next round.
    known_members: HashMap<i32, u64>,
    /// Pids and start times of the processes in `usage`. Each counts once, before it is killed: afterwards it
    /// may have waited for children that count themselves.
    measured: HashSet<(u32, u64)>,
    usage: HashMap<AttemptKey, LeftoverUsage>,
}

struct EndedProcesses {
    pids: Vec<u32>,
    usage: HashMap<AttemptKey, LeftoverUsage>,
}

impl<'a> ProcessSearch<'a> {
    fn new(token: &'a str, records: Option<WorkerRecords<'a>>) -> Self {
        Self {
            token,
            records,
            known_members: HashMap::new(),
            measured: HashSet::new(),
            usage: HashMap::new(),
        }
    }

    fn kill_all(mut self, give_up: Instant) -> Result<EndedProcesses, EnsureDeadError> {
        let mut ended: Vec<u32> = Vec::new();
        let mut uncertain_scans = 0;
        loop {
            let ProcessScan { living, is_certain } = self.scan();
            if living.is_empty() {
                let enough =
                    if ended.is_empty() { MAX_UNCERTAIN_SCANS } else { MAX_UNCERTAIN_SCANS_AFTER_FIND };
                uncertain_scans += 1;
                if is_certain || uncertain_scans >= enough {
                    ended.sort_unstable();
                    ended.dedup();
                    return Ok(EndedProcesses { pids: ended, usage: self.usage });
                }
                continue;
            }
            uncertain_scans = 0;
            if let Some(own) = living.iter().find(|found| is_self_or_ancestor(found.pid)) {
                return Err(EnsureDeadError::IsOwnAncestor { pid: own.pid });
            }
            if Instant::now() >= give_up {
                return Err(EnsureDeadError::StillAlive {
                    pids: living.iter().map(|found| found.pid).collect(),
                });
            }
            if let Some(directory) = self.recorded_cgroup() {
                cgroup::kill_group(directory);
            }
            for found in &living {
                kill_process(*found);
                ended.push(found.pid);
            }
            let pids: Vec<Pid> =
                living.iter().filter_map(|found| process_identity::to_pid(found.pid)).collect();
            process_tree::wait_for_exit(&pids, WAIT_STEP);
        }
    }

    fn recorded_cgroup(&self) -> Option<&'a Path> {
        self.records.and_then(|records| records.ledger?.cgroup.as_deref())
    }

    /// All members that run now.
    fn scan(&mut self) -> ProcessScan {
        let in_cgroup: Vec<Pid> = self.recorded_cgroup().map(cgroup::processes_below).unwrap_or_default();
        let pids: HashSet<Pid> = procfs::all_pids().into_iter().chain(in_cgroup.iter().copied()).collect();
        let mut all_processes: HashMap<Pid, ProcessStat> = HashMap::with_capacity(pids.len());
        let mut marked: HashSet<Pid> = HashSet::new();
        let mut is_certain = true;
        for pid in pids {
            match self.has_worker_token(pid) {
                Some(true) => _ = marked.insert(pid),
                Some(false) => {}
                None => is_certain &= !process_tree::is_just_started(pid),
            }
            // Listed after that: a process that ended before leaves a child that the next scan sees.
            match procfs::read_stat(pid) {
                Some(stat) => {
                    is_certain &= !(stat.is_over() && marked.contains(&pid));
                    all_processes.insert(pid, stat);
                }
                None => is_certain = false,
            }
        }
        let mut members: HashSet<Pid> = all_processes
            .iter()
            .filter(|(pid, stat)| {
                in_cgroup.contains(pid) || marked.contains(pid) || self.is_member(**pid, stat, &all_processes)
            })
            .map(|(pid, _)| *pid)
            .collect();
        add_descendants(&mut members, &all_processes);
        let found = members.iter().filter_map(|pid| Some((pid, all_processes.get(pid)?)));
        self.known_members.extend(found.map(|(pid, stat)| (pid.as_raw_nonzero().get(), stat.start_ticks)));
        let living: Vec<(Pid, &ProcessStat)> = members
            .into_iter()
            .filter_map(|pid| all_processes.get(&pid).map(|stat| (pid, stat)))
            .filter(|(_, stat)| !stat.is_over())
            .collect();
        for (pid, stat) in &living {
            self.record_usage(*pid, stat, &all_processes);
        }
        let living = living
            .into_iter()
            .map(|(pid, stat)| ProcessIdentity { pid: from_pid(pid), start_ticks: stat.start_ticks })
            .collect();
        ProcessScan { living, is_certain }
    }

    /// Whether its environment contains the worker's token; `None` if the environment cannot be read.
    fn has_worker_token(&self, pid: Pid) -> Option<bool> {
        let text = procfs::read_environment(pid);
        let value = procfs::find_environment_value(&text, process_tree::marker_variable::WORKER);
        (!text.is_empty()).then(|| value.as_deref() == Some(self.token))
    }

    fn record_usage(&mut self, pid: Pid, stat: &ProcessStat, all_processes: &HashMap<Pid, ProcessStat>) {
        if !self.measured.insert((from_pid(pid), stat.start_ticks)) {
            return;
        }
        let Some(key) = self.find_attempt(pid, all_processes) else { return };
        let peak = usage_sample::peak_rss(pid).unwrap_or(stat.rss);
        let usage = self.usage.entry(key).or_default();
        usage.cpu_time = usage.cpu_time.saturating_add(stat.cpu);
        usage.peak_memory = usage.peak_memory.max(peak);
    }

    /// The attempt that started a process: by its environment, its group or session, or those of an ancestor.
    fn find_attempt(&self, pid: Pid, all_processes: &HashMap<Pid, ProcessStat>) -> Option<AttemptKey> {
        let entries = &self.records?.ledger?.entries;
        // The latest entries come last.
        let attempts = || {
            entries.iter().rev().filter_map(|entry| match entry.subject {
                LedgerSubject::Attempt(key) => Some((key, entry.pid)),
                LedgerSubject::Stray => None,
            })
        };
        let (mut at, mut seen) = (pid, HashSet::new());
        while seen.insert(at) {
            let stat = all_processes.get(&at)?;
            let mark = ProcessMark::read_process(at, self.token);
            let is_led_by = |leader: Option<Pid>| {
                leader
                    .is_some_and(|leader| [stat.group, stat.session].contains(&leader.as_raw_nonzero().get()))
            };
            let found = attempts()
                .find(|(key, _)| mark.is_of_attempt(key))
                .or_else(|| attempts().find(|(_, leader)| is_led_by(*leader)));
            if let Some((key, _)) = found {
                return Some(key);
            }
            at = Pid::from_raw(stat.parent)?;
        }
        None
    }

    fn is_member(&self, pid: Pid, stat: &ProcessStat, all_processes: &HashMap<Pid, ProcessStat>) -> bool {
        [stat.group, stat.session].into_iter().any(|number| self.is_known(number, all_processes))
            || self.records.is_some_and(|records| records.is_recorded(pid, stat, all_processes))
    }

    fn is_known(&self, number: i32, all_processes: &HashMap<Pid, ProcessStat>) -> bool {
        self.known_members.get(&number).is_some_and(|&start_ticks| {
            is_pid_unclaimed(ProcessIdentity { pid: number.cast_unsigned(), start_ticks }, all_processes)
        })
    }
}

fn add_descendants(members: &mut HashSet<Pid>, all_processes: &HashMap<Pid, ProcessStat>) {
    let mut children: HashMap<i32, Vec<Pid>> = HashMap::new();
    for (pid, stat) in all_processes {
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

/// Kills by a pidfd, checking the start time once more after opening it, so that a reused pid is never hit.
fn kill_process(target: ProcessIdentity) {
    let Some(pid) = process_identity::to_pid(target.pid) else { return };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) if target.is_alive() => {
            // It may have ended by now, which is as good.
            pidfd_send_signal(&handle, Signal::KILL).ok();
        }
        Ok(_) | Err(rustix::io::Errno::SRCH) => {}
        // Kernels before 5.3 have no pidfds.
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
        at = procfs::read_stat(current).and_then(|stat| Pid::from_raw(stat.parent));
    }
    false
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ProcessLedger;
    use std::os::unix::process::CommandExt as _;

    use windlass_types::{Attempt, JobId, RunId, WorkflowId};

    const NO_PROCESS: ProcessIdentity = ProcessIdentity { pid: u32::MAX, start_ticks: 0 };

    fn dead_worker<'a>(host: &'a str, boot_id: &'a str, token: &'a str) -> RecordedWorker<'a> {
        let ledger = Path::new("/no/such/ledger");
        RecordedWorker { host, boot_id, process: NO_PROCESS, token, ledger, database: None }
    }

    #[test]
    fn workers_of_another_host_are_an_error() {
        let error = ensure_worker_dead(&dead_worker("elsewhere", "x", "t"), Duration::ZERO).unwrap_err();
        assert!(matches!(&error, EnsureDeadError::OtherHost { host, .. } if host == "elsewhere"), "{error}");
    }

    #[test]
    fn visibility_depends_on_host_boot_and_namespace() {
        let here = ProcessLocation { host: "h", boot_id: "b/pidns-1" };
        for (host, boot_id, visibility) in [
            ("h", "b/pidns-1", ProcessVisibility::Full),
            ("renamed", "b/pidns-1", ProcessVisibility::Full),
            ("h", "b/pidns-2", ProcessVisibility::OtherNamespace),
            ("container", "b/pidns-2", ProcessVisibility::None),
            ("h", "earlier/pidns-1", ProcessVisibility::EarlierBoot),
            ("elsewhere", "another/pidns-1", ProcessVisibility::None),
        ] {
            assert_eq!(
                here.visibility_of(&ProcessLocation { host, boot_id }),
                visibility,
                "{host} {boot_id}"
            );
        }
    }

    /// A session or group with the number of a job that ended long ago: the number was reused by another
    /// process.
    #[test]
    fn a_process_with_a_reused_number_is_spared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        let ledger = ProcessLedger::create(&path, None, None).unwrap();
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(1), run: RunId(1), attempt: Attempt(1) };
        let record = ledger.open_record(key).unwrap();
        // As `true | sleep 1000 &` in a shell: the first process led the group and has ended.
        let mut leader = std::process::Command::new("sh")
            .args(["-c", "sleep 1000 >&2 & echo $!"])
            .process_group(0)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        ledger.record_started(&record, process_identity::to_pid(leader.id()).unwrap()).unwrap();
        ledger.close_record(record);
        let mut line = String::new();
        io::Read::read_to_string(&mut leader.stdout.take().unwrap(), &mut line).unwrap();
        leader.wait().unwrap();
        let stranger = ProcessIdentity::from_pid(line.trim().parse().unwrap()).unwrap();

        let (host, boot) = (machine::hostname(), process_identity::boot_id().unwrap());
        let worker = RecordedWorker { ledger: &path, ..dead_worker(&host, &boot, "no such token") };
        let report = ensure_worker_dead(&worker, Duration::from_secs(20)).unwrap();
        let survived = stranger.is_alive();
        kill_process(stranger);
        assert_eq!((report.killed_pids, report.started_attempts), (vec![], Some(vec![key])));
        assert!(survived);
    }

    #[test]
    fn started_attempts_are_unknown_after_a_boot() {
        let report =
            ensure_worker_dead(&dead_worker(&machine::hostname(), "another boot", "t"), Duration::ZERO)
                .unwrap();
        assert_eq!(
            report,
            EnsureDeadReport {
                worker_was_alive: false,
                killed_pids: vec![],
                started_attempts: None,
                leftover_usage: HashMap::new()
            }
        );
    }

    #[test]
    fn processes_of_the_original_database_are_spared() {
        let directory = tempfile::tempdir().unwrap();
        let [original, copy, path] = ["a.db", "b.db", "ledger"].map(|name| directory.path().join(name));
        for database in [&original, &copy] {
            std::fs::write(database, "the same").unwrap();
        }
        let [original, copy] = [original, copy].map(|path| FileIdentity::from_path(&path));
        ProcessLedger::create(&path, None, original).unwrap();
        let (host, boot) = (machine::hostname(), process_identity::boot_id().unwrap());
        let token = format!("copy-test-{}", std::process::id());
        let mut job = std::process::Command::new("sleep")
            .arg("1000")
            .env(process_tree::marker_variable::WORKER, &token)
            .spawn()
            .unwrap();

        let worker =
            |database| RecordedWorker { ledger: &path, database, ..dead_worker(&host, &boot, &token) };
        let error = ensure_worker_dead(&worker(copy), Duration::from_secs(20)).unwrap_err();
        assert!(
            matches!(&error, EnsureDeadError::OfAnotherDatabase { pids, .. } if *pids == [job.id()]),
            "{error}"
        );
        assert!(ProcessIdentity::from_pid(job.id()).is_some_and(ProcessIdentity::is_alive));

        let report = ensure_worker_dead(&worker(original), Duration::from_secs(20)).unwrap();
        assert_eq!(report.killed_pids, [job.id()]);
        job.wait().unwrap();
        let nothing_runs = ensure_worker_dead(&worker(copy), Duration::from_secs(20)).unwrap();
        assert_eq!((nothing_runs.killed_pids, nothing_runs.started_attempts), (vec![], None));
    }

    #[test]
    fn processes_with_the_token_are_ended_with_descendants() {
        let (host, boot) = (machine::hostname(), process_identity::boot_id().unwrap());
        let token = format!("ensure-dead-test-{}", std::process::id());
        let mut job = std::process::Command::new("sh")
            .args(["-c", "env -i sh -c 'echo ready; sleep 1000' & wait"])
            .env(process_tree::marker_variable::WORKER, &token)
            .process_group(0)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut io::BufReader::new(job.stdout.take().unwrap()), &mut line).unwrap();

        let report = ensure_worker_dead(&dead_worker(&host, &boot, &token), Duration::from_secs(20)).unwrap();
        // `sh`, its `sh`, and the `sleep` of that, if it was started already.
        assert!(report.killed_pids.contains(&job.id()) && report.killed_pids.len() >= 2, "{report:?}");
        job.wait().unwrap();
        let again = ensure_worker_dead(&dead_worker(&host, &boot, &token), Duration::from_secs(20)).unwrap();
        assert_eq!(
            again,
            EnsureDeadReport {
                worker_was_alive: false,
                killed_pids: vec![],
                started_attempts: None,
                leftover_usage: HashMap::new()
            }
        );
    }
}
