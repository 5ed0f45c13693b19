//! `windlass workflows actions`: lists the actions of a workflow and their state.

use super::workflow_parts::{action_details, json_value, name_value, print_objects};
use crate::args::MachineArgs;
use crate::args::actions::{ActionsArgs, ActionsSubcommand, OneActionArgs};
use crate::args::workflows::ListInWorkflowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_run::{EarlierFailuresPolicy, run_locally};
use crate::object_selection;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::run_summary;
use crate::ui::table::TableColumn;
use windlass_store::Store;
use windlass_store::lock::LockScope;
use windlass_store::model::{ActionRow, CLAIM_CAUSE, WorkflowRow};

const FIELDS: &[ListField<ActionRow>] = &[
    ListField::new("id", |a: &ActionRow| a.id.into()).column(TableColumn::number("ID")),
    ListField::new("trigger_type", |a: &ActionRow| json_value(&a.action.trigger_type)),
    ListField::table_only(TableColumn::text("WHEN"), |a: &ActionRow| name_value(&a.action.trigger_type)),
    ListField::new("action_type", |a: &ActionRow| json_value(&a.action.action_type)),
    ListField::new("state", |a: &ActionRow| action_state(a).into()).column(TableColumn::text("STATE")),
    ListField::new("commands", |a: &ActionRow| json_value(&a.action.commands)),
    ListField::table_only(TableColumn::flexible("HOW"), |a: &ActionRow| action_details(a).into()),
    ListField::new("persistent", |a: &ActionRow| a.action.persistent.into()),
    ListField::new("job_ids", |a: &ActionRow| json_value(&a.jobs)),
    ListField::new("trigger_count", |a: &ActionRow| a.trigger_count.into()),
    ListField::new("required_triggers", |a: &ActionRow| a.required_triggers().into()),
    ListField::new("message", |a: &ActionRow| a.last_run().and_then(|run| run.message.as_ref()).into()),
    ListField::new("executions", |a: &ActionRow| json_value(&a.runs)),
];

/// The state in one word.
fn action_state(row: &ActionRow) -> &'static str {
    match row.last_run() {
        None if row.trigger_count < row.required_triggers() => "waiting",
        None => "due",
        Some(run) => match (run.ended_at, run.return_code) {
            (None, _) => "running",
            (Some(_), Some(0)) => "completed",
            (Some(_), Some(_)) => "failed",
            (Some(_), None) if run.cause == CLAIM_CAUSE => "claimed",
            (Some(_), None) => "interrupted",
        },
    }
}

pub(crate) fn run(ctx: &CliContext, args: &ActionsArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None => list_actions(ctx, &args.list),
        Some(ActionsSubcommand::List(args)) => list_actions(ctx, args),
        Some(ActionsSubcommand::Show(args)) => show_action(ctx, args),
        Some(ActionsSubcommand::Retry(args)) => retry_action(ctx, args),
    }
}

fn list_actions(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    print_objects(ctx, &workflow, ListFields::new(FIELDS), store.actions(workflow.id)?, &args.page)
}

fn show_action(ctx: &CliContext, args: &OneActionArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    ctx.ui.print_record(&ListFields::new(FIELDS), find_action(&*store, &workflow, args.action)?)?;
    Ok(CliExit::Success)
}

/// Resets an action, and runs it if nothing else is left to do in its workflow. On a server the workers run it.
fn retry_action(ctx: &CliContext, args: &OneActionArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let id = args.action;
    if !matches!(action_state(&find_action(&*store, &workflow, id)?), "failed" | "interrupted" | "completed")
    {
        return Err(CliError::refused(format!("action {id} has not run yet"))
            .with_hint("`windlass workflows actions` shows what it is waiting for"));
    }
    if ctx.server()?.is_some() {
        store.retry_action(workflow.id, id, ctx.clock.now())?;
        ctx.ui.print_note(&format!("action {id} will be run by the next available worker"));
        return Ok(CliExit::Success);
    }
    let lock = store.lock(LockScope::Workflow(workflow.id), ctx.clock.now())?;
    store.retry_action(workflow.id, id, ctx.clock.now())?;
    drop(lock);
    if !run_summary::is_over(&workflow) {
        let workflow = workflow.id;
        ctx.ui.print_note(&format!(
            "action {id} will run when its workflow is resumed: `windlass resume {workflow}`"
        ));
        return Ok(CliExit::Success);
    }
    run_locally(ctx, &store, workflow.id, EarlierFailuresPolicy::Keep, &MachineArgs::default())?;
    let again = find_action(&*store, &workflow, id)?;
    if action_state(&again) == "completed" {
        ctx.ui.print_note(&format!("action {id} completed"));
        return Ok(CliExit::Success);
    }
    let why = again.last_run().and_then(|run| run.message.clone()).unwrap_or_default();
    Err(CliError::refused(format!("action {id} is {}: {why}", action_state(&again))))
}

fn find_action(store: &dyn Store, workflow: &WorkflowRow, id: i64) -> Result<ActionRow, CliError> {
    let found = store.actions(workflow.id)?.into_iter().find(|action| action.id == id);
    found.ok_or_else(|| {
        CliError::user(format!("workflow {} ({}) has no action {id}", workflow.id, workflow.name))
            .with_hint("`windlass workflows actions` lists them; -w names another workflow")
    })
}
