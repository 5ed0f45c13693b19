//! `windlass jobs results`: ended attempts with their measurements.

use crate::args::jobs::{OneResultArgs, ResultsListArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs::{self, LogStream};
use crate::object_selection;
use crate::ui::attempt_end::AttemptEndSummary;
use crate::ui::listing::{FieldValue, ListField, ListFields, PAGE_SIZE};
use crate::ui::table::TableColumn;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::{ResultFilter, ResultRow, WorkflowRow};
use windlass_types::worker_messages::return_code;
use windlass_types::{JobStatus, matching_statuses};

/// A result with the paths of its output.
pub(crate) struct ResultListRow {
    result: ResultRow,
    stdout: Option<String>,
    stderr: Option<String>,
    recovery: Option<String>,
}

impl ResultListRow {
    fn new(workflow: &WorkflowRow, cwd: &Path, result: ResultRow) -> Self {
        let written = job_logs::existing_logs(workflow, result.key.into());
        let path = |wanted: LogStream| {
            let (_, path) =
                written.iter().find(|(stream, _)| [wanted, LogStream::Combined].contains(stream))?;
            Some(job_logs::short_path(path, cwd))
        };
        let recovery = job_logs::recovery_log(workflow, result.key.into());
        let recovery = recovery.map(|path| job_logs::short_path(&path, cwd));
        Self { stdout: path(LogStream::Stdout), stderr: path(LogStream::Stderr), recovery, result }
    }
}

const FIELDS: &[ListField<ResultListRow>] = &[
    ListField::new("id", |row: &ResultListRow| row.result.id.0.into()),
    ListField::new("workflow_id", |row: &ResultListRow| row.result.key.workflow_id.0.into()),
    ListField::new("job_id", |row: &ResultListRow| row.result.key.job_id.0.into())
        .column(TableColumn::number("JOB")),
    ListField::new("job_name", |row: &ResultListRow| (&row.result.job_name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("run_id", |row: &ResultListRow| row.result.key.run_id.0.into())
        .column(TableColumn::number("RUN")),
    ListField::new("attempt_id", |row: &ResultListRow| row.result.key.attempt_id.0.into())
        .column(TableColumn::number("ATTEMPT")),
    ListField::new("status", |row: &ResultListRow| row.result.status.into())
        .column(TableColumn::text("STATUS")),
    ListField::table_only(TableColumn::number("TIME"), |row: &ResultListRow| {
        measured_time(row, row.result.wall)
    }),
    ListField::table_only(TableColumn::number("CPU"), |row: &ResultListRow| {
        measured_time(row, row.result.cpu_time)
    }),
    ListField::new("return_code", |row: &ResultListRow| row.result.return_code.into()),
    ListField::new("signal", |row: &ResultListRow| row.result.signal.into()),
    ListField::new("out_of_memory", |row: &ResultListRow| row.result.out_of_memory.into()),
    ListField::new("reason", |row: &ResultListRow| row.result.reason.as_ref().into()),
    ListField::new("recovered", |row: &ResultListRow| {
        row.result.recovered.as_ref().map(ToString::to_string).into()
    }),
    ListField::new("class", |row: &ResultListRow| row.result.class.map(|class| class.to_string()).into()),
    ListField::new("signature", |row: &ResultListRow| row.result.signature.as_ref().into()),
    ListField::new("worker_id", |row: &ResultListRow| row.result.worker_id.0.into()),
    ListField::new("started_at", |row: &ResultListRow| row.result.started_at.into()),
    ListField::new("ended_at", |row: &ResultListRow| row.result.ended_at.into()),
    ListField::new("wall_seconds", |row: &ResultListRow| row.result.wall.into()),
    ListField::new("cpu_seconds", |row: &ResultListRow| row.result.cpu_time.into()),
    ListField::new("peak_memory_bytes", |row: &ResultListRow| row.result.peak_memory_bytes.into())
        .column(TableColumn::number("MEMORY")),
    ListField::new("avg_memory_bytes", |row: &ResultListRow| row.result.avg_memory_bytes.into()),
    ListField::new("peak_cpu_percent", |row: &ResultListRow| row.result.peak_cpu_percent.into()),
    ListField::new("avg_cpu_percent", |row: &ResultListRow| row.result.avg_cpu_percent.into()),
    ListField::table_only(TableColumn::flexible("OUTCOME"), |row: &ResultListRow| {
        render_outcome(&row.result).into()
    }),
];

const LOG_FIELDS: &[ListField<ResultListRow>] = &[
    ListField::new("stdout_path", |row: &ResultListRow| row.stdout.as_ref().into())
        .column(TableColumn::path("STDOUT")),
    ListField::new("stderr_path", |row: &ResultListRow| row.stderr.as_ref().into())
        .column(TableColumn::path("STDERR")),
    ListField::new("recovery_path", |row: &ResultListRow| row.recovery.as_ref().into())
        .column(TableColumn::path("RECOVERY")),
];

pub(crate) fn list_results(ctx: &CliContext, args: &ResultsListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let job = args.job.as_ref();
    let job = job
        .map(|job| object_selection::find_job(&*store, &workflow, job, "`windlass jobs results ID`"))
        .transpose()?;
    let filter = ResultFilter {
        job: job.map(|job| job.id),
        run: args.run,
        all_runs: args.all_runs,
        failed_only: args.failed,
        status: matching_statuses(&args.status),
        return_code: args.return_code,
        ..ResultFilter::default()
    };
    let listing = ListFields::new(FIELDS);
    let listing = if args.include_logs { listing.with_fields(LOG_FIELDS) } else { listing };
    let listing = listing.without_fields(&args.page.exclude)?;
    let row = |result| ResultListRow::new(&workflow, &ctx.cwd, result);
    let printed = if args.page.is_rearranged() {
        let rows = store.results(workflow.id, &filter)?.into_iter().map(row).collect();
        ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)?
    } else {
        let mut pages = ResultPages::new(&*store, &workflow, filter, args.page.offset, args.page.limit);
        ctx.ui.print_pages(&listing, || Ok(pages.next_page()?.into_iter().map(row).collect()))?
    };
    if printed == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has no matching results", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}

pub(crate) fn show_result(ctx: &CliContext, args: &OneResultArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let everything = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let mut pages = ResultPages::new(&*store, &workflow, everything, 0, None);
    loop {
        let page = pages.next_page()?;
        if page.is_empty() {
            let message =
                format!("workflow {} ({}) has no result {}", workflow.id, workflow.name, args.result);
            return Err(CliError::user(message).with_hint(
                "`windlass jobs results --format json` shows their ids; use --workflow for another workflow",
            ));
        }
        if let Some(result) = page.into_iter().find(|result| result.id.0 == args.result) {
            let row = ResultListRow::new(&workflow, &ctx.cwd, result);
            ctx.ui.print_record(&ListFields::new(FIELDS).with_fields(LOG_FIELDS), row)?;
            return Ok(CliExit::Success);
        }
    }
}

/// Writes all results of all runs as JSON for a bundle, and returns their number.
pub(crate) fn write_all_results(
    out: &mut impl Write,
    store: &dyn Store,
    workflow: &WorkflowRow,
    cwd: &Path,
) -> Result<u64, CliError> {
    let everything = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let mut pages = ResultPages::new(store, workflow, everything, 0, None);
    let row = |result| ResultListRow::new(workflow, cwd, result);
    ListFields::new(FIELDS).write_json(out, || Ok(pages.next_page()?.into_iter().map(row).collect()))
}

/// The results of a workflow, page by page.
pub(crate) struct ResultPages<'a> {
    store: &'a dyn Store,
    workflow: &'a WorkflowRow,
    filter: ResultFilter,
    remaining: u64,
}

impl<'a> ResultPages<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        workflow: &'a WorkflowRow,
        filter: ResultFilter,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        Self {
            store,
            workflow,
            filter: ResultFilter { offset, ..filter },
            remaining: limit.unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn next_page(&mut self) -> Result<Vec<ResultRow>, CliError> {
        if self.remaining == 0 {
            return Ok(Vec::new());
        }
        self.filter.limit = Some(self.remaining.min(PAGE_SIZE));
        let rows = self.store.results(self.workflow.id, &self.filter)?;
        self.remaining -= rows.len() as u64;
        self.filter.offset = 0;
        self.filter.after = rows.last().map(|row| (row.key.job_id, row.key.run_id, row.key.attempt_id));
        Ok(rows)
    }
}

/// If the worker died, there are no measurements.
fn measured_time(row: &ResultListRow, time: Duration) -> FieldValue {
    (row.result.return_code != return_code::ORPHANED).then_some(time).into()
}

fn render_outcome(row: &ResultRow) -> String {
    match (row.status, &row.reason) {
        (JobStatus::Completed, reason) => reason.clone().unwrap_or_else(|| "ok".to_owned()),
        (_, reason) => AttemptEndSummary::from(row).describe_with(reason.as_deref()),
    }
}
