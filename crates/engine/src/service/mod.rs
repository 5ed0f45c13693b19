//! The dispatcher of many workflows and many workers elsewhere: what `windlass serve` runs.
//!
//! One thread owns everything. Calls reach it over a channel with a closure for the answer, and an answer is given only
//! after what it rests on is on disk. The engine knows no network: a server turns HTTP into these calls.

mod clock;
mod talk;

pub use clock::{Hand, ServiceClock};
pub use talk::{
    Bury, ClaimRequest, Completion, Figures, NodeOffer, Quiet, Refused, Reply, ResetWhich, ServiceOptions,
};

use crate::Error;
use std::sync::Arc;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::{ActionRow, SpawnRequest, Spawned, WorkflowRow};
use windlass_types::fleet::{Exchange, ExchangeAnswer, Introduction, Welcome};
use windlass_types::{JobId, JobStatus, RunId, WorkerId, WorkflowId};

/// Whose jobs a worker takes.
pub type May = Arc<dyn Fn(&WorkflowRow) -> bool + Send + Sync>;
/// Something that is done to the books while the service keeps away from the workflow.
pub type Work<T> = Box<dyn FnOnce(&dyn Store) -> Result<T, windlass_store::Error> + Send>;

/// The handle of the service; cheap to clone. When the last one is dropped the service ends, after everything is
/// committed.
#[derive(Clone)]
pub struct Service {
    _store: Arc<dyn Store>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

fn not_yet<T>(reply: Reply<T>) {
    let detail = "the service is being set up".to_owned();
    reply(Err(Refused::Unavailable { detail, retry_after: Duration::from_secs(1) }));
}

impl Service {
    pub fn start(store: Arc<dyn Store>, options: ServiceOptions) -> Result<Self, Error> {
        drop(options);
        Ok(Self { _store: store })
    }

    /// Answers all waits, commits everything and refuses new calls. Returns when that is done.
    pub fn stop(&self) {}

    /// Has a service with a clock that is moved by hand look what time it is. Returns when it has.
    pub fn look_around(&self) {}

    pub fn introduce(&self, who: Introduction, user: Arc<str>, may: May, reply: Reply<Welcome>) {
        drop((who, user, may));
        not_yet(reply);
    }

    pub fn exchange(&self, exchange: Exchange, reply: Reply<ExchangeAnswer>) {
        drop(exchange);
        not_yet(reply);
    }

    /// The caller of this exchange is gone: whatever would be its answer is kept for when it comes again.
    pub fn hang_up(&self, _worker: WorkerId, _number: u64) {}

    /// The worker is to take nothing more, finish what it has, and leave.
    pub fn drain(&self, _worker: WorkerId, reply: Reply<()>) {
        not_yet(reply);
    }

    /// The worker is certainly dead: what it held runs again at once.
    pub fn retire(&self, _worker: WorkerId, _by: &str, reply: Reply<()>) {
        not_yet(reply);
    }

    /// Initialises the workflow and lets workers have it.
    pub fn start_workflow(&self, _id: WorkflowId, _by: &str, reply: Reply<RunId>) {
        not_yet(reply);
    }

    pub fn initialize(
        &self,
        _id: WorkflowId,
        _only_uninitialized: bool,
        _clear_ephemeral: bool,
        _by: &str,
        reply: Reply<()>,
    ) {
        not_yet(reply);
    }

    pub fn cancel(&self, _id: WorkflowId, _by: &str, reply: Reply<()>) {
        not_yet(reply);
    }

    pub fn reset_status(&self, _id: WorkflowId, _force: bool, _by: &str, reply: Reply<RunId>) {
        not_yet(reply);
    }

    pub fn reset_jobs(&self, _id: WorkflowId, _which: ResetWhich, _by: &str, reply: Reply<u64>) {
        not_yet(reply);
    }

    /// Does `work` on a thread of its own while nothing else touches the workflow; afterwards its rows are read anew.
    pub fn exclusive<T: Send + 'static>(
        &self,
        _id: WorkflowId,
        _needs: Quiet,
        work: Work<T>,
        reply: Reply<T>,
    ) {
        drop(work);
        not_yet(reply);
    }

    /// Committed as pending when the answer comes.
    pub fn claim(&self, _id: WorkflowId, request: ClaimRequest, reply: Reply<Vec<JobId>>) {
        drop(request);
        not_yet(reply);
    }

    pub fn start_job(&self, _job: JobId, _run: RunId, _node: WorkerId, reply: Reply<()>) {
        not_yet(reply);
    }

    pub fn complete(
        &self,
        _id: WorkflowId,
        completions: Vec<Completion>,
        reply: Reply<Vec<(JobId, Result<(), Refused>)>>,
    ) {
        drop(completions);
        not_yet(reply);
    }

    pub fn retry_job(&self, _job: JobId, _run: RunId, _max_retries: u32, _by: &str, reply: Reply<()>) {
        not_yet(reply);
    }

    pub fn change_status(&self, _job: JobId, _to: JobStatus, _run: RunId, _by: &str, reply: Reply<()>) {
        not_yet(reply);
    }

    pub fn spawn(&self, request: SpawnRequest, reply: Reply<Spawned>) {
        drop(request);
        not_yet(reply);
    }

    pub fn pending_actions(&self, _id: WorkflowId, reply: Reply<Vec<ActionRow>>) {
        not_yet(reply);
    }

    pub fn claim_action(&self, _id: WorkflowId, _action: i64, _node: Option<WorkerId>, reply: Reply<bool>) {
        not_yet(reply);
    }

    pub fn retry_action(&self, _id: WorkflowId, _action: i64, _by: &str, reply: Reply<()>) {
        not_yet(reply);
    }

    /// For monitoring.
    pub fn figures(&self) -> Figures {
        Figures::default()
    }
}
