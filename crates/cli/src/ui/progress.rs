//! What a run looks like while it runs: lines drawn from a [`Progress`], pure.
//!
//! `watch` decides when and where they are printed.

use super::style::{Paint, Tone};
use super::text;
use std::time::Duration;
use windlass_engine::observe::{Progress, RunningJob};
use windlass_types::{JobStatus, StatusCounts, format_duration};

const BAR_LONGEST: usize = 40;
const BAR_SHORTEST: usize = 10;
/// Below so many columns the bar is short.
const NARROW: usize = 100;
/// Below so many settled jobs a rate says nothing about the rest.
const ENOUGH_FOR_ESTIMATE: u64 = 3;

/// The live block: a bar with counts, then what runs, at most `names` of them.
pub(crate) fn block(progress: &Progress, columns: usize, names: usize, paint: Paint) -> Vec<String> {
    let mut lines = vec![bar_line(progress, columns, paint)];
    lines.extend(running_lines(&progress.running, columns, names, paint));
    if let Some(trouble) = &progress.trouble {
        let line = text::truncate(&format!("waiting: {}", text::one_line(trouble)), columns);
        lines.push(paint.apply(Tone::Warn, &line));
    }
    if progress.stopping {
        let line =
            format!("stopping: {} to end; Ctrl-C again kills", text::count(progress.counts.active(), "job"));
        lines.push(paint.apply(Tone::Warn, &text::truncate(&line, columns)));
    }
    lines
}

/// The same in one line, for a log file.
pub(crate) fn line(progress: &Progress) -> String {
    facts(progress).into_iter().map(|(fact, _)| fact).collect::<Vec<_>>().join(", ")
}

/// How long the rest will take at the present rate; `None` while nobody can know.
pub(crate) fn time_left(progress: &Progress) -> Option<Duration> {
    let counts = &progress.counts;
    let left = counts.total() - counts.settled() - counts.get(JobStatus::PendingFailed);
    let known = counts.settled() >= ENOUGH_FOR_ESTIMATE && progress.jobs_per_second > 0.0 && left > 0;
    let going_on = !progress.stopping && progress.trouble.is_none();
    let seconds = left as f64 / progress.jobs_per_second;
    (known && going_on && seconds < 1e9).then(|| Duration::from_secs_f64(seconds.max(1.0)))
}

/// `412/1000 completed (41%)`, `3 failed`, … the most important first.
fn facts(progress: &Progress) -> Vec<(String, Option<Tone>)> {
    let counts = &progress.counts;
    let mut facts = vec![(format!("{} ({}%)", completed(counts), percent(counts)), None)];
    if counts.unsuccessful() > 0 {
        facts.push((unsuccessful(counts), Some(Tone::Bad)));
    }
    if counts.active() > 0 {
        facts.push((format!("{} running", counts.active()), Some(Tone::Busy)));
    }
    if let Some(left) = time_left(progress) {
        facts.push((format!("about {} left", seconds(left)), None));
    }
    if progress.jobs_per_second > 0.0 {
        facts.push((rate(progress.jobs_per_second), Some(Tone::Dim)));
    }
    facts.push((format!("{} so far", seconds(progress.elapsed)), Some(Tone::Dim)));
    facts
}

fn completed(counts: &StatusCounts) -> String {
    format!("{}/{} completed", counts.get(JobStatus::Completed), counts.enabled())
}

/// The share of completed jobs, rounded down: 100 % means all. Disabled jobs are left out.
pub(crate) fn percent(counts: &StatusCounts) -> u64 {
    (counts.get(JobStatus::Completed) * 100).checked_div(counts.enabled()).unwrap_or(100)
}

/// Those that ended badly themselves, without those that were canceled.
pub(crate) fn failed(counts: &StatusCounts) -> u64 {
    counts.get(JobStatus::Failed) + counts.get(JobStatus::Terminated)
}

fn unsuccessful(counts: &StatusCounts) -> String {
    match (failed(counts), counts.get(JobStatus::Canceled)) {
        (failed, 0) => format!("{failed} failed"),
        (0, canceled) => format!("{canceled} canceled"),
        (failed, canceled) => format!("{failed} failed, {canceled} canceled"),
    }
}

fn rate(jobs_per_second: f64) -> String {
    match jobs_per_second {
        r if r >= 10.0 => format!("{r:.0}/s"),
        r if r >= 1.0 => format!("{r:.1}/s"),
        r if r * 60.0 >= 1.0 => format!("{:.1}/min", r * 60.0),
        r => format!("{:.1}/h", r * 3600.0),
    }
}

/// Without fractions, which would flicker.
pub(super) fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        few @ 0..60 => format!("{few}s"),
        many => format_duration(Duration::from_secs(many)),
    }
}

/// The bar keeps its length while facts come and go; facts that do not fit are dropped from the end.
fn bar_line(progress: &Progress, columns: usize, paint: Paint) -> String {
    let mut facts = facts(progress);
    let mut length = (columns / 4).min(BAR_LONGEST);
    if columns < NARROW {
        // The bar gives way to the facts, and the share, which it shows, to the estimate.
        length = BAR_SHORTEST;
        facts[0].0 = completed(&progress.counts);
    }
    let needs = |facts: &[(String, _)]| facts.iter().map(|(fact, _)| text::width(fact) + 2).sum::<usize>();
    while facts.len() > 1 && length + needs(&facts) > columns {
        facts.pop();
    }
    if length + needs(&facts) > columns {
        return text::truncate(&facts[0].0, columns);
    }
    let tail: Vec<String> = facts.iter().map(|(fact, tone)| paint.apply(*tone, fact)).collect();
    format!("{}  {}", bar(&progress.counts, length, paint), tail.join("  "))
}

/// Finished well, finished badly, running, to come.
pub(crate) fn bar(counts: &StatusCounts, columns: usize, paint: Paint) -> String {
    let total = counts.total().max(1);
    let upto = |n: u64| (n * columns as u64 / total) as usize;
    let settled = upto(counts.settled());
    // A single failure among many must be seen.
    let bad = match counts.unsuccessful() {
        0 => 0,
        n => upto(n).max(1).min(settled),
    };
    let busy = upto(counts.settled() + counts.active()) - settled;
    let segment = |n: usize, sign: &str, tone: Tone| paint.apply(tone, &sign.repeat(n));
    let (good, rest) = (settled - bad, columns - settled - busy);
    [
        segment(good, "█", Tone::Good),
        segment(bad, "█", Tone::Bad),
        segment(busy, "▒", Tone::Busy),
        segment(rest, "░", Tone::Dim),
    ]
    .concat()
}

fn running_lines(running: &[RunningJob], columns: usize, names: usize, paint: Paint) -> Vec<String> {
    // The line about the others takes the place of a name, so it must stand for at least two.
    let shown = if running.len() > names { names.saturating_sub(1) } else { running.len() };
    let mut lines: Vec<String> = running[..shown]
        .iter()
        .map(|job| {
            let elapsed = text::pad_left(&seconds(job.elapsed), 7);
            let line = format!("  {elapsed}  {}", text::one_line(&job.name));
            text::truncate(&line, columns)
        })
        .collect();
    if names > 0 && shown < running.len() {
        let others = text::truncate(&format!("           and {} more", running.len() - shown), columns);
        lines.push(paint.apply(Tone::Dim, &others));
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

    fn half_way() -> Progress {
        Progress {
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
            trouble: None,
            stopping: false,
        }
    }

    #[test]
    fn a_wide_terminal_shows_everything() {
        let lines = block(&half_way(), 100, 5, Paint::PLAIN);
        assert_eq!(
            lines,
            [
                "████████████▒░░░░░░░░░░░░  48/100 completed (48%)  2 failed  4 running  about 12s left  4.0/s",
                "   1m 20s  align_1",
                "   2m 40s  align_2",
                "       4m  align_3",
                "   5m 20s  align_4",
            ]
            .map(str::to_owned)
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut progress = half_way();
        progress.running[0].name = "日本語".repeat(60);
        progress.trouble = Some("no space left on device".repeat(9));
        progress.stopping = true;
        for columns in [1, 8, 20, 33, 60, 79, 80, 132, 300] {
            for line in block(&progress, columns, 3, Paint::PLAIN) {
                assert!(text::width(&line) <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn few_names_and_how_many_more() {
        let lines = block(&half_way(), 80, 3, Paint::PLAIN);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[3].trim(), "and 2 more");
        assert_eq!(block(&half_way(), 80, 0, Paint::PLAIN).len(), 1);
    }

    #[test]
    fn estimates_are_made_only_when_they_mean_something() {
        let known = half_way();
        assert_eq!(time_left(&known), Some(Duration::from_secs_f64(12.5)));
        let cases = [
            Progress { jobs_per_second: 0.0, ..half_way() },
            Progress { counts: counts(&[(JobStatus::Completed, 2), (JobStatus::Ready, 8)]), ..half_way() },
            Progress { counts: counts(&[(JobStatus::Completed, 10)]), ..half_way() },
            Progress { stopping: true, ..half_way() },
            Progress { trouble: Some("disk full".into()), ..half_way() },
        ];
        for progress in cases {
            assert_eq!(time_left(&progress), None, "{progress:?}");
            assert!(!line(&progress).contains("left"));
        }
    }

    #[test]
    fn one_line_for_a_log_file() {
        assert_eq!(
            line(&half_way()),
            "48/100 completed (48%), 2 failed, 4 running, about 12s left, 4.0/s, 12s so far"
        );
        let empty = Progress::default();
        assert_eq!(line(&empty), "0/0 completed (100%), 0s so far");
    }

    #[test]
    fn failed_and_canceled_jobs_are_not_counted_as_completed() {
        let all = [(JobStatus::Failed, 1), (JobStatus::Canceled, 4), (JobStatus::Completed, 1)];
        let over = Progress { counts: counts(&all), ..Progress::default() };
        assert_eq!(line(&over), "1/6 completed (16%), 1 failed, 4 canceled, 0s so far");
        let with_disabled = counts(&[(JobStatus::Completed, 3), (JobStatus::Disabled, 1)]);
        assert_eq!((completed(&with_disabled).as_str(), percent(&with_disabled)), ("3/3 completed", 100));
    }

    #[test]
    fn the_estimate_is_shown_at_80_columns_also_when_jobs_failed() {
        let mut progress = half_way();
        progress.counts.add(JobStatus::Canceled, 3);
        let line = &block(&progress, 79, 0, Paint::PLAIN)[0];
        assert!(line.contains("2 failed, 3 canceled") && line.contains("left"), "{line}");
    }

    #[test]
    fn rates_read_well() {
        for (rate_per_second, text) in
            [(1234.5, "1234/s"), (2.54, "2.5/s"), (0.1, "6.0/min"), (0.001, "3.6/h")]
        {
            assert_eq!(rate(rate_per_second), text);
        }
    }

    #[test]
    fn the_bar_is_full_only_at_the_end_and_shows_a_single_failure() {
        let almost = counts(&[(JobStatus::Completed, 998), (JobStatus::Failed, 1), (JobStatus::Ready, 1)]);
        assert_eq!(bar(&almost, 10, Paint::PLAIN), "█████████░");
        assert!(bar(&almost, 10, Paint { enabled: true }).contains("\x1b[31m█\x1b[0m"));
        assert_eq!(percent(&almost), 99, "998 of 1000, rounded down");
        assert_eq!(bar(&counts(&[(JobStatus::Completed, 3)]), 10, Paint::PLAIN), "██████████");
    }
}
