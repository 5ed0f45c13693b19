//! `windlass slurm rpc`: number of calls to Slurm, and the remaining budget.

use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use serde::Serialize;
use std::fmt::Write as _;
use windlass_api::slurm::{AllocationReconcilerStatusResponse, SlurmStatus};
use windlass_core::slurm::call_statistics::{self, CommandCallStats, SlurmCallStats};
use windlass_types::format_duration;

/// JSON output.
#[derive(Serialize)]
struct SlurmCallsView {
    commands: Vec<SlurmCommandView>,
    /// `None` if no server is running.
    server: Option<SlurmStatus>,
}

#[derive(Serialize)]
struct SlurmCommandView {
    command: String,
    this_hour: CallCountsView,
    last_day: CallCountsView,
}

#[derive(Serialize)]
struct CallCountsView {
    #[serde(flatten)]
    calls: SlurmCallStats,
    mean_seconds: Option<f64>,
}

impl From<SlurmCallStats> for CallCountsView {
    fn from(calls: SlurmCallStats) -> Self {
        Self { calls, mean_seconds: calls.mean_duration().map(|mean| mean.as_secs_f64()) }
    }
}

pub(crate) fn run(ctx: &CliContext) -> Result<CliExit, CliError> {
    let now = ctx.clock.now();
    let store = ctx.open_read()?;
    let commands = call_statistics::sum_by_command(&store.slurm_calls(call_statistics::day_start(now))?, now);
    let server = ctx.server()?.map(windlass_client::Client::slurm_status).transpose()?;
    if ctx.ui.wants_json() {
        let view = |of: CommandCallStats| SlurmCommandView {
            command: of.command,
            this_hour: of.hour.into(),
            last_day: of.day.into(),
        };
        ctx.ui.print_json(&SlurmCallsView { commands: commands.into_iter().map(view).collect(), server })?;
        return Ok(CliExit::Success);
    }
    if commands.is_empty() {
        ctx.ui.print_note("no calls to Slurm within a day");
    } else {
        ctx.ui.print_table(&render_table(&commands))?;
    }
    ctx.ui.print_note(&render_budget(server.as_ref()));
    Ok(CliExit::Success)
}

fn render_table(commands: &[CommandCallStats]) -> TextTable {
    let mut table = TextTable::new(vec![
        TableColumn::text("COMMAND"),
        TableColumn::number("THIS HOUR"),
        TableColumn::number("FAILED"),
        TableColumn::number("24 HOURS"),
        TableColumn::number("FAILED"),
        TableColumn::number("MEAN TIME"),
    ]);
    for CommandCallStats { command, hour, day } in commands {
        let number = |number: u64| TableCell::new(number.to_string());
        table.add_row(vec![
            TableCell::new(command),
            number(hour.calls),
            number(hour.failures),
            number(day.calls),
            number(day.failures),
            TableCell::optional(day.mean_duration().map(format_duration)),
        ]);
    }
    table
}

/// The remaining budget, and whether Slurm responds.
fn render_budget(server: Option<&SlurmStatus>) -> String {
    let Some(server) = server else {
        return "no server is running, so Slurm is not polled".to_owned();
    };
    let Some(reconciler) = &server.reconciler else {
        return "this server was started without --slurm; start it with `windlass serve --slurm`".to_owned();
    };
    let AllocationReconcilerStatusResponse { calls_left, paused_until, unanswered, trouble, .. } = reconciler;
    let mut line = format!("{} may be made now", text::render_count((*calls_left).into(), "call"));
    if *unanswered > 0 {
        let questions = text::render_count((*unanswered).into(), "question");
        write!(line, "; Slurm has not answered {questions} in a row").unwrap_or_default();
    }
    if let Some(until) = paused_until {
        write!(line, ", and is not called until {until}").unwrap_or_default();
    }
    if let Some(trouble) = trouble {
        write!(line, "; last error: {trouble}").unwrap_or_default();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_call_budget_renders_as_text() {
        assert_eq!(render_budget(None), "no server is running, so Slurm is not polled");
        let mut server = SlurmStatus::default();
        assert!(render_budget(Some(&server)).contains("`windlass serve --slurm`"));
        server.reconciler = Some(AllocationReconcilerStatusResponse {
            calls_left: 1,
            ..AllocationReconcilerStatusResponse::default()
        });
        assert_eq!(render_budget(Some(&server)), "1 call may be made now");
        server.reconciler = Some(AllocationReconcilerStatusResponse {
            unanswered: 2,
            paused_until: Some("noon".into()),
            trouble: Some("`squeue` failed".into()),
            ..AllocationReconcilerStatusResponse::default()
        });
        assert_eq!(
            render_budget(Some(&server)),
            "0 calls may be made now; Slurm has not answered 2 questions in a row, and is not called until noon; last \
             error: `squeue` failed"
        );
    }
}
