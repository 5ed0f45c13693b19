//! `windlass status`: one workflow on one screen.

use super::{slurm, workflows};
use crate::args::Format;
use crate::args::workflows::StatusArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::Listing;
use crate::ui::style::{Paint, Tone};
use crate::ui::{progress, summary, text};
use crate::view::{self, Overview, RunningView, State, WorkflowView};
use std::path::Path;
use windlass_store::{Location, Space, Store};
use windlass_types::{JobStatus, StatusCounts, Timestamp, format_duration};

const BAR: usize = 40;
/// Less than this is no bar any more.
const BAR_SHORTEST: usize = 5;

pub(crate) fn run(ctx: &Context, args: &StatusArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    warn_of_trouble(ctx, &*store)?;
    let now = ctx.clock.now();
    let mut overviews = Vec::new();
    for row in select::workflows(&*store, &args.workflows)? {
        let somebody_runs_it = view::is_run_by_somebody(&*store, &row);
        // Being able to show the workflow matters more.
        let usage = slurm::usage::line(ctx, &*store, &row).unwrap_or_default();
        overviews.push(Overview { usage, ..Overview::load(&*store, row, somebody_runs_it, now)? });
    }
    match (ctx.ui.format(), overviews.as_slice()) {
        (Format::Json, [one]) => ctx.ui.print_json(one)?,
        (Format::Json, several) => ctx.ui.print_json(&several)?,
        (Format::Csv, _) => {
            let rows = overviews.into_iter().map(|overview| overview.workflow).collect();
            ctx.ui.print_list(&Listing::new(workflows::FIELDS), rows)?;
        }
        (_, several) => {
            let (paint, width) = (ctx.ui.paint_out(), ctx.ui.width_out());
            let screens = several.iter().map(|one| render(one, now, &ctx.cwd, width, paint));
            ctx.ui.print_lines(&screens.collect::<Vec<_>>().join(&String::new()))?;
        }
    }
    Ok(Exit::Success)
}

/// Nothing goes on while the database cannot be written, whatever the counts say.
fn warn_of_trouble(ctx: &Context, store: &dyn Store) -> Result<(), CliError> {
    if let Some(client) = ctx.server()? {
        // A server that tells nothing of itself has told of the workflows.
        if let Ok(health) = client.health()
            && !matches!(&*health.database, "" | "ok" | "not asked")
        {
            ctx.ui.warn(&format!("nothing goes on at the server: {}", health.database));
        }
        return Ok(());
    }
    let space = match store.location() {
        Location::Sqlite(path) => Space::beside(&path),
        _ => None,
    };
    if let Some(space) = space.filter(|space| space.is_short()) {
        ctx.ui.warn(&format!("little space is left for the database ({space})"));
    }
    Ok(())
}

fn render(
    overview: &Overview,
    now: Timestamp,
    cwd: &Path,
    width: Option<usize>,
    paint: Paint,
) -> Vec<String> {
    let view = &overview.workflow;
    let counts = &view.row.counts;
    let mut lines = vec![
        format!(
            "{}  workflow {}, run {}, {}",
            paint.apply(Tone::Bold, &text::one_line(&view.row.name)),
            view.row.id,
            view.row.run_id,
            paint.apply(workflows::tone(view.state), view.state.name())
        ),
        bar_line(counts, width, paint),
        summary::counts_line(counts, paint),
        times(view),
    ];
    lines.extend(overview.usage.clone());
    lines.extend(running_lines(overview, now, paint));
    let failures = summary::failure_lines(overview, cwd, paint);
    if !failures.is_empty() {
        lines.push(paint.apply(Tone::Bold, "Failed"));
        lines.extend(failures);
    }
    let strays = overview.strays.iter();
    lines.extend(strays.map(|stray| format!("its server is gone, but {}", stray.describe())));
    lines.extend(summary::next_lines(overview, paint));
    lines
}

/// The bar is as long as the words beside it allow.
fn bar_line(counts: &StatusCounts, width: Option<usize>, paint: Paint) -> String {
    let jobs = text::count(counts.enabled(), "job");
    let completed = counts.get(JobStatus::Completed);
    let words = format!("{completed} of {jobs} completed ({}%)", progress::percent(counts));
    let room = width.map_or(BAR, |width| width.saturating_sub(words.len() + 2));
    match room.min(BAR) {
        0..BAR_SHORTEST => words,
        length => format!("{}  {words}", progress::bar(counts, length, paint)),
    }
}

fn times(view: &WorkflowView) -> String {
    let created = text::short_time(view.row.created_at);
    let took = view.elapsed().map(format_duration).unwrap_or_default();
    match (view.row.started_at, view.state) {
        (None, _) => format!("created {created}, never started"),
        (Some(started), State::Running) => {
            format!("started {}, running for {took}", text::short_time(started))
        }
        (Some(started), _) if took.is_empty() => {
            format!("started {}, stopped before its end", text::short_time(started))
        }
        (Some(started), _) => format!("started {}, took {took}", text::short_time(started)),
    }
}

fn running_lines(overview: &Overview, now: Timestamp, paint: Paint) -> Vec<String> {
    // What an interrupted run left as running is not running.
    if overview.workflow.state != State::Running || overview.running.is_empty() {
        return Vec::new();
    }
    let line = |job: &RunningView| {
        let elapsed = job.started_at.map(|at| format_duration(now.since(at))).unwrap_or_default();
        format!("  {}  {}", text::pad_left(&elapsed, 7), text::one_line(&job.name))
    };
    let mut lines = vec![paint.apply(Tone::Bold, "Running")];
    lines.extend(overview.running.iter().map(line));
    let total = overview.workflow.row.counts.get(JobStatus::Running);
    let unnamed = total.saturating_sub(overview.running.len() as u64);
    if unnamed > 0 {
        lines.push(format!("           and {unnamed} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::summary::tests::{failure, overview};
    use windlass_types::{Attempt, JobId};

    #[test]
    fn a_failed_workflow_on_one_screen() {
        let overview =
            overview(&[(JobStatus::Completed, 3), (JobStatus::Failed, 1)], vec![failure("b", 2, None, None)]);
        assert_eq!(
            render(&overview, Timestamp(99_000_000), Path::new("/home/me/p"), None, Paint::PLAIN),
            [
                "sim  workflow 3, run 1, failed",
                "████████████████████████████████████████  3 of 4 jobs completed (75%)",
                "3 completed, 1 failed",
                "started 1970-01-01 00:00:00Z, took 12s",
                "Failed",
                "  b  exit code 2",
                "    out/job_stdio/job_wf3_j7_r1_a2.e",
                "next: windlass logs b --stderr",
                "      windlass resume --retry-failed",
            ]
        );
    }

    #[test]
    fn the_bar_leaves_room_for_its_words() {
        let counts = overview(&[(JobStatus::Completed, 4)], Vec::new()).workflow.row.counts;
        assert_eq!(bar_line(&counts, Some(39), Paint::PLAIN), "█████████  4 of 4 jobs completed (100%)");
        assert_eq!(bar_line(&counts, Some(33), Paint::PLAIN), "4 of 4 jobs completed (100%)");
        for width in 28..90 {
            assert!(text::width(&bar_line(&counts, Some(width), Paint::PLAIN)) <= width, "{width}");
        }
    }

    #[test]
    fn running_jobs_are_shown_only_while_somebody_runs_them() {
        let mut overview = overview(&[(JobStatus::Completed, 1), (JobStatus::Running, 3)], Vec::new());
        let running = RunningView {
            job_id: JobId(2),
            name: "slow".into(),
            attempt_id: Attempt::FIRST,
            pid: Some(42),
            started_at: Some(Timestamp(1_000_000)),
        };
        overview.running = vec![running];
        let now = Timestamp(62_000_000);
        assert_eq!(overview.workflow.state, State::Interrupted);
        assert!(running_lines(&overview, now, Paint::PLAIN).is_empty());
        overview.workflow.state = State::Running;
        assert_eq!(
            running_lines(&overview, now, Paint::PLAIN),
            ["Running", "    1m 1s  slow", "           and 2 more"]
        );
    }
}
