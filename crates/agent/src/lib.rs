//! A worker of a server: `windlass worker`.
//!
//! The agent speaks with the server ([`talk`]: exchanges over HTTP, two at a time at most, one that waits and one that
//! reports) and drives a `__worker` process on this machine ([`crew`]), which knows nothing of servers. In between it
//! keeps the lease ([`lease`]), the results that could not be delivered ([`journal`]), and what is needed to clear up
//! after itself should it die ([`home`]).
//!
//! One thread decides ([`agent`]); what it hears from the server, the worker, the actions and the signals comes to it as
//! [`event::Event`]s.

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

/// Names, in the environment of jobs, the directory whose [`windlass_client::Keyring`] says where their server is and by what it is
/// known. Their token is in [`JOB_TOKEN`].
pub const KEYRING_VARIABLE: &str = "WINDLASS_KEYRING";
/// Holds, in the environment of a job, the token that is for its workflow alone and ends with the attempt.
pub const JOB_TOKEN_VARIABLE: &str = windlass_types::worker_messages::JOB_TOKEN_VARIABLE;

#[derive(Debug, thiserror::Error)]
pub enum RemoteWorkerError {
    /// At the start, where a wrong address or token is more likely than a server that will be back.
    #[error(transparent)]
    Server(#[from] windlass_client::ClientError),
    #[error("the server has not been reached for {} s; results that it did not get are kept in {}", after.as_secs(), kept.display())]
    ServerUnreachable { after: std::time::Duration, kept: PathBuf },
    #[error("cannot use {}: {source}", path.display())]
    StateDirectory { path: PathBuf, source: io::Error },
    #[error("cannot start the process that runs jobs: {0}")]
    StartWorkerProcess(#[source] io::Error),
    #[error("what an earlier worker on this machine left cannot be cleared away: {0}")]
    EnsureDead(#[from] windlass_process::ensure_dead::EnsureDeadError),
    #[error("the process that runs jobs died {0} times in a row without finishing one")]
    WorkerKeepsDying(u32),
}
