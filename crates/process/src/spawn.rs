//! Starts `bash -c COMMAND`, as cheaply as the system permits; or a launcher that runs it elsewhere. A command
//! of plain words whose program is found is started without the shell ([`crate::shell`]).
//!
//! `posix_spawn` shares memory with the child until exec, so its cost does not grow with the size of this
//! process, and none of this program's code runs in the child. The environment is prepared once; a job only
//! adds to it.

#![expect(unsafe_code, reason = "posix_spawn has no safe wrapper that takes a prepared environment")]

use crate::attached_spawn::AttachedSpawn;
use crate::shell::{self, CommandStart, SH_PATH};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use std::collections::HashSet;
use std::ffi::{CStr, CString, OsString};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::ptr;

/// Enters a cgroup before anything of the job runs: `$1` is its `cgroup.procs`, the rest the program and its
/// arguments. If the cgroup cannot be entered the job runs anyway; the sampler sees that it is not in there.
pub(crate) const ENTER_AND_RUN: &CStr = c"{ echo 0 >\"$1\"; } 2>/dev/null; shift; exec \"$@\"";

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("{what} contains a NUL byte")]
    NulByte { what: &'static str },
    #[error("`{name}` cannot be the name of an environment variable")]
    InvalidVariableName { name: String },
    #[error(
        "the command ({command} bytes) and its environment ({environment} bytes) are longer than the system permits; \
         put the command into a script"
    )]
    ArgumentsTooLong { command: usize, environment: usize },
    #[error("cannot start a process in {directory}: {source}")]
    SpawnFailed { directory: String, source: io::Error },
}

impl SpawnError {
    /// Whether a retry makes sense: the machine lacks a resource; the job is not at fault.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::SpawnFailed { .. })
    }
}

/// The part of the environment that all jobs share. Sorted by name.
#[derive(Debug)]
pub struct BaseEnvironment {
    entries: Vec<CString>,
    /// It has variables that change the behavior of bash.
    has_bash_settings: bool,
    /// It has names that are invalid as shell variables.
    has_invalid_names: bool,
}

impl BaseEnvironment {
    /// Later entries override earlier ones of the same name.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut entries: Vec<CString> = variables
            .into_iter()
            .filter_map(|(name, value)| {
                let mut entry = name.into_vec();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                CString::new(entry).ok()
            })
            .collect();
        entries.sort_by(|a, b| entry_name(a.to_bytes()).cmp(entry_name(b.to_bytes())));
        entries.reverse();
        // Of equal names the last one given now comes first, and is kept.
        entries.dedup_by(|a, b| entry_name(a.to_bytes()) == entry_name(b.to_bytes()));
        entries.reverse();
        let has_bash_settings =
            entries.iter().any(|entry| shell::is_bash_setting(entry_name(entry.to_bytes())));
        let has_invalid_names = entries.iter().any(|entry| is_invalid_name(entry_name(entry.to_bytes())));
        Self { entries, has_bash_settings, has_invalid_names }
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        let at =
            self.entries.binary_search_by(|entry| entry_name(entry.to_bytes()).cmp(name.as_bytes())).ok()?;
        self.entries[at].to_bytes().get(name.len() + 1..)
    }
}

/// The variables that one job adds to the [`BaseEnvironment`]. Kept and cleared by its owner, so that adding
/// allocates nothing.
#[derive(Debug, Default)]
pub struct EnvironmentAdditions {
    /// `NAME=VALUE\0`, concatenated.
    text: String,
    /// The offset of each entry.
    entry_starts: Vec<usize>,
    bad_name: Option<String>,
}

impl EnvironmentAdditions {
    pub fn clear(&mut self) {
        self.text.clear();
        self.entry_starts.clear();
        self.bad_name = None;
    }

    /// Later values override earlier ones of the same name.
    pub fn set(&mut self, name: &str, value: impl fmt::Display) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.bad_name = Some(name.to_owned());
            return;
        }
        self.entry_starts.push(self.text.len());
        self.text.push_str(name);
        self.text.push('=');
        write!(self.text, "{value}").ok();
        self.text.push('\0');
    }

    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.entry_starts.iter().skip(1).copied().chain([self.text.len()]);
        self.entry_starts.iter().zip(ends).map(|(start, end)| &self.text.as_bytes()[*start..end - 1])
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        let entry = self.entries().filter(|entry| entry_name(entry) == name.as_bytes()).last()?;
        entry.get(name.len() + 1..)
    }

    fn check_names(&self) -> Result<(), SpawnError> {
        if let Some(name) = &self.bad_name {
            return Err(SpawnError::InvalidVariableName { name: name.clone() });
        }
        let ends = self.text.bytes().filter(|b| *b == 0).count();
        if ends == self.entry_starts.len() {
            Ok(())
        } else {
            Err(SpawnError::NulByte { what: "an environment variable" })
        }
    }

    /// Entries with their NUL, sorted by name, each name once.
    fn sorted_entries(&self) -> Vec<&[u8]> {
        let ends = self.entry_starts.iter().skip(1).copied().chain([self.text.len()]);
        let mut entries: Vec<&[u8]> = self
            .entry_starts
            .iter()
            .zip(ends)
            .map(|(start, end)| &self.text.as_bytes()[*start..end])
            .collect();
        entries.sort_by(|a, b| entry_name(a).cmp(entry_name(b)));
        entries.reverse();
        entries.dedup_by(|a, b| entry_name(a) == entry_name(b));
        entries.reverse();
        entries
    }
}

/// The process to start.
#[derive(Debug)]
pub struct SpawnParameters<'a> {
    pub command: &'a str,
    /// The path of a launcher and arguments that go before `bash -c COMMAND`; it gets SIGTERM when the thread
    /// that starts it ends. Empty: the command runs here.
    pub launcher: &'a [String],
    pub environment: &'a BaseEnvironment,
    pub additions: &'a EnvironmentAdditions,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
    /// The `cgroup.procs` of a cgroup that the job enters by itself before it runs (cgroup v2).
    pub enter: Option<&'a Path>,
}

impl SpawnParameters<'_> {
    fn cheapest_start(&self) -> CommandStart {
        let has_bash_settings = self.environment.has_bash_settings
            || self.additions.entries().any(|entry| shell::is_bash_setting(entry_name(entry)));
        shell::plan_command_start(self.command, has_bash_settings, |name| {
            self.additions.value(name).or_else(|| self.environment.value(name))
        })
    }

    fn has_invalid_names(&self) -> bool {
        self.environment.has_invalid_names
            || self.additions.entries().any(|entry| is_invalid_name(entry_name(entry)))
    }
}

/// Pointers to entries of the environment, and the entries that only this list has.
struct BashEnvironment {
    entries: Vec<*mut libc::c_char>,
    _own: Vec<CString>,
}

/// Starts jobs in one working directory. Shared by all threads.
#[derive(Debug)]
pub struct JobSpawner {
    attributes: SpawnAttributes,
    directory: CString,
    dev_null: File,
}

impl JobSpawner {
    pub fn new(directory: &Path) -> Result<Self, SpawnError> {
        let spawn_error =
            |source| SpawnError::SpawnFailed { directory: directory.display().to_string(), source };
        Ok(Self {
            attributes: SpawnAttributes::new().map_err(spawn_error)?,
            directory: CString::new(directory.as_os_str().as_bytes())
                .map_err(|_| SpawnError::NulByte { what: "the working directory" })?,
            dev_null: File::options().read(true).write(true).open("/dev/null").map_err(spawn_error)?,
        })
    }

    /// `/dev/null`, for discarded output.
    pub fn dev_null(&self) -> BorrowedFd<'_> {
        self.dev_null.as_fd()
    }

    /// Starts the job as the leader of a new process group, with all signals at their defaults and none
    /// blocked.
    pub fn spawn(&self, launch: &SpawnParameters<'_>) -> Result<Pid, SpawnError> {
        launch.additions.check_names()?;
        let command =
            CString::new(launch.command).map_err(|_| SpawnError::NulByte { what: "the command" })?;
        let in_shell = [shell::shell_path(), c"-c", command.as_c_str()];
        if !launch.launcher.is_empty() {
            let launcher = launch.launcher.iter().map(|word| CString::new(word.as_str()));
            let launcher: Vec<CString> = launcher
                .collect::<Result<_, _>>()
                .map_err(|_| SpawnError::NulByte { what: "the launcher" })?;
            let words: Vec<&CStr> = launcher.iter().map(CString::as_c_str).chain(in_shell).collect();
            return self.spawn_attached(launch, &words);
        }
        let additions = launch.additions.sorted_entries();
        let environment = merge_environments(&launch.environment.entries, &additions);
        let run = |program: &CStr, words: &[&CStr], environment: &[*mut libc::c_char]| {
            self.posix_spawn(launch, program, words, environment)
        };
        let start = launch.cheapest_start();
        if let Some(path) = launch.enter {
            let path = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| SpawnError::NulByte { what: "the path of the cgroup" })?;
            // If `/bin/sh` is dash, it exports only variables with valid shell names.
            let enter = if launch.has_invalid_names() {
                (shell::shell_path(), shell::shell_name())
            } else {
                (SH_PATH, c"sh")
            };
            let mut words = vec![enter.1, c"-c", ENTER_AND_RUN, c"sh", &path];
            match &start {
                CommandStart::Program { path, words: own } if shell::is_executable_format(path) => {
                    words.extend(own.iter().map(CString::as_c_str));
                }
                CommandStart::Sh => words.extend([SH_PATH, c"-c", &command]),
                CommandStart::Shell | CommandStart::Program { .. } => words.extend(in_shell),
            }
            return run(enter.0, &words, &environment).map_err(|errno| self.spawn_error(launch, errno));
        }
        let started = match &start {
            CommandStart::Program { path, words } => {
                let words: Vec<&CStr> = words.iter().map(CString::as_c_str).collect();
                run(path, &words, &self.bash_environment(path, &additions, launch).entries)
            }
            CommandStart::Sh => run(SH_PATH, &[c"sh", c"-c", &command], &environment),
            CommandStart::Shell => Err(libc::ENOEXEC),
        };
        // Files that the kernel cannot execute are left to bash: scripts without `#!`, and missing files.
        started
            .or_else(|errno| match errno {
                libc::EAGAIN | libc::ENOMEM => Err(errno),
                _ => run(shell::shell_path(), &[shell::shell_name(), c"-c", &command], &environment),
            })
            .map_err(|errno| self.spawn_error(launch, errno))
    }

    /// The environment with the two variables that bash sets for an executed program.
    fn bash_environment(
        &self,
        program: &CStr,
        additions: &[&[u8]],
        launch: &SpawnParameters<'_>,
    ) -> BashEnvironment {
        let own = [
            CString::new([b"PWD=", self.directory.to_bytes()].concat()),
            CString::new([b"_=", program.to_bytes()].concat()),
        ];
        let own: Vec<CString> = own.into_iter().flatten().collect();
        let mut additions: Vec<&[u8]> =
            additions.iter().copied().filter(|entry| !matches!(entry_name(entry), b"PWD" | b"_")).collect();
        additions.extend(own.iter().map(|entry| entry.to_bytes_with_nul()));
        additions.sort_by(|a, b| entry_name(a).cmp(entry_name(b)));
        let entries = merge_environments(&launch.environment.entries, &additions);
        BashEnvironment { entries, _own: own }
    }

    fn posix_spawn(
        &self,
        launch: &SpawnParameters<'_>,
        program: &CStr,
        words: &[&CStr],
        environment: &[*mut libc::c_char],
    ) -> Result<Pid, libc::c_int> {
        let words: Vec<_> =
            words.iter().map(|word| word.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect();
        let actions = self.file_actions(launch)?;
        let mut pid: libc::pid_t = 0;
        // SAFETY: attributes and actions are initialized; both pointer lists end with null and point at
        // strings that outlive the call; posix_spawn does not write through them.
        let errno = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                &raw const actions.0,
                &raw const *self.attributes.0,
                words.as_ptr(),
                environment.as_ptr(),
            )
        };
        match (errno, Pid::from_raw(pid)) {
            (0, Some(pid)) => Ok(pid),
            (0, None) => Err(libc::EINVAL),
            _ => Err(errno),
        }
    }

    /// Starts a launcher, which must not outlive this process: it gets SIGTERM when the calling thread ends.
    fn spawn_attached(&self, launch: &SpawnParameters<'_>, words: &[&CStr]) -> Result<Pid, SpawnError> {
        let additions = launch.additions.sorted_entries();
        let added: HashSet<&[u8]> = additions.iter().map(|entry| entry_name(entry)).collect();
        let shared = launch.environment.entries.iter().map(|entry| entry.to_bytes());
        let shared = shared.filter(|entry| !added.contains(entry_name(entry)));
        let environment = shared.chain(additions.iter().map(|entry| &entry[..entry.len() - 1])).collect();
        let (stdout, stderr) = (launch.stdout, launch.stderr);
        let attached = AttachedSpawn { words, environment, directory: &self.directory, stdout, stderr };
        attached
            .spawn()
            .map_err(|error| self.spawn_error(launch, error.raw_os_error().unwrap_or(libc::EINVAL)))
    }

    fn file_actions(&self, launch: &SpawnParameters<'_>) -> Result<SpawnFileActions, libc::c_int> {
        let mut actions = SpawnFileActions::new()?;
        actions.change_directory(&self.directory)?;
        actions.duplicate(self.dev_null.as_fd(), libc::STDIN_FILENO)?;
        actions.duplicate(launch.stdout, libc::STDOUT_FILENO)?;
        actions.duplicate(launch.stderr, libc::STDERR_FILENO)?;
        Ok(actions)
    }

    fn spawn_error(&self, launch: &SpawnParameters<'_>, errno: libc::c_int) -> SpawnError {
        match errno {
            libc::E2BIG | libc::ENAMETOOLONG => SpawnError::ArgumentsTooLong {
                command: launch.command.len(),
                environment: launch.additions.text.len()
                    + launch.environment.entries.iter().map(|entry| entry.count_bytes() + 1).sum::<usize>(),
            },
            _ => SpawnError::SpawnFailed {
                directory: self.directory.to_string_lossy().into_owned(),
                source: io::Error::from_raw_os_error(errno),
            },
        }
    }
}

/// Opens a log for a job. Append mode, so that processes that share it do not overwrite each other; truncated
/// first, so that an old log of the same name (of a deleted database) does not show up.
pub fn create_log(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o666))?.into())
}

/// Merges two sorted lists into one null-terminated list of pointers; an addition overrides a shared entry of
/// its name.
fn merge_environments(shared: &[CString], additions: &[&[u8]]) -> Vec<*mut libc::c_char> {
    let mut merged = Vec::with_capacity(shared.len() + additions.len() + 1);
    let mut shared = shared.iter().peekable();
    for addition in additions {
        let name = entry_name(addition);
        while let Some(entry) = shared.next_if(|entry| entry_name(entry.to_bytes()) < name) {
            merged.push(entry.as_ptr().cast_mut());
        }
        shared.next_if(|entry| entry_name(entry.to_bytes()) == name);
        merged.push(addition.as_ptr().cast_mut().cast());
    }
    merged.extend(shared.map(|entry| entry.as_ptr().cast_mut()));
    merged.push(ptr::null_mut());
    merged
}

fn is_invalid_name(name: &[u8]) -> bool {
    !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        || name.first().is_none_or(u8::is_ascii_digit)
}

fn entry_name(entry: &[u8]) -> &[u8] {
    entry.split(|b| *b == b'=').next().unwrap_or_default()
}

/// `posix_spawnattr_t`, boxed because the system gets its address.
#[derive(Debug)]
struct SpawnAttributes(Box<libc::posix_spawnattr_t>);

// SAFETY: after `new` the attributes are only read, by posix_spawn, which may be called from any thread.
unsafe impl Send for SpawnAttributes {}
// SAFETY: as above.
unsafe impl Sync for SpawnAttributes {}

impl SpawnAttributes {
    fn new() -> io::Result<Self> {
        let mut attributes = Box::new(MaybeUninit::<libc::posix_spawnattr_t>::zeroed());
        let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let flags = libc::POSIX_SPAWN_SETPGROUP | libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: every pointer is valid; the attributes are initialized by the first call before they are
        // used, and the sets by sigemptyset and sigfillset.
        let results = unsafe {
            let attributes = attributes.as_mut_ptr();
            let initialised = libc::posix_spawnattr_init(attributes);
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigfillset(all.as_mut_ptr());
            // These two cannot be set, and not every C library ignores the attempt.
            libc::sigdelset(all.as_mut_ptr(), libc::SIGKILL);
            libc::sigdelset(all.as_mut_ptr(), libc::SIGSTOP);
            [
                initialised,
                libc::posix_spawnattr_setflags(attributes, flags as libc::c_short),
                libc::posix_spawnattr_setpgroup(attributes, 0),
                libc::posix_spawnattr_setsigdefault(attributes, all.as_ptr()),
                libc::posix_spawnattr_setsigmask(attributes, none.as_ptr()),
            ]
        };
        if let Some(errno) = results.into_iter().find(|result| *result != 0) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        // SAFETY: posix_spawnattr_init succeeded.
        Ok(Self(unsafe { attributes.assume_init() }))
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: initialized in `new`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&raw mut *self.0) };
    }
}

struct SpawnFileActions(libc::posix_spawn_file_actions_t);

impl SpawnFileActions {
    fn new() -> Result<Self, libc::c_int> {
        let mut actions = MaybeUninit::zeroed();
        // SAFETY: the pointer is valid for writes.
        ok_or_errno(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        // SAFETY: initialized by the call above.
        Ok(Self(unsafe { actions.assume_init() }))
    }

    fn change_directory(&mut self, directory: &CStr) -> Result<(), libc::c_int> {
        // SAFETY: initialized in `new`; the path is copied.
        ok_or_errno(unsafe {
            libc::posix_spawn_file_actions_addchdir_np(&raw mut self.0, directory.as_ptr())
        })
    }

    fn duplicate(&mut self, from: BorrowedFd<'_>, to: libc::c_int) -> Result<(), libc::c_int> {
        // SAFETY: initialized in `new`.
        ok_or_errno(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from.as_raw_fd(), to) })
    }
}

impl Drop for SpawnFileActions {
    fn drop(&mut self) {
        // SAFETY: initialized in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

const fn ok_or_errno(result: libc::c_int) -> Result<(), libc::c_int> {
    if result == 0 { Ok(()) } else { Err(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child_wait;
    use std::io::{Read as _, Seek as _};
    use windlass_types::worker_messages::ProcessExit;

    struct Fixture {
        spawner: JobSpawner,
        environment: BaseEnvironment,
        additions: EnvironmentAdditions,
        output: File,
    }

    impl Fixture {
        fn new(shared: &[(&str, &str)]) -> Self {
            let shared = shared.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            Self {
                spawner: JobSpawner::new(Path::new("/")).unwrap(),
                environment: BaseEnvironment::new(shared),
                additions: EnvironmentAdditions::default(),
                output: tempfile::tempfile().unwrap(),
            }
        }

        fn spawn(&self, command: &str, enter: Option<&Path>) -> Result<Pid, SpawnError> {
            self.spawner.spawn(&SpawnParameters {
                launcher: &[],
                command,
                environment: &self.environment,
                additions: &self.additions,
                stdout: self.output.as_fd(),
                stderr: self.output.as_fd(),
                enter,
            })
        }

        fn run(&mut self, command: &str) -> (ProcessExit, String) {
            let pid = self.spawn(command, None).unwrap();
            let exit = child_wait::reap_child(pid).unwrap().exit;
            let mut text = String::new();
            self.output.rewind().unwrap();
            self.output.read_to_string(&mut text).unwrap();
            (exit, text)
        }
    }

    #[test]
    fn exit_codes_and_signals_are_distinguished() {
        assert_eq!(Fixture::new(&[]).run("true").0, ProcessExit::Code(0));
        assert_eq!(Fixture::new(&[]).run("exit 7").0, ProcessExit::Code(7));
        assert_eq!(Fixture::new(&[]).run("kill -9 $$").0, ProcessExit::Signal(9));
    }

    #[test]
    fn commands_run_under_bash() {
        let path = [("PATH", "/usr/bin:/bin")];
        let output = |command: &str| Fixture::new(&path).run(command);
        assert_eq!(
            output("[[ abc == a* ]] && a=(1 2) && echo ${a[1]}"),
            (ProcessExit::Code(0), "2\n".to_owned())
        );
        assert_eq!(output("set -o pipefail; false | true").0, ProcessExit::Code(1));
        let (exit, text) = output("no-such-program-here a b");
        assert_eq!(exit, ProcessExit::Code(127));
        assert_eq!(text, "bash: line 1: no-such-program-here: command not found\n");
        assert_eq!(output("/etc/passwd").0, ProcessExit::Code(126));
    }

    #[test]
    fn a_program_without_a_shell_has_the_same_variables() {
        let shared =
            [("PATH", "/usr/bin:/bin"), ("PWD", "/stale"), ("_", "/stale"), ("A", "1"), ("SHLVL", "1")];
        let run = |command: &str| {
            let mut lines: Vec<String> =
                Fixture::new(&shared).run(command).1.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let direct = run("env");
        assert_eq!(direct, run("\"env\""), "the quotes require bash");
        assert!(direct.contains(&"PWD=/".to_owned()), "{direct:?}");
    }

    #[test]
    fn a_script_without_a_shebang_runs_under_bash() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("tool");
        std::fs::write(&script, "[[ a == a ]] && echo \"$1\"\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", directory.path().display());
        let mut fixture = Fixture::new(&[("PATH", &path)]);
        assert_eq!(fixture.run("tool word"), (ProcessExit::Code(0), "word\n".to_owned()));
        let mut fixture = Fixture::new(&[("PATH", "/usr/bin:/bin")]);
        fixture.spawner = JobSpawner::new(directory.path()).unwrap();
        assert_eq!(fixture.run("./tool here"), (ProcessExit::Code(0), "here\n".to_owned()));
    }

    #[test]
    fn exported_bash_functions_are_available() {
        let function = ("BASH_FUNC_sleep%%", "() { echo \"function $1\"; }");
        let mut fixture = Fixture::new(&[("PATH", "/usr/bin:/bin"), function]);
        assert_eq!(fixture.run("sleep 7"), (ProcessExit::Code(0), "function 7\n".to_owned()));
        let directory = tempfile::tempdir().unwrap();
        let entry = directory.path().join("cgroup.procs");
        let mut fixture = Fixture::new(&[("PATH", "/usr/bin:/bin"), function]);
        let pid = fixture.spawn("sleep 8", Some(&entry)).unwrap();
        assert_eq!(child_wait::reap_child(pid).unwrap().exit, ProcessExit::Code(0));
        let mut text = String::new();
        fixture.output.rewind().unwrap();
        fixture.output.read_to_string(&mut text).unwrap();
        assert_eq!(
            (text.as_str(), std::fs::read_to_string(&entry).unwrap().as_str()),
            ("function 8\n", "0\n")
        );
    }

    #[test]
    fn job_variables_override_shared_ones() {
        let mut fixture =
            Fixture::new(&[("PATH", "/usr/bin:/bin"), ("B", "shared"), ("D", "4"), ("B", "later")]);
        for (name, value) in [("C", "3"), ("B", "job"), ("A", "first"), ("A", "last"), ("BB", "x=y")] {
            fixture.additions.set(name, value);
        }
        let (_, text) = fixture.run("env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort");
        assert_eq!(text, "A=last\nB=job\nBB=x=y\nC=3\nD=4\nPATH=/usr/bin:/bin\n");
    }

    #[test]
    fn later_shared_values_override_earlier_ones() {
        let (_, text) = Fixture::new(&[("B", "shared"), ("B", "later")]).run("echo $B");
        assert_eq!(text, "later\n");
    }

    #[test]
    fn job_leads_its_group_without_input_or_ignored_signals() {
        // Rust ignores SIGPIPE in this process; the job must not inherit that. The C library reserves the
        // signals 32 and 33, and ignores them in spawned processes.
        const ITS_OWN: u64 = 0b11 << 31;
        let (_, text) = Fixture::new(&[("PATH", "/usr/bin:/bin")])
            .run("pwd; cat; cut -d' ' -f5 /proc/$$/stat; echo $$; sed -n 's/Sig[BI][lg][kn]:\t//p' /proc/self/status");
        let [directory, group, pid, blocked, ignored] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert_eq!((directory, group), ("/", pid));
        assert_eq!(u64::from_str_radix(blocked, 16), Ok(0));
        assert_eq!(u64::from_str_radix(ignored, 16).map(|set| set & !ITS_OWN), Ok(0));
    }

    #[test]
    fn permanent_and_transient_start_failures_are_distinguished() {
        let mut fixture = Fixture::new(&[]);
        let error = fixture.spawn(&format!("true {}", "x".repeat(1 << 20)), None).unwrap_err();
        assert!(matches!(error, SpawnError::ArgumentsTooLong { command: 1_048_581, .. }), "{error}");
        assert!(!error.is_transient());
        assert!(matches!(fixture.spawn("true\0", None), Err(SpawnError::NulByte { .. })));
        fixture.additions.set("A", "x\0y");
        assert!(matches!(fixture.spawn("true", None), Err(SpawnError::NulByte { .. })));
        fixture.additions.clear();
        fixture.additions.set("A=B", "x");
        assert!(matches!(fixture.spawn("true", None), Err(SpawnError::InvalidVariableName { .. })));

        let mut nowhere = Fixture::new(&[]);
        nowhere.spawner = JobSpawner::new(Path::new("/no/such/directory")).unwrap();
        assert!(nowhere.spawn("true", None).unwrap_err().is_transient());
    }

    #[test]
    fn a_job_enters_its_cgroup_before_it_runs() {
        let directory = tempfile::tempdir().unwrap();
        let procs = directory.path().join("cgroup.procs");
        let fixture = Fixture::new(&[]);
        let command = format!("read first < {}; exit $((first + 3))", procs.display());
        let pid = fixture.spawn(&command, Some(&procs)).unwrap();
        assert_eq!(child_wait::reap_child(pid).unwrap().exit, ProcessExit::Code(3));
        let pid = fixture.spawn("exit 4", Some(Path::new("/no/such/group/cgroup.procs"))).unwrap();
        assert_eq!(child_wait::reap_child(pid).unwrap().exit, ProcessExit::Code(4));
    }
}
