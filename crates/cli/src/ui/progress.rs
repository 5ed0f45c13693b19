//! The progress display of a run: lines rendered from a [`RunProgress`], pure.
//!
//! `run_observers` decides when and where they are printed.

use super::style::{TextPainter, TextTone};
use super::text;
use std::time::Duration;
use windlass_scheduler::run_observer::{RunProgress, RunningJob};
use windlass_types::{JobStatus, StatusCounts, format_duration};

const MAX_BAR_WIDTH: usize = 40;
const MIN_BAR_WIDTH: usize = 10;
/// Terminals narrower than this get a short bar.
const NARROW_COLUMNS: usize = 100;
/// Minimum number of settled jobs for an estimate.
const MIN_SETTLED_FOR_ESTIMATE: u64 = 3;

/// The live block: a bar with counts, then at most `names` running jobs.
pub(crate) fn render_block(
    progress: &RunProgress,
    columns: usize,
    names: usize,
    paint: TextPainter,
) -> Vec<String> {
    let mut lines = vec![render_bar_line(progress, columns, paint)];
    lines.extend(render_running_jobs(&progress.running, columns, names, paint));
    if let Some(error_text) = &progress.problem {
        let line = text::truncate(&format!("waiting: {}", text::one_line(error_text)), columns);
        lines.push(paint.apply(TextTone::Warn, &line));
    }
    if progress.is_stopping {
        let line = format!(
            "stopping: {} to end; Ctrl-C again kills",
            text::render_count(progress.counts.active(), "job")
        );
        lines.push(paint.apply(TextTone::Warn, &text::truncate(&line, columns)));
    }
    lines
}

/// The same in one line, for a log file.
pub(crate) fn render_line(progress: &RunProgress) -> String {
    progress_facts(progress).into_iter().map(|(fact, _)| fact).collect::<Vec<_>>().join(", ")
}

/// The estimated remaining time at the present rate; `None` if it is unknown.
pub(crate) fn estimate_time_left(progress: &RunProgress) -> Option<Duration> {
    let counts = &progress.counts;
    let left = counts.total() - counts.settled() - counts.get(JobStatus::PendingFailed);
    let known = counts.settled() >= MIN_SETTLED_FOR_ESTIMATE && progress.jobs_per_second > 0.0 && left > 0;
    let going_on = !progress.is_stopping && progress.problem.is_none();
    let seconds = left as f64 / progress.jobs_per_second;
    (known && going_on && seconds < 1e9).then(|| Duration::from_secs_f64(seconds.max(1.0)))
}

/// `412/1000 completed (41%)`, `3 failed`, … the most important first.
fn progress_facts(progress: &RunProgress) -> Vec<(String, Option<TextTone>)> {
    let counts = &progress.counts;
    let mut facts = vec![(format!("{} ({}%)", render_completed(counts), completed_percent(counts)), None)];
    if counts.unsuccessful() > 0 {
        facts.push((render_unsuccessful(counts), Some(TextTone::Bad)));
    }
    if counts.active() > 0 {
        facts.push((format!("{} running", counts.active()), Some(TextTone::Busy)));
    }
    if let Some(left) = estimate_time_left(progress) {
        facts.push((format!("about {} left", render_seconds(left)), None));
    }
    if progress.jobs_per_second > 0.0 {
        facts.push((render_rate(progress.jobs_per_second), Some(TextTone::Dim)));
    }
    facts.push((format!("{} so far", render_seconds(progress.elapsed)), Some(TextTone::Dim)));
    facts
}

fn render_completed(counts: &StatusCounts) -> String {
    format!("{}/{} completed", counts.get(JobStatus::Completed), counts.enabled())
}

/// The share of completed jobs, rounded down: 100 % means all. Disabled jobs are left out.
pub(crate) fn completed_percent(counts: &StatusCounts) -> u64 {
    (counts.get(JobStatus::Completed) * 100).checked_div(counts.enabled()).unwrap_or(100)
}

/// Those that ended badly themselves, without those that were canceled.
pub(crate) fn failed_count(counts: &StatusCounts) -> u64 {
    counts.get(JobStatus::Failed) + counts.get(JobStatus::Terminated)
}

fn render_unsuccessful(counts: &StatusCounts) -> String {
    match (failed_count(counts), counts.get(JobStatus::Canceled)) {
        (failed, 0) => format!("{failed} failed"),
        (0, canceled) => format!("{canceled} canceled"),
        (failed, canceled) => format!("{failed} failed, {canceled} canceled"),
    }
}

fn render_rate(jobs_per_second: f64) -> String {
    match jobs_per_second {
        r if r >= 10.0 => format!("{r:.0}/s"),
        r if r >= 1.0 => format!("{r:.1}/s"),
        r if r * 60.0 >= 1.0 => format!("{:.1}/min", r * 60.0),
        r => format!("{:.1}/h", r * 3600.0),
    }
}

/// Without fractions, which would flicker.
pub(super) fn render_seconds(duration: Duration) -> String {
    match duration.as_secs() {
        few @ 0..60 => format!("{few}s"),
        many => format_duration(Duration::from_secs(many)),
    }
}

/// The bar keeps its length while facts come and go; facts that do not fit are dropped from the end.
fn render_bar_line(progress: &RunProgress, columns: usize, paint: TextPainter) -> String {
    let mut facts = progress_facts(progress);
    let mut length = (columns / 4).min(MAX_BAR_WIDTH);
    if columns < NARROW_COLUMNS {
        // The bar gives way to the facts, and the share, which it shows, to the estimate.
        length = MIN_BAR_WIDTH;
        facts[0].0 = render_completed(&progress.counts);
    }
    let needs =
        |facts: &[(String, _)]| facts.iter().map(|(fact, _)| text::display_width(fact) + 2).sum::<usize>();
    while facts.len() > 1 && length + needs(&facts) > columns {
        facts.pop();
    }
    if length + needs(&facts) > columns {
        return text::truncate(&facts[0].0, columns);
    }
    let tail: Vec<String> = facts.iter().map(|(fact, tone)| paint.apply(*tone, fact)).collect();
    format!("{}  {}", render_bar(&progress.counts, length, paint), tail.join("  "))
}

/// Completed `█`, failed or canceled `x`, running `▒`, to come `░`: distinguishable without color.
pub(crate) fn render_bar(counts: &StatusCounts, columns: usize, paint: TextPainter) -> String {
    let total = counts.total().max(1);
    let upto = |n: u64| (n * columns as u64 / total) as usize;
    let settled = upto(counts.settled());
    // A single failure among many must be visible.
    let bad = match counts.unsuccessful() {
        0 => 0,
        n => upto(n).max(1).min(settled),
    };
    let busy = upto(counts.settled() + counts.active()) - settled;
    let segment = |n: usize, sign: &str, tone: TextTone| paint.apply(tone, &sign.repeat(n));
    let (good, rest) = (settled - bad, columns - settled - busy);
    [
        segment(good, "█", TextTone::Good),
        segment(bad, "x", TextTone::Bad),
        segment(busy, "▒", TextTone::Busy),
        segment(rest, "░", TextTone::Dim),
    ]
    .concat()
}

fn render_running_jobs(
    running: &[RunningJob],
    columns: usize,
    names: usize,
    paint: TextPainter,
) -> Vec<String> {
    // The line about the others takes the place of a name, so it must stand for at least two.
    let shown = if running.len() > names { names.saturating_sub(1) } else { running.len() };
    let mut lines: Vec<String> = running[..shown]
        .iter()
        .map(|job| {
            let elapsed = text::pad_left(&render_seconds(job.elapsed), 7);
            let line = format!("  {elapsed}  {}", text::one_line(&job.name));
            text::truncate(&line, columns)
        })
        .collect();
    if names > 0 && shown < running.len() {
        let others = text::truncate(&format!("           and {} more", running.len() - shown), columns);
        lines.push(paint.apply(TextTone::Dim, &others));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::JobId;

    pub(crate) fn counts(list: &[(JobStatus, u64)]) -> StatusCounts {
        let mut counts = StatusCounts::default();
        for (status, n) in list {
            counts.add(*status, *n);
        }
        counts
    }

    fn half_way() -> RunProgress {
        RunProgress {
            counts: counts(&[
                (JobStatus::Completed, 48),
                (JobStatus::Failed, 2),
                (JobStatus::Running, 4),
                (JobStatus::Blocked, 46),
            ]),
            running: (1..=4)
                .map(|i| RunningJob {
                    job: JobId(i),
                    name: format!("align_{i}"),
                    elapsed: Duration::from_secs(80 * i as u64),
                })
                .collect(),
            elapsed: Duration::from_millis(12_345),
            jobs_per_second: 4.0,
            problem: None,
            is_stopping: false,
        }
    }

    #[test]
    fn wide_terminal_shows_full_progress() {
        let lines = render_block(&half_way(), 100, 5, TextPainter::PLAIN);
        assert_eq!(
            lines,
            [
                "███████████x▒░░░░░░░░░░░░  48/100 completed (48%)  2 failed  4 running  about 12s left  4.0/s",
                "   1m 20s  align_1",
                "   2m 40s  align_2",
                "       4m  align_3",
                "   5m 20s  align_4",
            ]
            .map(str::to_owned)
        );
    }

    #[test]
    fn lines_fit_terminal_width() {
        let mut progress = half_way();
        progress.running[0].name = "日本語".repeat(60);
        progress.problem = Some("no space left on device".repeat(9));
        progress.is_stopping = true;
        for columns in [1, 8, 20, 33, 60, 79, 80, 132, 300] {
            for line in render_block(&progress, columns, 3, TextPainter::PLAIN) {
                assert!(text::display_width(&line) <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn progress_lists_few_jobs_and_count_of_rest() {
        let lines = render_block(&half_way(), 80, 3, TextPainter::PLAIN);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[3].trim(), "and 2 more");
        assert_eq!(render_block(&half_way(), 80, 0, TextPainter::PLAIN).len(), 1);
    }

    #[test]
    fn time_left_is_estimated_only_with_enough_data() {
        let known = half_way();
        assert_eq!(estimate_time_left(&known), Some(Duration::from_secs_f64(12.5)));
        let cases = [
            RunProgress { jobs_per_second: 0.0, ..half_way() },
            RunProgress { counts: counts(&[(JobStatus::Completed, 2), (JobStatus::Ready, 8)]), ..half_way() },
            RunProgress { counts: counts(&[(JobStatus::Completed, 10)]), ..half_way() },
            RunProgress { is_stopping: true, ..half_way() },
            RunProgress { problem: Some("disk full".into()), ..half_way() },
        ];
        for progress in cases {
            assert_eq!(estimate_time_left(&progress), None, "{progress:?}");
            assert!(!render_line(&progress).contains("left"));
        }
    }

    #[test]
    fn progress_renders_as_log_line() {
        assert_eq!(
            render_line(&half_way()),
            "48/100 completed (48%), 2 failed, 4 running, about 12s left, 4.0/s, 12s so far"
        );
        let empty = RunProgress::default();
        assert_eq!(render_line(&empty), "0/0 completed (100%), 0s so far");
    }

    #[test]
    fn failed_and_canceled_jobs_are_not_counted_as_completed() {
        let all = [(JobStatus::Failed, 1), (JobStatus::Canceled, 4), (JobStatus::Completed, 1)];
        let over = RunProgress { counts: counts(&all), ..RunProgress::default() };
        assert_eq!(render_line(&over), "1/6 completed (16%), 1 failed, 4 canceled, 0s so far");
        let with_disabled = counts(&[(JobStatus::Completed, 3), (JobStatus::Disabled, 1)]);
        assert_eq!(
            (render_completed(&with_disabled).as_str(), completed_percent(&with_disabled)),
            ("3/3 completed", 100)
        );
    }

    #[test]
    fn time_left_is_shown_at_80_columns_with_failed_jobs() {
        let mut progress = half_way();
        progress.counts.add(JobStatus::Canceled, 3);
        let line = &render_block(&progress, 79, 0, TextPainter::PLAIN)[0];
        assert!(line.contains("2 failed, 3 canceled") && line.contains("left"), "{line}");
    }

    #[test]
    fn job_rate_has_readable_unit() {
        for (rate_per_second, text) in
            [(1234.5, "1234/s"), (2.54, "2.5/s"), (0.1, "6.0/min"), (0.001, "3.6/h")]
        {
            assert_eq!(render_rate(rate_per_second), text);
        }
    }

    #[test]
    fn progress_bar_rounds_down_and_shows_single_failure() {
        let almost = counts(&[(JobStatus::Completed, 998), (JobStatus::Failed, 1), (JobStatus::Ready, 1)]);
        assert_eq!(render_bar(&almost, 10, TextPainter::PLAIN), "████████x░");
        let painted = render_bar(&almost, 10, TextPainter { enabled: true });
        assert!(text::escape_control(&painted).contains("\x1b[31mx\x1b[0m"));
        assert_eq!(completed_percent(&almost), 99, "998 of 1000, rounded down");
        assert_eq!(render_bar(&counts(&[(JobStatus::Completed, 3)]), 10, TextPainter::PLAIN), "██████████");
    }
}
