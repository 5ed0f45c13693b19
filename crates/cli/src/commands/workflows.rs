//! `windlass workflows`: lists the workflows of this database, newest first.

use crate::args::workflows::{OneWorkflowArgs, WorkflowsListArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::progress;
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use crate::workflow_view::{self, WorkflowPhase, WorkflowView};
use serde::Serialize;
use windlass_types::{JobStatus, WorkflowId};

pub(crate) const FIELDS: &[ListField<WorkflowView>] = &[
    ListField::new("id", |w: &WorkflowView| w.row.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("uuid", |w: &WorkflowView| (&w.row.uuid).into()),
    ListField::new("name", |w: &WorkflowView| (&w.row.name).into()).column(TableColumn::flexible("NAME")),
    ListField::new("state", |w: &WorkflowView| FieldValue::Word(w.state.name(), state_tone(w.state)))
        .column(TableColumn::text("STATE")),
    ListField::new("jobs", |w: &WorkflowView| json_value(&w.jobs)),
    ListField::table_only(TableColumn::number("JOBS"), |w: &WorkflowView| w.row.counts.total().into()),
    ListField::table_only(TableColumn::number("COMPLETED"), |w: &WorkflowView| {
        w.row.counts.get(JobStatus::Completed).into()
    }),
    ListField::table_only(TableColumn::number("FAILED"), |w: &WorkflowView| {
        progress::failed_count(&w.row.counts).into()
    }),
    ListField::table_only(TableColumn::number("CANCELED"), |w: &WorkflowView| {
        w.row.counts.get(JobStatus::Canceled).into()
    }),
    ListField::new("run_id", |w: &WorkflowView| w.row.run_id.0.into()).column(TableColumn::number("RUN")),
    ListField::new("elapsed_seconds", |w: &WorkflowView| w.elapsed().into())
        .column(TableColumn::number("TIME")),
    ListField::new("user", |w: &WorkflowView| (&w.row.user).into()),
    ListField::new("description", |w: &WorkflowView| w.row.description.as_ref().into()),
    ListField::new("created_at", |w: &WorkflowView| w.row.created_at.into())
        .column(TableColumn::text("CREATED")),
    ListField::new("started_at", |w: &WorkflowView| w.row.started_at.into()),
    ListField::new("ended_at", |w: &WorkflowView| w.row.ended_at.into()),
    ListField::new("is_canceled", |w: &WorkflowView| w.row.is_canceled.into()),
    ListField::new("is_archived", |w: &WorkflowView| w.row.is_archived.into()),
    ListField::new("project", |w: &WorkflowView| w.row.settings.project.as_ref().into()),
    ListField::new("metadata", |w: &WorkflowView| json_value(&w.row.settings.metadata)),
    ListField::new("settings", |w: &WorkflowView| json_value(&w.row.settings)),
    ListField::new("submission_dir", |w: &WorkflowView| (&w.row.submission_dir).into()),
    ListField::new("output_dir", |w: &WorkflowView| (&w.row.output_dir).into()),
    ListField::new("spec_path", |w: &WorkflowView| w.row.spec_path.as_ref().into()),
];

fn json_value(value: &impl Serialize) -> FieldValue {
    serde_json::to_value(value).unwrap_or_default().into()
}

pub(crate) fn list_workflows(ctx: &CliContext, args: &WorkflowsListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let mut rows = store.workflows()?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    rows.retain(|row| args.include_archived || row.is_archived == args.archived_only);
    rows.retain(|row| args.user.as_ref().is_none_or(|user| row.user == *user));
    let now = ctx.clock.now();
    let view = |row| {
        let has_active_process = workflow_view::has_active_process(&*store, &row);
        WorkflowView::new(row, has_active_process, now)
    };
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    let rows = listing.sort_and_limit(rows.into_iter().map(view).collect(), &args.page)?;
    if ctx.ui.print_list(&listing, rows)? == 0 {
        ctx.ui.print_note("no workflows match; `windlass run SPEC` creates and runs one");
    }
    Ok(CliExit::Success)
}

pub(crate) fn show_workflow(ctx: &CliContext, args: &OneWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let has_active_process = workflow_view::has_active_process(&*store, &row);
    let view = WorkflowView::new(row, has_active_process, ctx.clock.now());
    ctx.ui.print_record(&ListFields::new(FIELDS), view)?;
    Ok(CliExit::Success)
}

pub(crate) fn check_complete(ctx: &CliContext, args: &OneWorkflowArgs) -> Result<CliExit, CliError> {
    #[derive(Serialize)]
    struct WorkflowListView {
        workflow_id: WorkflowId,
        is_complete: bool,
        is_canceled: bool,
    }
    let store = ctx.open_read()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let is_complete = row.is_canceled || row.counts.settled() == row.counts.total();
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&WorkflowListView {
            workflow_id: row.id,
            is_complete,
            is_canceled: row.is_canceled,
        })?;
    } else {
        ctx.ui.print_line(&is_complete.to_string())?;
    }
    Ok(CliExit::Success)
}

pub(crate) const fn state_tone(state: WorkflowPhase) -> Option<TextTone> {
    match state {
        WorkflowPhase::Created => None,
        WorkflowPhase::Running => Some(TextTone::Busy),
        WorkflowPhase::Completed => Some(TextTone::Good),
        WorkflowPhase::Failed | WorkflowPhase::NeedsDecision => Some(TextTone::Bad),
        WorkflowPhase::Interrupted | WorkflowPhase::Canceled => Some(TextTone::Warn),
    }
}
