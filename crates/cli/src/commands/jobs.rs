//! `windlass jobs`: the jobs of a workflow.

use super::job_relations::{JobRelationIds, WorkflowRelations};
use crate::args::OutputFormat;
use crate::args::jobs::{JobsListArgs, OneJobArgs};
use crate::args::workflows::ListInWorkflowArgs;
use crate::context::CliContext;
use crate::decision_history::DecisionHistory;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields, PAGE_SIZE};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use crate::workflow_view;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::{JobFilter, JobOrigin, JobRow, WorkflowRow};
use windlass_types::{JobId, JobStatus, Timestamp, matching_statuses};

/// The states that `--failed` lists.
const FAILED_STATUSES: [JobStatus; 3] = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];

/// A job, optionally with its relations.
pub(crate) struct JobListRow {
    job: JobRow,
    relations: JobRelationIds,
    /// Only for a job that is shown alone.
    history: DecisionHistory,
}

impl From<JobRow> for JobListRow {
    fn from(job: JobRow) -> Self {
        Self { job, relations: JobRelationIds::default(), history: DecisionHistory::default() }
    }
}

pub(crate) const FIELDS: &[ListField<JobListRow>] = &[
    ListField::new("id", |row: &JobListRow| row.job.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("workflow_id", |row: &JobListRow| row.job.workflow_id.0.into()),
    ListField::new("name", |row: &JobListRow| (&row.job.name).into()).column(TableColumn::flexible("NAME")),
    ListField::new("status", |row: &JobListRow| row.job.status.into()).column(TableColumn::text("STATUS")),
    ListField::new("attempt_id", |row: &JobListRow| row.job.attempt_id.0.into())
        .column(TableColumn::number("ATTEMPT")),
    ListField::new("return_code", |row: &JobListRow| row.job.return_code.into())
        .column(TableColumn::number("CODE")),
    ListField::new("reason", |row: &JobListRow| row.job.reason.as_ref().into()),
    ListField::new("command", |row: &JobListRow| (&row.job.command).into())
        .column(TableColumn::flexible("COMMAND")),
    ListField::new("description", |row: &JobListRow| row.job.options.description.as_ref().into()),
    ListField::new("priority", |row: &JobListRow| row.job.priority.into()),
    ListField::new("cancel_on_blocking_job_failure", |row: &JobListRow| {
        row.job.cancel_on_blocking_job_failure.into()
    }),
    ListField::new("resource_requirements", |row: &JobListRow| row.job.resource_requirements.as_ref().into()),
    ListField::new("kind", |row: &JobListRow| row.job.kind.as_ref().into()),
    ListField::new("params", |row: &JobListRow| {
        serde_json::to_value(&row.job.params).unwrap_or_default().into()
    }),
    ListField::new("origin", |row: &JobListRow| row.job.origin.map(origin_name).into()),
    ListField::new("reused_from", |row: &JobListRow| row.job.reused_from.map(|id| id.0).into()),
    ListField::new("pid", |row: &JobListRow| row.job.pid.into()),
    ListField::new("started_at", |row: &JobListRow| row.job.started_at.into()),
];

const RELATION_FIELDS: &[ListField<JobListRow>] = &[
    ListField::new("depends_on_job_ids", |row: &JobListRow| ids_value(&row.relations.waits_for))
        .column(TableColumn::flexible("WAITS FOR")),
    ListField::new("input_file_ids", |row: &JobListRow| ids_value(&row.relations.input_files))
        .column(TableColumn::flexible("READS")),
    ListField::new("output_file_ids", |row: &JobListRow| ids_value(&row.relations.output_files))
        .column(TableColumn::flexible("WRITES")),
    ListField::new("input_user_data_ids", |row: &JobListRow| ids_value(&row.relations.input_user_data)),
    ListField::new("output_user_data_ids", |row: &JobListRow| ids_value(&row.relations.output_user_data)),
];

const HISTORY_FIELDS: &[ListField<JobListRow>] = &[
    ListField::new("decisions", |row: &JobListRow| {
        serde_json::to_value(&row.history.decisions).unwrap_or_default().into()
    }),
    ListField::new("revisions", |row: &JobListRow| {
        serde_json::to_value(&row.history.revisions).unwrap_or_default().into()
    }),
];

fn ids_value(ids: &[i64]) -> FieldValue {
    FieldValue::Json(ids.into())
}

const fn origin_name(origin: JobOrigin) -> &'static str {
    match origin {
        JobOrigin::Retry => "retry",
        JobOrigin::Spawn => "spawn",
    }
}

pub(crate) fn list_jobs(ctx: &CliContext, args: &JobsListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let status = if args.failed { FAILED_STATUSES.to_vec() } else { matching_statuses(&args.status) };
    let mut filter = JobFilter { status, ..JobFilter::default() };
    let mut relations = WorkflowRelations::default();
    if args.include_relationships || args.upstream_job_id.is_some() {
        relations = WorkflowRelations::load(&*store, &workflow)?;
    }
    if let Some(upstream) = &args.upstream_job_id {
        let upstream = object_selection::find_job(&*store, &workflow, upstream, "the first argument")?;
        // No object has the id 0: an empty list would match all.
        filter.ids = relations.dependents(upstream.id).chain([JobId(0)]).collect();
    }
    let listing = ListFields::new(FIELDS);
    let listing = if args.include_relationships { listing.with_fields(RELATION_FIELDS) } else { listing };
    let listing = listing.without_fields(&args.page.exclude)?;
    let row = |job: JobRow| JobListRow { relations: relations.take_job(job.id), ..JobListRow::from(job) };
    let printed = if args.page.is_rearranged() {
        let rows = store.jobs(workflow.id, &filter)?.into_iter().map(row).collect();
        ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)?
    } else {
        let mut pages = JobPages::new(&*store, &workflow, filter, args.page.offset, args.page.limit);
        let mut row = row;
        ctx.ui.print_pages(&listing, || Ok(pages.next_page()?.into_iter().map(&mut row).collect()))?
    };
    if printed == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has no matching jobs", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}

/// Reads the jobs of a workflow in pages, so that a million jobs are never in memory at once.
pub(crate) struct JobPages<'a> {
    store: &'a dyn Store,
    workflow: &'a WorkflowRow,
    filter: JobFilter,
    remaining: u64,
}

impl<'a> JobPages<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        workflow: &'a WorkflowRow,
        filter: JobFilter,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        Self { store, workflow, filter: JobFilter { offset, ..filter }, remaining: limit.unwrap_or(u64::MAX) }
    }

    pub(crate) fn next_page(&mut self) -> Result<Vec<JobRow>, CliError> {
        if self.remaining == 0 {
            return Ok(Vec::new());
        }
        self.filter.limit = Some(self.remaining.min(PAGE_SIZE));
        let rows = self.store.jobs(self.workflow.id, &self.filter)?;
        self.remaining -= rows.len() as u64;
        // Later pages start after the last row of the previous page.
        self.filter.offset = 0;
        self.filter.after = rows.last().map(|job| job.id);
        Ok(rows)
    }
}

pub(crate) fn show_job(ctx: &CliContext, args: &OneJobArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let (_, job) = object_selection::find_job_anywhere(&*store, &args.job, &args.workflow)?;
    print_record(ctx, &*store, job)?;
    Ok(CliExit::Success)
}

/// A job with all its relations.
pub(crate) fn print_record(ctx: &CliContext, store: &dyn Store, job: JobRow) -> Result<(), CliError> {
    let uses = store.job_relations(job.id)?.into();
    let history = DecisionHistory::load(store, job.workflow_id, job.id)?;
    let listing = ListFields::new(FIELDS).with_fields(RELATION_FIELDS);
    if ctx.ui.format() != OutputFormat::Table {
        return ctx.ui.print_record(
            &listing.with_fields(HISTORY_FIELDS),
            JobListRow { job, relations: uses, history },
        );
    }
    let history_lines = history.render_lines();
    ctx.ui.print_record(&listing, JobListRow { job, relations: uses, history })?;
    if history_lines.is_empty() {
        return Ok(());
    }
    let heading = ctx.ui.stdout_painter().apply(TextTone::Bold, "DECISIONS AND CHANGES");
    ctx.ui.print_lines(&[vec![String::new(), heading], history_lines].concat())
}

/// A running job, and its start time.
struct RunningJobRow {
    job: JobRow,
    elapsed: Option<Duration>,
}

impl RunningJobRow {
    fn new(job: JobRow, now: Timestamp) -> Self {
        let elapsed = job.started_at.map(|at| now.since(at));
        Self { job, elapsed }
    }
}

const RUNNING_FIELDS: &[ListField<RunningJobRow>] = &[
    ListField::new("id", |row: &RunningJobRow| row.job.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("name", |row: &RunningJobRow| (&row.job.name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("attempt_id", |row: &RunningJobRow| row.job.attempt_id.0.into())
        .column(TableColumn::number("ATTEMPT")),
    ListField::new("pid", |row: &RunningJobRow| row.job.pid.into()).column(TableColumn::number("PID")),
    ListField::new("started_at", |row: &RunningJobRow| row.job.started_at.into())
        .column(TableColumn::text("STARTED")),
    ListField::new("elapsed_seconds", |row: &RunningJobRow| row.elapsed.into())
        .column(TableColumn::number("TIME")),
    ListField::new("command", |row: &RunningJobRow| (&row.job.command).into())
        .column(TableColumn::flexible("COMMAND")),
];

pub(crate) fn list_running_jobs(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let listing = ListFields::new(RUNNING_FIELDS).without_fields(&args.page.exclude)?;
    // A job that an interrupted run left in the running state is not running.
    let rows = if workflow_view::has_active_process(&*store, &workflow) {
        let filter = JobFilter { status: vec![JobStatus::Running], ..JobFilter::default() };
        let now = ctx.clock.now();
        store.jobs(workflow.id, &filter)?.into_iter().map(|job| RunningJobRow::new(job, now)).collect()
    } else {
        Vec::new()
    };
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)? == 0 {
        ctx.ui.print_note(&format!("no jobs of workflow {} ({}) are running", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}
