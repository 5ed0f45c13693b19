//! `archive`, `delete` and `workflows update`: change existing workflows.

use crate::args::workflows::{UpdateWorkflowArgs, WorkflowArchiveArgs, WorkflowDeleteArgs};
use crate::args::{WorkflowRef, WorkflowSet, WorkflowSetPart};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::ListField;
use crate::ui::listing::ListFields;
use crate::ui::table::TableColumn;
use crate::ui::text;
use crate::workflow_view::WorkflowView;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_store::model::{WorkflowRow, WorkflowUpdate};
use windlass_types::WorkflowId;

/// The change that was, or would be, made to a workflow.
struct WorkflowActionRow {
    id: WorkflowId,
    name: String,
    action: &'static str,
}

const FIELDS: &[ListField<WorkflowActionRow>] = &[
    ListField::new("workflow_id", |d: &WorkflowActionRow| d.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("name", |d: &WorkflowActionRow| (&d.name).into()).column(TableColumn::flexible("NAME")),
    ListField::new("done", |d: &WorkflowActionRow| d.action.into()).column(TableColumn::text("DONE")),
];

fn print_actions(ctx: &CliContext, rows: &[WorkflowRow], done: &'static str) -> Result<CliExit, CliError> {
    let rows: Vec<WorkflowActionRow> = rows
        .iter()
        .map(|row| WorkflowActionRow { id: row.id, name: row.name.clone(), action: done })
        .collect();
    ctx.ui.print_list(&ListFields::new(FIELDS), rows)?;
    Ok(CliExit::Success)
}

pub(crate) fn archive_workflows(ctx: &CliContext, args: &WorkflowArchiveArgs) -> Result<CliExit, CliError> {
    // Torc's spelling: `workflows archive true|false ID...`.
    if let [first, rest @ ..] = args.workflows.as_slice()
        && let ([WorkflowSetPart::One(WorkflowRef::Name(word))], false) =
            (first.0.as_slice(), rest.is_empty())
        && let Ok(archived) = word.parse::<bool>()
    {
        return set_archived(ctx, rest, archived, args.dry_run);
    }
    set_archived(ctx, &args.workflows, !args.restore, args.dry_run)
}

fn set_archived(
    ctx: &CliContext,
    wanted: &[WorkflowSet],
    is_archived: bool,
    dry_run: bool,
) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let mut rows = object_selection::find_workflows(&*store, wanted)?;
    rows.retain(|row| row.is_archived != is_archived);
    let done = match (dry_run, is_archived) {
        (true, true) => "would be archived",
        (true, false) => "would be restored",
        (false, true) => "archived",
        (false, false) => "restored",
    };
    if rows.is_empty() {
        ctx.ui.print_note("nothing to do: already in this state");
    }
    if !dry_run {
        let ids: Vec<WorkflowId> = rows.iter().map(|row| row.id).collect();
        store.set_archived(&ids, is_archived, ctx.clock.now())?;
    }
    print_actions(ctx, &rows, done)
}

pub(crate) fn delete_workflows(ctx: &CliContext, args: &WorkflowDeleteArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let rows = object_selection::find_workflows(&*store, &args.workflows)?;
    if args.confirm.dry_run {
        return print_actions(ctx, &rows, "would be deleted");
    }
    ctx.ui.confirm(&format!("delete {}", render_workflows(&rows)), args.confirm)?;
    for row in &rows {
        store.delete_workflow(row.id, ctx.clock.now())?;
    }
    print_actions(ctx, &rows, "deleted")
}

/// `workflow 3 (sim, 12 jobs)`.
fn render_workflows(rows: &[WorkflowRow]) -> String {
    let one = |row: &WorkflowRow| {
        format!("workflow {} ({}, {})", row.id, row.name, text::render_count(row.counts.total(), "job"))
    };
    rows.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(crate) fn update_workflow(ctx: &CliContext, args: &UpdateWorkflowArgs) -> Result<CliExit, CliError> {
    let update = workflow_update(args)?;
    if update == WorkflowUpdate::default() {
        return Err(CliError::user("no changes given")
            .with_hint("use --name, --description, --project, --metadata or --owner-user"));
    }
    let store = ctx.open_write()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    if args.dry_run {
        ctx.ui.print_note(&format!("would change workflow {} ({})", row.id, row.name));
        return Ok(CliExit::Success);
    }
    store.update_workflow(row.id, &update, ctx.clock.now())?;
    let row = object_selection::find_workflow(&*store, &WorkflowRef::Id(row.id))?;
    if ctx.ui.wants_json() {
        let is_run = crate::workflow_view::has_active_process(&*store, &row);
        let view = WorkflowView::new(row, is_run, ctx.clock.now());
        ctx.ui.print_record(&ListFields::new(super::workflows::FIELDS), view)?;
    } else {
        ctx.ui.print_note(&format!("changed workflow {} ({})", row.id, row.name));
    }
    Ok(CliExit::Success)
}

/// An empty text removes an optional value.
fn workflow_update(args: &UpdateWorkflowArgs) -> Result<WorkflowUpdate, CliError> {
    let optional =
        |text: &Option<String>| text.clone().map(|text| Some(text).filter(|text| !text.is_empty()));
    if args.name.as_deref() == Some("") {
        return Err(CliError::user("the name of a workflow must not be empty"));
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
