//! The real binary in a directory of its own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A temporary directory in which `windlass` is run; deleted when dropped.
pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
}

/// The output of a command and its exit status.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The binary, to be started here, without the settings of the caller.
    pub(crate) fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("WINDLASS_DB")
            .env_remove("WINDLASS_URL")
            .env_remove("WINDLASS_TOKEN")
            .env_remove("NO_COLOR")
            .env("XDG_CONFIG_HOME", self.path("home/.config"))
            .env("XDG_STATE_HOME", self.path("home/.local/state"))
            .env("USER", "tester")
            .stdin(Stdio::null());
        command
    }

    /// Runs `windlass` here and waits for it.
    pub(crate) fn windlass(&self, args: &[impl AsRef<OsStr>]) -> Output {
        Output::of(&mut self.command(args))
    }

    /// Runs it so that its jobs find it as `windlass`.
    pub(crate) fn windlass_on_path(&self, args: &[impl AsRef<OsStr>]) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        Output::of(self.command(args).env("PATH", path))
    }

    /// Starts `windlass` here; its output is dropped.
    pub(crate) fn start(&self, args: &[impl AsRef<OsStr>]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Runs it with `--format json`; it must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let output = self.windlass(&[args, &["--format", "json"]].concat());
        assert_eq!(output.code, 0, "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }
}

impl Output {
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap_or(-1),
        }
    }

    /// Requires this exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "stderr does not contain `{text}`:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says_nothing_of(self, text: &str) -> Self {
        assert!(!self.stderr.contains(text), "stderr contains `{text}`:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "stdout does not contain `{text}`:\n{}", self.stdout);
        self
    }
}

/// Waits for an expected event.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_within(Duration::from_mins(1), what, holds);
}

pub(crate) fn eventually_within(max_wait: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + max_wait;
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn kill(pid: u32, signal: &str) {
    // It may be gone already.
    Command::new("kill").args(["-s", signal, &pid.to_string()]).stderr(Stdio::null()).status().unwrap();
}

pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Whether the process exists and is not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Returns the field names of an object, after checking that `docs/json.md` explains them.
#[track_caller]
pub(crate) fn documented_keys(object: &serde_json::Value) -> BTreeSet<&str> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let keys: BTreeSet<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    for key in &keys {
        assert!(page.contains(&format!("`{key}`")), "docs/json.md does not explain `{key}`");
    }
    keys
}
