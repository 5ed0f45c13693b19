//! A program that runs to its end within a limit, or is ended.

use crate::{Signal, identity, tree};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// What a program said, and how it ended.
#[derive(Debug)]
pub struct Answer {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Runs it; `None` if it took longer than this and was killed, with all that it started.
///
/// It writes into memory of the kernel's instead of pipes: nobody has to read along, and a grandchild that keeps the
/// other end of a pipe open cannot keep us from going on.
pub fn run(command: &mut Command, limit: Duration) -> io::Result<Option<Answer>> {
    let (stdout, stderr) = (memory("stdout")?, memory("stderr")?);
    command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).process_group(0);
    let mut child = command.spawn()?;
    let Some(status) = wait(&mut child, limit)? else { return Ok(None) };
    Ok(Some(Answer { status, stdout: contents(stdout)?, stderr: contents(stderr)? }))
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let pid = identity::to_pid(child.id()).ok_or_else(|| io::Error::other("a process without a pid"))?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            tree::signal(pid, &tree::with_descendants([pid]), Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        tree::await_exit(&[pid], left);
    }
}

fn memory(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

fn contents(mut file: File) -> io::Result<Vec<u8>> {
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
    fn what_it_says_is_heard_also_when_it_is_much() {
        let answer =
            run(&mut shell("seq 100000; echo oops >&2; exit 3"), Duration::from_mins(1)).unwrap().unwrap();
        assert!(answer.stdout.ends_with(b"\n99999\n100000\n"));
        assert_eq!((answer.stderr.as_slice(), answer.status.code()), (&b"oops\n"[..], Some(3)));
    }

    #[test]
    fn nobody_waits_for_what_it_leaves_behind() {
        let answer = run(&mut shell("sleep 1000 & echo $!"), Duration::from_mins(1)).unwrap().unwrap();
        let left = String::from_utf8(answer.stdout).unwrap();
        let left = identity::to_pid(left.trim().parse().unwrap()).unwrap();
        assert!(crate::procfs::is_running(left), "it was not waited for, and not ended");
        tree::kill(left);
    }

    #[test]
    fn what_takes_too_long_is_killed_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let mut slow = shell("sleep 1000 & echo $! > child; wait");
        slow.current_dir(&directory);
        // Long enough for a busy machine to start it; it takes all of that in any case.
        assert!(run(&mut slow, Duration::from_secs(3)).unwrap().is_none());
        let child = std::fs::read_to_string(directory.path().join("child")).unwrap();
        let child = identity::to_pid(child.trim().parse().unwrap()).unwrap();
        tree::await_exit(&[child], Duration::from_mins(1));
        assert!(!crate::procfs::is_running(child));
    }
}
