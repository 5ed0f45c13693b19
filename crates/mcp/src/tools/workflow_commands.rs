//! Tools that start, end or repeat work; they require confirmation.

use super::ToolResult;
use crate::agent_session::{AgentSession, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use windlass_insight::failure_commands::{describe_barred_jobs, jobs_barred_to_agents};
use windlass_store::model::WorkflowRow;
use windlass_types::WorkflowId;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfirmedWorkflowInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Must be true. Ask your user first, and explain what will happen.
    #[serde(default)]
    confirm: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetWorkflowInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Only jobs that did not complete (including those that wait for a decision). Default: all jobs that ran,
    /// also completed ones.
    #[serde(default)]
    failed_only: bool,
    /// Must be true. Ask your user first, and explain what will happen.
    #[serde(default)]
    confirm: bool,
}

pub(super) fn run_workflow(session: &AgentSession, args: &ConfirmedWorkflowInput) -> ToolResult {
    let row = check_confirmed(session, args.workflow_id, args.confirm, |row| {
        format!(
            "run workflow {} ({}): up to {} jobs start as programs",
            row.id,
            row.name,
            row.counts.total() - row.counts.settled()
        )
    })?;
    session.actions.start_workflow(row)
}

pub(super) fn cancel_workflow(session: &AgentSession, args: &ConfirmedWorkflowInput) -> ToolResult {
    let row = check_confirmed(session, args.workflow_id, args.confirm, |row| {
        format!(
            "cancel workflow {} ({}): its {} active jobs are killed",
            row.id,
            row.name,
            row.counts.active()
        )
    })?;
    session.actions.cancel_workflow(row)
}

pub(super) fn reset_workflow(session: &AgentSession, args: &ResetWorkflowInput) -> ToolResult {
    let which = if args.failed_only { "the jobs that did not complete" } else { "all jobs that ran" };
    let row = check_confirmed(session, args.workflow_id, args.confirm, |row| {
        format!("reset workflow {} ({}): {which} and their dependents run again", row.id, row.name)
    })?;
    let kept = jobs_barred_to_agents(&*session.store, &session.load_workflow(args.workflow_id)?)?;
    if let Some(why) = describe_barred_jobs(&kept) {
        return Err(ToolError::new(why).with_hint(
            "use classify_and_resolve_failures for jobs that wait for a decision; ask your user to rerun the others",
        ));
    }
    session.actions.reset_workflow(row, args.failed_only)
}

/// Returns the workflow if the command is confirmed.
pub(super) fn check_confirmed(
    session: &AgentSession,
    id: i64,
    confirm: bool,
    what: impl Fn(&WorkflowRow) -> String,
) -> Result<WorkflowId, ToolError> {
    let row = session.load_workflow(id)?;
    if confirm {
        return Ok(row.id);
    }
    Err(ToolError::new(format!("nothing was done. This would {}.", what(&row)))
        .with_hint("ask your user; with their approval call this again with confirm: true"))
}
