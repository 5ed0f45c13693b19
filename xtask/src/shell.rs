//! Helpers for running other programs.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the checkout, independent of the current directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one level below the root").to_path_buf()
}

/// `cargo`, the same one that started this task, in the root of the checkout.
pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // What cargo set for this task. Build scripts would see it and run again after each change between
    // `cargo build` and `cargo xtask`, and everything that depends on them with them.
    let of_xtask = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_PRIMARY_PACKAGE", "CARGO_BIN_NAME"];
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| of_xtask.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command
}

/// Prints the command, runs it on this terminal, and returns an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = describe(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs a command and returns its stdout; an error contains its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = describe(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed something that is not UTF-8"))
}

/// Whether the command runs and succeeds. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Finds a program on PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|file| is_executable(file))
}

pub(crate) fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether this process may install system packages without a prompt.
pub(crate) fn can_apt_install() -> bool {
    find_program("apt-get").is_some() && output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Installs Debian packages. The package lists are refreshed only if the first try fails.
pub(crate) fn apt_install(packages: &[&str]) -> Result<()> {
    let install = || {
        let mut command = Command::new("apt-get");
        command.args(["install", "--yes", "--no-install-recommends"]).args(packages);
        command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        command
    };
    if run(&mut install()).is_ok() {
        return Ok(());
    }
    run(Command::new("apt-get").arg("update"))?;
    run(&mut install())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_description_uses_program_name_without_path() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["build", "--release"]);
        assert_eq!(describe(&command), "cargo build --release");
    }

    #[test]
    fn programs_are_found_only_on_path() {
        assert!(find_program("sh").is_some());
        assert!(find_program("a-program-that-does-not-exist").is_none());
    }

    #[test]
    fn failing_program_error_quotes_stderr() {
        let error =
            output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("broken") && error.contains("exit status: 3"), "{error}");
    }
}
