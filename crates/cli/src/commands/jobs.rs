//! `windlass jobs`: the jobs of a workflow.

use crate::args::jobs::{JobsListArgs, OneJobArgs};
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing, PAGE};
use crate::ui::table::Column;
use crate::view;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::{JobFilter, JobRow, Origin, WorkflowRow};
use windlass_types::{JobStatus, Timestamp};

pub(crate) const FIELDS: &[Field<JobRow>] = &[
    Field::new("id", |job: &JobRow| job.id.0.into()).column(Column::number("ID")),
    Field::new("workflow_id", |job: &JobRow| job.workflow_id.0.into()),
    Field::new("name", |job: &JobRow| (&job.name).into()).column(Column::elastic("NAME")),
    Field::new("status", |job: &JobRow| job.status.into()).column(Column::text("STATUS")),
    Field::new("attempt_id", |job: &JobRow| job.attempt_id.0.into()).column(Column::number("ATTEMPT")),
    Field::new("return_code", |job: &JobRow| job.return_code.into()).column(Column::number("CODE")),
    Field::new("reason", |job: &JobRow| job.reason.as_ref().into()),
    Field::new("command", |job: &JobRow| (&job.command).into()).column(Column::elastic("COMMAND")),
    Field::new("priority", |job: &JobRow| job.priority.into()),
    Field::new("cancel_on_blocking_job_failure", |job: &JobRow| job.cancel_on_blocking_job_failure.into()),
    Field::new("resource_requirements", |job: &JobRow| job.resource_requirements.as_ref().into()),
    Field::new("kind", |job: &JobRow| job.kind.as_ref().into()),
    Field::new("params", |job: &JobRow| serde_json::to_value(&job.params).unwrap_or_default().into()),
    Field::new("origin", |job: &JobRow| job.origin.map(origin).into()),
    Field::new("reused_from", |job: &JobRow| job.reused_from.map(|id| id.0).into()),
    Field::new("pid", |job: &JobRow| job.pid.into()),
    Field::new("started_at", |job: &JobRow| job.started_at.into()),
];

const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Retry => "retry",
        Origin::Spawn => "spawn",
    }
}

pub(crate) fn list(ctx: &Context, args: &JobsListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&store, &args.workflow)?;
    let filter = JobFilter { status: args.status.clone(), ..JobFilter::default() };
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let printed = if args.page.is_rearranged() {
        let rows = listing.arrange(store.jobs(workflow.id, &filter)?, &args.page)?;
        ctx.ui.print_list(&listing, rows)?
    } else {
        let mut pages = Pages::new(&store, &workflow, filter, args.page.offset, args.page.limit);
        ctx.ui.print_pages(&listing, || pages.next())?
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
    let (_, job) = select::job_anywhere(&store, &args.job, &args.workflow)?;
    ctx.ui.print_record(&Listing::new(FIELDS), job)?;
    Ok(Exit::Success)
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
    let workflow = select::workflow(&store, &args.workflow)?;
    let listing = Listing::new(RUNNING).without(&args.page.exclude)?;
    // What an interrupted run left as running is not running.
    let rows = if view::is_run_by_somebody(&store, &workflow) {
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
