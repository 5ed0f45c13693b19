//! `archive`, `delete` and `workflows update`: what is done to workflows that are there.

use crate::args::workflows::{ArchiveArgs, DeleteArgs, TorcArchiveArgs, UpdateWorkflowArgs};
use crate::args::{WorkflowRef, WorkflowSet};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::Field;
use crate::ui::listing::Listing;
use crate::ui::table::Column;
use crate::ui::text;
use crate::view::WorkflowView;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_store::model::{WorkflowRow, WorkflowUpdate};
use windlass_types::WorkflowId;

/// What was, or would be, done to a workflow.
struct Act {
    id: WorkflowId,
    name: String,
    done: &'static str,
}

const FIELDS: &[Field<Act>] = &[
    Field::new("workflow_id", |d: &Act| d.id.0.into()).column(Column::number("ID")),
    Field::new("name", |d: &Act| (&d.name).into()).column(Column::elastic("NAME")),
    Field::new("done", |d: &Act| d.done.into()).column(Column::text("DONE")),
];

fn report(ctx: &Context, rows: &[WorkflowRow], done: &'static str) -> Result<Exit, CliError> {
    let rows: Vec<Act> = rows.iter().map(|row| Act { id: row.id, name: row.name.clone(), done }).collect();
    ctx.ui.print_list(&Listing::new(FIELDS), rows)?;
    Ok(Exit::Success)
}

pub(crate) fn archive(ctx: &Context, args: &ArchiveArgs) -> Result<Exit, CliError> {
    set_archived(ctx, &args.workflows, !args.restore, args.dry_run)
}

pub(crate) fn torc_archive(ctx: &Context, args: &TorcArchiveArgs) -> Result<Exit, CliError> {
    set_archived(ctx, &args.workflows, args.is_archived, false)
}

fn set_archived(
    ctx: &Context,
    wanted: &[WorkflowSet],
    is_archived: bool,
    dry_run: bool,
) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let mut rows = select::workflows(&*store, wanted)?;
    rows.retain(|row| row.is_archived != is_archived);
    let done = match (dry_run, is_archived) {
        (true, true) => "would be archived",
        (true, false) => "would be restored",
        (false, true) => "archived",
        (false, false) => "restored",
    };
    if rows.is_empty() {
        ctx.ui.note("nothing to do: they are so already");
    }
    if !dry_run {
        let ids: Vec<WorkflowId> = rows.iter().map(|row| row.id).collect();
        store.archive(&ids, is_archived, ctx.clock.now())?;
    }
    report(ctx, &rows, done)
}

pub(crate) fn delete(ctx: &Context, args: &DeleteArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let rows = select::workflows(&*store, &args.workflows)?;
    if args.confirm.dry_run {
        return report(ctx, &rows, "would be deleted");
    }
    ctx.ui.confirm(&format!("delete {}", in_words(&rows)), args.confirm)?;
    for row in &rows {
        store.delete_workflow(row.id, ctx.clock.now())?;
    }
    report(ctx, &rows, "deleted")
}

/// `workflow 3 (sim, 12 jobs)`.
fn in_words(rows: &[WorkflowRow]) -> String {
    let one = |row: &WorkflowRow| {
        format!("workflow {} ({}, {})", row.id, row.name, text::count(row.counts.total(), "job"))
    };
    rows.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(crate) fn update(ctx: &Context, args: &UpdateWorkflowArgs) -> Result<Exit, CliError> {
    let update = update_of(args)?;
    if update == WorkflowUpdate::default() {
        return Err(CliError::user("nothing was said that is to change")
            .with_hint("--name, --description, --project, --metadata or --owner-user"));
    }
    let store = ctx.open_write()?;
    let row = select::workflow(&*store, &args.workflow)?;
    if args.dry_run {
        ctx.ui.note(&format!("would change workflow {} ({})", row.id, row.name));
        return Ok(Exit::Success);
    }
    store.update_workflow(row.id, &update, ctx.clock.now())?;
    let row = select::workflow(&*store, &WorkflowRef::Id(row.id))?;
    if ctx.ui.json_wanted() {
        let is_run = crate::view::is_run_by_somebody(&*store, &row);
        let view = WorkflowView::new(row, is_run, ctx.clock.now());
        ctx.ui.print_record(&Listing::new(super::workflows::FIELDS), view)?;
    } else {
        ctx.ui.note(&format!("changed workflow {} ({})", row.id, row.name));
    }
    Ok(Exit::Success)
}

/// An empty text takes away what may be absent.
fn update_of(args: &UpdateWorkflowArgs) -> Result<WorkflowUpdate, CliError> {
    let optional =
        |text: &Option<String>| text.clone().map(|text| Some(text).filter(|text| !text.is_empty()));
    if args.name.as_deref() == Some("") {
        return Err(CliError::user("a workflow needs a name"));
    }
    let metadata = args.metadata.as_deref().map(|text| {
        serde_json::from_str::<BTreeMap<String, Value>>(text)
            .map_err(|e| CliError::user(format!("--metadata is not a JSON object: {e}")))
    });
    Ok(WorkflowUpdate {
        name: args.name.clone(),
        user: args.owner_user.clone(),
        description: optional(&args.description),
        project: optional(&args.project),
        metadata: metadata.transpose()?,
    })
}
