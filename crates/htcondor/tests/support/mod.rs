//! A real HTCondor pool for tests, shared by all concurrent tests, with four simulated sites.
//!
//! It is `tools/htcondor-pool`; the first test that needs it starts it, and it runs until it is stopped, as
//! `cargo xtask test` does at its end. Tests that stop and start a pool use a private one. Other crates include
//! this file by `#[path]`. Tests that do so are in binaries called `pool` (here) or `htcondor` (elsewhere): these
//! names limit how many run at once, and exclude them where no pool can run.

#[path = "../../../store/tests/free_port/mod.rs"]
mod free_port;

use free_port::free_port;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The user who submits jobs and runs them, on both sides.
const USER: &str = "pool";
const USER_ID: u32 = 20_000;

/// The simulated sites.
pub(crate) const SITES: [&str; 4] = ["T1_US_Alpha", "T2_DE_Beta", "T2_CH_Gamma", "T2_IT_Delta"];

/// The time limit for an expected event: for a busy machine, or a retry with a cool-off.
const WAIT_TIMEOUT: Duration = Duration::from_mins(4);

/// The schedd that is not the local one.
pub(crate) const OTHER_SCHEDD: &str = "second@127-0-0-1.pool.test";

/// A running pool.
pub(crate) struct Pool {
    directory: PathBuf,
    is_private: bool,
    /// Locked while the pool is in use, so that it is not stopped meanwhile.
    _used: File,
}

impl Pool {
    /// The shared pool. Tests must not stop it.
    pub(crate) fn shared() -> Self {
        let directory = installed();
        let pool = Self { _used: use_lock(&directory), directory, is_private: false };
        if !pool.has_answered() {
            pool.start();
        }
        pool
    }

    /// A pool that a test may stop and start; it runs, and is deleted when this is dropped.
    pub(crate) fn private() -> Self {
        let shared = installed();
        let pool = {
            // One at a time: a pool that is not locked yet would be taken for an unused one.
            let turn = open(&shared.join("private.lock"));
            turn.lock().unwrap();
            end_private_pool(&shared);
            let directory = sibling(&shared, &format!("test-{}-{}", std::process::id(), next()));
            fs::create_dir(&directory).unwrap();
            Self { _used: use_lock(&directory), directory, is_private: true }
        };
        done(pool.tool("clone").arg(&shared).env("HTCONDOR_POOL_PORT", free_port().to_string()));
        pool.start();
        pool
    }

    /// Starts the daemons, unless they run, and waits until they answer.
    pub(crate) fn start(&self) {
        done(&mut self.tool("start"));
    }

    pub(crate) fn stop(&self) {
        assert!(self.is_private, "other tests use it too: use `Pool::private()`");
        done(&mut self.tool("stop"));
    }

    /// The directory of the `condor_*` commands.
    pub(crate) fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// A directory that the pool sees and that its user may write; deleted when dropped, unless the test
    /// failed.
    pub(crate) fn work(&self, name: &str) -> Work {
        let path = self.directory.join(format!("work/tests/{name}-{}-{}", std::process::id(), next()));
        // Of a failed test whose process had the same number.
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(&path).unwrap();
        let work = Work { path };
        work.give_away();
        work
    }

    /// The program, to be run on this machine as the pool's user and with its commands on the path.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        Self::as_user(&mut command, &self.environment());
        command
    }

    /// Runs the command as the pool's user, in this environment of a pool.
    pub(crate) fn as_user(command: &mut Command, environment: &[(&'static str, String)]) {
        command.uid(USER_ID).gid(USER_ID).stdin(Stdio::null());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
    }

    /// Runs one of the pool's commands to its end; it must succeed. Returns its output.
    pub(crate) fn condor(&self, tool: &str, arguments: &[&str]) -> String {
        let output = done(self.command(self.bin().join(tool)).args(arguments).current_dir("/"));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The environment that the pool's commands need.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let (bin, work) = (self.bin(), self.directory.join("work"));
        let path = std::env::var("PATH").unwrap_or_default();
        let work = work.display().to_string();
        vec![
            ("PATH", format!("{}:{path}", bin.display())),
            ("HOME", work.clone()),
            ("TMPDIR", work),
            ("USER", USER.to_owned()),
            ("LOGNAME", USER.to_owned()),
        ]
    }

    /// Whether it runs and has answered after its start. Cheaper than a query.
    fn has_answered(&self) -> bool {
        let pid = fs::read_to_string(self.directory.join("master.pid")).unwrap_or_default();
        let program = fs::read_to_string(format!("/proc/{}/comm", pid.trim())).unwrap_or_default();
        program.trim() == "condor_master" && self.directory.join("ready").exists()
    }

    fn tool(&self, verb: &str) -> Command {
        tool(&self.directory, verb)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_private {
            // If it cannot be ended now, a later test does it.
            self.tool("uninstall").output().ok();
        }
    }
}

/// A directory for the files of a test; kept for inspection if the test failed.
pub(crate) struct Work {
    path: PathBuf,
}

impl Work {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, and creates its directory, as the pool's user.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        // Other files here may belong to other processes, which may delete them.
        for made in path.ancestors().take_while(|above| *above != self.path) {
            give(made);
        }
        path
    }

    /// The same, for a program.
    pub(crate) fn write_script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The `windlass` of this build, in a place where the pool and its user can run it.
    pub(crate) fn windlass(&self) -> PathBuf {
        let place = self.path.join("bin/windlass");
        if !place.exists() {
            let built = built_windlass();
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            // The checkout may be in a home directory that other users cannot read. A hard link is free, where
            // it is possible.
            if fs::hard_link(&built, &place).is_err() {
                fs::copy(&built, &place).unwrap();
            }
        }
        place
    }

    /// Changes the owner of all files here to the pool's user: for files of other users, while no other process
    /// writes them.
    pub(crate) fn give_away(&self) {
        give_all(&self.path);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // A DAGMan that is being removed may still write here; its output is not needed.
        fs::remove_dir_all(&self.path).ok();
    }
}

/// Waits for an expected event, with a time limit for a pool on a busy machine.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The directory with the installed pool; or the reason why there is none, with the remedy.
fn installed() -> PathBuf {
    let directory = std::env::var_os("HTCONDOR_POOL_DIR")
        .map_or_else(|| PathBuf::from("/var/tmp/htcondor-pool"), PathBuf::from);
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    assert!(is_root, "tests on an HTCondor pool start it and act as its user: run them as root");
    let there = directory.join(".condor-done").exists();
    let place = directory.display();
    assert!(
        there,
        "no HTCondor pool is installed in {place}: `cargo xtask test` does, or `tools/htcondor-pool install`"
    );
    directory
}

fn tool(directory: &Path, verb: &str) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/htcondor-pool"));
    command.arg("-d").arg(directory).arg(verb);
    command
}

/// `/var/tmp/htcondor-pool-NAME`
fn sibling(shared: &Path, name: &str) -> PathBuf {
    let own = shared.file_name().unwrap().to_string_lossy();
    shared.with_file_name(format!("{own}-{name}"))
}

/// Deletes the private pools of tests that were killed.
fn end_private_pool(shared: &Path) {
    let prefix = sibling(shared, "test-");
    for entry in fs::read_dir(shared.parent().unwrap()).unwrap().flatten() {
        let directory = entry.path();
        if !directory.to_string_lossy().starts_with(&*prefix.to_string_lossy()) {
            continue;
        }
        let Ok(used) = File::open(directory.join("used.lock")) else { continue };
        if used.try_lock().is_ok() {
            done(&mut tool(&directory, "uninstall"));
        }
    }
}

fn use_lock(directory: &Path) -> File {
    let file = open(&directory.join("used.lock"));
    file.lock_shared().unwrap();
    file
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).append(true).create(true).open(path).unwrap()
}

/// A name that is not in use.
fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn give(path: &Path) {
    chown(path, Some(USER_ID), Some(USER_ID)).unwrap();
}

fn give_all(path: &Path) {
    let found = fs::symlink_metadata(path).unwrap();
    if found.is_symlink() || (found.is_file() && found.nlink() > 1) {
        // The linked binary is also that of the build.
        return;
    }
    give(path);
    if found.is_dir() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| give_all(&entry.path()));
    }
}

/// Beside this test: `target/debug/windlass`.
fn built_windlass() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join("windlass");
    let is_there = built.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
    assert!(is_there, "{} is not built: `cargo build -p windlass`", built.display());
    built
}

fn done(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{said}", output.status);
    output
}
