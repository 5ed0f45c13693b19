//! Tests that need another process run themselves again: the same test, with the part that the child plays in its
//! environment.

use std::path::{Path, PathBuf};
use std::process::Command;

const PART: &str = "WINDLASS_TEST_CHILD";

/// In the child: the path it was given.
pub(crate) fn part() -> Option<PathBuf> {
    std::env::var_os(PART).map(PathBuf::from)
}

/// This test binary, to run only `test` and play its child's part with `path`.
pub(crate) fn command(test: &str, path: &Path) -> Command {
    command_of(&std::env::current_exe().unwrap(), test, path)
}

pub(crate) fn command_of(program: &Path, test: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(PART, path);
    command
}
