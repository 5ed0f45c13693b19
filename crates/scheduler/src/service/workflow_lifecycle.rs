//! The life cycle of workflows: loading, start, cancellation, reset, and end.

use super::active_workflow::{ActiveWorkflow, WorkflowLoadError};
use super::call_types::{CallError, CallReply, JobsToReset};
use super::job_commands::awaits_decision_error;
use super::panic_recovery::{SchedulerActivity, catch_load_panic};
use super::scheduler::{Scheduler, store_call_error, unavailable_error};
use super::scheduler_call::CommitCallback;
use super::worker_session::{WorkerSession, worker_selector};
use crate::recovery_at_start::recover_jobs_of_local_runs;
use crate::run_observer::{AttemptEndNotice, RunObserver, RunProgress};
use crate::{SchedulerError, added_jobs};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use windlass_core::change::WorkflowChange;
use windlass_core::workflow_state::{OrphanDecision, OrphanedAttempt};
use windlass_store::StoreError;
use windlass_store::model::{EventSeverity, NewEvent, SpawnRequest, SpawnResult, WorkerKind};
use windlass_types::worker_bounds::FieldOutOfBounds;
use windlass_types::worker_messages::StopReason;
use windlass_types::worker_protocol::StopCommand;
use windlass_types::{AllocationId, JobId, JobStatus, RunId, WorkerId, WorkflowId};

impl Scheduler {
    /// Loads all active state from the database: workers that may return, and workflows that have not ended.
    pub(super) fn load_all(&mut self) -> Result<(), SchedulerError> {
        self.recover_local_runs()?;
        Ok(self.load_rows()?)
    }

    /// Recovers the workflows of local runs that died.
    fn recover_local_runs(&mut self) -> Result<(), StoreError> {
        let Some(host) = self.options.earlier_workers.clone() else { return Ok(()) };
        let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
        let local = self.store.active_workers(None)?.into_iter();
        let local = local.filter(|row| row.worker.kind == WorkerKind::Local);
        let workflows: BTreeSet<WorkflowId> = local.filter_map(|row| row.worker.workflow).collect();
        for workflow in workflows {
            let Some(row) = self.store.workflow(workflow)? else { continue };
            let (classifier, now) = (self.options.classifier.clone(), self.now.timestamp);
            let observer = &mut NoticeLog(workflow);
            if let Err(error) =
                recover_jobs_of_local_runs(&*self.store, &mut *host, observer, &row, classifier, now)
            {
                tracing::warn!(%workflow, %error, "the workflow of an earlier run was not recovered: its jobs stay assigned until its workers are retired");
            }
        }
        Ok(())
    }

    /// Loads all rows without checking processes. Invalid rows are skipped and reported.
    pub(super) fn load_rows(&mut self) -> Result<(), StoreError> {
        self.load_quarantined_nodes()?;
        for row in self.store.active_workers(None)? {
            if let (WorkerKind::Remote, Some(hash)) = (row.worker.kind, &row.worker.secret_hash) {
                if let Err(error) = row.worker.capacity.check(&"capacity") {
                    self.retire_invalid_worker(row.id, &error);
                    continue;
                }
                let lease = self.lease_from_now() + self.options.leadership_overlap;
                let worker = &row.worker;
                let selector = worker_selector(&worker.labels, worker.site.as_deref());
                let mut session =
                    WorkerSession::new(&worker.user, hash.clone(), worker.capacity, selector, lease);
                session.bound_workflow = worker.workflow;
                session.allocation = worker.allocation.map(AllocationId);
                session.is_to_drain = row.is_draining;
                self.sessions.insert(row.id, session);
                self.assign_to_node(row.id, &row.worker.host);
            }
        }
        for workflow in self.store.active_workflows()? {
            if self.workflows.contains_key(&workflow) || self.panic_history.is_disabled(workflow) {
                continue;
            }
            self.activity = SchedulerActivity::for_upkeep(workflow);
            let (store, load_context) = (Arc::clone(&self.store), self.next_load_context());
            let read =
                || ActiveWorkflow::load(&*store, workflow, load_context).map(|active| Some(Box::new(active)));
            match catch_load_panic(workflow, read) {
                Ok(Some(active)) => self.activate(*active),
                // The other workflows are served meanwhile.
                Err(WorkflowLoadError::Store(error)) => {
                    tracing::warn!(%workflow, %error, "a workflow cannot be read yet; trying again");
                    self.suspend_and_load(workflow, true);
                }
                // Calls for it get the error.
                Err(WorkflowLoadError::InvalidRows(why)) => {
                    tracing::error!(%workflow, why, "a workflow cannot be loaded and is skipped");
                }
                Ok(None) | Err(WorkflowLoadError::NotFound) => {}
            }
        }
        Ok(())
    }

    /// Reports and retires the invalid row of a worker; its jobs run again. If the worker lives it registers
    /// again, and is rejected for the same reason.
    fn retire_invalid_worker(&mut self, worker: WorkerId, error: &FieldOutOfBounds) {
        tracing::error!(%worker, %error, "the row of a worker is invalid; the worker is considered lost");
        let event = NewEvent {
            workflow: None,
            job: None,
            severity: EventSeverity::Error,
            category: "worker_lost".to_owned(),
            message: format!("worker {worker} is considered lost: its row is invalid: {error}"),
            data: Some(serde_json::json!({ "worker_id": worker, "field": error.field })),
        };
        self.stale_report_writer.record(event, self.now.timestamp);
        // Retired after the changes of its jobs are committed.
        self.pending_retirements.entry(worker).or_default();
    }

    /// Begins or continues the current run, and opens it for workers.
    pub(super) fn on_start(&mut self, workflow: WorkflowId, by: &str, reply: CallReply<RunId>) {
        match self.start_workflow(workflow, by) {
            Ok(run) => self.reply_when_committed(workflow, reply, run),
            Err(why) => reply(Err(why)),
        }
    }

    fn start_workflow(&mut self, workflow: WorkflowId, by: &str) -> Result<RunId, CallError> {
        let active = self.open_workflow(workflow)?;
        if active.row.is_archived {
            let detail = format!("workflow {workflow} is archived; take it out of the archive first");
            return Err(CallError::Conflict { code: "workflow_archived", detail });
        }
        let is_over = active.row.ended_at.is_some() || active.row.is_canceled;
        if is_over && !active.is_active {
            let detail =
                format!("run {} of workflow {workflow} has ended; reset it to run again", active.row.run_id);
            return Err(CallError::Conflict { code: "workflow_over", detail });
        }
        let run = self.start_run(workflow, by)?;
        self.initialize_jobs(workflow)?;
        Ok(run)
    }

    /// Initializes the uninitialized jobs.
    pub(super) fn initialize_jobs(&mut self, workflow: WorkflowId) -> Result<(), CallError> {
        let active = self.open_workflow(workflow)?;
        active.state.on_initialize_rest(&mut active.open_batch.changes);
        Ok(())
    }

    /// Records that the run is active, if it is not. Must come before any changes of jobs: an active run
    /// without work ends by itself, but ready jobs of an ended run would never be claimed.
    pub(super) fn start_run(&mut self, workflow: WorkflowId, by: &str) -> Result<RunId, CallError> {
        self.continue_workflow(workflow, by)?;
        let (store, now) = (self.store.acting_as(by), self.now.timestamp);
        let active = self.open_workflow(workflow)?;
        let run = active.row.run_id;
        active.awaits_initialization = false;
        if !active.is_active {
            store.begin_run(workflow, now).map_err(|error| store_call_error(&error))?;
            active.begin_run(now);
            self.notify_bound_workers(workflow);
            self.notify_commit();
            self.notify_workflow_change(workflow);
        }
        Ok(run)
    }

    /// As in the contract: with `only_uninitialized`, the dependents of reset jobs are reset as well, and then
    /// all uninitialized jobs become ready or blocked. Without it, every unsettled job starts over.
    pub(super) fn on_initialize(
        &mut self,
        workflow: WorkflowId,
        only_uninitialized: bool,
        clear_ephemeral: bool,
        by: &str,
        reply: CallReply<()>,
    ) {
        if clear_ephemeral
            && let Err(error) = self.store.acting_as(by).clear_ephemeral_data(workflow, self.now.timestamp)
        {
            return reply(Err(store_call_error(&error)));
        }
        let chosen = move |status: JobStatus| match status {
            JobStatus::Uninitialized => true,
            JobStatus::Terminated | JobStatus::PendingFailed => !only_uninitialized,
            _ => false,
        };
        let begun = self
            .check_nothing_held(workflow)
            .and_then(|()| self.check_selection_decided(workflow, &chosen))
            .and_then(|()| self.start_run(workflow, by));
        match begun.and_then(|_| self.reset_chosen_jobs(workflow, &chosen, true)) {
            Ok(_) => {
                let by = by.to_owned();
                let then = move |scheduler: &mut Self| {
                    scheduler.reset_actions(workflow, !only_uninitialized, &by)?;
                    scheduler.initialize_jobs(workflow)
                };
                self.call_after_reload(workflow, Box::new(then), reply);
            }
            Err(why) => reply(Err(why)),
        }
    }

    fn check_nothing_held(&mut self, workflow: WorkflowId) -> Result<(), CallError> {
        match self.open_workflow(workflow)?.render_holders() {
            None => Ok(()),
            Some(detail) => Err(CallError::Conflict { code: "workflow_active", detail }),
        }
    }

    /// Resets jobs and, with `with_dependents`, their dependents. Returns their number.
    fn reset_chosen_jobs(
        &mut self,
        workflow: WorkflowId,
        is_chosen: &dyn Fn(JobStatus) -> bool,
        with_dependents: bool,
    ) -> Result<u64, CallError> {
        self.check_nothing_held(workflow)?;
        let chosen = self.open_workflow(workflow)?.state.jobs_with_status(is_chosen);
        self.reset_decided_jobs(workflow, &chosen, with_dependents)
    }

    fn check_selection_decided(
        &mut self,
        workflow: WorkflowId,
        is_chosen: &dyn Fn(JobStatus) -> bool,
    ) -> Result<(), CallError> {
        let chosen = self.open_workflow(workflow)?.state.jobs_with_status(is_chosen);
        self.check_decided(workflow, &chosen)
    }

    fn check_decided(&mut self, workflow: WorkflowId, chosen: &[u32]) -> Result<(), CallError> {
        let state = &self.open_workflow(workflow)?.state;
        let undecided = chosen.iter().find(|job| state.status(**job) == JobStatus::PendingFailed);
        undecided.map_or(Ok(()), |job| Err(awaits_decision_error(state.attempt_key(*job).job)))
    }

    /// Resets jobs, unless one of them awaits a decision.
    fn reset_decided_jobs(
        &mut self,
        workflow: WorkflowId,
        chosen: &[u32],
        with_dependents: bool,
    ) -> Result<u64, CallError> {
        self.check_decided(workflow, chosen)?;
        self.reset_and_reload(workflow, chosen, false, with_dependents)
    }

    /// Makes jobs run again; the state is rebuilt after the commit.
    pub(super) fn reset_and_reload(
        &mut self,
        workflow: WorkflowId,
        chosen: &[u32],
        to_ready: bool,
        with_dependents: bool,
    ) -> Result<u64, CallError> {
        let store = Arc::clone(&self.store);
        let active = self.open_workflow(workflow)?;
        if !active.is_quiet() {
            return Err(unavailable_error("a commit of this workflow is under way"));
        }
        let held = |job| {
            let detail = format!("job {} is being worked on", active.state.attempt_key(job).job);
            CallError::Conflict { code: "job_active", detail }
        };
        let plan = |done: &_| active.state.plan_rerun(chosen, to_ready, with_dependents, done).map_err(held);
        // Earlier attempts are looked up only for jobs that start over.
        let anew = plan(&HashMap::default())?.changes.into_iter().filter_map(|change| match change {
            WorkflowChange::Reset { job, .. } => Some(job),
            _ => None,
        });
        let done =
            super::job_commands::load_finished_attempts(&*store, &active.row, &anew.collect::<Vec<_>>())?;
        let again = plan(&done)?;
        if !again.changes.is_empty() {
            let units = active.state.unit_changes_after(&again.changes);
            active.open_batch.changes = again.changes;
            active.open_batch.changes.extend(units);
            active.is_outdated = true;
        }
        Ok(again.count)
    }

    /// Calls `then` after all changes are committed and the workflow is reloaded, and replies when the result
    /// is committed.
    pub(super) fn call_after_reload(
        &mut self,
        workflow: WorkflowId,
        then: ReloadCallback,
        reply: CallReply<()>,
    ) {
        let needs_commit = self.find_workflow(workflow).is_some_and(|active| !active.open_batch.is_empty());
        if !needs_commit {
            match then(self) {
                Ok(()) => self.reply_when_committed(workflow, reply, ()),
                Err(why) => reply(Err(why)),
            }
            return;
        }
        self.reload_callbacks.push((workflow, then, reply));
    }

    /// Runs the callbacks that waited for the reload.
    pub(super) fn run_reload_callbacks(&mut self, workflow: WorkflowId) {
        for (then, reply) in self.take_reload_callbacks(workflow) {
            match then(self) {
                Ok(()) => self.reply_when_committed(workflow, reply, ()),
                Err(why) => reply(Err(why)),
            }
        }
    }

    pub(super) fn take_reload_callbacks(
        &mut self,
        workflow: WorkflowId,
    ) -> Vec<(ReloadCallback, CallReply<()>)> {
        let (mine, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.reload_callbacks).into_iter().partition(|(id, ..)| *id == workflow);
        self.reload_callbacks = others;
        mine.into_iter().map(|(_, then, reply)| (then, reply)).collect()
    }

    /// Replies with `value` after all changes so far are committed.
    pub(super) fn reply_when_committed<T: Send + 'static>(
        &mut self,
        workflow: WorkflowId,
        reply: CallReply<T>,
        value: T,
    ) {
        self.dirty_workflows.insert(workflow);
        match self.find_workflow(workflow) {
            Some(active) => {
                let told: CommitCallback = Box::new(move |result| reply(result.map(|()| value)));
                active.open_batch.callbacks.push(told);
            }
            None => reply(Ok(value)),
        }
    }

    /// Cancels a workflow: no more claims, and the workers with its jobs are told at once.
    pub(super) fn on_cancel(&mut self, workflow: WorkflowId, by: &str, reply: CallReply<()>) {
        match self.cancel_workflow(workflow, by) {
            Ok(()) => self.reply_when_committed(workflow, reply, ()),
            Err(why) => reply(Err(why)),
        }
    }

    fn cancel_workflow(&mut self, workflow: WorkflowId, by: &str) -> Result<(), CallError> {
        let (store, now) = (self.store.acting_as(by), self.now.timestamp);
        let active = self.open_workflow(workflow)?;
        if active.is_canceled || active.row.is_canceled {
            return Ok(());
        }
        if !active.is_active && active.row.ended_at.is_some() {
            let detail = format!("run {} of workflow {workflow} has ended", active.row.run_id);
            return Err(CallError::Conflict { code: "workflow_over", detail });
        }
        store.request_cancel(workflow, now).map_err(|error| store_call_error(&error))?;
        self.start_run(workflow, by)?;
        self.cancel_jobs(workflow);
        Ok(())
    }

    /// Stops claims of a canceled workflow, and all that workers have of it.
    pub(super) fn cancel_jobs(&mut self, workflow: WorkflowId) {
        let Some(active) = self.find_workflow(workflow) else { return };
        active.is_canceled = true;
        active.state.on_cancel();
        let mut held: Vec<_> = active.held_jobs.iter().map(|(job, hold)| (*job, *hold)).collect();
        held.sort_unstable_by_key(|(job, _)| *job);
        for worker in self.cancel_actions(workflow) {
            self.stop_on_worker(worker, workflow, StopReason::Canceled);
        }
        for (job, hold) in held {
            if self.sessions.contains_key(&hold.worker) {
                self.stop_on_worker(hold.worker, workflow, StopReason::Canceled);
            } else {
                self.cancel_external_job(workflow, job, hold.worker);
            }
        }
        self.dirty_workflows.insert(workflow);
    }

    /// Orders the worker to stop all it has of a workflow.
    fn stop_on_worker(&mut self, worker: WorkerId, workflow: WorkflowId, why: StopReason) {
        let grace = self.options.grace;
        let Some(session) = self.sessions.get_mut(&worker) else { return };
        if session.outbox.stops.iter().all(|stop| stop.workflow != workflow) {
            session.outbox.stops.push(StopCommand { workflow, attempts: Vec::new(), why, grace });
        }
        self.dirty_workers.insert(worker);
        // Unsent assignments never start.
        let mate_held: Vec<_> = self
            .sessions
            .get(&worker)
            .map(|session| session.held_jobs.clone())
            .into_iter()
            .flatten()
            .collect();
        for (job, _) in mate_held.into_iter().filter(|(_, id)| *id == workflow) {
            let Some(active) = self.find_workflow(workflow) else { return };
            let is_unannounced =
                active.held_jobs.get(&job).is_some_and(|hold| !hold.is_sent && hold.worker == worker);
            // Claims under way to the disk are returned after their commit.
            let claimed = active.in_flight.as_ref().is_some_and(|batch| {
                batch.batch.assignments.iter().any(|(_, assignment)| assignment.key.job == job)
            });
            let Some(number) = active.state.job_index(job).filter(|_| is_unannounced && !claimed) else {
                continue;
            };
            active.held_jobs.remove(&job);
            if let Some(session) = self.sessions.get_mut(&worker) {
                session.release_job(job);
            }
            self.orphan_job(
                workflow,
                number,
                worker,
                OrphanDecision::NeverStarted,
                OrphanedAttempt::default(),
            );
        }
    }

    /// Begins the next run; remaining jobs start at attempt 1. This alone resets no jobs.
    pub(super) fn on_reset_status(
        &mut self,
        workflow: WorkflowId,
        force: bool,
        by: &str,
        reply: CallReply<RunId>,
    ) {
        reply(self.reset_workflow(workflow, force, by));
    }

    fn reset_workflow(&mut self, workflow: WorkflowId, force: bool, by: &str) -> Result<RunId, CallError> {
        let active = self.open_workflow(workflow)?;
        if let Some(detail) = active.render_holders() {
            let hint = if force { "; cancel it first" } else { "" };
            return Err(CallError::Conflict { code: "workflow_active", detail: format!("{detail}{hint}") });
        }
        if !active.is_quiet() {
            return Err(unavailable_error("a commit of this workflow is under way"));
        }
        let (store, now) = (self.store.acting_as(by), self.now.timestamp);
        let run = store.begin_next_run(workflow, &[], now).map_err(|error| store_call_error(&error))?;
        let active = self.open_workflow(workflow)?;
        active.awaits_initialization = true;
        self.reload_workflow(workflow);
        self.notify_bound_workers(workflow);
        self.notify_workflow_change(workflow);
        Ok(run)
    }

    /// Resets jobs; their dependents follow when the workflow is initialized.
    pub(super) fn on_reset_jobs(
        &mut self,
        workflow: WorkflowId,
        which: &JobsToReset,
        _by: &str,
        reply: CallReply<u64>,
    ) {
        let outcome = match which {
            JobsToReset::All => {
                self.reset_chosen_jobs(workflow, &|status| status != JobStatus::Disabled, false)
            }
            JobsToReset::Failed => self.reset_chosen_jobs(
                workflow,
                &|status| status.is_unsuccessful() || status == JobStatus::PendingFailed,
                false,
            ),
            JobsToReset::Jobs(jobs) => self
                .find_job_indices(workflow, jobs)
                .and_then(|chosen| self.reset_decided_jobs(workflow, &chosen, false)),
        };
        match outcome {
            Ok(count) => self.reply_when_committed(workflow, reply, count),
            Err(why) => reply(Err(why)),
        }
    }

    fn find_job_indices(&mut self, workflow: WorkflowId, jobs: &[JobId]) -> Result<Vec<u32>, CallError> {
        let active = self.open_workflow(workflow)?;
        let number = |job: &JobId| {
            active.state.job_index(*job).ok_or_else(|| CallError::NotFound(format!("there is no job {job}")))
        };
        jobs.iter().map(number).collect()
    }

    /// Tells the workers bound to this workflow whether they are still needed.
    pub(super) fn notify_bound_workers(&mut self, workflow: WorkflowId) {
        let bound = |(id, session): (&WorkerId, &WorkerSession)| {
            (session.bound_workflow == Some(workflow)).then_some(*id)
        };
        for worker in self.sessions.iter().filter_map(bound).collect::<Vec<_>>() {
            self.dismiss_if_unneeded(worker);
        }
    }

    /// Ends a workflow whose jobs are all settled, or that was canceled and has no held jobs.
    pub(super) fn finish_if_over(&mut self, workflow: WorkflowId) {
        if self.local_run.is_some() {
            // Its host ends it, after a last look for commands.
            return;
        }
        let (store, now) = (Arc::clone(&self.store), self.now.timestamp);
        let Some(active) = self.find_workflow(workflow) else { return };
        if !active.is_quiet()
            || !active.held_jobs.is_empty()
            || active.is_closing()
            || active.has_store_problem()
        {
            return;
        }
        let is_ending = active.is_active && (active.is_canceled || active.state.is_finished());
        if is_ending && self.waits_for_actions(workflow) {
            return;
        }
        let Some(active) = self.find_workflow(workflow) else { return };
        if is_ending {
            let canceled = active.is_canceled;
            if let Err(error) = store.end_run(workflow, canceled, now) {
                return self.on_store_error(workflow, error);
            }
            active.is_active = false;
        }
        if !active.is_active {
            let figures = active.counted_jobs;
            self.gauges.record_workflow_jobs(figures, (0, 0));
            self.workflows.remove(&workflow);
            self.sessions.values_mut().for_each(|session| session.forget_workflow(workflow));
            self.groups.remove_workflow(workflow);
            self.notify_bound_workers(workflow);
            self.notify_commit();
            self.notify_workflow_change(workflow);
        }
    }

    /// Drops jobs that ended jobs had added before and did not request again.
    pub(super) fn drop_stale_added_jobs(&mut self, workflow: WorkflowId) {
        let store = Arc::clone(&self.store);
        let Some(active) = self.find_workflow(workflow) else { return };
        if !active.has_added_jobs {
            active.ended_attempts.clear();
        }
        if active.ended_attempts.is_empty() || active.has_store_problem() {
            return;
        }
        match added_jobs::drop_stale_added_jobs(
            &*store,
            &active.ended_attempts,
            &mut active.state,
            &mut active.open_batch.changes,
        ) {
            Ok(()) => active.ended_attempts.clear(),
            Err(error) => self.on_store_error(workflow, error),
        }
    }

    /// Adds jobs of a running job to its workflow.
    pub(super) fn on_spawn(&mut self, request: &SpawnRequest, reply: CallReply<SpawnResult>) {
        let workflow = request.caller.workflow;
        match self.spawn_jobs(workflow, request) {
            Ok(spawned) => self.reply_when_committed(workflow, reply, spawned),
            Err(why) => reply(Err(why)),
        }
    }

    fn spawn_jobs(&mut self, workflow: WorkflowId, request: &SpawnRequest) -> Result<SpawnResult, CallError> {
        let (store, now) = (Arc::clone(&self.store), self.now.timestamp);
        self.open_workflow(workflow)?;
        let spawned = store.spawn_jobs(request, now).map_err(|error| store_call_error(&error))?;
        let active = self.open_workflow(workflow)?;
        match added_jobs::insert_added_jobs(
            &*store,
            workflow,
            &mut active.state,
            &mut active.open_batch.changes,
        ) {
            Ok(_) => active.has_added_jobs = true,
            // They are in the database; the workflow state inserts them from there.
            Err(error) => {
                active.is_outdated = true;
                self.on_store_error(workflow, error);
            }
        }
        Ok(spawned)
    }
}

/// Logs what the recovery of a workflow found.
struct NoticeLog(WorkflowId);

impl RunObserver for NoticeLog {
    fn on_progress(&mut self, _progress: &RunProgress) {}

    fn on_attempt_ended(&mut self, _end: &AttemptEndNotice<'_>) {}

    fn on_notice(&mut self, text: &str) {
        tracing::warn!(workflow = %self.0, "{text}");
    }
}

/// Called after a workflow is reloaded.
pub(super) type ReloadCallback = Box<dyn FnOnce(&mut Scheduler) -> Result<(), CallError> + Send>;
