//! Changes of actions: triggered, started, claimed, ended, rearmed.

use super::apply_changes::find_job_state;
use super::workflow_updates::AuditContext;
use super::{events, queries, workflow_parts};
use crate::StoreError;
use crate::db::{SqlConnection, StatementPipeline, values};
use crate::error::SqlError;
use crate::model::{ActionRow, CLAIM_CAUSE, EventSeverity, NewEvent};
use crate::sql::workers_and_parts as sql;
use serde_json::json;
use windlass_core::actions::is_rearmed;
use windlass_core::change::{ActionChange, WorkflowChange};
use windlass_types::{JobStatus, RunId, StatusCounts, WorkerId, WorkflowId};

pub(crate) fn send_action_change(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    workflow: WorkflowId,
    run: RunId,
    change: &ActionChange,
) -> Result<(), SqlError> {
    let id = |worker: Option<WorkerId>| worker.map(|worker| worker.0);
    match *change {
        ActionChange::Started { action, attempt, worker, trigger, at } => {
            let values = values![action, attempt.0, run.0, id(worker), trigger.name(), at.0, None::<i64>];
            pipe.send(number, sql::START_ACTION, &values)
        }
        ActionChange::Claimed { action, attempt, worker, at } => {
            let values = values![action, attempt.0, run.0, id(worker), CLAIM_CAUSE, at.0, at.0];
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

/// Returns the error for a change that did not find the expected state.
pub(crate) fn conflict_error(change: &WorkflowChange) -> SqlError {
    let WorkflowChange::Action(change) = change else {
        return StoreError::OutOfRange { what: format!("{change:?}") }.into();
    };
    let (id, what) = match *change {
        ActionChange::Triggered { action, from, .. } => (action, format!("its trigger count is not {from}")),
        ActionChange::Started { action, attempt, .. } | ActionChange::Claimed { action, attempt, .. } => {
            (action, format!("its execution {attempt} has already started"))
        }
        ActionChange::Ended { action, attempt, .. } | ActionChange::Withdrawn { action, attempt } => {
            (action, format!("its execution {attempt} is not running"))
        }
    };
    StoreError::Action { id, what }.into()
}

/// Records events for all changes of actions.
pub(crate) fn record_action_events(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    changes: &[WorkflowChange],
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    for change in changes {
        if let WorkflowChange::Action(change) = change
            && let Some(event) = action_event(workflow, change)
        {
            events::insert_event(db, by.actor, &event, by.now)?;
        }
    }
    Ok(())
}

fn action_event(workflow: WorkflowId, change: &ActionChange) -> Option<NewEvent> {
    let event = |severity, category: &str, message, data| {
        let (category, data) = (category.to_owned(), Some(data));
        Some(NewEvent { workflow: Some(workflow), job: None, severity, category, message, data })
    };
    match change {
        ActionChange::Triggered { is_due: false, .. } => None,
        ActionChange::Triggered { action, .. } => {
            let message = format!("action {action} was triggered");
            event(EventSeverity::Info, "action_triggered", message, json!({ "action_id": action }))
        }
        ActionChange::Started { action, attempt, worker, trigger, .. } => {
            let data = json!({
                "action_id": action, "attempt_id": attempt, "compute_node_id": worker,
                "trigger_type": trigger.name(),
            });
            let message = format!("action {action} started ({})", trigger.name());
            event(EventSeverity::Info, "action_started", message, data)
        }
        ActionChange::Claimed { action, attempt, worker, .. } => {
            let data = json!({ "action_id": action, "attempt_id": attempt, "compute_node_id": worker });
            let message = format!("action {action} was claimed by a client, which executes it");
            event(EventSeverity::Info, "action_claimed", message, data)
        }
        ActionChange::Withdrawn { action, attempt } => {
            let data = json!({ "action_id": action, "attempt_id": attempt });
            let message = format!("action {action} did not start: its worker left before it received it");
            event(EventSeverity::Info, "action_withdrawn", message, data)
        }
        ActionChange::Ended { action, attempt, return_code, message, .. } => {
            let data = json!({
                "action_id": action, "attempt_id": attempt, "return_code": return_code, "message": message,
            });
            if *return_code == Some(0) {
                return event(
                    EventSeverity::Info,
                    "action_completed",
                    format!("action {action} completed"),
                    data,
                );
            }
            let why = message.as_deref().unwrap_or("unknown cause");
            event(EventSeverity::Error, "action_failed", format!("action {action} failed: {why}"), data)
        }
    }
}

/// Rearms actions when a new run begins, depending on the job states of the run. Recovery actions are not
/// rearmed.
pub(crate) fn rearm_actions_for_run(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    counts: &StatusCounts,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let to_do = counts.total() - counts.get(JobStatus::Disabled);
    rearm_actions(db, workflow, counts.get(JobStatus::Uninitialized) == to_do, by)
}

/// `everything`: all jobs run again.
pub(crate) fn rearm_actions(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    everything: bool,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    for action in workflow_parts::list_actions(db, workflow)? {
        if action.is_recovery {
            super::crud::delete_action(db, action.id, by)?;
        } else if is_rearmed(
            action.action.trigger_type,
            everything,
            are_trigger_jobs_settled(db, workflow, &action)?,
        ) {
            db.execute(sql::RESET_ACTION, [action.id])?;
            db.execute(sql::REARM_ACTION, [action.id])?;
        }
    }
    Ok(())
}

/// Rejected if the workflow has started: then a new run rearms them.
pub(crate) fn rearm_unstarted(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let row = queries::find_workflow(db, workflow)?.ok_or(StoreError::NoSuchWorkflow(workflow))?;
    if row.started_at.is_some() {
        let what = format!("workflow {workflow}");
        let (expected, found) = ("not started".to_owned(), "it has started".to_owned());
        return Err(StoreError::Unexpected { what, expected, found }.into());
    }
    rearm_actions(db, workflow, true, by)
}

fn are_trigger_jobs_settled(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    action: &ActionRow,
) -> Result<bool, SqlError> {
    for job in &action.jobs {
        let found = find_job_state(db, workflow, *job)?;
        if !found.is_some_and(|found| found.status.is_settled()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes an executed action run once more.
pub(crate) fn retry_action(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: i64,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let found = workflow_parts::list_actions(db, workflow)?.into_iter().find(|action| action.id == id);
    let action = found.ok_or(StoreError::NoSuch { what: "action".into(), id })?;
    if !action.runs.iter().any(|run| run.attempt.0 > action.armed_after) {
        return Err(StoreError::Action { id, what: "it has not been executed yet".into() }.into());
    }
    if action.runs.iter().any(|run| run.ended_at.is_none()) {
        return Err(StoreError::Action { id, what: "an execution of it is running".into() }.into());
    }
    db.execute(sql::REARM_ACTION, [id])?;
    by.record_event(
        db,
        workflow,
        "action",
        format!("action {id} will be executed again"),
        json!({ "action_id": id }),
    )
}
