//! Whose turn it is: workers that may do the same form a crew, and each crew goes round the workflows it may work for.
//!
//! The highest priority of what is ready goes first; among equals workflows take turns, so that a large one does not
//! starve a small one. A workflow with nothing to do for a crew is not on its list: nobody looks through thousands of
//! them to find a job.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use windlass_core::dispatch::Taste;
use windlass_store::model::WorkflowRow;
use windlass_types::{WorkerId, WorkflowId};

use super::May;

/// The place of a workflow in the order of a crew.
type Turn = (Reverse<i32>, u64, WorkflowId);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CrewId(u32);

/// Workers of one user at the same site with the same labels that may work for the same workflows.
pub(super) struct Crew {
    pub(super) may: May,
    identity: Identity,
    pub(super) taste: Taste,
    allowed: HashSet<WorkflowId>,
    order: BTreeSet<Turn>,
    listed: HashMap<WorkflowId, Turn>,
    /// Those that would hear of a job at once; who got something last is last.
    waiting: BTreeSet<(u64, WorkerId)>,
    members: HashSet<WorkerId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) user: String,
    /// What is allowed now may be the same by chance: this is what will be.
    pub(super) sees_all: bool,
    pub(super) labels: Vec<String>,
    pub(super) site: String,
    /// It works for this one only.
    pub(super) workflow: Option<WorkflowId>,
}

#[derive(Default)]
pub(super) struct Crews {
    all: HashMap<CrewId, Crew>,
    next_crew: u32,
    next_turn: u64,
}

impl Crews {
    /// The crew of a worker that may work for `allowed` of the workflows that are there.
    pub(super) fn join(
        &mut self,
        worker: WorkerId,
        identity: Identity,
        allowed: HashSet<WorkflowId>,
        may: May,
    ) -> (CrewId, bool) {
        let same = |crew: &Crew| crew.identity == identity && crew.allowed == allowed;
        if let Some((id, crew)) = self.all.iter_mut().find(|(_, crew)| same(crew)) {
            crew.members.insert(worker);
            return (*id, false);
        }
        let id = CrewId(self.next_crew);
        self.next_crew += 1;
        let crew = Crew {
            may,
            taste: Taste::default().with_labels(identity.labels.clone()).at_site(Some(&identity.site)),
            identity,
            allowed,
            order: BTreeSet::new(),
            listed: HashMap::new(),
            waiting: BTreeSet::new(),
            members: HashSet::from([worker]),
        };
        self.all.insert(id, crew);
        (id, true)
    }

    /// Which sites may be elected.
    pub(super) fn take_elections(&mut self, may: impl Fn(Option<&str>) -> bool) {
        for crew in self.all.values_mut() {
            let may = may(crew.taste.site());
            crew.taste.take_elections(may);
        }
    }

    pub(super) fn leave(&mut self, id: CrewId, worker: WorkerId, served: u64) {
        let Some(crew) = self.all.get_mut(&id) else { return };
        crew.waiting.remove(&(served, worker));
        crew.members.remove(&worker);
        if crew.members.is_empty() {
            self.all.remove(&id);
        }
    }

    /// A workflow is there that was not: who may work for it?
    pub(super) fn admit(&mut self, workflow: WorkflowId, is_meant: impl Fn(&Crew) -> bool) {
        for crew in self.all.values_mut() {
            if is_meant(crew) {
                crew.allowed.insert(workflow);
            }
        }
    }

    pub(super) fn dismiss(&mut self, workflow: WorkflowId) {
        for crew in self.all.values_mut() {
            crew.allowed.remove(&workflow);
            crew.unlist(workflow);
        }
    }

    /// Puts a workflow where it belongs in the order of each crew, now that what is ready has changed. `priority`: of what
    /// is next for those who take what suits this taste.
    pub(super) fn place(&mut self, workflow: WorkflowId, priority: impl Fn(&Taste) -> Option<i32>) {
        for crew in self.all.values_mut().filter(|crew| crew.allowed.contains(&workflow)) {
            match (priority(&crew.taste), crew.listed.get(&workflow)) {
                (None, _) => _ = crew.unlist(workflow),
                (Some(priority), Some((Reverse(before), ..))) if *before == priority => {}
                (Some(priority), before) => {
                    let turn = before.map_or(self.next_turn, |(_, turn, _)| *turn);
                    self.next_turn += 1;
                    crew.unlist(workflow);
                    crew.list(workflow, priority, turn);
                }
            }
        }
    }

    /// It had its turn.
    pub(super) fn served(&mut self, id: CrewId, workflow: WorkflowId) {
        let turn = self.next_turn;
        self.next_turn += 1;
        let Some(crew) = self.all.get_mut(&id) else { return };
        if let Some((Reverse(priority), ..)) = crew.unlist(workflow) {
            crew.list(workflow, priority, turn);
        }
    }

    /// The workflow whose turn it is after `after`.
    pub(super) fn next(&self, id: CrewId, after: Option<Turn>) -> Option<Turn> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.all.get(&id)?.order.range((from, Unbounded)).next().copied()
    }

    /// How many workflows have something for the crew.
    pub(super) fn rivals(&self, id: CrewId) -> usize {
        self.all.get(&id).map_or(0, |crew| crew.order.len())
    }

    /// Notes that a worker waits, or does not. `served`: when it last got something.
    pub(super) fn note_waiting(&mut self, id: CrewId, worker: WorkerId, served: u64, waits: bool) {
        let Some(crew) = self.all.get_mut(&id) else { return };
        if waits {
            crew.waiting.insert((served, worker));
        } else {
            crew.waiting.remove(&(served, worker));
        }
    }

    /// Somebody could still be given something of it.
    pub(super) fn is_listed(&self, workflow: WorkflowId) -> bool {
        self.all.values().any(|crew| crew.listed.contains_key(&workflow))
    }

    /// Workers that wait and may work for the workflow, those first that waited longest.
    pub(super) fn waiting_for(&self, workflow: WorkflowId) -> Vec<WorkerId> {
        let crews = self.all.values().filter(|crew| crew.listed.contains_key(&workflow));
        let mut waiting: Vec<(u64, WorkerId)> = crews.flat_map(|crew| crew.waiting.iter().copied()).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, worker)| worker).collect()
    }

    /// Whether a crew may, as things are now, work for this one.
    pub(super) fn may(&self, id: CrewId, row: &WorkflowRow) -> bool {
        self.all.get(&id).is_some_and(|crew| (crew.may)(row))
    }

    pub(super) fn may_work_for(&self, id: CrewId, workflow: WorkflowId) -> bool {
        self.all.get(&id).is_some_and(|crew| crew.allowed.contains(&workflow))
    }

    /// All workers that may work for the workflow.
    pub(super) fn members_for(&self, workflow: WorkflowId) -> Vec<WorkerId> {
        let crews = self.all.values().filter(|crew| crew.allowed.contains(&workflow));
        let mut members: Vec<WorkerId> = crews.flat_map(|crew| crew.members.iter().copied()).collect();
        members.sort_unstable();
        members
    }

    /// A number that no turn had before.
    pub(super) fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}

impl Crew {
    pub(super) fn is_bound_elsewhere(&self, workflow: WorkflowId) -> bool {
        self.identity.workflow.is_some_and(|bound| bound != workflow)
    }

    fn list(&mut self, workflow: WorkflowId, priority: i32, turn: u64) {
        let turn = (Reverse(priority), turn, workflow);
        self.order.insert(turn);
        self.listed.insert(workflow, turn);
    }

    fn unlist(&mut self, workflow: WorkflowId) -> Option<Turn> {
        let turn = self.listed.remove(&workflow)?;
        self.order.remove(&turn);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn crew(crews: &mut Crews, workflows: &[i64]) -> CrewId {
        let identity = Identity {
            user: "me".into(),
            sees_all: false,
            labels: Vec::new(),
            site: "local".into(),
            workflow: None,
        };
        let allowed = workflows.iter().map(|id| WorkflowId(*id)).collect();
        crews.join(WorkerId(1), identity, allowed, Arc::new(|_| true)).0
    }

    /// Serves the first in line so often, and says who it was each time.
    fn served(crews: &mut Crews, id: CrewId, times: usize) -> Vec<i64> {
        let mut one = || {
            let (_, _, workflow) = crews.next(id, None)?;
            crews.served(id, workflow);
            Some(workflow.0)
        };
        std::iter::repeat_with(&mut one).take(times).flatten().collect()
    }

    #[test]
    fn workflows_take_turns_and_priority_goes_first() {
        let mut crews = Crews::default();
        let id = crew(&mut crews, &[1, 2, 3]);
        for workflow in [1, 2, 3] {
            crews.place(WorkflowId(workflow), |_| Some(0));
        }
        assert_eq!(served(&mut crews, id, 5), [1, 2, 3, 1, 2]);
        crews.place(WorkflowId(2), |_| Some(9));
        assert_eq!(served(&mut crews, id, 3), [2, 2, 2]);
        crews.place(WorkflowId(2), |_| None);
        assert_eq!(served(&mut crews, id, 3), [3, 1, 3], "what has nothing to do is not in the way");
        assert_eq!(crews.rivals(id), 2);
    }

    #[test]
    fn nobody_is_asked_for_what_he_may_not_do() {
        let mut crews = Crews::default();
        let id = crew(&mut crews, &[1]);
        crews.place(WorkflowId(2), |_| Some(5));
        assert_eq!(crews.next(id, None), None);
        crews.admit(WorkflowId(2), |_| true);
        crews.place(WorkflowId(2), |_| Some(5));
        assert_eq!(served(&mut crews, id, 1), [2]);
        crews.dismiss(WorkflowId(2));
        assert_eq!(crews.next(id, None), None);
    }

    #[test]
    fn the_same_people_form_one_crew_as_long_as_they_may_do_the_same() {
        let mut crews = Crews::default();
        let first = crew(&mut crews, &[1]);
        assert_eq!(crew(&mut crews, &[1]), first);
        assert_ne!(crew(&mut crews, &[1, 2]), first);
    }

    #[test]
    fn who_will_be_allowed_less_is_of_another_crew_though_today_it_is_the_same() {
        let mut crews = Crews::default();
        let mut join = |sees_all| {
            let identity = Identity {
                user: "me".into(),
                sees_all,
                labels: Vec::new(),
                site: "local".into(),
                workflow: None,
            };
            crews.join(WorkerId(1), identity, HashSet::new(), Arc::new(move |_| sees_all)).0
        };
        assert_ne!(join(true), join(false));
    }

    #[test]
    fn who_waited_longest_is_asked_first() {
        let mut crews = Crews::default();
        let id = crew(&mut crews, &[1]);
        crews.place(WorkflowId(1), |_| Some(0));
        crews.note_waiting(id, WorkerId(1), 7, true);
        crews.note_waiting(id, WorkerId(2), 3, true);
        assert_eq!(crews.waiting_for(WorkflowId(1)), [WorkerId(2), WorkerId(1)]);
        crews.note_waiting(id, WorkerId(2), 3, false);
        assert_eq!(crews.waiting_for(WorkflowId(1)), [WorkerId(1)]);
    }
}
