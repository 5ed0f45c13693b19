//! `windlass results`: attempts that ended, with what was measured.

use crate::args::jobs::{OneResultArgs, ResultsListArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs::{self, Stream};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing, PAGE};
use crate::ui::outcome::Outcome;
use crate::ui::table::Column;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::{ResultFilter, ResultRow, WorkflowRow};
use windlass_types::work::return_code;
use windlass_types::{JobStatus, matching_statuses};

/// A result with where its output lies.
pub(crate) struct Row {
    result: ResultRow,
    stdout: Option<String>,
    stderr: Option<String>,
    recovery: Option<String>,
}

impl Row {
    fn new(workflow: &WorkflowRow, cwd: &Path, result: ResultRow) -> Self {
        let written = job_logs::written(workflow, result.key.into());
        let path = |wanted: Stream| {
            let (_, path) = written.iter().find(|(stream, _)| [wanted, Stream::Combined].contains(stream))?;
            Some(job_logs::short(path, cwd))
        };
        let recovery = job_logs::of_recovery(workflow, result.key.into());
        let recovery = recovery.map(|path| job_logs::short(&path, cwd));
        Self { stdout: path(Stream::Stdout), stderr: path(Stream::Stderr), recovery, result }
    }
}

const FIELDS: &[Field<Row>] = &[
    Field::new("id", |row: &Row| row.result.id.0.into()),
    Field::new("workflow_id", |row: &Row| row.result.key.workflow_id.0.into()),
    Field::new("job_id", |row: &Row| row.result.key.job_id.0.into()).column(Column::number("JOB")),
    Field::new("job_name", |row: &Row| (&row.result.job_name).into()).column(Column::elastic("NAME")),
    Field::new("run_id", |row: &Row| row.result.key.run_id.0.into()).column(Column::number("RUN")),
    Field::new("attempt_id", |row: &Row| row.result.key.attempt_id.0.into())
        .column(Column::number("ATTEMPT")),
    Field::new("status", |row: &Row| row.result.status.into()).column(Column::text("STATUS")),
    Field::shown(Column::number("TIME"), |row: &Row| measured(row, row.result.wall)),
    Field::shown(Column::number("CPU"), |row: &Row| measured(row, row.result.cpu_time)),
    Field::new("return_code", |row: &Row| row.result.return_code.into()),
    Field::new("signal", |row: &Row| row.result.signal.into()),
    Field::new("out_of_memory", |row: &Row| row.result.out_of_memory.into()),
    Field::new("reason", |row: &Row| row.result.reason.as_ref().into()),
    Field::new("recovered", |row: &Row| row.result.recovered.as_ref().map(ToString::to_string).into()),
    Field::new("class", |row: &Row| row.result.class.map(|class| class.to_string()).into()),
    Field::new("signature", |row: &Row| row.result.signature.as_ref().into()),
    Field::new("worker_id", |row: &Row| row.result.worker_id.0.into()),
    Field::new("started_at", |row: &Row| row.result.started_at.into()),
    Field::new("ended_at", |row: &Row| row.result.ended_at.into()),
    Field::new("wall_seconds", |row: &Row| row.result.wall.into()),
    Field::new("cpu_seconds", |row: &Row| row.result.cpu_time.into()),
    Field::new("peak_memory_bytes", |row: &Row| row.result.peak_memory_bytes.into())
        .column(Column::number("MEMORY")),
    Field::new("avg_memory_bytes", |row: &Row| row.result.avg_memory_bytes.into()),
    Field::new("peak_cpu_percent", |row: &Row| row.result.peak_cpu_percent.into()),
    Field::new("avg_cpu_percent", |row: &Row| row.result.avg_cpu_percent.into()),
    Field::shown(Column::elastic("OUTCOME"), |row: &Row| outcome(&row.result).into()),
];

const LOG_FIELDS: &[Field<Row>] = &[
    Field::new("stdout_path", |row: &Row| row.stdout.as_ref().into()).column(Column::path("STDOUT")),
    Field::new("stderr_path", |row: &Row| row.stderr.as_ref().into()).column(Column::path("STDERR")),
    Field::new("recovery_path", |row: &Row| row.recovery.as_ref().into()).column(Column::path("RECOVERY")),
];

pub(crate) fn list(ctx: &Context, args: &ResultsListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let job = args.job.as_ref();
    let job = job.map(|job| select::job(&*store, &workflow, job, "`windlass results ID`")).transpose()?;
    let filter = ResultFilter {
        job: job.map(|job| job.id),
        run: args.run,
        all_runs: args.all_runs,
        failed_only: args.failed,
        status: matching_statuses(&args.status),
        return_code: args.return_code,
        ..ResultFilter::default()
    };
    let listing = Listing::new(FIELDS);
    let listing = if args.include_logs { listing.with(LOG_FIELDS) } else { listing };
    let listing = listing.without(&args.page.exclude)?;
    let row = |result| Row::new(&workflow, &ctx.cwd, result);
    let printed = if args.page.is_rearranged() {
        let rows = store.results(workflow.id, &filter)?.into_iter().map(row).collect();
        ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)?
    } else {
        let mut pages = Pages::new(&*store, &workflow, filter, args.page.offset, args.page.limit);
        ctx.ui.print_pages(&listing, || Ok(pages.next()?.into_iter().map(row).collect()))?
    };
    if printed == 0 {
        ctx.ui.note(&format!("workflow {} ({}) has no such results", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}

pub(crate) fn get(ctx: &Context, args: &OneResultArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let everything = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let mut pages = Pages::new(&*store, &workflow, everything, 0, None);
    loop {
        let page = pages.next()?;
        if page.is_empty() {
            let said = format!("workflow {} ({}) has no result {}", workflow.id, workflow.name, args.result);
            return Err(CliError::user(said).with_hint(
                "`windlass results --format json` shows their ids; --workflow names another workflow",
            ));
        }
        if let Some(result) = page.into_iter().find(|result| result.id.0 == args.result) {
            let row = Row::new(&workflow, &ctx.cwd, result);
            ctx.ui.print_record(&Listing::new(FIELDS).with(LOG_FIELDS), row)?;
            return Ok(Exit::Success);
        }
    }
}

/// All results of all runs as JSON, for somebody who is to help; tells how many there were.
pub(crate) fn write_all(
    out: &mut impl Write,
    store: &dyn Store,
    workflow: &WorkflowRow,
    cwd: &Path,
) -> Result<u64, CliError> {
    let everything = ResultFilter { all_runs: true, ..ResultFilter::default() };
    let mut pages = Pages::new(store, workflow, everything, 0, None);
    let row = |result| Row::new(workflow, cwd, result);
    Listing::new(FIELDS).write_json(out, || Ok(pages.next()?.into_iter().map(row).collect()))
}

/// The results of a workflow, so many at a time.
pub(crate) struct Pages<'a> {
    store: &'a dyn Store,
    workflow: &'a WorkflowRow,
    filter: ResultFilter,
    left: u64,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        workflow: &'a WorkflowRow,
        filter: ResultFilter,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        Self { store, workflow, filter: ResultFilter { offset, ..filter }, left: limit.unwrap_or(u64::MAX) }
    }

    pub(crate) fn next(&mut self) -> Result<Vec<ResultRow>, CliError> {
        if self.left == 0 {
            return Ok(Vec::new());
        }
        self.filter.limit = Some(self.left.min(PAGE));
        let rows = self.store.results(self.workflow.id, &self.filter)?;
        self.left -= rows.len() as u64;
        self.filter.offset = 0;
        self.filter.after = rows.last().map(|row| (row.key.job_id, row.key.run_id, row.key.attempt_id));
        Ok(rows)
    }
}

/// Nobody was there to measure what its worker did not live to tell.
fn measured(row: &Row, time: Duration) -> Datum {
    (row.result.return_code != return_code::ORPHANED).then_some(time).into()
}

fn outcome(row: &ResultRow) -> String {
    match (row.status, &row.reason) {
        (JobStatus::Completed, reason) => reason.clone().unwrap_or_else(|| "ok".to_owned()),
        (_, reason) => Outcome::from(row).describe_with(reason.as_deref()),
    }
}
