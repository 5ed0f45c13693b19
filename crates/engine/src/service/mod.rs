//! The dispatcher of many workflows and many workers elsewhere: what `windlass serve` runs.
//!
//! One thread owns everything. Calls reach it over a channel with a closure for the answer, and an answer is given only
//! after what it rests on is on disk. The engine knows no network: a server turns HTTP into these calls.

mod actions;
mod call;
mod claims;
mod clock;
mod closed;
mod commits;
mod crews;
mod desk;
mod exchange;
mod exchanges;
mod failures;
mod figures;
mod losses;
mod mate;
mod nodes;
mod office;
mod panics;
mod pauses;
mod quarters;
mod roster;
mod shut;
mod stale;
mod talk;
mod verbs;
mod workflows;

pub use clock::{Hand, ServiceClock};
pub use quarters::FENCING;
pub use roster::Present;
pub use talk::{
    Bury, ClaimRequest, Completion, Figures, IsCertain, NodeOffer, OnChange, OnCommit, OnSilent, Outline,
    Quiet, ReadyJobs, Refused, Reply, ResetWhich, ServiceOptions, Silent, Speaker, Sponsor,
};

use crate::Error;
use call::{Call, Event};
use figures::Gauges;
use office::Office;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use windlass_store::Store;
use windlass_store::model::{ActionRow, NodeAside, SpawnRequest, Spawned, WorkflowRow};
use windlass_types::fleet::{Exchange, ExchangeAnswer, Introduction, Welcome};
use windlass_types::worker_bounds::OutOfBounds;
use windlass_types::{AllocationId, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

/// Whose jobs a worker takes.
pub type May = Arc<dyn Fn(&WorkflowRow) -> bool + Send + Sync>;
/// Something that is done to the books while the service keeps away from the workflow.
pub type Work<T> = Box<dyn FnOnce(&dyn Store) -> Result<T, windlass_store::Error> + Send>;

/// The handle of the service; cheap to clone. When the last one is dropped the service ends, after everything is
/// committed.
#[derive(Clone, Debug)]
pub struct Service(Arc<Handle>);

struct Handle {
    post: Sender<Event>,
    gauges: Arc<Gauges>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("figures", &self.gauges.read()).finish_non_exhaustive()
    }
}

impl Service {
    /// Takes up what the books know to be under way. The caller holds the lock of the server.
    pub fn start(store: Arc<dyn Store>, options: ServiceOptions) -> Result<Self, Error> {
        let (post, inbox) = mpsc::channel();
        let gauges = Arc::new(Gauges::default());
        let mut office = Office::new(store, options, post.clone(), Arc::clone(&gauges));
        office.begin_with_rows()?;
        let thread = std::thread::Builder::new()
            .name("windlass-service".into())
            .spawn(move || office.run(&inbox))
            .map_err(Error::Wait)?;
        Ok(Self(Arc::new(Handle { post, gauges, thread: Mutex::new(Some(thread)) })))
    }

    /// Answers all waits, commits everything and refuses new calls. Returns when that is done.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Has the service look what time it is, and returns when all that follows is on disk. For a clock that is moved by
    /// hand.
    pub fn look_around(&self) {
        let (sender, receiver) = mpsc::sync_channel(1);
        if self.0.post.send(Event::LookAround(sender)).is_ok() {
            // An error means that the service has ended: nothing more follows.
            receiver.recv().unwrap_or_default();
        }
    }

    /// Whether its thread is there. Without it every call is refused for good.
    pub fn is_alive(&self) -> bool {
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn call(&self, call: Call) {
        if let Err(mpsc::SendError(Event::Call(call))) = self.0.post.send(Event::Call(call)) {
            call.refuse(office::unavailable("the server is going down"));
        }
    }

    /// A worker introduces itself, or comes back.
    pub fn introduce(&self, who: Introduction, sponsor: Sponsor, reply: Reply<Welcome>) {
        if let Err(error) = who.check() {
            let code = if error.field == "site" { "bad_site" } else { "bad_introduction" };
            return reply(Err(invalid(code, "the introduction of a worker", &error)));
        }
        self.call(Call::Introduce { who: Box::new(who), sponsor, reply });
    }

    /// Somebody may do less than before, or more: workers that are for one workflow only, which may not be theirs to
    /// work for any more, have to introduce themselves again.
    pub fn access_changed(&self) {
        self.call(Call::AccessChanged);
    }

    /// The books say that this allocation is over: if nobody in it can be alive, what ran there runs again.
    pub fn tell_allocation_over(&self, allocation: AllocationId) {
        self.call(Call::AllocationOver { allocation });
    }

    /// Of a worker that `on_silent` told of nothing runs in Slurm any more.
    pub fn tell_fenced(&self, worker: WorkerId) {
        self.call(Call::Fenced { worker });
    }

    /// Slurm will end this allocation at another time than it said before: those in it are told.
    pub fn tell_allocation_ends(&self, allocation: AllocationId, ends_at: Timestamp) {
        self.call(Call::AllocationEnds { allocation, ends_at });
    }

    /// Whoever speaks for a worker of somebody else is told that there is none.
    pub fn exchange(&self, exchange: Exchange, speaker: Speaker, reply: Reply<ExchangeAnswer>) {
        if exchange.reports.len().max(exchange.actions.len()) > Exchange::MOST_REPORTS {
            let detail = format!("an exchange has at most {} reports", Exchange::MOST_REPORTS);
            return reply(Err(Refused::Invalid { code: "too_many_reports", detail }));
        }
        match exchange.into_checked() {
            Ok(exchange) => self.call(Call::Exchange { exchange, speaker, reply }),
            Err(error) => reply(Err(invalid("bad_exchange", "the exchange of a worker", &error))),
        }
    }

    /// The caller of this exchange, who quoted this secret, is gone: whatever would be its answer is kept for when it
    /// comes again.
    pub fn hang_up(&self, worker: WorkerId, number: u64, secret: String) {
        self.call(Call::HangUp { worker, number, secret });
    }

    /// The worker is to take nothing more, finish what it has, and leave.
    pub fn drain(&self, worker: WorkerId, reply: Reply<()>) {
        self.call(Call::Drain { worker, reply });
    }

    /// The worker is certainly dead: what it held runs again at once.
    pub fn retire(&self, worker: WorkerId, by: &str, reply: Reply<()>) {
        self.call(Call::Retire { worker, by: by.to_owned(), reply });
    }

    /// The node gets no jobs until then. Who says so, and since when, is filled in.
    pub fn set_node_aside(&self, node: NodeAside, by: &str, reply: Reply<NodeAside>) {
        self.call(Call::SetNodeAside { node, by: by.to_owned(), reply });
    }

    /// The node is trusted again, whatever it did.
    pub fn release_node(&self, host: &str, by: &str, reply: Reply<()>) {
        self.call(Call::ReleaseNode { host: host.to_owned(), by: by.to_owned(), reply });
    }

    /// Those who are there now.
    pub fn roster(&self, reply: Reply<Vec<Present>>) {
        self.call(Call::Roster { reply });
    }

    /// Initialises the workflow and lets workers have it.
    pub fn start_workflow(&self, id: WorkflowId, by: &str, reply: Reply<RunId>) {
        self.call(Call::Start { workflow: id, by: by.to_owned(), reply });
    }

    pub fn initialize(
        &self,
        id: WorkflowId,
        only_uninitialized: bool,
        clear_ephemeral: bool,
        by: &str,
        reply: Reply<()>,
    ) {
        let by = by.to_owned();
        self.call(Call::Initialize { workflow: id, only_uninitialized, clear_ephemeral, by, reply });
    }

    pub fn cancel(&self, id: WorkflowId, by: &str, reply: Reply<()>) {
        self.call(Call::Cancel { workflow: id, by: by.to_owned(), reply });
    }

    /// Begins the next run. `force` is for what the books of allocations say; jobs that somebody holds are never left
    /// behind.
    pub fn reset_status(&self, id: WorkflowId, force: bool, by: &str, reply: Reply<RunId>) {
        self.call(Call::ResetStatus { workflow: id, force, by: by.to_owned(), reply });
    }

    /// Sends jobs back to the start; answers how many. [`Service::initialize`] then decides what is ready.
    pub fn reset_jobs(&self, id: WorkflowId, which: ResetWhich, by: &str, reply: Reply<u64>) {
        self.call(Call::ResetJobs { workflow: id, which, by: by.to_owned(), reply });
    }

    /// Does `work` on a thread of its own while nothing else touches the workflow; afterwards its rows are read anew. What
    /// touches no job needs no such care: call the store.
    pub fn exclusive<T: Send + 'static>(&self, id: WorkflowId, needs: Quiet, work: Work<T>, reply: Reply<T>) {
        let work: call::ExclusiveWork = Box::new(move |store| {
            let outcome = store.and_then(|store| work(store).map_err(|error| office::refused(&error)));
            Box::new(move || reply(outcome))
        });
        self.call(Call::Exclusive { workflow: id, needs, work });
    }

    /// Committed as pending when the answer comes.
    pub fn claim(&self, id: WorkflowId, request: ClaimRequest, reply: Reply<Vec<JobId>>) {
        if let Err(error) = request.check() {
            return reply(Err(invalid("bad_claim", "the claim", &error)));
        }
        self.call(Call::Claim { workflow: id, request, reply });
    }

    /// A claimed job runs on this compute node.
    pub fn start_job(&self, job: JobId, run: RunId, node: WorkerId, reply: Reply<()>) {
        self.call(Call::StartJob { job, run, node, reply });
    }

    pub fn complete(
        &self,
        id: WorkflowId,
        completions: Vec<Completion>,
        reply: Reply<Vec<(JobId, Result<(), Refused>)>>,
    ) {
        self.call(Call::Complete { workflow: id, completions, reply });
    }

    pub fn retry_job(&self, job: JobId, run: RunId, max_retries: u32, by: &str, reply: Reply<()>) {
        self.call(Call::Retry { job, run, max_retries, by: by.to_owned(), reply });
    }

    pub fn change_status(&self, job: JobId, to: JobStatus, run: RunId, by: &str, reply: Reply<()>) {
        self.call(Call::ChangeStatus { job, to, run, by: by.to_owned(), reply });
    }

    /// Jobs that a running job adds to its workflow.
    pub fn spawn(&self, request: SpawnRequest, reply: Reply<Spawned>) {
        self.call(Call::Spawn { request, reply });
    }

    /// Actions that a client may carry out now.
    pub fn pending_actions(&self, id: WorkflowId, reply: Reply<Vec<ActionRow>>) {
        self.call(Call::PendingActions { workflow: id, reply });
    }

    /// A client carries out an action itself; `false`: it is not to be had.
    pub fn claim_action(&self, id: WorkflowId, action: i64, node: Option<WorkerId>, reply: Reply<bool>) {
        self.call(Call::ClaimAction { workflow: id, action, node, reply });
    }

    /// An action that was carried out is to be so once more. A run that is over goes on until that is done.
    pub fn retry_action(&self, id: WorkflowId, action: i64, by: &str, reply: Reply<()>) {
        self.call(Call::RetryAction { workflow: id, action, by: by.to_owned(), reply });
    }

    /// How the workflow stands, from memory; `None`: it is not there, and its rows have to be asked.
    pub fn outline(&self, id: WorkflowId, reply: Reply<Option<Outline>>) {
        self.call(Call::Outline { workflow: id, reply });
    }

    /// For monitoring.
    pub fn figures(&self) -> Figures {
        self.0.gauges.read()
    }
}

fn invalid(code: &'static str, what: &str, error: &OutOfBounds) -> Refused {
    Refused::Invalid { code, detail: format!("{what} is rejected: {error}") }
}

impl Handle {
    fn stop(&self) {
        let (sender, receiver) = mpsc::sync_channel(1);
        if self.post.send(Event::Stop(Some(sender))).is_ok() {
            // An error means that it has ended already.
            receiver.recv().unwrap_or_default();
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panic of that thread was told to everybody who waited: their replies were dropped.
            drop(thread.join());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}
