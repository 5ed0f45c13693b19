//! `windlass slurm rpc`: how often Slurm was asked, and what may be asked of it still.

use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use serde::Serialize;
use std::fmt::Write as _;
use windlass_api::slurm::{SlurmStatus, Steward};
use windlass_core::slurm::calls::{self, Calls, OfCommand};
use windlass_types::format_duration;

/// For programs.
#[derive(Serialize)]
struct View {
    commands: Vec<CommandView>,
    /// Nothing if no server is there.
    server: Option<SlurmStatus>,
}

#[derive(Serialize)]
struct CommandView {
    command: String,
    this_hour: CallsView,
    last_day: CallsView,
}

#[derive(Serialize)]
struct CallsView {
    #[serde(flatten)]
    calls: Calls,
    mean_seconds: Option<f64>,
}

impl From<Calls> for CallsView {
    fn from(calls: Calls) -> Self {
        Self { calls, mean_seconds: calls.mean().map(|mean| mean.as_secs_f64()) }
    }
}

pub(crate) fn run(ctx: &Context) -> Result<Exit, CliError> {
    let now = ctx.clock.now();
    let store = ctx.open_read()?;
    let commands = calls::sums(&store.slurm_calls(calls::day_before(now))?, now);
    let server = ctx.server()?.map(windlass_client::Client::slurm_status).transpose()?;
    if ctx.ui.json_wanted() {
        let view = |of: OfCommand| CommandView {
            command: of.command,
            this_hour: of.hour.into(),
            last_day: of.day.into(),
        };
        ctx.ui.print_json(&View { commands: commands.into_iter().map(view).collect(), server })?;
        return Ok(Exit::Success);
    }
    if commands.is_empty() {
        ctx.ui.note("nothing was asked of Slurm within a day");
    } else {
        ctx.ui.print_table(&table(&commands))?;
    }
    ctx.ui.note(&told(server.as_ref()));
    Ok(Exit::Success)
}

fn table(commands: &[OfCommand]) -> Table {
    let mut table = Table::new(vec![
        Column::text("COMMAND"),
        Column::number("THIS HOUR"),
        Column::number("FAILED"),
        Column::number("24 HOURS"),
        Column::number("FAILED"),
        Column::number("MEAN TIME"),
    ]);
    for OfCommand { command, hour, day } in commands {
        let number = |number: u64| Cell::new(number.to_string());
        table.row(vec![
            Cell::new(command),
            number(hour.calls),
            number(hour.failures),
            number(day.calls),
            number(day.failures),
            Cell::maybe(day.mean().map(format_duration)),
        ]);
    }
    table
}

/// What may be asked, and whether Slurm answers.
fn told(server: Option<&SlurmStatus>) -> String {
    let Some(server) = server else {
        return "no server is running: nobody asks Slurm now".to_owned();
    };
    let Some(steward) = &server.steward else {
        return "this server asks nothing of Slurm; `windlass serve --slurm` does".to_owned();
    };
    let Steward { calls_left, paused_until, unanswered, trouble, .. } = steward;
    let mut told = format!("{} may be made now", text::count((*calls_left).into(), "call"));
    if *unanswered > 0 {
        let questions = text::count((*unanswered).into(), "question");
        write!(told, "; Slurm has not answered {questions} in a row").unwrap_or_default();
    }
    if let Some(until) = paused_until {
        write!(told, ", and is left alone until {until}").unwrap_or_default();
    }
    if let Some(trouble) = trouble {
        write!(told, "; last trouble: {trouble}").unwrap_or_default();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_goes_with_slurm() {
        assert_eq!(told(None), "no server is running: nobody asks Slurm now");
        let mut server = SlurmStatus::default();
        assert!(told(Some(&server)).contains("`windlass serve --slurm`"));
        server.steward = Some(Steward { calls_left: 1, ..Steward::default() });
        assert_eq!(told(Some(&server)), "1 call may be made now");
        server.steward = Some(Steward {
            unanswered: 2,
            paused_until: Some("noon".into()),
            trouble: Some("`squeue` failed".into()),
            ..Steward::default()
        });
        assert_eq!(
            told(Some(&server)),
            "0 calls may be made now; Slurm has not answered 2 questions in a row, and is left alone until noon; last \
             trouble: `squeue` failed"
        );
    }
}
