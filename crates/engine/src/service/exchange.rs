//! Hearing workers: introductions, exchanges, and what their reports mean.

use super::crews::Identity;
use super::exchanges::Receipt;
use super::figures::count;
use super::losses::Loss;
use super::mate::{Mate, new_secret, secret_hash, taste};
use super::office::{Office, Slot, refused, unavailable};
use super::panics::Activity;
use super::talk::{Refused, Reply, Speaker, Sponsor};
use super::{May, desk};
use std::collections::HashSet;
use windlass_core::board::{Orphan, Stale};
use windlass_core::suspects::Evidence;
use windlass_store::model::{NewWorker, WorkerKind, WorkerUpdate};
use windlass_types::fleet::{Comeback, Exchange, ExchangeAnswer, Introduction, StaleReport, Welcome};
use windlass_types::work::{AttemptKey, EndCause, Ended, Report, ReturnReason};
use windlass_types::{JobStatus, ParseSiteError, RunId, WorkerId, WorkflowId, check_site_name};

impl Office {
    pub(super) fn on_introduce(&mut self, who: &Introduction, sponsor: Sponsor, reply: Reply<Welcome>) {
        let welcome = self.introduce(who, sponsor);
        reply(welcome);
    }

    fn introduce(&mut self, who: &Introduction, sponsor: Sponsor) -> Result<Welcome, Refused> {
        let invalid =
            |error: ParseSiteError| Refused::Invalid { code: "bad_site", detail: error.to_string() };
        check_site_name(&who.site).map_err(invalid)?;
        let user = &*sponsor.user;
        let run = self.bound_run(who, &sponsor.may)?;
        let quarters = self.admit(who, &sponsor.may)?;
        let known = who.before.as_ref().filter(|before| {
            let mate = self.mates.get(&before.worker);
            mate.is_some_and(|mate| mate.user == user && mate.quotes(&before.secret) && !mate.is_given_up)
        });
        let is_heir = who.before.as_ref().is_some_and(|before| !self.is_same_process(before, who));
        let (worker, secret, lost, lost_actions) = if let Some(before) = known {
            self.note_return(before.worker, who)?;
            if let Some(mate) = self.mates.get_mut(&before.worker) {
                mate.has_heir |= is_heir;
            }
            let lost = self.take_back(before.worker, who, &before.held);
            let lost_actions = self.take_back_errands(before.worker, &before.actions);
            (before.worker, before.secret.clone(), lost, lost_actions)
        } else {
            let (worker, secret) = self.enlist(who, user, run)?;
            if let Some(before) = who.before.as_ref().filter(|_| !is_heir) {
                self.on_word_of_lost(before.worker);
                if let Some(given_up) = self.mates.get_mut(&before.worker) {
                    given_up.has_spoken = true;
                }
            }
            // Whoever it was before is dead by now, and what he held went to others.
            let before = who.before.as_ref().map(|before| (before.held.clone(), before.actions.clone()));
            let (lost, lost_actions) = before.unwrap_or_default();
            (worker, secret, lost, lost_actions)
        };
        self.join_crew(worker, who, sponsor);
        if let Some(row) = quarters {
            self.settle_in(worker, &row);
        }
        self.roused.insert(worker);
        Ok(Welcome { worker, secret, lease: self.options.lease, lost, lost_actions })
    }

    /// The run of the only workflow that it is to work for.
    fn bound_run(&self, who: &Introduction, may: &May) -> Result<Option<RunId>, Refused> {
        let Some(id) = who.workflow else { return Ok(None) };
        let row = self.store.workflow(id).map_err(|error| refused(&error))?;
        match row.filter(|row| may(row)) {
            Some(row) => Ok(Some(row.run_id)),
            None => Err(Refused::NotFound(format!("there is no workflow {id}"))),
        }
    }

    /// It is itself what comes back, and not another one that speaks for it after its death.
    fn is_same_process(&self, before: &Comeback, who: &Introduction) -> bool {
        let Ok(Some(row)) = self.store.worker(before.worker) else { return false };
        let is_same = (row.worker.pid, row.worker.pid_start_ticks) == (who.pid, who.pid_start_ticks);
        is_same
            && row.worker.boot_id == who.boot_id
            && row.worker.secret_hash == Some(secret_hash(&before.secret))
    }

    /// A worker that was not here before.
    fn enlist(
        &mut self,
        who: &Introduction,
        user: &str,
        run: Option<RunId>,
    ) -> Result<(WorkerId, String), Refused> {
        let secret = new_secret();
        let row = NewWorker {
            kind: WorkerKind::Remote,
            workflow: who.workflow,
            run,
            user: user.to_owned(),
            version: who.version.clone(),
            labels: who.labels.clone(),
            site: Some(who.site.clone()),
            host: who.host.clone(),
            boot_id: who.boot_id.clone(),
            pid: who.pid,
            pid_start_ticks: who.pid_start_ticks,
            secret_hash: Some(secret_hash(&secret)),
            capacity: who.capacity,
            allocation: who.allocation,
            ..NewWorker::default()
        };
        let worker = self.store.add_worker(&row, self.now.wall).map_err(|error| refused(&error))?;
        self.tell_of_commit();
        let taste = taste(&who.labels, Some(&who.site));
        let mate = Mate::new(user, secret_hash(&secret), who.capacity, taste, self.lease_from_now());
        self.mates.insert(worker, mate);
        Ok((worker, secret))
    }

    fn note_return(&self, worker: WorkerId, who: &Introduction) -> Result<(), Refused> {
        let update = WorkerUpdate {
            host: Some(who.host.clone()),
            boot_id: Some(who.boot_id.clone()),
            pid: Some(who.pid),
            pid_start_ticks: Some(who.pid_start_ticks),
            version: Some(who.version.clone()),
            labels: Some(who.labels.clone()),
            site: Some(who.site.clone()),
            capacity: Some(who.capacity),
            ..WorkerUpdate::default()
        };
        self.store.update_worker(worker, &update, self.now.wall).map_err(|error| refused(&error))
    }

    /// A worker comes back. What it still holds and may hold goes on; what the books say it holds and it does not hold was
    /// never started. Returns what it has lost.
    fn take_back(&mut self, worker: WorkerId, who: &Introduction, held: &[AttemptKey]) -> Vec<AttemptKey> {
        let lease_until = self.lease_from_now();
        let Some(mate) = self.mates.get_mut(&worker) else { return held.to_vec() };
        mate.lease_until = lease_until;
        mate.bound = who.workflow;
        let (had, crew, served) = (std::mem::take(&mut mate.held), mate.crew.take(), mate.served);
        for reply in mate.begin_anew(who.capacity, taste(&who.labels, Some(&who.site))) {
            reply(Err(superseded()));
        }
        if let Some(crew) = crew {
            self.crews.leave(crew, worker, served);
        }
        let mut lost = Vec::new();
        let mut kept = HashSet::new();
        for key in held {
            if self.own(worker, key) {
                kept.insert(key.job);
            } else {
                lost.push(*key);
            }
        }
        let mut returned: Vec<_> = had.into_iter().filter(|(job, _)| !kept.contains(job)).collect();
        returned.sort_unstable();
        for (job, workflow) in returned {
            let Some(desk) = self.desk(workflow) else { continue };
            let Some(number) = desk.board.index(job) else { continue };
            let started = desk.held.remove(&job).and_then(|hold| hold.started_at);
            // One that said it had started the job and then knows nothing of it has lost its memory.
            let fate = if started.is_some() { Orphan::RunAgain(None) } else { Orphan::NeverStarted };
            self.orphan(workflow, number, worker, fate, started);
        }
        lost
    }

    /// Whether an attempt that a worker says it has is its own; if so it is put in its mirror.
    fn own(&mut self, worker: WorkerId, key: &AttemptKey) -> bool {
        let Some(desk) = self.desk(key.workflow) else { return false };
        let Ok(job) = desk.fenced(worker, key) else { return false };
        if let Some(hold) = desk.held.get_mut(&key.job) {
            hold.is_told = true;
        }
        let (demand, alone) = (desk.board.demand(job).clone(), desk.board.is_tried_alone(job));
        if let Some(mate) = self.mates.get_mut(&worker) {
            mate.mirror.take_anyway(key.job, &demand);
            mate.held.insert(key.job, key.workflow);
            mate.alone = alone.then_some(key.job).or(mate.alone);
        }
        true
    }

    fn join_crew(&mut self, worker: WorkerId, who: &Introduction, sponsor: Sponsor) {
        let Sponsor { user, sees_all, may } = sponsor;
        let mut labels = who.labels.clone();
        labels.sort_unstable();
        labels.dedup();
        let (site, workflow) = (who.site.clone(), who.workflow);
        let identity = Identity { user: user.to_string(), sees_all, labels, site, workflow };
        let mut allowed = HashSet::new();
        for (id, slot) in &self.slots {
            if let Slot::Open(desk) = slot
                && who.workflow.is_none_or(|bound| bound == *id)
                && may(&desk.row)
            {
                allowed.insert(*id);
            }
        }
        let places = allowed.clone();
        let (crew, is_new) = self.crews.join(worker, identity, allowed, may);
        if is_new {
            self.stirred.extend(places);
        }
        if let Some(mate) = self.mates.get_mut(&worker) {
            mate.crew = Some(crew);
            mate.sees_all = sees_all;
            mate.bound = who.workflow;
        }
        if !self.closed_sites.is_empty() {
            self.keep_sites_closed();
        }
        self.settle_on_node(worker, &who.host);
        self.note_if_dismissed(worker);
    }

    /// A worker whose only workflow is over, or has no use for it any more, has nothing to stay for.
    pub(super) fn note_if_dismissed(&mut self, worker: WorkerId) {
        let Some(bound) = self.mates.get(&worker).and_then(|mate| mate.bound) else { return };
        let is_over = match self.desk(bound) {
            Some(desk) => (!desk.is_active && desk.row.started_at.is_some()) || desk.waits_for_decision,
            None => match self.store.workflow(bound) {
                Ok(Some(row)) => row.started_at.is_some() && !desk::is_active(&row),
                Ok(None) => true,
                // It hears of it another time.
                Err(_) => false,
            },
        };
        let is_over = is_over || self.is_of_no_use(worker);
        if let Some(mate) = self.mates.get_mut(&worker)
            && mate.is_dismissed != is_over
        {
            mate.is_dismissed = is_over;
            mate.outbox.has_word |= is_over;
            self.roused.insert(worker);
        }
    }

    /// Whoever quotes the secret of a worker speaks for it, and is alive: whatever becomes of what it says.
    pub(super) fn recognise(&mut self, exchange: &Exchange, speaker: &Speaker) -> Result<(), Refused> {
        let worker = exchange.worker;
        if self.mates.get(&worker).is_some_and(|mate| !speaker.may_speak_for(&mate.user)) {
            return Err(Refused::NotFound(format!("there is no worker {worker}")));
        }
        if !self.is_certain() {
            return Err(uncertain());
        }
        let lease_until = self.lease_from_now();
        let Some(mate) = self.mates.get_mut(&worker).filter(|mate| mate.quotes(&exchange.secret)) else {
            self.refuse_stranger(exchange, speaker);
            return Err(unknown_worker());
        };
        if mate.crew.is_none() {
            // It was here before this service was: it is to say what it holds.
            return Err(unknown_worker());
        }
        mate.lease_until = lease_until;
        if mate.sees_all && *speaker != Speaker::Operator {
            // Who speaks for it may do less by now than who introduced it.
            self.send_off(worker);
            return Err(unknown_worker());
        }
        Ok(())
    }

    /// It gets nothing more until it has introduced itself again. What it has stays its own.
    pub(super) fn send_off(&mut self, worker: WorkerId) {
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        let Some(crew) = mate.crew.take() else { return };
        for reply in mate.exchanges.begin_anew() {
            reply(Err(unknown_worker()));
        }
        let served = mate.served;
        self.crews.leave(crew, worker, served);
        self.free_what_was_reserved(worker);
    }

    pub(super) fn on_access_changed(&mut self) {
        let bound = |(id, mate): (&WorkerId, &Mate)| Some((*id, mate.crew?, mate.bound?));
        let bound: Vec<_> = self.mates.iter().filter_map(bound).collect();
        for (worker, crew, workflow) in bound {
            let row = match self.desk(workflow) {
                Some(desk) => Some(desk.row.clone()),
                None => self.store.workflow(workflow).ok().flatten(),
            };
            if !row.is_some_and(|row| self.crews.may(crew, &row)) {
                self.send_off(worker);
            }
        }
    }

    pub(super) fn on_exchange(&mut self, exchange: Exchange, reply: Reply<ExchangeAnswer>) {
        let (worker, is_certain) = (exchange.worker, self.is_certain());
        let Some(mate) = self.mates.get_mut(&worker) else { return reply(Err(unknown_worker())) };
        let longest = self.options.lease / 3;
        let deadline = self.now.at + exchange.wait.min(longest);
        let is_report = !exchange.reports.is_empty() || !exchange.actions.is_empty() || exchange.leaving;
        self.roused.insert(worker);
        match mate.exchanges.receive(exchange.number, reply, deadline, is_report) {
            Receipt::New => self.hear(exchange),
            Receipt::Again { before } => {
                if let Some(before) = before {
                    before(Err(superseded()));
                }
            }
            Receipt::Answered(reply, answer) if is_certain => reply(Ok(*answer)),
            Receipt::Answered(reply, _) => reply(Err(uncertain())),
            Receipt::TooOld(reply) => reply(Err(superseded())),
        }
    }

    fn hear(&mut self, exchange: Exchange) {
        let (worker, number) = (exchange.worker, exchange.number);
        let mut stale = Vec::new();
        for report in exchange.reports {
            self.activity = Activity::of_report(worker, report.key());
            let workflow = report.key().workflow;
            match self.hear_report(worker, report) {
                Ok(()) => self.owe(worker, number, workflow),
                Err(late) => stale.push(late),
            }
        }
        self.activity = Activity { what: "exchange", worker: Some(worker), ..Activity::default() };
        self.note_stale(worker, number, &stale);
        self.on_action_reports(worker, number, exchange.actions);
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        mate.limit_time(exchange.time_left);
        mate.is_draining = exchange.draining;
        if exchange.draining {
            self.free_what_was_reserved(worker);
        }
        if exchange.leaving && !self.stays_for_actions(worker) {
            self.on_leaving(worker, number);
        }
        self.note_if_dismissed(worker);
    }

    /// The answer to an exchange rests on the next commit of a desk.
    pub(super) fn owe(&mut self, worker: WorkerId, number: u64, workflow: WorkflowId) {
        let Self { slots, mates, .. } = self;
        let (Some(Slot::Open(desk)), Some(mate)) = (slots.get_mut(&workflow), mates.get_mut(&worker)) else {
            return;
        };
        let ticket = mate.exchanges.ticket(worker, number);
        if !desk.open.tickets.contains(&ticket) {
            desk.open.tickets.push(ticket);
            mate.exchanges.owe(ticket);
        }
    }

    /// Decides what follows from a report, and keeps it until that is on disk.
    pub(super) fn hear_report(&mut self, worker: WorkerId, report: Report) -> Result<(), Stale> {
        self.is_rejected(worker, report.key())?;
        self.on_report(worker, &report)?;
        let workflow = report.key().workflow;
        if let Some(desk) = self.desk(workflow) {
            desk.open.heard.push((worker, report));
        }
        self.stirred.insert(workflow);
        Ok(())
    }

    fn on_report(&mut self, worker: WorkerId, report: &Report) -> Result<(), Stale> {
        let key = *report.key();
        let over = || Stale { key, found: format!("workflow {} is over", key.workflow) };
        let desk = self.desk(key.workflow).ok_or_else(over)?;
        let job = desk.fenced(worker, &key)?;
        match report {
            Report::Started { at, pid, .. } => {
                if let Some(hold) = desk.held.get_mut(&key.job) {
                    hold.started_at = Some(*at);
                }
                desk.board.on_started(worker, &key, *at, *pid, &mut desk.open.changes)?;
            }
            Report::Ended(ended) => self.on_ended(worker, ended)?,
            Report::Returned { why: ReturnReason::WorkerDied, .. } => {
                self.on_died_with_it(worker, &key, Evidence::Witnessed);
            }
            Report::Returned { why: ReturnReason::WorkerHung, .. } => {
                self.on_died_with_it(worker, &key, Evidence::Hearsay);
            }
            Report::Returned { why, .. } => {
                let started = desk.held.remove(&key.job).and_then(|hold| hold.started_at);
                if started.is_some() {
                    self.orphan(key.workflow, job, worker, Orphan::RunAgain(None), started);
                } else {
                    desk.board.on_returned(worker, &key, &mut desk.open.changes)?;
                }
                if let ReturnReason::WorkerTrouble(trouble) = &why {
                    self.note_trouble(worker, &key, trouble);
                }
                let is_in_trouble = matches!(why, ReturnReason::WorkerTrouble(_));
                self.let_go(worker, &key, is_in_trouble);
            }
        }
        Ok(())
    }

    /// The process that ran it is dead, and whoever started that process lives to tell; or, which says less, its heir does.
    fn on_died_with_it(&mut self, worker: WorkerId, key: &AttemptKey, evidence: Evidence) {
        let mate = self.mates.get(&worker);
        let is_running = mate.is_some_and(|mate| mate.mirror.is_running(key.job));
        let evidence = if mate.is_some_and(|mate| mate.has_heir) { Evidence::Hearsay } else { evidence };
        let eviction = self.eviction_of(mate.and_then(|mate| mate.allocation));
        let by = eviction.map_or(Loss::Died(evidence), Loss::Evicted);
        self.orphan_of(key.workflow, key.job, worker, is_running, by);
        self.let_go(worker, key, false);
    }

    fn on_ended(&mut self, worker: WorkerId, ended: &Ended) -> Result<(), Stale> {
        let key = ended.key;
        let verdict = self.conclude_attempt(worker, ended)?;
        let Some(desk) = self.desk(key.workflow) else { return Ok(()) };
        desk.held.remove(&key.job);
        desk.suspects.on_ended(key.job);
        if verdict.job_status.is_settled() {
            desk.over.push(key);
        }
        if let Some(mate) = self.mates.get_mut(&worker) {
            mate.pace.on_ended(ended.wall);
            if !matches!(ended.cause, EndCause::CannotStart(_)) {
                mate.trust_with(key.workflow);
            }
        }
        if verdict.job_status != JobStatus::Ready {
            count(&self.gauges.ended, 1);
        }
        self.let_go(worker, &key, false);
        Ok(())
    }

    fn let_go(&mut self, worker: WorkerId, key: &AttemptKey, is_in_trouble: bool) {
        let now = self.now.at;
        if let Some(mate) = self.mates.get_mut(&worker) {
            mate.let_go(key.job);
            if is_in_trouble {
                mate.rest_from(key.workflow, now);
            }
        }
    }

    /// They are refused, and can be seen: in the answer and among the events.
    fn note_stale(&mut self, worker: WorkerId, number: u64, stale: &[Stale]) {
        if let Some(mate) = self.mates.get_mut(&worker) {
            for Stale { key, found } in stale {
                mate.exchanges.note_stale(number, StaleReport { key: *key, found: found.clone() });
            }
        }
        self.record_stale_of(worker, stale);
    }

    /// Somebody who was given up speaks up, or somebody who never was here.
    fn refuse_stranger(&mut self, exchange: &Exchange, speaker: &Speaker) {
        let Some(row) = self.store.worker(exchange.worker).ok().flatten() else { return };
        if row.worker.secret_hash == Some(secret_hash(&exchange.secret)) {
            self.on_word_of_lost(exchange.worker);
            let found = "its worker had been given up";
            let stale = |report: &Report| Stale { key: *report.key(), found: found.to_owned() };
            let stale: Vec<Stale> = exchange.reports.iter().map(stale).collect();
            self.record_stale_of_lost(row, speaker, &stale);
        }
    }

    pub(super) fn on_hang_up(&mut self, worker: WorkerId, number: u64, secret: &str) {
        if let Some(mate) = self.mates.get_mut(&worker).filter(|mate| mate.quotes(secret)) {
            drop(mate.exchanges.hang_up(number));
            self.roused.insert(worker);
        }
    }

    /// Answers whoever can be answered, and keeps the answers.
    pub(super) fn answer_those_roused(&mut self) {
        for worker in std::mem::take(&mut self.roused) {
            self.answer(worker);
        }
    }

    /// Whether nobody else can be the server by now. What a worker is told renews its lease.
    fn is_certain(&self) -> bool {
        self.options.is_certain.as_ref().is_none_or(|is_certain| is_certain())
    }

    fn answer(&mut self, worker: WorkerId) {
        let (now, stopping) = (self.now.at, self.is_stopping());
        let is_certain = self.is_certain();
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        let at_once = stopping || !mate.outbox.is_empty();
        let mut told = Vec::new();
        for due in mate.exchanges.due(now, at_once) {
            let mut answer =
                ExchangeAnswer { number: due.number, stale: due.stale, ..ExchangeAnswer::default() };
            if !due.is_superseded {
                answer = mate.news(answer, now);
                told.extend(answer.assignments.iter().map(|assignment| assignment.key));
            }
            mate.exchanges.answered(answer.clone());
            if let Some(reply) = due.reply {
                reply(if is_certain { Ok(answer) } else { Err(uncertain()) });
            }
        }
        for reply in mate.exchanges.overdue(now) {
            reply(Err(unavailable("what you reported is not on disk yet")));
        }
        self.note_told(&told);
        self.note_waiting(worker);
    }

    /// From here on they may have started.
    fn note_told(&mut self, keys: &[AttemptKey]) {
        for key in keys {
            if let Some(hold) = self.desk(key.workflow).and_then(|desk| desk.held.get_mut(&key.job)) {
                hold.is_told = true;
            }
        }
    }

    pub(super) fn note_waiting(&mut self, worker: WorkerId) {
        let Some(mate) = self.mates.get(&worker) else { return };
        if let Some(crew) = mate.crew {
            self.crews.note_waiting(crew, worker, mate.served, mate.may_take());
        }
    }
}

fn uncertain() -> Refused {
    unavailable(
        "this server has not reached its database for some seconds, and another one may have taken over",
    )
}

pub(super) fn unknown_worker() -> Refused {
    let detail = "this server does not know the worker, or has given it up: introduce it again".to_owned();
    Refused::Conflict { code: "unknown_worker", detail }
}

pub(super) fn superseded() -> Refused {
    let detail = "a newer call of the same worker has taken the place of this one".to_owned();
    Refused::Conflict { code: "superseded", detail }
}
