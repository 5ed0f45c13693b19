//! What reaches the thread of the service.

use super::roster::Present;
use super::shut::Found;
use super::talk::{ClaimRequest, Completion, Outline, Quiet, Refused, Reply, ResetWhich, Speaker, Sponsor};
use std::collections::BTreeSet;
use std::sync::mpsc::SyncSender;
use windlass_store::Store;
use windlass_store::model::{ActionRow, NodeAside, SpawnRequest, Spawned};
use windlass_types::fleet::{Exchange, ExchangeAnswer, Introduction, Welcome};
use windlass_types::{AllocationId, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

/// Somebody who waits for a commit.
pub(super) type Told = Box<dyn FnOnce(Result<(), Refused>) + Send>;
/// Does something to the books and says how to answer for it.
pub(super) type ExclusiveWork = Box<dyn FnOnce(Result<&dyn Store, Refused>) -> Answer + Send>;
pub(super) type Answer = Box<dyn FnOnce() + Send>;

pub(super) enum Event {
    Call(Call),
    /// What became of a batch of a desk.
    Committed {
        workflow: WorkflowId,
        birth: u64,
        result: Result<(), windlass_store::Error>,
    },
    /// Whoever was at the rows of a workflow is done, and has read them.
    Back {
        workflow: WorkflowId,
        answer: Option<Answer>,
        found: Found,
    },
    /// Look what time it is.
    LookAround(SyncSender<()>),
    /// Answer everybody, commit everything, and end.
    Stop(Option<SyncSender<()>>),
}

pub(super) enum Call {
    Introduce {
        who: Box<Introduction>,
        sponsor: Sponsor,
        reply: Reply<Welcome>,
    },
    Exchange {
        exchange: Exchange,
        speaker: Speaker,
        reply: Reply<ExchangeAnswer>,
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
    AllocationOver {
        allocation: AllocationId,
    },
    Fenced {
        worker: WorkerId,
    },
    CloseSites(BTreeSet<String>),
    CloseSitesFor {
        workflow: WorkflowId,
        closed: BTreeSet<String>,
    },
    Pause {
        workflow: WorkflowId,
        is_paused: bool,
    },
    Drain {
        worker: WorkerId,
        reply: Reply<()>,
    },
    Retire {
        worker: WorkerId,
        by: String,
        reply: Reply<()>,
    },
    Roster {
        reply: Reply<Vec<Present>>,
    },
    SetNodeAside {
        node: NodeAside,
        by: String,
        reply: Reply<NodeAside>,
    },
    ReleaseNode {
        host: String,
        by: String,
        reply: Reply<()>,
    },
    Start {
        workflow: WorkflowId,
        by: String,
        reply: Reply<RunId>,
    },
    Initialize {
        workflow: WorkflowId,
        only_uninitialized: bool,
        clear_ephemeral: bool,
        by: String,
        reply: Reply<()>,
    },
    Cancel {
        workflow: WorkflowId,
        by: String,
        reply: Reply<()>,
    },
    ResetStatus {
        workflow: WorkflowId,
        force: bool,
        by: String,
        reply: Reply<RunId>,
    },
    ResetJobs {
        workflow: WorkflowId,
        which: ResetWhich,
        by: String,
        reply: Reply<u64>,
    },
    Exclusive {
        workflow: WorkflowId,
        needs: Quiet,
        work: ExclusiveWork,
    },
    Claim {
        workflow: WorkflowId,
        request: ClaimRequest,
        reply: Reply<Vec<JobId>>,
    },
    StartJob {
        job: JobId,
        run: RunId,
        node: WorkerId,
        reply: Reply<()>,
    },
    Complete {
        workflow: WorkflowId,
        completions: Vec<Completion>,
        reply: Reply<Completed>,
    },
    Retry {
        job: JobId,
        run: RunId,
        max_retries: u32,
        by: String,
        reply: Reply<()>,
    },
    ChangeStatus {
        job: JobId,
        to: JobStatus,
        run: RunId,
        by: String,
        reply: Reply<()>,
    },
    Spawn {
        request: SpawnRequest,
        reply: Reply<Spawned>,
    },
    Outline {
        workflow: WorkflowId,
        reply: Reply<Option<Outline>>,
    },
    PendingActions {
        workflow: WorkflowId,
        reply: Reply<Vec<ActionRow>>,
    },
    ClaimAction {
        workflow: WorkflowId,
        action: i64,
        node: Option<WorkerId>,
        reply: Reply<bool>,
    },
    RetryAction {
        workflow: WorkflowId,
        action: i64,
        by: String,
        reply: Reply<()>,
    },
}

pub(super) type Completed = Vec<(JobId, Result<(), Refused>)>;

impl Call {
    /// What it is, for logs.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Introduce { .. } => "introduce",
            Self::Exchange { .. } => "exchange",
            Self::HangUp { .. } => "hang_up",
            Self::AccessChanged => "access_changed",
            Self::AllocationEnds { .. } => "allocation_ends",
            Self::AllocationOver { .. } => "allocation_over",
            Self::Fenced { .. } => "fenced",
            Self::CloseSites(_) => "close_sites",
            Self::CloseSitesFor { .. } => "close_sites_for",
            Self::Pause { .. } => "pause",
            Self::Drain { .. } => "drain",
            Self::Retire { .. } => "retire",
            Self::Roster { .. } => "roster",
            Self::SetNodeAside { .. } => "set_node_aside",
            Self::ReleaseNode { .. } => "release_node",
            Self::Start { .. } => "start",
            Self::Initialize { .. } => "initialize",
            Self::Cancel { .. } => "cancel",
            Self::ResetStatus { .. } => "reset_status",
            Self::ResetJobs { .. } => "reset_jobs",
            Self::Exclusive { .. } => "exclusive",
            Self::Claim { .. } => "claim",
            Self::StartJob { .. } => "start_job",
            Self::Complete { .. } => "complete",
            Self::Retry { .. } => "retry",
            Self::ChangeStatus { .. } => "change_status",
            Self::Spawn { .. } => "spawn",
            Self::Outline { .. } => "outline",
            Self::PendingActions { .. } => "pending_actions",
            Self::ClaimAction { .. } => "claim_action",
            Self::RetryAction { .. } => "retry_action",
        }
    }

    /// The workflows that it is about, as far as it says so.
    pub(super) fn workflows(&self) -> Vec<WorkflowId> {
        match self {
            Self::Exchange { exchange, .. } => {
                let reports = exchange.reports.iter().map(|report| report.key().workflow);
                reports.chain(exchange.actions.iter().map(|report| report.workflow)).collect()
            }
            Self::Start { workflow, .. }
            | Self::Initialize { workflow, .. }
            | Self::Cancel { workflow, .. }
            | Self::ResetStatus { workflow, .. }
            | Self::ResetJobs { workflow, .. }
            | Self::Exclusive { workflow, .. }
            | Self::Claim { workflow, .. }
            | Self::PendingActions { workflow, .. }
            | Self::ClaimAction { workflow, .. }
            | Self::RetryAction { workflow, .. }
            | Self::Complete { workflow, .. } => vec![*workflow],
            Self::Spawn { request, .. } => vec![request.caller.workflow],
            Self::Introduce { who, .. } => {
                let held = who.before.iter().flat_map(|before| &before.held);
                held.map(|key| key.workflow).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The job whose workflow it is about.
    pub(super) fn job(&self) -> Option<JobId> {
        match self {
            Self::StartJob { job, .. } | Self::Retry { job, .. } | Self::ChangeStatus { job, .. } => {
                Some(*job)
            }
            _ => None,
        }
    }

    /// It is decided on only while nothing of its workflow is on its way to the disk: the board cannot follow it, or it
    /// passes the board by.
    pub(super) const fn needs_quiet(&self) -> bool {
        matches!(
            self,
            Self::Initialize { .. }
                | Self::ResetStatus { .. }
                | Self::ResetJobs { .. }
                | Self::Exclusive { .. }
                | Self::Retry { .. }
                | Self::RetryAction { .. }
                | Self::ChangeStatus { .. }
        )
    }

    /// It comes from a worker with a lease, which must not wait without hearing anything.
    pub(super) const fn is_of_worker(&self) -> bool {
        matches!(self, Self::Introduce { .. } | Self::Exchange { .. })
    }

    /// Which exchange of which worker it is.
    pub(super) const fn exchange_number(&self) -> Option<(WorkerId, u64)> {
        match self {
            Self::Exchange { exchange, .. } => Some((exchange.worker, exchange.number)),
            _ => None,
        }
    }

    /// Nothing is done.
    pub(super) fn refuse(self, why: Refused) {
        match self {
            Self::Introduce { reply, .. } => reply(Err(why)),
            Self::Exchange { reply, .. } => reply(Err(why)),
            Self::HangUp { .. }
            | Self::AccessChanged
            | Self::AllocationEnds { .. }
            | Self::AllocationOver { .. }
            | Self::Fenced { .. }
            | Self::CloseSites(_)
            | Self::CloseSitesFor { .. }
            | Self::Pause { .. } => {}
            Self::Roster { reply } => reply(Err(why)),
            Self::SetNodeAside { reply, .. } => reply(Err(why)),
            Self::Drain { reply, .. }
            | Self::ReleaseNode { reply, .. }
            | Self::Retire { reply, .. }
            | Self::Initialize { reply, .. }
            | Self::Cancel { reply, .. }
            | Self::StartJob { reply, .. }
            | Self::Retry { reply, .. }
            | Self::RetryAction { reply, .. }
            | Self::ChangeStatus { reply, .. } => reply(Err(why)),
            Self::PendingActions { reply, .. } => reply(Err(why)),
            Self::ClaimAction { reply, .. } => reply(Err(why)),
            Self::Start { reply, .. } | Self::ResetStatus { reply, .. } => reply(Err(why)),
            Self::ResetJobs { reply, .. } => reply(Err(why)),
            Self::Exclusive { work, .. } => work(Err(why))(),
            Self::Claim { reply, .. } => reply(Err(why)),
            Self::Complete { reply, .. } => reply(Err(why)),
            Self::Spawn { reply, .. } => reply(Err(why)),
            Self::Outline { reply, .. } => reply(Err(why)),
        }
    }
}
