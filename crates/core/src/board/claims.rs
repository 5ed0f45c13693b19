//! Who takes what of the ready jobs: in order, or alone with nothing beside it.

use super::{Board, JobTable};
use crate::change::Change;
use crate::dispatch::{Demand, Handle, Mirror, Place, ReadyQueue, Taste, Want};
use crate::state::JobEvent;
use rustc_hash::FxHashMap;
use windlass_types::{JobStatus, Resources, WorkerId};

/// Classes of the ready queue by what jobs ask for and where they belong.
type Lanes = FxHashMap<(u32, Place), u32>;

/// The ready queue of a table, and the lane of each job.
pub(super) fn lanes(table: &JobTable) -> (ReadyQueue, Lanes, Vec<u32>) {
    let nowhere = Place::default();
    let demand = |(class, resources): (u32, &Resources)| demand(class, *resources, nowhere.clone());
    let demands: Vec<Demand> = (0..).zip(&table.requirements).map(demand).collect();
    let mut ready = ReadyQueue::new(&demands);
    let mut lanes: Lanes =
        (0..demands.len() as u32).map(|class| ((class, Place::default()), class)).collect();
    if table.place.is_empty() {
        return (ready, lanes, table.class.clone());
    }
    // By numbers first: a million jobs need not compare their labels.
    let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let lane = table.class.iter().zip(&table.place).enumerate().map(|(index, (&class, &place))| {
        *known.entry((class, place)).or_insert_with(|| {
            let resources = table.requirements[class as usize];
            lane_of(&mut ready, &mut lanes, class, resources, table.place_of(index))
        })
    });
    let lane = lane.collect();
    (ready, lanes, lane)
}

fn lane_of(ready: &mut ReadyQueue, lanes: &mut Lanes, class: u32, resources: Resources, place: Place) -> u32 {
    let new = |(class, place): &(u32, Place)| ready.add_class(demand(*class, resources, place.clone()));
    *lanes.entry((class, place)).or_insert_with_key(new)
}

/// Class 0 is for those that asked for nothing.
fn demand(class: u32, resources: Resources, place: Place) -> Demand {
    Demand { resources, is_named: class != 0, place }
}

impl Board {
    /// Keeps back all jobs that the only worker there is can never run, because they ask for too much or belong elsewhere:
    /// they are not claimed, and keep no other job from it. Which they are.
    pub fn keep_back(&mut self, mirror: &Mirror) -> Vec<u32> {
        let never =
            |demand: &Demand| !mirror.pool().could_hold(&demand.resources) || !mirror.suits(&demand.place);
        let lanes: Vec<bool> = (0..self.ready.classes()).map(|lane| never(self.ready.demand(lane))).collect();
        if !lanes.contains(&true) {
            return Vec::new();
        }
        let gate = self.ready.add_gate(0);
        for lane in (0u32..).zip(&lanes).filter_map(|(lane, kept)| kept.then_some(lane)) {
            self.ready.put_behind(lane, gate);
        }
        let is_kept = |job: &u32| !self.status(*job).is_settled() && lanes[self.lane[*job as usize] as usize];
        (0..self.ids.len() as u32).filter(is_kept).collect()
    }

    pub(super) fn lane_of(&mut self, class: u32, place: Place) -> u32 {
        let resources = self.requirements[class as usize];
        let before = self.ready.classes();
        let lane = lane_of(&mut self.ready, &mut self.lanes, class, resources, place);
        if lane >= before {
            self.put_behind_gates(lane);
        }
        lane
    }

    /// What a job asks for and where it belongs.
    pub fn demand(&self, job: u32) -> &Demand {
        self.ready.demand(self.lane[job as usize])
    }

    /// How many may be claimed, those that are tried alone included.
    pub fn ready(&self) -> usize {
        self.ready.len() + self.alone.len()
    }

    /// What they ask for, and how many ask for it; one thing may come up more than once.
    pub fn ready_by_demand(&self) -> impl Iterator<Item = (&Demand, usize)> {
        self.ready.by_demand().chain(self.alone.iter().map(|&job| (self.demand(job), 1)))
    }

    /// Of the job that is next for somebody with this taste; `None` where he may claim nothing.
    pub fn top_priority(&self, taste: &Taste) -> Option<i32> {
        if self.takes_no_claims() { None } else { self.ready.top_priority(taste) }
    }

    /// A job is being tried with nothing beside it.
    pub fn is_trying_alone(&self) -> bool {
        !self.alone_now.is_empty()
    }

    /// This job is being tried with nothing beside it.
    pub fn is_tried_alone(&self, job: u32) -> bool {
        self.alone_now.contains(&job)
    }

    /// Jobs wait for a worker of their own.
    pub fn has_alone(&self) -> bool {
        self.may_try_alone() && !self.takes_no_claims()
    }

    /// The same, but for what keeps everything from being claimed.
    pub(super) fn may_try_alone(&self) -> bool {
        self.alone.iter().any(|job| self.ready.is_open(self.lane[*job as usize]))
    }

    /// A job that waits for a worker of its own and could have this one.
    pub fn could_try_alone<K: Handle>(&self, mirror: &Mirror<K>) -> bool {
        let could =
            |job: &u32| self.ready.is_open(self.lane[*job as usize]) && mirror.could_take(self.demand(*job));
        !self.takes_no_claims() && self.alone.iter().any(could)
    }

    /// A job that is ready, or held already, is suspected of killing workers: it has one to itself.
    pub fn try_alone(&mut self, job: u32) {
        if self.later.will_be_alone(job, true) {
            return;
        }
        if self.status(job) == JobStatus::Ready {
            self.unqueue(job);
            self.alone.push_back(job);
        } else if self.status(job).is_active() && !self.is_tried_alone(job) {
            self.alone_now.push(job);
        }
    }

    /// It is suspected no longer. One that is being tried goes on as it is.
    pub fn try_beside_others(&mut self, job: u32) {
        if self.later.will_be_alone(job, false) {
            return;
        }
        if let Some(place) = self.alone.iter().position(|waiting| *waiting == job) {
            self.alone.remove(place);
            self.enqueue(job);
        }
    }

    /// Its trial is over, if there was one.
    pub(super) fn ends_trial(&mut self, job: u32) -> bool {
        let tried = self.alone_now.iter().position(|tried| *tried == job);
        tried.map(|tried| self.alone_now.swap_remove(tried)).is_some()
    }

    /// Takes jobs for the only worker there is, `ahead` of them to wait there. What is to be tried alone goes first.
    pub fn claim<K: Handle>(
        &mut self,
        worker: WorkerId,
        mirror: &mut Mirror<K>,
        ahead: usize,
        changes: &mut Vec<Change>,
    ) -> Vec<u32> {
        match () {
            () if self.is_trying_alone() => Vec::new(),
            () if self.alone.is_empty() => {
                self.claim_ready(worker, mirror, Want { most: usize::MAX, ahead }, changes)
            }
            () => self.claim_alone(worker, mirror, changes).into_iter().collect(),
        }
    }

    /// Takes jobs for one of several workers; those that are tried alone do not concern it.
    pub fn claim_ready<K: Handle>(
        &mut self,
        worker: WorkerId,
        mirror: &mut Mirror<K>,
        want: Want,
        changes: &mut Vec<Change>,
    ) -> Vec<u32> {
        if self.takes_no_claims() {
            return Vec::new();
        }
        let ids = &self.ids;
        let taken = mirror.fill_some(&mut self.ready, want, |job| K::of(job, ids[job as usize]));
        self.note_claims(worker, &taken, mirror.site(), changes);
        taken
    }

    /// Takes a job that is to run with nothing beside it, if there is one and the worker is idle.
    pub fn claim_alone<K: Handle>(
        &mut self,
        worker: WorkerId,
        mirror: &mut Mirror<K>,
        changes: &mut Vec<Change>,
    ) -> Option<u32> {
        if self.takes_no_claims() {
            return None;
        }
        let takes = |job: &u32| {
            self.ready.is_open(self.lane[*job as usize])
                && mirror.take_alone(K::of(*job, self.ids[*job as usize]), self.demand(*job))
        };
        let position = self.alone.iter().position(takes)?;
        let job = self.alone.remove(position)?;
        self.alone_now.push(job);
        self.ready.enter_all(self.lane[job as usize]);
        self.note_claims(worker, &[job], mirror.site(), changes);
        Some(job)
    }

    /// Takes the oldest jobs of the highest priority for somebody who sees for himself where they fit.
    pub fn claim_oldest(
        &mut self,
        worker: WorkerId,
        taste: &Taste,
        limit: usize,
        changes: &mut Vec<Change>,
    ) -> Vec<u32> {
        if self.takes_no_claims() {
            return Vec::new();
        }
        let oldest = std::iter::from_fn(|| self.ready.pop_oldest(taste));
        let taken: Vec<u32> = oldest.take(limit).collect();
        self.note_claims(worker, &taken, taste.site(), changes);
        taken
    }

    /// `site`: where the worker is.
    fn note_claims(
        &mut self,
        worker: WorkerId,
        taken: &[u32],
        site: Option<&str>,
        changes: &mut Vec<Change>,
    ) {
        for &job in taken {
            self.transition(job, JobEvent::Claim);
            changes.push(Change::Claim {
                job: self.ids[job as usize],
                attempt: self.attempt[job as usize],
                worker,
            });
            if self.has_units() {
                self.note_site_of(job, site);
                self.tell_of_unit(job, changes);
            }
        }
    }
}
