//! What follows failures at a server: retries and their delays, workflows that stand still because their retries are used
//! up, and those that wait for somebody's decision.

use super::desk::Desk;
use super::mate::Mate;
use super::office::{Office, Slot, refused, unavailable};
use super::talk::Refused;
use crate::sequels::{Around, Room};
use std::time::{Duration, Instant};
use windlass_core::board::{Failed, Stale, Verdict};
use windlass_core::change::Change;
use windlass_core::dispatch::Place;
use windlass_types::work::Ended;
use windlass_types::{JobStatus, WorkerId, WorkflowId};

impl Office {
    /// The end of an attempt, with what follows if it failed.
    pub(super) fn conclude_attempt(&mut self, worker: WorkerId, ended: &Ended) -> Result<Verdict, Stale> {
        let key = ended.key;
        let Self { slots, mates, crews, nodes, now, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&key.workflow) else {
            return Err(Stale { key, found: format!("workflow {} is over", key.workflow) });
        };
        let Desk { board, sequels, open, row, .. } = &mut **desk;
        let room = |place: &Place| {
            let members = crews.members_for(key.workflow).into_iter().filter_map(|id| mates.get(&id));
            room_of(members.filter(|mate| mate.mirror.suits(place)))
        };
        let mut class = None;
        let follow = |failed: Failed<'_>| {
            let node = mates.get(&worker).map(|mate| nodes.record(&mate.node));
            let around = Around { room: &room, node, now: now.wall };
            let followed = sequels.follow(failed, &around);
            class = followed.diagnosis.as_ref().map(|diagnosis| diagnosis.class);
            followed
        };
        let verdict = board.on_ended_then(worker, ended, follow, &mut open.changes)?;
        if sequels.is_used_up() && !board.is_halted() {
            board.on_halt();
            open.changes.push(Change::Alarm(Box::new(sequels.used_up(row))));
        }
        self.weigh_node(worker, &key, (verdict.attempt_status, &ended.cause), class);
        Ok(verdict)
    }

    /// Jobs whose time has come may be claimed.
    pub(super) fn let_go_of_what_is_due(&mut self) {
        let now = self.now.wall;
        for workflow in self.delaying.iter().copied().collect::<Vec<_>>() {
            let Some(desk) = self.desk(workflow).filter(|desk| desk.board.next_due().is_some()) else {
                self.delaying.remove(&workflow);
                continue;
            };
            if desk.board.on_time(now) > 0 {
                self.stirred.insert(workflow);
            }
        }
    }

    /// When the next of them may be.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.delaying.iter().filter_map(|workflow| match self.slots.get(workflow)? {
            Slot::Open(desk) => desk.board.next_due(),
            Slot::Shut(_) => None,
        });
        due.min().and_then(|due| self.now.at.checked_add(due.since(self.now.wall)))
    }

    /// Something happened at the desk: it may have jobs that wait for their time, and may wait for a decision.
    pub(super) fn look_after_failures(&mut self, workflow: WorkflowId) {
        let Some(Slot::Open(desk)) = self.slots.get_mut(&workflow) else { return };
        if desk.board.next_due().is_some() {
            self.delaying.insert(workflow);
        }
        let needs_decision = desk.needs_decision();
        if std::mem::replace(&mut desk.waits_for_decision, needs_decision) != needs_decision {
            self.tell_bound(workflow);
            self.tell_of_commit();
        }
    }

    /// Somebody has the workflow go on; if its retries were used up, there are as many again.
    pub(super) fn go_on(&mut self, workflow: WorkflowId, by: &str) -> Result<(), Refused> {
        let (store, now) = (self.store.acting_as(by), self.now.wall);
        let desk = self.open(workflow)?;
        if desk.board.is_halted() {
            // Else what is noted now might come before the alarm that it answers.
            if !desk.is_quiet() {
                return Err(unavailable("something of this workflow is just being written"));
            }
            store.add_event(&desk.sequels.renew(&desk.row), now).map_err(|error| refused(&error))?;
            desk.board.on_go_on();
        }
        Ok(())
    }
}

impl Desk {
    /// Nothing more happens unless somebody says what is to become of a failure, or has it go on.
    pub(super) fn needs_decision(&self) -> bool {
        let is_open = self.board.is_halted() || self.board.counts().get(JobStatus::PendingFailed) > 0;
        self.is_active && is_open && self.held.is_empty() && self.is_quiet() && self.board.is_stuck()
    }
}

/// Those that take no more jobs give nothing; one that does not say how long it stays, stays for good.
fn room_of<'a>(members: impl Iterator<Item = &'a Mate>) -> Room {
    let takers: Vec<&Mate> = members.filter(|mate| !mate.is_draining && !mate.is_to_drain).collect();
    let stays: Option<Vec<Duration>> = takers.iter().map(|mate| mate.stays).collect();
    Room {
        workers: takers.iter().map(|mate| mate.capacity).collect(),
        longest: stays.and_then(|stays| stays.into_iter().max()),
    }
}
