//! Waiting for children, and becoming the one who inherits what they leave behind.

#![expect(unsafe_code, reason = "wait4 is the only call that gives a child's usage with its end")]

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;
use windlass_types::Bytes;
use windlass_types::work::Exit;

/// A child that is over.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    pub exit: Exit,
    /// User and system time, with that of all descendants it waited for.
    pub cpu_time: Duration,
    /// High-water mark of the largest single process among them. Not below that of the process that started it, at the
    /// time it did: see [`crate::sample::trusted_peak`].
    pub max_rss: Bytes,
}

/// From now on the orphans among our descendants become our children.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Returns when the child is over, and leaves it a zombie: until [`reap`] its pid belongs to nobody else, so a signal
/// sent to it meanwhile cannot hit a stranger.
pub fn until_over(pid: Pid) -> io::Result<()> {
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the child is over, without taking it off the books.
pub fn is_over(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

/// Waits for the child and takes it off the books.
pub fn reap(pid: Pid) -> io::Result<Reaped> {
    loop {
        match wait4(pid, 0) {
            Ok(Some(reaped)) => return Ok(reaped),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes the child off the books if it is over. `None` if it is not, or is not (any more) a child.
pub fn reap_if_over(pid: Pid) -> Option<Reaped> {
    wait4(pid, libc::WNOHANG).ok().flatten()
}

fn wait4(pid: Pid, options: libc::c_int) -> io::Result<Option<Reaped>> {
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
            Ok(Some(Reaped {
                exit: exit_of(status),
                cpu_time: duration_of(usage.ru_utime) + duration_of(usage.ru_stime),
                max_rss: Bytes(usage.ru_maxrss.unsigned_abs() * 1024),
            }))
        }
    }
}

fn exit_of(status: libc::c_int) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

fn duration_of(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000)
}
