//! The identity of a process, so that another process with a reused pid is never taken for it.

use crate::procfs;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// A process on this machine, unique until the next reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    pub fn own() -> io::Result<Self> {
        let pid = rustix::process::getpid();
        let stat = procfs::read_stat(pid).ok_or_else(|| io::Error::other("cannot read /proc/self/stat"))?;
        Ok(Self { pid: pid.as_raw_nonzero().get().cast_unsigned(), start_ticks: stat.start_ticks })
    }

    /// The process that has this pid now, if any.
    pub fn from_pid(pid: u32) -> Option<Self> {
        let stat = procfs::read_stat(to_pid(pid)?)?;
        Some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        let stat = to_pid(self.pid).and_then(procfs::read_stat);
        stat.is_some_and(|stat| stat.start_ticks == self.start_ticks && !stat.is_over())
    }
}

/// Identifies a file regardless of its path: a copy is another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FileIdentity {
    /// `None` if there is no such file.
    pub fn from_path(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }
}

/// The boot id of the kernel and, after a slash, the pid namespace: pids are comparable within it until the
/// next reboot.
pub fn boot_id() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
    Ok(format!("{}/pidns-{namespace}", boot.trim()))
}

/// The part of a [`boot_id`] that all namespaces of a kernel share.
pub fn kernel_boot(boot_id: &str) -> &str {
    boot_id.split('/').next().unwrap_or_default()
}

/// The time since boot, including sleep. The same for all processes, and cannot be set.
pub fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The current time, in the clock and unit of process start times.
pub fn boot_ticks() -> u64 {
    let now = boot_time();
    (now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos()))
        / (1_000_000_000 / procfs::ticks_per_second())
}

pub fn own_pid() -> Pid {
    rustix::process::getpid()
}

pub fn to_pid(raw: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(raw).ok()?)
}

pub fn from_pid(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_with_another_start_time_is_another_process() {
        let own = ProcessIdentity::own().unwrap();
        assert!(own.is_alive());
        assert_eq!(ProcessIdentity::from_pid(own.pid), Some(own));
        assert!(!ProcessIdentity { start_ticks: own.start_ticks + 1, ..own }.is_alive());
        assert!(!ProcessIdentity { pid: u32::MAX, ..own }.is_alive());
    }

    #[test]
    fn start_times_and_boot_ticks_use_one_clock() {
        let before = boot_ticks();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let start = ProcessIdentity::from_pid(child.id()).unwrap().start_ticks;
        let after = boot_ticks();
        child.wait().unwrap();
        assert!((before..=after).contains(&start), "{before} <= {start} <= {after}");
    }

    #[test]
    fn the_boot_id_includes_the_pid_namespace() {
        let own = boot_id().unwrap();
        let (boot, namespace) = own.split_once("/pidns-").unwrap();
        assert_eq!((boot.len(), kernel_boot(&own)), (36, boot));
        assert!(namespace.parse::<u64>().is_ok(), "{own}");
    }
}
