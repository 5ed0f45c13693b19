//! `windlass failures revisions`: lists and undoes changes to failed and waiting jobs.

use crate::args::failures::{OneRevisionArgs, RevisionsArgs, RevisionsSubcommand};
use crate::args::workflows::ListInWorkflowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::failure_commands::{self, FailureCommandReport};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use windlass_core::failure_commands::{JobPatch, describe_patch};
use windlass_store::Store;
use windlass_store::model::{JobRevisionRow, RevisionFilter, WorkflowRow};
use windlass_types::failure_commands::PendingCommand;

pub(crate) fn run(ctx: &CliContext, args: &RevisionsArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None => list_revisions(ctx, &args.list),
        Some(RevisionsSubcommand::List(args)) => list_revisions(ctx, args),
        Some(RevisionsSubcommand::Show(args)) => show_revision(ctx, args),
    }
}

/// Changes made together.
struct RevisionSummary {
    first: JobRevisionRow,
    jobs: u64,
    undone: u64,
    undone_by: Option<String>,
}

const FIELDS: &[ListField<RevisionSummary>] = &[
    ListField::new("revision", |r: &RevisionSummary| r.first.batch.into()).column(TableColumn::number("N")),
    ListField::new("made_at", |r: &RevisionSummary| r.first.made_at.into()).column(TableColumn::text("WHEN")),
    ListField::new("made_by", |r: &RevisionSummary| (&r.first.made_by).into())
        .column(TableColumn::text("BY")),
    ListField::new("jobs", |r: &RevisionSummary| r.jobs.into()).column(TableColumn::number("JOBS")),
    ListField::new("example_job_name", |r: &RevisionSummary| (&r.first.job_name).into())
        .column(TableColumn::flexible("EXAMPLE")),
    ListField::new("change", |r: &RevisionSummary| render_change(&r.first).into())
        .column(TableColumn::flexible("CHANGE")),
    ListField::new("reason", |r: &RevisionSummary| (&r.first.reason).into())
        .column(TableColumn::flexible("REASON")),
    ListField::new("undone_at", |r: &RevisionSummary| r.first.undone_at.into()),
    ListField::new("undone_by", |r: &RevisionSummary| render_undone_by(r).into())
        .column(TableColumn::text("UNDONE BY")),
];

/// One job of a revision.
const JOB_FIELDS: &[ListField<JobRevisionRow>] = &[
    ListField::new("id", |r: &JobRevisionRow| r.id.into()),
    ListField::new("revision", |r: &JobRevisionRow| r.batch.into()),
    ListField::new("job_id", |r: &JobRevisionRow| r.job_id.0.into()).column(TableColumn::number("ID")),
    ListField::new("job_name", |r: &JobRevisionRow| (&r.job_name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("job_status", |r: &JobRevisionRow| r.job_status.into())
        .column(TableColumn::text("STATUS")),
    ListField::new("change", |r: &JobRevisionRow| render_change(r).into())
        .column(TableColumn::flexible("CHANGE")),
    ListField::new("before", |r: &JobRevisionRow| patch_value(&r.before)),
    ListField::new("after", |r: &JobRevisionRow| patch_value(&r.after)),
    ListField::new("made_at", |r: &JobRevisionRow| r.made_at.into()),
    ListField::new("made_by", |r: &JobRevisionRow| (&r.made_by).into()),
    ListField::new("reason", |r: &JobRevisionRow| (&r.reason).into()),
    ListField::new("undone_at", |r: &JobRevisionRow| r.undone_at.into()),
    ListField::new("undone_by", |r: &JobRevisionRow| r.undone_by.as_ref().into()),
];

fn render_change(row: &JobRevisionRow) -> String {
    describe_patch(&row.before, &row.after)
}

fn patch_value(patch: &JobPatch) -> FieldValue {
    // Words and numbers can always be written as JSON.
    serde_json::to_value(patch).map_or(FieldValue::Empty, FieldValue::Json)
}

fn list_revisions(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    let rows = group_by_batch(store.revisions(workflow.id, RevisionFilter::default())?);
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)? == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has no revisions", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}

/// In order of revision number; each row has the user and the reason, the first row also the changes.
fn group_by_batch(rows: Vec<JobRevisionRow>) -> Vec<RevisionSummary> {
    let mut found: Vec<RevisionSummary> = Vec::new();
    for row in rows {
        let (undone, undone_by) = (u64::from(row.undone_at.is_some()), row.undone_by.clone());
        match found.iter_mut().find(|known| known.first.batch == row.batch) {
            Some(known) => {
                known.jobs += 1;
                known.undone += undone;
                known.undone_by = undone_by.or(known.undone_by.take());
            }
            None => found.push(RevisionSummary { first: row, jobs: 1, undone, undone_by }),
        }
    }
    found
}

/// `ada`, or `ada (2 of 3)` if some of its jobs could not be restored.
fn render_undone_by(revision: &RevisionSummary) -> Option<String> {
    let RevisionSummary { jobs, undone, undone_by, .. } = revision;
    let by = undone_by.clone()?;
    Some(if undone == jobs { by } else { format!("{by} ({undone} of {jobs})") })
}

fn show_revision(ctx: &CliContext, args: &OneRevisionArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let rows = load_revision(&*store, &workflow, args.revision)?;
    if let Some(first) = rows.first() {
        let reason = text::one_line(&first.reason);
        ctx.ui.print_note(&format!(
            "revision {} by {}: {reason}",
            first.batch,
            text::one_line(&first.made_by)
        ));
    }
    ctx.ui.print_list(&ListFields::new(JOB_FIELDS), rows)?;
    Ok(CliExit::Success)
}

fn load_revision(
    store: &dyn Store,
    workflow: &WorkflowRow,
    revision: i64,
) -> Result<Vec<JobRevisionRow>, CliError> {
    let rows = store.revisions(workflow.id, RevisionFilter { batch: Some(revision), job: None })?;
    if rows.is_empty() {
        let none = format!("workflow {} ({}) has no revision {revision}", workflow.id, workflow.name);
        return Err(CliError::user(none)
            .with_hint("`windlass failures revisions` lists them; use --workflow for another workflow"));
    }
    Ok(rows)
}

pub(crate) fn undo_revision(ctx: &CliContext, args: &OneRevisionArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let rows = load_revision(&*store, &workflow, args.revision)?;
    if rows.iter().all(|row| row.undone_at.is_some()) {
        let by = rows.iter().find_map(|row| row.undone_by.as_deref()).unwrap_or("another user");
        return Err(CliError::refused(format!("revision {} was undone by {by}", args.revision)));
    }
    let wanted = PendingCommand::Undo { batch: args.revision, agent: failure_commands::acting_agent(None) };
    let outcomes = failure_commands::submit_failure_commands(&*store, workflow.id, &wanted)?;
    FailureCommandReport { workflow: &workflow, dry_run: false, outcomes }.print_report(ctx, &*store)
}
