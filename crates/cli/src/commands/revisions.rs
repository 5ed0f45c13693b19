//! `windlass revisions`: what somebody changed about failed and waiting jobs, and how it is put back.

use crate::args::triage::{RevisionArgs, RevisionsArgs, RevisionsVerb};
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::orders::{self, Given};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use windlass_core::orders::{Edition, difference};
use windlass_store::Store;
use windlass_store::model::{RevisionFilter, RevisionRow, WorkflowRow};
use windlass_types::orders::Wanted;

pub(crate) fn run(ctx: &Context, args: &RevisionsArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, &args.list),
        Some(RevisionsVerb::List(args)) => list(ctx, args),
        Some(RevisionsVerb::Show(args)) => show(ctx, args),
        Some(RevisionsVerb::Undo(args)) => undo(ctx, args),
    }
}

/// What was changed together.
struct Revision {
    first: RevisionRow,
    jobs: u64,
    undone: u64,
    undone_by: Option<String>,
}

const FIELDS: &[Field<Revision>] = &[
    Field::new("revision", |r: &Revision| r.first.batch.into()).column(Column::number("N")),
    Field::new("made_at", |r: &Revision| r.first.made_at.into()).column(Column::text("WHEN")),
    Field::new("made_by", |r: &Revision| (&r.first.made_by).into()).column(Column::text("BY")),
    Field::new("jobs", |r: &Revision| r.jobs.into()).column(Column::number("JOBS")),
    Field::new("example_job_name", |r: &Revision| (&r.first.job_name).into())
        .column(Column::elastic("EXAMPLE")),
    Field::new("change", |r: &Revision| change(&r.first).into()).column(Column::elastic("CHANGE")),
    Field::new("reason", |r: &Revision| (&r.first.reason).into()).column(Column::elastic("REASON")),
    Field::new("undone_at", |r: &Revision| r.first.undone_at.into()),
    Field::new("undone_by", |r: &Revision| undone_by(r).into()).column(Column::text("UNDONE BY")),
];

/// One job of a revision.
const JOBS: &[Field<RevisionRow>] = &[
    Field::new("id", |r: &RevisionRow| r.id.into()),
    Field::new("revision", |r: &RevisionRow| r.batch.into()),
    Field::new("job_id", |r: &RevisionRow| r.job_id.0.into()).column(Column::number("ID")),
    Field::new("job_name", |r: &RevisionRow| (&r.job_name).into()).column(Column::elastic("NAME")),
    Field::new("job_status", |r: &RevisionRow| r.job_status.into()).column(Column::text("STATUS")),
    Field::new("change", |r: &RevisionRow| change(r).into()).column(Column::elastic("CHANGE")),
    Field::new("before", |r: &RevisionRow| edition(&r.before)),
    Field::new("after", |r: &RevisionRow| edition(&r.after)),
    Field::new("made_at", |r: &RevisionRow| r.made_at.into()),
    Field::new("made_by", |r: &RevisionRow| (&r.made_by).into()),
    Field::new("reason", |r: &RevisionRow| (&r.reason).into()),
    Field::new("undone_at", |r: &RevisionRow| r.undone_at.into()),
    Field::new("undone_by", |r: &RevisionRow| r.undone_by.as_ref().into()),
];

fn change(row: &RevisionRow) -> String {
    difference(&row.before, &row.after)
}

fn edition(edition: &Edition) -> Datum {
    // Words and numbers always have a JSON.
    serde_json::to_value(edition).map_or(Datum::Nothing, Datum::Json)
}

fn list(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let rows = batches(store.revisions(workflow.id, RevisionFilter::default())?);
    if ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)? == 0 {
        ctx.ui.note(&format!("nobody has changed jobs of workflow {} ({})", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}

/// In the order of their numbers; each row of a batch says who and why, the first also what.
fn batches(rows: Vec<RevisionRow>) -> Vec<Revision> {
    let mut found: Vec<Revision> = Vec::new();
    for row in rows {
        let (undone, undone_by) = (u64::from(row.undone_at.is_some()), row.undone_by.clone());
        match found.iter_mut().find(|known| known.first.batch == row.batch) {
            Some(known) => {
                known.jobs += 1;
                known.undone += undone;
                known.undone_by = undone_by.or(known.undone_by.take());
            }
            None => found.push(Revision { first: row, jobs: 1, undone, undone_by }),
        }
    }
    found
}

/// `ada`, or `ada (2 of 3)` where some of its jobs could not be put back.
fn undone_by(revision: &Revision) -> Option<String> {
    let Revision { jobs, undone, undone_by, .. } = revision;
    let by = undone_by.clone()?;
    Some(if undone == jobs { by } else { format!("{by} ({undone} of {jobs})") })
}

fn show(ctx: &Context, args: &RevisionArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let rows = of(&*store, &workflow, args.revision)?;
    if let Some(first) = rows.first() {
        let reason = text::one_line(&first.reason);
        ctx.ui.note(&format!("revision {} by {}: {reason}", first.batch, text::one_line(&first.made_by)));
    }
    ctx.ui.print_list(&Listing::new(JOBS), rows)?;
    Ok(Exit::Success)
}

fn of(store: &dyn Store, workflow: &WorkflowRow, revision: i64) -> Result<Vec<RevisionRow>, CliError> {
    let rows = store.revisions(workflow.id, RevisionFilter { batch: Some(revision), job: None })?;
    if rows.is_empty() {
        let none = format!("workflow {} ({}) has no revision {revision}", workflow.id, workflow.name);
        return Err(CliError::user(none)
            .with_hint("`windlass revisions` lists them; --workflow names another workflow"));
    }
    Ok(rows)
}

fn undo(ctx: &Context, args: &RevisionArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let rows = of(&*store, &workflow, args.revision)?;
    if rows.iter().all(|row| row.undone_at.is_some()) {
        let by = rows.iter().find_map(|row| row.undone_by.as_deref()).unwrap_or("somebody");
        return Err(CliError::refused(format!("revision {} was undone by {by}", args.revision)));
    }
    let wanted = Wanted::Undo { batch: args.revision, agent: orders::agent(None) };
    let outcomes = orders::give(&*store, workflow.id, &wanted)?;
    Given { workflow: &workflow, dry_run: false, outcomes }.show(ctx, &*store)
}
