//! What a worker says, and what it means for the board.

use super::{Dispatcher, Held, here};
use crate::sequels::{Around, Room};
use std::time::Instant;
use windlass_core::board::{Failed, Stale};
use windlass_core::change::Change;
use windlass_core::dispatch::{Mirror, Place};
use windlass_types::WorkerId;
use windlass_types::work::{AttemptKey, Ended, FromWorker, Report, ReturnReason};

impl Dispatcher<'_> {
    pub(super) fn on_message(&mut self, message: FromWorker) {
        match message {
            FromWorker::Hello { capacity } => {
                let taste = here(self.host.labels());
                if let Some(worker) = &mut self.worker {
                    worker.mirror = Some(Mirror::with_taste(capacity, taste));
                }
            }
            FromWorker::Reports(reports) => {
                for report in reports {
                    self.on_report(report);
                }
                if self.open_since.is_none() && !self.open.changes.is_empty() {
                    self.open_since = Some(Instant::now());
                }
            }
            // Said by workers that hold a lease, which is only asked of those elsewhere.
            FromWorker::Alive { .. } => {}
            FromWorker::Terminated => self.on_worker_terminated(),
        }
    }

    /// It starts nothing more. Usually this process was signaled too and stops the jobs; otherwise the worker soon ends.
    fn on_worker_terminated(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.mirror = None;
        }
    }

    fn on_report(&mut self, report: Report) {
        let worker = self.worker.as_ref().map_or(WorkerId(0), |w| w.id);
        let outcome = match report {
            Report::Started { key, at, pid } => {
                if let Some(held) = self.held_mut(&key) {
                    held.started = Some((Instant::now(), at));
                }
                self.board.on_started(worker, &key, at, pid, &mut self.open.changes)
            }
            Report::Ended(ended) => self.on_ended(worker, &ended),
            Report::Returned { key, why } => {
                let outcome = self.hand_back(worker, &key);
                if let ReturnReason::WorkerTrouble(text) = why {
                    self.in_trouble(text);
                }
                outcome
            }
        };
        if let Err(stale) = outcome {
            self.observer.notice(&stale.to_string());
        }
    }

    pub(super) fn on_ended(&mut self, worker: WorkerId, ended: &Ended) -> Result<(), Stale> {
        let Self { board, sequels, host, clock, open, options, started, .. } = self;
        let room = |_: &Place| Room {
            workers: vec![host.capacity()],
            longest: options.until.map(|until| until.end.saturating_duration_since(*started)),
        };
        let follow = |failed: Failed<'_>| {
            let around = Around { room: &room, node: None, now: clock.now() };
            sequels.follow(failed, &around)
        };
        let verdict = board.on_ended_then(worker, ended, follow, &mut open.changes)?;
        self.halt_if_used_up();
        self.deaths_in_a_row = 0;
        self.suspects.on_ended(ended.key.job);
        self.something_ended = true;
        if verdict.job_status.is_settled() {
            self.over.push(ended.key);
        }
        self.pace.on_ended(ended.wall);
        let name = self.let_go(&ended.key);
        self.open.ends.push((ended.key, name, verdict, ended.wall));
        Ok(())
    }

    /// So much has failed that it is not worth the while: what runs may end, and nothing more begins.
    fn halt_if_used_up(&mut self) {
        if self.sequels.is_used_up() && !self.board.is_halted() {
            self.board.on_halt();
            let alarm = self.sequels.used_up(&self.workflow);
            self.observer.notice(&alarm.message);
            self.open.changes.push(Change::Alarm(Box::new(alarm)));
        }
    }

    /// The worker gives up a claim that never started.
    pub(super) fn hand_back(&mut self, worker: WorkerId, key: &AttemptKey) -> Result<(), Stale> {
        self.board.on_returned(worker, key, &mut self.open.changes)?;
        self.let_go(key);
        Ok(())
    }

    /// The worker no longer holds the job. Returns the job's name.
    fn let_go(&mut self, key: &AttemptKey) -> String {
        let Some(job) = self.board.index(key.job) else { return String::new() };
        if let Some(mirror) = self.mirror() {
            mirror.remove(job);
        }
        self.held.remove(&job).map(|held| held.name).unwrap_or_default()
    }

    fn held_mut(&mut self, key: &AttemptKey) -> Option<&mut Held> {
        self.held.get_mut(&self.board.index(key.job)?)
    }
}
