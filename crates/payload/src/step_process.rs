//! A process of a job: started in a process group of its own, signaled, measured, and its whole group ended with
//! it. Several may run side by side; the first that fails ends the others.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_process::usage_sample::{UsageSample, own_peak_rss, peak_if_trusted};
use windlass_process::{Pid, Signal, child_wait, process_tree, procfs};
use windlass_types::Bytes;
use windlass_types::worker_messages::ProcessExit;

/// Reaches the running process: signals for the job are forwarded to its step.
#[derive(Clone, Debug, Default)]
pub struct StepControl(Arc<StepControlShared>);

#[derive(Debug, Default)]
struct StepControlShared {
    state: Mutex<StepControlState>,
}

#[derive(Clone, Debug, Default)]
struct StepControlState {
    running: Vec<Pid>,
    /// The first signal that requested the end.
    ended_by: Option<i32>,
}

impl StepControl {
    /// Forwards a signal. A terminating one also keeps the next step from starting.
    pub fn signal(&self, signal: i32, ends: bool) {
        let mut state = self.lock();
        if ends {
            state.ended_by.get_or_insert(signal);
        }
        if let Some(signal) = Signal::from_named_raw(signal) {
            state.send(signal);
        }
    }

    pub fn ended_by(&self) -> Option<i32> {
        self.lock().ended_by
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StepControlState> {
        // The content is consistent after every statement.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StepControlState {
    fn send(&self, signal: Signal) {
        for &group in &self.running {
            process_tree::signal_group_and_members(group, &process_tree::with_descendants([group]), signal);
        }
    }
}

/// How a process ended and what it used, including its child processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedProcess {
    pub(crate) exit: ProcessExit,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) peak_rss: Bytes,
}

/// Sampling interval: short at first, longer for long steps.
const FIRST_SAMPLE_DELAY: Duration = Duration::from_millis(5);
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a command to its end.
pub(crate) fn run_process(control: &StepControl, command: &mut Command) -> io::Result<EndedProcess> {
    run_one_process(control, command, None)
}

/// How processes that ran side by side ended.
#[derive(Debug)]
pub(crate) struct ParallelRunResult {
    pub(crate) ended: Vec<EndedProcess>,
    /// The one that failed first and ended the others.
    pub(crate) failed: Option<usize>,
}

/// Runs commands side by side. One that fails ends the others, because their output is useless without its own.
pub(crate) fn run_in_parallel(
    control: &StepControl,
    commands: &mut [Command],
) -> io::Result<ParallelRunResult> {
    let failed = OnceLock::new();
    let ended = std::thread::scope(|scope| {
        let one = |(index, command)| {
            let failed = &failed;
            scope.spawn(move || {
                let ended = run_one_process(control, command, Some(failed));
                if !ended.as_ref().is_ok_and(|ended| ended.exit == ProcessExit::Code(0)) {
                    // Under the lock nothing starts: every running process is known, and no other will start.
                    let state = control.lock();
                    if failed.set(index).is_ok() {
                        state.send(Signal::KILL);
                    }
                }
                ended
            })
        };
        let running: Vec<_> = commands.iter_mut().enumerate().map(one).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("it could not be monitored")))
        };
        running.into_iter().map(join).collect::<io::Result<Vec<EndedProcess>>>()
    })?;
    Ok(ParallelRunResult { ended, failed: failed.get().copied() })
}

fn run_one_process(
    control: &StepControl,
    command: &mut Command,
    failed: Option<&OnceLock<usize>>,
) -> io::Result<EndedProcess> {
    let begin = Instant::now();
    let spawner_peak = own_peak_rss().unwrap_or(Bytes(0));
    let pid = {
        // Held until the process is known: a signal in between waits for it.
        let mut state = control.lock();
        let given_up = failed.and_then(OnceLock::get).map(|_| Signal::KILL.as_raw());
        if let Some(signal) = state.ended_by.or(given_up) {
            return Ok(EndedProcess {
                exit: ProcessExit::Signal(signal),
                wall: Duration::ZERO,
                cpu: Duration::ZERO,
                peak_rss: Bytes(0),
            });
        }
        set_credential_paths(command);
        let child = command.process_group(0).spawn()?;
        let pid =
            Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("a process without a pid"))?;
        state.running.push(pid);
        pid
    };
    let sampled = sample_until_over(pid)?;
    let wall = begin.elapsed();
    control.lock().running.retain(|running| *running != pid);
    // Leftovers in its group must not write into files that count from now on. Its pid is not reused yet.
    rustix::process::kill_process_group(pid, Signal::KILL).ok();
    let reaped = child_wait::reap_child(pid)?;
    let peak = peak_if_trusted(reaped.max_rss, spawner_peak).unwrap_or(Bytes(0));
    Ok(EndedProcess {
        exit: reaped.exit,
        wall,
        cpu: reaped.cpu_time.max(sampled.cpu),
        peak_rss: peak.max(sampled.rss),
    })
}

/// The credentials for the storage, made absolute: the path may be relative to where the job started.
const CREDENTIAL_VARIABLES: [&str; 2] = ["BEARER_TOKEN_FILE", "X509_USER_PROXY"];

fn set_credential_paths(command: &mut Command) {
    let Ok(here) = std::env::current_dir() else { return };
    for name in CREDENTIAL_VARIABLES {
        let value = std::env::var_os(name);
        if let Some(path) = value.and_then(|value| absolute_credential_path(&here, Path::new(&value))) {
            command.env(name, path);
        }
    }
}

/// `None`: already absolute, or not a path.
fn absolute_credential_path(here: &Path, path: &Path) -> Option<PathBuf> {
    (path.is_relative() && path.file_name().is_some()).then(|| here.join(path))
}

/// Highest memory usage of its process tree, and the CPU time seen, until it ends.
fn sample_until_over(pid: Pid) -> io::Result<UsageSample> {
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let sampler = scope.spawn(move || sample_until(pid, &is_over));
        let waited = child_wait::wait_until_over(pid);
        drop(over);
        let seen = sampler.join().unwrap_or_default();
        waited.map(|()| seen)
    })
}

fn sample_until(pid: Pid, is_over: &mpsc::Receiver<()>) -> UsageSample {
    let mut seen = UsageSample::default();
    let mut pause = FIRST_SAMPLE_DELAY;
    while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let now = UsageSample::measure(&process_tree::with_descendants([pid]));
        seen = UsageSample { cpu: seen.cpu.max(now.cpu), rss: seen.rss.max(now.rss) };
        pause = (pause * 2).min(MAX_SAMPLE_INTERVAL);
    }
    seen
}

/// The memory in the cgroup of this job while a step runs: anonymous memory and files in memory. The cgroup's own
/// high-water mark would include the page cache of everything that was read and written, up to the limit, and
/// never falls.
pub(crate) struct CgroupMonitor {
    over: mpsc::Sender<()>,
    watcher: JoinHandle<u64>,
}

impl CgroupMonitor {
    /// `None` if there is none, or if other processes share it: then its content says nothing about this job.
    pub(crate) fn start() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (directory, kinds) = own.lines().find_map(parse_cgroup_line)?;
        let members = fs::read_to_string(directory.join("cgroup.procs")).ok()?;
        let group = procfs::read_stat(rustix::process::getpid())?.group;
        let is_ours = |pid: &str| {
            let pid = pid.parse().ok().and_then(Pid::from_raw);
            pid.and_then(procfs::read_stat).is_none_or(|stat| stat.group == group)
        };
        let file = directory.join("memory.stat");
        sum_memory_lines(&fs::read_to_string(&file).ok()?, kinds)?;
        if !members.lines().all(is_ours) {
            return None;
        }
        let (over, is_over) = mpsc::channel::<()>();
        let watcher = thread::spawn(move || peak_held_bytes(&file, kinds, &is_over));
        Some(Self { over, watcher })
    }

    /// The highest value seen.
    pub(crate) fn stop(self) -> Option<Bytes> {
        drop(self.over);
        self.watcher.join().ok().filter(|most| *most > 0).map(Bytes)
    }
}

fn peak_held_bytes(file: &Path, kinds: [&str; 2], is_over: &mpsc::Receiver<()>) -> u64 {
    let (mut most, mut pause) = (0, FIRST_SAMPLE_DELAY);
    while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let now = fs::read_to_string(file).ok().and_then(|text| sum_memory_lines(&text, kinds));
        most = most.max(now.unwrap_or_default());
        pause = (pause * 2).min(MAX_SAMPLE_INTERVAL);
    }
    most
}

/// The sum of these lines of a `memory.stat`. `None`: the first of them is missing.
fn sum_memory_lines(text: &str, [first, other]: [&str; 2]) -> Option<u64> {
    let of = |kind: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == kind).and_then(|(_, bytes)| bytes.trim().parse::<u64>().ok())
    };
    Some(of(first)?.saturating_add(of(other).unwrap_or_default()))
}

/// Reads a line of `/proc/self/cgroup`: the directory of the group, and the lines of its `memory.stat` that
/// count.
fn parse_cgroup_line(line: &str) -> Option<(PathBuf, [&'static str; 2])> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    match controllers {
        "" => Some((PathBuf::from(format!("/sys/fs/cgroup{path}")), ["anon", "shmem"])),
        _ if controllers.split(',').any(|name| name == "memory") => {
            Some((PathBuf::from(format!("/sys/fs/cgroup/memory{path}")), ["rss", "shmem"]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn relative_credential_path_becomes_absolute() {
        let seen = |path: &str| absolute_credential_path(Path::new("/scratch/dir_7"), Path::new(path));
        assert_eq!(seen("token"), Some("/scratch/dir_7/token".into()));
        assert_eq!((seen("/tmp/x509up"), seen("")), (None, None));
    }

    #[test]
    fn process_end_reports_exit_and_usage() {
        let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 7";
        let ended = run_process(&StepControl::default(), &mut sh(burn)).unwrap();
        assert_eq!(ended.exit, ProcessExit::Code(7));
        assert!(ended.cpu > Duration::ZERO && ended.wall >= ended.cpu / 4, "{ended:?}");
        let ended = run_process(&StepControl::default(), &mut sh("kill -SEGV $$")).unwrap();
        assert_eq!(ended.exit, ProcessExit::Signal(11));
    }

    #[test]
    fn signal_reaches_process_group_and_prevents_later_starts() {
        let control = StepControl::default();
        let dir = tempfile::tempdir().unwrap();
        let started = dir.path().join("started");
        let script = format!("sleep 1000 & touch {}; wait", started.display());
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run_process(&control, &mut sh(&script)));
            while !started.exists() {
                std::thread::yield_now();
            }
            control.signal(15, true);
            assert_eq!(running.join().unwrap().unwrap().exit, ProcessExit::Signal(15));
        });
        assert_eq!(control.ended_by(), Some(15));
        assert_eq!(run_process(&control, &mut sh("touch never")).unwrap().exit, ProcessExit::Signal(15));
    }

    #[test]
    fn first_failing_process_ends_others() {
        let control = StepControl::default();
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        run_process(&control, &mut sh(&format!("mkfifo {}", fifo.display()))).unwrap();
        // It fails once the last one has started.
        let waits = format!("read -r line < {}; exit 3", fifo.display());
        let sleeps = format!("echo there > {}; sleep 1000", fifo.display());
        let mut commands = [sh("sleep 1000"), sh(&waits), sh(&sleeps)];
        let together = run_in_parallel(&control, &mut commands).unwrap();
        let exits: Vec<ProcessExit> = together.ended.iter().map(|ended| ended.exit).collect();
        assert_eq!(
            (exits, together.failed),
            (vec![ProcessExit::Signal(9), ProcessExit::Code(3), ProcessExit::Signal(9)], Some(1))
        );
        assert_eq!(control.ended_by(), None, "the job was not told to end");
        let together = run_in_parallel(&control, &mut [sh("exit 0"), sh("exit 0")]).unwrap();
        assert_eq!((together.ended.len(), together.failed), (2, None));
    }

    #[test]
    fn both_cgroup_versions_are_parsed() {
        let place =
            |line| parse_cgroup_line(line).map(|(directory, kinds)| (directory.display().to_string(), kinds));
        assert_eq!(place("0::/a/b"), Some(("/sys/fs/cgroup/a/b".to_owned(), ["anon", "shmem"])));
        let old = "/sys/fs/cgroup/memory/job".to_owned();
        assert_eq!(place("7:memory,hugetlb:/job"), Some((old, ["rss", "shmem"])));
        assert_eq!(place("3:cpu,cpuacct:/job"), None);
    }

    /// A step that reads and writes much fills the page cache of its group without needing more memory.
    #[test]
    fn page_cache_is_not_counted_as_job_memory() {
        let stat = "anon 1000\nfile 900000\nkernel 50\nshmem 30\nfile_mapped 7\n";
        assert_eq!(sum_memory_lines(stat, ["anon", "shmem"]), Some(1030));
        assert_eq!(sum_memory_lines("cache 900\nrss 400\n", ["rss", "shmem"]), Some(400));
        assert_eq!(sum_memory_lines("cache 900\n", ["rss", "shmem"]), None, "unknown");
    }

    #[test]
    fn processes_left_by_step_are_ended() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        run_process(&StepControl::default(), &mut sh(&format!("sleep 1000 & echo $! > {}", pid.display())))
            .unwrap();
        let left: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let left = Pid::from_raw(left).unwrap();
        while windlass_process::procfs::is_running(left) {
            std::thread::yield_now();
        }
    }
}
