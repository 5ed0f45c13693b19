//! Starts processes that get SIGTERM when their parent dies, even if it is killed.
//!
//! For launchers of jobs that run elsewhere: a killed launcher would leave the job behind, with no process to
//! cancel it. `posix_spawn` cannot request this, so this forks; the start of such jobs takes so long that it
//! makes no difference.

#![expect(unsafe_code, reason = "the compiler cannot check the code between fork and exec")]

use crate::process_identity::to_pid;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// The program to start, with its arguments, environment and descriptors.
pub(crate) struct AttachedSpawn<'a> {
    pub(crate) words: &'a [&'a CStr],
    /// `NAME=VALUE`, each name once.
    pub(crate) environment: Vec<&'a [u8]>,
    pub(crate) directory: &'a CStr,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
}

impl AttachedSpawn<'_> {
    /// Starts the process as the leader of a new process group, with all signals at their defaults and none
    /// blocked. It gets SIGTERM when the *thread* that calls this ends, so the same thread has to wait for it.
    pub(crate) fn spawn(&self) -> io::Result<Pid> {
        let text = |word: &CStr| OsStr::from_bytes(word.to_bytes()).to_owned();
        let (program, arguments) =
            self.words.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut command = Command::new(text(program));
        command.args(arguments.iter().map(|word| text(word))).current_dir(text(self.directory)).env_clear();
        for entry in &self.environment {
            let mut parts = entry.splitn(2, |byte| *byte == b'=').map(OsStr::from_bytes);
            if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                command.env(name, value);
            }
        }
        let output = |of: BorrowedFd<'_>| of.try_clone_to_owned().map(|copy| Stdio::from(File::from(copy)));
        command.stdin(Stdio::null()).stdout(output(self.stdout)?).stderr(output(self.stderr)?);
        command.process_group(0);
        let parent = rustix::process::getpid();
        // SAFETY: prctl, getppid and signal are async-signal-safe, and nothing in there allocates or locks.
        unsafe { command.pre_exec(move || attach_to_parent(parent)) };
        // Not waited for here: the caller does that by pid.
        let child = command.spawn()?;
        to_pid(child.id()).ok_or_else(|| io::Error::other("a process without a pid"))
    }
}

/// Requests SIGTERM for this process, which `parent` has just forked, when `parent` ends.
fn attach_to_parent(parent: Pid) -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: sets a disposition to the default; fails without effect for signals that cannot be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have died before the request.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child_wait;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use windlass_types::worker_messages::ProcessExit;

    fn attached<'a>(words: &'a [&'a CStr], output: &'a File) -> AttachedSpawn<'a> {
        AttachedSpawn {
            words,
            environment: vec![b"PATH=/usr/bin:/bin", b"A=b=c"],
            directory: c"/",
            stdout: output.as_fd(),
            stderr: output.as_fd(),
        }
    }

    #[test]
    fn attached_process_ends_with_its_starting_thread() {
        let (mut reader, writer) = io::pipe().unwrap();
        let starter = std::thread::spawn(move || {
            let output = File::from(std::os::fd::OwnedFd::from(writer));
            let pid = attached(&[c"/bin/sh", c"-c", c"echo there; exec sleep 1000"], &output).spawn();
            let mut said = [0; 6];
            reader.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"there\n");
            pid.unwrap()
        });
        // Another thread ends meanwhile: only the starting thread matters.
        let pid = starter.join().unwrap();
        assert_eq!(child_wait::reap_child(pid).unwrap().exit, ProcessExit::Signal(15));
    }

    #[test]
    fn an_attached_process_has_the_environment_of_any_job() {
        let (mut reader, writer) = io::pipe().unwrap();
        let output = File::from(std::os::fd::OwnedFd::from(writer));
        let line = c"pwd; cat; echo $A; cut -d' ' -f5 /proc/$$/stat; echo $$; sed -n 's/Sig[BI][lg][kn]:\t//p' /proc/self/status";
        let pid = attached(&[c"/bin/sh", c"-c", line], &output).spawn().unwrap();
        drop(output);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(child_wait::reap_child(pid).unwrap().exit, ProcessExit::Code(0));
        let [directory, a, group, own, blocked, ignored] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert_eq!((directory, a, group), ("/", "b=c", own));
        // The C library reserves the signals 32 and 33 and rejects changes to them.
        let others = |set| u64::from_str_radix(set, 16).map(|set: u64| set & !(0b11 << 31));
        assert_eq!([blocked, ignored].map(others), [Ok(0), Ok(0)]);
    }
}
