//! Jobs as Slurm reports them, as far as relevant for allocations.

use windlass_types::Timestamp;
use windlass_types::slurm::SlurmJobState;

/// A job in the controller: `squeue`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqueueJob {
    pub job_id: u64,
    /// `None`: an unknown word; the job exists nevertheless.
    pub state: Option<SlurmJobState>,
    /// Reason for waiting, or state; `None` and `N/A` are empty.
    pub reason: Option<String>,
    pub submitted_at: Option<Timestamp>,
    /// For a pending job: when Slurm plans to start it.
    pub started_at: Option<Timestamp>,
    /// For a running job: its time limit; for an ended one: its end.
    pub ends_at: Option<Timestamp>,
    pub nodes: Option<String>,
    pub name: String,
    pub comment: String,
}

impl SqueueJob {
    pub fn has_tag(&self, tag: &str) -> bool {
        self.comment == tag || self.name == tag
    }

    /// Whether Slurm may still change it.
    pub fn is_alive(&self) -> bool {
        !self.state.is_some_and(SlurmJobState::is_terminal)
    }
}

/// A job in accounting: the last row of `sacct`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SacctJob {
    pub job_id: u64,
    pub state: Option<SlurmJobState>,
    /// As written by Slurm, including who canceled it.
    pub state_text: String,
    /// `code:signal`.
    pub exit_code: Option<String>,
    pub submitted_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub nodes: Option<String>,
    pub name: String,
    /// Only if the site stores comments in accounting.
    pub comment: String,
}

impl SacctJob {
    pub fn has_tag(&self, tag: &str) -> bool {
        self.comment == tag || self.name == tag
    }
}
