//! `windlass results`: attempts that ended, with what was measured.

use crate::args::ResultsArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::outcome::Outcome;
use crate::ui::style::Tone;
use crate::ui::table::{Cell, Column, Table};
use windlass_store::Store as _;
use windlass_store::model::{ResultFilter, ResultRow};
use windlass_types::work::return_code;
use windlass_types::{JobStatus, format_duration};

pub(crate) fn run(ctx: &Context, args: &ResultsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&store, &args.workflow)?;
    let job = args.job.as_ref();
    let job = job.map(|job| select::job(&store, &workflow, job, "`windlass results ID`")).transpose()?;
    let filter = ResultFilter {
        job: job.map(|job| job.id),
        all_runs: args.all_runs,
        failed_only: args.failed,
        offset: args.offset,
        limit: args.limit,
        ..ResultFilter::default()
    };
    let results = store.results(workflow.id, &filter)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&results)?;
    } else if results.is_empty() {
        ctx.ui.note(&format!("workflow {} ({}) has no such results", workflow.id, workflow.name));
    } else {
        ctx.ui.print_table(&table(&results))?;
    }
    Ok(Exit::Success)
}

fn table(results: &[ResultRow]) -> Table {
    let mut table = Table::new(vec![
        Column::number("JOB"),
        Column::elastic("NAME"),
        Column::number("RUN"),
        Column::number("ATTEMPT"),
        Column::text("STATUS"),
        Column::number("TIME"),
        Column::number("CPU"),
        Column::number("MEMORY"),
        Column::elastic("OUTCOME"),
    ]);
    for row in results {
        // Nobody was there to measure what its worker did not live to tell.
        let measured = row.return_code != return_code::ORPHANED;
        let time = |duration| Cell::maybe(measured.then(|| format_duration(duration)));
        table.row(vec![
            Cell::new(row.key.job_id.to_string()),
            Cell::new(&row.job_name),
            Cell::new(row.key.run_id.to_string()),
            Cell::new(row.key.attempt_id.to_string()),
            Cell::toned(row.status.name(), Tone::of(row.status)),
            time(row.wall),
            time(row.cpu_time),
            Cell::maybe(row.peak_memory_bytes),
            Cell::new(outcome(row)),
        ]);
    }
    table
}

fn outcome(row: &ResultRow) -> String {
    match (row.status, &row.reason) {
        (JobStatus::Completed, reason) => reason.clone().unwrap_or_else(|| "ok".to_owned()),
        (_, reason) => Outcome::from(row).describe_with(reason.as_deref()),
    }
}
