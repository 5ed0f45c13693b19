//! Actions of workflows: who is to carry them out, and what becomes of them when he goes.
//!
//! A worker *joins* a workflow with the first thing of it that it is given; what is once for each worker is for those that
//! have joined. That an execution begins is on disk before its worker hears of it. One whose worker is gone was either never
//! heard of, and goes to another, or is interrupted: nobody knows how far it came, and nobody repeats it by himself.
//!
//! Clients of the contract take actions themselves and do not say how they went.

use super::desk::Desk;
use super::mate::Mate;
use super::office::{Office, Slot, refused};
use super::talk::{Refused, Reply};
use crate::agenda::Agenda;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::actions::{Key, Stage};
use windlass_core::change::{ActionChange, Change};
use windlass_core::nodes::Standing;
use windlass_store::Store;
use windlass_store::model::{ActionRow, WorkerFilter, WorkerKind};
use windlass_types::fleet::{ActionOrder, ActionReport, WorkflowSite};
use windlass_types::settings::Trigger;
use windlass_types::{WorkerId, WorkflowId};

impl Office {
    /// Counts what has happened: to jobs, and to the workflow as a whole.
    pub(super) fn count_for_actions(&mut self, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow).filter(|desk| !desk.agenda.actions.is_empty()) else { return };
        if !desk.may_act() {
            // What happens meanwhile is counted from how the jobs stand then.
            desk.is_counted = false;
            return;
        }
        if std::mem::replace(&mut desk.is_counted, true) {
            desk.agenda.actions.observe(&mut desk.open.changes);
        } else {
            desk.agenda.look_at(&desk.board, &mut desk.open.changes);
        }
        desk.agenda.actions.happened(Trigger::OnWorkflowStart, &mut desk.open.changes);
        if desk.has_no_jobs_left() {
            desk.agenda.actions.happened(Trigger::OnWorkflowComplete, &mut desk.open.changes);
            if !desk.joined.is_empty() {
                desk.agenda.actions.happened(Trigger::OnWorkerComplete, &mut desk.open.changes);
            }
        }
    }

    /// Finds workers for what is due in a workflow: those first that work for it already.
    pub(super) fn find_hands(&mut self, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow).filter(|desk| desk.may_act()) else { return };
        if !desk.agenda.actions.is_any_due() {
            return;
        }
        let mut candidates: Vec<WorkerId> = desk.joined.iter().copied().collect();
        if desk.agenda.actions.is_owed() {
            let joined = desk.joined.clone();
            let others = self.crews.members_for(workflow).into_iter();
            candidates.extend(others.filter(|worker| !joined.contains(worker)));
        }
        for worker in candidates {
            self.offer_action(worker, workflow);
        }
    }

    /// A worker has come to ask: what is due anywhere that it may do?
    pub(super) fn find_actions(&mut self, worker: WorkerId) {
        let Some(crew) = self.mates.get(&worker).and_then(|mate| mate.crew) else { return };
        for workflow in self.acting.iter().copied().collect::<Vec<_>>() {
            let Some(desk) = self.desk(workflow) else {
                self.acting.remove(&workflow);
                continue;
            };
            let is_any_due = desk.may_act() && desk.agenda.actions.is_any_due();
            if is_any_due && self.crews.may_work_for(crew, workflow) {
                self.offer_action(worker, workflow);
            }
        }
    }

    /// Gives the worker the next action of the workflow, if one is for it.
    fn offer_action(&mut self, worker: WorkerId, workflow: WorkflowId) {
        let Some(mate) = self.mates.get(&worker).filter(|mate| mate.may_act()) else { return };
        let is_aside = mate.standing == Standing::SetAside;
        let Some(desk) = self.desk(workflow) else { return };
        let is_over = desk.has_no_jobs_left() && desk.agenda.actions.is_wound_up();
        let stage = if is_over { Stage::Leaving } else { Stage::Working };
        if !desk.joined.contains(&worker) {
            if is_aside || !desk.agenda.actions.is_wanted(worker, stage) {
                return;
            }
            desk.join(worker);
        }
        self.begin_action(worker, workflow, stage);
    }

    /// Whether the jobs of the workflow have to wait for what comes before the first one of this worker. If so, that begins.
    pub(super) fn begins_with_action(&mut self, worker: WorkerId, workflow: WorkflowId) -> bool {
        let Some(desk) = self.desk(workflow).filter(|desk| !desk.agenda.actions.is_empty()) else {
            return false;
        };
        desk.join(worker);
        self.begin_action(worker, workflow, Stage::Working);
        self.desk(workflow).is_some_and(|desk| desk.agenda.actions.hold_jobs(Some(worker)))
    }

    /// The worker wants to go: what is to be done at its end comes first. `true`: there is something.
    pub(super) fn stays_for_actions(&mut self, worker: WorkerId) -> bool {
        if self.mates.get(&worker).is_none_or(|mate| mate.has_heir) {
            return false;
        }
        let mut stays = false;
        for workflow in self.acting.iter().copied().collect::<Vec<_>>() {
            let Some(desk) = self.desk(workflow) else { continue };
            if desk.may_act() && desk.joined.contains(&worker) {
                desk.agenda.actions.happened(Trigger::OnWorkerComplete, &mut desk.open.changes);
                stays |= self.begin_action(worker, workflow, Stage::Leaving);
            }
        }
        stays
    }

    /// The next action for this worker begins, if there is one: it hears of it once that is on disk.
    fn begin_action(&mut self, worker: WorkerId, workflow: WorkflowId, stage: Stage) -> bool {
        let now = self.now.wall;
        let Self { slots, mates, .. } = self;
        let (Some(Slot::Open(desk)), Some(mate)) = (slots.get_mut(&workflow), mates.get_mut(&worker)) else {
            return false;
        };
        let Desk { agenda, row, open, .. } = &mut **desk;
        let Some(order) = agenda.begin_next(row, Some(worker), stage, now, &mut open.changes) else {
            return false;
        };
        mate.actions.insert((order.action, order.attempt), Errand { workflow, is_told: false });
        open.orders.push((worker, order));
        // Whoever waits is not sent away while something for him is on its way.
        let number = mate.exchanges.newest();
        self.owe(worker, number, workflow);
        self.stirred.insert(workflow);
        true
    }

    /// That it begins is on disk: its worker is told, if it still is there and the workflow still wants it.
    pub(super) fn hand_out_order(&mut self, workflow: WorkflowId, worker: WorkerId, order: ActionOrder) {
        let key = (order.action, order.attempt);
        let Self { slots, mates, roused, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&workflow) else { return };
        if !desk.note_site_of(key, worker) {
            return;
        }
        let Some(mate) = mates.get_mut(&worker) else { return };
        if desk.is_canceled || mate.is_leaving {
            mate.actions.remove(&key);
            desk.agenda.actions.withdraw(key, &mut desk.open.changes);
            self.stirred.insert(workflow);
            return;
        }
        mate.tell_action(order, || site(desk));
        roused.insert(worker);
    }

    /// How some went. Of those that are not the worker's own (any more) it is noted that they came too late.
    pub(super) fn on_action_reports(&mut self, worker: WorkerId, number: u64, reports: Vec<ActionReport>) {
        let mut late = Vec::new();
        for report in reports {
            if self.hear_action(worker, report.clone()) {
                self.owe(worker, number, report.workflow);
            } else {
                late.push(report);
            }
        }
        self.record_late_actions(worker, &late);
    }

    /// Decides what follows from a report, and keeps it until that is on disk. `false`: it is not the worker's own.
    pub(super) fn hear_action(&mut self, worker: WorkerId, report: ActionReport) -> bool {
        let (key, workflow) = ((report.action, report.attempt), report.workflow);
        let Some(desk) = self.desk(workflow).filter(|desk| desk.note_site_of(key, worker)) else {
            return false;
        };
        let Desk { agenda, open, .. } = desk;
        let (at, code, message) = (report.ended_at, Some(report.return_code), report.message.clone());
        agenda.actions.end(key, at, code, message, &mut open.changes);
        open.heard_actions.push((worker, report));
        if let Some(mate) = self.mates.get_mut(&worker) {
            mate.actions.remove(&key);
        }
        self.stirred.insert(workflow);
        true
    }

    /// A worker is gone, with what it was to carry out.
    pub(super) fn lose_errands(
        &mut self,
        worker: WorkerId,
        errands: impl IntoIterator<Item = (Key, Errand)>,
    ) {
        let now = self.now.wall;
        for (key, errand) in errands {
            let Some(desk) = self.desk(errand.workflow).filter(|desk| desk.note_site_of(key, worker)) else {
                continue;
            };
            let Desk { agenda, open, .. } = desk;
            if errand.is_told {
                agenda.actions.interrupt_one(key, now, &mut open.changes);
            } else {
                agenda.actions.withdraw(key, &mut open.changes);
                open.orders.retain(|(_, order)| (order.action, order.attempt) != key);
            }
            self.note_going(worker, errand.workflow);
        }
    }

    /// The same for one without a lease.
    pub(super) fn lose_errands_of(&mut self, worker: WorkerId, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow) else { return };
        let errand = Errand { workflow, is_told: true };
        let own = desk.agenda.actions.under_way().filter(|(_, at)| *at == Some(worker));
        let errands: Vec<(Key, Errand)> = own.map(|(key, _)| (key, errand)).collect();
        self.lose_errands(worker, errands);
    }

    /// A worker comes back with these. Returns those that are not its own any more; what it has never heard of it is told
    /// again.
    pub(super) fn take_back_errands(&mut self, worker: WorkerId, has: &[Key]) -> Vec<Key> {
        let Some(mate) = self.mates.get(&worker) else { return has.to_vec() };
        let lost = has.iter().copied().filter(|key| !mate.actions.contains_key(key)).collect();
        let unheard: Vec<(Key, WorkflowId)> = mate
            .actions
            .iter()
            // The heir of a dead one carries out nothing.
            .filter(|(key, _)| !has.contains(key) && !mate.has_heir)
            .map(|(key, errand)| (*key, errand.workflow))
            .collect();
        for (key, workflow) in unheard {
            self.tell_again(worker, workflow, key);
        }
        lost
    }

    /// The worker has not heard of it, and it has not begun anywhere: it hears of it now, or when it is on disk.
    fn tell_again(&mut self, worker: WorkerId, workflow: WorkflowId, key: Key) {
        let Self { slots, mates, .. } = self;
        let (Some(Slot::Open(desk)), Some(mate)) = (slots.get(&workflow), mates.get_mut(&worker)) else {
            return;
        };
        if let Some(errand) = mate.actions.get_mut(&key) {
            errand.is_told = false;
        }
        let is_on_its_way = |orders: &[(WorkerId, ActionOrder)]| {
            orders.iter().any(|(_, order)| (order.action, order.attempt) == key)
        };
        let in_flight = desk.in_flight.as_ref().is_some_and(|batch| is_on_its_way(&batch.then.orders));
        if in_flight || is_on_its_way(&desk.open.orders) {
            return;
        }
        if let Some(order) = desk.agenda.order(&desk.row, key.0, key.1) {
            mate.tell_action(order, || site(desk));
            self.roused.insert(worker);
        }
    }

    /// A desk was just made: who is at what is told by its rows.
    pub(super) fn seat_errands(&mut self, workflow: WorkflowId) {
        let Some(desk) = self.desk(workflow) else { return };
        if desk.agenda.actions.is_empty() {
            return;
        }
        let under_way: Vec<(Key, Option<WorkerId>)> = desk.agenda.actions.under_way().collect();
        self.acting.insert(workflow);
        let keys: BTreeSet<Key> = under_way.iter().map(|(key, _)| *key).collect();
        for mate in self.mates.values_mut() {
            mate.actions.retain(|key, errand| errand.workflow != workflow || keys.contains(key));
        }
        for (key, worker) in under_way {
            self.seat_errand(workflow, key, worker);
        }
    }

    fn seat_errand(&mut self, workflow: WorkflowId, key: Key, worker: Option<WorkerId>) {
        let now = self.now.wall;
        let Some((worker, mate)) = worker.and_then(|worker| Some((worker, self.mates.get_mut(&worker)?)))
        else {
            let is_going = worker.is_some_and(|worker| self.going.contains_key(&worker));
            let Some(desk) = self.desk(workflow) else { return };
            // One without a lease may still be at it.
            if is_going || !worker.is_some_and(|worker| desk.unleased.contains(&worker)) {
                desk.agenda.actions.interrupt_one(key, now, &mut desk.open.changes);
            }
            return;
        };
        if mate.crew.is_none() {
            // Nobody remembers what it has heard: it will say so itself.
            mate.actions.insert(key, Errand { workflow, is_told: true });
        } else if !mate.has_heard_of(key) {
            mate.actions.insert(key, Errand { workflow, is_told: false });
            self.tell_again(worker, workflow, key);
        }
    }

    /// Actions of a workflow that is canceled: what has begun is asked to stop, what nobody has heard of does not begin.
    pub(super) fn cancel_actions(&mut self, workflow: WorkflowId) -> Vec<WorkerId> {
        let Self { slots, mates, .. } = self;
        let Some(Slot::Open(desk)) = slots.get_mut(&workflow) else { return Vec::new() };
        let mut at_it = Vec::new();
        for (key, worker) in desk.agenda.actions.under_way().collect::<Vec<_>>() {
            let Some((worker, mate)) = worker.and_then(|worker| Some((worker, mates.get_mut(&worker)?)))
            else {
                continue;
            };
            if mate.forget_order(key) {
                mate.actions.remove(&key);
                desk.agenda.actions.withdraw(key, &mut desk.open.changes);
            } else {
                at_it.push(worker);
            }
        }
        at_it
    }

    /// Whether the end of a workflow has to wait for actions.
    pub(super) fn waits_for_actions(&mut self, workflow: WorkflowId) -> bool {
        let Some(desk) = self.desk(workflow) else { return false };
        let actions = &desk.agenda.actions;
        if actions.is_running() || desk.is_canceled || actions.is_empty() {
            return actions.is_running();
        }
        let (is_owed, joined) = (actions.is_owed(), desk.joined.clone());
        let is_due = |worker: &WorkerId| actions.next_due(Some(*worker), Stage::Leaving).is_some();
        let due: Vec<WorkerId> = joined.into_iter().filter(is_due).collect();
        let is_there = |worker: &WorkerId| self.mates.get(worker).is_some_and(Mate::is_staying);
        due.iter().any(is_there) || (is_owed && !self.is_left_to_clients(workflow))
    }

    /// Clients of the contract do the work, and nobody of ours is there: they carry out actions when they like.
    fn is_left_to_clients(&self, workflow: WorkflowId) -> bool {
        let kinds = vec![WorkerKind::Torc, WorkerKind::Claims];
        let filter = WorkerFilter { workflow: Some(workflow), kinds, ..WorkerFilter::default() };
        let is_ours = self.crews.members_for(workflow).iter().any(|worker| self.mates.contains_key(worker));
        !is_ours && self.store.workers(&filter).is_ok_and(|clients| !clients.is_empty())
    }

    /// What a client may carry out now.
    pub(super) fn on_pending_actions(&mut self, workflow: WorkflowId, reply: Reply<Vec<ActionRow>>) {
        reply(self.pending_actions(workflow));
    }

    fn pending_actions(&mut self, workflow: WorkflowId) -> Result<Vec<ActionRow>, Refused> {
        let store = Arc::clone(&self.store);
        let noted;
        let (has_begun, agenda) = if let Some(desk) = self.desk(workflow) {
            (desk.row.started_at.is_some(), &desk.agenda)
        } else {
            // As the books have it: nothing of it happens now.
            let row = store.workflow(workflow).map_err(|error| refused(&error))?;
            let row = row.ok_or_else(|| Refused::NotFound(format!("there is no workflow {workflow}")))?;
            noted = Agenda::noted(&*store, workflow).map_err(|error| refused(&error))?;
            (row.started_at.is_some(), &noted)
        };
        let claimable: BTreeSet<i64> = agenda.actions.claimable().filter(|_| has_begun).collect();
        let mut rows = store.actions(workflow).map_err(|error| refused(&error))?;
        rows.retain(|row| claimable.contains(&row.id));
        Ok(rows)
    }

    /// A client takes an action upon itself. `false`: it is not to be had.
    pub(super) fn on_claim_action(
        &mut self,
        workflow: WorkflowId,
        action: i64,
        node: Option<WorkerId>,
        reply: Reply<bool>,
    ) {
        let now = self.now.wall;
        let claimed = self.open(workflow).map(|desk| {
            let Desk { agenda, row, open, .. } = desk;
            row.started_at.is_some() && agenda.actions.claim(action, node, now, &mut open.changes)
        });
        match claimed {
            Ok(claimed) => self.when_on_disk(workflow, reply, claimed),
            Err(why) => reply(Err(why)),
        }
    }

    /// Somebody wants an action carried out once more. A run that is over goes on until that is done.
    pub(super) fn on_retry_action(&mut self, workflow: WorkflowId, action: i64, by: &str, reply: Reply<()>) {
        match self.retry_action(workflow, action, by) {
            Ok(()) => self.when_on_disk(workflow, reply, ()),
            Err(why) => reply(Err(why)),
        }
    }

    fn retry_action(&mut self, workflow: WorkflowId, action: i64, by: &str) -> Result<(), Refused> {
        let (store, now) = (self.store.acting_as(by), self.now.wall);
        let desk = self.open(workflow)?;
        if desk.row.is_archived || desk.row.is_canceled || desk.is_canceled {
            let detail =
                format!("workflow {workflow} was canceled or put away; nothing of it is carried out");
            return Err(Refused::Conflict { code: "workflow_over", detail });
        }
        store.retry_action(workflow, action, now).map_err(|error| refused(&error))?;
        self.tell_of_commit();
        self.begin(workflow, by)?;
        self.open(workflow)?.read_agenda(&*store).map_err(|error| refused(&error))
    }

    /// The workflow is initialised anew: what begins anew with it? Nothing is under way.
    pub(super) fn rearm_actions(
        &mut self,
        workflow: WorkflowId,
        everything: bool,
        by: &str,
    ) -> Result<(), Refused> {
        let (store, now) = (self.store.acting_as(by), self.now.wall);
        let desk = self.open(workflow)?;
        if desk.agenda.actions.is_empty() {
            return Ok(());
        }
        store.rearm_actions(workflow, everything, now).map_err(|error| refused(&error))?;
        desk.read_agenda(&*store).map_err(|error| refused(&error))
    }
}

/// An action that a worker was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errand {
    pub(super) workflow: WorkflowId,
    /// The worker has heard of it, so it may have begun.
    pub(super) is_told: bool,
}

/// What a worker has to know of a workflow before anything of it.
pub(super) fn site(desk: &Desk) -> WorkflowSite {
    let row = &desk.row;
    WorkflowSite {
        workflow: row.id,
        run: row.run_id,
        name: row.name.clone(),
        submission_dir: row.submission_dir.clone(),
        output_dir: row.output_dir.clone(),
        resource_monitor: row.settings.resource_monitor,
        execution: row.settings.execution_config.clone().map(Box::new),
    }
}

impl Desk {
    /// Actions may begin now.
    pub(super) fn may_act(&self) -> bool {
        let is_wanted = self.is_active && !self.is_canceled && !self.awaits_word;
        is_wanted && self.paused_until.is_none() && !self.is_closing()
    }

    /// Reads actions anew. What was counted and not written yet is counted again, from how the jobs stand.
    fn read_agenda(&mut self, store: &dyn Store) -> Result<(), windlass_store::Error> {
        let is_count = |change: &Change| matches!(change, Change::Action(ActionChange::Triggered { .. }));
        self.open.changes.retain(|change| !is_count(change));
        self.agenda = Agenda::noted(store, self.row.id)?;
        self.is_counted = false;
        Ok(())
    }

    /// Every job is over, and nobody holds one.
    pub(super) fn has_no_jobs_left(&self) -> bool {
        self.board.is_finished() && self.held.is_empty()
    }

    /// The worker is the one that carries this out.
    fn note_site_of(&self, key: Key, worker: WorkerId) -> bool {
        self.agenda.actions.under_way().any(|(at, by)| at == key && by == Some(worker))
    }

    /// The worker is given something of the workflow for the first time.
    fn join(&mut self, worker: WorkerId) {
        if self.joined.insert(worker) {
            self.agenda.actions.happened(Trigger::OnWorkerStart, &mut self.open.changes);
        }
    }
}
