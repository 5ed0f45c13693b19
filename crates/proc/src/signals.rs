//! How the worker process itself takes signals.

#![expect(unsafe_code, reason = "signal dispositions are set with sigaction")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

const NO_LINK: i32 = -1;
static LINK: AtomicI32 = AtomicI32::new(NO_LINK);

/// Ctrl-C reaches the whole terminal group, the worker included, but only the engine decides what it means.
pub fn ignore_interrupt() -> io::Result<()> {
    set(libc::SIGINT, libc::SIG_IGN)
}

/// Where whoever ends us signals all processes at once, the engine among them, which then says what it means: SIGTERM is left
/// to it. Its own end still hangs up the link.
pub fn ignore_termination() -> io::Result<()> {
    set(libc::SIGTERM, libc::SIG_IGN)
}

/// SIGTERM and SIGHUP hang up the link: its reader then sees the end of the stream, as if the engine had died, and one
/// path ends everything. The descriptor must stay open for the rest of the process's life.
pub fn hang_up_on_termination(link: BorrowedFd<'_>) -> io::Result<()> {
    LINK.store(link.as_raw_fd(), Ordering::Release);
    let handler = hang_up as extern "C" fn(libc::c_int) as libc::sighandler_t;
    set(libc::SIGTERM, handler)?;
    set(libc::SIGHUP, handler)
}

extern "C" fn hang_up(_signal: libc::c_int) {
    let link = LINK.load(Ordering::Acquire);
    if link != NO_LINK {
        // SAFETY: shutdown is async-signal-safe and touches no memory of ours; errno is put back below.
        unsafe {
            let errno = libc::__errno_location();
            let saved = *errno;
            libc::shutdown(link, libc::SHUT_RDWR);
            *errno = saved;
        }
    }
}

fn set(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid (empty mask, no flags); the handler is async-signal-safe.
    let result = unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
