//! The shell that runs users' text: commands of jobs and actions, recovery scripts and hooks. It is bash, as in
//! Torc; `/bin/sh` on a machine without bash.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use windlass_types::shell::{is_builtin, split_plain_words};

/// Runs the scripts of this crate, and users' commands where bash is missing.
pub(crate) const SH_PATH: &CStr = c"/bin/sh";

/// Printed once when workers start on a machine where [`has_bash`] is false.
pub const NO_BASH_WARNING: &str =
    "bash is not installed on this machine: commands run under /bin/sh, and those that need bash fail";

static BASH_PATH: LazyLock<Option<CString>> = LazyLock::new(|| {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).filter(|place| place.is_absolute()).chain(usual);
    let found = places.find_map(|place| Some(place.join("bash")).filter(|file| is_program(file)))?;
    CString::new(found.into_os_string().as_bytes()).ok()
});

pub fn has_bash() -> bool {
    BASH_PATH.is_some()
}

/// The path of the shell.
pub(crate) fn shell_path() -> &'static CStr {
    BASH_PATH.as_deref().unwrap_or(SH_PATH)
}

/// The shell's name, as its `$0` and in its messages.
pub(crate) fn shell_name() -> &'static CStr {
    if has_bash() { c"bash" } else { c"sh" }
}

/// The command that runs `text` of a user.
pub fn shell_command(text: &str) -> Command {
    let mut command = Command::new(OsStr::from_bytes(shell_path().to_bytes()));
    command.args(["-c", text]);
    command
}

/// Whether the kernel can execute this file: a program, or a script that names its interpreter. `false` also
/// for an unreadable file or a path relative to the directory.
pub(crate) fn is_executable_format(file: &CStr) -> bool {
    let path = Path::new(OsStr::from_bytes(file.to_bytes()));
    if !path.is_absolute() {
        return false;
    }
    let mut start = [0; 4];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok();
    is_read && (start == *b"\x7fELF" || start.starts_with(b"#!"))
}

fn is_program(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// How a command is started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandStart {
    /// With bash and the text of the user.
    Shell,
    /// `true` and `false`, which are builtins of every shell: `/bin/sh` starts faster than bash.
    Sh,
    /// As a program with plain words as arguments, without a shell.
    Program { path: CString, words: Vec<CString> },
}

/// Finds the cheapest way with the same result as bash. `variable` reads the environment of the job;
/// `has_bash_settings` says that the environment changes the behavior of bash, for example by `BASH_ENV` or
/// exported functions.
pub(crate) fn plan_command_start<'a>(
    command: &str,
    has_bash_settings: bool,
    variable: impl Fn(&str) -> Option<&'a [u8]>,
) -> CommandStart {
    if has_bash_settings || command.len() > MAX_PLAIN_LENGTH {
        return CommandStart::Shell;
    }
    let Some(words) = split_plain_words(command) else { return CommandStart::Shell };
    if let [word] = words.as_slice()
        && (word == "true" || word == "false")
    {
        return CommandStart::Sh;
    }
    if is_builtin(&words[0]) {
        return CommandStart::Shell;
    }
    let found = find_program(&words[0], variable("PATH"));
    let words: Option<Vec<CString>> = words.into_iter().map(|word| CString::new(word).ok()).collect();
    match (found, words) {
        (Some(path), Some(words)) => CommandStart::Program { path, words },
        _ => CommandStart::Shell,
    }
}

/// Longer commands always use bash, whose start time matters little then.
const MAX_PLAIN_LENGTH: usize = 4096;

/// The path at which bash would find the program. `None` where it might find another one, or none.
fn find_program(word: &str, path: Option<&[u8]>) -> Option<CString> {
    if word.contains('/') {
        // Relative to the working directory of the job.
        return CString::new(word).ok();
    }
    for place in path?.split(|byte| *byte == b':') {
        let place = Path::new(OsStr::from_bytes(place));
        if !place.is_absolute() {
            return None;
        }
        let file = place.join(word);
        if is_program(&file) {
            return CString::new(file.into_os_string().as_bytes()).ok();
        }
    }
    None
}

/// Whether a variable of this name changes how bash runs a command of plain words.
pub(crate) fn is_bash_setting(name: &[u8]) -> bool {
    name.starts_with(b"BASH") || name == b"SHELLOPTS" || name == b"POSIXLY_CORRECT"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_is_skipped_only_where_the_result_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = format!("/nowhere:{}:/usr/bin:/bin", directory.path().display());
        let chosen = |command: &str, has_settings: bool, path: Option<&str>| match plan_command_start(
            command,
            has_settings,
            |_| path.map(str::as_bytes),
        ) {
            CommandStart::Shell => "bash".to_owned(),
            CommandStart::Sh => "sh".to_owned(),
            CommandStart::Program { path, words } => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                format!("{} {}", path.to_string_lossy(), words.join("|"))
            }
        };
        let with_path = |command: &str| chosen(command, false, Some(&path));
        for (command, expected) in [
            ("true", "sh"),
            ("true --help", "bash"),
            ("/bin/sleep 1", "/bin/sleep /bin/sleep|1"),
            ("echo a", "bash"),
            ("[[ a == a ]]", "bash"),
            ("time", "bash"),
            ("A=1 env", "bash"),
            ("./run.sh", "./run.sh ./run.sh"),
            ("no-such-program-here", "bash"),
            ("ls; ls", "bash"),
        ] {
            assert_eq!(with_path(command), expected, "{command}");
        }
        assert!(with_path("sh -c 'a; b'").ends_with("/sh sh|-c|a; b"));
        assert_eq!(chosen("sleep 1", true, Some(&path)), "bash", "a function may be called `sleep`");
        assert_eq!(chosen("sleep 1", false, None), "bash");
        assert_eq!(chosen("sleep 1", false, Some("relative:/usr/bin:/bin")), "bash");
    }
}
