//! Decisions about an allocation: from its row, the replies of Slurm, and whether its worker is alive.
//!
//! A missing reply decides nothing. Slurm's state is not final either: a restarted controller shows running
//! jobs as pending, and forgets ended ones after a while. So states may go backwards, and a job counts as gone
//! only if accounting confirms it, or if it was missing twice and its worker is silent. The state of an
//! allocation does not decide about its jobs: those are requeued when the lease of their worker expires, as
//! with every worker.

use super::allocation_rows::AllocationChange;
use super::pending_reasons;
use super::slurm_jobs::{SacctJob, SqueueJob};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_types::Timestamp;
use windlass_types::slurm::{Allocation, AllocationState, SlurmJobState};

/// What is known at the time of a decision.
#[derive(Clone, Debug)]
pub struct AllocationObservation<'a> {
    /// The jobs with the allocation's number or tag. `None`: the controller did not answer.
    pub queue: Option<Vec<&'a SqueueJob>>,
    pub accounting: AccountingReply<'a>,
    pub workers: AllocationWorkers,
    /// Why it is no longer needed.
    pub not_needed_reason: Option<&'a str>,
    /// Since when a worker could register: before that there was no server.
    pub served_since: Timestamp,
}

/// Reply of accounting.
#[derive(Clone, Debug)]
pub enum AccountingReply<'a> {
    NotAsked,
    /// It did not answer.
    NoReply,
    /// This cluster has no accounting.
    Disabled,
    /// The jobs with the allocation's number or tag; the last row of each.
    Answered(Vec<&'a SacctJob>),
}

/// The workers of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationWorkers {
    /// Whether a worker of this job has registered.
    pub has_registered: bool,
    /// Whether one is alive: its lease has not expired.
    pub is_alive: bool,
}

/// Timeouts of allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationTimeouts {
    /// Time until a submitted job is visible.
    pub until_listed: Duration,
    /// Time until a submission without reply is known to be lost.
    pub until_accepted: Duration,
    /// Time until a running allocation has a worker.
    pub until_registered: Duration,
    /// Time until an ended job is in accounting with its exit code.
    pub until_accounted: Duration,
    /// Interval at which the last sighting is stored if nothing else changes.
    pub seen_interval: Duration,
}

impl Default for AllocationTimeouts {
    fn default() -> Self {
        Self {
            until_listed: Duration::from_secs(30),
            until_accepted: Duration::from_mins(1),
            until_registered: Duration::from_mins(10),
            until_accounted: Duration::from_secs(10),
            seen_interval: Duration::from_mins(2),
        }
    }
}

/// The result of a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationDecision {
    /// To be committed before anything is done.
    pub change: Option<AllocationChange>,
    /// Whether to query accounting and decide again. This decision applies if it does not answer.
    pub asks_accounting: bool,
    pub effects: Vec<SlurmEffect>,
    /// An alarm for operators: waiting does not solve the problem.
    pub alarm: Option<String>,
}

/// An action at Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlurmEffect {
    /// Submit it; if it was submitted before, Slurm certainly does not have it.
    Submit,
    /// Cancel this Slurm job.
    Cancel(u64),
}

/// Decides about an allocation.
pub fn decide_allocation(
    row: &Allocation,
    sight: &AllocationObservation<'_>,
    max_wait: &AllocationTimeouts,
    now: Timestamp,
) -> AllocationDecision {
    let case = AllocationCase { row, observation: sight, timeouts: max_wait, now };
    match row.state {
        AllocationState::Intended => case.decide_intended(),
        AllocationState::Submitting => case.decide_submitting(),
        AllocationState::Pending | AllocationState::Running | AllocationState::Completing => {
            case.decide_submitted()
        }
        AllocationState::Ended | AllocationState::Refused | AllocationState::Withdrawn => {
            AllocationDecision::default()
        }
    }
}

/// Returns the Slurm job to cancel because of the row alone, without waiting for the next poll.
pub fn job_to_cancel(row: &Allocation) -> Option<u64> {
    let is_there = matches!(row.state, AllocationState::Pending | AllocationState::Running);
    row.job_id.filter(|_| is_there && row.unwanted.is_some())
}

/// An allocation in the database with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaggedAllocation {
    /// An open allocation; with its job, if known.
    Open(Option<u64>),
    /// An ended one.
    Over,
}

/// Finds jobs that must be canceled: a second one of an allocation, one of an ended allocation, and ones with a
/// tag of this server that is not in the database. Jobs with other tags belong to others.
pub fn find_stray_jobs(
    queue: &[SqueueJob],
    known: &BTreeMap<&str, TaggedAllocation>,
    prefixes: &BTreeSet<&str>,
) -> Vec<u64> {
    let is_stray = |job: &&SqueueJob| {
        let tag = job_tag(job);
        job.is_alive()
            && match known.get(tag) {
                Some(TaggedAllocation::Open(id)) => id.is_some_and(|id| id != job.job_id),
                Some(TaggedAllocation::Over) => true,
                None => tag_prefix(tag).is_some_and(|prefix| prefixes.contains(prefix)),
            }
    };
    queue.iter().filter(is_stray).map(|job| job.job_id).collect()
}

/// Returns the tag of a job, if it is one of Windlass.
pub fn job_tag(job: &SqueueJob) -> &str {
    if job.comment.is_empty() { &job.name } else { &job.comment }
}

/// Returns the common prefix of all tags of a workflow; the tag of an allocation ends with its number.
pub fn tag_prefix(tag: &str) -> Option<&str> {
    let (prefix, number) = tag.rsplit_once('-')?;
    number.parse::<u64>().ok().map(|_| prefix)
}

struct AllocationCase<'a> {
    row: &'a Allocation,
    observation: &'a AllocationObservation<'a>,
    timeouts: &'a AllocationTimeouts,
    now: Timestamp,
}

impl AllocationCase<'_> {
    fn new_change(&self, to: AllocationState) -> AllocationChange {
        let mut change = AllocationChange::new(self.row.id, self.row.state, to);
        change.only_slurm_job = self.row.job_id;
        change
    }

    /// Returns why it is to be canceled.
    fn unwanted_reason(&self) -> Option<&str> {
        self.row.unwanted.as_deref().or(self.observation.not_needed_reason)
    }

    fn withdraw(&self, why: &str) -> AllocationDecision {
        let mut change = self.new_change(AllocationState::Withdrawn);
        change.reason = Some(Some(why.to_owned()));
        change.ended_at = Some(self.now);
        AllocationDecision { change: Some(change), ..AllocationDecision::default() }
    }

    fn decide_intended(&self) -> AllocationDecision {
        match self.unwanted_reason() {
            Some(why) => self.withdraw(why),
            None => {
                AllocationDecision { effects: vec![SlurmEffect::Submit], ..AllocationDecision::default() }
            }
        }
    }

    /// `sbatch` was called, with unknown result.
    fn decide_submitting(&self) -> AllocationDecision {
        let Some(queue) = &self.observation.queue else { return self.on_not_found(0) };
        if let Some(job) = queue
            .iter()
            .filter(|job| self.is_of_this_submission(job))
            .min_by_key(|job| (!job.is_alive(), job.job_id))
        {
            return self.on_found_queued(job);
        }
        let since = self.row.submitted_at.unwrap_or(self.row.created_at);
        if self.now.since(since) < self.timeouts.until_accepted {
            return AllocationDecision::default();
        }
        if self.row.missed == 0 {
            // A submission that was waiting for a stalled controller may not be listed yet.
            return self.on_not_found(1);
        }
        let accounted = match &self.observation.accounting {
            AccountingReply::NotAsked => {
                return AllocationDecision { asks_accounting: true, ..AllocationDecision::default() };
            }
            AccountingReply::NoReply => return AllocationDecision::default(),
            AccountingReply::Disabled => None,
            AccountingReply::Answered(jobs) => {
                let is_later = |job: &&&SacctJob| self.is_late_enough(job.submitted_at);
                jobs.iter().filter(is_later).max_by_key(|job| job.job_id)
            }
        };
        match (accounted, self.unwanted_reason()) {
            (Some(job), _) => self.on_found_accounted(job),
            (None, Some(why)) => self.withdraw(why),
            (None, None) => {
                AllocationDecision { effects: vec![SlurmEffect::Submit], ..AllocationDecision::default() }
            }
        }
    }

    /// An ended job may belong to an earlier submission that was rejected.
    fn is_of_this_submission(&self, job: &SqueueJob) -> bool {
        job.is_alive() || self.is_late_enough(job.submitted_at)
    }

    fn is_late_enough(&self, submitted_at: Option<Timestamp>) -> bool {
        let called = self.row.submitted_at.unwrap_or(self.row.created_at);
        // Clocks differ.
        submitted_at.is_none_or(|at| at.plus(self.timeouts.until_listed) >= called)
    }

    /// The submission had succeeded.
    fn on_found_queued(&self, job: &SqueueJob) -> AllocationDecision {
        let mut allocation_decision = self.on_seen(job);
        if let Some(change) = &mut allocation_decision.change {
            change.job_id = Some(Some(job.job_id));
        }
        allocation_decision
    }

    fn on_found_accounted(&self, job: &SacctJob) -> AllocationDecision {
        let mut change = match job.state.filter(|state| state.is_terminal()) {
            Some(state) => self.accounted_end_change(state, job),
            // The next poll shows its state.
            None => self.new_change(AllocationState::Pending),
        };
        change.job_id = Some(Some(job.job_id));
        change.missed_polls = Some(0);
        AllocationDecision { change: Some(change), ..AllocationDecision::default() }
    }

    fn decide_submitted(&self) -> AllocationDecision {
        let (Some(queue), Some(id)) = (&self.observation.queue, self.row.job_id) else {
            return AllocationDecision::default();
        };
        match queue.iter().find(|job| job.job_id == id) {
            Some(job) => self.on_seen(job),
            None => self.on_absent(id),
        }
    }

    /// The controller lists it.
    fn on_seen(&self, job: &SqueueJob) -> AllocationDecision {
        let row = self.row;
        let to = self.state_of(job);
        let mut change = self.new_change(to);
        let mut allocation_decision = AllocationDecision::default();
        match to {
            AllocationState::Ended => {
                allocation_decision.asks_accounting =
                    matches!(self.observation.accounting, AccountingReply::NotAsked);
                let needs_accounting = self.awaits_accounting(job);
                change = if needs_accounting {
                    self.new_change(AllocationState::Completing)
                } else {
                    self.end_change(job)
                };
            }
            AllocationState::Pending => {
                let reason = job.reason.clone().filter(|reason| reason != "None");
                let reason = if job.state == Some(SlurmJobState::Configuring) {
                    Some("Configuring".to_owned())
                } else {
                    reason
                };
                allocation_decision.alarm = reason
                    .clone()
                    .filter(|new| pending_reasons::needs_human(new) && row.reason.as_ref() != Some(new));
                set_if_changed(&mut change.reason, &row.reason, reason);
                set_if_changed(&mut change.started_at, &row.started_at, None);
                set_if_changed(&mut change.ends_at, &row.ends_at, None);
            }
            AllocationState::Running if job.state.is_some_and(|state| !state.is_waiting()) => {
                set_if_changed(&mut change.reason, &row.reason, None);
                set_if_changed(&mut change.started_at, &row.started_at, job.started_at.or(row.started_at));
                set_if_changed(&mut change.ends_at, &row.ends_at, job.ends_at);
                set_if_changed(
                    &mut change.nodes,
                    &row.nodes,
                    job.nodes.clone().or_else(|| row.nodes.clone()),
                );
            }
            _ => {}
        }
        if row.missed > 0 {
            change.missed_polls = Some(0);
        }
        self.cancel_unwanted(to, job, &mut change, &mut allocation_decision);
        let was_seen_long_ago =
            row.seen_at.is_none_or(|at| self.now.since(at) >= self.timeouts.seen_interval);
        let nothing = self.new_change(row.state);
        if change != nothing || was_seen_long_ago {
            change.seen_at = Some(self.now);
            allocation_decision.change = Some(change);
        }
        allocation_decision
    }

    /// Whether accounting has not recorded the end yet: it is slightly behind the controller.
    fn awaits_accounting(&self, job: &SqueueJob) -> bool {
        let AccountingReply::Answered(jobs) = &self.observation.accounting else { return false };
        let is_accounted =
            jobs.iter().any(|accounted| accounted.job_id == job.job_id && accounted.state == job.state);
        let is_recent = |ended: Timestamp| self.now.since(ended) < self.timeouts.until_accounted;
        !is_accounted && job.ends_at.is_some_and(is_recent)
    }

    fn state_of(&self, job: &SqueueJob) -> AllocationState {
        let is_under_way = matches!(self.row.state, AllocationState::Running | AllocationState::Completing);
        match job.state {
            Some(state) if state.is_terminal() => AllocationState::Ended,
            Some(SlurmJobState::Completing) => AllocationState::Completing,
            // A controller that crashed shows it as pending. Its worker knows better.
            Some(state) if state.is_waiting() || state == SlurmJobState::Configuring => {
                if is_under_way && self.observation.workers.is_alive {
                    self.row.state
                } else {
                    AllocationState::Pending
                }
            }
            Some(_) => AllocationState::Running,
            // Nothing is known except that it exists.
            None if self.row.state == AllocationState::Submitting => AllocationState::Pending,
            None => self.row.state,
        }
    }

    /// It is not needed, or no worker registered: cancels it.
    fn cancel_unwanted(
        &self,
        to: AllocationState,
        job: &SqueueJob,
        change: &mut AllocationChange,
        allocation_decision: &mut AllocationDecision,
    ) {
        let silent = match to {
            AllocationState::Pending => self.observation.not_needed_reason.map(str::to_owned),
            AllocationState::Running => self.no_worker_reason(job),
            _ => return,
        };
        if self.row.unwanted.is_none() {
            change.unwanted_reason.clone_from(&silent);
        }
        if self.row.unwanted.is_some() || silent.is_some() {
            allocation_decision.effects.push(SlurmEffect::Cancel(job.job_id));
            allocation_decision.alarm = None;
        }
    }

    fn no_worker_reason(&self, job: &SqueueJob) -> Option<String> {
        let limit = self.timeouts.until_registered;
        let since = job.started_at.or(self.row.started_at)?.max(self.observation.served_since);
        let runs_for = self.now.since(since);
        let is_late = job.state == Some(SlurmJobState::Running) && runs_for >= limit;
        let why = || {
            format!(
                "it runs, but no worker has registered within {} min: see its output",
                limit.as_secs() / 60
            )
        };
        (is_late && !self.observation.workers.has_registered && !self.observation.workers.is_alive).then(why)
    }

    /// The controller answered and does not list it.
    fn on_absent(&self, id: u64) -> AllocationDecision {
        let submitted = self.row.submitted_at.unwrap_or(self.row.created_at);
        if self.now.since(submitted) < self.timeouts.until_listed {
            return AllocationDecision::default();
        }
        let accounted = match &self.observation.accounting {
            AccountingReply::NotAsked => {
                return AllocationDecision { asks_accounting: true, ..AllocationDecision::default() };
            }
            AccountingReply::NoReply => return AllocationDecision::default(),
            AccountingReply::Disabled => None,
            AccountingReply::Answered(jobs) => jobs.iter().find(|job| job.job_id == id),
        };
        if let Some((job, state)) =
            accounted.and_then(|job| Some((job, job.state.filter(|state| state.is_terminal())?)))
        {
            return AllocationDecision {
                change: Some(self.accounted_end_change(state, job)),
                ..AllocationDecision::default()
            };
        }
        if self.row.missed == 0 || self.observation.workers.is_alive {
            return self.on_not_found(self.row.missed.saturating_add(1).min(2));
        }
        let mut change = self.new_change(AllocationState::Ended);
        change.ended_at = Some(self.now);
        change.missed_polls = Some(2);
        let kept = accounted
            .map(|job| format!(", though accounting still says {}", job.state_text))
            .unwrap_or_default();
        change.reason = Some(Some(format!("Slurm no longer knows it, and its worker is silent{kept}")));
        AllocationDecision { change: Some(change), ..AllocationDecision::default() }
    }

    fn on_not_found(&self, count: u32) -> AllocationDecision {
        if self.row.missed == count {
            return AllocationDecision::default();
        }
        let mut change = self.new_change(self.row.state);
        change.missed_polls = Some(count);
        AllocationDecision { change: Some(change), ..AllocationDecision::default() }
    }

    /// The controller still lists its end; accounting may add its exit code.
    fn end_change(&self, job: &SqueueJob) -> AllocationChange {
        let accounted = match &self.observation.accounting {
            AccountingReply::Answered(jobs) => jobs.iter().find(|accounted| accounted.job_id == job.job_id),
            _ => None,
        };
        let state = job.state.unwrap_or(SlurmJobState::Completed);
        let same = accounted.filter(|accounted| accounted.state == job.state);
        let seen = SacctJob {
            job_id: job.job_id,
            state_text: state.name().to_owned(),
            started_at: job.started_at,
            ended_at: job.ends_at,
            nodes: job.nodes.clone(),
            ..SacctJob::default()
        };
        self.accounted_end_change(state, same.copied().unwrap_or(&seen))
    }

    fn accounted_end_change(&self, state: SlurmJobState, job: &SacctJob) -> AllocationChange {
        let mut change = self.new_change(AllocationState::Ended);
        change.end = Some(state);
        change.exit_code.clone_from(&job.exit_code);
        change.ended_at = Some(job.ended_at.unwrap_or(self.now));
        change.seen_at = Some(self.now);
        // Who canceled it, or nothing: the reason for waiting no longer applies.
        let said =
            (job.state_text != state.name() && !job.state_text.is_empty()).then(|| job.state_text.clone());
        set_if_changed(&mut change.reason, &self.row.reason, said);
        set_if_changed(&mut change.started_at, &self.row.started_at, job.started_at.or(self.row.started_at));
        set_if_changed(
            &mut change.nodes,
            &self.row.nodes,
            job.nodes.clone().or_else(|| self.row.nodes.clone()),
        );
        change
    }
}

/// An existing value is not written again.
fn set_if_changed<T: PartialEq>(field: &mut Option<T>, is: &T, to: T) {
    if *is != to {
        *field = Some(to);
    }
}

#[cfg(test)]
mod tests;
