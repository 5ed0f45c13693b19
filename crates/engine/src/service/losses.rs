//! Workers that leave, are given up, or are said to be dead, and what becomes of the jobs they held.

use super::call::Told;
use super::figures::count;
use super::mate::Mate;
use super::office::{Office, Slot, refused};
use super::talk::{Refused, Reply};
use crate::suspicion;
use std::time::Instant;
use windlass_core::board::Orphan;
use windlass_core::slurm::ends::Eviction;
use windlass_core::suspects::{Evidence, Whereabouts};
use windlass_store::model::{NewEvent, Severity, WorkerUpdate};
use windlass_types::{JobId, Timestamp, WorkerId, WorkflowId};

/// What a worker was lost by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    /// This much speaks against what ran there.
    Died(Evidence),
    Evicted(Eviction),
}

impl Office {
    /// The worker takes nothing more, finishes what it has, and leaves.
    pub(super) fn on_drain(&mut self, worker: WorkerId, reply: Reply<()>) {
        let Some(mate) = self.mates.get_mut(&worker) else {
            return reply(Err(Refused::NotFound(format!("there is no worker {worker} here"))));
        };
        mate.is_to_drain = true;
        mate.outbox.has_word = true;
        self.free_what_was_reserved(worker);
        self.roused.insert(worker);
        let update = WorkerUpdate { is_draining: Some(true), ..WorkerUpdate::default() };
        let noted = self.store.update_worker(worker, &update, self.now.wall);
        reply(noted.map_err(|error| refused(&error)));
    }

    /// Last words: it holds nothing and is gone after this.
    pub(super) fn on_leaving(&mut self, worker: WorkerId, number: u64) {
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        mate.is_leaving = true;
        self.going.entry(worker).or_default();
        let errands = std::mem::take(&mut mate.actions);
        let mut held: Vec<(JobId, WorkflowId)> = mate.held.iter().map(|(job, id)| (*job, *id)).collect();
        held.sort_unstable();
        self.lose_errands(worker, errands);
        for (job, workflow) in held {
            if let Some(mate) = self.mates.get_mut(&worker) {
                mate.let_go(job);
            }
            let Some(desk) = self.desk(workflow) else { continue };
            let Some(index) = desk.board.index(job) else { continue };
            let started = desk.held.remove(&job).and_then(|hold| hold.started_at);
            let fate = if started.is_some() { Orphan::RunAgain(None) } else { Orphan::NeverStarted };
            self.orphan(workflow, index, worker, fate, started);
            self.owe(worker, number, workflow);
        }
    }

    /// The worker is not heard of any more: whatever it may have started is an orphan.
    pub(super) fn lose(&mut self, worker: WorkerId, why: &str, evidence: Evidence) {
        let Some(mut mate) = self.mates.remove(&worker) else { return };
        self.leave_node(&mate, worker);
        self.going.entry(worker).or_default();
        if let Some(crew) = mate.crew {
            self.crews.leave(crew, worker, mate.served);
        }
        for reply in mate.exchanges.begin_anew() {
            let detail = format!("worker {worker} was given up: {why}");
            reply(Err(Refused::Conflict { code: "unknown_worker", detail }));
        }
        if let Some(desk) = mate.reserved.and_then(|workflow| self.desk(workflow)) {
            desk.reserved = None;
        }
        count(&self.gauges.lost_workers, 1);
        let mut held: Vec<(WorkflowId, JobId)> = mate.held.iter().map(|(job, id)| (*id, *job)).collect();
        held.sort_unstable();
        let by = match self.eviction_of(mate.allocation).filter(|_| !held.is_empty()) {
            Some(eviction) => Loss::Evicted(eviction),
            None => Loss::Died(evidence),
        };
        for (workflow, job) in held {
            let is_running = mate.mirror.is_running(job);
            self.orphan_of(workflow, job, worker, is_running, by);
        }
        self.lose_errands(worker, mate.actions);
        self.note_loss(worker, why);
    }

    /// The worker was not heard of for longer than its lease.
    pub(super) fn on_silence(&mut self, worker: WorkerId) {
        if self.begins_to_fence(worker) {
            return;
        }
        let evidence = if self.are_others_silent(worker) { Evidence::Hearsay } else { Evidence::Silence };
        self.last_silence = Some(self.now.at);
        let was_only_away = self.mates.get(&worker).is_some_and(|mate| mate.has_spoken);
        self.lose(worker, "its lease is over", evidence);
        if was_only_away {
            self.on_word_of_lost(worker);
        }
    }

    /// Another worker was lost just now, or may be about to: then they have more in common than a job.
    fn are_others_silent(&self, worker: WorkerId) -> bool {
        let lease = self.options.lease;
        let since = |past: Instant| self.now.at.saturating_duration_since(past);
        let full = self.lease_from_now();
        // One that can speak does so three times within its lease.
        let is_quiet =
            |mate: &Mate| mate.is_given_up || full.saturating_duration_since(mate.lease_until) > lease / 2;
        self.last_silence.is_some_and(|last| since(last) < lease)
            || self.mates.iter().any(|(id, mate)| *id != worker && is_quiet(mate))
    }

    fn note_loss(&self, worker: WorkerId, why: &str) {
        let event = NewEvent {
            workflow: None,
            job: None,
            severity: Severity::Warning,
            category: "worker_lost".to_owned(),
            message: format!("worker {worker} was given up: {why}"),
            data: Some(serde_json::json!({ "worker_id": worker })),
        };
        // What became of its jobs is noted with them.
        drop(self.store.add_event(&event, self.now.wall));
        self.tell_of_commit();
    }

    /// A worker that was given up has spoken: it was only away. What its silence said against jobs is taken back.
    pub(super) fn on_word_of_lost(&mut self, worker: WorkerId) {
        let mut concerned = Vec::new();
        for (id, slot) in &mut self.slots {
            let Slot::Open(desk) = slot else {
                // Whoever reads its rows again finds it there.
                concerned.push(*id);
                continue;
            };
            let cleared = desk.suspects.withdraw(worker);
            if cleared.is_empty() {
                continue;
            }
            concerned.push(*id);
            self.stirred.insert(*id);
            for job in cleared.into_iter().filter(|job| !desk.suspects.is_suspicious(*job)) {
                if let Some(index) = desk.board.index(job) {
                    desk.board.try_beside_others(index);
                }
            }
        }
        for workflow in concerned {
            // Without it a server that starts again holds against jobs what this one does not: no more than that.
            drop(self.store.add_event(&suspicion::returned(workflow, worker), self.now.wall));
            self.tell_of_commit();
        }
    }

    /// One job that a lost worker held.
    pub(super) fn orphan_of(
        &mut self,
        workflow: WorkflowId,
        job: JobId,
        worker: WorkerId,
        is_running: bool,
        by: Loss,
    ) {
        let Some(desk) = self.desk(workflow) else { return };
        let Some(index) = desk.board.index(job) else { return };
        let Some(hold) = desk.held.get(&job).copied().filter(|hold| hold.worker == worker) else { return };
        desk.held.remove(&job);
        let at = match () {
            () if !hold.is_told => Whereabouts::NotStarted,
            () if desk.board.is_tried_alone(index) => Whereabouts::Alone,
            () if is_running || hold.started_at.is_some() => Whereabouts::Running,
            () => Whereabouts::Waiting,
        };
        let fate = match by {
            Loss::Died(evidence) => desk.suspects.on_death(job, worker, at, evidence),
            Loss::Evicted(_) if at == Whereabouts::NotStarted => Orphan::NeverStarted,
            Loss::Evicted(eviction) => Orphan::Evicted(eviction),
        };
        self.orphan(workflow, index, worker, fate, hold.started_at);
    }

    /// What becomes of a job that nobody holds any more goes to disk with the next commit of its desk.
    pub(super) fn orphan(
        &mut self,
        workflow: WorkflowId,
        job: u32,
        worker: WorkerId,
        fate: Orphan,
        started_at: Option<Timestamp>,
    ) {
        let now = self.now.wall;
        let Some(desk) = self.desk(workflow) else { return };
        let key = desk.board.key(job);
        desk.board.on_orphaned(job, worker, fate, started_at, now, &mut desk.open.changes);
        if desk.board.status(job).is_settled() {
            desk.over.push(key);
        }
        desk.open.claimed.retain(|claimed| claimed.key.job != key.job);
        self.note_going(worker, workflow);
        if fate != Orphan::NeverStarted {
            count(&self.gauges.orphaned, 1);
        }
        self.stirred.insert(workflow);
    }

    /// What becomes of something that the worker had is among the changes of this desk: if it is gone, that has to be on
    /// disk before the books say so.
    pub(super) fn note_going(&mut self, worker: WorkerId, workflow: WorkflowId) {
        if self.going.contains_key(&worker)
            && let Some(desk) = self.desk(workflow)
            && !desk.open.gone.contains(&worker)
        {
            desk.open.gone.push(worker);
            *self.going.entry(worker).or_default() += 1;
        }
        self.stirred.insert(workflow);
    }

    /// It takes nothing more, so another one is to be kept free.
    pub(super) fn free_what_was_reserved(&mut self, worker: WorkerId) {
        let reserved = self.mates.get_mut(&worker).and_then(|mate| mate.reserved.take());
        if let Some(desk) = reserved.and_then(|workflow| self.desk(workflow)) {
            desk.reserved = None;
            let id = desk.id();
            self.stirred.insert(id);
        }
    }

    /// Somebody is certain that the worker is dead: one of ours, a runner of Torc, or a local one of an earlier run.
    pub(super) fn on_retire(&mut self, worker: WorkerId, by: &str, reply: Reply<()>) {
        if self.mates.contains_key(&worker) {
            self.lose(worker, &format!("{by} says that it is dead"), Evidence::Hearsay);
            return self.when_committed(worker, reply);
        }
        match self.store.worker(worker) {
            Ok(Some(row)) if row.ended_at.is_none() => {
                self.lose_unleased(worker, row.worker.workflow);
                self.when_committed(worker, reply);
            }
            Ok(Some(_)) => reply(Ok(())),
            Ok(None) => reply(Err(Refused::NotFound(format!("there is no worker {worker}")))),
            Err(error) => reply(Err(refused(&error))),
        }
    }

    /// A worker without a lease is gone; it held jobs of one workflow at most.
    pub(super) fn lose_unleased(&mut self, worker: WorkerId, workflow: Option<WorkflowId>) {
        self.going.entry(worker).or_default();
        let Some(workflow) = workflow else { return };
        let Ok(desk) = self.open(workflow) else { return };
        for job in desk.held_by(worker) {
            let is_running = self.desk(workflow).and_then(|desk| desk.held.get(&job)?.started_at).is_some();
            self.orphan_of(workflow, job, worker, is_running, Loss::Died(Evidence::Hearsay));
        }
        self.lose_errands_of(worker, workflow);
    }

    /// Answers when what the worker held is on disk.
    fn when_committed(&mut self, worker: WorkerId, reply: Reply<()>) {
        let rests_on = self.slots.values_mut().find_map(|slot| match slot {
            Slot::Open(desk) if desk.open.gone.contains(&worker) => Some(desk),
            _ => None,
        });
        match rests_on {
            Some(desk) => desk.open.told.push(reply as Told),
            None => reply(Ok(())),
        }
    }

    /// The books may say that a worker is gone once they say what became of its jobs.
    pub(super) fn retire_those_gone(&mut self) {
        let ready: Vec<WorkerId> =
            self.going.iter().filter(|(_, owes)| **owes == 0).map(|(worker, _)| *worker).collect();
        for worker in ready {
            let waits = self.mates.get(&worker).is_some_and(|mate| mate.exchanges.waits() > 0);
            if waits {
                // Its last words are answered first.
                self.roused.insert(worker);
                continue;
            }
            match self.store.retire_worker(worker, self.now.wall) {
                Err(error) if error.is_transient() => {}
                // Gone already, or deleted: it is all the same.
                Ok(()) | Err(_) => {
                    self.going.remove(&worker);
                    self.tell_of_commit();
                    let Some(mate) = self.mates.remove(&worker) else { continue };
                    self.leave_node(&mate, worker);
                    if let Some(crew) = mate.crew {
                        self.crews.leave(crew, worker, mate.served);
                    }
                }
            }
        }
    }
}
