//! `windlass jobs`: the jobs of a workflow.

use super::relations::{Relations, Uses};
use crate::args::Format;
use crate::args::jobs::{JobsListArgs, OneJobArgs};
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::history::History;
use crate::select;
use crate::ui::listing::{Datum, Field, Listing, PAGE};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use crate::view;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::{JobFilter, JobRow, Origin, WorkflowRow};
use windlass_types::{JobId, JobStatus, Timestamp, matching_statuses};

/// What `--failed` lists.
const BADLY_ENDED: [JobStatus; 3] = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];

/// A job, perhaps with what hangs on it.
pub(crate) struct Row {
    job: JobRow,
    uses: Uses,
    /// Only of one that is shown alone.
    history: History,
}

impl From<JobRow> for Row {
    fn from(job: JobRow) -> Self {
        Self { job, uses: Uses::default(), history: History::default() }
    }
}

pub(crate) const FIELDS: &[Field<Row>] = &[
    Field::new("id", |row: &Row| row.job.id.0.into()).column(Column::number("ID")),
    Field::new("workflow_id", |row: &Row| row.job.workflow_id.0.into()),
    Field::new("name", |row: &Row| (&row.job.name).into()).column(Column::elastic("NAME")),
    Field::new("status", |row: &Row| row.job.status.into()).column(Column::text("STATUS")),
    Field::new("attempt_id", |row: &Row| row.job.attempt_id.0.into()).column(Column::number("ATTEMPT")),
    Field::new("return_code", |row: &Row| row.job.return_code.into()).column(Column::number("CODE")),
    Field::new("reason", |row: &Row| row.job.reason.as_ref().into()),
    Field::new("command", |row: &Row| (&row.job.command).into()).column(Column::elastic("COMMAND")),
    Field::new("priority", |row: &Row| row.job.priority.into()),
    Field::new("cancel_on_blocking_job_failure", |row: &Row| row.job.cancel_on_blocking_job_failure.into()),
    Field::new("resource_requirements", |row: &Row| row.job.resource_requirements.as_ref().into()),
    Field::new("kind", |row: &Row| row.job.kind.as_ref().into()),
    Field::new("params", |row: &Row| serde_json::to_value(&row.job.params).unwrap_or_default().into()),
    Field::new("origin", |row: &Row| row.job.origin.map(origin).into()),
    Field::new("reused_from", |row: &Row| row.job.reused_from.map(|id| id.0).into()),
    Field::new("pid", |row: &Row| row.job.pid.into()),
    Field::new("started_at", |row: &Row| row.job.started_at.into()),
];

const RELATIONSHIPS: &[Field<Row>] = &[
    Field::new("depends_on_job_ids", |row: &Row| ids(&row.uses.waits_for))
        .column(Column::elastic("WAITS FOR")),
    Field::new("input_file_ids", |row: &Row| ids(&row.uses.input_files)).column(Column::elastic("READS")),
    Field::new("output_file_ids", |row: &Row| ids(&row.uses.output_files)).column(Column::elastic("WRITES")),
    Field::new("input_user_data_ids", |row: &Row| ids(&row.uses.input_user_data)),
    Field::new("output_user_data_ids", |row: &Row| ids(&row.uses.output_user_data)),
];

const HISTORY: &[Field<Row>] = &[
    Field::new("decisions", |row: &Row| {
        serde_json::to_value(&row.history.decisions).unwrap_or_default().into()
    }),
    Field::new("revisions", |row: &Row| {
        serde_json::to_value(&row.history.revisions).unwrap_or_default().into()
    }),
];

fn ids(ids: &[i64]) -> Datum {
    Datum::Json(ids.into())
}

const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Retry => "retry",
        Origin::Spawn => "spawn",
    }
}

pub(crate) fn list(ctx: &Context, args: &JobsListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let status = if args.failed { BADLY_ENDED.to_vec() } else { matching_statuses(&args.status) };
    let mut filter = JobFilter { status, ..JobFilter::default() };
    let mut relations = Relations::default();
    if args.include_relationships || args.upstream_job_id.is_some() {
        relations = Relations::load(&*store, &workflow)?;
    }
    if let Some(upstream) = &args.upstream_job_id {
        let upstream = select::job(&*store, &workflow, upstream, "the first argument")?;
        // Nobody has the id 0: an empty list would mean all.
        filter.ids = relations.waiting_for(upstream.id).chain([JobId(0)]).collect();
    }
    let listing = Listing::new(FIELDS);
    let listing = if args.include_relationships { listing.with(RELATIONSHIPS) } else { listing };
    let listing = listing.without(&args.page.exclude)?;
    let row = |job: JobRow| Row { uses: relations.take(job.id), ..Row::from(job) };
    let printed = if args.page.is_rearranged() {
        let rows = store.jobs(workflow.id, &filter)?.into_iter().map(row).collect();
        ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)?
    } else {
        let mut pages = Pages::new(&*store, &workflow, filter, args.page.offset, args.page.limit);
        let mut row = row;
        ctx.ui.print_pages(&listing, || Ok(pages.next()?.into_iter().map(&mut row).collect()))?
    };
    if printed == 0 {
        ctx.ui.note(&format!("workflow {} ({}) has no such jobs", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}

/// The jobs of a workflow, so many at a time, so that a million of them are never in memory at once.
pub(crate) struct Pages<'a> {
    store: &'a dyn Store,
    workflow: &'a WorkflowRow,
    filter: JobFilter,
    left: u64,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        workflow: &'a WorkflowRow,
        filter: JobFilter,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        Self { store, workflow, filter: JobFilter { offset, ..filter }, left: limit.unwrap_or(u64::MAX) }
    }

    pub(crate) fn next(&mut self) -> Result<Vec<JobRow>, CliError> {
        if self.left == 0 {
            return Ok(Vec::new());
        }
        self.filter.limit = Some(self.left.min(PAGE));
        let rows = self.store.jobs(self.workflow.id, &self.filter)?;
        self.left -= rows.len() as u64;
        // From now on pages are found by where the last one ended.
        self.filter.offset = 0;
        self.filter.after = rows.last().map(|job| job.id);
        Ok(rows)
    }
}

pub(crate) fn get(ctx: &Context, args: &OneJobArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let (_, job) = select::job_anywhere(&*store, &args.job, &args.workflow)?;
    print_record(ctx, &*store, job)?;
    Ok(Exit::Success)
}

/// A job with all that hangs on it.
pub(crate) fn print_record(ctx: &Context, store: &dyn Store, job: JobRow) -> Result<(), CliError> {
    let uses = store.job_relations(job.id)?.into();
    let history = History::of(store, job.workflow_id, job.id)?;
    let listing = Listing::new(FIELDS).with(RELATIONSHIPS);
    if ctx.ui.format() != Format::Table {
        return ctx.ui.print_record(&listing.with(HISTORY), Row { job, uses, history });
    }
    let told = history.lines();
    ctx.ui.print_record(&listing, Row { job, uses, history })?;
    if told.is_empty() {
        return Ok(());
    }
    let heading = ctx.ui.paint_out().apply(Tone::Bold, "DECISIONS AND CHANGES");
    ctx.ui.print_lines(&[vec![String::new(), heading], told].concat())
}

/// A job that runs, and since when.
struct Running {
    job: JobRow,
    elapsed: Option<Duration>,
}

impl Running {
    fn new(job: JobRow, now: Timestamp) -> Self {
        let elapsed = job.started_at.map(|at| now.since(at));
        Self { job, elapsed }
    }
}

const RUNNING: &[Field<Running>] = &[
    Field::new("id", |row: &Running| row.job.id.0.into()).column(Column::number("ID")),
    Field::new("name", |row: &Running| (&row.job.name).into()).column(Column::elastic("NAME")),
    Field::new("attempt_id", |row: &Running| row.job.attempt_id.0.into()).column(Column::number("ATTEMPT")),
    Field::new("pid", |row: &Running| row.job.pid.into()).column(Column::number("PID")),
    Field::new("started_at", |row: &Running| row.job.started_at.into()).column(Column::text("STARTED")),
    Field::new("elapsed_seconds", |row: &Running| row.elapsed.into()).column(Column::number("TIME")),
    Field::new("command", |row: &Running| (&row.job.command).into()).column(Column::elastic("COMMAND")),
];

pub(crate) fn running(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let listing = Listing::new(RUNNING).without(&args.page.exclude)?;
    // What an interrupted run left as running is not running.
    let rows = if view::is_run_by_somebody(&*store, &workflow) {
        let filter = JobFilter { status: vec![JobStatus::Running], ..JobFilter::default() };
        let now = ctx.clock.now();
        store.jobs(workflow.id, &filter)?.into_iter().map(|job| Running::new(job, now)).collect()
    } else {
        Vec::new()
    };
    if ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)? == 0 {
        ctx.ui.note(&format!("nothing of workflow {} ({}) runs now", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}
