//! Workflow actions: what sets them off, which of them are due, and when they are armed again.
//!
//! An action waits for jobs or for a moment in the life of a workflow or a worker. When enough of that has happened it is
//! due: once, or, if it is persistent, once for each worker. That an execution begins is on disk before it does, so one
//! that was under way when its process died is known; it may have done its work, and is not repeated by itself.

use crate::change::{ActionChange, Change};
use std::collections::{BTreeMap, HashMap, HashSet};
use windlass_types::settings::Trigger;
use windlass_types::{Attempt, JobId, JobStatus, Timestamp, WorkerId};

/// An action as the books have it.
#[derive(Clone, Debug)]
pub struct Known {
    pub id: i64,
    pub trigger: Trigger,
    pub persistent: bool,
    /// Our own workers can carry it out.
    pub is_ours: bool,
    /// It asks for nodes.
    pub is_for_nodes: bool,
    pub jobs: Vec<JobId>,
    pub trigger_count: u32,
    /// Executions up to this one do not count any more.
    pub armed_after: u32,
    pub runs: Vec<Run>,
}

/// One execution of an action.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub attempt: Attempt,
    pub worker: Option<WorkerId>,
    pub is_over: bool,
}

/// Which execution of which action.
pub type Key = (i64, Attempt);

/// How far a worker is with a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Working,
    /// There is nothing left for it to do here.
    Leaving,
}

/// How often what an action waits for must happen.
pub fn required_triggers(trigger: Trigger, jobs: usize) -> u32 {
    if trigger.is_about_jobs() { u32::try_from(jobs).unwrap_or(u32::MAX).max(1) } else { 1 }
}

/// Whether an action begins anew with a new run. `everything`: no job keeps what it did. `gates_settled`: all the jobs that
/// it waits for do.
pub const fn is_rearmed(trigger: Trigger, everything: bool, gates_settled: bool) -> bool {
    match trigger {
        _ if everything => true,
        Trigger::OnWorkflowStart => false,
        Trigger::OnJobsReady | Trigger::OnJobsComplete => !gates_settled,
        Trigger::OnWorkflowComplete | Trigger::OnWorkerStart | Trigger::OnWorkerComplete => true,
    }
}

/// Whether a job in this state is one that the trigger has waited for. A job that was canceled before it was its turn was
/// never ready; but whoever asks for nodes need not wait for it any longer.
const fn counts(trigger: Trigger, is_for_nodes: bool, status: JobStatus) -> bool {
    match trigger {
        Trigger::OnJobsReady if is_for_nodes && status.is_settled() => true,
        Trigger::OnJobsReady => !matches!(
            status,
            JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Canceled | JobStatus::Disabled
        ),
        Trigger::OnJobsComplete => status.is_settled(),
        _ => false,
    }
}

/// All actions of a workflow.
#[derive(Clone, Debug, Default)]
pub struct Actions {
    all: Vec<One>,
    /// Which of them wait for a job.
    watched: HashMap<JobId, Vec<usize>>,
}

#[derive(Clone, Debug)]
struct One {
    id: i64,
    trigger: Trigger,
    persistent: bool,
    is_ours: bool,
    is_for_nodes: bool,
    required: u32,
    count: u32,
    waits_for: HashSet<JobId>,
    /// Those of its jobs that are ready and not over.
    ready: HashSet<JobId>,
    /// For whom it was carried out since it was armed.
    done_for: HashSet<Option<WorkerId>>,
    last_attempt: u32,
    /// Who is at it.
    running: BTreeMap<Attempt, Option<WorkerId>>,
}

impl One {
    fn is_set_off(&self) -> bool {
        self.count >= self.required
    }

    fn is_done(&self, worker: Option<WorkerId>) -> bool {
        if self.persistent { self.done_for.contains(&worker) } else { !self.done_for.is_empty() }
    }

    fn is_due(&self, worker: Option<WorkerId>) -> bool {
        self.is_ours && self.is_set_off() && !self.is_done(worker)
    }

    fn is_running_at(&self, worker: Option<WorkerId>) -> bool {
        self.running.values().any(|at| *at == worker)
    }

    /// Whether the first job of this worker has to wait for it.
    fn holds_jobs(&self, worker: Option<WorkerId>) -> bool {
        match self.trigger {
            Trigger::OnWorkflowStart => self.is_due(worker) || !self.running.is_empty(),
            Trigger::OnWorkerStart => self.is_due(worker) || self.is_running_at(worker),
            _ => false,
        }
    }

    /// It has happened so often by now.
    fn count(&mut self, reached: u32, out: &mut Vec<Change>) {
        let (from, was_set_off) = (self.count, self.is_set_off());
        if reached <= from {
            return;
        }
        self.count = reached;
        let is_due = !was_set_off && self.is_set_off();
        out.push(Change::Action(ActionChange::Triggered { action: self.id, from, to: reached, is_due }));
    }

    /// One of its jobs is in this state by now. Whether that says something.
    fn see(&mut self, job: JobId, status: JobStatus) -> bool {
        let is_counted = counts(self.trigger, self.is_for_nodes, status);
        if !(self.is_for_nodes && self.trigger == Trigger::OnJobsReady) {
            return is_counted && self.waits_for.remove(&job);
        }
        let has_changed =
            if is_counted && !status.is_settled() { self.ready.insert(job) } else { self.ready.remove(&job) };
        (is_counted && self.waits_for.remove(&job)) || has_changed
    }

    /// What it waits for is told by the jobs themselves, so nothing is ever counted twice. Nodes for jobs that are all over, because
    /// others have failed, are not asked for: the last of them counts when there is one to be run.
    fn count_jobs(&mut self, out: &mut Vec<Change>) {
        if self.trigger.is_about_jobs() {
            let is_for_nobody =
                self.is_for_nodes && self.trigger == Trigger::OnJobsReady && self.ready.is_empty();
            let missing = self.waits_for.len().max(usize::from(is_for_nobody));
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            self.count(self.required.saturating_sub(missing), out);
        }
    }

    fn next_attempt(&mut self, worker: Option<WorkerId>) -> Attempt {
        self.last_attempt += 1;
        self.done_for.insert(worker);
        Attempt(self.last_attempt)
    }
}

impl Actions {
    pub fn new(known: Vec<Known>) -> Self {
        let mut all: Vec<One> = known.into_iter().map(read).collect();
        // Those that come earlier in the life of a workflow go first.
        all.sort_by_key(|one| (one.trigger as u8, one.id));
        let mut watched: HashMap<JobId, Vec<usize>> = HashMap::new();
        for (number, one) in all.iter().enumerate() {
            for job in &one.waits_for {
                watched.entry(*job).or_default().push(number);
            }
        }
        Self { all, watched }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any of them waits for this.
    pub fn has(&self, trigger: Trigger) -> bool {
        self.all.iter().any(|one| one.trigger == trigger)
    }

    /// Counts how the jobs stand, for those that wait for jobs: whatever became of them while nobody looked.
    pub fn look_at(&mut self, status: impl Fn(JobId) -> Option<JobStatus>, out: &mut Vec<Change>) {
        for one in self.all.iter_mut().filter(|one| one.trigger.is_about_jobs()) {
            let jobs: Vec<JobId> = one.waits_for.iter().copied().collect();
            for job in jobs {
                if let Some(status) = status(job) {
                    one.see(job, status);
                }
            }
            one.count_jobs(out);
        }
    }

    /// Counts what changes mean for those that wait for jobs, and adds that to them.
    pub fn observe(&mut self, changes: &mut Vec<Change>) {
        if self.watched.is_empty() {
            return;
        }
        let mut touched: Vec<usize> = Vec::new();
        for (job, to) in changes.iter().filter_map(reached) {
            for number in self.watched.get(&job).into_iter().flatten() {
                if self.all[*number].see(job, to) {
                    touched.push(*number);
                }
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for number in touched {
            self.all[number].count_jobs(changes);
        }
    }

    /// A moment that is not about jobs has come.
    pub fn happened(&mut self, moment: Trigger, out: &mut Vec<Change>) {
        for one in self.all.iter_mut().filter(|one| one.trigger == moment) {
            one.count(one.required, out);
        }
    }

    /// The next one that this worker is to carry out: one at a time. What is for the end of a worker waits until it leaves.
    pub fn next_due(&self, worker: Option<WorkerId>, stage: Stage) -> Option<i64> {
        self.due(worker, stage).next().map(|one| one.id)
    }

    /// Something is due now that nobody has carried out since it was armed: somebody has to come for it.
    pub fn is_wanted(&self, worker: WorkerId, stage: Stage) -> bool {
        self.due(Some(worker), stage).any(|one| one.done_for.is_empty())
    }

    fn due(&self, worker: Option<WorkerId>, stage: Stage) -> impl Iterator<Item = &One> {
        let is_busy = |one: &One| {
            one.is_running_at(worker) || (one.trigger == Trigger::OnWorkflowStart && !one.running.is_empty())
        };
        let (is_free, is_running) = (!self.all.iter().any(is_busy), self.is_running());
        let is_its_time = move |one: &&One| match one.trigger {
            Trigger::OnWorkerComplete => stage == Stage::Leaving,
            Trigger::OnWorkflowComplete => !is_running,
            _ => true,
        };
        self.all.iter().filter(move |_| is_free).filter(is_its_time).filter(move |one| one.is_due(worker))
    }

    /// Something is due that nobody at all has carried out.
    pub fn is_owed(&self) -> bool {
        self.all.iter().any(|one| one.is_ours && one.is_set_off() && one.done_for.is_empty())
    }

    /// Something is due, be it for one who has not had it.
    pub fn is_any_due(&self) -> bool {
        let is_open = |one: &One| one.persistent || one.done_for.is_empty();
        self.all.iter().any(|one| one.is_ours && one.is_set_off() && is_open(one))
    }

    /// Nothing is left to do but what is for the end of workers.
    pub fn is_wound_up(&self) -> bool {
        let is_left = |one: &One| {
            !one.running.is_empty() || (one.is_ours && one.is_set_off() && one.done_for.is_empty())
        };
        !self.all.iter().any(|one| one.trigger != Trigger::OnWorkerComplete && is_left(one))
    }

    /// Those who have carried out something since it was armed.
    pub fn hands(&self) -> impl Iterator<Item = WorkerId> {
        self.all.iter().flat_map(|one| one.done_for.iter().copied().flatten())
    }

    /// Somebody carries it out from here on, for the so-manieth time.
    pub fn start(
        &mut self,
        action: i64,
        worker: Option<WorkerId>,
        at: Timestamp,
        out: &mut Vec<Change>,
    ) -> Option<Attempt> {
        let one = self.find(action)?;
        let attempt = one.next_attempt(worker);
        one.running.insert(attempt, worker);
        let trigger = one.trigger;
        out.push(Change::Action(ActionChange::Started { action, attempt, worker, trigger, at }));
        Some(attempt)
    }

    /// It is over; told twice, or of one that nobody knows, it changes nothing.
    pub fn end(
        &mut self,
        (action, attempt): Key,
        at: Timestamp,
        return_code: Option<i32>,
        message: Option<String>,
        out: &mut Vec<Change>,
    ) {
        let Some(one) = self.find(action) else { return };
        if one.running.remove(&attempt).is_some() {
            out.push(Change::Action(ActionChange::Ended { action, attempt, at, return_code, message }));
        }
    }

    /// Whoever was to carry it out never heard of it: it is as if it had not been given to anybody.
    pub fn withdraw(&mut self, (action, attempt): Key, out: &mut Vec<Change>) {
        let Some(one) = self.find(action) else { return };
        if let Some(worker) = one.running.remove(&attempt) {
            one.done_for.remove(&worker);
            out.push(Change::Action(ActionChange::Withdrawn { action, attempt }));
        }
    }

    /// Whoever carried out what is under way is dead, if `is_dead` says so: nobody knows how far it came. How many.
    pub fn interrupt(
        &mut self,
        is_dead: impl Fn(Option<WorkerId>) -> bool,
        at: Timestamp,
        out: &mut Vec<Change>,
    ) -> usize {
        let dead: Vec<Key> =
            self.under_way().filter(|(_, worker)| is_dead(*worker)).map(|(key, _)| key).collect();
        for key in &dead {
            self.interrupt_one(*key, at, out);
        }
        dead.len()
    }

    pub fn interrupt_one(&mut self, key: Key, at: Timestamp, out: &mut Vec<Change>) {
        let message = "interrupted: whoever carried it out died; it may have done its work".to_owned();
        self.end(key, at, None, Some(message), out);
    }

    /// What is carried out now, and by whom.
    pub fn under_way(&self) -> impl Iterator<Item = (Key, Option<WorkerId>)> {
        let each = |one: &One| {
            let id = one.id;
            one.running.iter().map(move |(attempt, worker)| ((id, *attempt), *worker)).collect::<Vec<_>>()
        };
        self.all.iter().flat_map(each)
    }

    pub fn is_running(&self) -> bool {
        self.all.iter().any(|one| !one.running.is_empty())
    }

    /// Something that comes before the worker's first job is not done yet.
    pub fn hold_jobs(&self, worker: Option<WorkerId>) -> bool {
        self.all.iter().any(|one| one.holds_jobs(worker))
    }

    /// Those that a client which carries out actions itself may have: what is about workers it decides on its own.
    pub fn claimable(&self) -> impl Iterator<Item = i64> {
        let is_open = |one: &&One| {
            (one.is_set_off() || one.trigger.is_about_workers())
                && (one.persistent || one.done_for.is_empty())
        };
        self.all.iter().filter(is_open).map(|one| one.id)
    }

    /// A client carries it out and will not say how that went. `false`: it is not to be had.
    pub fn claim(
        &mut self,
        action: i64,
        worker: Option<WorkerId>,
        at: Timestamp,
        out: &mut Vec<Change>,
    ) -> bool {
        if !self.claimable().any(|id| id == action) {
            return false;
        }
        let Some(one) = self.find(action).filter(|one| worker.is_none() || !one.is_done(worker)) else {
            return false;
        };
        one.count(one.required, out);
        let attempt = one.next_attempt(worker);
        out.push(Change::Action(ActionChange::Claimed { action, attempt, worker, at }));
        true
    }

    fn find(&mut self, action: i64) -> Option<&mut One> {
        self.all.iter_mut().find(|one| one.id == action)
    }
}

fn read(known: Known) -> One {
    let Known { id, trigger, persistent, is_ours, is_for_nodes, jobs, trigger_count, armed_after, runs } =
        known;
    let valid = runs.iter().filter(|run| run.attempt.0 > armed_after);
    let running = runs.iter().filter(|run| !run.is_over).map(|run| (run.attempt, run.worker));
    One {
        id,
        trigger,
        persistent,
        is_ours,
        is_for_nodes,
        ready: HashSet::new(),
        required: required_triggers(trigger, jobs.len()),
        count: trigger_count,
        done_for: valid.map(|run| run.worker).collect(),
        last_attempt: runs.iter().map(|run| run.attempt.0).max().unwrap_or(0),
        running: running.collect(),
        waits_for: jobs.into_iter().collect(),
    }
}

/// The state that a change brings a job to.
fn reached(change: &Change) -> Option<(JobId, JobStatus)> {
    match *change {
        Change::Status { job, to, .. } => Some((job, to)),
        Change::End { to, ref result, .. } => Some((result.key.job, to)),
        Change::Retry { job, .. } => Some((job, JobStatus::Ready)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stage::{Leaving, Working};
    use Trigger::{
        OnJobsComplete, OnJobsReady, OnWorkerComplete, OnWorkerStart, OnWorkflowComplete, OnWorkflowStart,
    };

    const NOW: Timestamp = Timestamp(7);
    const FIRST: Option<WorkerId> = Some(WorkerId(1));
    const SECOND: Option<WorkerId> = Some(WorkerId(2));

    fn known(id: i64, trigger: Trigger, jobs: &[i64]) -> Known {
        Known {
            id,
            trigger,
            persistent: false,
            is_ours: true,
            is_for_nodes: false,
            jobs: jobs.iter().map(|job| JobId(*job)).collect(),
            trigger_count: 0,
            armed_after: 0,
            runs: Vec::new(),
        }
    }

    fn actions(known: Vec<Known>, statuses: &[JobStatus]) -> (Actions, Vec<Change>) {
        let mut out = Vec::new();
        let mut actions = Actions::new(known);
        actions.look_at(|job| statuses.get(job.0 as usize).copied(), &mut out);
        (actions, out)
    }

    fn moved(job: i64, to: JobStatus) -> Change {
        Change::Status { job: JobId(job), from: JobStatus::Blocked, to }
    }

    fn triggered(action: i64, (from, to): (u32, u32), is_due: bool) -> Change {
        Change::Action(ActionChange::Triggered { action, from, to, is_due })
    }

    #[test]
    fn what_must_happen_how_often() {
        assert_eq!(required_triggers(OnJobsReady, 3), 3);
        assert_eq!(required_triggers(OnJobsComplete, 0), 1);
        assert_eq!(required_triggers(OnWorkerStart, 3), 1);
    }

    #[test]
    fn what_is_armed_again() {
        for (trigger, everything, gates_settled, expected) in [
            (OnWorkflowStart, true, true, true),
            (OnWorkflowStart, false, true, false),
            (OnJobsReady, false, true, false),
            (OnJobsReady, false, false, true),
            (OnJobsComplete, false, true, false),
            (OnJobsComplete, false, false, true),
            (OnJobsComplete, true, true, true),
            (OnWorkflowComplete, false, true, true),
            (OnWorkerStart, false, true, true),
            (OnWorkerComplete, false, true, true),
        ] {
            assert_eq!(is_rearmed(trigger, everything, gates_settled), expected, "{trigger:?} {everything}");
        }
    }

    #[test]
    fn which_states_count_for_which_trigger() {
        use JobStatus::{Blocked, Canceled, Completed, Failed, Pending, Ready, Running, Uninitialized};
        for (status, ready, complete) in [
            (Uninitialized, false, false),
            (Blocked, false, false),
            (Ready, true, false),
            (Pending, true, false),
            (Running, true, false),
            (Completed, true, true),
            (Failed, true, true),
            (Canceled, false, true),
        ] {
            let counts_for = |trigger| counts(trigger, false, status);
            assert_eq!((counts_for(OnJobsReady), counts_for(OnJobsComplete)), (ready, complete), "{status}");
            assert_eq!(counts(OnJobsReady, true, status), ready || complete, "{status}");
            assert!(!counts_for(OnWorkflowStart));
        }
    }

    #[test]
    fn nodes_are_asked_for_when_all_jobs_are_ready_or_over_and_one_can_run() {
        use JobStatus::{Blocked, Canceled, Completed, Disabled, Failed, Ready, Running};
        for (statuses, is_due) in [
            ([Ready, Ready, Ready], true),
            ([Ready, Canceled, Ready], true),
            ([Ready, Disabled, Failed], true),
            ([Running, Canceled, Completed], true),
            ([Ready, Canceled, Blocked], false),
            ([Canceled, Canceled, Canceled], false),
            ([Completed, Canceled, Failed], false),
        ] {
            let nodes = Known { is_ours: false, is_for_nodes: true, ..known(1, OnJobsReady, &[0, 1, 2]) };
            // From how they stand, and from how they came there.
            let (at_once, _) = actions(vec![nodes.clone()], &statuses);
            let (mut one_by_one, _) = actions(vec![nodes], &[Blocked; 3]);
            let mut changes: Vec<Change> = (0..)
                .zip(statuses)
                .filter(|(_, to)| *to != Blocked)
                .map(|(job, to)| moved(job, to))
                .collect();
            one_by_one.observe(&mut changes);
            for actions in [at_once, one_by_one] {
                assert_eq!(actions.claimable().count(), usize::from(is_due), "{statuses:?}");
            }
        }
    }

    #[test]
    fn nodes_for_jobs_that_were_given_up_are_asked_for_when_one_of_them_is_ready_after_all() {
        let nodes = Known { is_ours: false, is_for_nodes: true, ..known(1, OnJobsReady, &[0, 1]) };
        let (mut actions, out) = actions(vec![nodes], &[JobStatus::Canceled, JobStatus::Canceled]);
        assert_eq!(out, [triggered(1, (0, 1), false)]);
        let mut changes = vec![moved(1, JobStatus::Ready)];
        actions.observe(&mut changes);
        assert_eq!(changes[1..], [triggered(1, (1, 2), true)]);
    }

    #[test]
    fn jobs_are_counted_once_and_the_last_one_sets_it_off() {
        let blocked = [JobStatus::Blocked; 3];
        let (mut actions, out) = actions(vec![known(1, OnJobsReady, &[0, 1])], &blocked);
        assert_eq!(out, []);
        let mut changes = vec![moved(0, JobStatus::Ready), moved(2, JobStatus::Ready)];
        actions.observe(&mut changes);
        assert_eq!(changes[2..], [triggered(1, (0, 1), false)]);
        assert_eq!(actions.next_due(FIRST, Leaving), None);
        let mut again = vec![moved(0, JobStatus::Ready)];
        actions.observe(&mut again);
        assert_eq!(again.len(), 1, "a second attempt is no second job");
        let mut last = vec![moved(1, JobStatus::Ready)];
        actions.observe(&mut last);
        assert_eq!(last[1..], [triggered(1, (1, 2), true)]);
        assert_eq!(actions.next_due(FIRST, Working), Some(1));
    }

    #[test]
    fn what_happened_while_nobody_looked_is_counted_from_how_the_jobs_stand() {
        let statuses = [JobStatus::Completed, JobStatus::Failed, JobStatus::Ready];
        let both = known(1, OnJobsComplete, &[0, 1]);
        let counted = Known { trigger_count: 2, ..known(2, OnJobsComplete, &[0, 1]) };
        let one = known(3, OnJobsComplete, &[0, 2]);
        let (actions, out) = actions(vec![both, counted, one], &statuses);
        assert_eq!(out, [triggered(1, (0, 2), true), triggered(3, (0, 1), false)]);
        assert_eq!(actions.next_due(None, Working), Some(1));
    }

    #[test]
    fn once_or_once_for_each_worker() {
        let every = Known { persistent: true, ..known(2, OnWorkerStart, &[]) };
        let (mut actions, _) = actions(vec![every, known(1, OnWorkerStart, &[])], &[]);
        let mut out = Vec::new();
        actions.happened(OnWorkerStart, &mut out);
        actions.happened(OnWorkerStart, &mut out);
        assert_eq!(out, [triggered(1, (0, 1), true), triggered(2, (0, 1), true)]);
        assert!(actions.hold_jobs(FIRST));
        for expected in [1, 2] {
            let next = actions.next_due(FIRST, Working).unwrap();
            assert_eq!(next, expected);
            let attempt = actions.start(next, FIRST, NOW, &mut out).unwrap();
            assert!(actions.hold_jobs(FIRST), "it is under way");
            actions.end((next, attempt), NOW, Some(0), None, &mut out);
        }
        assert!(!actions.hold_jobs(FIRST));
        assert_eq!((actions.next_due(FIRST, Leaving), actions.next_due(SECOND, Working)), (None, Some(2)));
        let attempt = actions.start(2, SECOND, NOW, &mut out);
        assert_eq!(attempt, Some(Attempt(2)));
    }

    #[test]
    fn the_end_of_a_worker_is_its_own() {
        let every = Known { persistent: true, trigger_count: 1, ..known(1, OnWorkerComplete, &[]) };
        let (actions, _) = actions(vec![every], &[]);
        assert_eq!((actions.next_due(SECOND, Working), actions.next_due(SECOND, Leaving)), (None, Some(1)));
    }

    #[test]
    fn one_that_was_interrupted_is_not_repeated_until_it_is_armed_again() {
        let run = |attempt, is_over| Run { attempt: Attempt(attempt), worker: FIRST, is_over };
        let died = Known {
            trigger_count: 1,
            armed_after: 1,
            runs: vec![run(1, true), run(2, false)],
            ..known(1, OnWorkflowStart, &[])
        };
        let (mut actions_now, _) = actions(vec![died.clone()], &[]);
        let mut out = Vec::new();
        assert!(actions_now.is_running());
        assert_eq!(actions_now.interrupt(|worker| worker == FIRST, NOW, &mut out), 1);
        assert!(matches!(
            &out[..],
            [Change::Action(ActionChange::Ended { attempt: Attempt(2), return_code: None, .. })]
        ));
        assert_eq!((actions_now.is_running(), actions_now.next_due(FIRST, Leaving)), (false, None));

        let rearmed = Known { armed_after: 2, runs: vec![run(1, true), run(2, true)], ..died };
        let (mut again, _) = actions(vec![rearmed], &[]);
        assert_eq!(again.next_due(FIRST, Working), Some(1));
        assert_eq!(again.start(1, FIRST, NOW, &mut Vec::new()), Some(Attempt(3)));
    }

    #[test]
    fn what_nobody_here_can_do_is_counted_and_left() {
        let theirs = Known { is_ours: false, ..known(1, OnWorkflowStart, &[]) };
        let (mut actions, _) = actions(vec![theirs], &[]);
        let mut out = Vec::new();
        actions.happened(OnWorkflowStart, &mut out);
        assert_eq!(out, [triggered(1, (0, 1), true)]);
        assert!(actions.next_due(FIRST, Leaving).is_none() && !actions.hold_jobs(FIRST));
    }

    #[test]
    fn what_begins_a_workflow_holds_everybody_and_what_begins_a_worker_only_that_one() {
        let first = Known { trigger_count: 1, ..known(1, OnWorkflowStart, &[]) };
        let every = Known { persistent: true, trigger_count: 1, ..known(2, OnWorkerStart, &[]) };
        let (mut actions, mut out) = actions(vec![first, every], &[]);
        let attempt = actions.start(1, FIRST, NOW, &mut out).unwrap();
        assert_eq!((actions.next_due(SECOND, Working), actions.hold_jobs(SECOND)), (None, true));
        actions.end((1, attempt), NOW, Some(1), None, &mut out);
        for worker in [FIRST, SECOND] {
            assert_eq!(actions.next_due(worker, Working), Some(2), "one that failed holds nobody");
            let attempt = actions.start(2, worker, NOW, &mut out).unwrap();
            assert!(actions.hold_jobs(worker));
            if worker == FIRST {
                actions.end((2, attempt), NOW, Some(0), None, &mut out);
                assert!(!actions.hold_jobs(FIRST));
            }
        }
        assert_eq!((actions.hold_jobs(FIRST), actions.hold_jobs(SECOND)), (false, true));
    }

    #[test]
    fn the_end_of_the_workflow_comes_after_what_is_under_way() {
        let last = Known { trigger_count: 1, ..known(1, OnWorkflowComplete, &[]) };
        let part = Known { trigger_count: 1, ..known(2, OnJobsComplete, &[0]) };
        let (mut actions, mut out) = actions(vec![last, part], &[JobStatus::Completed]);
        assert_eq!(actions.next_due(FIRST, Working), Some(2));
        let attempt = actions.start(2, FIRST, NOW, &mut out).unwrap();
        assert_eq!((actions.next_due(SECOND, Leaving), actions.is_owed()), (None, true));
        actions.end((2, attempt), NOW, Some(0), None, &mut out);
        assert_eq!(actions.next_due(SECOND, Leaving), Some(1));
        actions.start(1, SECOND, NOW, &mut out);
        assert!(!actions.is_owed());
    }

    #[test]
    fn somebody_new_is_wanted_for_what_nobody_has_done() {
        let run = Run { attempt: Attempt(1), worker: FIRST, is_over: true };
        let every =
            Known { persistent: true, trigger_count: 1, runs: vec![run], ..known(1, OnWorkerStart, &[]) };
        let (actions_now, _) = actions(vec![every.clone()], &[]);
        assert_eq!(actions_now.next_due(SECOND, Working), Some(1), "as soon as it works here");
        assert!(!actions_now.is_wanted(WorkerId(2), Working));
        let last = Known { trigger_count: 1, ..known(2, OnWorkflowComplete, &[]) };
        let (actions_now, _) = actions(vec![every, last], &[]);
        assert!(actions_now.is_wanted(WorkerId(2), Working));
    }

    #[test]
    fn what_its_worker_never_heard_of_goes_to_another() {
        let (mut actions, mut out) =
            actions(vec![Known { trigger_count: 1, ..known(1, OnWorkflowStart, &[]) }], &[]);
        let attempt = actions.start(1, FIRST, NOW, &mut out).unwrap();
        assert_eq!(actions.under_way().collect::<Vec<_>>(), [((1, attempt), FIRST)]);
        assert_eq!(actions.interrupt(|worker| worker == SECOND, NOW, &mut out), 0, "its worker lives");
        out.clear();
        actions.withdraw((1, attempt), &mut out);
        actions.withdraw((1, attempt), &mut out);
        assert_eq!(out, [Change::Action(ActionChange::Withdrawn { action: 1, attempt })]);
        assert_eq!((actions.is_running(), actions.next_due(SECOND, Working)), (false, Some(1)));
    }

    #[test]
    fn clients_that_carry_out_actions_themselves_have_each_once_or_once_each() {
        let every = Known { persistent: true, ..known(2, OnWorkerStart, &[]) };
        let theirs = Known { is_ours: false, trigger_count: 1, ..known(3, OnWorkflowStart, &[]) };
        let all = vec![known(1, OnJobsReady, &[0]), every, theirs];
        let (mut actions, mut out) = actions(all, &[JobStatus::Blocked]);
        assert_eq!(
            actions.claimable().collect::<Vec<_>>(),
            [3, 2],
            "what is about workers is theirs to judge"
        );
        assert!(!actions.claim(1, FIRST, NOW, &mut out), "its time has not come");
        assert!(actions.claim(3, FIRST, NOW, &mut out));
        assert!(!actions.claim(3, SECOND, NOW, &mut out));
        assert!(actions.claim(2, FIRST, NOW, &mut out));
        assert!(!actions.claim(2, FIRST, NOW, &mut out), "once each");
        assert!(actions.claim(2, SECOND, NOW, &mut out) && actions.claim(2, None, NOW, &mut out));
        let claimed = |action, attempt, worker| {
            Change::Action(ActionChange::Claimed { action, attempt: Attempt(attempt), worker, at: NOW })
        };
        let expected =
            [claimed(3, 1, FIRST), triggered(2, (0, 1), true), claimed(2, 1, FIRST), claimed(2, 2, SECOND)];
        assert_eq!(out[..4], expected);
        assert_eq!((actions.is_running(), actions.claimable().collect::<Vec<_>>()), (false, vec![2]));
    }
}
