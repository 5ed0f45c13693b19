//! Waiting for child processes, and becoming the subreaper of orphaned descendants.

#![expect(unsafe_code, reason = "only wait4 returns the usage of a child together with its end")]

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;
use windlass_types::Bytes;
use windlass_types::worker_messages::ProcessExit;

/// An ended child.
#[derive(Clone, Copy, Debug)]
pub struct ReapedChild {
    pub exit: ProcessExit,
    /// User and system time, with that of all descendants it waited for.
    pub cpu_time: Duration,
    /// High-water mark of the largest single process among them. At least that of the starting process at the
    /// time of the start: see [`crate::usage_sample::peak_if_trusted`].
    pub max_rss: Bytes,
}

/// Makes this process the parent of its orphaned descendants.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Waits until the child has ended, and leaves it a zombie: until [`reap_child`] its pid is not reused, so a
/// signal sent to it in the meantime cannot hit another process.
pub fn wait_until_over(pid: Pid) -> io::Result<()> {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the child has ended, without reaping it.
pub fn is_over(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

/// Waits for the child and reaps it.
pub fn reap_child(pid: Pid) -> io::Result<ReapedChild> {
    loop {
        match wait4(pid, 0) {
            Ok(Some(reaped)) => return Ok(reaped),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reaps the child if it has ended. `None` if it has not, or is not (any more) a child.
pub fn reap_if_over(pid: Pid) -> Option<ReapedChild> {
    wait4(pid, libc::WNOHANG).ok().flatten()
}

fn wait4(pid: Pid, options: libc::c_int) -> io::Result<Option<ReapedChild>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for writes for the whole call.
    let got =
        unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, options, usage.as_mut_ptr()) };
    match got {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => {
            // SAFETY: zeroed is a valid rusage, and the call has filled it.
            let usage = unsafe { usage.assume_init() };
            Ok(Some(ReapedChild {
                exit: parse_exit(status),
                cpu_time: to_duration(usage.ru_utime) + to_duration(usage.ru_stime),
                max_rss: Bytes(usage.ru_maxrss.unsigned_abs() * 1024),
            }))
        }
    }
}

fn parse_exit(status: libc::c_int) -> ProcessExit {
    if libc::WIFSIGNALED(status) {
        ProcessExit::Signal(libc::WTERMSIG(status))
    } else {
        ProcessExit::Code(libc::WEXITSTATUS(status))
    }
}

fn to_duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000)
}
