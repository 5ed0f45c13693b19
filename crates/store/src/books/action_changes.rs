//! What happens to actions: that they were set off, that somebody carries them out, how that ended, and when they begin
//! anew.

use super::apply::find_job;
use super::manage::By;
use super::{events, parts};
use crate::Error;
use crate::db::{Db, Pipeline, values};
use crate::error::Fault;
use crate::model::{ActionRow, CLAIMED, NewEvent, Severity};
use crate::sql::server as sql;
use serde_json::json;
use windlass_core::actions::is_rearmed;
use windlass_core::change::{ActionChange, Change};
use windlass_types::{JobStatus, RunId, StatusCounts, WorkerId, WorkflowId};

pub(crate) fn send(
    pipe: &mut dyn Pipeline,
    number: usize,
    workflow: WorkflowId,
    run: RunId,
    change: &ActionChange,
) -> Result<(), Fault> {
    let id = |worker: Option<WorkerId>| worker.map(|worker| worker.0);
    match *change {
        ActionChange::Started { action, attempt, worker, trigger, at } => {
            let values = values![action, attempt.0, run.0, id(worker), trigger.name(), at.0, None::<i64>];
            pipe.send(number, sql::START_ACTION, &values)
        }
        ActionChange::Claimed { action, attempt, worker, at } => {
            let values = values![action, attempt.0, run.0, id(worker), CLAIMED, at.0, at.0];
            pipe.send(number, sql::START_ACTION, &values)
        }
        ActionChange::Triggered { action, from, to, .. } => {
            let values = values![i64::from(to), action, workflow.0, i64::from(from)];
            pipe.send(number, sql::TRIGGER_ACTION, &values)
        }
        ActionChange::Ended { action, attempt, at, return_code, ref message } => {
            let values = values![at.0, return_code, message, action, attempt.0];
            pipe.send(number, sql::END_ACTION, &values)
        }
        ActionChange::Withdrawn { action, attempt } => {
            pipe.send(number, sql::WITHDRAW_ACTION, &values![action, attempt.0])
        }
    }
}

/// What the change found otherwise than it expected.
pub(crate) fn conflict(change: &Change) -> Fault {
    let Change::Action(change) = change else {
        return Error::OutOfRange { what: format!("{change:?}") }.into();
    };
    let (id, what) = match *change {
        ActionChange::Triggered { action, from, .. } => {
            (action, format!("what it waits for has not happened {from} times"))
        }
        ActionChange::Started { action, attempt, .. } | ActionChange::Claimed { action, attempt, .. } => {
            (action, format!("its execution {attempt} has begun before"))
        }
        ActionChange::Ended { action, attempt, .. } | ActionChange::Withdrawn { action, attempt } => {
            (action, format!("its execution {attempt} is not under way"))
        }
    };
    Error::Action { id, what }.into()
}

/// Notes all that is told of actions.
pub(crate) fn note(db: &impl Db, workflow: WorkflowId, changes: &[Change], by: By<'_>) -> Result<(), Fault> {
    for change in changes {
        if let Change::Action(change) = change
            && let Some(event) = told(workflow, change)
        {
            events::note(db, by.actor, &event, by.now)?;
        }
    }
    Ok(())
}

fn told(workflow: WorkflowId, change: &ActionChange) -> Option<NewEvent> {
    let event = |severity, category: &str, message, data| {
        let (category, data) = (category.to_owned(), Some(data));
        Some(NewEvent { workflow: Some(workflow), job: None, severity, category, message, data })
    };
    match change {
        ActionChange::Triggered { is_due: false, .. } => None,
        ActionChange::Triggered { action, .. } => {
            let message = format!("action {action}: what it waits for has happened");
            event(Severity::Info, "action_triggered", message, json!({ "action_id": action }))
        }
        ActionChange::Started { action, attempt, worker, trigger, .. } => {
            let data = json!({
                "action_id": action, "attempt_id": attempt, "compute_node_id": worker,
                "trigger_type": trigger.name(),
            });
            let message = format!("action {action} begins ({})", trigger.name());
            event(Severity::Info, "action_started", message, data)
        }
        ActionChange::Claimed { action, attempt, worker, .. } => {
            let data = json!({ "action_id": action, "attempt_id": attempt, "compute_node_id": worker });
            let message = format!("action {action} was taken by a client that carries it out itself");
            event(Severity::Info, "action_claimed", message, data)
        }
        ActionChange::Withdrawn { action, attempt } => {
            let data = json!({ "action_id": action, "attempt_id": attempt });
            let message = format!("action {action} has not begun: its worker left before it heard of it");
            event(Severity::Info, "action_withdrawn", message, data)
        }
        ActionChange::Ended { action, attempt, return_code, message, .. } => {
            let data = json!({
                "action_id": action, "attempt_id": attempt, "return_code": return_code, "message": message,
            });
            if *return_code == Some(0) {
                return event(Severity::Info, "action_completed", format!("action {action} is done"), data);
            }
            let why = message.as_deref().unwrap_or("nobody knows why");
            event(Severity::Error, "action_failed", format!("action {action} failed: {why}"), data)
        }
    }
}

/// A new run begins, and its jobs are as they are to be: which actions begin anew? Those of a recovery have had their day.
pub(crate) fn rearm_for_run(
    db: &impl Db,
    workflow: WorkflowId,
    counts: &StatusCounts,
    by: By<'_>,
) -> Result<(), Fault> {
    let to_do = counts.total() - counts.get(JobStatus::Disabled);
    rearm(db, workflow, counts.get(JobStatus::Uninitialized) == to_do, by)
}

/// `everything`: no job keeps what it did.
pub(crate) fn rearm(db: &impl Db, workflow: WorkflowId, everything: bool, by: By<'_>) -> Result<(), Fault> {
    for action in parts::actions(db, workflow)? {
        if action.is_recovery {
            super::one_by_one::delete_action(db, action.id, by)?;
        } else if is_rearmed(action.action.trigger_type, everything, gates_settled(db, workflow, &action)?) {
            db.execute(sql::RESET_ACTION, [action.id])?;
            db.execute(sql::REARM_ACTION, [action.id])?;
        }
    }
    Ok(())
}

fn gates_settled(db: &impl Db, workflow: WorkflowId, action: &ActionRow) -> Result<bool, Fault> {
    for job in &action.jobs {
        let found = find_job(db, workflow, *job)?;
        if !found.is_some_and(|found| found.status.is_settled()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One that was carried out is to be so once more.
pub(crate) fn retry(db: &impl Db, workflow: WorkflowId, id: i64, by: By<'_>) -> Result<(), Fault> {
    let found = parts::actions(db, workflow)?.into_iter().find(|action| action.id == id);
    let action = found.ok_or(Error::NoSuch { what: "action".into(), id })?;
    if !action.runs.iter().any(|run| run.attempt.0 > action.armed_after) {
        return Err(Error::Action { id, what: "it was not carried out yet".into() }.into());
    }
    if action.runs.iter().any(|run| run.ended_at.is_none()) {
        return Err(Error::Action { id, what: "an execution of it is under way".into() }.into());
    }
    db.execute(sql::REARM_ACTION, [id])?;
    by.note(
        db,
        workflow,
        "action",
        format!("action {id} is to be carried out again"),
        json!({ "action_id": id }),
    )
}
