//! One active workflow: its state, its held jobs, and the changes that are not committed yet.

use super::attached_worker::ObservedAttemptEnd;
use super::call_types::{CallError, ReadyJobGroup, WorkflowSnapshot};
use super::exchange_sequence::CommitTicket;
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

/// The state of an active workflow. Discarded and rebuilt from the rows whenever memory and rows may disagree.
pub(super) struct ActiveWorkflow {
    /// Distinguishes this instance from earlier ones of the same workflow.
    pub(super) generation: u64,
    pub(super) row: WorkflowRow,
    pub(super) settings: ExecutionSettings,
    pub(super) state: WorkflowState,
    pub(super) retry_policy: WorkflowRetryPolicy,
    pub(super) held_jobs: HashMap<JobId, AssignedAttempt>,
    pub(super) crash_suspects: CrashSuspects,
    pub(super) actions: ActionSchedule,
    /// Workers that joined it in this run.
    pub(super) joined_workers: BTreeSet<WorkerId>,
    /// The run has begun and not ended.
    pub(super) is_active: bool,
    /// Cancellation was requested.
    pub(super) is_canceled: bool,
    pub(super) open_batch: WorkflowBatch,
    pub(super) in_flight: Option<WorkflowCommit>,
    /// Since when an attached worker's completions are collected for the next commit.
    pub(super) batch_open_since: Option<Instant>,
    /// Attempts on an attached worker have ended, and jobs that they may have added are not looked for yet. They
    /// must be committed together with the ends.
    pub(super) awaits_added_jobs: bool,
    /// Jobs have added others.
    pub(super) has_added_jobs: bool,
    /// The attempts that settled their jobs since the last check for stale added jobs.
    pub(super) ended_attempts: Vec<AttemptKey>,
    /// Represents clients that claim anonymously.
    pub(super) claims_worker: Option<WorkerId>,
    /// Workers without a lease that were alive according to the database when this was loaded.
    pub(super) unleased_workers: HashSet<WorkerId>,
    /// The worker reserved for a suspect that runs alone.
    pub(super) reserved_worker: Option<WorkerId>,
    /// Calls that wait until no commit is under way; while there are any, later calls wait too.
    pub(super) waiting_calls: VecDeque<WaitingCall>,
    /// The rows have changed: it is rebuilt as soon as no commit is under way, and until then calls wait.
    pub(super) is_outdated: bool,
    /// A read or write failed. Until this time nothing new is started.
    pub(super) paused_until: Option<Instant>,
    /// The total wall time of all attempts, including uncommitted ones.
    pub(super) wall_time: Duration,
    /// Its next run has begun, but has not been initialized.
    pub(super) awaits_initialization: bool,
    /// Its job states have been counted for its actions.
    pub(super) are_jobs_counted: bool,
    /// Nothing more can happen without a decision, at the last check.
    pub(super) waits_for_decision: bool,
    /// The number of job groups that were done at the last check.
    pub(super) job_groups_done: u64,
    /// Its part of the gauges: ready and held jobs.
    pub(super) counted_jobs: (usize, usize),
}

/// The context for loading an active workflow.
pub(super) struct WorkflowLoadContext {
    pub(super) generation: u64,
    /// With all rules for failure classes, if there are more than the built-in ones.
    pub(super) classifier: Option<Arc<FailureClassifier>>,
}

/// A job that a worker or client holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AssignedAttempt {
    pub(super) worker: WorkerId,
    pub(super) attempt: Attempt,
    /// It was sent to the worker, so it may have started.
    pub(super) is_sent: bool,
    pub(super) started_at: Option<Timestamp>,
    /// The usage of processes that were ended after their worker process died.
    pub(super) leftover_usage: AttemptUsage,
}

impl AssignedAttempt {
    pub(super) const fn orphaned_attempt(&self) -> OrphanedAttempt {
        OrphanedAttempt { started_at: self.started_at, usage: self.leftover_usage }
    }
}

/// Changes, and their effects after the commit.
#[derive(Default)]
pub(super) struct WorkflowBatch {
    pub(super) changes: Vec<WorkflowChange>,
    /// Claimed jobs; their assignments are read when the batch is submitted.
    pub(super) claimed_jobs: Vec<ClaimedJob>,
    pub(super) assignments: Vec<(WorkerId, Assignment)>,
    /// The reports that caused the changes.
    pub(super) reports: Vec<(WorkerId, AttemptReport)>,
    pub(super) action_reports: Vec<(WorkerId, ActionReport)>,
    /// Actions to start.
    pub(super) action_commands: Vec<(WorkerId, ActionCommand)>,
    /// Exchanges whose replies depend on this commit.
    pub(super) tickets: Vec<CommitTicket>,
    /// Other callers that wait for it.
    pub(super) callbacks: Vec<CommitCallback>,
    /// Lost workers whose jobs are among the changes.
    pub(super) gone_workers: Vec<WorkerId>,
    /// Ends of attempts on an attached worker, for the observer of the run.
    pub(super) attempt_ends: Vec<ObservedAttemptEnd>,
}

/// A claimed job that will be assigned to a worker.
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

/// A batch that was submitted to the store.
pub(super) struct WorkflowCommit {
    pub(super) changes: Arc<[WorkflowChange]>,
    pub(super) batch: WorkflowBatch,
    /// The commit failed because the disk is full or the database is unreachable, and is repeated at this time.
    pub(super) retry_at: Option<Instant>,
}

/// Why a workflow could not be loaded.
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
    /// The error for the caller.
    pub(super) fn to_call_error(&self, workflow: WorkflowId) -> CallError {
        match self {
            Self::NotFound => CallError::NotFound(format!("there is no workflow {workflow}")),
            Self::InvalidRows(why) => CallError::Conflict { code: "cycle", detail: why.clone() },
            Self::Store(error) => store_call_error(error),
        }
    }
}

impl ActiveWorkflow {
    /// Like [`Self::load`], but returns `None` for a workflow that is not active.
    pub(super) fn load_if_active(
        store: &dyn Store,
        id: WorkflowId,
        load_context: WorkflowLoadContext,
    ) -> WorkflowLoadResult {
        match store.workflow(id)? {
            Some(row) if is_active(&row) => {
                Self::load(store, id, load_context).map(|active| Some(Box::new(active)))
            }
            _ => Ok(None),
        }
    }

    /// Loads the complete state of a workflow. Uninitialized jobs stay so.
    pub(super) fn load(
        store: &dyn Store,
        id: WorkflowId,
        load_context: WorkflowLoadContext,
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
        let retry_policy = WorkflowRetryPolicy::load(store, &row, &state, load_context.classifier)?;
        if retry_policy.is_budget_spent() {
            state.on_halt();
        }
        let hold = |held: HeldJob| {
            let (worker, attempt, started_at) = (held.worker, held.attempt, held.started_at);
            // It is unknown whether the claim was sent to the worker.
            (
                held.id,
                AssignedAttempt {
                    worker,
                    attempt,
                    is_sent: true,
                    started_at,
                    leftover_usage: AttemptUsage::default(),
                },
            )
        };
        let held: HashMap<JobId, AssignedAttempt> = store.held_jobs(id)?.into_iter().map(hold).collect();
        load_elected_sites(store, &mut state, &held)?;
        if is_active {
            state.reconcile_units(&mut open.changes);
        }
        let mut alive = store.active_workers(None)?;
        alive.retain(|row| row.worker.kind != WorkerKind::Remote);
        let client_worker =
            alive.iter().find(|row| row.worker.kind == WorkerKind::Claims && row.worker.workflow == Some(id));
        let action_schedule = ActionSchedule::load(store, id)?;
        let joined = load_joined_workers(store, &row, &action_schedule, &held)?;
        Ok(Self {
            generation: load_context.generation,
            settings: ExecutionSettings::from_workflow(&row),
            state,
            retry_policy,
            held_jobs: held,
            crash_suspects: suspects,
            actions: action_schedule,
            joined_workers: joined,
            is_active,
            is_canceled,
            open_batch: open,
            in_flight: None,
            batch_open_since: None,
            awaits_added_jobs: false,
            has_added_jobs: !store.spawning_jobs(id)?.is_empty(),
            ended_attempts: Vec::new(),
            claims_worker: client_worker.map(|row| row.id),
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

    /// The run is active from now on, according to the database.
    pub(super) fn begin_run(&mut self, now: Timestamp) {
        self.is_active = true;
        self.row.started_at = self.row.started_at.or(Some(now));
        self.row.ended_at = None;
        self.row.is_canceled = false;
        self.state.reconcile_units(&mut self.open_batch.changes);
    }

    pub(super) fn id(&self) -> WorkflowId {
        self.row.id
    }

    /// Linear in the number of job groups.
    pub(super) fn snapshot(&self) -> WorkflowSnapshot {
        let ready = self.state.ready_by_demand().map(|(demand, jobs)| ReadyJobGroup {
            jobs: jobs as u64,
            runtime: demand.resources.runtime,
            labels: demand.location.labels.clone(),
        });
        WorkflowSnapshot { ready_jobs: ready.collect(), wall_time: self.wall_time }
    }

    /// Adds the wall time of changes that are being committed.
    pub(super) fn add_wall_time(&mut self, changes: &[WorkflowChange]) {
        for change in changes {
            if let WorkflowChange::End { result, .. } = change {
                self.wall_time = self.wall_time.saturating_add(result.wall);
            }
        }
    }

    /// No commit is under way or waiting.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && self.open_batch.is_empty()
    }

    /// When to retry after an error of the store.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let commit = self.in_flight.as_ref().and_then(|batch| batch.retry_at);
        commit.or(self.paused_until)
    }

    pub(super) fn has_store_problem(&self) -> bool {
        self.retry_at().is_some()
    }

    /// Another caller waits for exclusive access, or the state is outdated: new calls have to wait.
    pub(super) fn is_closing(&self) -> bool {
        self.is_outdated || !self.waiting_calls.is_empty()
    }

    /// Describes who holds jobs or runs actions, for an error message.
    pub(super) fn render_holders(&self) -> Option<String> {
        let (id, jobs, actions) =
            (self.id(), self.held_jobs.len(), self.actions.states.running_actions().count());
        match (jobs, actions) {
            (0, 0) => None,
            (0, _) => Some(format!("{actions} actions of workflow {id} are running")),
            (jobs, _) => Some(format!("{jobs} jobs of workflow {id} are held by workers")),
        }
    }

    /// Whether jobs may be claimed now. Not while a commit is under way: jobs that it makes ready are claimed
    /// with the next one.
    pub(super) fn may_claim(&self) -> bool {
        self.is_active
            && !self.is_canceled
            && self.in_flight.is_none()
            && self.paused_until.is_none()
            && !self.is_closing()
    }

    /// Checks that `worker` holds the job under this key; returns the index of the job. Otherwise the report is
    /// stale.
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
                self.state.job_index(key.job).ok_or_else(|| stale("the job does not exist".to_owned()))
            }
            Some(hold) => {
                let (attempt, holder) = (hold.attempt, hold.worker);
                Err(stale(format!("the job is assigned to worker {holder} in attempt {attempt}")))
            }
            None => Err(stale("the job is not assigned to a worker".to_owned())),
        }
    }

    /// Records that the worker holds a claimed job.
    pub(super) fn hold_job(&mut self, worker: WorkerId, key: &AttemptKey, is_told: bool) {
        self.held_jobs.insert(
            key.job,
            AssignedAttempt {
                worker,
                attempt: key.attempt,
                is_sent: is_told,
                started_at: None,
                leftover_usage: AttemptUsage::default(),
            },
        );
    }

    /// The indices of held jobs, ascending.
    pub(super) fn held_by(&self, worker: WorkerId) -> Vec<JobId> {
        let mut jobs: Vec<JobId> =
            self.held_jobs.iter().filter(|(_, hold)| hold.worker == worker).map(|(job, _)| *job).collect();
        jobs.sort_unstable();
        jobs
    }
}

/// The site of the worker for a job that elects a site: where it was when it got the job.
fn load_elected_sites(
    store: &dyn Store,
    state: &mut WorkflowState,
    held: &HashMap<JobId, AssignedAttempt>,
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

/// Workers that joined the workflow, according to the database. Empty without actions, which need them.
fn load_joined_workers(
    store: &dyn Store,
    row: &WorkflowRow,
    action_schedule: &ActionSchedule,
    held: &HashMap<JobId, AssignedAttempt>,
) -> Result<BTreeSet<WorkerId>, windlass_store::StoreError> {
    let mut joined: BTreeSet<WorkerId> = action_schedule.states.executing_workers().collect();
    if action_schedule.states.is_empty() {
        return Ok(joined);
    }
    joined.extend(held.values().map(|hold| hold.worker));
    if action_schedule.states.has_trigger(ActionTrigger::OnWorkerComplete) {
        let filter = ResultFilter { run: Some(row.run_id), ..ResultFilter::default() };
        joined.extend(store.results(row.id, &filter)?.iter().map(|result| result.worker_id));
    }
    Ok(joined)
}

/// Whether the current run has begun and not ended, and the workflow is not archived.
pub(super) fn is_active(row: &WorkflowRow) -> bool {
    row.started_at.is_some() && row.ended_at.is_none() && !row.is_archived && !row.is_canceled
}
