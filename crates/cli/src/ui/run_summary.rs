//! The summary of a run: counts, time, failures with causes, and the next commands. Rendering is pure.

use super::attempt_end::AttemptEndSummary;
use super::style::{TextPainter, TextTone};
use super::text;
use crate::commands::slurm;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs::{self, LogStream};
use crate::workflow_view::{FailedJobView, WorkflowOverview, WorkflowPhase, exit_for_counts};
use std::path::Path;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::worker_messages::return_code;
use windlass_types::{JobStatus, StatusCounts, WorkflowId, format_duration};

/// Prints how a run ended, on stderr or as JSON on stdout, and returns the exit code.
///
/// `wall` is measured by this process; the store only knows wall-clock timestamps.
pub(crate) fn report_run_end(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    wall: Duration,
) -> Result<CliExit, CliError> {
    print_report(ctx, store, workflow, |overview, paint| render_end(overview, Some(wall), &ctx.cwd, paint))
}

/// The same for a process that only followed the run: the time is that of the run itself, if known.
pub(crate) fn report_followed_run(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<CliExit, CliError> {
    print_report(ctx, store, workflow, |overview, paint| {
        render_end(overview, overview.workflow.elapsed(), &ctx.cwd, paint)
    })
}

/// Whether the run has ended and has been finalized.
pub(crate) fn is_over(row: &WorkflowRow) -> bool {
    row.counts.settled() == row.counts.total() && row.ended_at.is_some()
}

/// Reports a workflow that had already ended. `headline` says what happened, `advice` the option to rerun
/// everything; the commands that retry failures come first.
pub(crate) fn report_already_over(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    headline: &str,
    advice: &str,
) -> Result<CliExit, CliError> {
    print_report(ctx, store, workflow, |overview, paint| {
        render_already_over(overview, headline, advice, &ctx.cwd, paint)
    })
}

/// As JSON, or as text; `--quiet` suppresses the text unless jobs failed.
fn print_report(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    render: impl FnOnce(&WorkflowOverview, TextPainter) -> Vec<String>,
) -> Result<CliExit, CliError> {
    let overview = load_overview(ctx, store, workflow)?;
    let exit = exit_for_counts(&overview.workflow.row.counts);
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&overview)?;
    } else if exit != CliExit::Success || !ctx.ui.is_quiet() {
        ctx.ui.print_stderr_lines(&render(&overview, ctx.ui.stderr_painter()));
    }
    Ok(exit)
}

fn render_already_over(
    overview: &WorkflowOverview,
    headline: &str,
    advice: &str,
    cwd: &Path,
    paint: TextPainter,
) -> Vec<String> {
    let counts = render_counts(&overview.workflow.row.counts, paint);
    let mut lines = vec![format!("{headline} ({counts})")];
    lines.extend(render_failures(overview, cwd, paint));
    let next = render_next_commands(overview, paint);
    match (advice.is_empty(), next.is_empty()) {
        (true, _) => lines.extend(next),
        (false, true) => lines[0] = format!("{}; {advice}", lines[0]),
        (false, false) => {
            lines.extend(next);
            lines.push(format!("      {advice}"));
        }
    }
    lines
}

fn load_overview(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<WorkflowOverview, CliError> {
    let row = store
        .workflow(workflow)?
        .ok_or_else(|| CliError::internal(format!("workflow {workflow} is gone from the database")))?;
    // The caller ran the workflow until now, or found it ended. An error in the allocation usage is not worth
    // failing.
    let usage = slurm::usage::render_usage_line(ctx, store, &row).unwrap_or_default();
    Ok(WorkflowOverview { usage, ..WorkflowOverview::load(store, row, false, ctx.clock.now())? })
}

pub(crate) fn render_end(
    overview: &WorkflowOverview,
    wall: Option<Duration>,
    cwd: &Path,
    paint: TextPainter,
) -> Vec<String> {
    let row = &overview.workflow.row;
    let counts = &row.counts;
    let title = paint.apply(TextTone::Bold, &text::one_line(&row.name));
    let time = wall.map(|wall| format!(" in {}", format_duration(wall))).unwrap_or_default();
    let mut lines = vec![format!("{title}: {}{time}", render_counts(counts, paint))];
    lines.extend(overview.usage.clone());
    lines.extend(render_failures(overview, cwd, paint));
    lines.extend(render_next_commands(overview, paint));
    lines
}

/// `97 completed, 2 failed, 1 canceled`.
pub(crate) fn render_counts(counts: &StatusCounts, paint: TextPainter) -> String {
    use JobStatus::{
        Blocked, Canceled, Completed, Disabled, Failed, Pending, PendingFailed, Ready, Running, Terminated,
        Uninitialized,
    };
    const ORDER: [JobStatus; 11] = [
        Completed,
        Failed,
        Terminated,
        PendingFailed,
        Canceled,
        Running,
        Pending,
        Ready,
        Blocked,
        Uninitialized,
        Disabled,
    ];
    let shown: Vec<String> = ORDER
        .into_iter()
        .filter(|status| counts.get(*status) > 0)
        .map(|status| paint.apply(TextTone::for_status(status), &format!("{} {status}", counts.get(status))))
        .collect();
    if shown.is_empty() { "no jobs".to_owned() } else { shown.join(", ") }
}

/// Two lines for each failed job: the outcome, and the log file.
pub(crate) fn render_failures(overview: &WorkflowOverview, cwd: &Path, paint: TextPainter) -> Vec<String> {
    let counts = &overview.workflow.row.counts;
    let failed = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
    let total: u64 = failed.into_iter().map(|status| counts.get(status)).sum();
    let mut lines = Vec::new();
    for failure in &overview.failures {
        lines.push(format!(
            "  {}  {}",
            paint.apply(TextTone::Bad, &text::one_line(&failure.name)),
            text::one_line(&describe_failure(failure))
        ));
        if let Some(path) = &failure.log_path {
            // An attempt without output leaves no file.
            let log = failure.log_stream.map_or("no output".to_owned(), |_| job_logs::short_path(path, cwd));
            lines.push(format!("    {}", paint.apply(TextTone::Dim, &log)));
        }
    }
    let unnamed = total.saturating_sub(overview.failures.len() as u64);
    if unnamed > 0 {
        lines.push(format!("  and {unnamed} more"));
    }
    lines
}

fn describe_failure(failure: &FailedJobView) -> String {
    let outcome = failure.return_code.map(|return_code| AttemptEndSummary {
        status: failure.status,
        return_code,
        signal: failure.signal,
        out_of_memory: failure.out_of_memory,
    });
    match (outcome, &failure.reason) {
        (Some(outcome), reason) => outcome.describe_with(reason.as_deref()),
        (None, Some(reason)) => reason.clone(),
        (None, None) => failure.status.to_string(),
    }
}

/// Number of failures from which grouping them helps.
const MANY_FAILURES: u64 = 10;

/// The commands that help next.
pub(crate) fn next_commands(overview: &WorkflowOverview) -> Vec<String> {
    let id = overview.workflow.row.id;
    let (which, of_which) = if overview.is_newest {
        (String::new(), String::new())
    } else {
        (format!(" {id}"), format!(" -w {id}"))
    };
    let mut commands = Vec::new();
    let needs_resources = |failure: &FailedJobView| {
        let is_timeout = failure.return_code == Some(return_code::TIMEOUT);
        failure.out_of_memory || failure.status == JobStatus::Terminated && is_timeout
    };
    if matches!(overview.workflow.state, WorkflowPhase::Failed)
        && overview.failures.iter().any(needs_resources)
    {
        commands.push(format!("windlass recover{which}"));
    }
    if let Some(failure) = overview.failures.first() {
        let name = text::shell_quote(&failure.name);
        commands.push(match failure.log_stream {
            Some(LogStream::Stderr) => format!("windlass logs {name} --stderr{of_which}"),
            Some(_) => format!("windlass logs {name}{of_which}"),
            None => format!("windlass why {name}{of_which}"),
        });
    }
    match overview.workflow.state {
        WorkflowPhase::Interrupted if !overview.orphaned_workers.is_empty() => {
            commands.push("windlass serve".to_owned());
        }
        WorkflowPhase::Created | WorkflowPhase::Interrupted => {
            commands.push(format!("windlass resume{which}"));
        }
        WorkflowPhase::NeedsDecision => {
            commands.push(format!("windlass failures pending{which}"));
            commands.push(format!("windlass resume{which} --retry-failed"));
        }
        WorkflowPhase::Failed | WorkflowPhase::Canceled => {
            let counts = &overview.workflow.row.counts;
            if counts.get(JobStatus::Failed) + counts.get(JobStatus::Terminated) >= MANY_FAILURES {
                commands.push(format!("windlass failures{which}"));
            }
            commands.push(format!("windlass resume{which} --retry-failed"));
        }
        WorkflowPhase::Running | WorkflowPhase::Completed => {}
    }
    commands
}

pub(crate) fn render_next_commands(overview: &WorkflowOverview, paint: TextPainter) -> Vec<String> {
    let commands = next_commands(overview);
    let heading = |i: usize| if i == 0 { "next:" } else { "     " };
    commands
        .iter()
        .enumerate()
        .map(|(i, c)| format!("{} {c}", paint.apply(TextTone::Busy, heading(i))))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::workflow_view::{StatusCountsView, WorkflowView};
    use std::path::PathBuf;
    use windlass_types::worker_messages::StdioSettings;
    use windlass_types::{Attempt, JobId, RunId, Timestamp};

    pub(crate) fn overview(list: &[(JobStatus, u64)], failures: Vec<FailedJobView>) -> WorkflowOverview {
        let mut counts = StatusCounts::default();
        for (status, n) in list {
            counts.add(*status, *n);
        }
        let row = WorkflowRow {
            id: WorkflowId(3),
            uuid: "u".into(),
            name: "sim".into(),
            user: "me".into(),
            description: None,
            created_at: Timestamp(0),
            run_id: RunId(1),
            is_canceled: false,
            is_archived: false,
            file_count: 0,
            settings: windlass_types::settings::WorkflowSettings::default(),
            submission_dir: "/home/me/p".into(),
            output_dir: "/home/me/p/out".into(),
            spec_path: None,
            spec_digest: None,
            env: Vec::new(),
            stdio: StdioSettings::default(),
            counts,
            started_at: Some(Timestamp(0)),
            ended_at: Some(Timestamp(12_000_000)),
        };
        let state = WorkflowPhase::from_row(&row, false);
        let workflow =
            WorkflowView { row, state, jobs: StatusCountsView(counts), elapsed_seconds: Some(12.0) };
        WorkflowOverview {
            workflow,
            running: Vec::new(),
            failures,
            is_newest: true,
            orphaned_workers: Vec::new(),
            usage: None,
        }
    }

    pub(crate) fn failure(
        name: &str,
        return_code: i32,
        signal: Option<i32>,
        reason: Option<&str>,
    ) -> FailedJobView {
        FailedJobView {
            job_id: JobId(7),
            name: name.into(),
            status: JobStatus::Failed,
            run_id: RunId(1),
            attempt_id: Attempt(2),
            return_code: Some(return_code),
            signal,
            out_of_memory: false,
            reason: reason.map(str::to_owned),
            log_path: Some(PathBuf::from("/home/me/p/out/job_stdio/job_wf3_j7_r1_a2.e")),
            log_stream: Some(LogStream::Stderr),
        }
    }

    fn end(overview: &WorkflowOverview) -> Vec<String> {
        render_end(overview, Some(Duration::from_millis(12_400)), Path::new("/home/me/p"), TextPainter::PLAIN)
    }

    #[test]
    fn summary_of_completed_run_is_one_line() {
        assert_eq!(end(&overview(&[(JobStatus::Completed, 40)], Vec::new())), ["sim: 40 completed in 12s"]);
    }

    #[test]
    fn summary_names_failures_with_cause_log_and_next_command() {
        let failures =
            vec![failure("it's", 139, Some(11), None), failure("b", 1, None, Some("no output `x.csv`"))];
        let mut overview = overview(
            &[(JobStatus::Completed, 5), (JobStatus::Failed, 3), (JobStatus::Canceled, 1)],
            failures,
        );
        assert_eq!(
            end(&overview),
            [
                "sim: 5 completed, 3 failed, 1 canceled in 12s",
                "  it's  killed by SIGSEGV (139)",
                "    out/job_stdio/job_wf3_j7_r1_a2.e",
                "  b  exit code 1: no output `x.csv`",
                "    out/job_stdio/job_wf3_j7_r1_a2.e",
                "  and 1 more",
                r"next: windlass logs 'it'\''s' --stderr",
                "      windlass resume --retry-failed",
            ]
        );
        overview.is_newest = false;
        assert_eq!(end(&overview)[7], "      windlass resume 3 --retry-failed");
        overview.failures[0].log_stream = Some(LogStream::Stdout);
        assert_eq!(end(&overview)[6], r"next: windlass logs 'it'\''s' -w 3");
        overview.failures[0].log_stream = None;
        assert_eq!(end(&overview)[2], "    no output");
        assert_eq!(end(&overview)[6], r"next: windlass why 'it'\''s' -w 3");
    }

    #[test]
    fn summary_suggests_recover_first_after_a_lack_of_memory_or_time() {
        let time = FailedJobView { status: JobStatus::Terminated, ..failure("b", 152, Some(15), None) };
        for short in [FailedJobView { out_of_memory: true, ..failure("b", 137, Some(9), None) }, time] {
            let overview = overview(&[(JobStatus::Failed, 2)], vec![failure("a", 1, None, None), short]);
            assert_eq!(
                next_commands(&overview),
                ["windlass recover", "windlass logs a --stderr", "windlass resume --retry-failed"]
            );
        }
    }

    #[test]
    fn summary_of_interrupted_run_names_resume() {
        let overview = overview(
            &[(JobStatus::Completed, 5), (JobStatus::Ready, 2), (JobStatus::Blocked, 9)],
            Vec::new(),
        );
        assert_eq!(end(&overview), ["sim: 5 completed, 2 ready, 9 blocked in 12s", "next: windlass resume"]);
    }

    #[test]
    fn exit_code_follows_job_counts() {
        for (list, exit) in [
            (vec![(JobStatus::Completed, 3), (JobStatus::Disabled, 1)], CliExit::Success),
            (vec![(JobStatus::Completed, 3), (JobStatus::Canceled, 1)], CliExit::JobsFailed),
            (vec![(JobStatus::Failed, 3), (JobStatus::Ready, 1)], CliExit::Interrupted),
        ] {
            assert_eq!(exit_for_counts(&overview(&list, Vec::new()).workflow.row.counts), exit, "{list:?}");
        }
    }
}
