//! Memory cgroups, one per slot and reused from job to job, where the system permits them.
//!
//! Cgroup v1: a slot's *thread* enters the cgroup once, and every job it starts is born in it, at no cost per
//! job. Cgroup v2 has no threads in memory cgroups, so there only jobs with a memory limit enter one, by
//! themselves and before they run anything (see [`crate::spawn::SpawnParameters::enter`]): writing a pid from
//! outside would come too late for processes that the job has already started.
//!
//! Without write access there is no [`WorkerCgroup`], and the worker samples instead. Directories carry the pid
//! and start time of their owner, so that a later worker can recognize and remove those of a dead one.

use crate::process_identity::{self, ProcessIdentity};
use crate::procfs;
use crate::spawn::ENTER_AND_RUN;
use rustix::process::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use windlass_types::Bytes;

const GROUP_PREFIX: &str = "windlass-";

/// A smaller limit would fail the kernel's own allocations for the job; the sampler enforces smaller limits.
const MIN_MEMORY_LIMIT: Bytes = Bytes(4 << 20);

/// The root directory and the cgroup of the process. Tests search a tree of plain files instead.
#[derive(Clone, Debug)]
pub struct CgroupPaths {
    pub root: PathBuf,
    /// The text of `/proc/self/cgroup`.
    pub own_cgroup: String,
}

impl CgroupPaths {
    pub fn of_this_process() -> Self {
        Self {
            root: PathBuf::from("/sys/fs/cgroup"),
            own_cgroup: fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
        }
    }

    /// The process's own cgroup in the v1 hierarchy of a controller.
    pub(crate) fn v1_group(&self, controller: &str) -> Option<PathBuf> {
        let path = self.own_cgroup.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })?;
        existing_below(self.root.join(controller), path)
    }

    /// The process's own cgroup in the v2 hierarchy, which is mounted at the root or, on hybrid systems, beside
    /// the v1 ones.
    pub(crate) fn v2_group(&self) -> Option<(PathBuf, PathBuf)> {
        let path = self.own_cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
        let mount = [self.root.clone(), self.root.join("unified")]
            .into_iter()
            .find(|mount| mount.join("cgroup.controllers").exists())?;
        let own = existing_below(mount.clone(), path)?;
        Some((mount, own))
    }
}

/// In a container the path may be that of the host, of which only the last part is mounted.
fn existing_below(mount: PathBuf, path: &str) -> Option<PathBuf> {
    let own = mount.join(path.trim_start_matches('/'));
    [own, mount].into_iter().find(|place| place.is_dir())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

impl CgroupVersion {
    /// The file of a cgroup with the number of out-of-memory kills.
    const fn oom_events_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.oom_control",
            Self::V2 => "memory.events",
        }
    }

    /// The file of a cgroup with its peak memory.
    const fn peak_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.max_usage_in_bytes",
            Self::V2 => "memory.peak",
        }
    }
}

/// The parent cgroup of the slots' cgroups. Removed when dropped.
#[derive(Debug)]
pub struct WorkerCgroup {
    directory: PathBuf,
    version: CgroupVersion,
}

impl WorkerCgroup {
    /// Creates the parent cgroup if permitted and removes those of dead workers beside it. `None` if not
    /// permitted.
    pub fn create(places: &CgroupPaths, owner: ProcessIdentity) -> Option<Self> {
        Self::create_v1(places, owner).or_else(|| Self::create_v2(places, owner))
    }

    fn create_v1(places: &CgroupPaths, owner: ProcessIdentity) -> Option<Self> {
        let parent = places.v1_group("memory")?;
        remove_stale_groups(&parent);
        Self { directory: create_group(&parent, owner)?, version: CgroupVersion::V1 }.if_usable()
    }

    /// The nearest ancestor that delegates the memory controller and is writable. Not below the process's own
    /// cgroup: a v2 cgroup with processes in it cannot delegate controllers.
    fn create_v2(places: &CgroupPaths, owner: ProcessIdentity) -> Option<Self> {
        let (mount, own) = places.v2_group()?;
        let hands_memory_down = |group: &Path| {
            fs::read_to_string(group.join("cgroup.subtree_control"))
                .is_ok_and(|text| text.split_ascii_whitespace().any(|name| name == "memory"))
        };
        own.ancestors()
            .skip(1)
            .take_while(|group| group.starts_with(&mount))
            .filter(|group| hands_memory_down(group))
            .find_map(|parent| {
                remove_stale_groups(parent);
                let directory = create_group(parent, owner)?;
                let group = Self { directory, version: CgroupVersion::V2 };
                fs::write(group.directory.join("cgroup.subtree_control"), "+memory").ok()?;
                group.if_usable()
            })
    }

    /// Creates a slot as a test: a cgroup that can be created may still lack the files for limits.
    fn if_usable(self) -> Option<Self> {
        let slot = self.create_slot("probe").ok()?;
        let usable = slot.set_memory_limit(Bytes(1 << 40)).is_ok()
            && slot.clear_memory_limit().is_ok()
            && slot.can_be_entered();
        drop(slot);
        usable.then_some(self)
    }

    pub fn create_slot(&self, name: &str) -> io::Result<SlotCgroup> {
        let directory = self.directory.join(name);
        fs::create_dir(&directory)?;
        let evidence = File::open(directory.join(self.version.oom_events_file())).ok();
        let peak = File::options().read(true).write(true).open(directory.join(self.version.peak_file())).ok();
        Ok(SlotCgroup { oom_events_file: evidence, peak_file: peak, directory, version: self.version })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for WorkerCgroup {
    fn drop(&mut self) {
        remove_group(&self.directory);
    }
}

/// The cgroup of one slot.
#[derive(Debug)]
pub struct SlotCgroup {
    directory: PathBuf,
    version: CgroupVersion,
    /// Kept open, because it is read after every job.
    oom_events_file: Option<File>,
    /// Also kept open: version 2 resets the peak only per open file, and before Linux 6.12 not at all.
    peak_file: Option<File>,
}

/// The memory of a cgroup at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupMemory {
    pub anonymous: Bytes,
    pub page_cache: Bytes,
}

impl SlotCgroup {
    /// Moves the calling thread in, so that all it starts is born here. Only in v1.
    pub fn enter_thread(&self) -> io::Result<bool> {
        match self.version {
            CgroupVersion::V1 => fs::write(self.directory.join("tasks"), "0").map(|()| true),
            CgroupVersion::V2 => Ok(false),
        }
    }

    /// Moves the calling thread back to its previous cgroup, since a cgroup with a thread in it cannot be
    /// removed.
    pub fn leave_thread(&self) {
        let above = self.directory.parent().and_then(Path::parent);
        if let (CgroupVersion::V1, Some(above)) = (self.version, above) {
            // If this fails, the directory stays for the next worker to remove.
            fs::write(above.join("tasks"), "0").ok();
        }
    }

    /// The file by which a job enters before it runs, where threads cannot.
    pub fn entry_file(&self) -> Option<PathBuf> {
        (self.version == CgroupVersion::V2).then(|| self.directory.join("cgroup.procs"))
    }

    /// Limits memory and swap together, so that swapping does not evade the limit.
    pub fn set_memory_limit(&self, limit: Bytes) -> io::Result<()> {
        let limit = limit.max(MIN_MEMORY_LIMIT).0.to_string();
        match self.version {
            // The limit with swap may never be below the one without, so the order matters in both directions.
            // The file is missing where swap is not accounted for.
            CgroupVersion::V1 => {
                self.clear_memory_limit()?;
                self.write_file("memory.limit_in_bytes", &limit)?;
                self.write_if_there("memory.memsw.limit_in_bytes", &limit)
            }
            CgroupVersion::V2 => {
                self.write_file("memory.max", &limit)?;
                self.write_if_there("memory.swap.max", "0")
            }
        }
    }

    pub fn clear_memory_limit(&self) -> io::Result<()> {
        match self.version {
            CgroupVersion::V1 => {
                self.write_if_there("memory.memsw.limit_in_bytes", "-1")?;
                self.write_file("memory.limit_in_bytes", "-1")
            }
            CgroupVersion::V2 => {
                self.write_if_there("memory.swap.max", "max")?;
                self.write_file("memory.max", "max")
            }
        }
    }

    /// Kills all processes in it, also those being forked in the meantime. Does nothing where the kernel does
    /// not support it: in version 1, and in version 2 before Linux 5.14.
    pub fn kill_all(&self) {
        if self.version == CgroupVersion::V2 {
            self.write_file("cgroup.kill", "1").ok();
        }
    }

    /// Starts a new measurement of [`SlotCgroup::peak_memory`]. False where the system knows only the peak of
    /// all times.
    pub fn reset_peak(&self) -> bool {
        self.peak_file.as_ref().is_some_and(|file| file.write_at(b"0", 0).is_ok())
    }

    /// The peak memory of the cgroup since [`SlotCgroup::reset_peak`], including page cache charged to it.
    pub fn peak_memory(&self) -> Option<Bytes> {
        let mut text = [0u8; 32];
        let read = self.peak_file.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..read]).ok()?.trim().parse().ok().map(Bytes)
    }

    /// Freezes or thaws all processes in it. False where unsupported: a v1 memory cgroup cannot freeze.
    pub fn set_frozen(&self, frozen: bool) -> bool {
        self.version == CgroupVersion::V2
            && self.write_file("cgroup.freeze", if frozen { "1" } else { "0" }).is_ok()
    }

    /// The total number of out-of-memory kills in this cgroup.
    pub fn oom_kills(&self) -> u64 {
        let mut text = [0u8; 512];
        let read =
            self.oom_events_file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        parse_field(&text[..read], "oom_kill").unwrap_or(0)
    }

    pub fn memory(&self) -> Option<CgroupMemory> {
        let text = fs::read(self.directory.join("memory.stat")).ok()?;
        let (anonymous, page_cache) = match self.version {
            CgroupVersion::V1 => ("rss", "cache"),
            CgroupVersion::V2 => ("anon", "file"),
        };
        let field = |name| parse_field(&text, name).map(Bytes);
        Some(CgroupMemory { anonymous: field(anonymous)?, page_cache: field(page_cache)? })
    }

    /// The processes in it, without this process: v1 lists a process if one of its threads is in it.
    pub fn processes(&self) -> Vec<Pid> {
        let own = rustix::process::getpid();
        let mut pids = read_processes(&self.directory);
        pids.retain(|pid| *pid != own);
        pids
    }

    fn can_be_entered(&self) -> bool {
        match self.entry_file() {
            Some(entry) => self.can_child_enter(&entry).unwrap_or(false),
            // An entering thread checks for itself whether it is permitted.
            None => File::options().write(true).open(self.directory.join("tasks")).is_ok(),
        }
    }

    /// Moves a test process in as a job would enter, and checks that it arrived: that a file can be opened
    /// proves little.
    fn can_child_enter(&self, entry: &Path) -> io::Result<bool> {
        let mut child = Command::new("/bin/sh")
            .args([OsStr::new("-c"), OsStr::from_bytes(ENTER_AND_RUN.to_bytes()), OsStr::new("sh")])
            .args([entry.as_os_str(), OsStr::new("/bin/sh"), OsStr::new("-c")])
            .arg("echo past the door; read end")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let spoke = child.stdout.take().map(|mut said| said.read_exact(&mut [0]));
        let is_in = self.processes().iter().any(|pid| process_identity::from_pid(*pid) == child.id());
        // Closes its standard input, which ends it.
        child.wait()?;
        Ok(matches!(spoke, Some(Ok(()))) && is_in)
    }

    fn write_file(&self, file: &str, value: &str) -> io::Result<()> {
        // Not created if missing: these files belong to the kernel.
        let file = File::options().write(true).open(self.directory.join(file))?;
        file.write_all_at(value.as_bytes(), 0)
    }

    fn write_if_there(&self, file: &str, value: &str) -> io::Result<()> {
        match self.write_file(file, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

impl Drop for SlotCgroup {
    fn drop(&mut self) {
        // Fails while a process is in it; the removal of the parent tries again.
        fs::remove_dir(&self.directory).ok();
    }
}

/// The processes in a cgroup and its direct children.
pub fn processes_below(directory: &Path) -> Vec<Pid> {
    let mut pids = read_processes(directory);
    for slot in subdirectories(directory) {
        pids.extend(read_processes(&slot));
    }
    pids.sort_by_key(|pid| pid.as_raw_nonzero());
    pids.dedup();
    pids
}

/// Kills all processes in a cgroup and below, also those being forked in the meantime, where the kernel
/// supports it.
pub fn kill_group(directory: &Path) {
    if let Ok(switch) = File::options().write(true).open(directory.join("cgroup.kill")) {
        switch.write_at(b"1", 0).ok();
    }
}

/// Removes a worker's cgroup with those of its slots. Cgroups that still have processes stay.
pub fn remove_group(directory: &Path) {
    for slot in subdirectories(directory) {
        fs::remove_dir(slot).ok();
    }
    fs::remove_dir(directory).ok();
}

/// The total number of out-of-memory kills in the process's own cgroup; `None` where the system does not report
/// it.
pub fn own_oom_kills(places: &CgroupPaths) -> Option<u64> {
    let v1 = places.v1_group("memory").map(|own| own.join(CgroupVersion::V1.oom_events_file()));
    let v2 = places.v2_group().map(|(_, own)| own.join(CgroupVersion::V2.oom_events_file()));
    v1.into_iter().chain(v2).find_map(|path| parse_field(&fs::read(path).ok()?, "oom_kill"))
}

fn read_processes(directory: &Path) -> Vec<Pid> {
    procfs::parse_pids(&fs::read(directory.join("cgroup.procs")).unwrap_or_default())
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn create_group(parent: &Path, owner: ProcessIdentity) -> Option<PathBuf> {
    let directory = parent.join(format!("{GROUP_PREFIX}{}-{}", owner.pid, owner.start_ticks));
    fs::create_dir(&directory).ok()?;
    Some(directory)
}

/// Sibling cgroups whose owner is dead. [`crate::ensure_dead`] ends their processes.
fn remove_stale_groups(parent: &Path) {
    for directory in subdirectories(parent) {
        let owner = directory.file_name().and_then(|name| parse_owner(name.to_str()?));
        if owner.is_some_and(|owner| !owner.is_alive()) {
            remove_group(&directory);
        }
    }
}

fn parse_owner(name: &str) -> Option<ProcessIdentity> {
    let (pid, start) = name.strip_prefix(GROUP_PREFIX)?.split_once('-')?;
    Some(ProcessIdentity { pid: pid.parse().ok()?, start_ticks: start.parse().ok()? })
}

fn parse_field(text: &[u8], name: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: ProcessIdentity = ProcessIdentity { pid: 7, start_ticks: 70 };

    fn places(own: &str) -> (tempfile::TempDir, CgroupPaths) {
        let root = tempfile::tempdir().unwrap();
        let places = CgroupPaths { root: root.path().to_owned(), own_cgroup: own.to_owned() };
        (root, places)
    }

    #[test]
    fn own_cgroups_are_found_in_all_layouts() {
        let (root, places) = places("4:memory,hugetlb:/a/b\n1:name=systemd:/x\n0::/c\n");
        fs::create_dir_all(root.path().join("memory/a/b")).unwrap();
        assert_eq!(places.v1_group("memory"), Some(root.path().join("memory/a/b")));
        assert_eq!(places.v1_group("cpu"), None);
        assert_eq!(places.v2_group(), None);
        fs::create_dir_all(root.path().join("unified/c")).unwrap();
        fs::write(root.path().join("unified/cgroup.controllers"), "").unwrap();
        assert_eq!(places.v2_group(), Some((root.path().join("unified"), root.path().join("unified/c"))));
        // A container that sees the path of its host but has only the last part mounted.
        fs::remove_dir_all(root.path().join("memory/a")).unwrap();
        assert_eq!(places.v1_group("memory"), Some(root.path().join("memory")));
    }

    #[test]
    fn a_cgroup_reports_its_oom_kills() {
        let (root, places) = places("4:memory:/a\n0::/b\n");
        assert_eq!(own_oom_kills(&places), None);
        fs::create_dir_all(root.path().join("b")).unwrap();
        fs::write(root.path().join("cgroup.controllers"), "").unwrap();
        fs::write(root.path().join("b/memory.events"), "oom 3\noom_kill 2\noom_group_kill 0\n").unwrap();
        assert_eq!(own_oom_kills(&places), Some(2));
        fs::create_dir_all(root.path().join("memory/a")).unwrap();
        let evidence = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
        fs::write(root.path().join("memory/a/memory.oom_control"), evidence).unwrap();
        assert_eq!(own_oom_kills(&places), Some(1));
    }

    #[test]
    fn a_directory_without_controller_files_is_not_used() {
        let (root, places) = places("4:memory:/a\n0::/a\n");
        let own = root.path().join("memory/a");
        fs::create_dir_all(&own).unwrap();
        fs::write(root.path().join("cgroup.controllers"), "memory").unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "cpu memory").unwrap();
        fs::create_dir_all(root.path().join("a")).unwrap();
        assert!(WorkerCgroup::create(&places, OWNER).is_none());
        assert_eq!(subdirectories(&own), Vec::<PathBuf>::new());
    }

    #[test]
    fn v2_uses_the_nearest_ancestor_that_delegates_memory() {
        let (root, places) = places("0::/user.slice/app.slice/run.scope\n");
        let own = root.path().join("user.slice/app.slice/run.scope");
        fs::create_dir_all(&own).unwrap();
        for (group, controllers) in
            [("", "cpu memory"), ("user.slice", "memory pids"), ("user.slice/app.slice", "cpu")]
        {
            fs::write(root.path().join(group).join("cgroup.subtree_control"), controllers).unwrap();
        }
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        // Plain directories have no memory.max, so none is accepted, but the test sees which one was tried: it
        // was created and its own subtree_control written before the missing file was noticed.
        assert!(WorkerCgroup::create_v2(&places, OWNER).is_none());
        let tried = root.path().join("user.slice/windlass-7-70/cgroup.subtree_control");
        assert_eq!(fs::read_to_string(tried).unwrap(), "+memory");
        assert!(!root.path().join("user.slice/app.slice/windlass-7-70").exists());
    }

    #[test]
    fn a_writable_group_that_admits_no_process_is_not_usable() {
        let (root, _) = places("");
        let procs = root.path().join("cgroup.procs");
        fs::write(&procs, "").unwrap();
        let slot = SlotCgroup {
            directory: root.path().to_owned(),
            version: CgroupVersion::V2,
            oom_events_file: None,
            peak_file: None,
        };
        assert!(!slot.can_be_entered());
        assert_eq!(fs::read_to_string(procs).unwrap(), "0\n", "a child process tried");
    }

    #[test]
    fn cgroups_of_dead_workers_are_removed_and_others_kept() {
        let (root, _) = places("");
        let alive = ProcessIdentity::own().unwrap();
        let names =
            [format!("windlass-{}-{}", alive.pid, alive.start_ticks), "windlass-x".into(), "other".into()];
        for name in &names {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::create_dir_all(root.path().join(format!("windlass-{}-1/slot-0", alive.pid))).unwrap();
        remove_stale_groups(root.path());
        let mut left = subdirectories(root.path());
        left.sort();
        let mut expected: Vec<_> = names.iter().map(|name| root.path().join(name)).collect();
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn field_names_match_whole_words() {
        let text = b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(parse_field(text, "oom_kill"), Some(3));
        assert_eq!(parse_field(text, "oom"), None);
    }
}
