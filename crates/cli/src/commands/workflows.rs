//! `windlass workflows`: what is in this database, the newest first.

use crate::args::workflows::{OneWorkflowArgs, WorkflowsListArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::progress;
use crate::ui::style::Tone;
use crate::ui::table::Column;
use crate::view::{self, State, WorkflowView};
use serde::Serialize;
use windlass_types::{JobStatus, WorkflowId};

pub(crate) const FIELDS: &[Field<WorkflowView>] = &[
    Field::new("id", |w: &WorkflowView| w.row.id.0.into()).column(Column::number("ID")),
    Field::new("uuid", |w: &WorkflowView| (&w.row.uuid).into()),
    Field::new("name", |w: &WorkflowView| (&w.row.name).into()).column(Column::elastic("NAME")),
    Field::new("state", |w: &WorkflowView| Datum::Word(w.state.name(), tone(w.state)))
        .column(Column::text("STATE")),
    Field::new("jobs", |w: &WorkflowView| json(&w.jobs)),
    Field::shown(Column::number("JOBS"), |w: &WorkflowView| w.row.counts.total().into()),
    Field::shown(Column::number("COMPLETED"), |w: &WorkflowView| {
        w.row.counts.get(JobStatus::Completed).into()
    }),
    Field::shown(Column::number("FAILED"), |w: &WorkflowView| progress::failed(&w.row.counts).into()),
    Field::shown(Column::number("CANCELED"), |w: &WorkflowView| w.row.counts.get(JobStatus::Canceled).into()),
    Field::new("run_id", |w: &WorkflowView| w.row.run_id.0.into()).column(Column::number("RUN")),
    Field::new("elapsed_seconds", |w: &WorkflowView| w.elapsed().into()).column(Column::number("TIME")),
    Field::new("user", |w: &WorkflowView| (&w.row.user).into()),
    Field::new("description", |w: &WorkflowView| w.row.description.as_ref().into()),
    Field::new("created_at", |w: &WorkflowView| w.row.created_at.into()).column(Column::text("CREATED")),
    Field::new("started_at", |w: &WorkflowView| w.row.started_at.into()),
    Field::new("ended_at", |w: &WorkflowView| w.row.ended_at.into()),
    Field::new("is_canceled", |w: &WorkflowView| w.row.is_canceled.into()),
    Field::new("is_archived", |w: &WorkflowView| w.row.is_archived.into()),
    Field::new("project", |w: &WorkflowView| w.row.settings.project.as_ref().into()),
    Field::new("metadata", |w: &WorkflowView| json(&w.row.settings.metadata)),
    Field::new("settings", |w: &WorkflowView| json(&w.row.settings)),
    Field::new("submission_dir", |w: &WorkflowView| (&w.row.submission_dir).into()),
    Field::new("output_dir", |w: &WorkflowView| (&w.row.output_dir).into()),
    Field::new("spec_path", |w: &WorkflowView| w.row.spec_path.as_ref().into()),
];

fn json(value: &impl Serialize) -> Datum {
    serde_json::to_value(value).unwrap_or_default().into()
}

pub(crate) fn list(ctx: &Context, args: &WorkflowsListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let mut rows = store.workflows()?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    rows.retain(|row| args.include_archived || row.is_archived == args.archived_only);
    rows.retain(|row| args.user.as_ref().is_none_or(|user| row.user == *user));
    let now = ctx.clock.now();
    let view = |row| {
        let somebody_runs_it = view::is_run_by_somebody(&*store, &row);
        WorkflowView::new(row, somebody_runs_it, now)
    };
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let rows = listing.arrange(rows.into_iter().map(view).collect(), &args.page)?;
    if ctx.ui.print_list(&listing, rows)? == 0 {
        ctx.ui.note("there is no such workflow; `windlass run SPEC` makes one and runs it");
    }
    Ok(Exit::Success)
}

pub(crate) fn get(ctx: &Context, args: &OneWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let row = select::workflow(&*store, &args.workflow)?;
    let somebody_runs_it = view::is_run_by_somebody(&*store, &row);
    let view = WorkflowView::new(row, somebody_runs_it, ctx.clock.now());
    ctx.ui.print_record(&Listing::new(FIELDS), view)?;
    Ok(Exit::Success)
}

pub(crate) fn is_complete(ctx: &Context, args: &OneWorkflowArgs) -> Result<Exit, CliError> {
    #[derive(Serialize)]
    struct View {
        workflow_id: WorkflowId,
        is_complete: bool,
        is_canceled: bool,
    }
    let store = ctx.open_read()?;
    let row = select::workflow(&*store, &args.workflow)?;
    let is_complete = row.is_canceled || row.counts.settled() == row.counts.total();
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&View { workflow_id: row.id, is_complete, is_canceled: row.is_canceled })?;
    } else {
        ctx.ui.print_line(&is_complete.to_string())?;
    }
    Ok(Exit::Success)
}

pub(crate) const fn tone(state: State) -> Option<Tone> {
    match state {
        State::Created => None,
        State::Running => Some(Tone::Busy),
        State::Completed => Some(Tone::Good),
        State::Failed | State::NeedsDecision => Some(Tone::Bad),
        State::Interrupted | State::Canceled => Some(Tone::Warn),
    }
}
