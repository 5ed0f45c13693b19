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
mod agent;
mod backoff;
mod callers;
mod crew;
pub mod environment;
mod event;
mod home;
mod journal;
mod lease;
mod leaving;
mod leftovers;
mod observe;
mod options;
mod sites;
mod talk;
mod watch;

pub use actions::Actions;
pub use agent::{Agent, Control};
pub use home::{Undelivered, default_state_dir, undelivered};
pub use leaving::{End, Outcome};
pub use leftovers::{Ended, end_all};
pub use observe::{Observer, Progress, Silent};
pub use options::{AgentOptions, FindAgain, Launcher, Until};

use std::io;
use std::path::PathBuf;

/// Names, in the environment of jobs, the directory whose [`windlass_client::Keyring`] says where their server is and by what it is
/// known. Their token is in [`JOB_TOKEN`].
pub const KEYRING: &str = "WINDLASS_KEYRING";
/// Holds, in the environment of a job, the token that is for its workflow alone and ends with the attempt.
pub const JOB_TOKEN: &str = windlass_types::work::JOB_TOKEN;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// At the start, where a wrong address or token is more likely than a server that will be back.
    #[error(transparent)]
    Server(#[from] windlass_client::Error),
    #[error("the server has not been reached for {} s; results that it did not get are kept in {}", after.as_secs(), kept.display())]
    GaveUp { after: std::time::Duration, kept: PathBuf },
    #[error("cannot use {}: {source}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("cannot start the process that runs jobs: {0}")]
    Start(#[source] io::Error),
    #[error("what an earlier worker on this machine left cannot be cleared away: {0}")]
    Bury(#[from] windlass_proc::bury::Error),
    #[error("the process that runs jobs died {0} times in a row without finishing one")]
    WorkerKeepsDying(u32),
}
