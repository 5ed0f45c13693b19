//! One process of a job: started in a group of its own, told of signals, measured, and its whole group ended with it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_proc::sample::{Sample, own_peak_rss, trusted_peak};
use windlass_proc::{Pid, Signal, tree, wait};
use windlass_types::Bytes;
use windlass_types::work::Exit;

/// How others reach the process that runs: signals for the job are signals for its step.
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    running: Option<Pid>,
    /// The first that asked for the end.
    ended_by: Option<i32>,
}

impl Control {
    /// Passes a signal on. One that ends things also keeps the next step from starting.
    pub fn signal(&self, signal: i32, ends: bool) {
        let mut state = self.lock();
        if ends {
            state.ended_by.get_or_insert(signal);
        }
        if let (Some(group), Some(signal)) = (state.running, Signal::from_named_raw(signal)) {
            tree::signal(group, &tree::with_descendants([group]), signal);
        }
    }

    pub fn ended_by(&self) -> Option<i32> {
        self.lock().ended_by
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // What is in there is whole after every statement.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a process ended and what it used, with all that it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) peak_rss: Bytes,
}

/// Short steps are seen too; long ones are looked at less often.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_BETWEEN: Duration = Duration::from_secs(1);

/// Runs a command to its end.
pub(crate) fn run(control: &Control, command: &mut Command) -> io::Result<Ended> {
    let begin = Instant::now();
    let spawner_peak = own_peak_rss().unwrap_or(Bytes(0));
    let pid = {
        // Held until the process is known: a signal that comes in between waits for it.
        let mut state = control.lock();
        if let Some(signal) = state.ended_by {
            return Ok(Ended {
                exit: Exit::Signal(signal),
                wall: Duration::ZERO,
                cpu: Duration::ZERO,
                peak_rss: Bytes(0),
            });
        }
        let child = command.process_group(0).spawn()?;
        let pid =
            Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("a process without a pid"))?;
        state.running = Some(pid);
        pid
    };
    let sampled = sample_until_over(pid)?;
    let wall = begin.elapsed();
    control.lock().running = None;
    // What it left in its group must not go on writing into files that count from now on. Its pid is still its own.
    rustix::process::kill_process_group(pid, Signal::KILL).ok();
    let reaped = wait::reap(pid)?;
    let peak = trusted_peak(reaped.max_rss, spawner_peak).unwrap_or(Bytes(0));
    Ok(Ended {
        exit: reaped.exit,
        wall,
        cpu: reaped.cpu_time.max(sampled.cpu),
        peak_rss: peak.max(sampled.rss),
    })
}

/// The most that its tree held at once, and the CPU time it was seen with, until it is over.
fn sample_until_over(pid: Pid) -> io::Result<Sample> {
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let sampler = scope.spawn(move || sample_until(pid, &is_over));
        let waited = wait::until_over(pid);
        drop(over);
        let seen = sampler.join().unwrap_or_default();
        waited.map(|()| seen)
    })
}

fn sample_until(pid: Pid, is_over: &mpsc::Receiver<()>) -> Sample {
    let mut seen = Sample::default();
    let mut pause = FIRST_LOOK;
    while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let now = Sample::take(&tree::with_descendants([pid]));
        seen = Sample { cpu: seen.cpu.max(now.cpu), rss: seen.rss.max(now.rss) };
        pause = (pause * 2).min(LONGEST_BETWEEN);
    }
    seen
}

/// The most memory that the cgroup of this job ever held, where the system says.
pub(crate) fn cgroup_peak() -> Option<Bytes> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let file = match controllers {
            "" => format!("/sys/fs/cgroup{path}/memory.peak"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                format!("/sys/fs/cgroup/memory{path}/memory.max_usage_in_bytes")
            }
            _ => return None,
        };
        std::fs::read_to_string(file).ok()?.trim().parse().ok().map(Bytes)
    })
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
    fn ends_are_told_with_what_was_used() {
        let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 7";
        let ended = run(&Control::default(), &mut sh(burn)).unwrap();
        assert_eq!(ended.exit, Exit::Code(7));
        assert!(ended.cpu > Duration::ZERO && ended.wall >= ended.cpu / 4, "{ended:?}");
        let ended = run(&Control::default(), &mut sh("kill -SEGV $$")).unwrap();
        assert_eq!(ended.exit, Exit::Signal(11));
    }

    #[test]
    fn signals_reach_the_whole_group_and_nothing_starts_after_them() {
        let control = Control::default();
        let dir = tempfile::tempdir().unwrap();
        let started = dir.path().join("started");
        let script = format!("sleep 1000 & touch {}; wait", started.display());
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&control, &mut sh(&script)));
            while !started.exists() {
                std::thread::yield_now();
            }
            control.signal(15, true);
            assert_eq!(running.join().unwrap().unwrap().exit, Exit::Signal(15));
        });
        assert_eq!(control.ended_by(), Some(15));
        assert_eq!(run(&control, &mut sh("touch never")).unwrap().exit, Exit::Signal(15));
    }

    #[test]
    fn what_a_step_leaves_behind_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        run(&Control::default(), &mut sh(&format!("sleep 1000 & echo $! > {}", pid.display()))).unwrap();
        let left: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let left = Pid::from_raw(left).unwrap();
        while windlass_proc::procfs::is_running(left) {
            std::thread::yield_now();
        }
    }
}
