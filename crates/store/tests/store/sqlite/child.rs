//! Tests that need another process run themselves again: the same test, with the role of the child in its
//! environment.

use std::path::{Path, PathBuf};
use std::process::Command;

const PART: &str = "WINDLASS_TEST_CHILD";

/// In the child: the path passed to it.
pub(crate) fn part() -> Option<PathBuf> {
    std::env::var_os(PART).map(PathBuf::from)
}

/// The command that runs this test binary as a child of `test` with `path`.
pub(crate) fn command(test: &str, path: &Path) -> Command {
    command_of(&std::env::current_exe().unwrap(), test, path)
}

pub(crate) fn command_of(program: &Path, test: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(PART, path);
    command
}
