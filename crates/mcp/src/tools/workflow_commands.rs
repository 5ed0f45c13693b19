//! What starts, ends or repeats the work of others: only with a word that says it is meant.

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
    workflow_id: i64,
    /// Must be true. Ask your user first, and say what will happen.
    #[serde(default)]
    confirm: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetWorkflowInput {
    workflow_id: i64,
    /// Only jobs that did not end well (and those that wait for a decision). Otherwise all that ran, also what completed.
    #[serde(default)]
    failed_only: bool,
    /// Must be true. Ask your user first, and say what will happen.
    #[serde(default)]
    confirm: bool,
}

pub(super) fn run_workflow(desk: &AgentSession, args: &ConfirmedWorkflowInput) -> ToolResult {
    let row = check_confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!(
            "run workflow {} ({}): up to {} jobs start as programs",
            row.id,
            row.name,
            row.counts.total() - row.counts.settled()
        )
    })?;
    desk.actions.start_workflow(row)
}

pub(super) fn cancel_workflow(desk: &AgentSession, args: &ConfirmedWorkflowInput) -> ToolResult {
    let row = check_confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!(
            "cancel workflow {} ({}): its {} active jobs are killed",
            row.id,
            row.name,
            row.counts.active()
        )
    })?;
    desk.actions.cancel_workflow(row)
}

pub(super) fn reset_workflow(desk: &AgentSession, args: &ResetWorkflowInput) -> ToolResult {
    let which = if args.failed_only { "the jobs that did not end well" } else { "all jobs that ran" };
    let row = check_confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!("reset workflow {} ({}): {which} run again, and all that was built on them", row.id, row.name)
    })?;
    let kept = jobs_barred_to_agents(&*desk.store, &desk.load_workflow(args.workflow_id)?)?;
    if let Some(why) = describe_barred_jobs(&kept) {
        return Err(ToolError::new(why).with_hint(
            "classify_and_resolve_failures decides on what waits; ask your user to have the rest run again",
        ));
    }
    desk.actions.reset_workflow(row, args.failed_only)
}

/// The workflow, if it is meant.
pub(super) fn check_confirmed(
    desk: &AgentSession,
    id: i64,
    confirm: bool,
    what: impl Fn(&WorkflowRow) -> String,
) -> Result<WorkflowId, ToolError> {
    let row = desk.load_workflow(id)?;
    if confirm {
        return Ok(row.id);
    }
    Err(ToolError::new(format!("nothing was done. This would {}.", what(&row)))
        .with_hint("ask your user; if that is wanted, call this again with confirm: true"))
}
