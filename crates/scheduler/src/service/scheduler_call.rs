//! The events of the service's thread.

use super::call_types::{
    CallError, CallReply, ClaimRequest, ExclusiveRequirement, JobCompletion, JobsToReset, WorkerCaller,
    WorkerOwner, WorkflowSnapshot,
};
use super::suspended_workflow::WorkflowLoadResult;
use super::worker_list::ConnectedWorker;
use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;
use windlass_store::Store;
use windlass_store::model::{ActionRow, NodeQuarantineRow, SpawnRequest, SpawnResult};
use windlass_types::worker_messages::FromWorker;
use windlass_types::worker_protocol::{
    ActionReport, ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration,
};
use windlass_types::{AllocationId, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

/// Called with the result of a commit.
pub(super) type CommitCallback = Box<dyn FnOnce(Result<(), CallError>) + Send>;
/// Works on the database and returns the reply.
pub(super) type ExclusiveWork = Box<dyn FnOnce(Result<&dyn Store, CallError>) -> DeferredReply + Send>;
pub(super) type DeferredReply = Box<dyn FnOnce() + Send>;

pub(super) enum SchedulerEvent {
    Call(SchedulerCall),
    /// The result of a submitted batch.
    Committed {
        workflow: WorkflowId,
        generation: u64,
        result: Result<(), windlass_store::StoreError>,
    },
    /// Exclusive work on a workflow is done, and its rows have been read.
    ExclusiveWorkDone {
        workflow: WorkflowId,
        reply: Option<DeferredReply>,
        loaded: WorkflowLoadResult,
    },
    /// Check the deadlines.
    CheckTime(SyncSender<()>),
    /// Reply to all callers, commit everything, and end.
    Stop(Option<SyncSender<()>>),
    /// For the host of a local run; a server gets none.
    Local(LocalRunEvent),
}

/// The events of a local run in addition to those of every scheduler.
pub(super) enum LocalRunEvent {
    FromWorker {
        worker: WorkerId,
        message: FromWorker,
    },
    /// The link is closed; `protocol_error` if it carried an invalid message.
    WorkerGone {
        worker: WorkerId,
        protocol_error: Option<String>,
    },
    ActionEnded {
        worker: WorkerId,
        report: ActionReport,
    },
    /// Pending commands were applied, as far as there was no error.
    CommandsApplied(Result<(), windlass_store::StoreError>),
    Interrupt,
    CheckRequests,
}

impl From<LocalRunEvent> for SchedulerEvent {
    fn from(event: LocalRunEvent) -> Self {
        Self::Local(event)
    }
}

pub(super) enum SchedulerCall {
    RegisterWorker {
        registration: Box<WorkerRegistration>,
        owner: WorkerOwner,
        reply: CallReply<RegistrationReply>,
    },
    Exchange {
        exchange: WorkerExchange,
        caller: WorkerCaller,
        reply: CallReply<ExchangeReply>,
    },
    HangUp {
        worker: WorkerId,
        number: u64,
        secret: String,
    },
    AccessChanged,
    AllocationEnds {
        allocation: AllocationId,
        ends_at: Timestamp,
    },
    AllocationEnded {
        allocation: AllocationId,
    },
    WorkerFenced {
        worker: WorkerId,
    },
    CloseSites(BTreeSet<String>),
    CloseSitesFor {
        workflow: WorkflowId,
        closed: BTreeSet<String>,
    },
    SetPaused {
        workflow: WorkflowId,
        is_paused: bool,
    },
    DrainWorker {
        worker: WorkerId,
        reply: CallReply<()>,
    },
    RetireWorker {
        worker: WorkerId,
        by: String,
        reply: CallReply<()>,
    },
    ListWorkers {
        reply: CallReply<Vec<ConnectedWorker>>,
    },
    QuarantineNode {
        node: NodeQuarantineRow,
        by: String,
        reply: CallReply<NodeQuarantineRow>,
    },
    ReleaseNode {
        host: String,
        by: String,
        reply: CallReply<()>,
    },
    StartWorkflow {
        workflow: WorkflowId,
        by: String,
        reply: CallReply<RunId>,
    },
    Initialize {
        workflow: WorkflowId,
        only_uninitialized: bool,
        clear_ephemeral: bool,
        by: String,
        reply: CallReply<()>,
    },
    CancelWorkflow {
        workflow: WorkflowId,
        by: String,
        reply: CallReply<()>,
    },
    ResetStatus {
        workflow: WorkflowId,
        force: bool,
        by: String,
        reply: CallReply<RunId>,
    },
    ResetJobs {
        workflow: WorkflowId,
        selection: JobsToReset,
        by: String,
        reply: CallReply<u64>,
    },
    Exclusive {
        workflow: WorkflowId,
        needs: ExclusiveRequirement,
        work: ExclusiveWork,
    },
    ClaimJobs {
        workflow: WorkflowId,
        request: ClaimRequest,
        reply: CallReply<Vec<JobId>>,
    },
    StartJob {
        job: JobId,
        run: RunId,
        node: WorkerId,
        reply: CallReply<()>,
    },
    CompleteJobs {
        workflow: WorkflowId,
        completions: Vec<JobCompletion>,
        reply: CallReply<CompletionResults>,
    },
    RetryJob {
        job: JobId,
        run: RunId,
        max_retries: u32,
        by: String,
        reply: CallReply<()>,
    },
    ChangeJobStatus {
        job: JobId,
        new_status: JobStatus,
        run: RunId,
        by: String,
        reply: CallReply<()>,
    },
    SpawnJobs {
        request: SpawnRequest,
        reply: CallReply<SpawnResult>,
    },
    SnapshotWorkflow {
        workflow: WorkflowId,
        reply: CallReply<Option<WorkflowSnapshot>>,
    },
    PendingActions {
        workflow: WorkflowId,
        reply: CallReply<Vec<ActionRow>>,
    },
    ClaimAction {
        workflow: WorkflowId,
        action: i64,
        node: Option<WorkerId>,
        reply: CallReply<bool>,
    },
    RetryAction {
        workflow: WorkflowId,
        action: i64,
        by: String,
        reply: CallReply<()>,
    },
}

pub(super) type CompletionResults = Vec<(JobId, Result<(), CallError>)>;

impl SchedulerCall {
    /// The name of the call, for logs.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::RegisterWorker { .. } => "introduce",
            Self::Exchange { .. } => "exchange",
            Self::HangUp { .. } => "hang_up",
            Self::AccessChanged => "access_changed",
            Self::AllocationEnds { .. } => "allocation_ends",
            Self::AllocationEnded { .. } => "allocation_over",
            Self::WorkerFenced { .. } => "fenced",
            Self::CloseSites(_) => "close_sites",
            Self::CloseSitesFor { .. } => "close_sites_for",
            Self::SetPaused { .. } => "pause",
            Self::DrainWorker { .. } => "drain",
            Self::RetireWorker { .. } => "retire",
            Self::ListWorkers { .. } => "roster",
            Self::QuarantineNode { .. } => "set_node_aside",
            Self::ReleaseNode { .. } => "release_node",
            Self::StartWorkflow { .. } => "start",
            Self::Initialize { .. } => "initialize",
            Self::CancelWorkflow { .. } => "cancel",
            Self::ResetStatus { .. } => "reset_status",
            Self::ResetJobs { .. } => "reset_jobs",
            Self::Exclusive { .. } => "exclusive",
            Self::ClaimJobs { .. } => "claim",
            Self::StartJob { .. } => "start_job",
            Self::CompleteJobs { .. } => "complete",
            Self::RetryJob { .. } => "retry",
            Self::ChangeJobStatus { .. } => "change_status",
            Self::SpawnJobs { .. } => "spawn",
            Self::SnapshotWorkflow { .. } => "outline",
            Self::PendingActions { .. } => "pending_actions",
            Self::ClaimAction { .. } => "claim_action",
            Self::RetryAction { .. } => "retry_action",
        }
    }

    /// The workflows that the call names.
    pub(super) fn workflows(&self) -> Vec<WorkflowId> {
        match self {
            Self::Exchange { exchange, .. } => {
                let reports = exchange.reports.iter().map(|report| report.key().workflow);
                reports.chain(exchange.actions.iter().map(|report| report.workflow)).collect()
            }
            Self::StartWorkflow { workflow, .. }
            | Self::Initialize { workflow, .. }
            | Self::CancelWorkflow { workflow, .. }
            | Self::ResetStatus { workflow, .. }
            | Self::ResetJobs { workflow, .. }
            | Self::Exclusive { workflow, .. }
            | Self::ClaimJobs { workflow, .. }
            | Self::PendingActions { workflow, .. }
            | Self::ClaimAction { workflow, .. }
            | Self::RetryAction { workflow, .. }
            | Self::CompleteJobs { workflow, .. } => vec![*workflow],
            Self::SpawnJobs { request, .. } => vec![request.caller.workflow],
            Self::RegisterWorker { registration: who, .. } => {
                let held = who.before.iter().flat_map(|before| &before.held);
                held.map(|key| key.workflow).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The job whose workflow the call affects.
    pub(super) fn job(&self) -> Option<JobId> {
        match self {
            Self::StartJob { job, .. } | Self::RetryJob { job, .. } | Self::ChangeJobStatus { job, .. } => {
                Some(*job)
            }
            _ => None,
        }
    }

    /// Whether it must wait until no commit of its workflow is under way: the state cannot be updated for it,
    /// or it bypasses the state.
    pub(super) const fn needs_quiet(&self) -> bool {
        matches!(
            self,
            Self::Initialize { .. }
                | Self::ResetStatus { .. }
                | Self::ResetJobs { .. }
                | Self::Exclusive { .. }
                | Self::RetryJob { .. }
                | Self::RetryAction { .. }
                | Self::ChangeJobStatus { .. }
        )
    }

    /// Whether it comes from a worker with a lease, which must not wait without a reply.
    pub(super) const fn is_from_worker(&self) -> bool {
        matches!(self, Self::RegisterWorker { .. } | Self::Exchange { .. })
    }

    /// The worker and number of the exchange.
    pub(super) const fn exchange_number(&self) -> Option<(WorkerId, u64)> {
        match self {
            Self::Exchange { exchange, .. } => Some((exchange.worker, exchange.number)),
            _ => None,
        }
    }

    /// Rejects the call.
    pub(super) fn refuse(self, why: CallError) {
        match self {
            Self::RegisterWorker { reply, .. } => reply(Err(why)),
            Self::Exchange { reply, .. } => reply(Err(why)),
            Self::HangUp { .. }
            | Self::AccessChanged
            | Self::AllocationEnds { .. }
            | Self::AllocationEnded { .. }
            | Self::WorkerFenced { .. }
            | Self::CloseSites(_)
            | Self::CloseSitesFor { .. }
            | Self::SetPaused { .. } => {}
            Self::ListWorkers { reply } => reply(Err(why)),
            Self::QuarantineNode { reply, .. } => reply(Err(why)),
            Self::DrainWorker { reply, .. }
            | Self::ReleaseNode { reply, .. }
            | Self::RetireWorker { reply, .. }
            | Self::Initialize { reply, .. }
            | Self::CancelWorkflow { reply, .. }
            | Self::StartJob { reply, .. }
            | Self::RetryJob { reply, .. }
            | Self::RetryAction { reply, .. }
            | Self::ChangeJobStatus { reply, .. } => reply(Err(why)),
            Self::PendingActions { reply, .. } => reply(Err(why)),
            Self::ClaimAction { reply, .. } => reply(Err(why)),
            Self::StartWorkflow { reply, .. } | Self::ResetStatus { reply, .. } => reply(Err(why)),
            Self::ResetJobs { reply, .. } => reply(Err(why)),
            Self::Exclusive { work, .. } => work(Err(why))(),
            Self::ClaimJobs { reply, .. } => reply(Err(why)),
            Self::CompleteJobs { reply, .. } => reply(Err(why)),
            Self::SpawnJobs { reply, .. } => reply(Err(why)),
            Self::SnapshotWorkflow { reply, .. } => reply(Err(why)),
        }
    }
}
