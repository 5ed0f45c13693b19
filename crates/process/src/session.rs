//! The session of a worker and its jobs.
//!
//! It has no terminal: a job that prompts for a password fails at once instead of being stopped for ever in the
//! background, and Ctrl-C reaches no job without a decision of the engine. It contains no other processes, so
//! that after the worker's death all processes in it can be ended.

#![expect(unsafe_code, reason = "the compiler cannot check the code between fork and exec")]

use rustix::process::{getpid, setsid};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Makes the command lead a new session from its first instruction on. The command must not set a process group
/// as well: the leader of a group cannot leave its session.
pub fn start_in_own_session(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe, and nothing here allocates or locks.
    unsafe { command.pre_exec(become_session_leader) };
}

/// Makes this process lead a session of its own, unless it already does.
pub fn become_session_leader() -> io::Result<()> {
    if current_session() != getpid().as_raw_nonzero().get() {
        setsid()?;
    }
    Ok(())
}

/// The session of this process, 0 if its leader is not visible from here: in a container the leader is often
/// outside. (rustix assumes that 0 cannot happen.)
pub fn current_session() -> i32 {
    // SAFETY: getsid takes a number and returns one; it cannot fail for the calling process.
    unsafe { libc::getsid(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_identity;
    use crate::procfs;

    #[test]
    fn command_runs_in_its_own_session() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        start_in_own_session(&mut command);
        let mut child = command.spawn().unwrap();
        let stat = procfs::read_stat(process_identity::to_pid(child.id()).unwrap()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!([stat.session, stat.group].map(i32::cast_unsigned), [child.id(); 2]);
    }
}
