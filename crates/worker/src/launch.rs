//! Both sides of starting a worker: how the engine starts the process, and how the new process becomes a
//! worker.
//!
//! The link is the new process's standard input, which needs no agreement on descriptor numbers and no code
//! between fork and exec. Its first line is the [`WorkerOptions`]; a command line would show the token to all
//! users of the machine.

use crate::WorkerOptions;
use crate::worker_process::{WorkerError, run_worker_buffered};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use windlass_process::process_tree::marker_variable;
use windlass_process::session;

/// A worker process and the engine's end of its link.
#[derive(Debug)]
pub struct LaunchedWorker {
    pub child: Child,
    pub link: UnixStream,
}

/// Starts `command`, which must call [`serve_on_stdin`], as the leader of a new session. `command` must not set
/// a process group.
pub fn launch_worker(mut command: Command, options: &WorkerOptions) -> io::Result<LaunchedWorker> {
    let (mut link, theirs) = UnixStream::pair()?;
    // A new session from the start: Ctrl-C at the terminal goes only to the engine, which then decides what
    // happens to the jobs.
    session::start_in_own_session(&mut command);
    let child = command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        // Between fork and exec a job has the worker's environment, and must be found there too.
        .env(marker_variable::WORKER, &options.token)
        .spawn()?;
    // `command` still holds the worker's end: unless dropped, the worker's death would not close the stream.
    drop(command);
    let mut line = serde_json::to_vec(options)?;
    line.push(b'\n');
    link.write_all(&line)?;
    Ok(LaunchedWorker { child, link })
}

/// Turns this process into a worker for the engine at the other end of standard input. Returns when the engine
/// shuts it down.
pub fn serve_on_stdin() -> Result<(), WorkerError> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(WorkerError::Link)?);
    let mut reader = BufReader::new(link);
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).map_err(WorkerError::Link)?;
    let options: WorkerOptions = serde_json::from_slice(&line).map_err(WorkerError::Message)?;
    run_worker_buffered(options, reader)
}
