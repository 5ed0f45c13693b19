//! `windlass workflows`: what is in this database, the newest first.

use crate::args::WorkflowsArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::style::Tone;
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use crate::view::{self, State, WorkflowView};
use windlass_store::Store as _;
use windlass_types::format_duration;

pub(crate) fn run(ctx: &Context, _args: &WorkflowsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let mut rows = store.workflows()?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    let now = ctx.clock.now();
    let view = |row| {
        let somebody_runs_it = view::is_run_by_somebody(&store, &row);
        WorkflowView::new(row, somebody_runs_it, now)
    };
    let views: Vec<WorkflowView> = rows.into_iter().map(view).collect();
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&views)?;
    } else if views.is_empty() {
        ctx.ui.note("there is no workflow yet; `windlass run SPEC` makes one and runs it");
    } else {
        ctx.ui.print_table(&table(&views))?;
    }
    Ok(Exit::Success)
}

fn table(views: &[WorkflowView]) -> Table {
    let mut table = Table::new(vec![
        Column::number("ID"),
        Column::elastic("NAME"),
        Column::text("STATE"),
        Column::number("JOBS"),
        Column::number("DONE"),
        Column::number("FAILED"),
        Column::number("RUN"),
        Column::number("TIME"),
        Column::text("CREATED"),
    ]);
    for view in views {
        let counts = &view.row.counts;
        table.row(vec![
            Cell::new(view.row.id.to_string()),
            Cell::new(&view.row.name),
            Cell::toned(view.state.name(), tone(view.state)),
            Cell::new(counts.total().to_string()),
            Cell::new(counts.settled().to_string()),
            Cell::toned(counts.unsuccessful().to_string(), (counts.unsuccessful() > 0).then_some(Tone::Bad)),
            Cell::new(view.row.run_id.to_string()),
            Cell::maybe(view.elapsed().map(format_duration)),
            Cell::new(text::short_time(view.row.created_at)),
        ]);
    }
    table
}

pub(crate) const fn tone(state: State) -> Option<Tone> {
    match state {
        State::Created => None,
        State::Running => Some(Tone::Busy),
        State::Completed => Some(Tone::Good),
        State::Failed => Some(Tone::Bad),
        State::Interrupted | State::Canceled => Some(Tone::Warn),
    }
}
