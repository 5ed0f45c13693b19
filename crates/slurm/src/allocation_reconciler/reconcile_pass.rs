//! One pass: query, decide, commit, act.

use super::mailbox::{PollOutcome, ReceivedNotices};
use super::{
    AllocationReconcilerDependencies, AllocationReconcilerOptions, AllocationReconcilerStatus,
    lock_ignoring_poison,
};
use crate::render::batch;
use crate::slurm_client::{AccountingRecords, SlurmClient, SlurmOutcome, SlurmUnavailable};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_core::slurm::allocation_capacity::AllocationCapacity;
use windlass_core::slurm::allocation_decision::{
    self, AccountingReply, AllocationDecision, AllocationObservation, AllocationWorkers, SlurmEffect,
    TaggedAllocation,
};
use windlass_core::slurm::allocation_rows::{AllocationChange, SlurmCallCount};
use windlass_core::slurm::database_id;
use windlass_core::slurm::pending_reasons;
use windlass_core::slurm::slurm_jobs::{SacctJob, SqueueJob};
use windlass_scheduler::service::{CallError, CallReply, SchedulerHandle, UnreachableAllocationWorker};
use windlass_store::model::{AllocationFilter, EventSeverity, JobFilter, WorkerFilter, WorkflowRow};
use windlass_store::{StoreDatabase, StoreError};
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{AllocationId, JobStatus, Resources, SystemClock, Timestamp, WorkflowId};

/// An error in a pass; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum AllocationPassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Scheduler(#[from] CallError),
    #[error("the service has stopped")]
    SchedulerGone,
}

/// Waits for the answer of the service.
pub(super) fn call_scheduler<T: Send + 'static>(
    call: impl FnOnce(CallReply<T>),
) -> Result<T, AllocationPassError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    call(Box::new(move |answer| {
        // The caller waits, unless the whole process ends.
        sender.send(answer).unwrap_or_default();
    }));
    Ok(receiver.recv().map_err(|_| AllocationPassError::SchedulerGone)??)
}

/// A canceled job that still exists is canceled again after this time.
const CANCEL_RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// Interval at which the actions of all workflows are checked, in case a notice was lost.
const FULL_SCAN_INTERVAL: Duration = Duration::from_mins(1);
/// Time after a change during which more changes are expected.
const ACTIVE_PERIOD: Duration = Duration::from_mins(2);

/// Makes the passes. Its memory only saves calls: a new one starts from the rows.
pub(super) struct AllocationPassRunner {
    dependencies: AllocationReconcilerDependencies,
    pub(super) slurm: Arc<SlurmClient>,
    pub(super) options: AllocationReconcilerOptions,
    status: Arc<Mutex<AllocationReconcilerStatus>>,
    /// Start of this server: workers could not connect before.
    began_at: Timestamp,
    polled_at: Option<Timestamp>,
    changed_at: Timestamp,
    last_full_scan: Option<Timestamp>,
    canceled: HashMap<u64, Timestamp>,
    /// Allocations that are not submitted before this time.
    pub(super) not_before: HashMap<AllocationId, Timestamp>,
    /// Tags in Slurm of ended or foreign allocations.
    known_tags: HashMap<String, Option<TaggedAllocation>>,
    /// Silent workers whose steps may still run.
    pub(super) silent_workers: Vec<(Instant, UnreachableAllocationWorker)>,
    /// Whether Slurm answered in this pass.
    poll_outcome: PollOutcome,
    /// Allocations whose credentials are accepted; `None`: those of an earlier server.
    with_credentials: Option<BTreeSet<AllocationId>>,
}

impl std::fmt::Debug for AllocationPassRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllocationPassRunner").finish_non_exhaustive()
    }
}

impl AllocationPassRunner {
    pub(super) fn new(
        dependencies: AllocationReconcilerDependencies,
        slurm: Arc<SlurmClient>,
        options: AllocationReconcilerOptions,
        status: Arc<Mutex<AllocationReconcilerStatus>>,
    ) -> Self {
        Self {
            dependencies,
            slurm,
            options,
            status,
            began_at: SystemClock.now(),
            polled_at: None,
            changed_at: SystemClock.now(),
            last_full_scan: None,
            canceled: HashMap::new(),
            not_before: HashMap::new(),
            known_tags: HashMap::new(),
            silent_workers: Vec::new(),
            poll_outcome: PollOutcome::Answered,
            with_credentials: None,
        }
    }

    pub(super) fn database(&self) -> &dyn StoreDatabase {
        &*self.dependencies.database
    }

    pub(super) fn scheduler(&self) -> &SchedulerHandle {
        &self.dependencies.scheduler
    }

    /// Time until the next pass, unless a notice comes first.
    pub(super) fn run_pass(&mut self, notices: &ReceivedNotices) -> Duration {
        let again = self.fence_silent_workers(&notices.silent_workers);
        // Until a call succeeds.
        self.poll_outcome = PollOutcome::NoAnswer("a pass failed; see the log of the server".to_owned());
        let pause = self.try_pass(notices).unwrap_or_else(|pass_error| {
            self.poll_outcome = PollOutcome::NoAnswer(pass_error.to_string());
            tracing::warn!(error = %pass_error, "an error occurred in a pass over the allocations");
            lock_ignoring_poison(&self.status).problem = Some(pass_error.to_string());
            self.options.active_interval
        });
        if let Err(error) = self.record_call_statistics() {
            tracing::warn!(%error, "cannot store the number of Slurm calls");
        }
        again.map_or(pause, |again| again.min(pause))
    }

    /// The result of polling Slurm in the last pass.
    pub(super) fn poll_outcome(&self) -> PollOutcome {
        self.poll_outcome.clone()
    }

    fn try_pass(&mut self, notices: &ReceivedNotices) -> Result<Duration, AllocationPassError> {
        let now = SystemClock.now();
        let workflows = self.workflows_to_inspect(notices, now)?;
        self.process_actions(&workflows)?;
        let open = self.load_open_allocations()?;
        self.revoke_old_credentials(&open);
        let is_known = |row: &Allocation| row.state != AllocationState::Intended;
        if !open.iter().any(is_known) {
            // There is nothing to query.
            self.poll_outcome = PollOutcome::Answered;
        }
        if open.is_empty() {
            self.update_status(&open, None);
            return Ok(self.options.active_interval);
        }
        // A slow or rate-limited Slurm does not delay withdrawals.
        let unwanted: Vec<u64> = open.iter().filter_map(allocation_decision::job_to_cancel).collect();
        self.cancel_jobs(&unwanted);
        let is_asked_to = notices.poll_request.is_some() && open.iter().any(is_known);
        let polled = if is_asked_to || self.is_poll_due(&open, now) {
            self.poll_queue(now)
        } else {
            QueuePoll::NotAsked
        };
        let has_new = open.iter().any(|row| row.state == AllocationState::Intended);
        if matches!(polled, QueuePoll::NotAsked) && !has_new {
            self.update_status(&open, None);
            return Ok(self.next_pass_delay(&open));
        }
        let released = self.submittable_allocations(&open)?;
        let allocation_decisions = self.decide_allocations(&open, &polled)?;
        self.commit_decisions(&open, &allocation_decisions)?;
        if let QueuePoll::Answered(queue) = &polled {
            self.cancel_stray_jobs(&open, queue)?;
        }
        self.perform_decisions(&open, &allocation_decisions, &released)?;
        let left = self.load_open_allocations()?;
        self.update_status(&left, matches!(polled, QueuePoll::Answered(_)).then_some(now));
        Ok(self.next_pass_delay(&left))
    }

    /// Revokes the credentials of ended allocations.
    fn revoke_old_credentials(&mut self, open: &[Allocation]) {
        let Some(credentials) = &self.options.credentials else { return };
        let now: BTreeSet<AllocationId> = open.iter().map(|row| row.id).collect();
        if self.with_credentials.as_ref() != Some(&now) {
            credentials.revoke_others(&now);
            self.with_credentials = Some(now);
        }
    }

    fn workflows_to_inspect(
        &mut self,
        notices: &ReceivedNotices,
        now: Timestamp,
    ) -> Result<BTreeSet<WorkflowId>, AllocationPassError> {
        let is_long_ago =
            self.last_full_scan.is_none_or(|at| now.since(at) >= FULL_SCAN_INTERVAL || at > now);
        if !notices.is_any_change && !is_long_ago {
            return Ok(notices.workflows.clone());
        }
        self.last_full_scan = Some(now);
        let is_active = |row: &&WorkflowRow| {
            row.started_at.is_some() && row.ended_at.is_none() && !row.is_canceled && !row.is_archived
        };
        let rows = self.database().workflows()?;
        Ok(rows.iter().filter(is_active).map(|row| row.id).chain(notices.workflows.iter().copied()).collect())
    }

    fn load_open_allocations(&self) -> Result<Vec<Allocation>, AllocationPassError> {
        let filter =
            AllocationFilter { is_open: Some(true), is_ours: Some(true), ..AllocationFilter::default() };
        Ok(self.database().allocations(&filter)?)
    }

    /// Only allocations that Slurm may know are queried.
    fn is_poll_due(&self, open: &[Allocation], now: Timestamp) -> bool {
        let is_known = |row: &Allocation| row.state != AllocationState::Intended;
        let interval = self.poll_interval(open, now);
        let is_time = self.polled_at.is_none_or(|at| at > now || now.since(at) + EARLY_TOLERANCE >= interval);
        open.iter().any(is_known) && is_time
    }

    fn poll_queue(&mut self, now: Timestamp) -> QueuePoll {
        let before = self.polled_at.replace(now);
        let why = match self.slurm.list_jobs() {
            SlurmOutcome::Answered(jobs) => {
                self.poll_outcome = PollOutcome::Answered;
                return QueuePoll::Answered(database_id::own_queue_jobs(jobs, &self.options.tag_prefix));
            }
            SlurmOutcome::Unknown(why) if why.is_certainly_not_sent() => {
                if matches!(why, SlurmUnavailable::OutOfBudget { .. }) {
                    // The next call is reserved for it, before submissions.
                    self.polled_at = before;
                }
                self.poll_outcome = PollOutcome::NoAnswer(why.to_string());
                return QueuePoll::NotAsked;
            }
            SlurmOutcome::Unknown(why) => why.to_string(),
            SlurmOutcome::Refused(refusal) => format!("`squeue` failed: {refusal}"),
        };
        self.poll_outcome = PollOutcome::NoAnswer(why.clone());
        lock_ignoring_poison(&self.status).problem = Some(why);
        QueuePoll::NoAnswer
    }

    /// A short interval during activity, a long one without.
    fn poll_interval(&self, open: &[Allocation], now: Timestamp) -> Duration {
        // Half of the budget, however small, is reserved for allocations with activity.
        let at_most = Duration::from_mins(2) / self.options.slurm.budget.per_minute.max(1);
        let fastest = self.options.active_interval.max(at_most);
        let slowest = self.options.idle_interval.max(fastest);
        let quiet = now.since(self.changed_at);
        let moves = |row: &Allocation| {
            matches!(row.state, AllocationState::Submitting | AllocationState::Completing)
                || row.unwanted.is_some()
        };
        if quiet < ACTIVE_PERIOD || open.iter().any(moves) {
            return fastest;
        }
        // A twentieth of the time without a change: after an hour of waiting, another minute does not matter.
        (quiet / 20).clamp(fastest, slowest)
    }

    fn decide_allocations(
        &self,
        open: &[Allocation],
        polled: &QueuePoll,
    ) -> Result<Vec<AllocationDecision>, AllocationPassError> {
        let now = SystemClock.now();
        let seen = PassObservations::collect(self.database(), open, polled.jobs(), self.began_at)?;
        let was_asked = !matches!(polled, QueuePoll::NotAsked);
        let decide = |row: &Allocation| {
            if !was_asked && row.state != AllocationState::Intended {
                return AllocationDecision::default();
            }
            allocation_decision::decide_allocation(
                row,
                &seen.observe_allocation(row, AccountingReply::NotAsked),
                &self.options.timeouts,
                now,
            )
        };
        let first: Vec<AllocationDecision> = open.iter().map(decide).collect();
        let asked: Vec<&Allocation> = open
            .iter()
            .zip(&first)
            .filter(|(_, allocation_decision)| allocation_decision.asks_accounting)
            .map(|(row, _)| row)
            .collect();
        if asked.is_empty() {
            return Ok(first);
        }
        let answer = self.query_accounting(&asked);
        let again = |(row, allocation_decision): (&Allocation, AllocationDecision)| {
            if !allocation_decision.asks_accounting {
                return allocation_decision;
            }
            let accounting = match &answer {
                None => AccountingReply::NoReply,
                Some(AccountingRecords::Disabled) => AccountingReply::Disabled,
                Some(AccountingRecords::Jobs(jobs)) => {
                    AccountingReply::Answered(find_accounted_jobs(row, jobs, open))
                }
            };
            allocation_decision::decide_allocation(
                row,
                &seen.observe_allocation(row, accounting),
                &self.options.timeouts,
                now,
            )
        };
        Ok(open.iter().zip(first).map(again).collect())
    }

    fn query_accounting(&self, rows: &[&Allocation]) -> Option<AccountingRecords> {
        let ids: BTreeSet<u64> = rows.iter().filter_map(|row| row.job_id).collect();
        let lost = rows.iter().filter(|row| row.job_id.is_none());
        let home = &self.options.tag_prefix;
        let names: BTreeSet<String> =
            lost.clone().map(|row| database_id::add_database_id(&batch::job_name(row), home)).collect();
        let since = lost.filter_map(|row| row.submitted_at).min().unwrap_or_else(|| SystemClock.now());
        match self.slurm.find_accounted_jobs(&ids, &names, since) {
            SlurmOutcome::Answered(AccountingRecords::Jobs(jobs)) => {
                let here = |(id, job)| Some((id, database_id::own_accounted_job(job, home)?));
                Some(AccountingRecords::Jobs(jobs.into_iter().filter_map(here).collect()))
            }
            SlurmOutcome::Answered(AccountingRecords::Disabled) => Some(AccountingRecords::Disabled),
            SlurmOutcome::Refused(refusal) => {
                tracing::warn!(%refusal, "accounting did not answer");
                None
            }
            SlurmOutcome::Unknown(_) => None,
        }
    }

    /// Commits the decisions; then notifies the service and the users.
    fn commit_decisions(
        &mut self,
        open: &[Allocation],
        allocation_decisions: &[AllocationDecision],
    ) -> Result<(), AllocationPassError> {
        let changes: Vec<AllocationChange> = allocation_decisions
            .iter()
            .filter_map(|allocation_decision| allocation_decision.change.clone())
            .collect();
        if changes.iter().any(|change| change.from != change.to) {
            self.changed_at = SystemClock.now();
        }
        self.commit_changes(&changes)?;
        for change in &changes {
            // Also if the row has changed since: Slurm has said so.
            if let Some(Some(at)) = change.ends_at {
                self.scheduler().notify_allocation_end_time(change.id, at);
            }
            if change.from != change.to && change.to == AllocationState::Ended {
                self.scheduler().notify_allocation_ended(change.id);
            }
        }
        for (row, allocation_decision) in open.iter().zip(allocation_decisions) {
            if let Some(reason) = &allocation_decision.alarm {
                let number = row.job_id.map(|id| format!(", Slurm job {id},")).unwrap_or_default();
                let words = pending_reasons::describe_reason(reason);
                let message = format!("allocation {}{number} will not start by itself: {words}", row.id);
                self.record_workflow_event(row.workflow, EventSeverity::Warning, message)?;
            }
        }
        Ok(())
    }

    /// Commits all at once, or one by one if a row has changed: its decision is made again from the current
    /// row.
    pub(super) fn commit_changes(&self, changes: &[AllocationChange]) -> Result<(), AllocationPassError> {
        for change in changes {
            let AllocationChange { id, from, to, job_id, reason, unwanted_reason, .. } = change;
            tracing::debug!(
                allocation = id.0,
                ?from,
                ?to,
                ?job_id,
                ?reason,
                ?unwanted_reason,
                "allocation changes"
            );
        }
        if changes.is_empty() {
            return Ok(());
        }
        match self.database().change_allocations(changes, SystemClock.now()) {
            Err(StoreError::Unexpected { .. }) => {}
            other => return Ok(other?),
        }
        for change in changes {
            match self.database().change_allocations(std::slice::from_ref(change), SystemClock.now()) {
                Err(StoreError::Unexpected { .. }) => {
                    tracing::debug!(id = %change.id, "an allocation has changed");
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn perform_decisions(
        &mut self,
        open: &[Allocation],
        allocation_decisions: &[AllocationDecision],
        released: &BTreeSet<AllocationId>,
    ) -> Result<(), AllocationPassError> {
        let acts = || {
            open.iter().zip(allocation_decisions).flat_map(|(row, allocation_decision)| {
                allocation_decision.effects.iter().map(move |act| (row, act))
            })
        };
        let to_cancel: Vec<u64> = acts()
            .filter_map(|(_, act)| match act {
                SlurmEffect::Cancel(job) => Some(*job),
                SlurmEffect::Submit => None,
            })
            .collect();
        self.cancel_jobs(&to_cancel);
        let mut submitted = false;
        for (row, _) in acts().filter(|(_, act)| **act == SlurmEffect::Submit) {
            if row.state != AllocationState::Intended || released.contains(&row.id) {
                submitted |= self.submit_allocation(row, open)?;
            }
        }
        if submitted {
            self.changed_at = SystemClock.now();
        }
        Ok(())
    }

    fn cancel_jobs(&mut self, jobs: &[u64]) {
        let now = SystemClock.now();
        self.canceled.retain(|_, at| now.since(*at) < CANCEL_RETRY_INTERVAL && *at <= now);
        let jobs: Vec<u64> = jobs.iter().copied().filter(|job| !self.canceled.contains_key(job)).collect();
        if jobs.is_empty() {
            return;
        }
        match self.slurm.cancel_jobs(&jobs) {
            SlurmOutcome::Answered(()) => tracing::info!(?jobs, "canceled Slurm jobs"),
            SlurmOutcome::Refused(refusal) => tracing::warn!(?jobs, %refusal, "Slurm refused to cancel jobs"),
            // The next pass tries again.
            SlurmOutcome::Unknown(_) => return,
        }
        self.canceled.extend(jobs.into_iter().map(|job| (job, now)));
    }

    /// Slurm jobs with a tag of this database that belong to no allocation.
    fn cancel_stray_jobs(
        &mut self,
        open: &[Allocation],
        queue: &[SqueueJob],
    ) -> Result<(), AllocationPassError> {
        // With the current rows: an allocation found by its tag has a job id by now.
        let rows = if open.iter().any(|row| row.job_id.is_none()) {
            self.load_open_allocations()?
        } else {
            open.to_vec()
        };
        let mut known: BTreeMap<&str, TaggedAllocation> =
            rows.iter().map(|row| (row.tag.as_str(), TaggedAllocation::Open(row.job_id))).collect();
        let prefixes: BTreeSet<&str> =
            rows.iter().filter_map(|row| allocation_decision::tag_prefix(&row.tag)).collect();
        let mut over = Vec::new();
        for job in queue.iter().filter(|job| job.is_alive()) {
            let tag = allocation_decision::job_tag(job);
            if !known.contains_key(tag)
                && allocation_decision::tag_prefix(tag).is_some()
                && self.is_known_tag(tag)?
            {
                over.push(tag);
            }
        }
        known.extend(over.into_iter().map(|tag| (tag, TaggedAllocation::Over)));
        let strays = allocation_decision::find_stray_jobs(queue, &known, &prefixes);
        if !strays.is_empty() {
            tracing::warn!(jobs = ?strays, "canceling Slurm jobs that have a tag of this database and belong to no allocation");
            self.cancel_jobs(&strays);
        }
        Ok(())
    }

    /// Whether the database has an allocation with this tag that is not open.
    fn is_known_tag(&mut self, tag: &str) -> Result<bool, AllocationPassError> {
        if let Some(known) = self.known_tags.get(tag) {
            return Ok(known.is_some());
        }
        let filter = AllocationFilter { tag: Some(tag.to_owned()), ..AllocationFilter::default() };
        let is_there =
            self.database().allocations(&filter)?.iter().any(|row| row.is_ours && row.state.is_over());
        if self.known_tags.len() > 10_000 {
            self.known_tags.clear();
        }
        self.known_tags.insert(tag.to_owned(), is_there.then_some(TaggedAllocation::Over));
        Ok(is_there)
    }

    fn update_status(&self, open: &[Allocation], answered_at: Option<Timestamp>) {
        let mut status = lock_ignoring_poison(&self.status);
        status.open_allocations.clear();
        for row in open {
            *status.open_allocations.entry(row.state).or_default() += 1;
        }
        if let Some(at) = answered_at {
            status.last_answer_at = Some(at);
            status.problem = None;
        }
    }

    /// Reading the database is cheap and done often; Slurm is called only when it is due.
    fn next_pass_delay(&self, open: &[Allocation]) -> Duration {
        let is_to_go = |row: &Allocation| {
            allocation_decision::job_to_cancel(row).is_some_and(|job| !self.canceled.contains_key(&job))
        };
        let waits = open.iter().any(|row| row.state == AllocationState::Intended || is_to_go(row));
        if waits && self.slurm.remaining_budget().calls == 0 {
            Duration::from_secs(1)
        } else {
            self.options.active_interval
        }
    }

    fn record_call_statistics(&self) -> Result<(), StoreError> {
        let counts: Vec<SlurmCallCount> = self
            .slurm
            .take_statistics()
            .into_iter()
            .map(|(command, tally)| SlurmCallCount {
                hour: Timestamp(0),
                command: command.to_owned(),
                calls: tally.calls,
                failures: tally.failures(),
                took: tally.total_time,
            })
            .collect();
        if counts.is_empty() {
            Ok(())
        } else {
            self.database().record_slurm_calls(&counts, SystemClock.now())
        }
    }
}

/// The result of the query for all jobs.
enum QueuePoll {
    NotAsked,
    NoAnswer,
    Answered(Vec<SqueueJob>),
}

impl QueuePoll {
    fn jobs(&self) -> Option<&[SqueueJob]> {
        match self {
            Self::Answered(jobs) => Some(jobs),
            Self::NotAsked | Self::NoAnswer => None,
        }
    }
}

/// A pass that is this early runs anyway.
const EARLY_TOLERANCE: Duration = Duration::from_millis(100);

/// What a pass knows besides the answers of Slurm.
struct PassObservations<'a> {
    queue: Option<&'a [SqueueJob]>,
    by_id: HashMap<u64, &'a SqueueJob>,
    by_tag: HashMap<&'a str, Vec<&'a SqueueJob>>,
    workers: HashMap<AllocationId, AllocationWorkers>,
    not_needed: HashMap<AllocationId, String>,
    served_since: Timestamp,
}

impl<'a> PassObservations<'a> {
    fn collect(
        store: &dyn StoreDatabase,
        open: &[Allocation],
        queue: Option<&'a [SqueueJob]>,
        served_since: Timestamp,
    ) -> Result<Self, AllocationPassError> {
        let mut seen = Self {
            queue,
            served_since,
            by_id: HashMap::new(),
            by_tag: HashMap::new(),
            workers: HashMap::new(),
            not_needed: HashMap::new(),
        };
        for job in queue.unwrap_or_default() {
            seen.by_id.insert(job.job_id, job);
            seen.by_tag.entry(allocation_decision::job_tag(job)).or_default().push(job);
        }
        for worker in store.active_workers(None)? {
            if let Some(id) = worker.worker.allocation {
                seen.workers
                    .insert(AllocationId(id), AllocationWorkers { has_registered: true, is_alive: true });
            }
        }
        for row in open {
            let is_asked = row.state == AllocationState::Running && !seen.workers.contains_key(&row.id);
            if is_asked {
                let filter =
                    WorkerFilter { allocation: Some(row.id.0), limit: Some(1), ..WorkerFilter::default() };
                let has_come = !store.workers(&filter)?.is_empty();
                seen.workers.insert(row.id, AllocationWorkers { has_registered: has_come, is_alive: false });
            }
        }
        for id in open.iter().map(|row| row.workflow).collect::<BTreeSet<_>>() {
            seen.find_unneeded(store, id, open.iter().filter(|row| row.workflow == id))?;
        }
        Ok(seen)
    }

    /// The allocations of a workflow that are not needed.
    fn find_unneeded<'r>(
        &mut self,
        store: &dyn StoreDatabase,
        id: WorkflowId,
        open: impl Iterator<Item = &'r Allocation>,
    ) -> Result<(), AllocationPassError> {
        let workflow = store.workflow(id)?;
        if let Some(why) = why_not_needed(id, workflow.as_ref()) {
            self.not_needed.extend(open.map(|row| (row.id, why.clone())));
            return Ok(());
        }
        let is_waiting =
            |row: &&Allocation| matches!(row.state, AllocationState::Intended | AllocationState::Pending);
        let waiting: Vec<&Allocation> = open.filter(is_waiting).collect();
        let Some(workflow) = workflow.filter(|_| !waiting.is_empty()) else { return Ok(()) };
        let Some(left) = remaining_job_resources(store, &workflow)? else { return Ok(()) };
        for row in waiting {
            let offer = AllocationCapacity::from(&row.request);
            if !left.iter().any(|asks| offer.fits_job(asks)) {
                let why = format!("none of the {} remaining jobs fits into it", left.len());
                self.not_needed.insert(row.id, why);
            }
        }
        Ok(())
    }

    fn observe_allocation<'s>(
        &'s self,
        row: &Allocation,
        accounting: AccountingReply<'s>,
    ) -> AllocationObservation<'s> {
        let queue = self.queue.map(|_| {
            let mut jobs: Vec<&SqueueJob> = self.by_tag.get(row.tag.as_str()).cloned().unwrap_or_default();
            let own = row.job_id.and_then(|id| self.by_id.get(&id).copied());
            if let Some(own) = own.filter(|own| !jobs.iter().any(|job| job.job_id == own.job_id)) {
                jobs.push(own);
            }
            jobs
        });
        AllocationObservation {
            queue,
            accounting,
            workers: self.workers.get(&row.id).copied().unwrap_or_default(),
            not_needed_reason: self.not_needed.get(&row.id).map(String::as_str),
            served_since: self.served_since,
        }
    }
}

/// Why allocations of a workflow have nothing left to do. A pending allocation is kept as long as any job has not
/// ended, even a running one: its own allocation may end first, and then this one runs it.
fn why_not_needed(id: WorkflowId, row: Option<&WorkflowRow>) -> Option<String> {
    let Some(row) = row else { return Some(format!("workflow {id} was deleted")) };
    let is_over = row.counts.total() > 0 && row.counts.settled() == row.counts.total();
    match () {
        () if row.is_canceled => Some(format!("workflow {id} was canceled")),
        () if row.is_archived => Some(format!("workflow {id} was archived")),
        () if is_over => Some(format!("all jobs of workflow {id} have ended")),
        () => None,
    }
}

/// With at most this many jobs left, each is checked.
const MAX_INSPECTED_JOBS: u64 = 200;

/// The requirements of all jobs that have not ended, including running ones. `None`: there are too many, or some
/// have no requirements.
fn remaining_job_resources(
    store: &dyn StoreDatabase,
    workflow: &WorkflowRow,
) -> Result<Option<Vec<Resources>>, AllocationPassError> {
    if workflow.counts.total() - workflow.counts.settled() > MAX_INSPECTED_JOBS {
        return Ok(None);
    }
    let asked = store.requirements(workflow.id)?;
    let resources_of = |name: &String| asked.iter().find(|row| row.name == *name).map(|row| row.resources);
    let status = JobStatus::ALL.into_iter().filter(|status| !status.is_settled()).collect();
    let jobs = store
        .jobs(workflow.id, &JobFilter { status, limit: Some(MAX_INSPECTED_JOBS), ..JobFilter::default() })?;
    let left: Option<Vec<Resources>> =
        jobs.iter().map(|job| job.resource_requirements.as_ref().and_then(resources_of)).collect();
    Ok(left.filter(|left| !left.is_empty()))
}

/// The accounting record of an allocation, found by its job id or tag. Where comments are not stored, an
/// allocation of a series is found by the name of the series if no other allocation has that job.
fn find_accounted_jobs<'a>(
    row: &Allocation,
    jobs: &'a BTreeMap<u64, SacctJob>,
    open: &[Allocation],
) -> Vec<&'a SacctJob> {
    if let Some(id) = row.job_id {
        return jobs.get(&id).into_iter().collect();
    }
    let series = batch::job_name(row);
    let is_others = |job: &SacctJob| open.iter().any(|other| other.job_id == Some(job.job_id));
    let is_own = |job: &&SacctJob| {
        job.has_tag(&row.tag)
            || (row.request.serialize && job.comment.is_empty() && job.name == series && !is_others(job))
    };
    jobs.values().filter(is_own).collect()
}
