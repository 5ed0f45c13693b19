//! The real binary in a directory of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A temporary directory in which `windlass` is run; gone when dropped.
pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
}

/// What a command said, and how it ended.
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

    /// The binary, to be started here, with nothing of the caller's settings.
    pub(crate) fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("WINDLASS_DB")
            .env_remove("NO_COLOR")
            .env("USER", "tester")
            .stdin(Stdio::null());
        command
    }

    /// Runs `windlass` here and waits for it.
    pub(crate) fn windlass(&self, args: &[impl AsRef<OsStr>]) -> Output {
        Output::of(&mut self.command(args))
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

    /// Exactly this exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "stderr does not say `{text}`:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "stdout does not have `{text}`:\n{}", self.stdout);
        self
    }
}
