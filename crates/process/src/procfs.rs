//! Reads `/proc`: a process, its children, the variables in its environment.
//!
//! A process may be gone by the time it is read, so everything here returns `None` or an empty list, never an
//! error.

use rustix::process::Pid;
use std::fs::{self, File};
use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;
use windlass_types::Bytes;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// User and system time of the process and of the children it waited for.
    pub cpu: Duration,
    /// Clock ticks since boot.
    pub start_ticks: u64,
    pub rss: Bytes,
}

impl ProcessStat {
    /// Whether it has ended. A zombie does nothing any more; it only waits to be reaped.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Whether it is stopped, by a signal or a debugger.
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

pub fn read_stat(pid: Pid) -> Option<ProcessStat> {
    let text = read_file(&format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    parse_stat(&text)
}

/// Parses the fields after the name, which is in parentheses and may itself contain blanks and parentheses.
fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    let after_name = text.iter().rposition(|b| *b == b')')? + 1;
    let rest = std::str::from_utf8(text.get(after_name..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Field 3 of the manual page (the state) is fields[0] here.
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    Some(ProcessStat {
        state: *fields.first()?.as_bytes().first()?,
        parent: i32::try_from(number(4)?).ok()?,
        group: i32::try_from(number(5)?).ok()?,
        session: i32::try_from(number(6)?).ok()?,
        cpu: Duration::from_millis(ticks.unsigned_abs() * 1000 / ticks_per_second()),
        start_ticks: u64::try_from(number(22)?).ok()?,
        rss: Bytes(u64::try_from(number(24)?).ok()? * rustix::param::page_size() as u64),
    })
}

pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// Whether it lives and is not a zombie.
pub fn is_running(pid: Pid) -> bool {
    read_stat(pid).is_some_and(|stat| !stat.is_over())
}

/// All processes of the machine (of this pid namespace).
pub fn all_pids() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| parse_pid(entry.file_name().to_str()?)).collect()
}

/// The children of all threads of a process, zombies included.
pub fn list_children(pid: Pid) -> Vec<Pid> {
    if !has_children_files() {
        return scan_for_children(pid);
    }
    let raw = pid.as_raw_nonzero();
    let Ok(threads) = fs::read_dir(format!("/proc/{raw}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| {
            read_file(&format!("/proc/{raw}/task/{}/children", thread.file_name().to_str()?))
        })
        .flat_map(|text| parse_pids(&text))
        .collect()
}

/// The values of these names in `/proc/PID/environ`, in the order requested.
pub fn read_environment_values<const N: usize>(pid: Pid, names: [&str; N]) -> [Option<String>; N] {
    let text = read_environment(pid);
    names.map(|name| find_environment_value(&text, name))
}

/// The text of `/proc/PID/environ`. Empty for zombies, for processes of other users, and briefly during exec.
pub(crate) fn read_environment(pid: Pid) -> Vec<u8> {
    read_file(&format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default()
}

/// The value of one variable.
pub(crate) fn find_environment_value(environment: &[u8], name: &str) -> Option<String> {
    let mut entries = environment.split(|b| *b == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// The children of the main thread of this process: the adopted processes, if its main thread starts nothing.
#[derive(Debug)]
pub struct AdoptedChildren {
    /// Kept open: this is read once per job.
    file: Option<File>,
}

impl AdoptedChildren {
    pub fn open() -> Self {
        let own = rustix::process::getpid().as_raw_nonzero();
        Self { file: File::open(format!("/proc/{own}/task/{own}/children")).ok() }
    }

    /// False if the system does not list children by thread: then all children of the process are taken for
    /// adopted.
    pub const fn is_exact(&self) -> bool {
        self.file.is_some()
    }

    pub fn is_empty(&self) -> bool {
        let mut first = [0u8; 32];
        match &self.file {
            Some(file) => matches!(std::os::unix::fs::FileExt::read_at(file, &mut first, 0), Ok(0)),
            None => self.list().is_empty(),
        }
    }

    pub fn list(&self) -> Vec<Pid> {
        let own = rustix::process::getpid();
        match &self.file {
            Some(_) => {
                let raw = own.as_raw_nonzero();
                parse_pids(&read_file(&format!("/proc/{raw}/task/{raw}/children")).unwrap_or_default())
            }
            None => scan_for_children(own),
        }
    }
}

/// Kernels built without `CONFIG_PROC_CHILDREN` lack the files.
fn has_children_files() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let own = rustix::process::getpid().as_raw_nonzero();
        fs::exists(format!("/proc/{own}/task/{own}/children")).unwrap_or(false)
    })
}

fn scan_for_children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get();
    all_pids().into_iter().filter(|pid| read_stat(*pid).is_some_and(|stat| stat.parent == parent)).collect()
}

pub(crate) fn parse_pids(text: &[u8]) -> Vec<Pid> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(parse_pid).collect()
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

pub(crate) fn read_file(path: &str) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(1024);
    File::open(path).ok()?.read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let text = b"42 (a ) b (c) S 7 42 40 0 -1 4194304 1 2 3 4 100 50 25 25 20 0 1 0 9876 1000 3 18446744073709551615";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.group, stat.session), (b'S', 7, 42, 40));
        assert_eq!(stat.start_ticks, 9876);
        assert_eq!(stat.cpu, Duration::from_millis(200_000 / ticks_per_second()));
        assert_eq!(stat.rss, Bytes(3 * rustix::param::page_size() as u64));
    }

    #[test]
    fn invalid_stat_lines_are_none() {
        for text in [&b""[..], b"42", b"42 (sh", b"42 (sh) S 1 2", b"42 (sh) S x y z"] {
            assert_eq!(parse_stat(text), None);
        }
    }

    #[test]
    fn environment_values_of_running_processes_are_read() {
        let own = rustix::process::getpid();
        assert!(is_running(own));
        assert!(all_pids().contains(&own));
        let [path, none] = read_environment_values(own, ["PATH", "WINDLASS_NO_SUCH_NAME"]);
        assert_eq!(path, std::env::var("PATH").ok());
        assert_eq!(none, None);
    }
}
