//! The dispatcher of many workflows and many workers elsewhere: what `windlass serve` runs.
//!
//! One thread owns everything. Calls reach it over a channel with a closure for the answer, and an answer is given only
//! after what it rests on is on disk. The engine knows no network: a server turns HTTP into these calls.

mod actions;
mod active_workflow;
mod claims;
mod clock;
mod commits;
mod exchange_sequence;
mod failure_handling;
mod job_commands;
mod lost_workers;
mod metrics;
mod node_quarantine;
mod panic_recovery;
mod protocol;
mod restrictions;
mod scheduler;
mod scheduler_call;
mod slurm_workers;
mod stale_reports;
mod stall_detection;
mod suspended_workflow;
mod worker_exchange;
mod worker_groups;
mod worker_list;
mod worker_session;
mod workflow_lifecycle;

pub use clock::{ManualClock, SchedulerClock};
pub use protocol::{
    CallError, CallReply, ClaimRequest, EnsureWorkerDead, ExclusiveRequirement, IsLeadershipCertain,
    JobCompletion, JobsToReset, NodeCapacityOffer, OnCommit, OnSilentWorker, OnWorkflowChange, ReadyJobGroup,
    SchedulerMetrics, SchedulerOptions, SilentWorker, WorkerCaller, WorkerOwner, WorkflowSnapshot,
};
pub use slurm_workers::FENCING_TIMEOUT;
pub use worker_list::ConnectedWorker;

use crate::SchedulerError;
use metrics::SchedulerGauges;
use scheduler::Scheduler;
use scheduler_call::{SchedulerCall, SchedulerEvent};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use windlass_store::Store;
use windlass_store::model::{ActionRow, NodeQuarantineRow, SpawnRequest, SpawnResult, WorkflowRow};
use windlass_types::worker_bounds::FieldOutOfBounds;
use windlass_types::worker_protocol::{ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration};
use windlass_types::{AllocationId, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

/// Whose jobs a worker takes.
pub type WorkflowPredicate = Arc<dyn Fn(&WorkflowRow) -> bool + Send + Sync>;
/// Something that is done to the books while the service keeps away from the workflow.
pub type StoreWork<T> = Box<dyn FnOnce(&dyn Store) -> Result<T, windlass_store::StoreError> + Send>;

/// The handle of the service; cheap to clone. When the last one is dropped the service ends, after everything is
/// committed.
#[derive(Clone, Debug)]
pub struct SchedulerHandle(Arc<SchedulerThread>);

struct SchedulerThread {
    sender: Sender<SchedulerEvent>,
    gauges: Arc<SchedulerGauges>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for SchedulerThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("figures", &self.gauges.to_metrics()).finish_non_exhaustive()
    }
}

impl SchedulerHandle {
    /// Takes up what the books know to be under way. The caller holds the lock of the server.
    pub fn start(store: Arc<dyn Store>, options: SchedulerOptions) -> Result<Self, SchedulerError> {
        let (post, inbox) = mpsc::channel();
        let gauges = Arc::new(SchedulerGauges::default());
        let mut core = Scheduler::new(store, options, post.clone(), Arc::clone(&gauges));
        core.load_at_start()?;
        let thread = std::thread::Builder::new()
            .name("windlass-service".into())
            .spawn(move || core.run(&inbox))
            .map_err(SchedulerError::Wait)?;
        Ok(Self(Arc::new(SchedulerThread { sender: post, gauges, thread: Mutex::new(Some(thread)) })))
    }

    /// Answers all waits, commits everything and refuses new calls. Returns when that is done.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Has the service look what time it is, and returns when all that follows is on disk. For a clock that is moved by
    /// hand.
    pub fn check_time(&self) {
        let (sender, receiver) = mpsc::sync_channel(1);
        if self.0.sender.send(SchedulerEvent::CheckTime(sender)).is_ok() {
            // An error means that the service has ended: nothing more follows.
            receiver.recv().unwrap_or_default();
        }
    }

    /// Whether its thread is there. Without it every call is refused for good.
    pub fn is_alive(&self) -> bool {
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn send_call(&self, call: SchedulerCall) {
        if let Err(mpsc::SendError(SchedulerEvent::Call(call))) =
            self.0.sender.send(SchedulerEvent::Call(call))
        {
            call.refuse(scheduler::unavailable_error("the server is going down"));
        }
    }

    /// A worker introduces itself, or comes back.
    pub fn register_worker(
        &self,
        who: WorkerRegistration,
        sponsor: WorkerOwner,
        reply: CallReply<RegistrationReply>,
    ) {
        if let Err(error) = who.check() {
            let code = if error.field == "site" { "bad_site" } else { "bad_introduction" };
            return reply(Err(invalid_error(code, "the introduction of a worker", &error)));
        }
        self.send_call(SchedulerCall::RegisterWorker { registration: Box::new(who), owner: sponsor, reply });
    }

    /// Somebody may do less than before, or more: workers that are for one workflow only, which may not be theirs to
    /// work for any more, have to introduce themselves again.
    pub fn notify_access_changed(&self) {
        self.send_call(SchedulerCall::AccessChanged);
    }

    /// The books say that this allocation is over: if nobody in it can be alive, what ran there runs again.
    pub fn notify_allocation_ended(&self, allocation: AllocationId) {
        self.send_call(SchedulerCall::AllocationEnded { allocation });
    }

    /// Of a worker that `on_silent` told of nothing runs in Slurm any more.
    pub fn notify_worker_fenced(&self, worker: WorkerId) {
        self.send_call(SchedulerCall::WorkerFenced { worker });
    }

    /// Slurm will end this allocation at another time than it said before: those in it are told.
    pub fn notify_allocation_end_time(&self, allocation: AllocationId, ends_at: Timestamp) {
        self.send_call(SchedulerCall::AllocationEnds { allocation, ends_at });
    }

    /// Whoever speaks for a worker of somebody else is told that there is none.
    pub fn exchange(&self, exchange: WorkerExchange, speaker: WorkerCaller, reply: CallReply<ExchangeReply>) {
        if exchange.reports.len().max(exchange.actions.len()) > WorkerExchange::MAX_REPORTS {
            let detail = format!("an exchange has at most {} reports", WorkerExchange::MAX_REPORTS);
            return reply(Err(CallError::Invalid { code: "too_many_reports", detail }));
        }
        match exchange.into_checked() {
            Ok(exchange) => self.send_call(SchedulerCall::Exchange { exchange, caller: speaker, reply }),
            Err(error) => reply(Err(invalid_error("bad_exchange", "the exchange of a worker", &error))),
        }
    }

    /// The caller of this exchange, who quoted this secret, is gone: whatever would be its answer is kept for when it
    /// comes again.
    pub fn cancel_exchange(&self, worker: WorkerId, number: u64, secret: String) {
        self.send_call(SchedulerCall::HangUp { worker, number, secret });
    }

    /// The worker is to take nothing more, finish what it has, and leave.
    pub fn drain_worker(&self, worker: WorkerId, reply: CallReply<()>) {
        self.send_call(SchedulerCall::DrainWorker { worker, reply });
    }

    /// The worker is certainly dead: what it held runs again at once.
    pub fn retire_worker(&self, worker: WorkerId, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::RetireWorker { worker, by: by.to_owned(), reply });
    }

    /// The node gets no jobs until then. Who says so, and since when, is filled in.
    pub fn quarantine_node(&self, node: NodeQuarantineRow, by: &str, reply: CallReply<NodeQuarantineRow>) {
        self.send_call(SchedulerCall::QuarantineNode { node, by: by.to_owned(), reply });
    }

    /// The node is trusted again, whatever it did.
    pub fn release_node(&self, host: &str, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::ReleaseNode { host: host.to_owned(), by: by.to_owned(), reply });
    }

    /// Those who are there now.
    pub fn list_workers(&self, reply: CallReply<Vec<ConnectedWorker>>) {
        self.send_call(SchedulerCall::ListWorkers { reply });
    }

    /// Initialises the workflow and lets workers have it.
    pub fn start_workflow(&self, id: WorkflowId, by: &str, reply: CallReply<RunId>) {
        self.send_call(SchedulerCall::StartWorkflow { workflow: id, by: by.to_owned(), reply });
    }

    pub fn initialize_workflow(
        &self,
        id: WorkflowId,
        only_uninitialized: bool,
        clear_ephemeral: bool,
        by: &str,
        reply: CallReply<()>,
    ) {
        let by = by.to_owned();
        self.send_call(SchedulerCall::Initialize {
            workflow: id,
            only_uninitialized,
            clear_ephemeral,
            by,
            reply,
        });
    }

    pub fn cancel_workflow(&self, id: WorkflowId, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::CancelWorkflow { workflow: id, by: by.to_owned(), reply });
    }

    /// Begins the next run. `force` is for what the books of allocations say; jobs that somebody holds are never left
    /// behind.
    pub fn reset_status(&self, id: WorkflowId, force: bool, by: &str, reply: CallReply<RunId>) {
        self.send_call(SchedulerCall::ResetStatus { workflow: id, force, by: by.to_owned(), reply });
    }

    /// Sends jobs back to the start; answers how many. [`Service::initialize`] then decides what is ready.
    pub fn reset_jobs(&self, id: WorkflowId, which: JobsToReset, by: &str, reply: CallReply<u64>) {
        self.send_call(SchedulerCall::ResetJobs { workflow: id, selection: which, by: by.to_owned(), reply });
    }

    /// Does `work` on a thread of its own while nothing else touches the workflow; afterwards its rows are read anew. What
    /// touches no job needs no such care: call the store.
    pub fn run_exclusive<T: Send + 'static>(
        &self,
        id: WorkflowId,
        needs: ExclusiveRequirement,
        work: StoreWork<T>,
        reply: CallReply<T>,
    ) {
        let work: scheduler_call::ExclusiveWork = Box::new(move |store| {
            let outcome =
                store.and_then(|store| work(store).map_err(|error| scheduler::store_call_error(&error)));
            Box::new(move || reply(outcome))
        });
        self.send_call(SchedulerCall::Exclusive { workflow: id, needs, work });
    }

    /// Committed as pending when the answer comes.
    pub fn claim_jobs(&self, id: WorkflowId, request: ClaimRequest, reply: CallReply<Vec<JobId>>) {
        if let Err(error) = request.check_bounds() {
            return reply(Err(invalid_error("bad_claim", "the claim", &error)));
        }
        self.send_call(SchedulerCall::ClaimJobs { workflow: id, request, reply });
    }

    /// A claimed job runs on this compute node.
    pub fn start_job(&self, job: JobId, run: RunId, node: WorkerId, reply: CallReply<()>) {
        self.send_call(SchedulerCall::StartJob { job, run, node, reply });
    }

    pub fn complete_jobs(
        &self,
        id: WorkflowId,
        completions: Vec<JobCompletion>,
        reply: CallReply<Vec<(JobId, Result<(), CallError>)>>,
    ) {
        self.send_call(SchedulerCall::CompleteJobs { workflow: id, completions, reply });
    }

    pub fn retry_job(&self, job: JobId, run: RunId, max_retries: u32, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::RetryJob { job, run, max_retries, by: by.to_owned(), reply });
    }

    pub fn change_job_status(&self, job: JobId, to: JobStatus, run: RunId, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::ChangeJobStatus { job, new_status: to, run, by: by.to_owned(), reply });
    }

    /// Jobs that a running job adds to its workflow.
    pub fn spawn_jobs(&self, request: SpawnRequest, reply: CallReply<SpawnResult>) {
        self.send_call(SchedulerCall::SpawnJobs { request, reply });
    }

    /// Actions that a client may carry out now.
    pub fn pending_actions(&self, id: WorkflowId, reply: CallReply<Vec<ActionRow>>) {
        self.send_call(SchedulerCall::PendingActions { workflow: id, reply });
    }

    /// A client carries out an action itself; `false`: it is not to be had.
    pub fn claim_action(&self, id: WorkflowId, action: i64, node: Option<WorkerId>, reply: CallReply<bool>) {
        self.send_call(SchedulerCall::ClaimAction { workflow: id, action, node, reply });
    }

    /// An action that was carried out is to be so once more. A run that is over goes on until that is done.
    pub fn retry_action(&self, id: WorkflowId, action: i64, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::RetryAction { workflow: id, action, by: by.to_owned(), reply });
    }

    /// How the workflow stands, from memory; `None`: it is not there, and its rows have to be asked.
    pub fn snapshot_workflow(&self, id: WorkflowId, reply: CallReply<Option<WorkflowSnapshot>>) {
        self.send_call(SchedulerCall::SnapshotWorkflow { workflow: id, reply });
    }

    /// For monitoring.
    pub fn metrics(&self) -> SchedulerMetrics {
        self.0.gauges.to_metrics()
    }
}

fn invalid_error(code: &'static str, what: &str, error: &FieldOutOfBounds) -> CallError {
    CallError::Invalid { code, detail: format!("{what} is rejected: {error}") }
}

impl SchedulerThread {
    fn stop(&self) {
        let (sender, receiver) = mpsc::sync_channel(1);
        if self.sender.send(SchedulerEvent::Stop(Some(sender))).is_ok() {
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

impl Drop for SchedulerThread {
    fn drop(&mut self) {
        self.stop();
    }
}
