//! A mark on the processes of an AI agent that they cannot remove.
//!
//! An agent runs as the user who started it, so the kernel must keep its mark: environment variables are
//! dropped by `env -u`, and a process group is left with `setsid`. Hard resource limits are inherited by every
//! child, across `exec`, `setsid` and double forks, and can only be lowered without privileges. `RLIMIT_LOCKS`
//! has had no effect since Linux 2.4.25, is unlimited everywhere, and so is free to carry the mark: a hard
//! limit of `MARKED_LIMIT` or less.

#![expect(unsafe_code, reason = "the compiler cannot check the code between fork and exec")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// No other software sets such a low limit.
const MARKED_LIMIT: u64 = 7;

/// Marks the command and all processes that it starts.
pub fn mark_command(command: &mut Command) {
    // SAFETY: prctl and prlimit are async-signal-safe, and nothing in there allocates or locks.
    unsafe { command.pre_exec(mark_this_process) };
}

/// Whether this process was started by an agent.
pub fn is_agent_descendant() -> bool {
    getrlimit(Resource::Locks).maximum.is_some_and(|limit| limit <= MARKED_LIMIT)
}

fn mark_this_process() -> io::Result<()> {
    setrlimit(Resource::Locks, Rlimit { current: Some(MARKED_LIMIT), maximum: Some(MARKED_LIMIT) })?;
    // Prevents setuid programs such as sudo from raising the limit again. Root loses that capability with the
    // next exec; other users have no bounding set to change.
    set_no_new_privs(true)?;
    remove_capability_from_bounding_set(CapabilitySet::SYS_RESOURCE).unwrap_or_default();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints the hard limit.
    fn limit_after(text: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        mark_command(&mut command);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    const SHOW: &str = "awk '/Max file locks/ { print $5 }' /proc/self/limits";

    #[test]
    fn test_process_is_no_agent_descendant() {
        assert!(!is_agent_descendant());
    }

    #[test]
    fn the_mark_survives_env_sessions_and_double_forks() {
        assert_eq!(limit_after(SHOW), "7");
        assert_eq!(limit_after(&format!("env -i setsid -w sh -c \"$(cat <<'X'\n{SHOW}\nX\n)\"")), "7");
        let away = format!("(setsid sh -c \"$(cat <<'X'\n{SHOW}\nX\n)\" &)");
        assert_eq!(limit_after(&away), "7");
    }

    #[test]
    fn the_mark_cannot_be_removed_even_by_root() {
        let raise = "prlimit --pid $$ --locks=unlimited 2>/dev/null; unshare -r prlimit --locks=unlimited true 2>/dev/null; ";
        assert_eq!(limit_after(&format!("{raise}{SHOW}")), "7");
        assert_eq!(
            limit_after(&format!("prlimit --pid $$ --locks=3 2>/dev/null; {SHOW}")),
            "3",
            "a lower limit is a mark too"
        );
    }
}
