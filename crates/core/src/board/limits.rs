//! How many jobs of some sorts are claimed at once: the limits that a workflow names, and how many units are under way.

use super::Board;
use super::units::UnderWay;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use windlass_types::JobStatus;

/// The gates of the ready queue that stand for limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    limits: FxHashMap<String, u32>,
    /// Electing jobs pass it, and their units are inside until they are over.
    units: Option<u32>,
}

impl Gates {
    fn is_none(&self) -> bool {
        self.units.is_none() && self.limits.is_empty()
    }
}

impl Board {
    /// The workflow limits how many jobs that name a limit, and how many units, are under way at once.
    pub fn use_limits(&mut self, limits: &BTreeMap<String, u32>, max_units: Option<u32>) {
        let gate = |(name, most): (&String, &u32)| (name.clone(), self.ready.add_gate(*most));
        self.gates.limits = limits.iter().map(gate).collect();
        self.gates.units = max_units.filter(|_| self.has_units()).map(|most| self.ready.add_gate(most));
        if self.gates.is_none() {
            return;
        }
        for lane in 0..self.ready.classes() {
            self.put_behind_gates(lane);
        }
        for job in self.held().collect::<Vec<_>>() {
            let limit = self.demand(job).place.limit.as_ref().and_then(|limit| self.gates.limits.get(limit));
            if let Some(&gate) = limit {
                self.ready.enter(gate);
            }
        }
        if let Some(gate) = self.gates.units {
            (0..self.units.under_way()).for_each(|_| self.ready.enter(gate));
        }
    }

    /// A lane that is new passes the gates that its place names.
    pub(super) fn put_behind_gates(&mut self, lane: u32) {
        if self.gates.is_none() {
            return;
        }
        let place = &self.ready.demand(lane).place;
        let limit = place.limit.as_ref().and_then(|limit| self.gates.limits.get(limit)).copied();
        let units = self.gates.units.filter(|_| place.elects);
        for gate in limit.into_iter().chain(units) {
            self.ready.put_behind(lane, gate);
        }
    }

    /// Keeps count when a job has moved. A claim has passed the gates already.
    pub(super) fn pass_gates(&mut self, job: u32, from: JobStatus, to: JobStatus) {
        let change = if self.units.is_empty() { UnderWay::AsBefore } else { self.units.moved(job, from, to) };
        if self.gates.is_none() {
            return;
        }
        if from.is_active() && !to.is_active() {
            // A unit is inside for longer than its electing job.
            let stays = self.gates.units.filter(|_| self.units.has(job));
            self.ready.leave_all_but(self.lane[job as usize], stays);
        }
        if let (Some(gate), UnderWay::OneLess) = (self.gates.units, change) {
            self.ready.leave(gate);
        }
    }

    /// It is ready, and nothing but a limit keeps it from being claimed.
    pub fn is_kept_by_limit(&self, job: u32) -> bool {
        self.status(job) == JobStatus::Ready && !self.ready.is_open(self.lane[job as usize])
    }
}
