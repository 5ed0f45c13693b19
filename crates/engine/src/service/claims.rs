//! Finding jobs for workers that wait: the workflows take turns, and each worker gets what fits it.

use super::desk::{Claimed, Desk};
use super::figures::count;
use super::mate::Mate;
use super::office::{Office, Slot};
use super::panics::Activity;
use crate::terms::assignments;
use std::collections::{BTreeSet, HashSet};
use windlass_core::change::Change;
use windlass_core::dispatch::Want;
use windlass_core::nodes::Standing;
use windlass_store::Error;
use windlass_types::{JobId, WorkerId, WorkflowId};

impl Office {
    /// Puts the workflow where it belongs in the order of each crew.
    pub(super) fn place(&mut self, workflow: WorkflowId) {
        let is_paused = self.is_paused(workflow);
        let Self { slots, crews, .. } = self;
        match slots.get(&workflow) {
            Some(Slot::Open(desk)) if desk.is_active && !desk.is_canceled && !is_paused => {
                crews.place(workflow, |taste| desk.board.top_priority(taste));
            }
            _ => crews.place(workflow, |_| None),
        }
    }

    /// Gives jobs to those who wait: to workers that something happened to, and to any that wait for what has become
    /// ready.
    pub(super) fn serve(&mut self, stirred: &BTreeSet<WorkflowId>) {
        let lonely = if self.roused.is_empty() { BTreeSet::new() } else { std::mem::take(&mut self.lonely) };
        for &workflow in stirred.union(&lonely) {
            self.find_room_for_alone(workflow);
        }
        for &workflow in stirred {
            self.find_hands(workflow);
        }
        let roused: Vec<WorkerId> = self.roused.iter().copied().collect();
        for worker in roused {
            self.note_waiting(worker);
            self.find_actions(worker);
            self.serve_one(worker);
        }
        for &workflow in stirred {
            if !self.may_claim(workflow) {
                continue;
            }
            for worker in self.crews.waiting_for(workflow) {
                if !self.crews.is_listed(workflow) {
                    break;
                }
                self.serve_one(worker);
            }
        }
    }

    fn serve_one(&mut self, worker: WorkerId) {
        let Some(mate) = self.mates.get(&worker).filter(|mate| mate.may_take()) else { return };
        if let Some(workflow) = mate.reserved {
            self.try_alone(worker, workflow);
            return;
        }
        let ahead = mate.ahead();
        // More comes with the next report; until then half of what it was given ahead has to last.
        if mate.mirror.is_full() && mate.mirror.queued() > ahead / 2 {
            return;
        }
        let before = mate.held.len();
        if mate.standing == Standing::OnProbation {
            self.try_node(worker);
        } else {
            self.go_round(worker, 0, None);
            if ahead > 0 {
                self.go_round(worker, ahead, None);
            }
        }
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        if mate.held.len() > before {
            mate.pace.on_claimed(mate.mirror.running());
            let (crew, served) = (mate.crew, mate.served);
            mate.served = self.crews.turn();
            if let Some(crew) = crew {
                self.crews.note_waiting(crew, worker, served, false);
                self.note_waiting(worker);
            }
        }
    }

    /// One job says whether its node is to be trusted again.
    fn try_node(&mut self, worker: WorkerId) {
        if !self.may_be_probed(worker) {
            return;
        }
        let held = self.mates.get(&worker).map(|mate| mate.held.keys().copied().collect());
        let before: HashSet<JobId> = held.unwrap_or_default();
        self.go_round(worker, 0, Some(1));
        self.note_probe(worker, &before);
    }

    /// Goes round the workflows that have something for the worker until it has enough, or as many as it may have.
    fn go_round(&mut self, worker: WorkerId, ahead: usize, most: Option<usize>) {
        let Some(crew) = self.mates.get(&worker).and_then(|mate| mate.crew) else { return };
        let mut after = None;
        while let Some(turn) = self.crews.next(crew, after) {
            let (_, _, workflow) = turn;
            after = Some(turn);
            let rivals = self.crews.rivals(crew).max(1);
            if !self.may_claim(workflow)
                || self.is_resting_from(worker, workflow)
                || self.begins_with_action(worker, workflow)
            {
                continue;
            }
            let Some(mate) = self.mates.get(&worker) else { return };
            let share = (mate.slots() + ahead).div_ceil(rivals);
            self.activity = Activity { worker: Some(worker), ..Activity::upkeep(workflow) };
            if self.claim_some(worker, workflow, most.unwrap_or(share), ahead) {
                self.crews.served(crew, workflow);
                self.place(workflow);
                if most.is_some() {
                    return;
                }
            }
            let Some(mate) = self.mates.get(&worker) else { return };
            if mate.mirror.is_full() && mate.mirror.queued() >= ahead {
                return;
            }
        }
    }

    /// The worker could not start jobs of this workflow a moment ago.
    fn is_resting_from(&self, worker: WorkerId, workflow: WorkflowId) -> bool {
        self.mates.get(&worker).is_some_and(|mate| mate.rests_from(workflow, self.now.at))
    }

    fn may_claim(&mut self, workflow: WorkflowId) -> bool {
        !self.is_paused(workflow) && self.desk(workflow).is_some_and(|desk| desk.may_claim())
    }

    /// Claims some jobs of one workflow; whether there were any.
    fn claim_some(&mut self, worker: WorkerId, workflow: WorkflowId, most: usize, ahead: usize) -> bool {
        let Some(site) = self.mates.get(&worker).map(|mate| mate.mirror.site()) else { return false };
        let is_open = self.is_open_for(workflow, site);
        let is_open_to_others = site.is_none_or(|site| !self.closed_sites.contains(site));
        let (Some(Slot::Open(desk)), Some(mate)) =
            (self.slots.get_mut(&workflow), self.mates.get_mut(&worker))
        else {
            return false;
        };
        // Nobody knows when what waits at the worker would start.
        let ahead = if mate.mirror.has_limited_time() && desk.board.asks_for_time() { 0 } else { ahead };
        let ahead = ahead.min(desk.sequels.most_ahead(desk.board.counts().total(), desk.held.len()));
        let want = Want { most, ahead };
        mate.mirror.take_elections(is_open && is_open_to_others);
        mate.mirror.prefer_scheduler(mate.allocation.map(|_| mate.scheduler));
        let mut taken = desk.board.claim_ready(worker, &mut mate.mirror, want, &mut desk.open.changes);
        mate.mirror.prefer_scheduler(None);
        if taken.is_empty() && mate.allocation.is_some() {
            // What is meant for others is for it only if there is nothing else.
            taken = desk.board.claim_ready(worker, &mut mate.mirror, want, &mut desk.open.changes);
        }
        mate.mirror.take_elections(is_open_to_others);
        if !taken.is_empty() {
            self.assign(worker, workflow, &taken);
        }
        !taken.is_empty()
    }

    /// What was claimed goes to the worker once it is on disk.
    fn assign(&mut self, worker: WorkerId, workflow: WorkflowId, jobs: &[u32]) {
        let Self { slots, mates, .. } = self;
        let (Some(Slot::Open(desk)), Some(mate)) = (slots.get_mut(&workflow), mates.get_mut(&worker)) else {
            return;
        };
        for &job in jobs {
            let key = desk.board.key(job);
            desk.hold(worker, &key, false);
            mate.held.insert(key.job, workflow);
            desk.open.claimed.push(Claimed { worker, job, key });
        }
        // Whoever waits is not sent away while something for him is on its way.
        let newest = mate.exchanges.newest();
        self.owe(worker, newest, workflow);
        self.stirred.insert(workflow);
    }

    /// Reads what is to be done for the jobs that were claimed: for all of them at once, because a database may be far away.
    pub(super) fn read_claimed(&mut self, workflow: WorkflowId) {
        let Self { slots, store, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&workflow) else { return };
        let claimed = std::mem::take(&mut desk.open.claimed);
        if claimed.is_empty() {
            return;
        }
        let jobs: Vec<u32> = claimed.iter().map(|claimed| claimed.job).collect();
        match assignments(&**store, &desk.board, &desk.terms, &jobs) {
            Ok(assigned) => {
                let workers = claimed.iter().map(|claimed| claimed.worker);
                desk.open.assignments.extend(workers.zip(assigned));
                count(&self.gauges.assigned, jobs.len());
            }
            Err(error) => self.unclaim(workflow, &claimed, &error),
        }
    }

    /// What was just claimed is ready again: nobody was told, and nothing of it is on its way to the disk.
    fn unclaim(&mut self, workflow: WorkflowId, claimed: &[Claimed], error: &Error) {
        let Self { slots, mates, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&workflow) else { return };
        // The last claim of each: an earlier one was given back.
        let mut jobs: HashSet<JobId> = claimed.iter().map(|claimed| claimed.key.job).collect();
        let changes = std::mem::take(&mut desk.open.changes).into_iter().rev();
        let kept = changes.filter(|change| !matches!(change, Change::Claim { job, .. } if jobs.remove(job)));
        desk.open.changes = kept.collect();
        desk.open.changes.reverse();
        for Claimed { worker, key, .. } in claimed {
            // It is held under this key, so it is not stale; and the claim was never written, so neither is its end. What
            // was said of its unit stands, and is taken back.
            let mut undone = Vec::new();
            drop(desk.board.on_returned(*worker, key, &mut undone));
            desk.open.changes.extend(undone.into_iter().filter(|change| matches!(change, Change::Unit(_))));
            desk.held.remove(&key.job);
            if let Some(mate) = mates.get_mut(worker) {
                mate.let_go(key.job);
            }
        }
        self.on_trouble(workflow, error);
        self.place(workflow);
    }

    /// A job that may be what kills workers is to have one to itself: one is chosen, and kept free until it is idle.
    fn find_room_for_alone(&mut self, workflow: WorkflowId) {
        let is_paused = self.is_paused(workflow);
        let Some(desk) = self.desk(workflow) else { return };
        if !desk.board.has_alone() || desk.reserved.is_some() || !desk.may_claim() || is_paused {
            return;
        }
        let (candidates, now) = (self.crews.members_for(workflow), self.now.at);
        let Some(Slot::Open(desk)) = self.slots.get_mut(&workflow) else { return };
        let suits = |mate: &Mate| {
            let free = mate.reserved.is_none() && mate.alone.is_none() && mate.standing == Standing::Trusted;
            let may = !mate.is_draining && !mate.is_to_drain && !mate.rests_from(workflow, now);
            free && may && desk.board.could_try_alone(&mate.mirror)
        };
        let loads = candidates.into_iter().filter_map(|worker| {
            let mate = self.mates.get(&worker).filter(|mate| suits(mate))?;
            Some((mate.held.len(), worker))
        });
        let Some((_, worker)) = loads.min() else {
            self.lonely.insert(workflow);
            return;
        };
        desk.reserved = Some(worker);
        if let Some(mate) = self.mates.get_mut(&worker) {
            mate.reserved = Some(workflow);
        }
        self.roused.insert(worker);
    }

    /// The worker is kept free for a job of this workflow; when it is idle it gets it.
    fn try_alone(&mut self, worker: WorkerId, workflow: WorkflowId) {
        let (is_paused, now) = (self.is_paused(workflow), self.now.at);
        let Self { slots, mates, .. } = self;
        let Some(mate) = mates.get_mut(&worker) else { return };
        let Some(Slot::Open(desk)) = slots.get_mut(&workflow) else {
            mate.reserved = None;
            return;
        };
        if desk.in_flight.is_some() {
            return;
        }
        let rests = mate.rests_from(workflow, now);
        if !desk.board.has_alone() || !desk.may_claim() || is_paused || rests {
            release(mate, desk);
            return;
        }
        if self.begins_with_action(worker, workflow) {
            return;
        }
        let Self { slots, mates, .. } = self;
        let (Some(Slot::Open(desk)), Some(mate)) = (slots.get_mut(&workflow), mates.get_mut(&worker)) else {
            return;
        };
        if let Some(job) = desk.board.claim_alone(worker, &mut mate.mirror, &mut desk.open.changes) {
            mate.alone = Some(desk.board.key(job).job);
            release(mate, desk);
            self.assign(worker, workflow, &[job]);
        }
    }
}

/// The worker need not be kept free any longer.
fn release(mate: &mut Mate, desk: &mut Desk) {
    mate.reserved = None;
    desk.reserved = None;
}
