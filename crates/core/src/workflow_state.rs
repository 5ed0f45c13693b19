//! One active workflow in memory: job states, dependencies, ready jobs.
//!
//! The database is the truth and this is its index: built from the rows at start, changed only together with
//! the [`WorkflowChange`]s that the store commits. Every method is a decision: an event goes in, changes come
//! out.

mod claims;
mod delay_queue;
mod failure;
mod job_commands;
mod job_limits;
mod job_table;
mod remaining_jobs_by_class;
mod retry_decision;
mod work_units;

pub use failure::{AttemptFailure, FailureDiagnosis, FailureDisposition};
pub use job_commands::{ClientAttemptEnd, RerunPlan};
pub use job_table::JobTable;
pub use retry_decision::{
    DiagnosedRetryDecision, FailedAttemptContext, NextAttempt, RetryDecision, RetryPlan,
};
pub use work_units::{UnitJobCounts, WorkUnitRow};

use crate::attempt_outcome::{AttemptEndDecision, ReturnCodes};
use crate::change::{AttemptResult, WorkflowChange};
use crate::crash_suspects::{self, CrashEvidence};
use crate::dependency_graph::{DependencyCycle, JobDependencyGraph};
use crate::dispatch::{LocationConstraint, ReadyQueue};
use crate::job_state::{self, JobStateEvent};
use crate::slurm::allocation_ends::AllocationEviction;
use delay_queue::DelayQueue;
use job_limits::JobLimits;
use remaining_jobs_by_class::RemainingJobsByClass;
use retry_decision::{AttemptFollowUp, RetryMode};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use windlass_types::settings::FailureHandler;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptKey, AttemptUsage, return_code,
};
use windlass_types::{
    Attempt, JobId, JobStatus, Resources, RunId, StatusCounts, Timestamp, WorkerId, WorkflowId,
};
use work_units::WorkUnits;

#[derive(Clone, Debug)]
pub struct WorkflowState {
    workflow: WorkflowId,
    run: RunId,
    codes: ReturnCodes,
    ids: Vec<JobId>,
    status: Vec<JobStatus>,
    attempt: Vec<Attempt>,
    priority: Vec<i32>,
    cancel_on_failure: Vec<bool>,
    class: Vec<u32>,
    requirements: Vec<Resources>,
    /// Class in the ready queue: request and location of a job.
    demand_of_job: Vec<u32>,
    demand_index: FxHashMap<(u32, LocationConstraint), u32>,
    /// Failure handlers, and for each job the index of its handler plus one; empty if there are none.
    handlers: Vec<FailureHandler>,
    handler: Vec<u32>,
    /// Retries granted by handlers in this run before the workflow was loaded.
    retries_granted: u64,
    graph: JobDependencyGraph,
    ready: ReadyQueue,
    job_limits: JobLimits,
    units: WorkUnits,
    /// Jobs that have not ended, by class.
    remaining: RemainingJobsByClass,
    /// Jobs to run alone, and those running alone.
    isolated_waiting: VecDeque<u32>,
    isolated_running: Vec<u32>,
    /// Ready jobs that wait for their time.
    delayed: DelayQueue,
    /// What earlier attempts left to the next one: few jobs have any.
    inherited: FxHashMap<u32, NextAttempt>,
    /// Jobs whose failure is ignored.
    ignored: FxHashSet<u32>,
    counts: StatusCounts,
    canceling: bool,
    /// Nothing new is started.
    halted: bool,
}

/// What happens to a job whose worker died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanDecision {
    /// It certainly had not started: nothing happened.
    NeverStarted,
    /// It runs again, with the evidence against it, if any.
    RunAgain(Option<CrashEvidence>),
    /// It runs again: its worker was in an allocation that ended for a reason unrelated to the job.
    Evicted(AllocationEviction),
    /// It may have killed the worker: it runs again, alone.
    RunIsolated(CrashEvidence),
    /// It killed the worker.
    GiveUp,
}

/// What is known of an attempt whose worker died.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OrphanedAttempt {
    pub started_at: Option<Timestamp>,
    /// The usage of the processes that it left behind.
    pub usage: AttemptUsage,
}

/// A report that does not fit the state of the job: late, repeated, or about an attempt that is no longer
/// current.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stale report about {key}: {found}")]
pub struct StaleAttemptReport {
    pub key: AttemptKey,
    pub found: String,
}

/// What became of an attempt and its job.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptOutcome {
    pub attempt_status: JobStatus,
    pub job_status: JobStatus,
    pub return_code: i32,
    pub reason: Option<String>,
}

/// The end of an attempt with its outcome.
struct AttemptConclusion {
    event: JobStateEvent,
    result: AttemptResult,
    failure: Option<Box<AttemptFailure>>,
    retry_mode: RetryMode,
}

impl WorkflowState {
    /// Call [`Self::on_resume`] before anything else.
    pub fn new(workflow: WorkflowId, run: RunId, table: JobTable) -> Result<Self, DependencyCycle> {
        let mut graph = JobDependencyGraph::new(table.ids.len() as u32, &table.edges)?;
        let (ready, demand_index, demand_of_job) = claims::build_ready_queue(&table);
        let ignored: FxHashSet<u32> = table.ignored.iter().copied().collect();
        let mut counts = StatusCounts::default();
        for (job, &status) in (0u32..).zip(&table.status) {
            counts.add(status, 1);
            if status.is_settled() {
                let well = !status.is_unsuccessful() || ignored.contains(&job);
                graph.finish_job(job, well, |_, _| {});
            }
        }
        let inherited = table.inherited;
        let left = RemainingJobsByClass::from_jobs(&demand_of_job, &table.status);
        let mut state = Self {
            workflow,
            run,
            codes: ReturnCodes::default(),
            ids: table.ids,
            status: table.status,
            attempt: table.attempt,
            priority: table.priority,
            cancel_on_failure: table.cancel_on_blocking_job_failure,
            class: table.class,
            requirements: table.requirements,
            demand_of_job,
            demand_index,
            handlers: table.handlers,
            handler: table.handler,
            retries_granted: table.retries_granted,
            graph,
            ready,
            job_limits: JobLimits::default(),
            units: WorkUnits::default(),
            remaining: left,
            isolated_waiting: VecDeque::new(),
            isolated_running: Vec::new(),
            delayed: DelayQueue::default(),
            inherited: FxHashMap::default(),
            ignored,
            counts,
            canceling: false,
            halted: false,
        };
        state.load_units(table.units);
        for (job, mut next_attempt) in inherited {
            // A held job has waited already.
            next_attempt.not_before = next_attempt.not_before.filter(|_| !state.status(job).is_active());
            next_attempt.delay = next_attempt.delay.filter(|_| next_attempt.not_before.is_some());
            state.apply_next_attempt(job, &next_attempt);
        }
        Ok(state)
    }

    /// Sets the return codes of the workflow.
    pub fn set_return_codes(&mut self, codes: ReturnCodes) {
        self.codes = codes;
    }

    pub fn counts(&self) -> &StatusCounts {
        &self.counts
    }

    pub fn attempt_key(&self, job: u32) -> AttemptKey {
        AttemptKey {
            workflow: self.workflow,
            job: self.ids[job as usize],
            run: self.run,
            attempt: self.attempt[job as usize],
        }
    }

    pub fn resources(&self, job: u32) -> &Resources {
        &self.requirements[self.class[job as usize] as usize]
    }

    /// Whether jobs may have a runtime.
    pub fn has_runtime_requests(&self) -> bool {
        self.requirements.iter().any(|asked| asked.runtime.is_some())
    }

    /// Class 0 has no resource request, which limits nothing.
    pub fn has_resource_request(&self, job: u32) -> bool {
        self.class[job as usize] != 0
    }

    /// Returns the dependents of the job.
    pub fn dependents(&self, job: u32) -> impl Iterator<Item = u32> + '_ {
        self.graph.dependents(job)
    }

    pub fn status(&self, job: u32) -> JobStatus {
        self.status[job as usize]
    }

    /// Returns the id of the newest job.
    pub fn last_job_id(&self) -> Option<JobId> {
        self.ids.last().copied()
    }

    pub fn job_index(&self, id: JobId) -> Option<u32> {
        // Ids of a workflow are usually contiguous; jobs added later may have other ids.
        let guess = id.0.checked_sub(self.ids.first()?.0)? as usize;
        if self.ids.get(guess) == Some(&id) {
            return Some(guess as u32);
        }
        self.ids.binary_search(&id).ok().map(|i| i as u32)
    }

    /// Whether all jobs have ended.
    pub fn is_finished(&self) -> bool {
        self.counts.settled() == self.counts.total()
    }

    /// Not finished, but nothing runs and nothing may start: a decision is needed.
    pub fn is_stuck(&self) -> bool {
        let may_start = !self.ready.is_all_blocked() || self.may_run_isolated() || self.delayed_count() > 0;
        !self.is_finished() && self.counts.active() == 0 && (self.halted || !may_start)
    }

    pub fn has_ready(&self) -> bool {
        let something = !self.ready.is_all_blocked() || self.may_run_isolated();
        something && !self.rejects_claims()
    }

    /// Ready jobs stay ready.
    const fn rejects_claims(&self) -> bool {
        self.canceling || self.halted
    }

    /// Jobs held by workers of an earlier process.
    pub fn held_jobs(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.status).filter(|(_, status)| status.is_active()).map(|(job, _)| job)
    }

    /// Returns jobs that a new run starts over: those that did not complete, and their dependents.
    pub fn jobs_to_rerun(&self) -> Vec<JobId> {
        self.jobs_to_rerun_at_other_sites(&[])
    }

    /// The same; in addition, incomplete units at one of these sites start over as a whole, to elect another
    /// site.
    pub fn jobs_to_rerun_at_other_sites(&self, left: &[String]) -> Vec<JobId> {
        let mut again: Vec<bool> =
            self.status.iter().map(|s| s.is_unsuccessful() || *s == JobStatus::PendingFailed).collect();
        for job in self.units.unfinished_at(left) {
            again[job as usize] = true;
        }
        let mut stack: Vec<u32> = (0u32..).zip(&again).filter(|(_, a)| **a).map(|(job, _)| job).collect();
        while let Some(job) = stack.pop() {
            for dependent in self.graph.dependents(job) {
                if self.status[dependent as usize].has_ended() && !again[dependent as usize] {
                    again[dependent as usize] = true;
                    stack.push(dependent);
                }
            }
        }
        self.ids.iter().zip(again).filter(|(_, a)| *a).map(|(id, _)| *id).collect()
    }

    /// Decides the state of every job that is neither held nor ended: ready without pending dependencies, else
    /// blocked. Also for ready jobs: their dependencies may have been reset. Uninitialized jobs stay so until they
    /// are requested.
    pub fn on_resume(&mut self, changes: &mut Vec<WorkflowChange>) {
        for job in 0..self.ids.len() as u32 {
            if self.status(job) != JobStatus::Uninitialized {
                self.initialize_job(job, changes);
            }
        }
    }

    /// Initializes the jobs that [`Self::on_resume`] left out.
    pub fn on_initialize_rest(&mut self, changes: &mut Vec<WorkflowChange>) {
        for job in 0..self.ids.len() as u32 {
            if self.status(job) == JobStatus::Uninitialized {
                self.initialize_job(job, changes);
            }
        }
    }

    fn initialize_job(&mut self, job: u32, changes: &mut Vec<WorkflowChange>) {
        let free = self.graph.is_unblocked(job);
        match self.status(job) {
            JobStatus::Ready if free => self.enqueue(job),
            JobStatus::Uninitialized | JobStatus::Blocked if free => self.release_job(job, changes),
            JobStatus::Uninitialized | JobStatus::Ready => {
                self.record_transition(job, JobStateEvent::Block, changes);
            }
            _ => {}
        }
    }

    /// Adds jobs whose rows exist already: `added` holds the new ones, and their edges in the numbering of all
    /// jobs. Decides their states; returns their numbers.
    pub fn on_jobs_added(&mut self, added: &JobTable, changes: &mut Vec<WorkflowChange>) -> Range<u32> {
        debug_assert!(added.ids.first() > self.ids.last(), "ids are ascending");
        debug_assert!(added.edges.groups.is_empty(), "added jobs have no dependency groups");
        let first = self.ids.len() as u32;
        for index in 0..added.ids.len() {
            self.append_job(added, index);
        }
        for &(job, on) in &added.edges.direct {
            let status = self.status(on);
            let well = !status.is_unsuccessful() || self.ignored.contains(&on);
            let over = status.is_settled().then_some(well);
            self.graph.add_dependency(job, on, over);
        }
        let all = first..self.ids.len() as u32;
        for job in all.clone() {
            self.initialize_job(job, changes);
        }
        all
    }

    fn append_job(&mut self, added: &JobTable, index: usize) {
        self.graph.add_job();
        self.ids.push(added.ids[index]);
        self.status.push(added.status[index]);
        self.counts.add(added.status[index], 1);
        self.attempt.push(added.attempt[index]);
        self.priority.push(added.priority[index]);
        self.cancel_on_failure.push(added.cancel_on_blocking_job_failure[index]);
        let class = match added.class[index] {
            0 => 0,
            named => self.find_or_add_class(added.requirements[named as usize]),
        };
        self.class.push(class);
        let demand = self.demand_number(class, added.location_of(index));
        self.demand_of_job.push(demand);
        if !added.status[index].is_settled() {
            self.remaining.add(demand);
        }
        let handler = added.handler.get(index).copied().unwrap_or(0);
        if handler != 0 || !self.handler.is_empty() {
            self.handler.resize(self.ids.len() - 1, 0);
            self.handler.push(handler);
        }
    }

    /// Class 0 is for jobs without a request, independent of the default.
    fn find_or_add_class(&mut self, asked: Resources) -> u32 {
        let known = self.requirements.iter().skip(1).position(|class| *class == asked);
        known.map_or_else(
            || {
                self.requirements.push(asked);
                self.requirements.len() as u32 - 1
            },
            |index| index as u32 + 1,
        )
    }

    /// Fails a job that was never claimed, and cancels its dependents.
    pub fn on_unrunnable(&mut self, job: u32, changes: &mut Vec<WorkflowChange>) {
        if !self.status(job).is_settled() && !self.status(job).is_active() {
            self.remove_from_queues(job);
            self.record_transition(job, JobStateEvent::Cancel, changes);
            self.resolve_dependents(job, changes);
        }
    }

    /// Cancels jobs because the job that had added them ran again without adding them. Running and ended ones
    /// do not change.
    pub fn on_jobs_dropped(&mut self, jobs: &[JobId], changes: &mut Vec<WorkflowChange>) {
        let known: Vec<u32> = jobs.iter().filter_map(|id| self.job_index(*id)).collect();
        let mut left_out = Vec::new();
        for job in known {
            self.remove_from_queues(job);
            let before = changes.len();
            self.record_transition(job, JobStateEvent::Disable, changes);
            if changes.len() > before {
                left_out.push(job);
            }
        }
        // Only now: they depend on each other, and the end of one must not release another.
        for job in left_out {
            self.resolve_dependents(job, changes);
        }
    }

    pub fn on_started(
        &mut self,
        worker: WorkerId,
        key: &AttemptKey,
        at: Timestamp,
        pid: u32,
        changes: &mut Vec<WorkflowChange>,
    ) -> Result<(), StaleAttemptReport> {
        let job = self.find_current_attempt(key)?;
        if self.apply_transition(job, JobStateEvent::Start).is_some() {
            changes.push(WorkflowChange::Start { job: key.job, attempt: key.attempt, worker, at, pid });
        }
        Ok(())
    }

    /// An attempt ended: records its result, the state of the job, and the effect on dependents.
    pub fn on_attempt_ended(
        &mut self,
        worker: WorkerId,
        ended: &AttemptEndReport,
        changes: &mut Vec<WorkflowChange>,
    ) -> Result<AttemptOutcome, StaleAttemptReport> {
        self.on_attempt_ended_with(worker, ended, |_| RetryDecision::Final(None).into(), changes)
    }

    /// Derives the result of an attempt from the report of its end, and the state of the job from that.
    fn conclude_attempt(
        &mut self,
        job: u32,
        worker: WorkerId,
        ended: &AttemptEndReport,
        end_decision: AttemptEndDecision,
        follow_up: AttemptFollowUp,
        changes: &mut Vec<WorkflowChange>,
    ) -> AttemptOutcome {
        let result = AttemptResult {
            key: ended.key,
            worker,
            status: end_decision.attempt_status,
            return_code: end_decision.return_code,
            exit: Some(ended.exit),
            out_of_memory: ended.cause == AttemptEndCause::OutOfMemory,
            reason: end_decision.reason.clone(),
            started_at: Some(ended.started_at),
            ended_at: ended.ended_at,
            wall: ended.wall,
            usage: ended.usage,
            files: ended.files.clone(),
            recovered: ended.recovered.clone(),
        };
        let AttemptFollowUp { retry_mode, failure } = follow_up;
        let job_status = self.end_attempt(
            job,
            AttemptConclusion { event: end_decision.event, result, failure, retry_mode },
            changes,
        );
        AttemptOutcome {
            attempt_status: end_decision.attempt_status,
            job_status,
            return_code: end_decision.return_code,
            reason: end_decision.reason,
        }
    }

    /// A claim that certainly never started.
    pub fn on_claim_returned(
        &mut self,
        worker: WorkerId,
        key: &AttemptKey,
        changes: &mut Vec<WorkflowChange>,
    ) -> Result<(), StaleAttemptReport> {
        let job = self.find_current_attempt(key)?;
        self.return_claim(job, worker, changes);
        Ok(())
    }

    /// The worker that held `job` is lost with all its processes. Uses up no retry, unless the job fails.
    pub fn on_orphaned(
        &mut self,
        job: u32,
        worker: WorkerId,
        orphan_decision: OrphanDecision,
        lost: OrphanedAttempt,
        now: Timestamp,
        changes: &mut Vec<WorkflowChange>,
    ) {
        if !self.status(job).is_active() {
            return;
        }
        let reason = match orphan_decision {
            OrphanDecision::GiveUp => {
                format!("failed: its worker dies whenever it runs (the last was {worker})")
            }
            OrphanDecision::RunIsolated(evidence) => crash_suspects::orphan_reason(worker, Some(evidence)),
            OrphanDecision::RunAgain(evidence) => crash_suspects::orphan_reason(worker, evidence),
            OrphanDecision::Evicted(eviction) => eviction.loss_reason(),
            OrphanDecision::NeverStarted => return self.return_claim(job, worker, changes),
        };
        let result = AttemptResult {
            key: self.attempt_key(job),
            worker,
            status: JobStatus::Failed,
            return_code: return_code::ORPHANED,
            exit: None,
            out_of_memory: false,
            reason: Some(reason),
            started_at: lost.started_at,
            ended_at: now,
            // The time of its end is unknown.
            wall: Duration::ZERO,
            usage: lost.usage,
            files: None,
            recovered: None,
        };
        let event = match orphan_decision {
            _ if self.canceling => JobStateEvent::Cancel,
            OrphanDecision::GiveUp => JobStateEvent::Fail,
            _ => JobStateEvent::Requeue,
        };
        let retry_mode = if matches!(orphan_decision, OrphanDecision::RunIsolated(_)) {
            RetryMode::ExcusedIsolated
        } else {
            RetryMode::Excused
        };
        let next = if event == JobStateEvent::Requeue {
            FailureDisposition::Excused
        } else {
            FailureDisposition::Final
        };
        let failure = AttemptFailure {
            diagnosis: FailureDiagnosis::for_orphan(),
            next,
            reason: result.reason.clone(),
            log_tail: None,
        };
        self.end_attempt(
            job,
            AttemptConclusion { event, result, failure: Some(Box::new(failure)), retry_mode },
            changes,
        );
    }

    /// Stops claims; held jobs become canceled when their attempts end, and so do their dependents. Other jobs
    /// keep their state.
    pub fn on_cancel(&mut self) {
        self.canceling = true;
    }

    /// Ends the attempt of `job` and updates its dependents.
    fn end_attempt(
        &mut self,
        job: u32,
        outcome: AttemptConclusion,
        changes: &mut Vec<WorkflowChange>,
    ) -> JobStatus {
        let AttemptConclusion { event, result, failure, retry_mode } = outcome;
        let Some((from, to)) = self.apply_transition(job, event) else { return self.status(job) };
        let was_alone = self.finish_isolated_run(job);
        let alone = matches!(retry_mode, RetryMode::ExcusedIsolated);
        let mut inherited = None;
        if to == JobStatus::Ready {
            self.attempt[job as usize] = result.key.attempt.next();
            inherited = self.record_next_attempt(job, retry_mode);
        }
        let next_attempt = self.attempt[job as usize];
        let orphaned = result.return_code == return_code::ORPHANED;
        changes.push(WorkflowChange::End { from, to, result, next_attempt, orphaned, failure, inherited });
        self.push_unit_changes(job, changes);
        match to {
            // One after another: a job that kills its workers is retried first, alone.
            JobStatus::Ready if alone && was_alone => self.isolated_waiting.push_front(job),
            JobStatus::Ready if alone => self.isolated_waiting.push_back(job),
            JobStatus::Ready => self.enqueue(job),
            _ if to.is_settled() => self.resolve_dependents(job, changes),
            _ => {}
        }
        to
    }

    fn return_claim(&mut self, job: u32, worker: WorkerId, changes: &mut Vec<WorkflowChange>) {
        if self.status(job) != JobStatus::Pending
            || self.apply_transition(job, JobStateEvent::Requeue).is_none()
        {
            return;
        }
        changes.push(WorkflowChange::ReturnClaim { job: self.ids[job as usize], worker });
        self.push_unit_changes(job, changes);
        if self.finish_isolated_run(job) {
            self.isolated_waiting.push_front(job);
        } else if self.canceling {
            self.record_transition(job, JobStateEvent::Cancel, changes);
            self.resolve_dependents(job, changes);
        } else {
            self.enqueue(job);
        }
    }

    /// The dependencies of `job` have ended: it becomes ready, or canceled because of them.
    fn release_job(&mut self, job: u32, changes: &mut Vec<WorkflowChange>) {
        if self.graph.has_failed_dependency(job) && self.cancel_on_failure[job as usize] {
            self.record_transition(job, JobStateEvent::Cancel, changes);
            self.resolve_dependents(job, changes);
        } else {
            self.record_transition(job, JobStateEvent::Unblock, changes);
            self.enqueue(job);
        }
    }

    /// `job` has ended; releases or cancels its dependents, recursively.
    fn resolve_dependents(&mut self, job: u32, changes: &mut Vec<WorkflowChange>) {
        let mut over = vec![job];
        let mut freed = Vec::new();
        while let Some(job) = over.pop() {
            let well = !self.status(job).is_unsuccessful();
            self.graph.finish_job(job, well, |dependent, tainted| freed.push((dependent, tainted)));
            for (dependent, tainted) in freed.drain(..) {
                if self.status(dependent) != JobStatus::Blocked {
                    continue;
                }
                if tainted && self.cancel_on_failure[dependent as usize] {
                    self.record_transition(dependent, JobStateEvent::Cancel, changes);
                    over.push(dependent);
                } else {
                    self.record_transition(dependent, JobStateEvent::Unblock, changes);
                    self.enqueue(dependent);
                }
            }
        }
    }

    fn enqueue(&mut self, job: u32) {
        if self.delayed.enqueue(job) {
            return;
        }
        self.ready.push(job, self.demand_of_job[job as usize], self.priority[job as usize]);
    }

    /// A transition without other effects.
    fn record_transition(&mut self, job: u32, event: JobStateEvent, changes: &mut Vec<WorkflowChange>) {
        if let Some((from, to)) = self.apply_transition(job, event) {
            changes.push(WorkflowChange::Status { job: self.ids[job as usize], from, to });
            self.push_unit_changes(job, changes);
        }
    }

    fn apply_transition(&mut self, job: u32, event: JobStateEvent) -> Option<(JobStatus, JobStatus)> {
        let from = self.status(job);
        let to = job_state::next_status(from, event)?;
        self.status[job as usize] = to;
        self.counts.move_one(from, to);
        self.update_remaining(job, from, to);
        self.update_limits(job, from, to);
        Some((from, to))
    }

    /// Returns the job of a report, if the report is about its current attempt.
    fn find_current_attempt(&self, key: &AttemptKey) -> Result<u32, StaleAttemptReport> {
        let stale = |found: String| StaleAttemptReport { key: *key, found };
        if key.workflow != self.workflow || key.run != self.run {
            return Err(stale(format!("workflow {} is in run {}", self.workflow, self.run)));
        }
        let job = self.job_index(key.job).ok_or_else(|| stale("there is no such job".to_owned()))?;
        let (status, attempt) = (self.status(job), self.attempt[job as usize]);
        if !status.is_active() || attempt != key.attempt {
            return Err(stale(format!("the job is {status} in attempt {attempt}")));
        }
        Ok(job)
    }
}
