//! Starting something that is asked to end when whoever started it dies, even if that is killed.
//!
//! For programs that have a job run elsewhere: killed, they would leave it behind, and without us nobody would call it off.
//! `posix_spawn` cannot ask for that, so this forks; such jobs take so long to start that it makes no difference.

#![expect(unsafe_code, reason = "what runs between fork and exec cannot be checked by the compiler")]

use crate::process_identity::to_pid;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// What to start, and with what.
pub(crate) struct AttachedSpawn<'a> {
    pub(crate) words: &'a [&'a CStr],
    /// `NAME=VALUE`, each name once.
    pub(crate) environment: Vec<&'a [u8]>,
    pub(crate) directory: &'a CStr,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
}

impl AttachedSpawn<'_> {
    /// It leads a process group of its own, with all signals at their defaults and none blocked. It gets TERM when the *thread*
    /// that calls this ends, so that one has to wait for it.
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
        // Not waited for here: whoever has the number does that.
        let child = command.spawn()?;
        to_pid(child.id()).ok_or_else(|| io::Error::other("a process without a number"))
    }
}

/// This process, which `parent` has just forked, is asked to end when that ends.
fn attach_to_parent(parent: Pid) -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: sets a disposition to the default; of those that cannot be set nothing changes.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have died before it was asked for.
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
    fn it_ends_with_whoever_started_it() {
        let (mut reader, writer) = io::pipe().unwrap();
        let starter = std::thread::spawn(move || {
            let output = File::from(std::os::fd::OwnedFd::from(writer));
            let pid = attached(&[c"/bin/sh", c"-c", c"echo there; exec sleep 1000"], &output).spawn();
            let mut said = [0; 6];
            reader.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"there\n");
            pid.unwrap()
        });
        // Threads are told apart: this one goes on.
        let pid = starter.join().unwrap();
        assert_eq!(child_wait::reap_child(pid).unwrap().exit, ProcessExit::Signal(15));
    }

    #[test]
    fn it_has_what_any_job_has() {
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
        // The C library keeps two signals for itself, 32 and 33, and lets nobody change them.
        let others = |set| u64::from_str_radix(set, 16).map(|set: u64| set & !(0b11 << 31));
        assert_eq!([blocked, ignored].map(others), [Ok(0), Ok(0)]);
    }
}
