//! Catches panics in the scheduler: the event that caused one is logged and rejected, and the state in memory
//! is rebuilt from the rows, as at the start of a server.
//!
//! Uncommitted decisions are discarded: they include what the panic left half done. Reports that are not in the
//! rows are repeated by the workers, because they were not confirmed: every worker has to register again with
//! the attempts it holds. A report that caused a panic is not applied again. Its attempt counts as lost with
//! its worker, so the job runs again, and is failed if that happens repeatedly.

use super::active_workflow::{ActiveWorkflow, WorkflowLoadError};
use super::call_types::CallError;
use super::event_queue::EventQueue;
use super::lost_workers::WorkerLossCause;
use super::node_quarantine::NodeRegistry;
use super::scheduler::{STORE_RETRY_DELAY, Scheduler, WorkflowSlot, store_call_error, unavailable_error};
use super::scheduler_call::{DeferredReply, SchedulerCall, SchedulerEvent};
use super::suspended_workflow::WorkflowLoadResult;
use super::worker_groups::WorkerGroups;
use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use windlass_core::crash_suspects::CrashEvidence;
use windlass_core::workflow_state::StaleAttemptReport;
use windlass_store::Store;
use windlass_store::model::{EventSeverity, NewEvent};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobId, WorkerId, WorkflowId};

/// After this number of panics in the upkeep of one workflow it is disabled until the server restarts.
const MAX_WORKFLOW_PANICS: u32 = 3;
/// After this number of panics without a successful round in between the scheduler gives up.
const MAX_CONSECUTIVE_PANICS: u32 = 20;
/// The number of rejected reports remembered.
const MAX_REJECTED_REPORTS: usize = 10_000;
/// How long commits under way are waited for before the rows are read.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The current activity of the scheduler: cheap to record, and logged when it panics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SchedulerActivity {
    pub(super) description: &'static str,
    pub(super) workflow: Option<WorkflowId>,
    pub(super) job: Option<JobId>,
    pub(super) worker: Option<WorkerId>,
    /// The report that is being applied.
    pub(super) report: Option<AttemptKey>,
}

impl SchedulerActivity {
    pub(super) fn for_upkeep(workflow: WorkflowId) -> Self {
        Self { description: "upkeep", workflow: Some(workflow), ..Self::default() }
    }

    /// Whether no single event is the cause, but the workflow itself.
    fn is_upkeep(&self) -> bool {
        ["upkeep", "committed", "rows_read"].contains(&self.description)
    }

    pub(super) fn for_report(worker: WorkerId, key: &AttemptKey) -> Self {
        let (workflow, job) = (Some(key.workflow), Some(key.job));
        Self { description: "report", workflow, job, worker: Some(worker), report: Some(*key) }
    }

    fn for_call(call: &SchedulerCall) -> Self {
        Self {
            description: call.name(),
            workflow: match call {
                SchedulerCall::Exchange { .. } | SchedulerCall::RegisterWorker { .. } => None,
                _ => call.workflows().first().copied(),
            },
            job: call.job(),
            worker: call.exchange_number().map(|(worker, _)| worker),
            report: None,
        }
    }

    pub(super) fn for_event(event: &SchedulerEvent) -> Self {
        match event {
            SchedulerEvent::Call(call) => Self::for_call(call),
            SchedulerEvent::Committed { workflow, .. } => {
                Self { description: "committed", workflow: Some(*workflow), ..Self::default() }
            }
            SchedulerEvent::ExclusiveWorkDone { workflow, .. } => {
                Self { description: "rows_read", workflow: Some(*workflow), ..Self::default() }
            }
            SchedulerEvent::CheckTime(_) | SchedulerEvent::Stop(_) | SchedulerEvent::Local(_) => {
                Self { description: "stop", ..Self::default() }
            }
        }
    }
}

/// The record of earlier panics.
#[derive(Default)]
pub(super) struct PanicHistory {
    consecutive: u32,
    by_workflow: HashMap<WorkflowId, u32>,
    rejected_reports: HashSet<(WorkerId, AttemptKey)>,
    /// The state has to be rebuilt, and could not be yet.
    is_reload_due: bool,
    /// Events that arrived while the state was rebuilt.
    pub(super) waiting_events: VecDeque<SchedulerEvent>,
    /// Batches without a result from the store.
    pub(super) unanswered_batches: usize,
}

impl PanicHistory {
    pub(super) fn record_successful_round(&mut self) {
        self.consecutive = 0;
    }

    /// Whether the workflow is disabled, because its upkeep panicked repeatedly.
    pub(super) fn is_disabled(&self, workflow: WorkflowId) -> bool {
        self.by_workflow.get(&workflow).is_some_and(|times| *times >= MAX_WORKFLOW_PANICS)
    }
}

/// Runs `work`; returns the text of a panic as an error.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| render_panic(&*payload))
}

/// Like [`ActiveWorkflow::load`]; a panic because of its rows is a load error.
pub(super) fn catch_load_panic(
    workflow: WorkflowId,
    read: impl FnOnce() -> WorkflowLoadResult,
) -> WorkflowLoadResult {
    catch_panic(read).unwrap_or_else(|panic| {
        tracing::error!(%workflow, panic, "loading the rows of a workflow caused a panic; the workflow is skipped");
        Err(WorkflowLoadError::InvalidRows(format!(
            "the rows of workflow {workflow} cannot be loaded: {panic}"
        )))
    })
}

fn render_panic(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

impl Scheduler {
    /// Like [`Scheduler::load_all`], but survives panics caused by rows.
    pub(super) fn load_at_start(&mut self) -> Result<(), crate::SchedulerError> {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.load_all())) {
                Ok(outcome) => {
                    self.panic_history.is_reload_due = false;
                    return outcome;
                }
                Err(payload) => {
                    if let Err(payload) = self.on_panic(payload) {
                        resume_unwind(payload);
                    }
                    self.clear_state();
                }
            }
        }
    }

    /// Handles a panic of the scheduler. `Err`: too many, the panic is resumed.
    pub(super) fn on_panic(&mut self, payload: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>> {
        let activity = std::mem::take(&mut self.activity);
        let panic = render_panic(&*payload);
        let SchedulerActivity { description: what, workflow, job, worker, .. } = activity;
        let id = |id: Option<i64>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        tracing::error!(
            event = what,
            workflow = id(workflow.map(|id| id.0)),
            job = id(job.map(|id| id.0)),
            worker = id(worker.map(|id| id.0)),
            panic,
            "the scheduler panicked; the event is rejected, and the state is rebuilt from the database"
        );
        self.panic_history.consecutive += 1;
        if self.panic_history.consecutive > MAX_CONSECUTIVE_PANICS {
            return Err(payload);
        }
        self.reject_reports(&activity);
        self.record_panic(&activity, &panic);
        self.panic_history.is_reload_due = true;
        Ok(())
    }

    /// Rejects the cause: the report itself, or all reports that were to be committed together.
    fn reject_reports(&mut self, activity: &SchedulerActivity) {
        let mut causes: Vec<(WorkerId, AttemptKey)> =
            activity.worker.zip(activity.report).into_iter().collect();
        if let Some(workflow) = activity.workflow.as_ref().filter(|_| activity.is_upkeep()) {
            if let Some(active) = self.find_workflow(*workflow) {
                let heard = active
                    .open_batch
                    .reports
                    .iter()
                    .chain(active.in_flight.iter().flat_map(|batch| &batch.batch.reports));
                causes.extend(heard.map(|(worker, report)| (*worker, *report.key())));
            }
            *self.panic_history.by_workflow.entry(*workflow).or_default() += 1;
        }
        if self.panic_history.rejected_reports.len() + causes.len() > MAX_REJECTED_REPORTS {
            self.panic_history.rejected_reports.clear();
        }
        self.panic_history.rejected_reports.extend(causes);
    }

    fn record_panic(&self, activity: &SchedulerActivity, panic: &str) {
        let SchedulerActivity { description: what, workflow, job, worker, .. } = *activity;
        let is_left_alone = workflow.is_some_and(|id| self.panic_history.is_disabled(id));
        let then = if is_left_alone { "; the workflow is disabled until the server restarts" } else { "" };
        let event = NewEvent {
            workflow,
            job,
            severity: EventSeverity::Error,
            category: "scheduler_panic".to_owned(),
            message: format!("the scheduler rejected an event ({what}) that caused a panic: {panic}{then}"),
            data: Some(serde_json::json!({ "event": what, "worker_id": worker, "panic": panic })),
        };
        self.stale_report_writer.record(event, self.now.timestamp);
    }

    /// Whether this report caused a panic. If so its attempt is lost.
    pub(super) fn is_rejected(
        &mut self,
        worker: WorkerId,
        key: &AttemptKey,
    ) -> Result<(), StaleAttemptReport> {
        if self.panic_history.rejected_reports.is_empty()
            || !self.panic_history.rejected_reports.remove(&(worker, *key))
        {
            return Ok(());
        }
        let is_running = self.sessions.get(&worker).is_some_and(|session| session.usage.is_running(key.job));
        if self.find_workflow(key.workflow).is_some_and(|active| active.check_fencing(worker, key).is_ok()) {
            self.orphan_held_job(
                key.workflow,
                key.job,
                worker,
                is_running,
                WorkerLossCause::Died(CrashEvidence::Observed),
            );
            if let Some(session) = self.sessions.get_mut(&worker) {
                session.release_job(key.job);
            }
        }
        Err(StaleAttemptReport {
            key: *key,
            found: "the report caused an internal error of the server".to_owned(),
        })
    }

    /// Rebuilds the state if that is due. `false`: it failed, and nothing else is done before.
    pub(super) fn reload_if_due(&mut self, inbox: &mut EventQueue) -> bool {
        if !self.panic_history.is_reload_due {
            return true;
        }
        self.await_batches(inbox);
        self.clear_state();
        match self.reload_all() {
            Ok(()) => self.panic_history.is_reload_due = false,
            Err(error) => {
                tracing::error!(%error, "the state cannot be rebuilt; trying again");
                if let Some(event) = inbox.next_event(Some(Instant::now() + STORE_RETRY_DELAY)) {
                    self.panic_history.waiting_events.push_back(event);
                }
            }
        }
        !self.panic_history.is_reload_due
    }

    /// Waits for commits under way before the rows are read, and replies to callers that wait for them.
    fn await_batches(&mut self, inbox: &mut EventQueue) {
        let deadline = Instant::now() + COMMIT_TIMEOUT;
        while self.panic_history.unanswered_batches > 0 {
            match inbox.next_event(Some(deadline)) {
                Some(SchedulerEvent::Committed { workflow, generation, result }) => {
                    self.panic_history.unanswered_batches -= 1;
                    self.gauges.record_batch_answered(true, self.now.timestamp);
                    let active =
                        self.find_workflow(workflow).filter(|active| active.generation == generation);
                    let batch = active.and_then(|active| active.in_flight.take());
                    for callback in batch.into_iter().flat_map(|batch| batch.batch.callbacks) {
                        callback(result.as_ref().copied().map_err(store_call_error));
                    }
                }
                Some(event) => self.panic_history.waiting_events.push_back(event),
                None => break,
            }
        }
        self.panic_history.unanswered_batches = 0;
    }

    /// Clears all state that follows from the rows. Workflows with exclusive work stay suspended.
    fn clear_state(&mut self) {
        let open =
            |(id, slot): (&WorkflowId, &WorkflowSlot)| matches!(slot, WorkflowSlot::Active(_)).then_some(*id);
        for workflow in self.workflows.iter().filter_map(open).collect::<Vec<_>>() {
            if let Some(WorkflowSlot::Active(active)) = self.workflows.remove(&workflow) {
                self.reject_waiting(*active);
            }
            for (then, reply) in self.take_reload_callbacks(workflow) {
                reply(Err(panic_error()));
                // If the change before it is on disk, it must still be completed.
                self.reload_callbacks.push((workflow, then, Box::new(drop)));
            }
        }
        for (_, mut session) in self.sessions.drain() {
            for reply in session.exchanges.reset() {
                reply(Err(super::worker_exchange::unknown_worker_error()));
            }
        }
        (self.groups, self.nodes) = (WorkerGroups::default(), NodeRegistry::default());
        self.dirty_workflows.clear();
        self.dirty_workers.clear();
        self.workflows_with_actions.clear();
        self.workflows_with_waiting_suspect.clear();
        self.workflows_with_delayed_jobs.clear();
        self.pending_retirements.clear();
        self.last_lease_expiry = None;
        let slots = &self.workflows;
        self.workflows_to_retry.retain(|workflow| slots.contains_key(workflow));
        self.awaited_workflows.retain(|workflow| slots.contains_key(workflow));
    }

    /// Rejects the calls that wait for a discarded workflow.
    fn reject_waiting(&self, active: ActiveWorkflow) {
        self.gauges.record_workflow_jobs(active.counted_jobs, (0, 0));
        let in_flight = active.in_flight.map(|batch| batch.batch);
        for callback in in_flight.into_iter().chain([active.open_batch]).flat_map(|decided| decided.callbacks)
        {
            callback(Err(panic_error()));
        }
        for waiting in active.waiting_calls {
            waiting.refuse(panic_error());
        }
    }

    fn reload_all(&mut self) -> Result<(), windlass_store::StoreError> {
        self.now = self.options.clock.now();
        self.load_rows()?;
        let waiting: Vec<WorkflowId> = self.reload_callbacks.iter().map(|(workflow, ..)| *workflow).collect();
        for workflow in waiting {
            if self.find_workflow(workflow).is_some() {
                self.run_reload_callbacks(workflow);
            }
        }
        self.notify_commit();
        Ok(())
    }
}

/// Runs exclusive work, then reads the rows; catches panics of both.
pub(super) fn run_exclusive_work(
    workflow: WorkflowId,
    work: super::scheduler_call::ExclusiveWork,
    store: &dyn Store,
    read: impl FnOnce() -> WorkflowLoadResult,
) -> (Option<DeferredReply>, WorkflowLoadResult) {
    let answer = catch_panic(move || work(Ok(store)));
    if let Err(panic) = &answer {
        tracing::error!(%workflow, panic, "exclusive work on a workflow caused a panic; it is rejected");
    }
    (answer.ok(), catch_load_panic(workflow, read))
}

pub(super) fn panic_error() -> CallError {
    unavailable_error(
        "the scheduler had an internal error and has reloaded the database; see the log of the server",
    )
}
