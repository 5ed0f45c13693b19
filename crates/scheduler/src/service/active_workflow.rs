//! One active workflow: its board, who holds what of it, and what was decided and is not on disk yet.

use super::exchange_sequence::CommitTicket;
use super::protocol::{CallError, ReadyJobGroup, WorkflowSnapshot};
use super::scheduler::store_call_error;
use super::scheduler_call::CommitCallback;
use super::suspended_workflow::{WaitingCall, WorkflowLoadResult};
use crate::action_schedule::ActionSchedule;
use crate::crash_suspects;
use crate::execution_settings::{ExecutionSettings, return_codes};
use crate::retry_policy::WorkflowRetryPolicy;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::change::WorkflowChange;
use windlass_core::classify::FailureClassifier;
use windlass_core::crash_suspects::CrashSuspects;
use windlass_core::workflow_state::{OrphanedAttempt, StaleAttemptReport, WorkflowState};
use windlass_store::Store;
use windlass_store::model::{HeldJob, ResultFilter, WorkerKind, WorkflowRow};
use windlass_types::settings::ActionTrigger;
use windlass_types::worker_messages::{Assignment, AttemptKey, AttemptReport, AttemptUsage};
use windlass_types::worker_protocol::{ActionCommand, ActionReport};
use windlass_types::{Attempt, JobId, Timestamp, WorkerId, WorkflowId};

/// What is known of an active workflow. Thrown away and made anew from the rows whenever memory and rows may disagree.
pub(super) struct ActiveWorkflow {
    /// Tells this desk from an earlier one of the same workflow.
    pub(super) generation: u64,
    pub(super) row: WorkflowRow,
    pub(super) settings: ExecutionSettings,
    pub(super) state: WorkflowState,
    pub(super) retry_policy: WorkflowRetryPolicy,
    pub(super) held_jobs: HashMap<JobId, JobAssignment>,
    pub(super) crash_suspects: CrashSuspects,
    pub(super) actions: ActionSchedule,
    /// Workers that were given something of it in this run.
    pub(super) joined_workers: BTreeSet<WorkerId>,
    /// The run has begun and is not over.
    pub(super) is_active: bool,
    /// Somebody asked for it to end.
    pub(super) is_canceled: bool,
    pub(super) open_batch: WorkflowBatch,
    pub(super) in_flight: Option<WorkflowCommit>,
    /// Jobs have added others.
    pub(super) has_added_jobs: bool,
    /// Attempts with which their jobs are over, since the last look at what was left behind.
    pub(super) ended_attempts: Vec<AttemptKey>,
    /// Stands for clients that claim without saying who they are.
    pub(super) claims_worker: Option<WorkerId>,
    /// Workers without a lease that were alive, as far as the books know, when this was read.
    pub(super) unleased_workers: HashSet<WorkerId>,
    /// Kept free for a job that is tried alone.
    pub(super) reserved_worker: Option<WorkerId>,
    /// What waits until nothing of this desk is under way; from then on nobody else is attended to.
    pub(super) waiting_calls: VecDeque<WaitingCall>,
    /// The rows know better: it is made anew as soon as nothing is under way, and until then nobody is attended to.
    pub(super) is_outdated: bool,
    /// Something could not be read or written. Until then nothing new is begun.
    pub(super) paused_until: Option<Instant>,
    /// How long all attempts took together, those included that are on their way to disk.
    pub(super) wall_time: Duration,
    /// Its next run has begun, and nobody has said yet what is to run in it.
    pub(super) awaits_initialization: bool,
    /// How its jobs stand is counted for its actions.
    pub(super) are_jobs_counted: bool,
    /// Nothing more happens unless somebody decides, as far as was seen when last looked.
    pub(super) waits_for_decision: bool,
    /// Kinds of jobs that are done with, as far as was seen when last looked.
    pub(super) job_groups_done: u64,
    /// What the figures count of it: ready and held.
    pub(super) counted_jobs: (usize, usize),
}

/// What a new desk is given.
pub(super) struct WorkflowLoadContext {
    pub(super) generation: u64,
    /// Of all rules for the classes of failures, where there are more than those built in.
    pub(super) classifier: Option<Arc<FailureClassifier>>,
}

/// A job that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct JobAssignment {
    pub(super) worker: WorkerId,
    pub(super) attempt: Attempt,
    /// The worker has heard of it, so it may have started.
    pub(super) is_sent: bool,
    pub(super) started_at: Option<Timestamp>,
    /// The usage of processes that were ended after their worker process died.
    pub(super) leftover_usage: AttemptUsage,
}

impl JobAssignment {
    pub(super) const fn orphaned_attempt(&self) -> OrphanedAttempt {
        OrphanedAttempt { started_at: self.started_at, usage: self.leftover_usage }
    }
}

/// Changes, and what to do once they are on disk.
#[derive(Default)]
pub(super) struct WorkflowBatch {
    pub(super) changes: Vec<WorkflowChange>,
    /// Jobs that were claimed; what is to be done for them is read when all of it goes to disk.
    pub(super) claimed_jobs: Vec<ClaimedJob>,
    pub(super) assignments: Vec<(WorkerId, Assignment)>,
    /// Reports that the changes come from.
    pub(super) reports: Vec<(WorkerId, AttemptReport)>,
    pub(super) action_reports: Vec<(WorkerId, ActionReport)>,
    /// Actions that begin.
    pub(super) action_commands: Vec<(WorkerId, ActionCommand)>,
    /// Exchanges whose answers rest on this.
    pub(super) tickets: Vec<CommitTicket>,
    /// Others who wait for it.
    pub(super) callbacks: Vec<CommitCallback>,
    /// Workers that are gone; what they held is among the changes.
    pub(super) gone_workers: Vec<WorkerId>,
}

/// A job on its way to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimedJob {
    pub(super) worker: WorkerId,
    pub(super) job: u32,
    pub(super) key: AttemptKey,
}

impl WorkflowBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.callbacks.is_empty()
            && self.gone_workers.is_empty()
            && self.tickets.is_empty()
    }
}

/// Handed to the store.
pub(super) struct WorkflowCommit {
    pub(super) changes: Arc<[WorkflowChange]>,
    pub(super) batch: WorkflowBatch,
    /// The commit failed for want of space or a database, and is tried again then.
    pub(super) retry_at: Option<Instant>,
}

/// Why a desk could not be made.
#[derive(Debug)]
pub(super) enum WorkflowLoadError {
    NotFound,
    InvalidRows(String),
    Store(windlass_store::StoreError),
}

impl From<windlass_store::StoreError> for WorkflowLoadError {
    fn from(error: windlass_store::StoreError) -> Self {
        Self::Store(error)
    }
}

impl WorkflowLoadError {
    /// What somebody hears who asked for it.
    pub(super) fn to_call_error(&self, workflow: WorkflowId) -> CallError {
        match self {
            Self::NotFound => CallError::NotFound(format!("there is no workflow {workflow}")),
            Self::InvalidRows(why) => CallError::Conflict { code: "cycle", detail: why.clone() },
            Self::Store(error) => store_call_error(error),
        }
    }
}

impl ActiveWorkflow {
    /// As [`Self::read`], unless the workflow is not active: then nobody needs a desk for it.
    pub(super) fn load_if_active(
        store: &dyn Store,
        id: WorkflowId,
        birth: WorkflowLoadContext,
    ) -> WorkflowLoadResult {
        match store.workflow(id)? {
            Some(row) if is_active(&row) => Self::load(store, id, birth).map(|active| Some(Box::new(active))),
            _ => Ok(None),
        }
    }

    /// Reads all that is known of a workflow. Jobs that nobody has looked at stay so.
    pub(super) fn load(
        store: &dyn Store,
        id: WorkflowId,
        birth: WorkflowLoadContext,
    ) -> Result<Self, WorkflowLoadError> {
        let row = store.workflow(id)?.ok_or(WorkflowLoadError::NotFound)?;
        let table = store.load_jobs(id)?;
        let mut state = WorkflowState::new(id, row.run_id, table)
            .map_err(|cycle| WorkflowLoadError::InvalidRows(cycle.to_string()))?;
        state.set_return_codes(return_codes(&row.settings));
        state.set_limits(&row.settings.limits, row.settings.max_units);
        let is_active = is_active(&row);
        let is_canceled = is_active && store.cancel_requested(id)?;
        if is_canceled {
            state.on_cancel();
        }
        let mut open = WorkflowBatch::default();
        state.on_resume(&mut open.changes);
        let suspects = crash_suspects::load_crash_suspects(store, &row, &mut state)?;
        let sequels = WorkflowRetryPolicy::load(store, &row, &state, birth.classifier)?;
        if sequels.is_budget_spent() {
            state.on_halt();
        }
        let hold = |held: HeldJob| {
            let (worker, attempt, started_at) = (held.worker, held.attempt, held.started_at);
            // Nobody remembers whether the worker has heard of it.
            (
                held.id,
                JobAssignment {
                    worker,
                    attempt,
                    is_sent: true,
                    started_at,
                    leftover_usage: AttemptUsage::default(),
                },
            )
        };
        let held: HashMap<JobId, JobAssignment> = store.held_jobs(id)?.into_iter().map(hold).collect();
        load_elected_sites(store, &mut state, &held)?;
        if is_active {
            state.reconcile_units(&mut open.changes);
        }
        let mut alive = store.active_workers(None)?;
        alive.retain(|row| row.worker.kind != WorkerKind::Remote);
        let stands_for_clients =
            alive.iter().find(|row| row.worker.kind == WorkerKind::Claims && row.worker.workflow == Some(id));
        let agenda = ActionSchedule::load(store, id)?;
        let joined = load_joined_workers(store, &row, &agenda, &held)?;
        Ok(Self {
            generation: birth.generation,
            settings: ExecutionSettings::from_workflow(&row),
            state,
            retry_policy: sequels,
            held_jobs: held,
            crash_suspects: suspects,
            actions: agenda,
            joined_workers: joined,
            is_active,
            is_canceled,
            open_batch: open,
            in_flight: None,
            has_added_jobs: !store.spawning_jobs(id)?.is_empty(),
            ended_attempts: Vec::new(),
            claims_worker: stands_for_clients.map(|row| row.id),
            unleased_workers: alive.iter().map(|row| row.id).collect(),
            reserved_worker: None,
            waiting_calls: VecDeque::new(),
            is_outdated: false,
            paused_until: None,
            wall_time: store.work_summary(id)?.wall,
            awaits_initialization: false,
            are_jobs_counted: false,
            waits_for_decision: false,
            job_groups_done: 0,
            counted_jobs: (0, 0),
            row,
        })
    }

    pub(super) fn id(&self) -> WorkflowId {
        self.row.id
    }

    /// Costs as many steps as there are kinds of jobs.
    pub(super) fn snapshot(&self) -> WorkflowSnapshot {
        let ready = self.state.ready_by_demand().map(|(demand, jobs)| ReadyJobGroup {
            jobs: jobs as u64,
            runtime: demand.resources.runtime,
            labels: demand.location.labels.clone(),
        });
        WorkflowSnapshot { ready_jobs: ready.collect(), wall_time: self.wall_time }
    }

    /// What goes to disk is done.
    pub(super) fn add_wall_time(&mut self, changes: &[WorkflowChange]) {
        for change in changes {
            if let WorkflowChange::End { result, .. } = change {
                self.wall_time = self.wall_time.saturating_add(result.wall);
            }
        }
    }

    /// Nothing is under way and nothing waits to be.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && self.open_batch.is_empty()
    }

    /// The database does not do what it is asked; tried again then.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let commit = self.in_flight.as_ref().and_then(|batch| batch.retry_at);
        commit.or(self.paused_until)
    }

    pub(super) fn has_store_problem(&self) -> bool {
        self.retry_at().is_some()
    }

    /// Somebody is to have it to himself, or it is to be made anew: whoever comes now comes afterwards.
    pub(super) fn is_closing(&self) -> bool {
        self.is_outdated || !self.waiting_calls.is_empty()
    }

    /// Who is still at something, in words.
    pub(super) fn render_holders(&self) -> Option<String> {
        let (id, jobs, actions) =
            (self.id(), self.held_jobs.len(), self.actions.states.running_actions().count());
        match (jobs, actions) {
            (0, 0) => None,
            (0, _) => Some(format!("{actions} actions of workflow {id} are under way")),
            (jobs, _) => Some(format!("{jobs} jobs of workflow {id} are held by workers")),
        }
    }

    /// Jobs may be claimed now. Not while a commit is under way: what it frees is claimed with the next one.
    pub(super) fn may_claim(&self) -> bool {
        self.is_active
            && !self.is_canceled
            && self.in_flight.is_none()
            && self.paused_until.is_none()
            && !self.is_closing()
    }

    /// What `worker` holds under this key, and the number of the job; a report of anybody else is stale.
    pub(super) fn check_fencing(
        &self,
        worker: WorkerId,
        key: &AttemptKey,
    ) -> Result<u32, StaleAttemptReport> {
        let stale = |found: String| StaleAttemptReport { key: *key, found };
        if key.run != self.row.run_id {
            return Err(stale(format!("workflow {} is in run {}", self.id(), self.row.run_id)));
        }
        match self.held_jobs.get(&key.job) {
            Some(hold) if hold.worker == worker && hold.attempt == key.attempt => {
                self.state.job_index(key.job).ok_or_else(|| stale("there is no such job".to_owned()))
            }
            Some(hold) => {
                let (attempt, holder) = (hold.attempt, hold.worker);
                Err(stale(format!("worker {holder} has the job in attempt {attempt}")))
            }
            None => Err(stale("nobody holds the job".to_owned())),
        }
    }

    /// The worker has what was claimed for it, once that is on disk.
    pub(super) fn hold_job(&mut self, worker: WorkerId, key: &AttemptKey, is_told: bool) {
        self.held_jobs.insert(
            key.job,
            JobAssignment {
                worker,
                attempt: key.attempt,
                is_sent: is_told,
                started_at: None,
                leftover_usage: AttemptUsage::default(),
            },
        );
    }

    /// The numbers of the jobs that somebody holds, ascending.
    pub(super) fn held_by(&self, worker: WorkerId) -> Vec<JobId> {
        let mut jobs: Vec<JobId> =
            self.held_jobs.iter().filter(|(_, hold)| hold.worker == worker).map(|(job, _)| *job).collect();
        jobs.sort_unstable();
        jobs
    }
}

/// Whoever comes to be done with a job that elects is where he was when he was given it.
fn load_elected_sites(
    store: &dyn Store,
    state: &mut WorkflowState,
    held: &HashMap<JobId, JobAssignment>,
) -> Result<(), windlass_store::StoreError> {
    if !state.has_units() {
        return Ok(());
    }
    for (id, hold) in held {
        if let Some(job) = state.job_index(*id).filter(|job| state.demand(*job).location.elects) {
            let worker = store.worker(hold.worker)?;
            state.set_job_site(job, worker.and_then(|row| row.worker.site).as_deref());
        }
    }
    Ok(())
}

/// Workers that were given something of the workflow, as far as the books know. Nobody asks where there are no actions.
fn load_joined_workers(
    store: &dyn Store,
    row: &WorkflowRow,
    agenda: &ActionSchedule,
    held: &HashMap<JobId, JobAssignment>,
) -> Result<BTreeSet<WorkerId>, windlass_store::StoreError> {
    let mut joined: BTreeSet<WorkerId> = agenda.states.executing_workers().collect();
    if agenda.states.is_empty() {
        return Ok(joined);
    }
    joined.extend(held.values().map(|hold| hold.worker));
    if agenda.states.has_trigger(ActionTrigger::OnWorkerComplete) {
        let filter = ResultFilter { run: Some(row.run_id), ..ResultFilter::default() };
        joined.extend(store.results(row.id, &filter)?.iter().map(|result| result.worker_id));
    }
    Ok(joined)
}

/// The current run has begun and is not over, and nobody has put the workflow away.
pub(super) fn is_active(row: &WorkflowRow) -> bool {
    row.started_at.is_some() && row.ended_at.is_none() && !row.is_archived && !row.is_canceled
}
