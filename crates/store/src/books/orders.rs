//! What people and agents decide about failures and change about jobs. All of it is decided by [`windlass_core::orders`] on
//! what the rows say, and written in the same transaction.

use super::apply::apply;
use super::failures::send_resources;
use super::load::load_jobs;
use super::manage::By;
use super::{column, parts, read, runs};
use crate::db::{Db, Pipeline, values};
use crate::error::Fault;
use crate::model::{
    DecisionFilter, DecisionRow, DecisionState, LoadedJobs, RevisionFilter, RevisionRow, WorkflowRow,
};
use crate::sql::common as sql;
use crate::{Batch, Error};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;
use std::cell::OnceCell;
use windlass_core::change::Change;
use windlass_core::orders::{
    Asked, AskedBy, Case, Edition, Held, House, Impossible, Judgement, Undoing, judge, plan, undo,
};
use windlass_types::orders::{Answer, Order, Orders, Outcome, Verdict, Wanted};
use windlass_types::settings::SlurmScheduler;
use windlass_types::{Attempt, JobId, JobStatus, RequirementsId, RunId, WorkflowId};

pub(crate) mod by_hand;
mod lists;
pub(crate) mod places;

pub(crate) use lists::{decisions, revisions};

use places::Places;

pub(crate) fn carry_out(
    db: &impl Db,
    workflow: WorkflowId,
    wanted: &Wanted,
    by: By<'_>,
) -> Result<Vec<Outcome>, Fault> {
    let row = read::workflow(db, workflow)?.ok_or(Error::NoSuchWorkflow(workflow))?;
    let places = Places::read(db, workflow)?;
    let held = OnceCell::new();
    let desk = Desk { db, row: &row, table: load_jobs(db, workflow)?, places, held, by };
    match wanted {
        Wanted::Orders(orders) => desk.give(orders),
        Wanted::Settle { decision, agreed } => desk.settle(*decision, *agreed),
        Wanted::Undo { batch, agent } => desk.undo(*batch, agent.as_deref()),
    }
}

/// Where orders about one workflow are carried out.
struct Desk<'a, D> {
    db: &'a D,
    row: &'a WorkflowRow,
    table: LoadedJobs,
    places: Places,
    /// Asked for when somebody is at work.
    held: OnceCell<Held>,
    by: By<'a>,
}

/// A job that somebody named, as it stands.
struct Named {
    index: u32,
    status: JobStatus,
    attempt: Attempt,
    asked: Asked,
    command: String,
    priority: i32,
    scheduler: Option<SlurmScheduler>,
    agent_retries: u32,
    said: String,
}

/// Who gives an order.
#[derive(Clone, Copy, Default)]
struct Giver {
    is_agent: bool,
    /// In all that the job said, for what is quoted of it.
    has_looked: bool,
}

/// What is written when all has been judged.
#[derive(Default)]
struct Accepted<'o> {
    /// Jobs by number, and what becomes of them.
    verdicts: Vec<(u32, Verdict)>,
    revisions: Vec<Revised>,
    decisions: Vec<Decided<'o>>,
}

struct Revised {
    job: JobId,
    from: JobStatus,
    reason: String,
    before: Edition,
    after: Edition,
}

/// What is said of all that is changed together.
#[derive(Clone, Copy)]
struct Made<'a> {
    batch: i64,
    author: &'a str,
}

struct Decided<'o> {
    order: &'o Order,
    attempt: Attempt,
    state: DecisionState,
}

impl<D: Db> Desk<'_, D> {
    fn give(&self, orders: &Orders) -> Result<Vec<Outcome>, Fault> {
        let mut accepted = Accepted::default();
        let mut outcomes = Vec::with_capacity(orders.orders.len());
        let mut named = FxHashSet::default();
        for order in &orders.orders {
            let is_first = named.insert(order.job);
            let giver = Giver { is_agent: orders.agent.is_some(), has_looked: orders.is_looked_up };
            outcomes.push(self.judge(order, giver, is_first, &mut accepted)?);
        }
        if !orders.dry_run {
            self.write(&accepted, orders.agent.as_deref(), true)?;
        }
        Ok(outcomes)
    }

    /// What comes of one order, and for what is to be written.
    fn judge<'o>(
        &self,
        order: &'o Order,
        giver: Giver,
        is_first: bool,
        accepted: &mut Accepted<'o>,
    ) -> Result<Outcome, Fault> {
        let outcome = |answer, words| Outcome {
            job: order.job,
            verdict: order.verdict,
            answer,
            words,
            status: None,
            attempt: None,
        };
        let Some(named) = self.find(order.job)? else {
            let words = format!("workflow {} has no job {}", self.row.id, order.job);
            return Ok(outcome(Answer::Refused, words));
        };
        let stands =
            |outcome| Outcome { status: Some(named.status), attempt: Some(named.attempt), ..outcome };
        if !is_first {
            return Ok(stands(outcome(Answer::Refused, "it is named twice".to_owned())));
        }
        let decided = |state| Decided { order, attempt: named.attempt, state };
        let schedulers = self.places.schedulers();
        let said = Some(&*named.said).filter(|_| !giver.has_looked);
        let case = Case { said, ..named.case() };
        Ok(stands(match judge(order, giver.is_agent, &self.house(&schedulers), &case) {
            Judgement::Refused(words) => outcome(Answer::Refused, words),
            Judgement::Done { .. } if let Some(words) = self.in_the_way(named.index, order.verdict)? => {
                outcome(Answer::Refused, words)
            }
            Judgement::Proposed(words) => {
                accepted.decisions.push(decided(DecisionState::Proposed));
                outcome(Answer::Proposed, words)
            }
            Judgement::Done { words, revision } => {
                accepted.verdicts.push((named.index, order.verdict));
                if order.verdict != Verdict::Change {
                    accepted.decisions.push(decided(DecisionState::Done));
                }
                if let Some(place) = revision.as_ref().and_then(|revision| revision.1.place.as_ref()) {
                    self.places.promise(place);
                }
                accepted.revisions.extend(revision.map(|revision| Revised {
                    job: order.job,
                    from: named.status,
                    reason: order.reason.clone(),
                    before: revision.0,
                    after: revision.1,
                }));
                outcome(Answer::Done, words)
            }
        }))
    }

    /// Why it cannot be carried out as long as somebody works on what was built on the job.
    fn in_the_way(&self, job: u32, verdict: Verdict) -> Result<Option<String>, Fault> {
        if self.row.counts.active() == 0 {
            return Ok(None);
        }
        if self.held.get().is_none() {
            let held = Held::new(&self.table.edges, &self.table.status);
            let held = held.map_err(|cycle| Fault::damage(cycle.to_string()))?;
            self.held.set(held).ok();
        }
        let holder = self.held.get().and_then(|held| held.in_the_way(job, verdict));
        let Some(holder) = holder else { return Ok(None) };
        let (id, status) = (self.table.ids[holder as usize], self.table.status[holder as usize]);
        let name: String = self.db.one(sql::JOB_NAME, [id.0], |row| row.get(0))?;
        Ok(Some(format!(
            "`{name}`, which was built on it and would begin anew, is `{status}`: order it again when that has ended"
        )))
    }

    fn house<'s>(&self, schedulers: &'s [SlurmScheduler]) -> House<'s> {
        let settings = &self.row.settings;
        House { asks: settings.use_pending_failed, policy: settings.triage.unwrap_or_default(), schedulers }
    }

    fn find(&self, job: JobId) -> Result<Option<Named>, Fault> {
        let (run, found) = (self.row.run_id, self.table.ids.binary_search(&job).ok());
        let Some(index) = found else { return Ok(None) };
        let found = self.db.optional(sql::ORDERED_JOB, [job.0, self.row.id.0], |row| {
            let by = match row.get::<Option<i64>>(2)? {
                Some(id) => AskedBy::Row(RequirementsId(id)),
                None => AskedBy::Nothing,
            };
            let resources = self.table.requirements[self.table.class[index] as usize];
            Ok(Named {
                index: index as u32,
                status: column::status(row, 0)?,
                attempt: Attempt(row.get(1)?),
                asked: Asked { resources, by },
                command: row.get(3)?,
                priority: row.get(4)?,
                scheduler: row.get::<Option<i64>>(5)?.and_then(|id| self.places.scheduler(id)),
                agent_retries: 0,
                said: String::new(),
            })
        })?;
        let Some(mut named) = found else { return Ok(None) };
        let retries: i64 = self.db.one(sql::AGENT_RETRIES, [job.0, run.0], |row| row.get(0))?;
        named.agent_retries = u32::try_from(retries).unwrap_or(u32::MAX);
        let attempt = i64::from(named.attempt.0);
        let said = self.db.optional(sql::SAID, [job.0, run.0, attempt], |row| {
            Ok(format!("{}\n{}", row.get::<String>(0)?, row.get::<String>(1)?))
        })?;
        named.said = said.unwrap_or_default();
        Ok(Some(named))
    }

    /// Writes what was accepted; `agent` is who decided, unless it is our actor. `notes_decisions`: else they are there.
    fn write(
        &self,
        accepted: &Accepted<'_>,
        agent: Option<&str>,
        notes_decisions: bool,
    ) -> Result<(), Fault> {
        let (workflow, run) = (self.row.id, self.row.run_id);
        self.revise(&accepted.revisions, agent.unwrap_or(self.by.actor))?;
        if notes_decisions {
            self.decide(&accepted.decisions, agent)?;
        }
        let has_verdicts = accepted.verdicts.iter().any(|(_, verdict)| *verdict != Verdict::Change);
        if has_verdicts {
            let changes = self.plan(&accepted.verdicts)?;
            apply(self.db, &Batch { workflow, run, changes: changes.into() }, self.by.actor)?;
            self.reopen_run()?;
        }
        close_overtaken(self.db, workflow, self.by)?;
        self.tell(accepted, agent)
    }

    fn plan(&self, verdicts: &[(u32, Verdict)]) -> Result<Vec<Change>, Fault> {
        let (workflow, run) = (self.row.id, self.row.run_id);
        let done = attempts_done(self.db, workflow, run)?;
        plan(workflow, run, &self.table, verdicts, &done).map_err(|why| match why {
            Impossible::Held(_) => Error::StillActive { workflow, held: self.row.counts.active() }.into(),
            Impossible::Cycle(cycle) => Fault::damage(cycle.to_string()),
        })
    }

    /// What is ready in a run that is over would never be looked at.
    fn reopen_run(&self) -> Result<(), Fault> {
        let row = self.row;
        let is_over = row.ended_at.is_some() || row.is_canceled;
        let counts = runs::counts(self.db, row.id)?;
        if is_over && counts.settled() < counts.total() {
            self.db.execute(sql::ANSWER_CANCEL, [0, row.id.0])?;
            runs::begin_run(self.db, row.id, self.by)?;
        }
        Ok(())
    }

    fn revise(&self, revisions: &[Revised], author: &str) -> Result<(), Fault> {
        if revisions.is_empty() {
            return Ok(());
        }
        let workflow = self.row.id;
        let batch: i64 = self.db.one(sql::LAST_BATCH, [workflow.0], |row| row.get(0))?;
        let kind = |revised: &Revised| {
            let place = revised.after.place.as_ref();
            place.map(|place| self.places.kind(self.db, revised.job, place)).transpose()
        };
        let kinds = revisions.iter().map(kind).collect::<Result<Vec<_>, _>>()?;
        let sent = self.db.pipeline(|pipe| {
            for (number, (revised, kind)) in revisions.iter().zip(&kinds).enumerate() {
                self.send_revision(pipe, number, Made { batch: batch + 1, author }, revised)?;
                if let Some(kind) = kind {
                    pipe.send(number, sql::SET_KIND, &values![*kind, revised.job.0])?;
                }
            }
            Ok(())
        });
        match sent {
            Err(Fault::Untouched(number)) => {
                let job = revisions[number].job;
                Err(Fault::damage(format!("job {job} is not where it was a moment ago")))
            }
            other => other,
        }
    }

    fn send_revision(
        &self,
        pipe: &mut dyn Pipeline,
        number: usize,
        made: Made<'_>,
        revised: &Revised,
    ) -> Result<(), Fault> {
        let Revised { job, from, reason, before, after } = revised;
        let workflow = self.row.id;
        let values = values![after.command, after.priority, job.0, workflow.0, from.code()];
        pipe.send(number, sql::REVISE, &values)?;
        match after.asked.map(|asked| (asked.by, asked.resources)) {
            Some((AskedBy::Itself, resources)) => send_resources(pipe, number, workflow, *job, &resources)?,
            Some((AskedBy::Row(row), _)) => {
                pipe.send(number, sql::POINT_AT_ROW, &values![Some(row.0), job.0])?;
            }
            Some((AskedBy::Nothing, _)) => {
                pipe.send(number, sql::POINT_AT_ROW, &values![None::<i64>, job.0])?;
            }
            None => {}
        }
        let (before, after) = (column::json_text(before)?, column::json_text(after)?);
        let Made { batch, author } = made;
        let values = values![batch, workflow.0, job.0, self.by.now.0, author, reason, before, after];
        pipe.send(number, sql::INSERT_REVISION, &values)
    }

    fn decide(&self, decisions: &[Decided<'_>], agent: Option<&str>) -> Result<(), Fault> {
        let by = agent.unwrap_or(self.by.actor);
        let mut new = Vec::new();
        for decided in decisions {
            if decided.state != DecisionState::Proposed || self.replaces(decided, by)? {
                new.push(decided);
            }
        }
        self.db.pipeline(|pipe| {
            for (number, Decided { order, attempt, state }) in new.into_iter().enumerate() {
                let evidence = column::json_text(&order.evidence)?;
                let changes = column::json_text(&order.changes)?;
                let values = values![
                    self.row.id.0,
                    order.job.0,
                    self.row.run_id.0,
                    attempt.0,
                    self.by.now.0,
                    by,
                    i64::from(agent.is_some()),
                    order.verdict.as_str(),
                    order.confidence,
                    order.reason,
                    evidence,
                    changes,
                    state.as_str()
                ];
                pipe.send(number, sql::DECIDE, &values)?;
            }
            Ok(())
        })
    }

    /// Whoever proposes twice means the last; and what is proposed already, is. Whether it is to be noted.
    fn replaces(&self, decided: &Decided<'_>, by: &str) -> Result<bool, Fault> {
        let Decided { order, attempt, .. } = decided;
        let changes = column::json_text(&order.changes)?;
        let (job, run) = (order.job.0, self.row.run_id.0);
        let same = values![job, run, attempt.0, by, order.verdict.as_str(), changes];
        let known = self.db.optional(sql::PROPOSED_ALREADY, same, |row| row.get::<Option<f64>>(0))?;
        if known == Some(order.confidence) {
            return Ok(false);
        }
        self.db.execute(sql::CLOSE_EARLIER, values![self.by.now.0, job, by])?;
        Ok(true)
    }

    /// One note for all that was ordered together.
    fn tell(&self, accepted: &Accepted<'_>, agent: Option<&str>) -> Result<(), Fault> {
        let mut parts = Vec::new();
        for verdict in Verdict::ALL {
            let n = accepted.verdicts.iter().filter(|(_, given)| *given == verdict).count();
            if n > 0 {
                parts.push(format!("{verdict} {n}"));
            }
        }
        let proposed = accepted.decisions.iter().filter(|d| d.state == DecisionState::Proposed).count();
        if proposed > 0 {
            parts.push(format!("{proposed} to be decided by a person"));
        }
        if parts.is_empty() {
            return Ok(());
        }
        let reason = accepted.decisions.first().map(|decided| decided.order.reason.as_str());
        let reason = reason.or(accepted.revisions.first().map(|revised| revised.reason.as_str()));
        let reason = reason.filter(|reason| !reason.is_empty());
        let who = agent.map(|agent| format!(" by agent `{agent}`")).unwrap_or_default();
        let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = format!("jobs were decided on{who}: {}{why}", parts.join(", "));
        let told = json!({ "agent": agent, "jobs": accepted.verdicts.len(), "reason": reason });
        self.by.note(self.db, self.row.id, "orders", message, told)
    }

    fn settle(&self, decision: i64, agreed: bool) -> Result<Vec<Outcome>, Fault> {
        let state = Some(DecisionState::Proposed);
        let filter = DecisionFilter { id: Some(decision), state, ..DecisionFilter::default() };
        let Some(row) = decisions(self.db, self.row.id, &filter)?.pop() else {
            let what = format!("decision {decision}: none of that number waits for a person");
            return Err(Error::OutOfRange { what }.into());
        };
        if let Some(named) = self.find(row.job_id)?
            && (self.row.run_id, named.attempt, named.status)
                != (row.run_id, row.attempt_id, JobStatus::PendingFailed)
        {
            close_overtaken(self.db, self.row.id, self.by)?;
            return Ok(vec![overtaken(&row, &named)]);
        }
        let order = as_order(&row);
        let mut accepted = Accepted::default();
        let outcome = if agreed {
            self.judge(&order, Giver::default(), true, &mut accepted)?
        } else {
            let answer = Answer::Done;
            let words = "declined; the job waits on".to_owned();
            Outcome { job: order.job, verdict: order.verdict, answer, words, status: None, attempt: None }
        };
        if agreed && outcome.answer != Answer::Done {
            return Ok(vec![outcome]);
        }
        let state = if agreed { DecisionState::Done } else { DecisionState::Declined };
        let values = values![state.as_str(), self.by.actor, self.by.now.0, decision, self.row.id.0];
        self.db.execute(sql::SETTLE, values)?;
        self.write(&accepted, None, false)?;
        Ok(vec![outcome])
    }

    /// Puts back what was changed together, job by job: where that still stands, and the job has not run with it.
    fn undo(&self, batch: i64, agent: Option<&str>) -> Result<Vec<Outcome>, Fault> {
        let mut rows = revisions(self.db, self.row.id, RevisionFilter { batch: Some(batch), job: None })?;
        let there_were = !rows.is_empty();
        rows.retain(|row| row.undone_at.is_none());
        if rows.is_empty() {
            let why = if there_were { "it is undone already" } else { "there is none of that number" };
            return Err(Error::OutOfRange { what: format!("revision {batch}: {why}") }.into());
        }
        let by = agent.unwrap_or(self.by.actor);
        let mut accepted = Accepted::default();
        let mut outcomes = Vec::new();
        for row in &rows {
            let Some(named) = self.find(row.job_id)? else { continue };
            let undoing = Undoing { before: &row.before, after: &row.after, has_run: row.has_run };
            let (answer, words) = match undo(&undoing, &named.case()) {
                Ok(words) => {
                    accepted.verdicts.push((named.index, Verdict::Change));
                    accepted.revisions.push(self.put_back(row)?);
                    self.db.execute(sql::UNDO_REVISION, values![self.by.now.0, by, row.id])?;
                    (Answer::Done, words)
                }
                Err(words) => (Answer::Refused, words),
            };
            let (status, attempt) = (Some(named.status), Some(named.attempt));
            outcomes.push(Outcome {
                job: row.job_id,
                verdict: Verdict::Change,
                answer,
                words,
                status,
                attempt,
            });
        }
        self.write(&accepted, agent, true)?;
        Ok(outcomes)
    }

    fn put_back(&self, row: &RevisionRow) -> Result<Revised, Fault> {
        let mut after = row.before.clone();
        if let Some(asked) = &mut after.asked {
            // What it shared with others may be something else by now, or nothing.
            let shared = match asked.by {
                AskedBy::Row(id) => parts::requirements_row(self.db, id)?.map(|(_, row)| row.resources),
                AskedBy::Nothing | AskedBy::Itself => Some(asked.resources),
            };
            if shared != Some(asked.resources) {
                asked.by = AskedBy::Itself;
            }
        }
        Ok(Revised {
            job: row.job_id,
            from: row.job_status,
            reason: format!("revision {} is undone", row.batch),
            before: row.after.clone(),
            after,
        })
    }
}

impl Named {
    fn case(&self) -> Case<'_> {
        Case {
            status: self.status,
            asked: self.asked,
            command: &self.command,
            priority: self.priority,
            scheduler: self.scheduler.as_ref(),
            agent_retries: self.agent_retries,
            said: Some(&self.said),
        }
    }
}

/// Proposals about failures that wait no more need no answer.
pub(crate) fn close_overtaken(db: &impl Db, workflow: WorkflowId, by: By<'_>) -> Result<(), Fault> {
    let waits = i64::from(JobStatus::PendingFailed.code());
    db.execute(sql::CLOSE_OVERTAKEN, [by.now.0, workflow.0, waits])?;
    Ok(())
}

fn overtaken(row: &DecisionRow, named: &Named) -> Outcome {
    Outcome {
        job: row.job_id,
        verdict: row.verdict,
        answer: Answer::Refused,
        words: format!(
            "it was proposed about attempt {} of run {}, and the job went on without it: it is `{}`, in attempt {}",
            row.attempt_id, row.run_id, named.status, named.attempt
        ),
        status: Some(named.status),
        attempt: Some(named.attempt),
    }
}

fn as_order(row: &DecisionRow) -> Order {
    Order {
        job: row.job_id,
        verdict: row.verdict,
        changes: row.changes.clone(),
        reason: row.reason.clone(),
        confidence: row.confidence,
        evidence: row.evidence.clone(),
    }
}

/// Of each job that left a result in a run, its newest attempt there.
fn attempts_done(db: &impl Db, workflow: WorkflowId, run: RunId) -> Result<FxHashMap<JobId, Attempt>, Fault> {
    let pairs = db
        .all(sql::ATTEMPTS_DONE, [workflow.0, run.0], |row| Ok((JobId(row.get(0)?), Attempt(row.get(1)?))))?;
    Ok(pairs.into_iter().collect())
}
