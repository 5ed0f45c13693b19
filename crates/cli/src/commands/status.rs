//! `windlass status`: one workflow on one screen.

use super::{slurm, workflows};
use crate::args::OutputFormat;
use crate::args::workflows::WorkflowStatusArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::ListFields;
use crate::ui::style::{TextPainter, TextTone};
use crate::ui::{progress, run_summary, text};
use crate::workflow_view::{self, RunningJobView, WorkflowOverview, WorkflowPhase, WorkflowView};
use std::path::Path;
use windlass_store::{DiskSpace, Store, StoreLocation};
use windlass_types::{JobStatus, StatusCounts, Timestamp, format_duration};

const BAR_WIDTH: usize = 40;
/// Minimum width of a bar.
const MIN_BAR_WIDTH: usize = 5;

pub(crate) fn run(ctx: &CliContext, args: &WorkflowStatusArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    warn_of_database_errors(ctx, &*store)?;
    let now = ctx.clock.now();
    let mut overviews = Vec::new();
    for row in object_selection::find_workflows(&*store, &args.workflows)? {
        let has_active_process = workflow_view::has_active_process(&*store, &row);
        // The status is shown even if the usage cannot be computed.
        let usage = slurm::usage::render_usage_line(ctx, &*store, &row).unwrap_or_default();
        overviews.push(WorkflowOverview {
            usage,
            ..WorkflowOverview::load(&*store, row, has_active_process, now)?
        });
    }
    match (ctx.ui.format(), overviews.as_slice()) {
        (OutputFormat::Json, [one]) => ctx.ui.print_json(one)?,
        (OutputFormat::Json, several) => ctx.ui.print_json(&several)?,
        (OutputFormat::Csv, _) => {
            let rows = overviews.into_iter().map(|overview| overview.workflow).collect();
            ctx.ui.print_list(&ListFields::new(workflows::FIELDS), rows)?;
        }
        (_, several) => {
            let (paint, width) = (ctx.ui.stdout_painter(), ctx.ui.stdout_width());
            let screens = several.iter().map(|one| render_status(one, now, &ctx.cwd, width, paint));
            ctx.ui.print_lines(&screens.collect::<Vec<_>>().join(&String::new()))?;
            let running = several.iter().find(|one| one.workflow.state == WorkflowPhase::Running);
            let note = ctx.server()?.zip(running).and_then(|(client, running)| {
                workflow_view::missing_workers_note(client, running.workflow.row.id)
            });
            if let Some(note) = note {
                ctx.ui.print_note(&note);
            }
        }
    }
    Ok(CliExit::Success)
}

/// Warns if the database cannot be written: then no workflow makes progress, although the counts look normal.
fn warn_of_database_errors(ctx: &CliContext, store: &dyn Store) -> Result<(), CliError> {
    if let Some(client) = ctx.server()? {
        // A server without a health endpoint still lists the workflows.
        if let Ok(health) = client.health()
            && !matches!(&*health.database, "" | "ok" | "not asked")
        {
            ctx.ui.print_warning(&format!("the server makes no progress: {}", health.database));
        }
        return Ok(());
    }
    let space = match store.location() {
        StoreLocation::Sqlite(path) => DiskSpace::measure(&path),
        _ => None,
    };
    if let Some(space) = space.filter(|space| space.is_short()) {
        ctx.ui.print_warning(&format!("the database is low on disk space ({space})"));
    }
    Ok(())
}

fn render_status(
    overview: &WorkflowOverview,
    now: Timestamp,
    cwd: &Path,
    width: Option<usize>,
    paint: TextPainter,
) -> Vec<String> {
    let view = &overview.workflow;
    let counts = &view.row.counts;
    let mut lines = vec![
        format!(
            "{}  workflow {}, run {}, {}",
            paint.apply(TextTone::Bold, &text::one_line(&view.row.name)),
            view.row.id,
            view.row.run_id,
            paint.apply(workflows::state_tone(view.state), view.state.name())
        ),
        render_bar(counts, width, paint),
        run_summary::render_counts(counts, paint),
        render_times(view),
    ];
    lines.extend(overview.usage.clone());
    lines.extend(render_running(overview, now, paint));
    let failures = run_summary::render_failures(overview, cwd, paint);
    if !failures.is_empty() {
        lines.push(paint.apply(TextTone::Bold, "Failed"));
        lines.extend(failures);
    }
    let orphans = overview.orphaned_workers.iter();
    lines.extend(orphans.map(|orphan| format!("its server has stopped, but {}", orphan.describe())));
    lines.extend(run_summary::render_next_commands(overview, paint));
    lines
}

/// The bar is as long as the text beside it allows.
fn render_bar(counts: &StatusCounts, width: Option<usize>, paint: TextPainter) -> String {
    let jobs = text::render_count(counts.enabled(), "job");
    let completed = counts.get(JobStatus::Completed);
    let words = format!("{completed} of {jobs} completed ({}%)", progress::completed_percent(counts));
    let room = width.map_or(BAR_WIDTH, |width| width.saturating_sub(words.len() + 2));
    match room.min(BAR_WIDTH) {
        0..MIN_BAR_WIDTH => words,
        length => format!("{}  {words}", progress::render_bar(counts, length, paint)),
    }
}

fn render_times(view: &WorkflowView) -> String {
    let created = text::render_time(view.row.created_at);
    let took = view.elapsed().map(format_duration).unwrap_or_default();
    match (view.row.started_at, view.state) {
        (None, _) => format!("created {created}, never started"),
        (Some(started), WorkflowPhase::Running) => {
            format!("started {}, running for {took}", text::render_time(started))
        }
        (Some(started), WorkflowPhase::Interrupted) if took.is_empty() => {
            format!("started {}, interrupted", text::render_time(started))
        }
        (Some(started), _) if took.is_empty() => format!("started {}", text::render_time(started)),
        (Some(started), _) => format!("started {}, took {took}", text::render_time(started)),
    }
}

fn render_running(overview: &WorkflowOverview, now: Timestamp, paint: TextPainter) -> Vec<String> {
    // A job that an interrupted run left in the running state is not running.
    if overview.workflow.state != WorkflowPhase::Running || overview.running.is_empty() {
        return Vec::new();
    }
    let line = |job: &RunningJobView| {
        let elapsed = job.started_at.map(|at| format_duration(now.since(at))).unwrap_or_default();
        format!("  {}  {}", text::pad_left(&elapsed, 7), text::one_line(&job.name))
    };
    let mut lines = vec![paint.apply(TextTone::Bold, "Running")];
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
    use crate::ui::run_summary::tests::{failure, overview};
    use windlass_types::{Attempt, JobId};

    #[test]
    fn workflow_that_needs_a_decision_is_not_called_interrupted() {
        let mut overview = overview(&[(JobStatus::PendingFailed, 1), (JobStatus::Blocked, 1)], Vec::new());
        overview.workflow.row.ended_at = None;
        overview.workflow.elapsed_seconds = None;
        assert_eq!(overview.workflow.state, WorkflowPhase::NeedsDecision);
        assert_eq!(render_times(&overview.workflow), "started 1970-01-01 00:00:00Z");
    }

    #[test]
    fn status_of_failed_workflow_fits_one_screen() {
        let overview =
            overview(&[(JobStatus::Completed, 3), (JobStatus::Failed, 1)], vec![failure("b", 2, None, None)]);
        assert_eq!(
            render_status(
                &overview,
                Timestamp(99_000_000),
                Path::new("/home/me/p"),
                None,
                TextPainter::PLAIN
            ),
            [
                "sim  workflow 3, run 1, failed",
                "██████████████████████████████xxxxxxxxxx  3 of 4 jobs completed (75%)",
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
    fn status_bar_leaves_room_for_text() {
        let counts = overview(&[(JobStatus::Completed, 4)], Vec::new()).workflow.row.counts;
        assert_eq!(
            render_bar(&counts, Some(39), TextPainter::PLAIN),
            "█████████  4 of 4 jobs completed (100%)"
        );
        assert_eq!(render_bar(&counts, Some(33), TextPainter::PLAIN), "4 of 4 jobs completed (100%)");
        for width in 28..90 {
            assert!(
                text::display_width(&render_bar(&counts, Some(width), TextPainter::PLAIN)) <= width,
                "{width}"
            );
        }
    }

    #[test]
    fn running_jobs_are_shown_only_while_workflow_runs() {
        let mut overview = overview(&[(JobStatus::Completed, 1), (JobStatus::Running, 3)], Vec::new());
        let running = RunningJobView {
            job_id: JobId(2),
            name: "slow".into(),
            attempt_id: Attempt::FIRST,
            pid: Some(42),
            started_at: Some(Timestamp(1_000_000)),
        };
        overview.running = vec![running];
        let now = Timestamp(62_000_000);
        assert_eq!(overview.workflow.state, WorkflowPhase::Interrupted);
        assert!(render_running(&overview, now, TextPainter::PLAIN).is_empty());
        overview.workflow.state = WorkflowPhase::Running;
        assert_eq!(
            render_running(&overview, now, TextPainter::PLAIN),
            ["Running", "    1m 1s  slow", "           and 2 more"]
        );
    }
}
