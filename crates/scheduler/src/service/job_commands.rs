//! Clients that claim, start and complete jobs themselves, and commands of users about single jobs.
//!
//! Claims without a worker are held by a worker row that represents all such clients; starting a job transfers
//! it to the compute node that runs it. Neither has a lease: they hold their jobs until a call ends that.

use super::active_workflow::ActiveWorkflow;
use super::call_types::{CallError, CallReply, ClaimRequest, JobCompletion, NodeCapacityOffer};
use super::metrics::add_to_gauge;
use super::scheduler::{Scheduler, store_call_error, unavailable_error};
use super::scheduler_call::CompletionResults;
use std::collections::HashMap;
use windlass_core::change::WorkflowChange;
use windlass_core::dispatch::{ClaimLimits, WorkerSelector, WorkerUsage};
use windlass_core::workflow_state::{ClientAttemptEnd, OrphanDecision, OrphanedAttempt};
use windlass_store::Store;
use windlass_store::model::{NewWorker, ResultFilter, WorkerFilter, WorkerKind, WorkflowRow};
use windlass_types::worker_messages::{AttemptUsage, return_code};
use windlass_types::{Attempt, JobId, JobStatus, RunId, WorkerId, WorkflowId};

/// The return code of a canceled attempt whose end no worker reports: as if it had received SIGTERM.
const CANCELED_RETURN_CODE: i32 = 143;

impl Scheduler {
    pub(super) fn on_claim(
        &mut self,
        workflow: WorkflowId,
        request: &ClaimRequest,
        reply: CallReply<Vec<JobId>>,
    ) {
        match self.claim_jobs(workflow, request) {
            Ok(jobs) => self.reply_when_committed(workflow, reply, jobs),
            Err(why) => reply(Err(why)),
        }
    }

    fn claim_jobs(&mut self, workflow: WorkflowId, request: &ClaimRequest) -> Result<Vec<JobId>, CallError> {
        let active = self.open_workflow(workflow)?;
        if active.has_store_problem() {
            return Err(unavailable_error("the database cannot be written at the moment"));
        }
        if !active.is_active || active.is_canceled || !active.state.has_ready() || request.limit == 0 {
            return Ok(Vec::new());
        }
        let worker = self.claims_worker(workflow)?;
        let active = self.open_workflow(workflow)?;
        let taken = match &request.node {
            None => {
                let selector = WorkerSelector::default().with_labels(request.labels.clone()).at_site(None);
                active.state.claim_oldest(worker, &selector, request.limit, &mut active.open_batch.changes)
            }
            Some(node) => claim_fitting_jobs(active, worker, request, node),
        };
        let mut claimed = Vec::with_capacity(taken.len());
        for job in taken {
            let key = active.state.attempt_key(job);
            active.hold_job(worker, &key, true);
            claimed.push(key.job);
        }
        add_to_gauge(&self.gauges.assigned_jobs, claimed.len());
        Ok(claimed)
    }

    /// The worker row for all anonymous clients.
    fn claims_worker(&mut self, workflow: WorkflowId) -> Result<WorkerId, CallError> {
        let (store, now) = (std::sync::Arc::clone(&self.store), self.now.timestamp);
        let active = self.open_workflow(workflow)?;
        if let Some(worker) = active.claims_worker {
            return Ok(worker);
        }
        let filter = WorkerFilter {
            workflow: Some(workflow),
            kinds: vec![WorkerKind::Claims],
            is_active: Some(true),
            ..WorkerFilter::default()
        };
        let known =
            store.workers(&filter).map_err(|error| store_call_error(&error))?.first().map(|row| row.id);
        let new = || {
            let row = NewWorker {
                kind: WorkerKind::Claims,
                workflow: Some(workflow),
                run: Some(active.row.run_id),
                host: "claims".to_owned(),
                ..NewWorker::default()
            };
            store.add_worker(&row, now).map_err(|error| store_call_error(&error))
        };
        let worker = known.map_or_else(new, Ok)?;
        active.claims_worker = Some(worker);
        Ok(worker)
    }

    pub(super) fn on_start_job(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        node: WorkerId,
        reply: CallReply<()>,
    ) {
        match self.start_job(workflow, job, run, node) {
            Ok(()) => self.reply_when_committed(workflow, reply, ()),
            Err(why) => reply(Err(why)),
        }
    }

    fn start_job(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        node: WorkerId,
    ) -> Result<(), CallError> {
        match self.store.worker(node).map_err(|error| store_call_error(&error))? {
            None => return Err(CallError::NotFound(format!("there is no compute node {node}"))),
            Some(row) if row.worker.kind != WorkerKind::Torc => {
                let detail = format!("worker {node} is not a compute node of a client");
                return Err(CallError::Conflict { code: "wrong_worker", detail });
            }
            Some(_) => {}
        }
        let now = self.now.timestamp;
        let active = self.open_workflow(workflow)?;
        check_run(active, run)?;
        let index = find_job_index(active, job)?;
        let key = active.state.attempt_key(index);
        let status = active.state.status(index);
        let held = active.held_jobs.get(&job).copied();
        let Some(hold) =
            held.filter(|hold| status == JobStatus::Pending && Some(hold.worker) == active.claims_worker)
        else {
            let detail = format!("job {job} is {status}; only a claimed job can be started");
            return Err(CallError::Conflict { code: "job_not_pending", detail });
        };
        active.open_batch.changes.push(WorkflowChange::ReassignClaim { job, from: hold.worker, to: node });
        let started = active.state.on_started(node, &key, now, 0, &mut active.open_batch.changes);
        started.map_err(|stale| CallError::Conflict { code: "stale", detail: stale.to_string() })?;
        active.hold_job(node, &key, true);
        if let Some(hold) = active.held_jobs.get_mut(&job) {
            hold.started_at = Some(now);
        }
        Ok(())
    }

    pub(super) fn on_complete(
        &mut self,
        workflow: WorkflowId,
        completions: Vec<JobCompletion>,
        reply: CallReply<CompletionResults>,
    ) {
        if let Err(why) = self.open_workflow(workflow).map(|_| ()) {
            return reply(Err(why));
        }
        let outcomes = completions.into_iter().map(|completion| {
            let job = completion.job;
            (job, self.complete_job(workflow, &completion))
        });
        let outcomes: CompletionResults = outcomes.collect();
        self.reply_when_committed(workflow, reply, outcomes);
    }

    fn complete_job(&mut self, workflow: WorkflowId, done: &JobCompletion) -> Result<(), CallError> {
        let claims = {
            let active = self.open_workflow(workflow)?;
            check_run(active, done.run)?;
            active.claims_worker
        };
        let (job, status) = (done.job, done.status);
        if !(status.has_ended() || status == JobStatus::PendingFailed) {
            let detail = format!("a job cannot be completed with status `{status}`");
            return Err(CallError::Invalid { code: "not_terminal", detail });
        }
        let active = self.open_workflow(workflow)?;
        let index = find_job_index(active, job)?;
        let now = active.state.status(index);
        if now.is_settled() || now == JobStatus::PendingFailed {
            let detail = format!("job {job} is already complete with status={now}");
            return Err(CallError::Conflict { code: "already_complete", detail });
        }
        let Some(hold) = active.held_jobs.get(&job).copied() else {
            let detail = format!("job {job} is {now}: it has not been claimed");
            return Err(CallError::Conflict { code: "job_not_active", detail });
        };
        let is_ours = self.sessions.contains_key(&hold.worker);
        let is_anothers = done.node.is_some_and(|node| node != hold.worker && claims != Some(hold.worker));
        if is_ours || is_anothers {
            let detail = format!("job {job} is assigned to worker {}", hold.worker);
            return Err(CallError::Conflict { code: "job_of_another", detail });
        }
        if done.attempt.is_some_and(|attempt| attempt != hold.attempt) {
            let detail = format!("job {job} is in attempt {}", hold.attempt);
            return Err(CallError::Conflict { code: "stale_attempt", detail });
        }
        let active = self.open_workflow(workflow)?;
        let key = active.state.attempt_key(index);
        let stated = ClientAttemptEnd {
            worker: hold.worker,
            status,
            return_code: done.return_code,
            reason: None,
            started_at: hold.started_at,
            ended_at: done.completion_time,
            wall: done.exec_time,
            usage: done.usage,
            run_again: false,
        };
        self.apply_stated_end(workflow, job, &key, stated)
    }

    /// The end of an attempt that no worker reports.
    fn apply_stated_end(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        key: &windlass_types::worker_messages::AttemptKey,
        stated: ClientAttemptEnd,
    ) -> Result<(), CallError> {
        let active = self.open_workflow(workflow)?;
        let became = active
            .state
            .on_stated_end(key, stated, &mut active.open_batch.changes)
            .map_err(|stale| CallError::Conflict { code: "stale", detail: stale.to_string() })?;
        active.held_jobs.remove(&job);
        active.crash_suspects.on_attempt_ended(job);
        if became.is_settled() {
            active.ended_attempts.push(*key);
            self.gauges.record_ended_attempt(became);
        }
        Ok(())
    }

    /// Cancels jobs of clients of the contract, which cannot be stopped: they are recorded as ended, and the
    /// client finds out.
    pub(super) fn cancel_external_job(&mut self, workflow: WorkflowId, job: JobId, worker: WorkerId) {
        let now = self.now.timestamp;
        let Some(active) = self.find_workflow(workflow) else { return };
        let (Some(number), Some(hold)) = (active.state.job_index(job), active.held_jobs.get(&job).copied())
        else {
            return;
        };
        if hold.started_at.is_none() {
            active.held_jobs.remove(&job);
            return self.orphan_job(
                workflow,
                number,
                worker,
                OrphanDecision::NeverStarted,
                OrphanedAttempt::default(),
            );
        }
        let key = active.state.attempt_key(number);
        let stated = ClientAttemptEnd {
            worker,
            status: JobStatus::Canceled,
            return_code: CANCELED_RETURN_CODE,
            reason: Some("the workflow was canceled".to_owned()),
            started_at: hold.started_at,
            ended_at: now,
            wall: hold.started_at.map(|started| now.since(started)).unwrap_or_default(),
            usage: AttemptUsage::default(),
            run_again: false,
        };
        // It is held under this key, so it is not stale.
        drop(self.apply_stated_end(workflow, job, &key, stated));
    }

    pub(super) fn on_retry(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        max_retries: u32,
        by: &str,
        reply: CallReply<()>,
    ) {
        match self.retry_job(workflow, job, run, max_retries, by) {
            Ok(RetryEffect::Ready) => self.reply_when_committed(workflow, reply, ()),
            Ok(RetryEffect::AfterReload) => self.start_after_reload(workflow, reply),
            Err(why) => reply(Err(why)),
        }
    }

    fn retry_job(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        run: RunId,
        max_retries: u32,
        by: &str,
    ) -> Result<RetryEffect, CallError> {
        let now = self.now.timestamp;
        let active = self.open_workflow(workflow)?;
        check_run(active, run)?;
        let index = find_job_index(active, job)?;
        let (key, status) = (active.state.attempt_key(index), active.state.status(index));
        if key.attempt.0 >= max_retries {
            let detail = format!("job {job} is in attempt {} of {max_retries}", key.attempt);
            return Err(CallError::Conflict { code: "retries_used_up", detail });
        }
        match status {
            JobStatus::Failed | JobStatus::Terminated => self.reset_job(workflow, index, by),
            JobStatus::PendingFailed => Err(awaits_decision_error(job)),
            JobStatus::Running => {
                let Some(hold) = active.held_jobs.get(&job).copied() else {
                    return Err(CallError::Internal(format!(
                        "job {job} is running but not assigned to a worker"
                    )));
                };
                if self.sessions.contains_key(&hold.worker) {
                    let detail = format!("worker {} runs job {job}; it is retried when it ends", hold.worker);
                    return Err(CallError::Conflict { code: "job_active", detail });
                }
                let stated = ClientAttemptEnd {
                    worker: hold.worker,
                    status: JobStatus::Failed,
                    return_code: return_code::NOT_REPORTED,
                    reason: Some(
                        "its runner requested another attempt and reported no return code".to_owned(),
                    ),
                    started_at: hold.started_at,
                    ended_at: now,
                    wall: hold.started_at.map(|started| now.since(started)).unwrap_or_default(),
                    usage: AttemptUsage::default(),
                    run_again: true,
                };
                self.apply_stated_end(workflow, job, &key, stated)?;
                Ok(RetryEffect::Ready)
            }
            _ => {
                let detail = format!(
                    "job {job} is {status}; only jobs that failed, ended or are running can be retried"
                );
                Err(CallError::Conflict { code: "not_retryable", detail })
            }
        }
    }

    /// Makes a settled job run again, and lets jobs that were canceled because of it wait again.
    fn reset_job(&mut self, workflow: WorkflowId, job: u32, by: &str) -> Result<RetryEffect, CallError> {
        self.start_run(workflow, by)?;
        self.reset_and_reload(workflow, &[job], true, true)?;
        Ok(RetryEffect::AfterReload)
    }

    /// Initializes the reset jobs after the state is rebuilt.
    fn start_after_reload(&mut self, workflow: WorkflowId, reply: CallReply<()>) {
        self.call_after_reload(
            workflow,
            Box::new(move |scheduler| scheduler.initialize_jobs(workflow)),
            reply,
        );
    }

    pub(super) fn on_change_status(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        to: JobStatus,
        run: RunId,
        by: &str,
        reply: CallReply<()>,
    ) {
        match self.change_job_status(workflow, job, to, run, by) {
            Ok(RetryEffect::Ready) => self.reply_when_committed(workflow, reply, ()),
            Ok(RetryEffect::AfterReload) if to == JobStatus::Ready => {
                self.start_after_reload(workflow, reply);
            }
            Ok(RetryEffect::AfterReload) => self.call_after_reload(workflow, Box::new(|_| Ok(())), reply),
            Err(why) => reply(Err(why)),
        }
    }

    fn change_job_status(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        to: JobStatus,
        run: RunId,
        by: &str,
    ) -> Result<RetryEffect, CallError> {
        let active = self.open_workflow(workflow)?;
        check_run(active, run)?;
        let index = find_job_index(active, job)?;
        let from = active.state.status(index);
        let impossible = || {
            let detail = format!("job {job} is {from} and cannot be changed to {to}");
            CallError::Conflict { code: "impossible_transition", detail }
        };
        if from == to {
            return Ok(RetryEffect::Ready);
        }
        if from == JobStatus::PendingFailed {
            return Err(awaits_decision_error(job));
        }
        if let Some(hold) = active.held_jobs.get(&job).copied() {
            if to != JobStatus::Ready || self.sessions.contains_key(&hold.worker) {
                return Err(impossible());
            }
            self.open_workflow(workflow)?.held_jobs.remove(&job);
            let decision = if hold.started_at.is_some() {
                OrphanDecision::RunAgain(None)
            } else {
                OrphanDecision::NeverStarted
            };
            self.orphan_job(workflow, index, hold.worker, decision, hold.orphaned_attempt());
            return Ok(RetryEffect::Ready);
        }
        match to {
            JobStatus::Uninitialized => {
                self.reset_and_reload(workflow, &[index], false, true)?;
                Ok(RetryEffect::AfterReload)
            }
            JobStatus::Ready if matches!(from, JobStatus::Failed | JobStatus::Terminated) => {
                self.reset_job(workflow, index, by)
            }
            _ if active.state.on_failure_decision(index, to, &mut active.open_batch.changes) => {
                Ok(RetryEffect::Ready)
            }
            _ => Err(impossible()),
        }
    }
}

/// What has to happen before the reply that a job runs again.
enum RetryEffect {
    Ready,
    /// The workflow state cannot be rolled back: it is rebuilt first.
    AfterReload,
}

/// Claims jobs that fit the node. Jobs of other schedulers only if there are no others.
fn claim_fitting_jobs(
    active: &mut ActiveWorkflow,
    worker: WorkerId,
    request: &ClaimRequest,
    node: &NodeCapacityOffer,
) -> Vec<u32> {
    let mut claim = |selector: WorkerSelector| {
        let mut worker_usage: WorkerUsage<JobId> = WorkerUsage::with_selector(node.capacity, selector);
        worker_usage.limit_time(node.time_left);
        let want = ClaimLimits { max_jobs: request.limit, queue_ahead: 0 };
        active.state.claim_ready(worker, &mut worker_usage, want, &mut active.open_batch.changes)
    };
    let labels = WorkerSelector::default().with_labels(request.labels.clone()).at_site(None);
    let own = claim(labels.clone().with_scheduler(node.scheduler));
    if own.is_empty() && !node.strict { claim(labels) } else { own }
}

fn check_run(active: &ActiveWorkflow, run: RunId) -> Result<(), CallError> {
    let found = active.row.run_id;
    if found == run {
        return Ok(());
    }
    let detail = format!("Run ID mismatch: provided {run} but workflow status has {found}");
    Err(CallError::Conflict { code: "run_mismatch", detail })
}

/// A pending failure leaves its state only by a decision, which follows the policy of its workflow and is
/// recorded.
pub(super) fn awaits_decision_error(job: JobId) -> CallError {
    let detail = format!(
        "job {job} is pending_failed and waits for a decision, which follows the policy of its workflow and \
         is recorded; decide with `windlass failures`"
    );
    CallError::Conflict { code: "awaits_decision", detail }
}

/// Up to this number, jobs are looked up one by one; for more, all are read.
const MAX_SINGLE_LOOKUPS: usize = 32;

fn find_job_index(active: &ActiveWorkflow, job: JobId) -> Result<u32, CallError> {
    active
        .state
        .job_index(job)
        .ok_or_else(|| CallError::NotFound(format!("there is no job {job} in workflow {}", active.id())))
}

/// For each of these jobs, its newest attempt with a result in the current run.
pub(super) fn load_finished_attempts(
    store: &dyn Store,
    row: &WorkflowRow,
    jobs: &[JobId],
) -> Result<HashMap<JobId, Attempt, rustc_hash::FxBuildHasher>, CallError> {
    let read = |job| {
        let filter = ResultFilter { job, run: Some(row.run_id), ..ResultFilter::default() };
        store.results(row.id, &filter).map_err(|error| store_call_error(&error))
    };
    let results = match jobs.len() {
        0..=MAX_SINGLE_LOOKUPS => {
            let each = jobs.iter().map(|job| read(Some(*job))).collect::<Result<Vec<_>, _>>()?;
            each.concat()
        }
        _ => read(None)?,
    };
    let mut done: HashMap<JobId, Attempt, _> = HashMap::default();
    for result in results {
        let newest = done.entry(result.key.job_id).or_insert(result.key.attempt_id);
        *newest = (*newest).max(result.key.attempt_id);
    }
    Ok(done)
}
