//! Runs a program to its end, or ends it after a time limit.

use crate::{Pid, Signal, child_wait, process_identity, process_tree};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The output and exit status of a program.
#[derive(Debug)]
pub struct CommandOutput {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Runs it; `None` if it exceeded the limit and was killed with all processes that it started.
///
/// Its output goes to files in memory instead of pipes: no thread has to read along, and a grandchild that
/// keeps the other end of a pipe open cannot block the caller.
pub fn run_command(command: &mut Command, limit: Duration) -> io::Result<Option<CommandOutput>> {
    match run_cancellable(&CancelToken::default(), command, limit)? {
        CommandOutcome::Finished(answer) => Ok(Some(answer)),
        CommandOutcome::TimedOut | CommandOutcome::Canceled => Ok(None),
    }
}

/// The outcome of a program run with a [`CancelToken`].
#[derive(Debug)]
pub enum CommandOutcome {
    Finished(CommandOutput),
    /// It exceeded the time limit and was killed with all processes that it started.
    TimedOut,
    /// It was killed or not started, because the token was canceled.
    Canceled,
}

/// Cancels running programs together. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    shared: Arc<CancelTokenState>,
}

#[derive(Debug, Default)]
struct CancelTokenState {
    running: Mutex<RunningCommands>,
    /// Signaled when no program runs any more.
    all_ended: Condvar,
}

#[derive(Debug, Default)]
struct RunningCommands {
    is_canceled: bool,
    /// None of them has been reaped, so none of these pids has been reused.
    pids: Vec<Pid>,
}

impl PartialEq for CancelToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for CancelToken {}

impl CancelToken {
    /// Prevents further starts. Running programs have this grace period to end by themselves, and are then
    /// killed.
    pub fn cancel(&self, grace: Duration) {
        let mut running = self.lock_running();
        running.is_canceled = true;
        let some_run = |running: &mut RunningCommands| !running.pids.is_empty();
        let waited = self.shared.all_ended.wait_timeout_while(running, grace, some_run);
        let (running, _) = waited.unwrap_or_else(PoisonError::into_inner);
        for &pid in &running.pids {
            kill_tree(pid);
        }
    }

    fn lock_running(&self) -> MutexGuard<'_, RunningCommands> {
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` if the token was already canceled.
    fn spawn(&self, command: &mut Command) -> io::Result<Option<(Child, Pid)>> {
        // Started under the lock, so that a concurrent cancel finds it.
        let mut running = self.lock_running();
        if running.is_canceled {
            return Ok(None);
        }
        let child = command.spawn()?;
        let pid = process_identity::to_pid(child.id())
            .ok_or_else(|| io::Error::other("a process without a pid"))?;
        running.pids.push(pid);
        Ok(Some((child, pid)))
    }

    /// Removes an ended program that is about to be reaped. Returns whether the token was canceled in the
    /// meantime.
    fn remove_ended(&self, pid: Pid) -> bool {
        let mut running = self.lock_running();
        running.pids.retain(|held| *held != pid);
        if running.pids.is_empty() {
            self.shared.all_ended.notify_all();
        }
        running.is_canceled
    }
}

/// Like [`run`], unless the token is canceled.
pub fn run_cancellable(
    cancel: &CancelToken,
    command: &mut Command,
    limit: Duration,
) -> io::Result<CommandOutcome> {
    let (stdout, stderr) = (create_memory_file("stdout")?, create_memory_file("stderr")?);
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).process_group(0);
    let Some((mut child, pid)) = cancel.spawn(command)? else { return Ok(CommandOutcome::Canceled) };
    let in_time = ends_within(pid, limit);
    let over = if in_time { Ok(()) } else { kill_and_reap(pid) };
    let is_cut = cancel.remove_ended(pid);
    over?;
    let status = child.wait()?;
    if !in_time {
        return Ok(CommandOutcome::TimedOut);
    }
    // A program that ended by itself in time has a valid result.
    if is_cut && status.signal() == Some(Signal::KILL.as_raw()) {
        return Ok(CommandOutcome::Canceled);
    }
    Ok(CommandOutcome::Finished(CommandOutput {
        status,
        stdout: read_contents(stdout)?,
        stderr: read_contents(stderr)?,
    }))
}

/// Whether it ends within the limit; does not reap it.
fn ends_within(pid: Pid, limit: Duration) -> bool {
    let begin = Instant::now();
    while !child_wait::is_over(pid) {
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return false;
        }
        process_tree::wait_for_exit(&[pid], left);
    }
    true
}

fn kill_and_reap(pid: Pid) -> io::Result<()> {
    kill_tree(pid);
    child_wait::wait_until_over(pid)
}

/// Kills a process with all processes that it started.
fn kill_tree(pid: Pid) {
    process_tree::signal_group_and_members(pid, &process_tree::with_descendants([pid]), Signal::KILL);
}

/// An anonymous file, which vanishes when the last descriptor is closed.
pub fn create_memory_file(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

fn read_contents(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn large_output_is_captured() {
        let answer = run_command(&mut shell("seq 100000; echo oops >&2; exit 3"), Duration::from_mins(1))
            .unwrap()
            .unwrap();
        assert!(answer.stdout.ends_with(b"\n99999\n100000\n"));
        assert_eq!((answer.stderr.as_slice(), answer.status.code()), (&b"oops\n"[..], Some(3)));
    }

    #[test]
    fn leftover_processes_do_not_delay_the_result() {
        let answer =
            run_command(&mut shell("sleep 1000 & echo $!"), Duration::from_mins(1)).unwrap().unwrap();
        let left = String::from_utf8(answer.stdout).unwrap();
        let left = process_identity::to_pid(left.trim().parse().unwrap()).unwrap();
        assert!(crate::procfs::is_running(left), "it was not waited for, and not ended");
        process_tree::kill_process(left);
    }

    #[test]
    fn a_program_past_its_limit_is_killed_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let mut slow = shell("sleep 1000 & echo $! > child; wait");
        slow.current_dir(&directory);
        // Long enough for a busy machine to start it; the test always takes this long.
        assert!(run_command(&mut slow, Duration::from_secs(3)).unwrap().is_none());
        let child = std::fs::read_to_string(directory.path().join("child")).unwrap();
        let child = process_identity::to_pid(child.trim().parse().unwrap()).unwrap();
        process_tree::wait_for_exit(&[child], Duration::from_mins(1));
        assert!(!crate::procfs::is_running(child));
    }

    #[test]
    fn a_canceled_token_ends_running_programs_and_prevents_new_ones() {
        let directory = tempfile::tempdir().unwrap();
        let cancel = CancelToken::default();
        let mut hanging = shell("sleep 1000 & echo $! > child.new; mv child.new child; wait");
        hanging.current_dir(&directory);
        let child = directory.path().join("child");
        let ran = std::thread::scope(|scope| {
            let thread =
                scope.spawn(|| run_cancellable(&cancel, &mut hanging, Duration::from_mins(10)).unwrap());
            while !child.exists() {
                std::thread::yield_now();
            }
            cancel.cancel(Duration::ZERO);
            thread.join().unwrap()
        });
        assert!(matches!(ran, CommandOutcome::Canceled), "{ran:?}");
        let child = std::fs::read_to_string(child).unwrap();
        let child = process_identity::to_pid(child.trim().parse().unwrap()).unwrap();
        process_tree::wait_for_exit(&[child], Duration::from_mins(1));
        assert!(!crate::procfs::is_running(child));
        let more = run_cancellable(&cancel, &mut shell("echo here > begun"), Duration::from_mins(1)).unwrap();
        assert!(matches!(more, CommandOutcome::Canceled), "{more:?}");
    }

    #[test]
    fn program_may_end_by_itself_within_its_grace() {
        let directory = tempfile::tempdir().unwrap();
        let cancel = CancelToken::default();
        let mut almost = shell("touch begun; while ! test -e go; do sleep 0.05; done; echo done");
        almost.current_dir(&directory);
        let (begun, go) = (directory.path().join("begun"), directory.path().join("go"));
        let ran = std::thread::scope(|scope| {
            let thread =
                scope.spawn(|| run_cancellable(&cancel, &mut almost, Duration::from_mins(10)).unwrap());
            while !begun.exists() {
                std::thread::yield_now();
            }
            let cutting = scope.spawn(|| cancel.cancel(Duration::from_mins(10)));
            while !cancel.lock_running().is_canceled {
                std::thread::yield_now();
            }
            File::create(&go).unwrap();
            cutting.join().unwrap();
            thread.join().unwrap()
        });
        let CommandOutcome::Finished(answer) = ran else { panic!("{ran:?}") };
        assert_eq!(answer.stdout, b"done\n");
    }
}
