//! What Slurm says about its jobs, as far as it matters to allocations.

use windlass_types::Timestamp;
use windlass_types::slurm::SlurmJobState;

/// A job as the controller shows it: `squeue`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueJob {
    pub job_id: u64,
    /// `None`: a word that we do not know. That it is there is known all the same.
    pub state: Option<SlurmJobState>,
    /// Why it waits or how it fares; `None` and `N/A` are nothing.
    pub reason: Option<String>,
    pub submitted_at: Option<Timestamp>,
    /// Of one that waits: when Slurm means to start it.
    pub started_at: Option<Timestamp>,
    /// Of one that runs: when it will be ended; of one that is over: when it was.
    pub ends_at: Option<Timestamp>,
    pub nodes: Option<String>,
    pub name: String,
    pub comment: String,
}

impl QueueJob {
    pub fn has_tag(&self, tag: &str) -> bool {
        self.comment == tag || self.name == tag
    }

    /// Slurm may still do something with it.
    pub fn is_alive(&self) -> bool {
        !self.state.is_some_and(SlurmJobState::is_terminal)
    }
}

/// A job as accounting has it: `sacct`, its last row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountedJob {
    pub job_id: u64,
    pub state: Option<SlurmJobState>,
    /// As it is written, with who canceled it.
    pub state_text: String,
    /// `code:signal`.
    pub exit_code: Option<String>,
    pub submitted_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub nodes: Option<String>,
    pub name: String,
    /// Kept only where a site has said so.
    pub comment: String,
}

impl AccountedJob {
    pub fn has_tag(&self, tag: &str) -> bool {
        self.comment == tag || self.name == tag
    }
}
