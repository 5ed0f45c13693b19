//! Decisions of people and agents about failures, and revisions of jobs. Decided by
//! [`windlass_core::failure_commands`] from the stored rows, and written in the same transaction.

use super::apply_changes::apply_batch;
use super::failures::set_job_resources;
use super::job_loading::load_jobs;
use super::workflow_updates::AuditContext;
use super::{column_decoding, queries, runs, workflow_parts};
use crate::db::{SqlConnection, StatementPipeline, values};
use crate::error::SqlError;
use crate::model::{
    DecisionFilter, DecisionRow, DecisionState, JobRevisionRow, LoadedJobs, RevisionFilter, WorkflowRow,
};
use crate::sql::common as sql;
use crate::{ChangeBatch, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;
use std::cell::OnceCell;
use windlass_core::change::WorkflowChange;
use windlass_core::failure_commands::{
    BlockingDependents, CommandDecision, CommandPlanError, CommandSettings, CommandTarget, JobPatch,
    PatchUndo, RequestedResources, ResourceSource, decide_command, plan_commands, plan_undo,
};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome, FailureCommandStatus,
    PendingCommand,
};
use windlass_types::settings::SlurmScheduler;
use windlass_types::{Attempt, JobId, JobStatus, RequirementsId, RunId, WorkflowId};

mod decision_lists;
pub(crate) mod manual_revisions;
pub(crate) mod scheduler_targets;

pub(crate) use decision_lists::{list_decisions, list_revisions};

use scheduler_targets::SchedulerTargets;

pub(crate) fn apply_triage_command(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    wanted: &PendingCommand,
    by: AuditContext<'_>,
) -> Result<Vec<FailureCommandOutcome>, SqlError> {
    let row = queries::find_workflow(db, workflow)?.ok_or(StoreError::NoSuchWorkflow(workflow))?;
    let places = SchedulerTargets::load(db, workflow)?;
    let held = OnceCell::new();
    let active = FailureCommandExecutor {
        db,
        row: &row,
        table: load_jobs(db, workflow)?,
        scheduler_targets: places,
        held,
        by,
    };
    match wanted {
        PendingCommand::Orders(orders) => active.execute_batch(orders),
        PendingCommand::Settle { decision, agreed } => active.settle_decision(*decision, *agreed),
        PendingCommand::Undo { batch, agent } => active.undo_batch(*batch, agent.as_deref()),
    }
}

/// Applies commands to one workflow.
struct FailureCommandExecutor<'a, D> {
    db: &'a D,
    row: &'a WorkflowRow,
    table: LoadedJobs,
    scheduler_targets: SchedulerTargets,
    /// Loaded only if jobs are held.
    held: OnceCell<BlockingDependents>,
    by: AuditContext<'a>,
}

/// A job named in a command, in its current state.
struct NamedJob {
    index: u32,
    status: JobStatus,
    attempt: Attempt,
    requested: RequestedResources,
    command: String,
    priority: i32,
    scheduler: Option<SlurmScheduler>,
    agent_retries: u32,
    log_excerpt: String,
}

/// The author of commands.
#[derive(Clone, Copy, Default)]
struct CommandSource {
    is_agent: bool,
    /// The evidence was checked against the full log.
    has_full_log: bool,
}

/// Rows to write after all commands were decided.
#[derive(Default)]
struct AcceptedCommands<'o> {
    /// Job indices and their commands.
    job_commands: Vec<(u32, FailureCommandKind)>,
    revisions: Vec<PlannedRevision>,
    decisions: Vec<DecidedCommand<'o>>,
}

struct PlannedRevision {
    job: JobId,
    from: JobStatus,
    reason: String,
    before: JobPatch,
    after: JobPatch,
}

/// Properties of a revision.
#[derive(Clone, Copy)]
struct RevisionBatch<'a> {
    batch: i64,
    author: &'a str,
}

struct DecidedCommand<'o> {
    command: &'o FailureCommand,
    attempt: Attempt,
    state: DecisionState,
}

impl<D: SqlConnection> FailureCommandExecutor<'_, D> {
    fn execute_batch(&self, orders: &FailureCommandBatch) -> Result<Vec<FailureCommandOutcome>, SqlError> {
        let mut accepted = AcceptedCommands::default();
        let mut outcomes = Vec::with_capacity(orders.orders.len());
        let mut named = FxHashSet::default();
        for order in &orders.orders {
            let is_first = named.insert(order.job);
            let source =
                CommandSource { is_agent: orders.agent.is_some(), has_full_log: orders.is_looked_up };
            outcomes.push(self.decide_command(order, source, is_first, &mut accepted)?);
        }
        if !orders.dry_run {
            self.write_accepted(&accepted, orders.agent.as_deref(), true)?;
        }
        Ok(outcomes)
    }

    /// Returns the result of one command and adds its rows to `accepted`.
    fn decide_command<'o>(
        &self,
        order: &'o FailureCommand,
        source: CommandSource,
        is_first: bool,
        accepted: &mut AcceptedCommands<'o>,
    ) -> Result<FailureCommandOutcome, SqlError> {
        let outcome = |answer, words| FailureCommandOutcome {
            job: order.job,
            kind: order.kind,
            answer,
            words,
            status: None,
            attempt: None,
        };
        let Some(named) = self.find_named_job(order.job)? else {
            let words = format!("workflow {} has no job {}", self.row.id, order.job);
            return Ok(outcome(FailureCommandStatus::Refused, words));
        };
        let stands = |outcome| FailureCommandOutcome {
            status: Some(named.status),
            attempt: Some(named.attempt),
            ..outcome
        };
        if !is_first {
            return Ok(stands(outcome(FailureCommandStatus::Refused, "the job is named twice".to_owned())));
        }
        let decided = |state| DecidedCommand { command: order, attempt: named.attempt, state };
        let schedulers = self.scheduler_targets.schedulers();
        let said = Some(&*named.log_excerpt).filter(|_| !source.has_full_log);
        let case = CommandTarget { log_tail: said, ..named.failed_job() };
        Ok(stands(match decide_command(order, source.is_agent, &self.command_settings(&schedulers), &case) {
            CommandDecision::Refused(words) => outcome(FailureCommandStatus::Refused, words),
            CommandDecision::Accepted { .. }
                if let Some(words) = self.find_blocking_worker(named.index, order.kind)? =>
            {
                outcome(FailureCommandStatus::Refused, words)
            }
            CommandDecision::Proposed(words) => {
                accepted.decisions.push(decided(DecisionState::Proposed));
                outcome(FailureCommandStatus::Proposed, words)
            }
            CommandDecision::Accepted { message: words, patch: revision } => {
                accepted.job_commands.push((named.index, order.kind));
                if order.kind != FailureCommandKind::Change {
                    accepted.decisions.push(decided(DecisionState::Done));
                }
                if let Some(place) = revision.as_ref().and_then(|revision| revision.1.place.as_ref()) {
                    self.scheduler_targets.add_planned_scheduler(place);
                }
                accepted.revisions.extend(revision.map(|revision| PlannedRevision {
                    job: order.job,
                    from: named.status,
                    reason: order.reason.clone(),
                    before: revision.0,
                    after: revision.1,
                }));
                outcome(FailureCommandStatus::Done, words)
            }
        }))
    }

    /// Returns why the command cannot be applied while a dependent of the job is held by a worker.
    fn find_blocking_worker(&self, job: u32, kind: FailureCommandKind) -> Result<Option<String>, SqlError> {
        if self.row.counts.active() == 0 {
            return Ok(None);
        }
        if self.held.get().is_none() {
            let held = BlockingDependents::new(&self.table.edges, &self.table.status);
            let held = held.map_err(|cycle| SqlError::damage(cycle.to_string()))?;
            self.held.set(held).ok();
        }
        let holder = self.held.get().and_then(|held| held.blocking_job(job, kind));
        let Some(holder) = holder else { return Ok(None) };
        let (id, status) = (self.table.ids[holder as usize], self.table.status[holder as usize]);
        let name: String = self.db.query_one(sql::JOB_NAME, [id.0], |row| row.get(0))?;
        Ok(Some(format!(
            "`{name}`, a dependent that would restart, is `{status}`: repeat the command when it has ended"
        )))
    }

    fn command_settings<'s>(&self, schedulers: &'s [SlurmScheduler]) -> CommandSettings<'s> {
        let settings = &self.row.settings;
        CommandSettings {
            uses_pending_failed: settings.use_pending_failed,
            policy: settings.triage.unwrap_or_default(),
            schedulers,
        }
    }

    fn find_named_job(&self, job: JobId) -> Result<Option<NamedJob>, SqlError> {
        let (run, found) = (self.row.run_id, self.table.ids.binary_search(&job).ok());
        let Some(index) = found else { return Ok(None) };
        let found = self.db.query_optional(sql::JOB_FOR_COMMAND, [job.0, self.row.id.0], |row| {
            let by = match row.get::<Option<i64>>(2)? {
                Some(id) => ResourceSource::Row(RequirementsId(id)),
                None => ResourceSource::Nothing,
            };
            let resources = self.table.requirements[self.table.class[index] as usize];
            Ok(NamedJob {
                index: index as u32,
                status: column_decoding::read_status(row, 0)?,
                attempt: Attempt(row.get(1)?),
                requested: RequestedResources { resources, by },
                command: row.get(3)?,
                priority: row.get(4)?,
                scheduler: row.get::<Option<i64>>(5)?.and_then(|id| self.scheduler_targets.scheduler(id)),
                agent_retries: 0,
                log_excerpt: String::new(),
            })
        })?;
        let Some(mut named) = found else { return Ok(None) };
        let retries: i64 = self.db.query_one(sql::AGENT_RETRIES, [job.0, run.0], |row| row.get(0))?;
        named.agent_retries = u32::try_from(retries).unwrap_or(u32::MAX);
        let attempt = i64::from(named.attempt.0);
        let said = self.db.query_optional(sql::FAILURE_LOG_EXCERPT, [job.0, run.0, attempt], |row| {
            Ok(format!("{}\n{}", row.get::<String>(0)?, row.get::<String>(1)?))
        })?;
        named.log_excerpt = said.unwrap_or_default();
        Ok(Some(named))
    }

    /// Writes what was accepted; `agent` is the author, unless it is the actor. Without `notes_decisions` the
    /// decisions exist.
    fn write_accepted(
        &self,
        accepted: &AcceptedCommands<'_>,
        agent: Option<&str>,
        notes_decisions: bool,
    ) -> Result<(), SqlError> {
        let (workflow, run) = (self.row.id, self.row.run_id);
        self.apply_revisions(&accepted.revisions, agent.unwrap_or(self.by.actor))?;
        if notes_decisions {
            self.record_decisions(&accepted.decisions, agent)?;
        }
        let has_state_changes =
            accepted.job_commands.iter().any(|(_, kind)| *kind != FailureCommandKind::Change);
        if has_state_changes {
            let changes = self.plan_changes(&accepted.job_commands)?;
            apply_batch(self.db, &ChangeBatch { workflow, run, changes: changes.into() }, self.by.actor)?;
            self.reopen_run()?;
        }
        close_obsolete_proposals(self.db, workflow, self.by)?;
        self.record_event(accepted, agent)
    }

    fn plan_changes(&self, chosen: &[(u32, FailureCommandKind)]) -> Result<Vec<WorkflowChange>, SqlError> {
        let (workflow, run) = (self.row.id, self.row.run_id);
        let done = load_attempts_done(self.db, workflow, run)?;
        plan_commands(workflow, run, &self.table, chosen, &done).map_err(|why| match why {
            CommandPlanError::Held(_) => {
                StoreError::StillActive { workflow, held: self.row.counts.active() }.into()
            }
            CommandPlanError::Cycle(cycle) => SqlError::damage(cycle.to_string()),
        })
    }

    /// Otherwise ready jobs in a run that has ended would never be scheduled.
    fn reopen_run(&self) -> Result<(), SqlError> {
        let row = self.row;
        let is_over = row.ended_at.is_some() || row.is_canceled;
        let counts = runs::load_status_counts(self.db, row.id)?;
        if is_over && counts.settled() < counts.total() {
            self.db.execute(sql::END_CANCEL_REQUEST, [0, row.id.0])?;
            runs::begin_run(self.db, row.id, self.by)?;
        }
        Ok(())
    }

    fn apply_revisions(&self, revisions: &[PlannedRevision], author: &str) -> Result<(), SqlError> {
        if revisions.is_empty() {
            return Ok(());
        }
        let workflow = self.row.id;
        let batch: i64 = self.db.query_one(sql::LAST_BATCH, [workflow.0], |row| row.get(0))?;
        let job_group = |revised: &PlannedRevision| {
            let place = revised.after.place.as_ref();
            place
                .map(|place| self.scheduler_targets.group_for_target(self.db, revised.job, place))
                .transpose()
        };
        let job_groups = revisions.iter().map(job_group).collect::<Result<Vec<_>, _>>()?;
        let sent = self.db.pipeline(|pipe| {
            for (number, (revised, job_group)) in revisions.iter().zip(&job_groups).enumerate() {
                self.send_revision(pipe, number, RevisionBatch { batch: batch + 1, author }, revised)?;
                if let Some(job_group) = job_group {
                    pipe.send(number, sql::SET_JOB_GROUP, &values![*job_group, revised.job.0])?;
                }
            }
            Ok(())
        });
        match sent {
            Err(SqlError::NoRowAffected(number)) => {
                let job = revisions[number].job;
                Err(SqlError::damage(format!("job {job} was changed concurrently")))
            }
            other => other,
        }
    }

    fn send_revision(
        &self,
        pipe: &mut dyn StatementPipeline,
        number: usize,
        made: RevisionBatch<'_>,
        revised: &PlannedRevision,
    ) -> Result<(), SqlError> {
        let PlannedRevision { job, from, reason, before, after } = revised;
        let workflow = self.row.id;
        let values = values![after.command, after.priority, job.0, workflow.0, from.code()];
        pipe.send(number, sql::REVISE_JOB, &values)?;
        match after.asked.map(|asked| (asked.by, asked.resources)) {
            Some((ResourceSource::Itself, resources)) => {
                set_job_resources(pipe, number, workflow, *job, &resources)?;
            }
            Some((ResourceSource::Row(row), _)) => {
                pipe.send(number, sql::SET_JOB_REQUIREMENTS, &values![Some(row.0), job.0])?;
            }
            Some((ResourceSource::Nothing, _)) => {
                pipe.send(number, sql::SET_JOB_REQUIREMENTS, &values![None::<i64>, job.0])?;
            }
            None => {}
        }
        let (before, after) = (column_decoding::render_json(before)?, column_decoding::render_json(after)?);
        let RevisionBatch { batch, author } = made;
        let values = values![batch, workflow.0, job.0, self.by.now.0, author, reason, before, after];
        pipe.send(number, sql::INSERT_REVISION, &values)
    }

    fn record_decisions(
        &self,
        decisions: &[DecidedCommand<'_>],
        agent: Option<&str>,
    ) -> Result<(), SqlError> {
        let by = agent.unwrap_or(self.by.actor);
        let mut new = Vec::new();
        for decided in decisions {
            if decided.state != DecisionState::Proposed || self.replace_earlier_proposal(decided, by)? {
                new.push(decided);
            }
        }
        self.db.pipeline(|pipe| {
            for (number, DecidedCommand { command: order, attempt, state }) in new.into_iter().enumerate() {
                let evidence = column_decoding::render_json(&order.evidence)?;
                let changes = column_decoding::render_json(&order.changes)?;
                let values = values![
                    self.row.id.0,
                    order.job.0,
                    self.row.run_id.0,
                    attempt.0,
                    self.by.now.0,
                    by,
                    i64::from(agent.is_some()),
                    order.kind.as_str(),
                    order.confidence,
                    order.reason,
                    evidence,
                    changes,
                    state.as_str()
                ];
                pipe.send(number, sql::INSERT_DECISION, &values)?;
            }
            Ok(())
        })
    }

    /// Only the last proposal of an author counts; a repeated one is not recorded again. Returns whether to
    /// record it.
    fn replace_earlier_proposal(&self, decided: &DecidedCommand<'_>, by: &str) -> Result<bool, SqlError> {
        let DecidedCommand { command: order, attempt, .. } = decided;
        let changes = column_decoding::render_json(&order.changes)?;
        let (job, run) = (order.job.0, self.row.run_id.0);
        let same = values![job, run, attempt.0, by, order.kind.as_str(), changes];
        let known = self.db.query_optional(sql::FIND_SAME_PROPOSAL, same, |row| row.get::<Option<f64>>(0))?;
        if known == Some(order.confidence) {
            return Ok(false);
        }
        self.db.execute(sql::CLOSE_EARLIER_PROPOSALS, values![self.by.now.0, job, by])?;
        Ok(true)
    }

    /// Records one event for all commands of a batch.
    fn record_event(&self, accepted: &AcceptedCommands<'_>, agent: Option<&str>) -> Result<(), SqlError> {
        let mut parts = Vec::new();
        for kind in FailureCommandKind::ALL {
            let n = accepted.job_commands.iter().filter(|(_, given)| *given == kind).count();
            if n > 0 {
                parts.push(format!("{kind} {n}"));
            }
        }
        let proposed = accepted.decisions.iter().filter(|d| d.state == DecisionState::Proposed).count();
        if proposed > 0 {
            parts.push(format!("{proposed} proposed for approval"));
        }
        if parts.is_empty() {
            return Ok(());
        }
        let reason = accepted.decisions.first().map(|decided| decided.command.reason.as_str());
        let reason = reason.or(accepted.revisions.first().map(|revised| revised.reason.as_str()));
        let reason = reason.filter(|reason| !reason.is_empty());
        let who = agent.map(|agent| format!(" by agent `{agent}`")).unwrap_or_default();
        let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = format!("failure commands{who}: {}{why}", parts.join(", "));
        let told = json!({ "agent": agent, "jobs": accepted.job_commands.len(), "reason": reason });
        self.by.record_event(self.db, self.row.id, "orders", message, told)
    }

    fn settle_decision(&self, decision: i64, agreed: bool) -> Result<Vec<FailureCommandOutcome>, SqlError> {
        let state = Some(DecisionState::Proposed);
        let filter = DecisionFilter { id: Some(decision), state, ..DecisionFilter::default() };
        let Some(row) = list_decisions(self.db, self.row.id, &filter)?.pop() else {
            let what = format!("decision {decision}: no open proposal with this number");
            return Err(StoreError::OutOfRange { what }.into());
        };
        if let Some(named) = self.find_named_job(row.job_id)?
            && (self.row.run_id, named.attempt, named.status)
                != (row.run_id, row.attempt_id, JobStatus::PendingFailed)
        {
            close_obsolete_proposals(self.db, self.row.id, self.by)?;
            return Ok(vec![overtaken_result(&row, &named)]);
        }
        let order = command_of_decision(&row);
        let mut accepted = AcceptedCommands::default();
        let outcome = if agreed {
            self.decide_command(&order, CommandSource::default(), true, &mut accepted)?
        } else {
            let answer = FailureCommandStatus::Done;
            let words = "declined; the job keeps waiting".to_owned();
            FailureCommandOutcome {
                job: order.job,
                kind: order.kind,
                answer,
                words,
                status: None,
                attempt: None,
            }
        };
        if agreed && outcome.answer != FailureCommandStatus::Done {
            return Ok(vec![outcome]);
        }
        let state = if agreed { DecisionState::Done } else { DecisionState::Declined };
        let values = values![state.as_str(), self.by.actor, self.by.now.0, decision, self.row.id.0];
        self.db.execute(sql::SETTLE_DECISION, values)?;
        self.write_accepted(&accepted, None, false)?;
        Ok(vec![outcome])
    }

    /// Reverts a revision job by job, except where a value was changed again or the job has run with it.
    fn undo_batch(&self, batch: i64, agent: Option<&str>) -> Result<Vec<FailureCommandOutcome>, SqlError> {
        let mut rows =
            list_revisions(self.db, self.row.id, RevisionFilter { batch: Some(batch), job: None })?;
        let there_were = !rows.is_empty();
        rows.retain(|row| row.undone_at.is_none());
        if rows.is_empty() {
            let why = if there_were { "it is already undone" } else { "it does not exist" };
            return Err(StoreError::OutOfRange { what: format!("revision {batch}: {why}") }.into());
        }
        let by = agent.unwrap_or(self.by.actor);
        let mut accepted = AcceptedCommands::default();
        let mut outcomes = Vec::new();
        for row in &rows {
            let Some(named) = self.find_named_job(row.job_id)? else { continue };
            let undoing = PatchUndo { before: &row.before, after: &row.after, has_run: row.has_run };
            let (answer, words) = match plan_undo(&undoing, &named.failed_job()) {
                Ok(words) => {
                    accepted.job_commands.push((named.index, FailureCommandKind::Change));
                    accepted.revisions.push(self.plan_undo(row)?);
                    self.db.execute(sql::UNDO_REVISION, values![self.by.now.0, by, row.id])?;
                    (FailureCommandStatus::Done, words)
                }
                Err(words) => (FailureCommandStatus::Refused, words),
            };
            let (status, attempt) = (Some(named.status), Some(named.attempt));
            outcomes.push(FailureCommandOutcome {
                job: row.job_id,
                kind: FailureCommandKind::Change,
                answer,
                words,
                status,
                attempt,
            });
        }
        self.write_accepted(&accepted, agent, true)?;
        Ok(outcomes)
    }

    fn plan_undo(&self, row: &JobRevisionRow) -> Result<PlannedRevision, SqlError> {
        let mut after = row.before.clone();
        if let Some(asked) = &mut after.asked {
            // The shared requirements may have been changed or deleted since.
            let shared = match asked.by {
                ResourceSource::Row(id) => {
                    workflow_parts::find_requirements(self.db, id)?.map(|(_, row)| row.resources)
                }
                ResourceSource::Nothing | ResourceSource::Itself => Some(asked.resources),
            };
            if shared != Some(asked.resources) {
                asked.by = ResourceSource::Itself;
            }
        }
        Ok(PlannedRevision {
            job: row.job_id,
            from: row.job_status,
            reason: format!("undid revision {}", row.batch),
            before: row.after.clone(),
            after,
        })
    }
}

impl NamedJob {
    fn failed_job(&self) -> CommandTarget<'_> {
        CommandTarget {
            status: self.status,
            asked: self.requested,
            command: &self.command,
            priority: self.priority,
            scheduler: self.scheduler.as_ref(),
            agent_retries: self.agent_retries,
            log_tail: Some(&self.log_excerpt),
        }
    }
}

/// Closes proposals about failures that are no longer open.
pub(crate) fn close_obsolete_proposals(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let waits = i64::from(JobStatus::PendingFailed.code());
    db.execute(sql::CLOSE_OVERTAKEN_PROPOSALS, [by.now.0, workflow.0, waits])?;
    Ok(())
}

fn overtaken_result(row: &DecisionRow, named: &NamedJob) -> FailureCommandOutcome {
    FailureCommandOutcome {
        job: row.job_id,
        kind: row.kind,
        answer: FailureCommandStatus::Refused,
        words: format!(
            "the proposal is about attempt {} of run {}, and the job has continued since: it is `{}`, in attempt {}",
            row.attempt_id, row.run_id, named.status, named.attempt
        ),
        status: Some(named.status),
        attempt: Some(named.attempt),
    }
}

fn command_of_decision(row: &DecisionRow) -> FailureCommand {
    FailureCommand {
        job: row.job_id,
        kind: row.kind,
        changes: row.changes.clone(),
        reason: row.reason.clone(),
        confidence: row.confidence,
        evidence: row.evidence.clone(),
    }
}

/// Returns for each job with a result in a run its last attempt.
fn load_attempts_done(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    run: RunId,
) -> Result<FxHashMap<JobId, Attempt>, SqlError> {
    let pairs = db.query_all(sql::ATTEMPTS_DONE, [workflow.0, run.0], |row| {
        Ok((JobId(row.get(0)?), Attempt(row.get(1)?)))
    })?;
    Ok(pairs.into_iter().collect())
}
