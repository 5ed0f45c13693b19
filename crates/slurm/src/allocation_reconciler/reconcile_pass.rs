//! One pass: look, decide, commit, act.

use super::mailbox::{PollOutcome, ReceivedNotices};
use super::{AllocationReconcilerOptions, ReconcilerDependencies, ReconcilerStatus, lock_ignoring_poison};
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
use windlass_core::slurm::slurm_jobs::{AccountedJob, QueueJob};
use windlass_scheduler::service::{CallError, CallReply, SchedulerHandle, SilentWorker};
use windlass_store::model::{AllocationFilter, EventSeverity, JobFilter, WorkerFilter, WorkflowRow};
use windlass_store::{StoreDatabase, StoreError};
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{AllocationId, JobStatus, Resources, SystemClock, Timestamp, WorkflowId};

/// Something went wrong in a pass; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Scheduler(#[from] CallError),
    #[error("the service is gone")]
    SchedulerGone,
}

/// Waits for the answer of the service.
pub(super) fn call_scheduler<T: Send + 'static>(call: impl FnOnce(CallReply<T>)) -> Result<T, PassError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    call(Box::new(move |answer| {
        // Whoever asked waits for it, unless the whole process ends.
        sender.send(answer).unwrap_or_default();
    }));
    Ok(receiver.recv().map_err(|_| PassError::SchedulerGone)??)
}

/// A job that was canceled and is still there is canceled again after this.
const CANCEL_RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// All workflows are looked at for actions so often, in case that telling failed.
const FULL_SCAN_INTERVAL: Duration = Duration::from_mins(1);
/// Something happened so lately that more is to be expected.
const ACTIVE_PERIOD: Duration = Duration::from_mins(2);

/// Makes the passes. What it remembers only saves questions: a new one begins from the rows.
pub(super) struct ReconcilePasses {
    dependencies: ReconcilerDependencies,
    pub(super) slurm: Arc<SlurmClient>,
    pub(super) options: AllocationReconcilerOptions,
    status: Arc<Mutex<ReconcilerStatus>>,
    /// Before that there was nobody here whom a worker could have reached.
    began_at: Timestamp,
    polled_at: Option<Timestamp>,
    changed_at: Timestamp,
    last_full_scan: Option<Timestamp>,
    canceled: HashMap<u64, Timestamp>,
    /// Allocations that are not submitted before this.
    pub(super) not_before: HashMap<AllocationId, Timestamp>,
    /// Tags in Slurm of allocations that are over, or not ours.
    known_tags: HashMap<String, Option<TaggedAllocation>>,
    /// Workers that are not heard of, whose steps are not known to be gone.
    pub(super) silent_workers: Vec<(Instant, SilentWorker)>,
    /// Whether Slurm answered in this pass.
    poll_outcome: PollOutcome,
    /// The allocations whose credentials are accepted; `None`: of an earlier server.
    with_credentials: Option<BTreeSet<AllocationId>>,
}

impl std::fmt::Debug for ReconcilePasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passes").finish_non_exhaustive()
    }
}

impl ReconcilePasses {
    pub(super) fn new(
        dependencies: ReconcilerDependencies,
        slurm: Arc<SlurmClient>,
        options: AllocationReconcilerOptions,
        status: Arc<Mutex<ReconcilerStatus>>,
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

    /// How long to wait for the next one, unless something is told before.
    pub(super) fn run_pass(&mut self, heard: &ReceivedNotices) -> Duration {
        let again = self.fence_silent_workers(&heard.silent_workers);
        // Until something says otherwise.
        self.poll_outcome =
            PollOutcome::NoAnswer("a pass has failed; the log of the server says where".to_owned());
        let pause = self.try_pass(heard).unwrap_or_else(|trouble| {
            self.poll_outcome = PollOutcome::NoAnswer(trouble.to_string());
            tracing::warn!(error = %trouble, "a pass over the allocations had trouble");
            lock_ignoring_poison(&self.status).problem = Some(trouble.to_string());
            self.options.active_interval
        });
        if let Err(error) = self.record_call_statistics() {
            tracing::warn!(%error, "what was asked of Slurm could not be noted");
        }
        again.map_or(pause, |again| again.min(pause))
    }

    /// What came of asking Slurm in the last pass.
    pub(super) fn poll_outcome(&self) -> PollOutcome {
        self.poll_outcome.clone()
    }

    fn try_pass(&mut self, heard: &ReceivedNotices) -> Result<Duration, PassError> {
        let now = SystemClock.now();
        let workflows = self.workflows_to_inspect(heard, now)?;
        self.process_actions(&workflows)?;
        let open = self.load_open_allocations()?;
        self.revoke_old_credentials(&open);
        let is_known = |row: &Allocation| row.state != AllocationState::Intended;
        if !open.iter().any(is_known) {
            // There is nothing to ask about.
            self.poll_outcome = PollOutcome::Answered;
        }
        if open.is_empty() {
            self.update_status(&open, None);
            return Ok(self.options.active_interval);
        }
        // Whoever waits for Slurm's answers, or for his turn, holds up nobody who is to go.
        let unwanted: Vec<u64> = open.iter().filter_map(allocation_decision::job_to_cancel).collect();
        self.cancel_jobs(&unwanted);
        let is_asked_to = heard.poll_request.is_some() && open.iter().any(is_known);
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
        let fates = self.decide_fates(&open, &polled)?;
        self.commit_fates(&open, &fates)?;
        if let QueuePoll::Answered(queue) = &polled {
            self.cancel_stray_jobs(&open, queue)?;
        }
        self.perform_fates(&open, &fates, &released)?;
        let left = self.load_open_allocations()?;
        self.update_status(&left, matches!(polled, QueuePoll::Answered(_)).then_some(now));
        Ok(self.next_pass_delay(&left))
    }

    /// What workers of allocations that are over could show is accepted no more.
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
        heard: &ReceivedNotices,
        now: Timestamp,
    ) -> Result<BTreeSet<WorkflowId>, PassError> {
        let is_long_ago =
            self.last_full_scan.is_none_or(|at| now.since(at) >= FULL_SCAN_INTERVAL || at > now);
        if !heard.is_any_change && !is_long_ago {
            return Ok(heard.workflows.clone());
        }
        self.last_full_scan = Some(now);
        let is_active = |row: &&WorkflowRow| {
            row.started_at.is_some() && row.ended_at.is_none() && !row.is_canceled && !row.is_archived
        };
        let rows = self.database().workflows()?;
        Ok(rows.iter().filter(is_active).map(|row| row.id).chain(heard.workflows.iter().copied()).collect())
    }

    fn load_open_allocations(&self) -> Result<Vec<Allocation>, PassError> {
        let filter =
            AllocationFilter { is_open: Some(true), is_ours: Some(true), ..AllocationFilter::default() };
        Ok(self.database().allocations(&filter)?)
    }

    /// Slurm is asked only about what it may have.
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
                    // It has the next call, before those who submit.
                    self.polled_at = before;
                }
                self.poll_outcome = PollOutcome::NoAnswer(why.to_string());
                return QueuePoll::NotAsked;
            }
            SlurmOutcome::Unknown(why) => why.to_string(),
            SlurmOutcome::Refused(said) => format!("`squeue` failed: {said}"),
        };
        self.poll_outcome = PollOutcome::NoAnswer(why.clone());
        lock_ignoring_poison(&self.status).problem = Some(why);
        QueuePoll::NoAnswer
    }

    /// Fast while something happens, slow while nothing does.
    fn poll_interval(&self, open: &[Allocation], now: Timestamp) -> Duration {
        // However small the budget, half of it is for those who have something to do.
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
        // As long as a twentieth of the time in which nothing happened: what waits for an hour may wait a minute more.
        (quiet / 20).clamp(fastest, slowest)
    }

    fn decide_fates(
        &self,
        open: &[Allocation],
        polled: &QueuePoll,
    ) -> Result<Vec<AllocationDecision>, PassError> {
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
                &self.options.patience,
                now,
            )
        };
        let first: Vec<AllocationDecision> = open.iter().map(decide).collect();
        let asked: Vec<&Allocation> =
            open.iter().zip(&first).filter(|(_, fate)| fate.asks_accounting).map(|(row, _)| row).collect();
        if asked.is_empty() {
            return Ok(first);
        }
        let answer = self.query_accounting(&asked);
        let again = |(row, fate): (&Allocation, AllocationDecision)| {
            if !fate.asks_accounting {
                return fate;
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
                &self.options.patience,
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
            lost.clone().map(|row| database_id::mark_tag(&batch::job_name(row), home)).collect();
        let since = lost.filter_map(|row| row.submitted_at).min().unwrap_or_else(|| SystemClock.now());
        match self.slurm.find_accounted_jobs(&ids, &names, since) {
            SlurmOutcome::Answered(AccountingRecords::Jobs(jobs)) => {
                let here = |(id, job)| Some((id, database_id::own_accounted_job(job, home)?));
                Some(AccountingRecords::Jobs(jobs.into_iter().filter_map(here).collect()))
            }
            SlurmOutcome::Answered(AccountingRecords::Disabled) => Some(AccountingRecords::Disabled),
            SlurmOutcome::Refused(said) => {
                tracing::warn!(%said, "accounting has refused to answer");
                None
            }
            SlurmOutcome::Unknown(_) => None,
        }
    }

    /// What was decided goes to disk; then the service and people are told.
    fn commit_fates(&mut self, open: &[Allocation], fates: &[AllocationDecision]) -> Result<(), PassError> {
        let changes: Vec<AllocationChange> = fates.iter().filter_map(|fate| fate.change.clone()).collect();
        if changes.iter().any(|change| change.from != change.to) {
            self.changed_at = SystemClock.now();
        }
        self.commit_changes(&changes)?;
        for change in &changes {
            // Also if the row was otherwise by then: Slurm has said so.
            if let Some(Some(at)) = change.ends_at {
                self.scheduler().notify_allocation_end_time(change.id, at);
            }
            if change.from != change.to && change.to == AllocationState::Ended {
                self.scheduler().notify_allocation_ended(change.id);
            }
        }
        for (row, fate) in open.iter().zip(fates) {
            if let Some(reason) = &fate.alarm {
                let number = row.job_id.map(|id| format!(", job {id} of Slurm,")).unwrap_or_default();
                let words = pending_reasons::describe_reason(reason);
                let message = format!("allocation {}{number} will not start by itself: {words}", row.id);
                self.record_workflow_event(row.workflow, EventSeverity::Warning, message)?;
            }
        }
        Ok(())
    }

    /// All at once; one by one where somebody was faster with one of them: what was decided from an older row is decided
    /// again.
    pub(super) fn commit_changes(&self, changes: &[AllocationChange]) -> Result<(), PassError> {
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
                    tracing::debug!(id = %change.id, "an allocation is otherwise by now");
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn perform_fates(
        &mut self,
        open: &[Allocation],
        fates: &[AllocationDecision],
        released: &BTreeSet<AllocationId>,
    ) -> Result<(), PassError> {
        let acts =
            || open.iter().zip(fates).flat_map(|(row, fate)| fate.effects.iter().map(move |act| (row, act)));
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
            SlurmOutcome::Answered(()) => tracing::info!(?jobs, "canceled jobs of Slurm"),
            SlurmOutcome::Refused(said) => tracing::warn!(?jobs, %said, "Slurm refuses to cancel"),
            // The next pass tries again.
            SlurmOutcome::Unknown(_) => return,
        }
        self.canceled.extend(jobs.into_iter().map(|job| (job, now)));
    }

    /// Jobs that bear a tag of ours and belong to nobody.
    fn cancel_stray_jobs(&mut self, open: &[Allocation], queue: &[QueueJob]) -> Result<(), PassError> {
        // As the rows are now: what was found by its tag has its number.
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
            tracing::warn!(jobs = ?strays, "jobs of Slurm that bear our tags and belong to no allocation are canceled");
            self.cancel_jobs(&strays);
        }
        Ok(())
    }

    /// Whether the books have an allocation with this tag; it is none of the open ones.
    fn is_known_tag(&mut self, tag: &str) -> Result<bool, PassError> {
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

    /// The books are looked at often, which costs little; Slurm only when it is due.
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

/// What came of the question for all jobs.
enum QueuePoll {
    NotAsked,
    NoAnswer,
    Answered(Vec<QueueJob>),
}

impl QueuePoll {
    fn jobs(&self) -> Option<&[QueueJob]> {
        match self {
            Self::Answered(jobs) => Some(jobs),
            Self::NotAsked | Self::NoAnswer => None,
        }
    }
}

/// A pass that comes so little early is not sent back.
const EARLY_TOLERANCE: Duration = Duration::from_millis(100);

/// What a pass knows besides Slurm's answers.
struct PassObservations<'a> {
    queue: Option<&'a [QueueJob]>,
    by_id: HashMap<u64, &'a QueueJob>,
    by_tag: HashMap<&'a str, Vec<&'a QueueJob>>,
    workers: HashMap<AllocationId, AllocationWorkers>,
    not_needed: HashMap<AllocationId, String>,
    served_since: Timestamp,
}

impl<'a> PassObservations<'a> {
    fn collect(
        store: &dyn StoreDatabase,
        open: &[Allocation],
        queue: Option<&'a [QueueJob]>,
        served_since: Timestamp,
    ) -> Result<Self, PassError> {
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

    /// Which of these allocations of a workflow nobody needs.
    fn find_unneeded<'r>(
        &mut self,
        store: &dyn StoreDatabase,
        id: WorkflowId,
        open: impl Iterator<Item = &'r Allocation>,
    ) -> Result<(), PassError> {
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
                let why = format!("none of the jobs that are left fits into it ({} of them)", left.len());
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
            let mut jobs: Vec<&QueueJob> = self.by_tag.get(row.tag.as_str()).cloned().unwrap_or_default();
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

/// Why allocations of a workflow have nothing left to do. One that waits is kept while any job is not over, be it held by
/// somebody: his allocation may end before the job does, and then this one goes on with it.
fn why_not_needed(id: WorkflowId, row: Option<&WorkflowRow>) -> Option<String> {
    let Some(row) = row else { return Some(format!("workflow {id} is gone")) };
    let is_over = row.counts.total() > 0 && row.counts.settled() == row.counts.total();
    match () {
        () if row.is_canceled => Some(format!("workflow {id} was canceled")),
        () if row.is_archived => Some(format!("workflow {id} was put away")),
        () if is_over => Some(format!("all jobs of workflow {id} are over")),
        () => None,
    }
}

/// When so few jobs of a workflow are left they are looked at.
const MAX_INSPECTED_JOBS: u64 = 200;

/// What the jobs ask for that are not over, also those that somebody holds. `None`: there are many, or some do not say.
fn remaining_job_resources(
    store: &dyn StoreDatabase,
    workflow: &WorkflowRow,
) -> Result<Option<Vec<Resources>>, PassError> {
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

/// What accounting has of an allocation: under its number, or its tag. Where comments are not kept, one of a series is known
/// by the name of the series and by belonging to no other allocation.
fn find_accounted_jobs<'a>(
    row: &Allocation,
    jobs: &'a BTreeMap<u64, AccountedJob>,
    open: &[Allocation],
) -> Vec<&'a AccountedJob> {
    if let Some(id) = row.job_id {
        return jobs.get(&id).into_iter().collect();
    }
    let series = batch::job_name(row);
    let is_others = |job: &AccountedJob| open.iter().any(|other| other.job_id == Some(job.job_id));
    let is_own = |job: &&AccountedJob| {
        job.has_tag(&row.tag)
            || (row.request.serialize && job.comment.is_empty() && job.name == series && !is_others(job))
    };
    jobs.values().filter(is_own).collect()
}
