//! How a run went: counts, time, what failed and why, and what to type next. Rendering is pure.

use super::outcome::Outcome;
use super::style::{Paint, Tone};
use super::text;
use crate::commands::slurm;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs::{self, Stream};
use crate::view::{Failure, Overview, State, exit_of};
use std::path::Path;
use std::time::Duration;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{JobStatus, StatusCounts, WorkflowId, format_duration};

/// Tells how a run ended, on stderr or as JSON on stdout, and how the program should exit.
///
/// `wall` is what this process measured; the store only knows the wall clock.
pub(crate) fn report_end(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    wall: Duration,
) -> Result<Exit, CliError> {
    report(ctx, store, workflow, |overview, paint| render_end(overview, Some(wall), &ctx.cwd, paint))
}

/// The same for a process that only followed the run: the time is that of the run itself, as far as it is known.
pub(crate) fn report_followed(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<Exit, CliError> {
    report(ctx, store, workflow, |overview, paint| {
        render_end(overview, overview.workflow.elapsed(), &ctx.cwd, paint)
    })
}

/// Nothing of this run is left to do or to put in order.
pub(crate) fn is_over(row: &WorkflowRow) -> bool {
    row.counts.settled() == row.counts.total() && row.ended_at.is_some()
}

/// Tells how a workflow went that was over before. `news` says that it is over, `advice` what may be done about it.
pub(crate) fn report_over(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    news: &str,
    advice: &str,
) -> Result<Exit, CliError> {
    report(ctx, store, workflow, |overview, paint| render_over(overview, news, advice, &ctx.cwd, paint))
}

/// As JSON, or in words; quiet means quiet unless something failed.
fn report(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    render: impl FnOnce(&Overview, Paint) -> Vec<String>,
) -> Result<Exit, CliError> {
    let overview = load(ctx, store, workflow)?;
    let exit = exit_of(&overview.workflow.row.counts);
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&overview)?;
    } else if exit != Exit::Success || !ctx.ui.is_quiet() {
        ctx.ui.say_lines(&render(&overview, ctx.ui.paint_err()));
    }
    Ok(exit)
}

fn render_over(overview: &Overview, news: &str, advice: &str, cwd: &Path, paint: Paint) -> Vec<String> {
    let counts = counts_line(&overview.workflow.row.counts, paint);
    let mut lines = vec![format!("{news} ({counts}){advice}")];
    lines.extend(failure_lines(overview, cwd, paint));
    lines.extend(next_lines(overview, paint));
    lines
}

fn load(ctx: &Context, store: &dyn Store, workflow: WorkflowId) -> Result<Overview, CliError> {
    let row = store
        .workflow(workflow)?
        .ok_or_else(|| CliError::internal(format!("workflow {workflow} is gone from the database")))?;
    // Whoever calls this ran it until now, or found it over.
    // What its allocations were used for is worth a line, and no failure.
    let usage = slurm::usage::line(ctx, store, &row).unwrap_or_default();
    Ok(Overview { usage, ..Overview::load(store, row, false, ctx.clock.now())? })
}

pub(crate) fn render_end(
    overview: &Overview,
    wall: Option<Duration>,
    cwd: &Path,
    paint: Paint,
) -> Vec<String> {
    let row = &overview.workflow.row;
    let counts = &row.counts;
    let title = paint.apply(Tone::Bold, &text::one_line(&row.name));
    let time = wall.map(|wall| format!(" in {}", format_duration(wall))).unwrap_or_default();
    let mut lines = vec![format!("{title}: {}{time}", counts_line(counts, paint))];
    lines.extend(overview.usage.clone());
    lines.extend(failure_lines(overview, cwd, paint));
    lines.extend(next_lines(overview, paint));
    lines
}

/// `97 completed, 2 failed, 1 canceled`.
pub(crate) fn counts_line(counts: &StatusCounts, paint: Paint) -> String {
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
        .map(|status| paint.apply(Tone::of(status), &format!("{} {status}", counts.get(status))))
        .collect();
    if shown.is_empty() { "no jobs".to_owned() } else { shown.join(", ") }
}

/// Two lines for each failed job: what happened, and where it is written.
pub(crate) fn failure_lines(overview: &Overview, cwd: &Path, paint: Paint) -> Vec<String> {
    let counts = &overview.workflow.row.counts;
    let failed = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
    let total: u64 = failed.into_iter().map(|status| counts.get(status)).sum();
    let mut lines = Vec::new();
    for failure in &overview.failures {
        lines.push(format!(
            "  {}  {}",
            paint.apply(Tone::Bad, &text::one_line(&failure.name)),
            text::one_line(&what_happened(failure))
        ));
        if let Some(path) = &failure.log_path {
            // What printed nothing has left no file.
            let log = failure.spoken.map_or("it printed nothing".to_owned(), |_| job_logs::short(path, cwd));
            lines.push(format!("    {}", paint.apply(Tone::Dim, &log)));
        }
    }
    let unnamed = total.saturating_sub(overview.failures.len() as u64);
    if unnamed > 0 {
        lines.push(format!("  and {unnamed} more"));
    }
    lines
}

fn what_happened(failure: &Failure) -> String {
    let outcome = failure.return_code.map(|return_code| Outcome {
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

/// So many failures are worth a look at what they have in common.
const MANY: u64 = 10;

/// The commands that help from here.
pub(crate) fn next_commands(overview: &Overview) -> Vec<String> {
    let id = overview.workflow.row.id;
    let (which, of_which) = if overview.is_newest {
        (String::new(), String::new())
    } else {
        (format!(" {id}"), format!(" -w {id}"))
    };
    let mut commands = Vec::new();
    if let Some(failure) = overview.failures.first() {
        let name = text::shell_quote(&failure.name);
        commands.push(match failure.spoken {
            Some(Stream::Stderr) => format!("windlass logs {name} --stderr{of_which}"),
            Some(_) => format!("windlass logs {name}{of_which}"),
            None => format!("windlass why {name}{of_which}"),
        });
    }
    match overview.workflow.state {
        State::Interrupted if !overview.strays.is_empty() => commands.push("windlass serve".to_owned()),
        State::Created | State::Interrupted => commands.push(format!("windlass resume{which}")),
        State::NeedsDecision => {
            commands.push(format!("windlass triage{which}"));
            commands.push(format!("windlass resume{which} --retry-failed"));
        }
        State::Failed | State::Canceled => {
            let counts = &overview.workflow.row.counts;
            if counts.get(JobStatus::Failed) + counts.get(JobStatus::Terminated) >= MANY {
                commands.push(format!("windlass failures{which}"));
            }
            commands.push(format!("windlass resume{which} --retry-failed"));
        }
        State::Running | State::Completed => {}
    }
    commands
}

pub(crate) fn next_lines(overview: &Overview, paint: Paint) -> Vec<String> {
    let commands = next_commands(overview);
    let heading = |i: usize| if i == 0 { "next:" } else { "     " };
    commands.iter().enumerate().map(|(i, c)| format!("{} {c}", paint.apply(Tone::Busy, heading(i)))).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::view::{Counts, WorkflowView};
    use std::path::PathBuf;
    use windlass_types::work::Stdio;
    use windlass_types::{Attempt, JobId, RunId, Timestamp};

    pub(crate) fn overview(list: &[(JobStatus, u64)], failures: Vec<Failure>) -> Overview {
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
            settings: windlass_types::settings::Settings::default(),
            submission_dir: "/home/me/p".into(),
            output_dir: "/home/me/p/out".into(),
            spec_path: None,
            spec_digest: None,
            env: Vec::new(),
            stdio: Stdio::default(),
            counts,
            started_at: Some(Timestamp(0)),
            ended_at: Some(Timestamp(12_000_000)),
        };
        let state = State::of(&row, false);
        let workflow = WorkflowView { row, state, jobs: Counts(counts), elapsed_seconds: Some(12.0) };
        Overview { workflow, running: Vec::new(), failures, is_newest: true, strays: Vec::new(), usage: None }
    }

    pub(crate) fn failure(
        name: &str,
        return_code: i32,
        signal: Option<i32>,
        reason: Option<&str>,
    ) -> Failure {
        Failure {
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
            spoken: Some(Stream::Stderr),
        }
    }

    fn end(overview: &Overview) -> Vec<String> {
        render_end(overview, Some(Duration::from_millis(12_400)), Path::new("/home/me/p"), Paint::PLAIN)
    }

    #[test]
    fn a_good_end_is_one_line() {
        assert_eq!(end(&overview(&[(JobStatus::Completed, 40)], Vec::new())), ["sim: 40 completed in 12s"]);
    }

    #[test]
    fn failures_are_named_with_cause_log_and_next_step() {
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
        overview.failures[0].spoken = Some(Stream::Stdout);
        assert_eq!(end(&overview)[6], r"next: windlass logs 'it'\''s' -w 3");
        overview.failures[0].spoken = None;
        assert_eq!(end(&overview)[2], "    it printed nothing");
        assert_eq!(end(&overview)[6], r"next: windlass why 'it'\''s' -w 3");
    }

    #[test]
    fn an_interrupted_run_says_how_to_go_on() {
        let overview = overview(
            &[(JobStatus::Completed, 5), (JobStatus::Ready, 2), (JobStatus::Blocked, 9)],
            Vec::new(),
        );
        assert_eq!(end(&overview), ["sim: 5 completed, 2 ready, 9 blocked in 12s", "next: windlass resume"]);
    }

    #[test]
    fn the_exit_code_follows_the_counts() {
        for (list, exit) in [
            (vec![(JobStatus::Completed, 3), (JobStatus::Disabled, 1)], Exit::Success),
            (vec![(JobStatus::Completed, 3), (JobStatus::Canceled, 1)], Exit::JobsFailed),
            (vec![(JobStatus::Failed, 3), (JobStatus::Ready, 1)], Exit::Interrupted),
        ] {
            assert_eq!(exit_of(&overview(&list, Vec::new()).workflow.row.counts), exit, "{list:?}");
        }
    }
}
