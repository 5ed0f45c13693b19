//! Stands in for a program that another process starts, signals and waits for: runs it as a child and exits as
//! the child did.
//!
//! Signals are blocked and fetched instead of handled: none of them ends this process before the child has
//! ended, and no code has to be async-signal-safe. The child gets the original signal mask.

#![expect(unsafe_code, reason = "sigtimedwait and what runs between fork and exec have no safe interface")]

use crate::child_wait::{self, ReapedChild};
use crate::process_identity::to_pid;
use crate::{process_tree, procfs};
use rustix::process::{Pid, Resource, Rlimit, getpid, getppid, getrlimit, set_child_subreaper, setrlimit};
use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};
use windlass_types::Bytes;
use windlass_types::worker_messages::ProcessExit;

/// A supervised child process.
#[derive(Debug)]
pub struct StepSupervisor {
    child: Pid,
    /// The process that started this one, and signals it when it means the child.
    parent: Option<Pid>,
    forwards_signals: bool,
    /// The time of the start.
    pub started: Instant,
    /// CPU time and peak memory of orphans that were reaped.
    adopted_usage: Cell<(Duration, Bytes)>,
}

/// A pending signal.
struct ReceivedSignal {
    number: libc::c_int,
    sender: libc::pid_t,
}

impl ReceivedSignal {
    /// Whether it was sent by the parent or from outside of this pid namespace. Signals that the child sends to
    /// its own group arrive here too, and must not be forwarded again.
    fn is_for_child(&self, parent: Option<Pid>) -> bool {
        let sender = Pid::from_raw(self.sender);
        self.number != libc::SIGCHLD && (sender.is_none() || sender == parent)
    }
}

impl StepSupervisor {
    /// Starts a program with this process's directory, environment, descriptors and process group, and becomes
    /// the subreaper of its orphans. Must be called before there is a second thread. If no process can be
    /// started, all settings are restored.
    ///
    /// `passes_on`: signals of the parent reach only this process and are forwarded to the child. Otherwise the
    /// child gets them as well.
    pub fn start(program: &OsString, arguments: &[OsString], passes_on: bool) -> io::Result<Self> {
        // If SIGCHLD were ignored, children could not be waited for. SAFETY: sets a disposition to the default.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        child_wait::become_subreaper()?;
        let mut all = empty_signal_set();
        let mut before = empty_signal_set();
        // SAFETY: both sets are valid for the whole calls.
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        let mut command = Command::new(program);
        command.args(arguments);
        // SAFETY: pthread_sigmask is async-signal-safe, and the set was copied.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
                Ok(())
            });
        }
        let parent = getppid();
        let child = command.spawn().inspect_err(|_| {
            // Restore the mask for the program that is executed instead. SAFETY: the set is valid for the whole
            // call.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
            set_child_subreaper(None).ok();
        })?;
        let child = to_pid(child.id()).ok_or_else(|| io::Error::other("a process without a pid"))?;
        Ok(Self {
            child,
            parent,
            forwards_signals: passes_on,
            started: Instant::now(),
            adopted_usage: Cell::default(),
        })
    }

    /// The child and all its descendants, including adopted orphans.
    pub fn members(&self) -> Vec<Pid> {
        let own = getpid();
        let mut members = process_tree::with_descendants([own]);
        members.retain(|pid| *pid != own);
        members
    }

    /// Forwards signals until the child has ended (true) or the time is reached (false).
    pub fn wait_until(&self, time: Option<Instant>) -> bool {
        loop {
            self.reap_adopted();
            if child_wait::is_over(self.child) {
                return true;
            }
            let left = time.map(|time| time.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if let Some(taken) = take_signal(left)
                && self.forwards_signals
                && taken.is_for_child(self.parent)
            {
                // SAFETY: takes two numbers. The child is not reaped yet, so its pid is not reused.
                unsafe { libc::kill(self.child.as_raw_nonzero().get(), taken.number) };
            }
        }
    }

    fn reap_adopted(&self) {
        for pid in procfs::list_children(getpid()) {
            if pid != self.child
                && let Some(reaped) = child_wait::reap_if_over(pid)
            {
                let (cpu_time, max_rss) = self.adopted_usage.get();
                self.adopted_usage.set((cpu_time + reaped.cpu_time, max_rss.max(reaped.max_rss)));
            }
        }
    }

    /// Reaps the ended child. The usage includes that of the orphans that have ended by now.
    pub fn reap(self) -> io::Result<ReapedChild> {
        let own = child_wait::reap_child(self.child)?;
        self.reap_adopted();
        let (cpu_time, max_rss) = self.adopted_usage.get();
        Ok(ReapedChild { cpu_time: own.cpu_time + cpu_time, max_rss: own.max_rss.max(max_rss), ..own })
    }
}

/// Replaces this process by the program. Returns only on failure.
pub fn exec_program(program: &OsString, arguments: &[OsString]) -> io::Error {
    Command::new(program).args(arguments).exec()
}

/// Ends this process as another one ended: with its exit code, or by its signal.
pub fn exit_like(exit: ProcessExit) -> ! {
    if let ProcessExit::Signal(number) = exit {
        // One core dump is enough.
        let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
        setrlimit(Resource::Core, limit).ok();
        let mut only = empty_signal_set();
        // SAFETY: the set is valid for the whole calls; this process has no handler for this signal any more.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::sigaddset(&raw mut only, number);
            libc::raise(number);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, ptr::null_mut());
        }
    }
    std::process::exit(exit.return_code())
}

/// The next signal, if one arrives within this time.
fn take_signal(within: Option<Duration>) -> Option<ReceivedSignal> {
    let mut all = empty_signal_set();
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let limit = within.map(|within| libc::timespec {
        tv_sec: libc::time_t::try_from(within.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: within.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: all pointers are valid for the whole calls, or null where that means to wait for ever.
    let number = unsafe {
        libc::sigfillset(&raw mut all);
        libc::sigtimedwait(&raw const all, info.as_mut_ptr(), limit)
    };
    // An error means that no signal arrived, or that the wait was interrupted.
    (number > 0).then(|| {
        // SAFETY: zeroed is a valid siginfo, and the call has filled it. Signals of processes, and SIGCHLD,
        // name a pid.
        let sender = unsafe { info.assume_init().si_pid() };
        ReceivedSignal { number, sender }
    })
}

fn empty_signal_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: initializes the set, regardless of its content.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_of_the_parent_are_forwarded() {
        let parent = Pid::from_raw(7);
        for (number, sender, expected) in [
            (libc::SIGUSR1, 7, true),
            (libc::SIGTERM, 0, true),
            (libc::SIGTERM, 8, false),
            (libc::SIGCHLD, 7, false),
            (libc::SIGCHLD, 0, false),
        ] {
            let taken = ReceivedSignal { number, sender };
            assert_eq!(taken.is_for_child(parent), expected, "{number} of {sender}");
        }
    }
}
