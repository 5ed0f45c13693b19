//! The worker has a session of its own, and no terminal.

use crate::support::{Fixture, HOST, job};
use std::process::Command;
use windlass_process::process_identity::to_pid;
use windlass_process::procfs;
use windlass_types::worker_messages::{AttemptEndCause, ProcessExit};

#[test]
fn only_jobs_are_in_the_session_of_their_worker() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.run(job(1, "cut -d' ' -f6 /proc/$$/stat")).exit, ProcessExit::Code(0));
    assert_eq!(fixture.log(1, "o"), Some(format!("{}\n", fixture.child.id())));
    let own = procfs::read_stat(to_pid(std::process::id()).unwrap()).unwrap();
    assert_ne!(own.session.cast_unsigned(), fixture.child.id());
    fixture.quit();
}

/// Started as from a shell: within the session of a terminal, with the link as standard input.
fn in_a_terminal() -> Command {
    const TERMINAL: &str = "\
import os, pty, sys
link = os.dup(0)
child, terminal = pty.fork()
if child == 0:
    os.dup2(link, 0)
    worker = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
os.close(link)
os.close(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL, HOST]);
    command
}

#[test]
fn a_job_that_reads_the_terminal_fails_at_once() {
    let mut fixture = Fixture::launched_by(in_a_terminal(), |_| {});
    let ended = fixture.run(job(1, "read answer < /dev/tty"));
    assert_ne!(ended.exit, ProcessExit::Code(0));
    assert_eq!(ended.cause, AttemptEndCause::Itself);
    assert!(fixture.log(1, "e").unwrap().contains("/dev/tty"));
    fixture.quit();
}
