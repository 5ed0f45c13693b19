//! When decisions go to disk, and what is done once they are there.

use super::{Dispatcher, Held, TROUBLE_PAUSE};
use crate::inbox::Event;
use crate::observe::AttemptEnd;
use crate::terms::assignments;
use crate::{Error, takeover};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::board::Verdict;
use windlass_core::change::Change;
use windlass_core::dispatch::Mirror;
use windlass_store::Batch;
use windlass_store::model::WorkerRow;
use windlass_types::WorkerId;
use windlass_types::fleet::ActionOrder;
use windlass_types::work::{Assignment, AttemptKey, ToWorker};

/// Completions that free nobody may wait this long for company before they are committed.
const LINGER: Duration = Duration::from_millis(10);
/// … or until there are so many.
const LARGEST_LINGERING_BATCH: usize = 256;
/// How long the last commit of a run that failed may take.
const LAST_COMMIT: Duration = Duration::from_secs(10);

/// Changes, and what to do once they are on disk.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) changes: Vec<Change>,
    pub(super) assignments: Vec<Assignment>,
    /// Actions that begin.
    pub(super) orders: Vec<ActionOrder>,
    pub(super) ends: Vec<(AttemptKey, String, Verdict, Duration)>,
    /// Dead workers whose jobs are among the changes: after that nothing of them is needed any more.
    pub(super) dead: Vec<WorkerRow>,
}

/// Handed to the store.
pub(super) struct InFlight {
    changes: Arc<[Change]>,
    pub(super) then: Decided,
    /// The commit failed for want of space…
    pub(super) was_refused: bool,
    /// … and is tried again then.
    pub(super) retry_at: Option<Instant>,
}

impl Dispatcher<'_> {
    /// Claims jobs for the worker if it has room now or will soon run dry.
    pub(super) fn claim_more(&mut self) -> Result<(), Error> {
        if self.stop.is_some()
            || self.wishes.are_there
            || self.actions_hold_jobs()
            || self.in_flight.is_some()
            || self.trouble.as_ref().is_some_and(super::Trouble::lasts)
        {
            return Ok(());
        }
        let Some(worker) = &mut self.worker else { return Ok(()) };
        let Some(mirror) = &mut worker.mirror else { return Ok(()) };
        let mut ahead = self.pace.ahead(mirror.running());
        if let Some(until) = self.options.until {
            mirror.limit_time(until.end.saturating_duration_since(Instant::now()));
            // Nobody knows when what waits at the worker would start.
            ahead = if self.board.asks_for_time() { 0 } else { ahead };
        }
        ahead = ahead.min(self.sequels.most_ahead(self.board.counts().total(), self.held.len()));
        if !self.board.has_ready() || mirror.queued() > ahead / 4 {
            return Ok(());
        }
        let taken = self.board.claim(worker.id, mirror, ahead, &mut self.open.changes);
        if taken.is_empty() {
            let nothing_fits = mirror.is_idle() && self.open.changes.is_empty();
            if nothing_fits && self.options.until.is_some() {
                self.on_time_up("what is left would not end in time: nothing more is started");
            }
            return Ok(());
        }
        self.pace.on_claimed(mirror.running());
        self.trouble = None;
        self.assign(&taken)
    }

    fn assign(&mut self, jobs: &[u32]) -> Result<(), Error> {
        let assigned = loop {
            match assignments(self.store, &self.board, &self.terms, jobs) {
                // They are claimed in memory only; nobody hears of them before they are read.
                Err(error) if error.is_transient() && self.interrupts < 2 => {
                    self.in_trouble(error.to_string());
                    self.sit_out();
                }
                read => break read?,
            }
        };
        for (&job, assignment) in jobs.iter().zip(assigned) {
            self.held.insert(job, Held { name: assignment.name.clone(), started: None });
            self.open.assignments.push(assignment);
        }
        Ok(())
    }

    /// Hands what was decided to the store: at once if somebody waits for it, else after a little company has come.
    pub(super) fn submit_if_due(&mut self) {
        let now = Instant::now();
        if let Some(in_flight) = &mut self.in_flight {
            if in_flight.retry_at.is_some_and(|at| at <= now) {
                in_flight.retry_at = None;
                self.submit_in_flight();
            }
            return;
        }
        // What was added by jobs that have ended is decided on together with their ends.
        if self.open.changes.is_empty() || self.something_ended {
            return;
        }
        let company = self.open.changes.len() >= LARGEST_LINGERING_BATCH;
        let waited = self.lingers_until().is_none_or(|until| until <= now);
        if self.is_awaited() || company || waited {
            let mut then = mem::take(&mut self.open);
            self.open_since = None;
            let changes = mem::take(&mut then.changes).into();
            self.in_flight = Some(InFlight { changes, then, was_refused: false, retry_at: None });
            self.submit_in_flight();
        }
    }

    pub(super) fn lingers_until(&self) -> Option<Instant> {
        self.open_since.map(|since| since + LINGER)
    }

    fn submit_in_flight(&self) {
        let Some(in_flight) = &self.in_flight else { return };
        let post = self.inbox.post();
        let changes = Arc::clone(&in_flight.changes);
        let batch = Batch { workflow: self.workflow.id, run: self.workflow.run_id, changes };
        let done = move |result| post.send(Event::Committed(result));
        self.store.submit(batch, Box::new(done));
    }

    /// Somebody waits for the next commit: a worker for its assignments, or everybody because nothing else will come.
    fn is_awaited(&self) -> bool {
        let nothing_runs = self.worker.as_ref().and_then(|w| w.mirror.as_ref()).is_none_or(Mirror::is_idle);
        let somebody = !self.open.assignments.is_empty() || !self.open.orders.is_empty();
        somebody || nothing_runs || self.wishes.are_there
    }

    pub(super) fn on_committed(&mut self, result: Result<(), windlass_store::Error>) -> Result<(), Error> {
        match result {
            Ok(()) => match self.in_flight.take() {
                Some(done) => {
                    if done.was_refused {
                        self.trouble = None;
                    }
                    self.perform(done.then)
                }
                None => Ok(()),
            },
            Err(error) if error.is_transient() => {
                self.in_trouble(error.to_string());
                if let Some(in_flight) = &mut self.in_flight {
                    in_flight.was_refused = true;
                    in_flight.retry_at = Some(Instant::now() + TROUBLE_PAUSE);
                }
                Ok(())
            }
            Err(error) => Err(Error::Store(error)),
        }
    }

    /// It is on disk: now act on it.
    fn perform(&mut self, done: Decided) -> Result<(), Error> {
        if self.stop.is_some() {
            // Claimed before the stop and never sent: it certainly did not start.
            let worker = self.worker.as_ref().map_or(WorkerId(0), |w| w.id);
            for assignment in &done.assignments {
                // Stale means that its worker is gone as well, and the job was given back with it.
                self.hand_back(worker, &assignment.key).unwrap_or_default();
            }
        } else if !done.assignments.is_empty() {
            self.tell_worker(&ToWorker::Assign(done.assignments));
        }
        for order in done.orders {
            self.hand_out_order(order);
        }
        for (key, name, verdict, wall) in &done.ends {
            self.observer.attempt_ended(&AttemptEnd {
                key: *key,
                name,
                attempt_status: verdict.attempt_status,
                job_status: verdict.job_status,
                return_code: verdict.return_code,
                wall: *wall,
                reason: verdict.reason.as_deref(),
            });
        }
        for row in &done.dead {
            self.retire(row)?;
        }
        Ok(())
    }

    /// The run cannot go on; what workers reported until now is not thrown away for that.
    pub(super) fn save_what_was_decided(&mut self) {
        let until = Instant::now() + LAST_COMMIT;
        while self.in_flight.as_ref().is_some_and(|f| f.retry_at.is_none()) {
            match self.inbox.next(until) {
                Some(Event::Committed(Ok(()))) => self.in_flight = None,
                Some(Event::Committed(Err(_))) | None => return,
                Some(_) => {}
            }
        }
        // Claims that were never sent stay in the books as claims; the next take-over gives them back.
        let changes = mem::take(&mut self.open.changes);
        takeover::commit(self.store, self.workflow.id, self.workflow.run_id, changes).unwrap_or_default();
    }
}
