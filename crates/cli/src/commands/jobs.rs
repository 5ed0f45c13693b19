//! `windlass jobs`: the jobs of a workflow.

use crate::args::JobsArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::style::Tone;
use crate::ui::table::{Cell, Column, Table};
use windlass_store::Store as _;
use windlass_store::model::{JobFilter, JobRow};

pub(crate) fn run(ctx: &Context, args: &JobsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&store, &args.workflow)?;
    let filter = JobFilter {
        status: args.status.clone(),
        offset: args.offset,
        limit: args.limit,
        ..JobFilter::default()
    };
    let jobs = store.jobs(workflow.id, &filter)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&jobs)?;
    } else if jobs.is_empty() {
        ctx.ui.note(&format!("workflow {} ({}) has no such jobs", workflow.id, workflow.name));
    } else {
        ctx.ui.print_table(&table(&jobs))?;
    }
    Ok(Exit::Success)
}

fn table(jobs: &[JobRow]) -> Table {
    let mut table = Table::new(vec![
        Column::number("ID"),
        Column::elastic("NAME"),
        Column::text("STATUS"),
        Column::number("ATTEMPT"),
        Column::number("CODE"),
        Column::elastic("COMMAND"),
    ]);
    for job in jobs {
        table.row(vec![
            Cell::new(job.id.to_string()),
            Cell::new(&job.name),
            Cell::toned(job.status.name(), Tone::of(job.status)),
            Cell::new(job.attempt_id.to_string()),
            Cell::maybe(job.return_code),
            Cell::new(&job.command),
        ]);
    }
    table
}
