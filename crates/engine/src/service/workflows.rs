//! Workflows as a whole: how they come to a desk, begin, are canceled, go back, and end.

use super::call::Told;
use super::desk::{Desk, NoDesk};
use super::mate::{Mate, taste};
use super::office::{Office, refused, unavailable};
use super::panics::{Activity, read_caught};
use super::talk::{Refused, Reply, ResetWhich};
use crate::{Error, added};
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::board::Orphan;
use windlass_core::change::Change;
use windlass_store::model::{NewEvent, Severity, SpawnRequest, Spawned, WorkerKind, WorkerRow};
use windlass_types::fleet::StopOrder;
use windlass_types::work::StopReason;
use windlass_types::worker_bounds::OutOfBounds;
use windlass_types::{AllocationId, JobId, JobStatus, RunId, WorkerId, WorkflowId};

impl Office {
    /// Takes up what the books know to be under way: workers that may come back, and workflows that are not over.
    pub(super) fn take_up(&mut self) -> Result<(), Error> {
        for row in self.take_up_rows()? {
            let is_dead = self.options.bury.as_ref().is_some_and(|bury| bury(&row.worker));
            if is_dead {
                self.lose_unleased(row.id, row.worker.workflow);
            }
        }
        Ok(())
    }

    /// The same without a look at processes. Returns the local workers of earlier runs. A row that makes no sense is
    /// skipped and reported.
    pub(super) fn take_up_rows(&mut self) -> Result<Vec<WorkerRow>, windlass_store::Error> {
        self.recall_nodes()?;
        let mut unleased = Vec::new();
        for row in self.store.active_workers(None)? {
            match (row.worker.kind, &row.worker.secret_hash) {
                (WorkerKind::Remote, Some(hash)) => {
                    if let Err(error) = row.worker.capacity.check(&"capacity") {
                        self.give_up_bad_row(row.id, &error);
                        continue;
                    }
                    let lease = self.lease_from_now() + self.options.overlap;
                    let worker = &row.worker;
                    let taste = taste(&worker.labels, worker.site.as_deref());
                    let mut mate = Mate::new(&worker.user, hash.clone(), worker.capacity, taste, lease);
                    mate.bound = worker.workflow;
                    mate.allocation = worker.allocation.map(AllocationId);
                    mate.is_to_drain = row.is_draining;
                    self.mates.insert(row.id, mate);
                    self.settle_on_node(row.id, &row.worker.host);
                }
                (WorkerKind::Local, _) => unleased.push(row),
                _ => {}
            }
        }
        for workflow in self.store.active_workflows()? {
            if self.slots.contains_key(&workflow) || self.panics.is_left_alone(workflow) {
                continue;
            }
            self.activity = Activity::upkeep(workflow);
            let (store, birth) = (Arc::clone(&self.store), self.new_birth());
            let read = || Desk::read(&*store, workflow, birth).map(|desk| Some(Box::new(desk)));
            match read_caught(workflow, read) {
                Ok(Some(desk)) => self.seat(*desk),
                // No reason not to serve the others: it is tried again.
                Err(NoDesk::Store(error)) => {
                    tracing::warn!(%workflow, %error, "a workflow cannot be read yet; it is tried again");
                    self.take_in(workflow, true);
                }
                // Whoever asks for it is told.
                Err(NoDesk::Broken(why)) => {
                    tracing::error!(%workflow, why, "a workflow cannot be taken up and is skipped");
                }
                Ok(None) | Err(NoDesk::NotFound) => {}
            }
        }
        Ok(unleased)
    }

    /// The row of a worker that no worker can have written by these rules: it is reported and retired, and what it held
    /// runs again. If the worker lives it introduces itself again, and is rejected for the same reason.
    fn give_up_bad_row(&mut self, worker: WorkerId, error: &OutOfBounds) {
        tracing::error!(%worker, %error, "the row of a worker is invalid; the worker is given up");
        let event = NewEvent {
            workflow: None,
            job: None,
            severity: Severity::Error,
            category: "worker_lost".to_owned(),
            message: format!("worker {worker} was given up: its row is invalid: {error}"),
            data: Some(serde_json::json!({ "worker_id": worker, "field": error.field })),
        };
        self.notes.note(event, self.now.wall);
        // Retired as soon as it is on disk what became of its jobs.
        self.going.entry(worker).or_default();
    }

    /// Begins (or goes on with) the current run, and lets workers have it.
    pub(super) fn on_start(&mut self, workflow: WorkflowId, by: &str, reply: Reply<RunId>) {
        match self.start(workflow, by) {
            Ok(run) => self.when_on_disk(workflow, reply, run),
            Err(why) => reply(Err(why)),
        }
    }

    fn start(&mut self, workflow: WorkflowId, by: &str) -> Result<RunId, Refused> {
        let desk = self.open(workflow)?;
        if desk.row.is_archived {
            let detail = format!("workflow {workflow} is archived; take it out of the archive first");
            return Err(Refused::Conflict { code: "workflow_archived", detail });
        }
        let is_over = desk.row.ended_at.is_some() || desk.row.is_canceled;
        if is_over && !desk.is_active {
            let detail =
                format!("run {} of workflow {workflow} is over; reset it to run again", desk.row.run_id);
            return Err(Refused::Conflict { code: "workflow_over", detail });
        }
        let run = self.begin(workflow, by)?;
        self.ask_for_all(workflow)?;
        Ok(run)
    }

    /// Decides about the jobs that nobody has looked at.
    pub(super) fn ask_for_all(&mut self, workflow: WorkflowId) -> Result<(), Refused> {
        let desk = self.open(workflow)?;
        desk.board.on_asked_for(&mut desk.open.changes);
        Ok(())
    }

    /// Notes that the run is under way, if it is not. Comes before anything that is to run in it: a run that has begun and
    /// has nothing to do ends by itself, but nobody would look at a job that is ready in a run that is over.
    pub(super) fn begin(&mut self, workflow: WorkflowId, by: &str) -> Result<RunId, Refused> {
        self.go_on(workflow, by)?;
        let (store, now) = (self.store.acting_as(by), self.now.wall);
        let desk = self.open(workflow)?;
        let run = desk.row.run_id;
        desk.awaits_word = false;
        if !desk.is_active {
            store.begin_run(workflow, now).map_err(|error| refused(&error))?;
            desk.is_active = true;
            desk.row.started_at = desk.row.started_at.or(Some(now));
            desk.row.ended_at = None;
            desk.row.is_canceled = false;
            desk.board.on_going_on(&mut desk.open.changes);
            self.tell_bound(workflow);
            self.tell_of_commit();
            self.tell_of_change(workflow);
        }
        Ok(run)
    }

    /// As the contract says: with `only_uninitialized` what was built on anything that goes back goes back as well, and
    /// then all that nobody has looked at is ready or blocked. Without, every job that is not over begins anew.
    pub(super) fn on_initialize(
        &mut self,
        workflow: WorkflowId,
        only_uninitialized: bool,
        clear_ephemeral: bool,
        by: &str,
        reply: Reply<()>,
    ) {
        if clear_ephemeral
            && let Err(error) = self.store.acting_as(by).clear_ephemeral(workflow, self.now.wall)
        {
            return reply(Err(refused(&error)));
        }
        let chosen = move |status: JobStatus| match status {
            JobStatus::Uninitialized => true,
            JobStatus::Terminated | JobStatus::PendingFailed => !only_uninitialized,
            _ => false,
        };
        let begun = self.refuse_if_held(workflow).and_then(|()| self.begin(workflow, by));
        match begun.and_then(|_| self.go_back(workflow, &chosen, true)) {
            Ok(_) => {
                let by = by.to_owned();
                let then = move |office: &mut Self| {
                    office.rearm_actions(workflow, !only_uninitialized, &by)?;
                    office.ask_for_all(workflow)
                };
                self.after_remake(workflow, Box::new(then), reply);
            }
            Err(why) => reply(Err(why)),
        }
    }

    fn refuse_if_held(&mut self, workflow: WorkflowId) -> Result<(), Refused> {
        match self.open(workflow)?.what_is_held() {
            None => Ok(()),
            Some(detail) => Err(Refused::Conflict { code: "workflow_active", detail }),
        }
    }

    /// Has jobs go back to the start, and (`with_dependents`) what was built on them. How many they are.
    fn go_back(
        &mut self,
        workflow: WorkflowId,
        is_chosen: &dyn Fn(JobStatus) -> bool,
        with_dependents: bool,
    ) -> Result<u64, Refused> {
        self.refuse_if_held(workflow)?;
        let chosen = self.open(workflow)?.board.jobs_that(is_chosen);
        self.send_back(workflow, &chosen, false, with_dependents)
    }

    /// Decides that jobs run again; the board is made anew when that is on disk.
    pub(super) fn send_back(
        &mut self,
        workflow: WorkflowId,
        chosen: &[u32],
        to_ready: bool,
        with_dependents: bool,
    ) -> Result<u64, Refused> {
        let store = Arc::clone(&self.store);
        let desk = self.open(workflow)?;
        if !desk.is_quiet() {
            return Err(unavailable("something of this workflow is just being written"));
        }
        let held = |job| {
            let detail = format!("job {} is being worked on", desk.board.key(job).job);
            Refused::Conflict { code: "job_active", detail }
        };
        let plan = |done: &_| desk.board.plan_again(chosen, to_ready, with_dependents, done).map_err(held);
        // Which attempts there were is asked only of those that begin anew.
        let anew = plan(&HashMap::default())?.changes.into_iter().filter_map(|change| match change {
            Change::Reset { job, .. } => Some(job),
            _ => None,
        });
        let done = super::verbs::attempts_done(&*store, &desk.row, &anew.collect::<Vec<_>>())?;
        let again = plan(&done)?;
        if !again.changes.is_empty() {
            let units = desk.board.units_after(&again.changes);
            desk.open.changes = again.changes;
            desk.open.changes.extend(units);
            desk.is_outdated = true;
        }
        Ok(again.count)
    }

    /// Does `then` once what was decided at the desk is on disk and the desk is made anew, and answers when that is.
    pub(super) fn after_remake(&mut self, workflow: WorkflowId, then: Then, reply: Reply<()>) {
        let needs_commit = self.desk(workflow).is_some_and(|desk| !desk.open.is_empty());
        if !needs_commit {
            match then(self) {
                Ok(()) => self.when_on_disk(workflow, reply, ()),
                Err(why) => reply(Err(why)),
            }
            return;
        }
        self.afterwards.push((workflow, then, reply));
    }

    /// What was to be done once a desk is made anew.
    pub(super) fn do_what_was_to_follow(&mut self, workflow: WorkflowId) {
        for (then, reply) in self.take_afterwards(workflow) {
            match then(self) {
                Ok(()) => self.when_on_disk(workflow, reply, ()),
                Err(why) => reply(Err(why)),
            }
        }
    }

    pub(super) fn take_afterwards(&mut self, workflow: WorkflowId) -> Vec<(Then, Reply<()>)> {
        let (mine, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.afterwards).into_iter().partition(|(id, ..)| *id == workflow);
        self.afterwards = others;
        mine.into_iter().map(|(_, then, reply)| (then, reply)).collect()
    }

    /// Gives `value` as the answer once all that was decided until now is on disk.
    pub(super) fn when_on_disk<T: Send + 'static>(
        &mut self,
        workflow: WorkflowId,
        reply: Reply<T>,
        value: T,
    ) {
        self.stirred.insert(workflow);
        match self.desk(workflow) {
            Some(desk) => {
                let told: Told = Box::new(move |result| reply(result.map(|()| value)));
                desk.open.told.push(told);
            }
            None => reply(Ok(value)),
        }
    }

    /// No more claims, and whoever holds something is told at once.
    pub(super) fn on_cancel(&mut self, workflow: WorkflowId, by: &str, reply: Reply<()>) {
        match self.cancel(workflow, by) {
            Ok(()) => self.when_on_disk(workflow, reply, ()),
            Err(why) => reply(Err(why)),
        }
    }

    fn cancel(&mut self, workflow: WorkflowId, by: &str) -> Result<(), Refused> {
        let (store, now) = (self.store.acting_as(by), self.now.wall);
        let desk = self.open(workflow)?;
        if desk.is_canceled || desk.row.is_canceled {
            return Ok(());
        }
        if !desk.is_active && desk.row.ended_at.is_some() {
            let detail = format!("run {} of workflow {workflow} is over", desk.row.run_id);
            return Err(Refused::Conflict { code: "workflow_over", detail });
        }
        store.request_cancel(workflow, now).map_err(|error| refused(&error))?;
        self.begin(workflow, by)?;
        let desk = self.open(workflow)?;
        desk.is_canceled = true;
        desk.board.on_cancel();
        let mut held: Vec<_> = desk.held.iter().map(|(job, hold)| (*job, *hold)).collect();
        held.sort_unstable_by_key(|(job, _)| *job);
        for worker in self.cancel_actions(workflow) {
            self.stop_at(worker, workflow, StopReason::Canceled);
        }
        for (job, hold) in held {
            if self.mates.contains_key(&hold.worker) {
                self.stop_at(hold.worker, workflow, StopReason::Canceled);
            } else {
                self.cancel_held_elsewhere(workflow, job, hold.worker);
            }
        }
        Ok(())
    }

    /// The worker is to end what it has of a workflow.
    fn stop_at(&mut self, worker: WorkerId, workflow: WorkflowId, why: StopReason) {
        let grace = self.options.grace;
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        if mate.outbox.stops.iter().all(|stop| stop.workflow != workflow) {
            mate.outbox.stops.push(StopOrder { workflow, attempts: Vec::new(), why, grace });
        }
        self.roused.insert(worker);
        // What it has not heard of never starts.
        let mate_held: Vec<_> =
            self.mates.get(&worker).map(|mate| mate.held.clone()).into_iter().flatten().collect();
        for (job, _) in mate_held.into_iter().filter(|(_, id)| *id == workflow) {
            let Some(desk) = self.desk(workflow) else { return };
            let untold = desk.held.get(&job).is_some_and(|hold| !hold.is_told && hold.worker == worker);
            // One whose claim is on its way to the disk is given back when it is there.
            let claimed = desk.in_flight.as_ref().is_some_and(|batch| {
                batch.then.assignments.iter().any(|(_, assignment)| assignment.key.job == job)
            });
            let Some(number) = desk.board.index(job).filter(|_| untold && !claimed) else { continue };
            desk.held.remove(&job);
            if let Some(mate) = self.mates.get_mut(&worker) {
                mate.let_go(job);
            }
            self.orphan(workflow, number, worker, Orphan::NeverStarted, None);
        }
    }

    /// The next run begins; what has still to run starts at attempt 1. Nothing goes back by this alone.
    pub(super) fn on_reset_status(
        &mut self,
        workflow: WorkflowId,
        force: bool,
        by: &str,
        reply: Reply<RunId>,
    ) {
        reply(self.reset_status(workflow, force, by));
    }

    fn reset_status(&mut self, workflow: WorkflowId, force: bool, by: &str) -> Result<RunId, Refused> {
        let desk = self.open(workflow)?;
        if let Some(detail) = desk.what_is_held() {
            let hint = if force { "; cancel it first" } else { "" };
            return Err(Refused::Conflict { code: "workflow_active", detail: format!("{detail}{hint}") });
        }
        if !desk.is_quiet() {
            return Err(unavailable("something of this workflow is just being written"));
        }
        let (store, now) = (self.store.acting_as(by), self.now.wall);
        let run = store.begin_next_run(workflow, &[], now).map_err(|error| refused(&error))?;
        let desk = self.open(workflow)?;
        desk.awaits_word = true;
        self.make_anew(workflow);
        self.tell_bound(workflow);
        self.tell_of_change(workflow);
        Ok(run)
    }

    /// Jobs go to the start; what was built on them follows when the workflow is initialised.
    pub(super) fn on_reset_jobs(
        &mut self,
        workflow: WorkflowId,
        which: &ResetWhich,
        _by: &str,
        reply: Reply<u64>,
    ) {
        let outcome = match which {
            ResetWhich::All => self.go_back(workflow, &|status| status != JobStatus::Disabled, false),
            ResetWhich::Failed => self.go_back(
                workflow,
                &|status| status.is_unsuccessful() || status == JobStatus::PendingFailed,
                false,
            ),
            ResetWhich::Jobs(jobs) => self
                .numbers_of(workflow, jobs)
                .and_then(|chosen| self.send_back(workflow, &chosen, false, false)),
        };
        match outcome {
            Ok(count) => self.when_on_disk(workflow, reply, count),
            Err(why) => reply(Err(why)),
        }
    }

    fn numbers_of(&mut self, workflow: WorkflowId, jobs: &[JobId]) -> Result<Vec<u32>, Refused> {
        let desk = self.open(workflow)?;
        let number = |job: &JobId| {
            desk.board.index(*job).ok_or_else(|| Refused::NotFound(format!("there is no job {job}")))
        };
        jobs.iter().map(number).collect()
    }

    /// Workers that work for this one only hear whether there is something to stay for.
    pub(super) fn tell_bound(&mut self, workflow: WorkflowId) {
        let bound = |(id, mate): (&WorkerId, &Mate)| (mate.bound == Some(workflow)).then_some(*id);
        for worker in self.mates.iter().filter_map(bound).collect::<Vec<_>>() {
            self.note_if_dismissed(worker);
        }
    }

    /// A workflow whose jobs are all settled, or that was canceled and of which nobody holds anything, is over.
    pub(super) fn conclude_if_over(&mut self, workflow: WorkflowId) {
        let (store, now) = (Arc::clone(&self.store), self.now.wall);
        let Some(desk) = self.desk(workflow) else { return };
        if !desk.is_quiet() || !desk.held.is_empty() || desk.is_closing() || desk.is_in_trouble() {
            return;
        }
        let is_ending = desk.is_active && (desk.is_canceled || desk.board.is_finished());
        if is_ending && self.waits_for_actions(workflow) {
            return;
        }
        let Some(desk) = self.desk(workflow) else { return };
        if is_ending {
            let canceled = desk.is_canceled;
            if let Err(error) = store.end_run(workflow, canceled, now) {
                return self.on_trouble(workflow, &error);
            }
            desk.is_active = false;
        }
        if !desk.is_active {
            let figures = desk.figures;
            self.gauges.note_desk(figures, (0, 0));
            self.slots.remove(&workflow);
            self.mates.values_mut().for_each(|mate| mate.forget(workflow));
            self.crews.dismiss(workflow);
            self.tell_bound(workflow);
            self.tell_of_commit();
            self.tell_of_change(workflow);
        }
    }

    /// Jobs that ended may have left jobs behind that they had added before and did not ask for again.
    pub(super) fn look_at_added(&mut self, workflow: WorkflowId) {
        let store = Arc::clone(&self.store);
        let Some(desk) = self.desk(workflow) else { return };
        if !desk.has_added {
            desk.over.clear();
        }
        if desk.over.is_empty() || desk.is_in_trouble() {
            return;
        }
        match added::leave_out(&*store, &desk.over, &mut desk.board, &mut desk.open.changes) {
            Ok(()) => desk.over.clear(),
            Err(error) => self.on_trouble(workflow, &error),
        }
    }

    /// A running job adds others to its workflow.
    pub(super) fn on_spawn(&mut self, request: &SpawnRequest, reply: Reply<Spawned>) {
        let workflow = request.caller.workflow;
        match self.spawn(workflow, request) {
            Ok(spawned) => self.when_on_disk(workflow, reply, spawned),
            Err(why) => reply(Err(why)),
        }
    }

    fn spawn(&mut self, workflow: WorkflowId, request: &SpawnRequest) -> Result<Spawned, Refused> {
        let (store, now) = (Arc::clone(&self.store), self.now.wall);
        self.open(workflow)?;
        let spawned = store.spawn(request, now).map_err(|error| refused(&error))?;
        let desk = self.open(workflow)?;
        match added::take_up(&*store, workflow, &mut desk.board, &mut desk.open.changes) {
            Ok(_) => desk.has_added = true,
            // They are in the books; the board finds them there.
            Err(error) => {
                desk.is_outdated = true;
                self.on_trouble(workflow, &error);
            }
        }
        Ok(spawned)
    }
}

/// Something that is done once a desk is made anew.
pub(super) type Then = Box<dyn FnOnce(&mut Office) -> Result<(), Refused> + Send>;
