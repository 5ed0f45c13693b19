//! How workers come and go.

use super::Dispatcher;
use crate::Error;
use crate::host::{Buried, Sender};
use crate::inbox::Event;
use std::mem;
use std::time::{Duration, Instant};
use windlass_core::board::Orphan;
use windlass_core::dispatch::Mirror;
use windlass_core::suspects::{Evidence, Whereabouts};
use windlass_store::model::WorkerRow;
use windlass_types::WorkerId;
use windlass_types::work::{AttemptKey, StopReason, ToWorker};

/// How long a worker that was told to quit may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// A worker that dies so often in a row without finishing a job is not replaced again.
const WORKER_DEATHS: u32 = 5;

pub(super) struct ActiveWorker {
    pub(super) id: WorkerId,
    row: WorkerRow,
    sender: Sender,
    /// Known once it has said hello.
    pub(super) mirror: Option<Mirror>,
}

impl ActiveWorker {
    pub(super) const fn row(&self) -> &WorkerRow {
        &self.row
    }
}

impl Dispatcher<'_> {
    pub(super) fn start_worker(&mut self) -> Result<(), Error> {
        let started = self.host.start(&self.workflow).map_err(Error::Start)?;
        let now = self.clock.now();
        let id = self.insist(|store| store.add_worker(&started.worker, now))?;
        let reader = started.stream.try_clone().map_err(|e| Error::Start(e.into()))?;
        self.inbox.listen_to(id, reader);
        let sender = Sender::new(started.stream).map_err(|e| Error::Start(e.into()))?;
        let row =
            WorkerRow { id, worker: started.worker, started_at: now, ended_at: None, is_draining: false };
        self.worker = Some(ActiveWorker { id, row, sender, mirror: None });
        Ok(())
    }

    pub(super) fn stop_worker(&mut self, why: StopReason, grace: Duration) {
        self.tell_worker(&ToWorker::Stop { why, grace });
    }

    pub(super) fn tell_worker(&mut self, message: &ToWorker) {
        if let Some(worker) = &mut self.worker
            && worker.sender.send(message).is_err()
        {
            // It is gone, or it does not read: either way it is of no use any more.
            let gone = Event::WorkerGone { worker: worker.id, confused: None };
            self.inbox.post().send(gone);
        }
    }

    /// Everything the worker held is an orphan, and a new worker takes its place.
    pub(super) fn on_worker_gone(&mut self) -> Result<(), Error> {
        let Some(gone) = self.worker.take() else { return Ok(()) };
        let buried = self.host.bury(&gone.row.worker).map_err(Error::Bury)?;
        self.take_recorded_ends(gone.id, &buried);
        let (lost, given_up) = self.orphan_what_it_held(gone.id, &buried);
        self.open.dead.push(gone.row);
        // Assignments that were decided but never sent are among the orphans; they must not go to the next worker.
        self.open.assignments.clear();
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.then.assignments.clear();
        }
        if self.stop.is_some() {
            return Ok(());
        }
        self.deaths_in_a_row = if given_up { 0 } else { self.deaths_in_a_row + 1 };
        if self.deaths_in_a_row >= WORKER_DEATHS {
            return Err(Error::WorkerKeepsDying(WORKER_DEATHS));
        }
        self.observer
            .notice(&format!("the worker died ({lost} of its jobs had started); a new one takes over"));
        self.start_worker()
    }

    /// Jobs that ended before the worker died, but whose reports did not arrive.
    fn take_recorded_ends(&mut self, worker: WorkerId, buried: &Buried) {
        let mut keys: Vec<AttemptKey> = self.held.keys().map(|job| self.board.key(*job)).collect();
        keys.sort_unstable();
        for ended in keys.iter().filter_map(|key| buried.recorded_ends.get(key)) {
            if let Err(stale) = self.on_ended(worker, ended) {
                self.observer.notice(&stale.to_string());
            }
        }
    }

    /// How many had started, and whether one was given up.
    fn orphan_what_it_held(&mut self, worker: WorkerId, buried: &Buried) -> (usize, bool) {
        let now = self.clock.now();
        let held = mem::take(&mut self.held);
        let alone = held.len() == 1 && self.board.is_trying_alone();
        let (mut lost, mut given_up) = (0, false);
        let mut jobs: Vec<u32> = held.keys().copied().collect();
        jobs.sort_unstable();
        for job in jobs {
            let key = self.board.key(job);
            let at = match buried.may_have_started(&key) {
                false => Whereabouts::NotStarted,
                true if alone => Whereabouts::Alone,
                true => Whereabouts::Running,
            };
            lost += usize::from(at != Whereabouts::NotStarted);
            let fate = self.suspects.on_death(key.job, worker, at, Evidence::Witnessed);
            given_up |= fate == Orphan::GiveUp;
            let started_at = held.get(&job).and_then(|h| h.started).map(|(_, at)| at);
            self.board.on_orphaned(job, worker, fate, started_at, now, &mut self.open.changes);
            if fate == Orphan::GiveUp {
                self.something_ended = true;
                self.over.push(key);
            }
        }
        (lost, given_up)
    }

    /// Lets the worker go, and makes sure that it went.
    pub(super) fn dismiss_worker(&mut self) -> Result<(), Error> {
        let Some(mut worker) = self.worker.take() else { return Ok(()) };
        worker.sender.send(&ToWorker::Quit).unwrap_or_default();
        let gone = |event: &Event| matches!(event, Event::WorkerGone { worker: id, .. } if *id == worker.id);
        let until = Instant::now() + FAREWELL;
        while self.inbox.next(until).is_some_and(|event| !gone(&event)) {}
        self.host.bury(&worker.row.worker).map_err(Error::Bury)?;
        self.retire(&worker.row)
    }

    /// What became of its jobs is on disk.
    pub(super) fn retire(&mut self, row: &WorkerRow) -> Result<(), Error> {
        let now = self.clock.now();
        self.insist(|store| store.retire_worker(row.id, now))?;
        self.host.forget(&row.worker);
        Ok(())
    }

    pub(super) fn mirror(&mut self) -> Option<&mut Mirror> {
        self.worker.as_mut()?.mirror.as_mut()
    }
}
