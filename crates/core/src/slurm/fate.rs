//! What becomes of an allocation: from its row, from what Slurm says or does not say, and from whether its worker lives.
//!
//! A question that was not answered is no answer: nothing follows from it. Slurm's word is not final either: a controller that
//! was restarted shows what runs as waiting, and forgets what is over after a while. So a state may go backwards, and that a
//! job is not there any more is believed only with accounting's word for it, or when it was missing twice and its worker is
//! silent. What Slurm says of an allocation is no verdict on the jobs in it: those go back when the lease of their worker is
//! over, as with every worker.

use super::book::AllocationChange;
use super::reasons;
use super::sight::{BookedJob, QueueJob};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_types::Timestamp;
use windlass_types::slurm::{Allocation, AllocationState, SlurmState};

/// What is known when it is decided.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    /// The jobs that have the allocation's number or bear its tag. `None`: the controller did not answer.
    pub queue: Option<Vec<&'a QueueJob>>,
    pub accounting: Accounting<'a>,
    pub workers: Workers,
    /// Why nobody has a use for it any more.
    pub not_needed: Option<&'a str>,
    /// Since when its worker could have come: before that there was no server.
    pub served_since: Timestamp,
}

/// What accounting says.
#[derive(Clone, Debug)]
pub enum Accounting<'a> {
    NotAsked,
    /// It did not answer.
    Silent,
    /// There is none on this cluster.
    Disabled,
    /// Of the jobs that have the allocation's number or bear its tag, the last row.
    Answered(Vec<&'a BookedJob>),
}

/// The workers of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// One was there, of this job.
    pub has_come: bool,
    /// One is there: its lease is not over.
    pub is_alive: bool,
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// One that was just submitted may not be shown yet.
    pub to_be_shown: Duration,
    /// One whose submission was not answered may still be accepted.
    pub to_be_accepted: Duration,
    /// One that runs has a worker after this.
    pub to_register: Duration,
    /// What the controller says has ended is in accounting after this, with its exit code.
    pub to_be_booked: Duration,
    /// That it was seen is noted so often if nothing else is to be noted.
    pub to_note: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            to_be_shown: Duration::from_secs(30),
            to_be_accepted: Duration::from_mins(1),
            to_register: Duration::from_mins(10),
            to_be_booked: Duration::from_secs(10),
            to_note: Duration::from_mins(2),
        }
    }
}

/// What follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// To be committed before anything is done.
    pub change: Option<AllocationChange>,
    /// Accounting is to be asked, and this decided again with its answer. What stands here holds if it does not answer.
    pub ask_accounting: bool,
    pub acts: Vec<Act>,
    /// Somebody should know: it waits for something that waiting does not bring.
    pub alarm: Option<String>,
}

/// What is done about it at Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is asked for; if it was before, then Slurm certainly does not have it.
    Submit,
    /// This job of Slurm is to go.
    Cancel(u64),
}

/// What follows for an allocation of ours.
pub fn decide(row: &Allocation, sight: &Sight<'_>, patience: &Patience, now: Timestamp) -> Fate {
    let case = Case { row, sight, patience, now };
    match row.state {
        AllocationState::Intended => case.intended(),
        AllocationState::Submitting => case.submitting(),
        AllocationState::Pending | AllocationState::Running | AllocationState::Completing => case.submitted(),
        AllocationState::Ended | AllocationState::Refused | AllocationState::Withdrawn => Fate::default(),
    }
}

/// The job of Slurm that is to go because of what the row says alone: whoever wants it gone need not wait until Slurm has been
/// asked how it stands.
pub fn to_go(row: &Allocation) -> Option<u64> {
    let is_there = matches!(row.state, AllocationState::Pending | AllocationState::Running);
    row.job_id.filter(|_| is_there && row.unwanted.is_some())
}

/// What the books have under a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagged {
    /// An open allocation; with its job, if it is known.
    Open(Option<u64>),
    /// One that is over.
    Over,
}

/// Jobs that nobody here has a use for: a second one of an allocation, one of an allocation that is over, and ones with a tag
/// that begins as ours do and that the books do not have. Others' jobs have other tags, and are none of our business.
pub fn strays(queue: &[QueueJob], known: &BTreeMap<&str, Tagged>, prefixes: &BTreeSet<&str>) -> Vec<u64> {
    let is_stray = |job: &&QueueJob| {
        let tag = tag_of(job);
        job.is_alive()
            && match known.get(tag) {
                Some(Tagged::Open(id)) => id.is_some_and(|id| id != job.job_id),
                Some(Tagged::Over) => true,
                None => prefix_of(tag).is_some_and(|prefix| prefixes.contains(prefix)),
            }
    };
    queue.iter().filter(is_stray).map(|job| job.job_id).collect()
}

/// The tag of a job, if it is one of ours.
pub fn tag_of(job: &QueueJob) -> &str {
    if job.comment.is_empty() { &job.name } else { &job.comment }
}

/// What all tags of a workflow have in common; that of an allocation ends with its number.
pub fn prefix_of(tag: &str) -> Option<&str> {
    let (prefix, number) = tag.rsplit_once('-')?;
    number.parse::<u64>().ok().map(|_| prefix)
}

struct Case<'a> {
    row: &'a Allocation,
    sight: &'a Sight<'a>,
    patience: &'a Patience,
    now: Timestamp,
}

impl Case<'_> {
    fn change(&self, to: AllocationState) -> AllocationChange {
        let mut change = AllocationChange::new(self.row.id, self.row.state, to);
        change.of_job = self.row.job_id;
        change
    }

    /// Why it is to go.
    fn unwanted(&self) -> Option<&str> {
        self.row.unwanted.as_deref().or(self.sight.not_needed)
    }

    fn withdrawn(&self, why: &str) -> Fate {
        let mut change = self.change(AllocationState::Withdrawn);
        change.reason = Some(Some(why.to_owned()));
        change.ended_at = Some(self.now);
        Fate { change: Some(change), ..Fate::default() }
    }

    fn intended(&self) -> Fate {
        match self.unwanted() {
            Some(why) => self.withdrawn(why),
            None => Fate { acts: vec![Act::Submit], ..Fate::default() },
        }
    }

    /// `sbatch` was called, and nobody knows what came of it.
    fn submitting(&self) -> Fate {
        let Some(queue) = &self.sight.queue else { return self.missed(0) };
        if let Some(job) = queue
            .iter()
            .filter(|job| self.is_of_this_time(job))
            .min_by_key(|job| (!job.is_alive(), job.job_id))
        {
            return self.found(job);
        }
        let since = self.row.submitted_at.unwrap_or(self.row.created_at);
        if self.now.since(since) < self.patience.to_be_accepted {
            return Fate::default();
        }
        if self.row.missed == 0 {
            // What was waiting at a controller's door when it woke may not be inside yet.
            return self.missed(1);
        }
        let booked = match &self.sight.accounting {
            Accounting::NotAsked => return Fate { ask_accounting: true, ..Fate::default() },
            Accounting::Silent => return Fate::default(),
            Accounting::Disabled => None,
            Accounting::Answered(jobs) => {
                let is_later = |job: &&&BookedJob| self.is_late_enough(job.submitted_at);
                jobs.iter().filter(is_later).max_by_key(|job| job.job_id)
            }
        };
        match (booked, self.unwanted()) {
            (Some(job), _) => self.found_booked(job),
            (None, Some(why)) => self.withdrawn(why),
            (None, None) => Fate { acts: vec![Act::Submit], ..Fate::default() },
        }
    }

    /// A job that is over may be from an earlier submission that was rejected.
    fn is_of_this_time(&self, job: &QueueJob) -> bool {
        job.is_alive() || self.is_late_enough(job.submitted_at)
    }

    fn is_late_enough(&self, submitted_at: Option<Timestamp>) -> bool {
        let called = self.row.submitted_at.unwrap_or(self.row.created_at);
        // Clocks differ.
        submitted_at.is_none_or(|at| at.after(self.patience.to_be_shown) >= called)
    }

    /// One that was submitted after all.
    fn found(&self, job: &QueueJob) -> Fate {
        let mut fate = self.seen(job);
        if let Some(change) = &mut fate.change {
            change.job_id = Some(Some(job.job_id));
        }
        fate
    }

    fn found_booked(&self, job: &BookedJob) -> Fate {
        let mut change = match job.state.filter(|state| state.is_terminal()) {
            Some(state) => self.ended(state, job),
            // The next poll tells how it stands.
            None => self.change(AllocationState::Pending),
        };
        change.job_id = Some(Some(job.job_id));
        change.missed = Some(0);
        Fate { change: Some(change), ..Fate::default() }
    }

    fn submitted(&self) -> Fate {
        let (Some(queue), Some(id)) = (&self.sight.queue, self.row.job_id) else { return Fate::default() };
        match queue.iter().find(|job| job.job_id == id) {
            Some(job) => self.seen(job),
            None => self.absent(id),
        }
    }

    /// The controller shows it.
    fn seen(&self, job: &QueueJob) -> Fate {
        let row = self.row;
        let to = self.state_of(job);
        let mut change = self.change(to);
        let mut fate = Fate::default();
        match to {
            AllocationState::Ended => {
                fate.ask_accounting = matches!(self.sight.accounting, Accounting::NotAsked);
                let is_to_be_booked = self.is_to_be_booked(job);
                change =
                    if is_to_be_booked { self.change(AllocationState::Completing) } else { self.end(job) };
            }
            AllocationState::Pending => {
                let reason = job.reason.clone().filter(|reason| reason != "None");
                let reason = if job.state == Some(SlurmState::Configuring) {
                    Some("Configuring".to_owned())
                } else {
                    reason
                };
                fate.alarm = reason
                    .clone()
                    .filter(|new| reasons::needs_human(new) && row.reason.as_ref() != Some(new));
                set(&mut change.reason, &row.reason, reason);
                set(&mut change.started_at, &row.started_at, None);
                set(&mut change.ends_at, &row.ends_at, None);
            }
            AllocationState::Running if job.state.is_some_and(|state| !state.is_waiting()) => {
                set(&mut change.reason, &row.reason, None);
                set(&mut change.started_at, &row.started_at, job.started_at.or(row.started_at));
                set(&mut change.ends_at, &row.ends_at, job.ends_at);
                set(&mut change.nodes, &row.nodes, job.nodes.clone().or_else(|| row.nodes.clone()));
            }
            _ => {}
        }
        if row.missed > 0 {
            change.missed = Some(0);
        }
        self.let_go(to, job, &mut change, &mut fate);
        let was_seen_long_ago = row.seen_at.is_none_or(|at| self.now.since(at) >= self.patience.to_note);
        let nothing = self.change(row.state);
        if change != nothing || was_seen_long_ago {
            change.seen_at = Some(self.now);
            fate.change = Some(change);
        }
        fate
    }

    /// Accounting answers, and has not heard of the end yet: it is a moment behind the controller.
    fn is_to_be_booked(&self, job: &QueueJob) -> bool {
        let Accounting::Answered(jobs) = &self.sight.accounting else { return false };
        let is_booked = jobs.iter().any(|booked| booked.job_id == job.job_id && booked.state == job.state);
        let is_recent = |ended: Timestamp| self.now.since(ended) < self.patience.to_be_booked;
        !is_booked && job.ends_at.is_some_and(is_recent)
    }

    fn state_of(&self, job: &QueueJob) -> AllocationState {
        let is_under_way = matches!(self.row.state, AllocationState::Running | AllocationState::Completing);
        match job.state {
            Some(state) if state.is_terminal() => AllocationState::Ended,
            Some(SlurmState::Completing) => AllocationState::Completing,
            // A controller that crashed shows it as waiting. Its worker knows better.
            Some(state) if state.is_waiting() || state == SlurmState::Configuring => {
                if is_under_way && self.sight.workers.is_alive {
                    self.row.state
                } else {
                    AllocationState::Pending
                }
            }
            Some(_) => AllocationState::Running,
            // That it is there is all that is known.
            None if self.row.state == AllocationState::Submitting => AllocationState::Pending,
            None => self.row.state,
        }
    }

    /// Nobody wants it, or nobody came: it is to go.
    fn let_go(&self, to: AllocationState, job: &QueueJob, change: &mut AllocationChange, fate: &mut Fate) {
        let silent = match to {
            AllocationState::Pending => self.sight.not_needed.map(str::to_owned),
            AllocationState::Running => self.nobody_came(job),
            _ => return,
        };
        if self.row.unwanted.is_none() {
            change.unwanted.clone_from(&silent);
        }
        if self.row.unwanted.is_some() || silent.is_some() {
            fate.acts.push(Act::Cancel(job.job_id));
            fate.alarm = None;
        }
    }

    fn nobody_came(&self, job: &QueueJob) -> Option<String> {
        let limit = self.patience.to_register;
        let since = job.started_at.or(self.row.started_at)?.max(self.sight.served_since);
        let runs_for = self.now.since(since);
        let is_late = job.state == Some(SlurmState::Running) && runs_for >= limit;
        let why =
            || format!("it runs, and no worker has come within {} min: see its output", limit.as_secs() / 60);
        (is_late && !self.sight.workers.has_come && !self.sight.workers.is_alive).then(why)
    }

    /// The controller answered and does not have it.
    fn absent(&self, id: u64) -> Fate {
        let submitted = self.row.submitted_at.unwrap_or(self.row.created_at);
        if self.now.since(submitted) < self.patience.to_be_shown {
            return Fate::default();
        }
        let booked = match &self.sight.accounting {
            Accounting::NotAsked => return Fate { ask_accounting: true, ..Fate::default() },
            Accounting::Silent => return Fate::default(),
            Accounting::Disabled => None,
            Accounting::Answered(jobs) => jobs.iter().find(|job| job.job_id == id),
        };
        if let Some((job, state)) =
            booked.and_then(|job| Some((job, job.state.filter(|state| state.is_terminal())?)))
        {
            return Fate { change: Some(self.ended(state, job)), ..Fate::default() };
        }
        if self.row.missed == 0 || self.sight.workers.is_alive {
            return self.missed(self.row.missed.saturating_add(1).min(2));
        }
        let mut change = self.change(AllocationState::Ended);
        change.ended_at = Some(self.now);
        change.missed = Some(2);
        let kept =
            booked.map(|job| format!(", though accounting still says {}", job.said)).unwrap_or_default();
        change.reason =
            Some(Some(format!("Slurm knows nothing of it any more, and its worker is silent{kept}")));
        Fate { change: Some(change), ..Fate::default() }
    }

    fn missed(&self, count: u32) -> Fate {
        if self.row.missed == count {
            return Fate::default();
        }
        let mut change = self.change(self.row.state);
        change.missed = Some(count);
        Fate { change: Some(change), ..Fate::default() }
    }

    /// The controller still shows its end; accounting has its exit code, too.
    fn end(&self, job: &QueueJob) -> AllocationChange {
        let booked = match &self.sight.accounting {
            Accounting::Answered(jobs) => jobs.iter().find(|booked| booked.job_id == job.job_id),
            _ => None,
        };
        let state = job.state.unwrap_or(SlurmState::Completed);
        let same = booked.filter(|booked| booked.state == job.state);
        let seen = BookedJob {
            job_id: job.job_id,
            said: state.name().to_owned(),
            started_at: job.started_at,
            ended_at: job.ends_at,
            nodes: job.nodes.clone(),
            ..BookedJob::default()
        };
        self.ended(state, same.copied().unwrap_or(&seen))
    }

    fn ended(&self, state: SlurmState, job: &BookedJob) -> AllocationChange {
        let mut change = self.change(AllocationState::Ended);
        change.end = Some(state);
        change.exit_code.clone_from(&job.exit_code);
        change.ended_at = Some(job.ended_at.unwrap_or(self.now));
        change.seen_at = Some(self.now);
        // Who canceled it, or nothing: why it waited is over.
        let said = (job.said != state.name() && !job.said.is_empty()).then(|| job.said.clone());
        set(&mut change.reason, &self.row.reason, said);
        set(&mut change.started_at, &self.row.started_at, job.started_at.or(self.row.started_at));
        set(&mut change.nodes, &self.row.nodes, job.nodes.clone().or_else(|| self.row.nodes.clone()));
        change
    }
}

/// What is there already is not written again.
fn set<T: PartialEq>(field: &mut Option<T>, is: &T, to: T) {
    if *is != to {
        *field = Some(to);
    }
}

#[cfg(test)]
mod tests;
