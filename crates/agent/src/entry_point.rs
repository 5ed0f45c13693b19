//! The entry point of processes that are only a remote worker (`URL STATE_DIR`) or its worker process
//! (`__worker`).

use std::path::PathBuf;
use std::process::ExitCode;
use windlass_agent::{RemoteWorker, RemoteWorkerObserver, RemoteWorkerOptions, RemoteWorkerProgress};
use windlass_client::{Client, ClientOptions};
use windlass_types::{Bytes, Capacity};

struct StderrObserver;

#[expect(clippy::print_stderr, reason = "the process can report errors only on its terminal")]
impl RemoteWorkerObserver for StderrObserver {
    fn on_notice(&mut self, text: &str) {
        eprintln!("{text}");
    }

    fn on_progress(&mut self, _progress: &RemoteWorkerProgress) {}
}

type AnyError = Box<dyn std::error::Error>;

fn run_remote_worker(url: String, state_dir: PathBuf) -> Result<(), AnyError> {
    let client = Client::new(ClientOptions { url, ..ClientOptions::default() })?;
    let capacity = Capacity { cpus: 2, memory: Bytes(1 << 34), gpus: 0, nodes: 1, max_jobs: None };
    RemoteWorker::new(RemoteWorkerOptions::new(client, capacity, state_dir))?.run(&mut StderrObserver)?;
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the process can report errors only on its terminal")]
fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let end = match (words.next(), words.next()) {
        (Some(url), Some(state_dir)) => run_remote_worker(url, PathBuf::from(state_dir)),
        _ => windlass_worker::serve_on_stdin().map_err(AnyError::from),
    };
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
