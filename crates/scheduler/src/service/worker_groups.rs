//! The turn order of workflows: workers with the same properties form a group, and each group serves its
//! workflows in turn.
//!
//! The highest priority among ready jobs goes first; at equal priority workflows take turns, so that a large
//! one does not starve a small one. Workflows without a job for a group are not in its list, so that a search
//! does not scan thousands of them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use windlass_core::dispatch::WorkerSelector;
use windlass_store::model::WorkflowRow;
use windlass_types::worker_protocol::AcceptedJobOwners;
use windlass_types::{WorkerId, WorkflowId};

use super::WorkflowPredicate;

/// The position of a workflow in the order of a group.
type WorkflowTurn = (Reverse<i32>, u64, WorkflowId);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WorkerGroupId(u32);

/// Workers of one user at the same site with the same labels that may work for the same workflows.
pub(super) struct WorkerGroup {
    pub(super) may_work_for: WorkflowPredicate,
    key: WorkerGroupKey,
    pub(super) selector: WorkerSelector,
    allowed_workflows: HashSet<WorkflowId>,
    turns: BTreeSet<WorkflowTurn>,
    turn_by_workflow: HashMap<WorkflowId, WorkflowTurn>,
    /// Workers that would get a job at once; the one served last comes last.
    waiting_workers: BTreeSet<(u64, WorkerId)>,
    members: HashSet<WorkerId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkerGroupKey {
    pub(super) user: String,
    /// Distinguishes groups whose permitted workflows are only currently the same.
    pub(super) sees_all: bool,
    pub(super) jobs_of: AcceptedJobOwners,
    pub(super) labels: Vec<String>,
    pub(super) site: String,
    /// Workers bound to this workflow.
    pub(super) workflow: Option<WorkflowId>,
    /// The only worker of its workflow: it also gets jobs without labels if it has some.
    pub(super) is_only_worker: bool,
}

impl WorkerGroupKey {
    /// Which jobs its workers accept.
    pub(super) fn selector(&self) -> WorkerSelector {
        let (selector, labels) = (WorkerSelector::default().at_site(Some(&self.site)), self.labels.clone());
        if self.is_only_worker {
            selector.with_labels_of_only_worker(labels)
        } else {
            selector.with_labels(labels)
        }
    }
}

#[derive(Default)]
pub(super) struct WorkerGroups {
    groups: HashMap<WorkerGroupId, WorkerGroup>,
    next_group: u32,
    next_turn: u64,
}

impl WorkerGroups {
    /// Adds a worker to its group; it may work for the workflows in `allowed`.
    pub(super) fn add_worker(
        &mut self,
        worker: WorkerId,
        identity: WorkerGroupKey,
        allowed: HashSet<WorkflowId>,
        may: WorkflowPredicate,
    ) -> (WorkerGroupId, bool) {
        let same = |group: &WorkerGroup| group.key == identity && group.allowed_workflows == allowed;
        if let Some((id, group)) = self.groups.iter_mut().find(|(_, group)| same(group)) {
            group.members.insert(worker);
            return (*id, false);
        }
        let id = WorkerGroupId(self.next_group);
        self.next_group += 1;
        let group = WorkerGroup {
            may_work_for: may,
            selector: identity.selector(),
            key: identity,
            allowed_workflows: allowed,
            turns: BTreeSet::new(),
            turn_by_workflow: HashMap::new(),
            waiting_workers: BTreeSet::new(),
            members: HashSet::from([worker]),
        };
        self.groups.insert(id, group);
        (id, true)
    }

    /// Sets at which sites units may be elected.
    pub(super) fn update_allowed_elections(&mut self, may: impl Fn(Option<&str>) -> bool) {
        for group in self.groups.values_mut() {
            let may = may(group.selector.site());
            group.selector.set_accepts_elections(may);
        }
    }

    pub(super) fn remove_worker(&mut self, id: WorkerGroupId, worker: WorkerId, served: u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.waiting_workers.remove(&(served, worker));
        group.members.remove(&worker);
        if group.members.is_empty() {
            self.groups.remove(&id);
        }
    }

    /// Adds a new workflow to the groups that may work for it.
    pub(super) fn add_workflow(&mut self, workflow: WorkflowId, is_meant: impl Fn(&WorkerGroup) -> bool) {
        for group in self.groups.values_mut() {
            if is_meant(group) {
                group.allowed_workflows.insert(workflow);
            }
        }
    }

    pub(super) fn remove_workflow(&mut self, workflow: WorkflowId) {
        for group in self.groups.values_mut() {
            group.allowed_workflows.remove(&workflow);
            group.remove_turn(workflow);
        }
    }

    /// Updates the position of a workflow in the order of each group after its ready jobs changed. `priority`:
    /// of the next job that suits the selector.
    pub(super) fn update_turns(
        &mut self,
        workflow: WorkflowId,
        priority: impl Fn(&WorkerSelector) -> Option<i32>,
    ) {
        for group in self.groups.values_mut().filter(|group| group.allowed_workflows.contains(&workflow)) {
            match (priority(&group.selector), group.turn_by_workflow.get(&workflow)) {
                (None, _) => _ = group.remove_turn(workflow),
                (Some(priority), Some((Reverse(before), ..))) if *before == priority => {}
                (Some(priority), before) => {
                    let turn = before.map_or(self.next_turn, |(_, turn, _)| *turn);
                    self.next_turn += 1;
                    group.remove_turn(workflow);
                    group.add_turn(workflow, priority, turn);
                }
            }
        }
    }

    /// Moves a workflow behind the others after its turn.
    pub(super) fn move_to_back(&mut self, id: WorkerGroupId, workflow: WorkflowId) {
        let turn = self.next_turn;
        self.next_turn += 1;
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Some((Reverse(priority), ..)) = group.remove_turn(workflow) {
            group.add_turn(workflow, priority, turn);
        }
    }

    /// The workflow whose turn it is after `after`.
    pub(super) fn next_workflow(
        &self,
        id: WorkerGroupId,
        after: Option<WorkflowTurn>,
    ) -> Option<WorkflowTurn> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.groups.get(&id)?.turns.range((from, Unbounded)).next().copied()
    }

    /// The number of workflows with a job for the group.
    pub(super) fn count_listed_workflows(&self, id: WorkerGroupId) -> usize {
        self.groups.get(&id).map_or(0, |group| group.turns.len())
    }

    /// Records whether a worker waits. `served`: the turn in which it last got something.
    pub(super) fn set_waiting(&mut self, id: WorkerGroupId, worker: WorkerId, served: u64, waits: bool) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if waits {
            group.waiting_workers.insert((served, worker));
        } else {
            group.waiting_workers.remove(&(served, worker));
        }
    }

    /// Whether any group is listed for the workflow.
    pub(super) fn is_listed(&self, workflow: WorkflowId) -> bool {
        self.groups.values().any(|group| group.turn_by_workflow.contains_key(&workflow))
    }

    /// Waiting workers that may work for the workflow, the longest waiting first.
    pub(super) fn waiting_workers(&self, workflow: WorkflowId) -> Vec<WorkerId> {
        let worker_groups =
            self.groups.values().filter(|group| group.turn_by_workflow.contains_key(&workflow));
        let mut waiting: Vec<(u64, WorkerId)> =
            worker_groups.flat_map(|group| group.waiting_workers.iter().copied()).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, worker)| worker).collect()
    }

    /// Whether a group currently has the permission to work for this workflow.
    pub(super) fn may_accept_workflow(&self, id: WorkerGroupId, row: &WorkflowRow) -> bool {
        self.groups.get(&id).is_some_and(|group| (group.may_work_for)(row))
    }

    pub(super) fn may_work_for(&self, id: WorkerGroupId, workflow: WorkflowId) -> bool {
        self.groups.get(&id).is_some_and(|group| group.allowed_workflows.contains(&workflow))
    }

    /// All workers that may work for the workflow.
    pub(super) fn workers_for(&self, workflow: WorkflowId) -> Vec<WorkerId> {
        let worker_groups = self.groups.values().filter(|group| group.allowed_workflows.contains(&workflow));
        let mut members: Vec<WorkerId> =
            worker_groups.flat_map(|group| group.members.iter().copied()).collect();
        members.sort_unstable();
        members
    }

    /// A new number, larger than all before.
    pub(super) fn next_turn_number(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}

impl WorkerGroup {
    pub(super) fn is_bound_elsewhere(&self, workflow: WorkflowId) -> bool {
        self.key.workflow.is_some_and(|bound| bound != workflow)
    }

    fn add_turn(&mut self, workflow: WorkflowId, priority: i32, turn: u64) {
        let turn = (Reverse(priority), turn, workflow);
        self.turns.insert(turn);
        self.turn_by_workflow.insert(workflow, turn);
    }

    fn remove_turn(&mut self, workflow: WorkflowId) -> Option<WorkflowTurn> {
        let turn = self.turn_by_workflow.remove(&workflow)?;
        self.turns.remove(&turn);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn group(worker_groups: &mut WorkerGroups, workflows: &[i64]) -> WorkerGroupId {
        let identity = WorkerGroupKey {
            user: "me".into(),
            sees_all: false,
            jobs_of: AcceptedJobOwners::Own,
            labels: Vec::new(),
            site: "local".into(),
            workflow: None,
            is_only_worker: false,
        };
        let allowed = workflows.iter().map(|id| WorkflowId(*id)).collect();
        worker_groups.add_worker(WorkerId(1), identity, allowed, Arc::new(|_| true)).0
    }

    /// Serves the first in the order this many times, and returns the sequence.
    fn served(worker_groups: &mut WorkerGroups, id: WorkerGroupId, times: usize) -> Vec<i64> {
        let mut one = || {
            let (_, _, workflow) = worker_groups.next_workflow(id, None)?;
            worker_groups.move_to_back(id, workflow);
            Some(workflow.0)
        };
        std::iter::repeat_with(&mut one).take(times).flatten().collect()
    }

    #[test]
    fn workflows_take_turns_and_priority_goes_first() {
        let mut worker_groups = WorkerGroups::default();
        let id = group(&mut worker_groups, &[1, 2, 3]);
        for workflow in [1, 2, 3] {
            worker_groups.update_turns(WorkflowId(workflow), |_| Some(0));
        }
        assert_eq!(served(&mut worker_groups, id, 5), [1, 2, 3, 1, 2]);
        worker_groups.update_turns(WorkflowId(2), |_| Some(9));
        assert_eq!(served(&mut worker_groups, id, 3), [2, 2, 2]);
        worker_groups.update_turns(WorkflowId(2), |_| None);
        assert_eq!(served(&mut worker_groups, id, 3), [3, 1, 3], "workflows without jobs are skipped");
        assert_eq!(worker_groups.count_listed_workflows(id), 2);
    }

    #[test]
    fn groups_serve_only_permitted_workflows() {
        let mut worker_groups = WorkerGroups::default();
        let id = group(&mut worker_groups, &[1]);
        worker_groups.update_turns(WorkflowId(2), |_| Some(5));
        assert_eq!(worker_groups.next_workflow(id, None), None);
        worker_groups.add_workflow(WorkflowId(2), |_| true);
        worker_groups.update_turns(WorkflowId(2), |_| Some(5));
        assert_eq!(served(&mut worker_groups, id, 1), [2]);
        worker_groups.remove_workflow(WorkflowId(2));
        assert_eq!(worker_groups.next_workflow(id, None), None);
    }

    #[test]
    fn workers_with_equal_permissions_form_one_group() {
        let mut worker_groups = WorkerGroups::default();
        let first = group(&mut worker_groups, &[1]);
        assert_eq!(group(&mut worker_groups, &[1]), first);
        assert_ne!(group(&mut worker_groups, &[1, 2]), first);
    }

    #[test]
    fn workers_with_other_permissions_form_another_group_even_if_currently_equal() {
        let mut worker_groups = WorkerGroups::default();
        let mut join = |sees_all, jobs_of| {
            let identity = WorkerGroupKey {
                user: "me".into(),
                sees_all,
                jobs_of,
                labels: Vec::new(),
                site: "local".into(),
                workflow: None,
                is_only_worker: false,
            };
            worker_groups.add_worker(WorkerId(1), identity, HashSet::new(), Arc::new(move |_| sees_all)).0
        };
        let own = join(false, AcceptedJobOwners::Own);
        assert_ne!(join(true, AcceptedJobOwners::Own), own);
        assert_ne!(join(false, AcceptedJobOwners::Users(vec!["zoe".into()])), own, "it asks for more jobs");
    }

    #[test]
    fn the_longest_waiting_worker_is_served_first() {
        let mut worker_groups = WorkerGroups::default();
        let id = group(&mut worker_groups, &[1]);
        worker_groups.update_turns(WorkflowId(1), |_| Some(0));
        worker_groups.set_waiting(id, WorkerId(1), 7, true);
        worker_groups.set_waiting(id, WorkerId(2), 3, true);
        assert_eq!(worker_groups.waiting_workers(WorkflowId(1)), [WorkerId(2), WorkerId(1)]);
        worker_groups.set_waiting(id, WorkerId(2), 3, false);
        assert_eq!(worker_groups.waiting_workers(WorkflowId(1)), [WorkerId(1)]);
    }
}
