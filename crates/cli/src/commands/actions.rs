//! `windlass actions`: what is done around the jobs of a workflow, and how it went.

use super::parts::{how, json, print, word};
use crate::args::MachineArgs;
use crate::args::actions::{ActionArgs, ActionsArgs, ActionsVerb};
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing};
use crate::ui::summary;
use crate::ui::table::Column;
use windlass_store::Store;
use windlass_store::lock::Lock;
use windlass_store::model::{ActionRow, CLAIMED, WorkflowRow};

const FIELDS: &[Field<ActionRow>] = &[
    Field::new("id", |a: &ActionRow| a.id.into()).column(Column::number("ID")),
    Field::new("trigger_type", |a: &ActionRow| json(&a.action.trigger_type)),
    Field::shown(Column::text("WHEN"), |a: &ActionRow| word(&a.action.trigger_type)),
    Field::new("action_type", |a: &ActionRow| json(&a.action.action_type)),
    Field::new("state", |a: &ActionRow| state(a).into()).column(Column::text("STATE")),
    Field::new("commands", |a: &ActionRow| json(&a.action.commands)),
    Field::shown(Column::elastic("HOW"), |a: &ActionRow| how(a).into()),
    Field::new("persistent", |a: &ActionRow| a.action.persistent.into()),
    Field::new("job_ids", |a: &ActionRow| json(&a.jobs)),
    Field::new("trigger_count", |a: &ActionRow| a.trigger_count.into()),
    Field::new("required_triggers", |a: &ActionRow| a.required_triggers().into()),
    Field::new("message", |a: &ActionRow| a.last_run().and_then(|run| run.message.as_ref()).into()),
    Field::new("executions", |a: &ActionRow| json(&a.runs)),
];

/// Where it stands, in a word.
fn state(row: &ActionRow) -> &'static str {
    match row.last_run() {
        None if row.trigger_count < row.required_triggers() => "waiting",
        None => "due",
        Some(run) => match (run.ended_at, run.return_code) {
            (None, _) => "running",
            (Some(_), Some(0)) => "completed",
            (Some(_), Some(_)) => "failed",
            (Some(_), None) if run.cause == CLAIMED => "claimed",
            (Some(_), None) => "interrupted",
        },
    }
}

pub(crate) fn run(ctx: &Context, args: &ActionsArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, &args.list),
        Some(ActionsVerb::List(args)) => list(ctx, args),
        Some(ActionsVerb::Show(args)) => show(ctx, args),
        Some(ActionsVerb::Retry(args)) => retry(ctx, args),
    }
}

fn list(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    print(ctx, &workflow, Listing::new(FIELDS), store.actions(workflow.id)?, &args.page)
}

fn show(ctx: &Context, args: &ActionArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    ctx.ui.print_record(&Listing::new(FIELDS), find(&*store, &workflow, args.action)?)?;
    Ok(Exit::Success)
}

/// Arms it anew, and carries it out if nothing else is left to do in its workflow. At a server workers do that.
fn retry(ctx: &Context, args: &ActionArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let id = args.action;
    if !matches!(state(&find(&*store, &workflow, id)?), "failed" | "interrupted" | "completed") {
        return Err(CliError::refused(format!("action {id} was not carried out yet"))
            .with_hint("`windlass actions` shows what it waits for"));
    }
    if ctx.server()?.is_some() {
        store.retry_action(workflow.id, id, ctx.clock.now())?;
        ctx.ui.note(&format!("action {id} is carried out by the next worker that is there"));
        return Ok(Exit::Success);
    }
    let lock = store.lock(Lock::Workflow(workflow.id), ctx.clock.now())?;
    store.retry_action(workflow.id, id, ctx.clock.now())?;
    drop(lock);
    if !summary::is_over(&workflow) {
        let workflow = workflow.id;
        ctx.ui.note(&format!(
            "action {id} is carried out when its workflow goes on: `windlass resume {workflow}`"
        ));
        return Ok(Exit::Success);
    }
    drive(ctx, &*store, workflow.id, Failed::Keep, &MachineArgs::default())?;
    let again = find(&*store, &workflow, id)?;
    if state(&again) == "completed" {
        ctx.ui.note(&format!("action {id} is done"));
        return Ok(Exit::Success);
    }
    let why = again.last_run().and_then(|run| run.message.clone()).unwrap_or_default();
    Err(CliError::refused(format!("action {id} is {}: {why}", state(&again))))
}

fn find(store: &dyn Store, workflow: &WorkflowRow, id: i64) -> Result<ActionRow, CliError> {
    let found = store.actions(workflow.id)?.into_iter().find(|action| action.id == id);
    found.ok_or_else(|| {
        CliError::user(format!("workflow {} ({}) has no action {id}", workflow.id, workflow.name))
            .with_hint("`windlass actions` lists them; -w names another workflow")
    })
}
