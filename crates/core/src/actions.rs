//! Workflow actions: what triggers them, which are due, and when they are rearmed.
//!
//! An action waits for jobs or for an event in the life of a workflow or worker. When the trigger has fired
//! often enough the action is due: once, or, if it is persistent, once for each worker. The start of an
//! execution is committed before the command runs, so an execution that was in progress when its process died
//! is known. It may have done its work and is not repeated automatically.

use crate::change::{ActionChange, WorkflowChange};
use std::collections::{BTreeMap, HashMap, HashSet};
use windlass_types::settings::ActionTrigger;
use windlass_types::{Attempt, JobId, JobStatus, Timestamp, WorkerId};

/// An action as stored in the database.
#[derive(Clone, Debug)]
pub struct ActionRecord {
    pub id: i64,
    pub trigger: ActionTrigger,
    pub persistent: bool,
    /// Whether Windlass workers can execute it.
    pub runs_on_workers: bool,
    /// Whether it requests nodes.
    pub requests_nodes: bool,
    pub jobs: Vec<JobId>,
    pub trigger_count: u32,
    /// Attempts up to this number belong to earlier armings and do not count.
    pub armed_after: u32,
    pub runs: Vec<ActionRun>,
}

/// One execution of an action.
#[derive(Clone, Copy, Debug)]
pub struct ActionRun {
    pub attempt: Attempt,
    pub worker: Option<WorkerId>,
    pub has_ended: bool,
}

/// Action id and attempt of an execution.
pub type ActionRunKey = (i64, Attempt);

/// How far a worker has got with a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerStage {
    Working,
    /// The worker has no more jobs to run here.
    Leaving,
}

/// Returns how many times the trigger must fire before the action is due.
pub fn required_triggers(trigger: ActionTrigger, jobs: usize) -> u32 {
    if trigger.is_about_jobs() { u32::try_from(jobs).unwrap_or(u32::MAX).max(1) } else { 1 }
}

/// Whether an action is rearmed for a new run. `everything`: all jobs start over. `dependencies_settled`: all jobs
/// that it waits for keep their results.
pub const fn is_rearmed(trigger: ActionTrigger, everything: bool, dependencies_settled: bool) -> bool {
    match trigger {
        _ if everything => true,
        ActionTrigger::OnWorkflowStart => false,
        ActionTrigger::OnJobsReady | ActionTrigger::OnJobsComplete => !dependencies_settled,
        ActionTrigger::OnWorkflowComplete
        | ActionTrigger::OnWorkerStart
        | ActionTrigger::OnWorkerComplete => true,
    }
}

/// Whether a job in this state counts toward the trigger. A job that was canceled before it became ready never
/// counts, except for actions that request nodes: they need not wait for it any longer.
const fn counts_toward_trigger(trigger: ActionTrigger, is_for_nodes: bool, status: JobStatus) -> bool {
    match trigger {
        ActionTrigger::OnJobsReady if is_for_nodes && status.is_settled() => true,
        ActionTrigger::OnJobsReady => !matches!(
            status,
            JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Canceled | JobStatus::Disabled
        ),
        ActionTrigger::OnJobsComplete => status.is_settled(),
        _ => false,
    }
}

/// All actions of a workflow.
#[derive(Clone, Debug, Default)]
pub struct WorkflowActions {
    actions: Vec<ActionState>,
    /// Indices of the actions that wait for each job.
    actions_by_job: HashMap<JobId, Vec<usize>>,
}

#[derive(Clone, Debug)]
struct ActionState {
    id: i64,
    trigger: ActionTrigger,
    persistent: bool,
    runs_on_workers: bool,
    requests_nodes: bool,
    required: u32,
    count: u32,
    waits_for: HashSet<JobId>,
    /// Those of its jobs that are ready and have not ended.
    ready: HashSet<JobId>,
    /// Workers for which it was executed since it was armed.
    executed_for: HashSet<Option<WorkerId>>,
    last_attempt: u32,
    /// Executions in progress and their workers.
    running: BTreeMap<Attempt, Option<WorkerId>>,
}

impl ActionState {
    fn is_triggered(&self) -> bool {
        self.count >= self.required
    }

    fn is_done_for(&self, worker: Option<WorkerId>) -> bool {
        if self.persistent { self.executed_for.contains(&worker) } else { !self.executed_for.is_empty() }
    }

    fn is_due(&self, worker: Option<WorkerId>) -> bool {
        self.runs_on_workers && self.is_triggered() && !self.is_done_for(worker)
    }

    fn is_running_on(&self, worker: Option<WorkerId>) -> bool {
        self.running.values().any(|at| *at == worker)
    }

    /// Whether the first job of this worker has to wait for this action.
    fn blocks_jobs(&self, worker: Option<WorkerId>) -> bool {
        match self.trigger {
            ActionTrigger::OnWorkflowStart => self.is_due(worker) || !self.running.is_empty(),
            ActionTrigger::OnWorkerStart => self.is_due(worker) || self.is_running_on(worker),
            _ => false,
        }
    }

    /// Sets the trigger count.
    fn update_count(&mut self, reached: u32, out: &mut Vec<WorkflowChange>) {
        let (from, was_set_off) = (self.count, self.is_triggered());
        if reached <= from {
            return;
        }
        self.count = reached;
        let is_due = !was_set_off && self.is_triggered();
        out.push(WorkflowChange::Action(ActionChange::Triggered {
            action: self.id,
            from,
            to: reached,
            is_due,
        }));
    }

    /// Records the state of one of its jobs. Returns whether that may change the count.
    fn update_job_status(&mut self, job: JobId, status: JobStatus) -> bool {
        let is_counted = counts_toward_trigger(self.trigger, self.requests_nodes, status);
        if !(self.requests_nodes && self.trigger == ActionTrigger::OnJobsReady) {
            return is_counted && self.waits_for.remove(&job);
        }
        let has_changed =
            if is_counted && !status.is_settled() { self.ready.insert(job) } else { self.ready.remove(&job) };
        (is_counted && self.waits_for.remove(&job)) || has_changed
    }

    /// Counts from the state of the jobs, so that no job is counted twice. An action that requests nodes is not
    /// due while all its jobs have ended because others failed: the last job counts only when there is a job to
    /// run.
    fn count_jobs(&mut self, out: &mut Vec<WorkflowChange>) {
        if self.trigger.is_about_jobs() {
            let has_no_ready_job =
                self.requests_nodes && self.trigger == ActionTrigger::OnJobsReady && self.ready.is_empty();
            let missing = self.waits_for.len().max(usize::from(has_no_ready_job));
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            self.update_count(self.required.saturating_sub(missing), out);
        }
    }

    fn next_attempt(&mut self, worker: Option<WorkerId>) -> Attempt {
        self.last_attempt += 1;
        self.executed_for.insert(worker);
        Attempt(self.last_attempt)
    }
}

impl WorkflowActions {
    pub fn new(known: Vec<ActionRecord>) -> Self {
        let mut actions: Vec<ActionState> = known.into_iter().map(build_action_state).collect();
        // Actions with earlier triggers go first.
        actions.sort_by_key(|one| (one.trigger as u8, one.id));
        let mut actions_by_job: HashMap<JobId, Vec<usize>> = HashMap::new();
        for (number, one) in actions.iter().enumerate() {
            for job in &one.waits_for {
                actions_by_job.entry(*job).or_default().push(number);
            }
        }
        Self { actions, actions_by_job }
    }

    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Whether any action has this trigger.
    pub fn has_trigger(&self, trigger: ActionTrigger) -> bool {
        self.actions.iter().any(|one| one.trigger == trigger)
    }

    /// Counts the current states of all jobs, for the actions that wait for jobs. Covers changes made while no
    /// process ran the workflow.
    pub fn count_job_statuses(
        &mut self,
        status: impl Fn(JobId) -> Option<JobStatus>,
        out: &mut Vec<WorkflowChange>,
    ) {
        for one in self.actions.iter_mut().filter(|one| one.trigger.is_about_jobs()) {
            let jobs: Vec<JobId> = one.waits_for.iter().copied().collect();
            for job in jobs {
                if let Some(status) = status(job) {
                    one.update_job_status(job, status);
                }
            }
            one.count_jobs(out);
        }
    }

    /// Applies changes to the actions that wait for jobs, and appends the resulting action changes.
    pub fn count_changes(&mut self, changes: &mut Vec<WorkflowChange>) {
        if self.actions_by_job.is_empty() {
            return;
        }
        let mut touched: Vec<usize> = Vec::new();
        for (job, to) in changes.iter().filter_map(resulting_status) {
            for number in self.actions_by_job.get(&job).into_iter().flatten() {
                if self.actions[*number].update_job_status(job, to) {
                    touched.push(*number);
                }
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for number in touched {
            self.actions[number].count_jobs(changes);
        }
    }

    /// Counts a trigger that does not concern jobs.
    pub fn on_trigger(&mut self, moment: ActionTrigger, out: &mut Vec<WorkflowChange>) {
        for one in self.actions.iter_mut().filter(|one| one.trigger == moment) {
            one.update_count(one.required, out);
        }
    }

    /// Returns the next action that this worker has to execute, one at a time. Worker-end actions wait until
    /// the worker leaves.
    pub fn next_due(&self, worker: Option<WorkerId>, stage: WorkerStage) -> Option<i64> {
        self.due_actions(worker, stage).next().map(|one| one.id)
    }

    /// Whether an action is due that was not executed since it was armed, so that a worker is needed.
    pub fn needs_worker(&self, worker: WorkerId, stage: WorkerStage) -> bool {
        self.due_actions(Some(worker), stage).any(|one| one.executed_for.is_empty())
    }

    fn due_actions(
        &self,
        worker: Option<WorkerId>,
        stage: WorkerStage,
    ) -> impl Iterator<Item = &ActionState> {
        let is_busy = |one: &ActionState| {
            one.is_running_on(worker)
                || (one.trigger == ActionTrigger::OnWorkflowStart && !one.running.is_empty())
        };
        let (is_free, is_running) = (!self.actions.iter().any(is_busy), self.is_running());
        let is_its_time = move |one: &&ActionState| match one.trigger {
            ActionTrigger::OnWorkerComplete => stage == WorkerStage::Leaving,
            ActionTrigger::OnWorkflowComplete => !is_running,
            _ => true,
        };
        self.actions.iter().filter(move |_| is_free).filter(is_its_time).filter(move |one| one.is_due(worker))
    }

    /// Whether an action is due that was executed for no worker.
    pub fn has_unexecuted_action(&self) -> bool {
        self.actions
            .iter()
            .any(|one| one.runs_on_workers && one.is_triggered() && one.executed_for.is_empty())
    }

    /// Whether an action is due for any worker that has not executed it.
    pub fn has_due_action(&self) -> bool {
        let is_open = |one: &ActionState| one.persistent || one.executed_for.is_empty();
        self.actions.iter().any(|one| one.runs_on_workers && one.is_triggered() && is_open(one))
    }

    /// Whether only worker-end actions are left.
    pub fn has_only_worker_end_actions(&self) -> bool {
        let is_left = |one: &ActionState| {
            !one.running.is_empty()
                || (one.runs_on_workers && one.is_triggered() && one.executed_for.is_empty())
        };
        !self.actions.iter().any(|one| one.trigger != ActionTrigger::OnWorkerComplete && is_left(one))
    }

    /// Returns the workers that executed an action since it was armed.
    pub fn executing_workers(&self) -> impl Iterator<Item = WorkerId> {
        self.actions.iter().flat_map(|one| one.executed_for.iter().copied().flatten())
    }

    /// Records the start of an execution with this attempt number.
    pub fn start_run(
        &mut self,
        action: i64,
        worker: Option<WorkerId>,
        at: Timestamp,
        out: &mut Vec<WorkflowChange>,
    ) -> Option<Attempt> {
        let one = self.find_action(action)?;
        let attempt = one.next_attempt(worker);
        one.running.insert(attempt, worker);
        let trigger = one.trigger;
        out.push(WorkflowChange::Action(ActionChange::Started { action, attempt, worker, trigger, at }));
        Some(attempt)
    }

    /// Records the end of an execution. Idempotent; unknown executions are ignored.
    pub fn end_run(
        &mut self,
        (action, attempt): ActionRunKey,
        at: Timestamp,
        return_code: Option<i32>,
        message: Option<String>,
        out: &mut Vec<WorkflowChange>,
    ) {
        let Some(one) = self.find_action(action) else { return };
        if one.running.remove(&attempt).is_some() {
            out.push(WorkflowChange::Action(ActionChange::Ended {
                action,
                attempt,
                at,
                return_code,
                message,
            }));
        }
    }

    /// Withdraws an execution that never reached its worker, as if it had not been assigned.
    pub fn withdraw_run(&mut self, (action, attempt): ActionRunKey, out: &mut Vec<WorkflowChange>) {
        let Some(one) = self.find_action(action) else { return };
        if let Some(worker) = one.running.remove(&attempt) {
            one.executed_for.remove(&worker);
            out.push(WorkflowChange::Action(ActionChange::Withdrawn { action, attempt }));
        }
    }

    /// Ends an execution whose worker is dead; how far it came is unknown.
    pub fn interrupt_run(&mut self, key: ActionRunKey, at: Timestamp, out: &mut Vec<WorkflowChange>) {
        let message = "interrupted: its worker died; the action may have done its work".to_owned();
        self.end_run(key, at, None, Some(message), out);
    }

    /// Returns the executions in progress with their workers.
    pub fn running_actions(&self) -> impl Iterator<Item = (ActionRunKey, Option<WorkerId>)> {
        let each = |one: &ActionState| {
            let id = one.id;
            one.running.iter().map(move |(attempt, worker)| ((id, *attempt), *worker)).collect::<Vec<_>>()
        };
        self.actions.iter().flat_map(each)
    }

    pub fn is_running(&self) -> bool {
        self.actions.iter().any(|one| !one.running.is_empty())
    }

    /// Whether an action that must precede the worker's first job has not ended.
    pub fn blocks_jobs(&self, worker: Option<WorkerId>) -> bool {
        self.actions.iter().any(|one| one.blocks_jobs(worker))
    }

    /// Returns the actions that a client which executes actions itself may claim. Worker actions are excluded:
    /// such a client decides these on its own.
    pub fn claimable_actions(&self) -> impl Iterator<Item = i64> {
        let is_open = |one: &&ActionState| {
            (one.is_triggered() || one.trigger.is_about_workers())
                && (one.persistent || one.executed_for.is_empty())
        };
        self.actions.iter().filter(is_open).map(|one| one.id)
    }

    /// Claims an action for a client that executes it without reporting the result. Returns `false` if it
    /// cannot be claimed.
    pub fn claim_action(
        &mut self,
        action: i64,
        worker: Option<WorkerId>,
        at: Timestamp,
        out: &mut Vec<WorkflowChange>,
    ) -> bool {
        if !self.claimable_actions().any(|id| id == action) {
            return false;
        }
        let Some(one) = self.find_action(action).filter(|one| worker.is_none() || !one.is_done_for(worker))
        else {
            return false;
        };
        one.update_count(one.required, out);
        let attempt = one.next_attempt(worker);
        out.push(WorkflowChange::Action(ActionChange::Claimed { action, attempt, worker, at }));
        true
    }

    fn find_action(&mut self, action: i64) -> Option<&mut ActionState> {
        self.actions.iter_mut().find(|one| one.id == action)
    }
}

fn build_action_state(known: ActionRecord) -> ActionState {
    let ActionRecord {
        id,
        trigger,
        persistent,
        runs_on_workers: is_ours,
        requests_nodes: is_for_nodes,
        jobs,
        trigger_count,
        armed_after,
        runs,
    } = known;
    let valid = runs.iter().filter(|run| run.attempt.0 > armed_after);
    let running = runs.iter().filter(|run| !run.has_ended).map(|run| (run.attempt, run.worker));
    ActionState {
        id,
        trigger,
        persistent,
        runs_on_workers: is_ours,
        requests_nodes: is_for_nodes,
        ready: HashSet::new(),
        required: required_triggers(trigger, jobs.len()),
        count: trigger_count,
        executed_for: valid.map(|run| run.worker).collect(),
        last_attempt: runs.iter().map(|run| run.attempt.0).max().unwrap_or(0),
        running: running.collect(),
        waits_for: jobs.into_iter().collect(),
    }
}

/// Returns the job and the state that a change leads to.
fn resulting_status(change: &WorkflowChange) -> Option<(JobId, JobStatus)> {
    match *change {
        WorkflowChange::Status { job, to, .. } => Some((job, to)),
        WorkflowChange::End { to, ref result, .. } => Some((result.key.job, to)),
        WorkflowChange::Retry { job, .. } => Some((job, JobStatus::Ready)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ActionTrigger::{
        OnJobsComplete, OnJobsReady, OnWorkerComplete, OnWorkerStart, OnWorkflowComplete, OnWorkflowStart,
    };
    use WorkerStage::{Leaving, Working};

    const NOW: Timestamp = Timestamp(7);
    const FIRST: Option<WorkerId> = Some(WorkerId(1));
    const SECOND: Option<WorkerId> = Some(WorkerId(2));

    fn known(id: i64, trigger: ActionTrigger, jobs: &[i64]) -> ActionRecord {
        ActionRecord {
            id,
            trigger,
            persistent: false,
            runs_on_workers: true,
            requests_nodes: false,
            jobs: jobs.iter().map(|job| JobId(*job)).collect(),
            trigger_count: 0,
            armed_after: 0,
            runs: Vec::new(),
        }
    }

    fn actions(known: Vec<ActionRecord>, statuses: &[JobStatus]) -> (WorkflowActions, Vec<WorkflowChange>) {
        let mut out = Vec::new();
        let mut actions = WorkflowActions::new(known);
        actions.count_job_statuses(|job| statuses.get(job.0 as usize).copied(), &mut out);
        (actions, out)
    }

    fn moved(job: i64, to: JobStatus) -> WorkflowChange {
        WorkflowChange::Status { job: JobId(job), from: JobStatus::Blocked, to }
    }

    fn triggered(action: i64, (from, to): (u32, u32), is_due: bool) -> WorkflowChange {
        WorkflowChange::Action(ActionChange::Triggered { action, from, to, is_due })
    }

    #[test]
    fn required_trigger_counts() {
        assert_eq!(required_triggers(OnJobsReady, 3), 3);
        assert_eq!(required_triggers(OnJobsComplete, 0), 1);
        assert_eq!(required_triggers(OnWorkerStart, 3), 1);
    }

    #[test]
    fn actions_are_rearmed_by_trigger() {
        for (trigger, everything, dependencies_settled, expected) in [
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
            assert_eq!(
                is_rearmed(trigger, everything, dependencies_settled),
                expected,
                "{trigger:?} {everything}"
            );
        }
    }

    #[test]
    fn job_states_count_toward_triggers() {
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
            let counts_for = |trigger| counts_toward_trigger(trigger, false, status);
            assert_eq!((counts_for(OnJobsReady), counts_for(OnJobsComplete)), (ready, complete), "{status}");
            assert_eq!(counts_toward_trigger(OnJobsReady, true, status), ready || complete, "{status}");
            assert!(!counts_for(OnWorkflowStart));
        }
    }

    #[test]
    fn nodes_are_requested_when_all_jobs_are_ready_or_ended() {
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
            let nodes = ActionRecord {
                runs_on_workers: false,
                requests_nodes: true,
                ..known(1, OnJobsReady, &[0, 1, 2])
            };
            // Once from the current states, once from the changes that led there.
            let (at_once, _) = actions(vec![nodes.clone()], &statuses);
            let (mut one_by_one, _) = actions(vec![nodes], &[Blocked; 3]);
            let mut changes: Vec<WorkflowChange> = (0..)
                .zip(statuses)
                .filter(|(_, to)| *to != Blocked)
                .map(|(job, to)| moved(job, to))
                .collect();
            one_by_one.count_changes(&mut changes);
            for actions in [at_once, one_by_one] {
                assert_eq!(actions.claimable_actions().count(), usize::from(is_due), "{statuses:?}");
            }
        }
    }

    #[test]
    fn nodes_are_requested_when_a_failed_job_is_ready_again() {
        let nodes =
            ActionRecord { runs_on_workers: false, requests_nodes: true, ..known(1, OnJobsReady, &[0, 1]) };
        let (mut actions, out) = actions(vec![nodes], &[JobStatus::Canceled, JobStatus::Canceled]);
        assert_eq!(out, [triggered(1, (0, 1), false)]);
        let mut changes = vec![moved(1, JobStatus::Ready)];
        actions.count_changes(&mut changes);
        assert_eq!(changes[1..], [triggered(1, (1, 2), true)]);
    }

    #[test]
    fn jobs_are_counted_once_and_the_last_triggers_the_action() {
        let blocked = [JobStatus::Blocked; 3];
        let (mut actions, out) = actions(vec![known(1, OnJobsReady, &[0, 1])], &blocked);
        assert_eq!(out, []);
        let mut changes = vec![moved(0, JobStatus::Ready), moved(2, JobStatus::Ready)];
        actions.count_changes(&mut changes);
        assert_eq!(changes[2..], [triggered(1, (0, 1), false)]);
        assert_eq!(actions.next_due(FIRST, Leaving), None);
        let mut again = vec![moved(0, JobStatus::Ready)];
        actions.count_changes(&mut again);
        assert_eq!(again.len(), 1, "a second attempt is not a second job");
        let mut last = vec![moved(1, JobStatus::Ready)];
        actions.count_changes(&mut last);
        assert_eq!(last[1..], [triggered(1, (1, 2), true)]);
        assert_eq!(actions.next_due(FIRST, Working), Some(1));
    }

    #[test]
    fn triggers_are_counted_from_job_states() {
        let statuses = [JobStatus::Completed, JobStatus::Failed, JobStatus::Ready];
        let both = known(1, OnJobsComplete, &[0, 1]);
        let counted = ActionRecord { trigger_count: 2, ..known(2, OnJobsComplete, &[0, 1]) };
        let one = known(3, OnJobsComplete, &[0, 2]);
        let (actions, out) = actions(vec![both, counted, one], &statuses);
        assert_eq!(out, [triggered(1, (0, 2), true), triggered(3, (0, 1), false)]);
        assert_eq!(actions.next_due(None, Working), Some(1));
    }

    #[test]
    fn action_runs_once_or_once_per_worker() {
        let every = ActionRecord { persistent: true, ..known(2, OnWorkerStart, &[]) };
        let (mut actions, _) = actions(vec![every, known(1, OnWorkerStart, &[])], &[]);
        let mut out = Vec::new();
        actions.on_trigger(OnWorkerStart, &mut out);
        actions.on_trigger(OnWorkerStart, &mut out);
        assert_eq!(out, [triggered(1, (0, 1), true), triggered(2, (0, 1), true)]);
        assert!(actions.blocks_jobs(FIRST));
        for expected in [1, 2] {
            let next = actions.next_due(FIRST, Working).unwrap();
            assert_eq!(next, expected);
            let attempt = actions.start_run(next, FIRST, NOW, &mut out).unwrap();
            assert!(actions.blocks_jobs(FIRST), "it is in progress");
            actions.end_run((next, attempt), NOW, Some(0), None, &mut out);
        }
        assert!(!actions.blocks_jobs(FIRST));
        assert_eq!((actions.next_due(FIRST, Leaving), actions.next_due(SECOND, Working)), (None, Some(2)));
        let attempt = actions.start_run(2, SECOND, NOW, &mut out);
        assert_eq!(attempt, Some(Attempt(2)));
    }

    #[test]
    fn persistent_worker_end_action_runs_on_the_leaving_worker() {
        let every = ActionRecord { persistent: true, trigger_count: 1, ..known(1, OnWorkerComplete, &[]) };
        let (actions, _) = actions(vec![every], &[]);
        assert_eq!((actions.next_due(SECOND, Working), actions.next_due(SECOND, Leaving)), (None, Some(1)));
    }

    #[test]
    fn interrupted_action_waits_until_rearmed() {
        let run =
            |attempt, is_over| ActionRun { attempt: Attempt(attempt), worker: FIRST, has_ended: is_over };
        let died = ActionRecord {
            trigger_count: 1,
            armed_after: 1,
            runs: vec![run(1, true), run(2, false)],
            ..known(1, OnWorkflowStart, &[])
        };
        let (mut actions_now, _) = actions(vec![died.clone()], &[]);
        let mut out = Vec::new();
        assert!(actions_now.is_running());
        actions_now.interrupt_run((1, Attempt(2)), NOW, &mut out);
        assert!(matches!(
            &out[..],
            [WorkflowChange::Action(ActionChange::Ended { attempt: Attempt(2), return_code: None, .. })]
        ));
        assert_eq!((actions_now.is_running(), actions_now.next_due(FIRST, Leaving)), (false, None));

        let rearmed = ActionRecord { armed_after: 2, runs: vec![run(1, true), run(2, true)], ..died };
        let (mut again, _) = actions(vec![rearmed], &[]);
        assert_eq!(again.next_due(FIRST, Working), Some(1));
        assert_eq!(again.start_run(1, FIRST, NOW, &mut Vec::new()), Some(Attempt(3)));
    }

    #[test]
    fn unexecutable_action_is_counted_and_skipped() {
        let theirs = ActionRecord { runs_on_workers: false, ..known(1, OnWorkflowStart, &[]) };
        let (mut actions, _) = actions(vec![theirs], &[]);
        let mut out = Vec::new();
        actions.on_trigger(OnWorkflowStart, &mut out);
        assert_eq!(out, [triggered(1, (0, 1), true)]);
        assert!(actions.next_due(FIRST, Leaving).is_none() && !actions.blocks_jobs(FIRST));
    }

    #[test]
    fn start_actions_block_all_workers_or_one() {
        let first = ActionRecord { trigger_count: 1, ..known(1, OnWorkflowStart, &[]) };
        let every = ActionRecord { persistent: true, trigger_count: 1, ..known(2, OnWorkerStart, &[]) };
        let (mut actions, mut out) = actions(vec![first, every], &[]);
        let attempt = actions.start_run(1, FIRST, NOW, &mut out).unwrap();
        assert_eq!((actions.next_due(SECOND, Working), actions.blocks_jobs(SECOND)), (None, true));
        actions.end_run((1, attempt), NOW, Some(1), None, &mut out);
        for worker in [FIRST, SECOND] {
            assert_eq!(actions.next_due(worker, Working), Some(2), "a failed action blocks no worker");
            let attempt = actions.start_run(2, worker, NOW, &mut out).unwrap();
            assert!(actions.blocks_jobs(worker));
            if worker == FIRST {
                actions.end_run((2, attempt), NOW, Some(0), None, &mut out);
                assert!(!actions.blocks_jobs(FIRST));
            }
        }
        assert_eq!((actions.blocks_jobs(FIRST), actions.blocks_jobs(SECOND)), (false, true));
    }

    #[test]
    fn workflow_end_action_waits_for_running_actions() {
        let last = ActionRecord { trigger_count: 1, ..known(1, OnWorkflowComplete, &[]) };
        let part = ActionRecord { trigger_count: 1, ..known(2, OnJobsComplete, &[0]) };
        let (mut actions, mut out) = actions(vec![last, part], &[JobStatus::Completed]);
        assert_eq!(actions.next_due(FIRST, Working), Some(2));
        let attempt = actions.start_run(2, FIRST, NOW, &mut out).unwrap();
        assert_eq!((actions.next_due(SECOND, Leaving), actions.has_unexecuted_action()), (None, true));
        actions.end_run((2, attempt), NOW, Some(0), None, &mut out);
        assert_eq!(actions.next_due(SECOND, Leaving), Some(1));
        actions.start_run(1, SECOND, NOW, &mut out);
        assert!(!actions.has_unexecuted_action());
    }

    #[test]
    fn unexecuted_action_needs_a_worker() {
        let run = ActionRun { attempt: Attempt(1), worker: FIRST, has_ended: true };
        let every = ActionRecord {
            persistent: true,
            trigger_count: 1,
            runs: vec![run],
            ..known(1, OnWorkerStart, &[])
        };
        let (actions_now, _) = actions(vec![every.clone()], &[]);
        assert_eq!(actions_now.next_due(SECOND, Working), Some(1), "as soon as it has work here");
        assert!(!actions_now.needs_worker(WorkerId(2), Working));
        let last = ActionRecord { trigger_count: 1, ..known(2, OnWorkflowComplete, &[]) };
        let (actions_now, _) = actions(vec![every, last], &[]);
        assert!(actions_now.needs_worker(WorkerId(2), Working));
    }

    #[test]
    fn withdrawn_action_runs_on_another_worker() {
        let (mut actions, mut out) =
            actions(vec![ActionRecord { trigger_count: 1, ..known(1, OnWorkflowStart, &[]) }], &[]);
        let attempt = actions.start_run(1, FIRST, NOW, &mut out).unwrap();
        assert_eq!(actions.running_actions().collect::<Vec<_>>(), [((1, attempt), FIRST)]);
        out.clear();
        actions.withdraw_run((1, attempt), &mut out);
        actions.withdraw_run((1, attempt), &mut out);
        assert_eq!(out, [WorkflowChange::Action(ActionChange::Withdrawn { action: 1, attempt })]);
        assert_eq!((actions.is_running(), actions.next_due(SECOND, Working)), (false, Some(1)));
    }

    #[test]
    fn clients_claim_actions_once_or_once_per_client() {
        let every = ActionRecord { persistent: true, ..known(2, OnWorkerStart, &[]) };
        let theirs =
            ActionRecord { runs_on_workers: false, trigger_count: 1, ..known(3, OnWorkflowStart, &[]) };
        let all = vec![known(1, OnJobsReady, &[0]), every, theirs];
        let (mut actions, mut out) = actions(all, &[JobStatus::Blocked]);
        assert_eq!(
            actions.claimable_actions().collect::<Vec<_>>(),
            [3, 2],
            "the client decides worker actions itself"
        );
        assert!(!actions.claim_action(1, FIRST, NOW, &mut out), "not due yet");
        assert!(actions.claim_action(3, FIRST, NOW, &mut out));
        assert!(!actions.claim_action(3, SECOND, NOW, &mut out));
        assert!(actions.claim_action(2, FIRST, NOW, &mut out));
        assert!(!actions.claim_action(2, FIRST, NOW, &mut out), "once for each worker");
        assert!(
            actions.claim_action(2, SECOND, NOW, &mut out) && actions.claim_action(2, None, NOW, &mut out)
        );
        let claimed = |action, attempt, worker| {
            WorkflowChange::Action(ActionChange::Claimed {
                action,
                attempt: Attempt(attempt),
                worker,
                at: NOW,
            })
        };
        let expected =
            [claimed(3, 1, FIRST), triggered(2, (0, 1), true), claimed(2, 1, FIRST), claimed(2, 2, SECOND)];
        assert_eq!(out[..4], expected);
        assert_eq!((actions.is_running(), actions.claimable_actions().collect::<Vec<_>>()), (false, vec![2]));
    }
}
