//! When decisions go to disk, and what is done once they are there.

use super::actions::site;
use super::call::Event;
use super::desk::{Decided, InFlight};
use super::exchanges::Ticket;
use super::figures::count;
use super::office::{Office, Slot, TROUBLE_PAUSE};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::change::{ActionChange, Change};
use windlass_store::{Batch, Error};
use windlass_types::work::Assignment;
use windlass_types::{WorkerId, WorkflowId};

impl Office {
    /// Hands what was decided at a desk to the store, unless it is at it already: what comes meanwhile gathers.
    pub(super) fn submit(&mut self, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow) else { return };
        if desk.in_flight.is_some() || desk.open.is_empty() {
            return;
        }
        self.read_claimed(workflow);
        self.count_at_sites(workflow);
        let Some(desk) = self.desk(workflow) else { return };
        let mut then = std::mem::take(&mut desk.open);
        let changes: Arc<[_]> = std::mem::take(&mut then.changes).into();
        desk.note_work(&changes);
        desk.in_flight = Some(InFlight { changes, then, retry_at: None });
        self.submit_in_flight(workflow);
    }

    /// How many attempts end at each site, and of what jobs, is counted in the same commit, for those who follow a workflow
    /// with units.
    fn count_at_sites(&mut self, workflow: WorkflowId) {
        let Self { slots, mates, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&workflow) else { return };
        if !desk.board.has_units() {
            return;
        }
        let mut ended: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for change in &desk.open.changes {
            let Change::End { result, orphaned: false, .. } = change else { continue };
            if let Some(site) = mates.get(&result.worker).and_then(|mate| mate.mirror.site()) {
                let job = desk.board.index(result.key.job);
                let handler = job.and_then(|job| desk.board.handler_name(job)).unwrap_or_default();
                *ended.entry((site, handler)).or_default() += 1;
            }
        }
        let counts = ended.into_iter().map(|((site, handler), attempts)| Change::EndedAt {
            site: site.to_owned(),
            handler: handler.to_owned(),
            attempts,
        });
        let counts: Vec<Change> = counts.collect();
        desk.open.changes.extend(counts);
    }

    pub(super) fn submit_in_flight(&mut self, workflow: WorkflowId) {
        let post = self.post.clone();
        let Some(desk) = self.desk(workflow) else { return };
        let Some(batch) = &desk.in_flight else { return };
        let (birth, run, changes) = (desk.birth, desk.row.run_id, Arc::clone(&batch.changes));
        let done = move |result| {
            // Nobody is there any more only after everything was committed.
            post.send(Event::Committed { workflow, birth, result }).unwrap_or_default();
        };
        if changes.is_empty() {
            // Somebody waits for what is on disk already.
            done(Ok(()));
        } else {
            self.store.submit(Batch { workflow, run, changes }, Box::new(done));
        }
        self.gauges.note_submitted(self.now.wall);
        self.panics.batches += 1;
    }

    pub(super) fn on_committed(&mut self, workflow: WorkflowId, birth: u64, result: Result<(), Error>) {
        let retry_at = self.now.at + TROUBLE_PAUSE;
        let gets_on = !result.as_ref().is_err_and(Error::is_transient);
        self.gauges.note_answered(gets_on, self.now.wall);
        let Some(desk) = self.desk(workflow).filter(|desk| desk.birth == birth) else { return };
        match result {
            Ok(()) => {
                let Some(batch) = desk.in_flight.take() else { return };
                let of_units = desk.board.has_units() && batch.changes.iter().any(concerns_units);
                let is_due = batch.changes.iter().any(sets_off_action);
                count(&self.gauges.commits, 1);
                self.stirred.insert(workflow);
                self.tell_of_commit();
                if of_units || is_due {
                    self.tell_of_change(workflow);
                }
                self.act_on(workflow, batch.then);
            }
            Err(error) if error.is_transient() => {
                if let Some(batch) = &mut desk.in_flight {
                    batch.retry_at = Some(retry_at);
                }
                count(&self.gauges.refused_commits, 1);
                self.troubled.insert(workflow);
            }
            Err(error) => self.remake(workflow, &error),
        }
    }

    /// It is on disk: now act on it.
    fn act_on(&mut self, workflow: WorkflowId, done: Decided) {
        for (worker, assignment) in done.assignments {
            self.hand_out(workflow, worker, assignment);
        }
        for (worker, order) in done.orders {
            self.hand_out_order(workflow, worker, order);
        }
        for ticket in done.tickets {
            self.pay(ticket);
        }
        for worker in done.gone {
            self.note_settled(worker);
        }
        // Who waits for the end of it reads the books next: it has to stand there.
        self.conclude_if_over(workflow);
        for told in done.told {
            told(Ok(()));
        }
        self.make_anew_if_due(workflow);
        self.let_in_whoever_waits(workflow);
    }

    /// Something is on disk that the answer to an exchange rests on.
    pub(super) fn pay(&mut self, ticket: Ticket) {
        if let Some(mate) = self.mates.get_mut(&ticket.worker) {
            mate.exchanges.pay(ticket);
            self.roused.insert(ticket.worker);
        }
    }

    /// One workflow less has something of a worker that is gone.
    pub(super) fn note_settled(&mut self, worker: WorkerId) {
        if let Some(owes) = self.going.get_mut(&worker) {
            *owes = owes.saturating_sub(1);
        }
    }

    /// A claim that is on disk goes to its worker, if it still is its worker and the workflow still wants it.
    pub(super) fn hand_out(&mut self, workflow: WorkflowId, worker: WorkerId, assignment: Assignment) {
        let Self { slots, mates, roused, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&workflow) else { return };
        let Ok(job) = desk.fenced(worker, &assignment.key) else { return };
        let Some(mate) = mates.get_mut(&worker) else { return };
        if desk.is_canceled || mate.is_leaving {
            desk.held.remove(&assignment.key.job);
            mate.let_go(assignment.key.job);
            self.orphan(workflow, job, worker, windlass_core::board::Orphan::NeverStarted, None);
            return;
        }
        mate.tell(assignment, || site(desk));
        roused.insert(worker);
    }
}

/// Whoever follows units wants to know of it: one stands otherwise than before, or something in one has failed.
fn concerns_units(change: &Change) -> bool {
    matches!(change, Change::Unit(_) | Change::End { failure: Some(_), .. })
}

/// Whoever carries out actions himself wants to know of it: one is due.
fn sets_off_action(change: &Change) -> bool {
    matches!(change, Change::Action(ActionChange::Triggered { is_due: true, .. }))
}
