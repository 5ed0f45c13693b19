//! The session that a worker and its jobs have to themselves.
//!
//! Without a terminal: a job that asks one for a password fails at once, where it would else be stopped for ever for not
//! being in the foreground, and no Ctrl-C reaches it that the engine has not judged. And nobody else is in it, so that
//! after the worker's death whoever is can be ended without asking further.

#![expect(unsafe_code, reason = "what runs between fork and exec cannot be checked by the compiler")]

use rustix::process::{getpid, setsid};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The command will lead a session of its own from its first instruction on. It must not be asked to lead a process
/// group as well: who leads a group cannot leave its session.
pub fn start_in_own_session(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe, and nothing here allocates or locks.
    unsafe { command.pre_exec(become_session_leader) };
}

/// This process leads a session of its own from now on, if it does not already.
pub fn become_session_leader() -> io::Result<()> {
    if current_session() != getpid().as_raw_nonzero().get() {
        setsid()?;
    }
    Ok(())
}

/// The session that this process is in, 0 if its leader is not visible from here: in a container the session is often led
/// by somebody outside. (rustix holds that 0 cannot happen.)
pub fn current_session() -> i32 {
    // SAFETY: getsid takes a number and returns one; of the calling process it cannot fail.
    unsafe { libc::getsid(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_identity;
    use crate::procfs;

    #[test]
    fn a_command_can_be_given_a_session_of_its_own() {
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
