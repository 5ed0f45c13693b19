//! What follows failures at a server: retries and their delays, workflows that stand still because their retries are used
//! up, and those that wait for somebody's decision.

use super::desk::Desk;
use super::mate::Mate;
use super::office::{Office, Slot, refused};
use super::talk::Refused;
use crate::sequels::Around;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use windlass_core::board::{Failed, Stale, Verdict};
use windlass_core::classify::NodeRecord;
use windlass_core::dispatch::Place;
use windlass_types::work::Ended;
use windlass_types::{Capacity, JobStatus, WorkerId, WorkflowId};

/// How attempts at one worker ended lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    failed: u32,
    ended: u32,
}

impl Tally {
    /// What came before so many counts half.
    const LATELY: u32 = 128;

    fn note(&mut self, has_failed: bool) {
        if self.ended >= Self::LATELY {
            *self = Self { failed: self.failed / 2, ended: self.ended / 2 };
        }
        self.ended += 1;
        self.failed += u32::from(has_failed);
    }
}

impl Office {
    /// The end of an attempt, with what follows if it failed.
    pub(super) fn conclude_attempt(&mut self, worker: WorkerId, ended: &Ended) -> Result<Verdict, Stale> {
        let key = ended.key;
        let Self { slots, mates, crews, now, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&key.workflow) else {
            return Err(Stale { key, found: format!("workflow {} is over", key.workflow) });
        };
        let Desk { board, sequels, open, .. } = &mut **desk;
        let workers = |place: &Place| -> Vec<Capacity> {
            let members = crews.members_for(key.workflow).into_iter().filter_map(|id| mates.get(&id));
            members.filter(|mate| mate.mirror.suits(place)).map(|mate| mate.capacity).collect()
        };
        let mut class = None;
        let follow = |failed: Failed<'_>| {
            let around = Around { workers: &workers, node: record(mates, worker), now: now.wall };
            let followed = sequels.follow(failed, &around);
            class = followed.diagnosis.as_ref().map(|diagnosis| diagnosis.class);
            followed
        };
        let verdict = board.on_ended_then(worker, ended, follow, &mut open.changes)?;
        if sequels.is_used_up() && !board.is_halted() {
            board.on_halt();
            desk.owes_word_of_halt = true;
        }
        if let Some(mate) = mates.get_mut(&worker) {
            mate.tally.note(verdict.attempt_status == JobStatus::Failed);
        }
        self.weigh_node(worker, &key, verdict.attempt_status, class);
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
        due.min().map(|due| self.now.at + due.since(self.now.wall))
    }

    /// Something happened at the desk: it may have jobs that wait for their time, and may wait for a decision.
    pub(super) fn look_after_failures(&mut self, workflow: WorkflowId) {
        let (store, now) = (Arc::clone(&self.store), self.now.wall);
        let Some(Slot::Open(desk)) = self.slots.get_mut(&workflow) else { return };
        if desk.board.next_due().is_some() {
            self.delaying.insert(workflow);
        }
        // After what led to it, which is on disk then.
        if desk.owes_word_of_halt && desk.is_quiet() && !desk.is_in_trouble() {
            match store.add_event(&desk.sequels.used_up_event(&desk.row), now) {
                Ok(_) => desk.owes_word_of_halt = false,
                Err(error) => return self.on_trouble(workflow, &error),
            }
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
            store.add_event(&desk.sequels.renew(&desk.row), now).map_err(|error| refused(&error))?;
            desk.board.on_go_on();
            desk.owes_word_of_halt = false;
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

/// How a worker did lately, and how the others did.
fn record(mates: &HashMap<WorkerId, Mate>, worker: WorkerId) -> Option<NodeRecord> {
    let mine = mates.get(&worker)?.tally;
    let others = mates.iter().filter(|(id, _)| **id != worker).map(|(_, mate)| mate.tally);
    let mut record = NodeRecord { failed: mine.failed, ended: mine.ended, peers_failed: 0, peers_ended: 0 };
    for Tally { failed, ended } in others {
        record.peers_failed += failed;
        record.peers_ended += ended;
    }
    Some(record)
}
