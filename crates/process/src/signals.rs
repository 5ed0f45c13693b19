//! Signal handling of the worker process.

#![expect(unsafe_code, reason = "signal dispositions are set with sigaction")]

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

const NOT_SET: i32 = -1;
/// The descriptor that the signal handler writes to.
static NOTICE_FD: AtomicI32 = AtomicI32::new(NOT_SET);
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Ignores SIGINT: Ctrl-C reaches the whole terminal group, including the worker, but only the engine decides
/// what it means.
pub fn ignore_interrupt() -> io::Result<()> {
    set_handler(libc::SIGINT, libc::SIG_IGN)
}

/// Ignores SIGTERM, where its sender signals all processes at once: the engine reacts to it and sends a
/// message. The engine's own end still closes the link.
pub fn ignore_termination() -> io::Result<()> {
    set_handler(libc::SIGTERM, libc::SIG_IGN)
}

/// Waits for SIGTERM and SIGHUP.
#[derive(Debug)]
pub struct TerminationSignal {
    notice: OwnedFd,
}

impl TerminationSignal {
    /// Installs handlers, so that neither signal ends this process. The handler keeps a descriptor of its own,
    /// never closed.
    pub fn install() -> io::Result<Self> {
        let notice = eventfd(0, EventfdFlags::CLOEXEC)?;
        let of_handler = notice.try_clone()?.into_raw_fd();
        NOTICE_FD.store(of_handler, Ordering::Release);
        let handler = on_termination as extern "C" fn(libc::c_int) as libc::sighandler_t;
        set_handler(libc::SIGTERM, handler)?;
        set_handler(libc::SIGHUP, handler)?;
        Ok(Self { notice })
    }

    /// Returns when one of the signals arrives; at once if one arrived since the last call.
    pub fn wait_for_signal(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.notice, &mut [0; 8])).map(drop)?)
    }
}

/// Whether this process received SIGTERM or SIGHUP since [`TerminationSignal::install`].
pub fn was_terminated() -> bool {
    TERMINATED.load(Ordering::Acquire)
}

extern "C" fn on_termination(_signal: libc::c_int) {
    TERMINATED.store(true, Ordering::Release);
    let notice = NOTICE_FD.load(Ordering::Acquire);
    if notice != NOT_SET {
        let one = 1u64.to_ne_bytes();
        // SAFETY: write is async-signal-safe and only reads `one`; errno is put back below.
        unsafe {
            let errno = libc::__errno_location();
            let saved = *errno;
            libc::write(notice, one.as_ptr().cast(), one.len());
            *errno = saved;
        }
    }
}

fn set_handler(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid (empty mask, no flags); the handler is async-signal-safe.
    let result = unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
