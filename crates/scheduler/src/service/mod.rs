//! The scheduler of workflows and workers. `windlass serve` runs it on a thread of its own, for many workflows
//! and remote workers ([`SchedulerHandle`]); `windlass run` on its main thread, for one workflow and a worker
//! process that is attached to it ([`LocalRun`]).
//!
//! One thread owns all state. Calls reach it over a channel with a closure for the reply, and a reply is sent
//! only after the changes that it depends on are committed. This crate does no networking: the server turns
//! HTTP into these calls.

mod actions;
mod active_workflow;
mod attached_worker;
mod call_types;
mod claims;
mod clock;
mod commits;
mod event_queue;
mod exchange_sequence;
mod failure_handling;
mod job_commands;
mod local_run;
mod lost_workers;
mod metrics;
mod node_quarantine;
mod panic_recovery;
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

pub use call_types::{
    CallError, CallReply, ClaimRequest, EarlierWorkerHost, ExclusiveRequirement, IsLeadershipCertain,
    JobCompletion, JobsToReset, NodeCapacityOffer, OnCommit, OnUnreachableAllocationWorker, OnWorkflowChange,
    ReadyJobGroup, SchedulerMetrics, SchedulerOptions, UnreachableAllocationWorker, WorkerCaller,
    WorkerOwner, WorkflowSnapshot,
};
pub use clock::{ManualClock, SchedulerClock};
pub use local_run::{LocalRun, LocalRunControl, LocalRunOptions, RunDeadline, RunEnd, RunSummary};
pub use slurm_workers::FENCING_TIMEOUT;
pub use worker_list::ConnectedWorker;

use crate::SchedulerError;
use event_queue::{EventQueue, EventSender};
use metrics::SchedulerGauges;
use scheduler::Scheduler;
use scheduler_call::{SchedulerCall, SchedulerEvent};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use windlass_store::Store;
use windlass_store::model::{ActionRow, NodeQuarantineRow, SpawnRequest, SpawnResult, WorkflowRow};
use windlass_types::worker_bounds::FieldOutOfBounds;
use windlass_types::worker_protocol::{ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration};
use windlass_types::{AllocationId, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

/// Decides for which workflows a worker may work.
pub type WorkflowPredicate = Arc<dyn Fn(&WorkflowRow) -> bool + Send + Sync>;
/// Work on the database while the service does not touch the workflow.
pub type StoreWork<T> = Box<dyn FnOnce(&dyn Store) -> Result<T, windlass_store::StoreError> + Send>;

/// The handle of the service; cheap to clone. When the last one is dropped the service ends, after everything
/// is committed.
#[derive(Clone, Debug)]
pub struct SchedulerHandle(Arc<SchedulerThread>);

struct SchedulerThread {
    sender: EventSender,
    gauges: Arc<SchedulerGauges>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for SchedulerThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SchedulerThread").field("figures", &self.gauges.to_metrics()).finish_non_exhaustive()
    }
}

impl SchedulerHandle {
    /// Starts the service with all active workflows of the database. The caller holds the server lock.
    pub fn start(store: Arc<dyn Store>, options: SchedulerOptions) -> Result<Self, SchedulerError> {
        let mut events = EventQueue::new().map_err(SchedulerError::Wait)?;
        let gauges = Arc::new(SchedulerGauges::default());
        let mut core = Scheduler::new(store, options, events.sender(), Arc::clone(&gauges));
        let sender = events.sender();
        core.load_at_start()?;
        let thread = std::thread::Builder::new()
            .name("windlass-service".into())
            .spawn(move || core.run(&mut events))
            .map_err(SchedulerError::Wait)?;
        Ok(Self(Arc::new(SchedulerThread { sender, gauges, thread: Mutex::new(Some(thread)) })))
    }

    /// Replies to all waiting calls, commits everything and rejects new calls. Returns when that is done.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Makes the service check its deadlines, and returns when all consequences are committed. For a manual
    /// clock.
    pub fn check_time(&self) {
        let (sender, receiver) = mpsc::sync_channel(1);
        if self.0.sender.send(SchedulerEvent::CheckTime(sender)).is_none() {
            // An error means that the service has ended: nothing more follows.
            receiver.recv().unwrap_or_default();
        }
    }

    /// Whether its thread is running. Otherwise every call is rejected.
    pub fn is_alive(&self) -> bool {
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn send_call(&self, call: SchedulerCall) {
        if let Some(SchedulerEvent::Call(call)) = self.0.sender.send(SchedulerEvent::Call(call)) {
            call.refuse(scheduler::unavailable_error("the server is shutting down"));
        }
    }

    /// Registers a worker, or accepts it again.
    pub fn register_worker(
        &self,
        who: WorkerRegistration,
        worker_owner: WorkerOwner,
        reply: CallReply<RegistrationReply>,
    ) {
        if let Err(error) = who.check() {
            let code = if error.field == "site" { "bad_site" } else { "bad_introduction" };
            return reply(Err(invalid_error(code, "the registration of a worker", &error)));
        }
        self.send_call(SchedulerCall::RegisterWorker {
            registration: Box::new(who),
            owner: worker_owner,
            reply,
        });
    }

    /// Permissions have changed: workers bound to one workflow, for which they may have lost the permission,
    /// have to register again.
    pub fn notify_access_changed(&self) {
        self.send_call(SchedulerCall::AccessChanged);
    }

    /// The allocation has ended according to the database: if none of its workers can be alive, their jobs run
    /// again.
    pub fn notify_allocation_ended(&self, allocation: AllocationId) {
        self.send_call(SchedulerCall::AllocationEnded { allocation });
    }

    /// Nothing of this worker, which was reported to `on_silent_worker`, runs in Slurm any more.
    pub fn notify_worker_fenced(&self, worker: WorkerId) {
        self.send_call(SchedulerCall::WorkerFenced { worker });
    }

    /// The end time of this allocation has changed: its workers are informed.
    pub fn notify_allocation_end_time(&self, allocation: AllocationId, ends_at: Timestamp) {
        self.send_call(SchedulerCall::AllocationEnds { allocation, ends_at });
    }

    /// Exchanges messages with a worker. For a caller without permission for the worker, it does not exist.
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

    /// The caller of this exchange, authenticated by the worker's secret, has hung up: the reply is kept for
    /// its next call.
    pub fn cancel_exchange(&self, worker: WorkerId, number: u64, secret: String) {
        self.send_call(SchedulerCall::HangUp { worker, number, secret });
    }

    /// Drains the worker: it accepts no more jobs, completes those it has, and leaves.
    pub fn drain_worker(&self, worker: WorkerId, reply: CallReply<()>) {
        self.send_call(SchedulerCall::DrainWorker { worker, reply });
    }

    /// Declares the worker dead: its jobs run again at once.
    pub fn retire_worker(&self, worker: WorkerId, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::RetireWorker { worker, by: by.to_owned(), reply });
    }

    /// Puts the node into quarantine until the given time. The user and the current time are filled in.
    pub fn quarantine_node(&self, node: NodeQuarantineRow, by: &str, reply: CallReply<NodeQuarantineRow>) {
        self.send_call(SchedulerCall::QuarantineNode { node, by: by.to_owned(), reply });
    }

    /// Releases the node from quarantine.
    pub fn release_node(&self, host: &str, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::ReleaseNode { host: host.to_owned(), by: by.to_owned(), reply });
    }

    /// Lists the connected workers.
    pub fn list_workers(&self, reply: CallReply<Vec<ConnectedWorker>>) {
        self.send_call(SchedulerCall::ListWorkers { reply });
    }

    /// Initializes the workflow and opens it for workers.
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

    /// Begins the next run. `force` ignores active allocations; held jobs are never left behind.
    pub fn reset_status(&self, id: WorkflowId, force: bool, by: &str, reply: CallReply<RunId>) {
        self.send_call(SchedulerCall::ResetStatus { workflow: id, force, by: by.to_owned(), reply });
    }

    /// Resets jobs; replies with their number. [`SchedulerHandle::initialize_workflow`] then decides which are
    /// ready.
    pub fn reset_jobs(&self, id: WorkflowId, which: JobsToReset, by: &str, reply: CallReply<u64>) {
        self.send_call(SchedulerCall::ResetJobs { workflow: id, selection: which, by: by.to_owned(), reply });
    }

    /// Runs `work` on a thread of its own while nothing else touches the workflow; afterwards its rows are read
    /// again. For work that affects jobs; other work can call the store directly.
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

    /// The claims are committed as pending before the reply.
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

    /// Adds jobs of a running job to its workflow.
    pub fn spawn_jobs(&self, request: SpawnRequest, reply: CallReply<SpawnResult>) {
        self.send_call(SchedulerCall::SpawnJobs { request, reply });
    }

    /// Lists the actions that a client may run now.
    pub fn pending_actions(&self, id: WorkflowId, reply: CallReply<Vec<ActionRow>>) {
        self.send_call(SchedulerCall::PendingActions { workflow: id, reply });
    }

    /// A client claims an action; `false`: it cannot be claimed.
    pub fn claim_action(&self, id: WorkflowId, action: i64, node: Option<WorkerId>, reply: CallReply<bool>) {
        self.send_call(SchedulerCall::ClaimAction { workflow: id, action, node, reply });
    }

    /// Runs an action again. An ended run is reopened until that is done.
    pub fn retry_action(&self, id: WorkflowId, action: i64, by: &str, reply: CallReply<()>) {
        self.send_call(SchedulerCall::RetryAction { workflow: id, action, by: by.to_owned(), reply });
    }

    /// The state of the workflow in memory; `None`: it is not loaded, and its rows have to be read.
    pub fn snapshot_workflow(&self, id: WorkflowId, reply: CallReply<Option<WorkflowSnapshot>>) {
        self.send_call(SchedulerCall::SnapshotWorkflow { workflow: id, reply });
    }

    /// Numbers for monitoring.
    pub fn metrics(&self) -> SchedulerMetrics {
        self.0.gauges.to_metrics()
    }
}

fn invalid_error(code: &'static str, what: &str, error: &FieldOutOfBounds) -> CallError {
    CallError::Invalid { code, detail: format!("{what} was rejected: {error}") }
}

impl SchedulerThread {
    fn stop(&self) {
        let (sender, receiver) = mpsc::sync_channel(1);
        if self.sender.send(SchedulerEvent::Stop(Some(sender))).is_none() {
            // An error means that it has ended already.
            receiver.recv().unwrap_or_default();
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // After a panic of that thread all waiting callers know: their reply channels were dropped.
            drop(thread.join());
        }
    }
}

impl Drop for SchedulerThread {
    fn drop(&mut self) {
        self.stop();
    }
}
