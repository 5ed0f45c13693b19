//! The remote worker: `windlass worker`.
//!
//! It exchanges messages with the server over HTTP ([`exchange_client`]: at most two at a time, a long poll and
//! one with reports) and drives a `__worker` process on this machine ([`worker_process`]), which knows nothing
//! of servers. It keeps the lease ([`lease`]), the undelivered results ([`result_journal`]), and the records
//! for cleaning up after its own death ([`state_directory`]).
//!
//! One thread decides ([`remote_worker`]); events from the server, the worker process, actions and signals
//! reach it as [`event::RemoteWorkerEvent`]s.

mod actions;
mod backoff;
mod deadlines;
pub mod environment;
mod event;
mod exchange_client;
mod known_workflows;
mod lease;
mod observer;
mod options;
mod remote_worker;
mod result_journal;
mod server_callers;
mod shutdown;
mod state_directory;
mod undelivered_results;
mod worker_process;

pub use actions::ActionRunner;
pub use observer::{RemoteWorkerObserver, RemoteWorkerProgress, SilentObserver};
pub use options::{FindServer, LauncherSelector, RemoteWorkerOptions, WorkerDeadline};
pub use remote_worker::{RemoteWorker, RemoteWorkerControl};
pub use shutdown::{LeaveReason, RemoteWorkerSummary};
pub use state_directory::{UndeliveredSummary, default_state_dir, list_undelivered};
pub use undelivered_results::{EndedWorker, end_all_workers};

use std::io;
use std::path::PathBuf;

/// Names, in the environment of jobs, the directory of the [`windlass_client::Keyring`] with the server's
/// address and certificate. The jobs' token is in [`JOB_TOKEN_VARIABLE`].
pub const KEYRING_VARIABLE: &str = "WINDLASS_KEYRING";
/// Holds, in the environment of a job, a token that is valid for its workflow and until the attempt ends.
pub const JOB_TOKEN_VARIABLE: &str = windlass_types::worker_messages::JOB_TOKEN_VARIABLE;

#[derive(Debug, thiserror::Error)]
pub enum RemoteWorkerError {
    /// Only at the start, where a wrong address or token is more likely than a temporary failure.
    #[error(transparent)]
    Server(#[from] windlass_client::ClientError),
    #[error("no contact to the server for {} s; undelivered results are kept in {}", after.as_secs(), kept.display())]
    ServerUnreachable { after: std::time::Duration, kept: PathBuf },
    #[error("cannot use {}: {source}", path.display())]
    StateDirectory { path: PathBuf, source: io::Error },
    #[error("cannot start the worker process: {0}")]
    StartWorkerProcess(#[source] io::Error),
    #[error("cannot clean up after an earlier worker on this machine: {0}")]
    EnsureDead(#[from] windlass_process::ensure_dead::EnsureDeadError),
    #[error("the worker process died {0} times in a row without completing a job")]
    WorkerKeepsDying(u32),
}
