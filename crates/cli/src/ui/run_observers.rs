//! Prints a run while it runs: a live block on a terminal, lines elsewhere, nothing when quiet.

use super::attempt_end::AttemptEndSummary;
use super::style::{TextPainter, TextTone};
use super::{TerminalUi, progress, terminal, text};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};
use windlass_scheduler::run_observer::{AttemptEndNotice, RunObserver, RunProgress};
use windlass_types::{JobStatus, format_duration};

/// Up to this many jobs, each end gets a line; beyond, only failures and an occasional summary.
const SMALL_RUN: u64 = 100;
/// Further failures are counted, not listed.
const MAX_FAILURES_LISTED: u32 = 50;
const MAX_NAMES: usize = 5;
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
const LINE_INTERVAL: Duration = Duration::from_secs(10);

impl TerminalUi {
    /// The observer of a run with this many jobs. Dropping it clears the terminal.
    pub(crate) fn observer(&self, jobs: u64) -> Box<dyn RunObserver> {
        let paint = self.stderr_painter();
        match terminal::terminal_size(&self.stderr).filter(|_| !terminal::is_dumb()) {
            _ if self.quiet => Self::silent_observer(),
            Some(_) => Box::new(LiveRunObserver {
                paint,
                drawn_lines: 0,
                drawn_at: None,
                failures: FailurePrinter::default(),
            }),
            None => Box::new(PlainRunObserver::new(jobs, paint)),
        }
    }

    /// For runs of another process.
    pub(crate) fn silent_observer() -> Box<dyn RunObserver> {
        Box::new(SilentRunObserver { is_trouble_reported: false })
    }
}

/// Quiet, except that a stall is reported once.
struct SilentRunObserver {
    is_trouble_reported: bool,
}

impl RunObserver for SilentRunObserver {
    fn on_progress(&mut self, progress: &RunProgress) {
        if let (Some(problem), false) = (&progress.problem, self.is_trouble_reported) {
            super::write_stderr_line(&io::stderr(), &format!("waiting: {problem}"));
        }
        self.is_trouble_reported = progress.problem.is_some();
    }

    fn on_attempt_ended(&mut self, _end: &AttemptEndNotice<'_>) {}
    fn on_notice(&mut self, _text: &str) {}
}

/// A block at the bottom of the terminal that is redrawn; failures and notices scroll above it.
struct LiveRunObserver {
    paint: TextPainter,
    /// Number of its lines on the screen.
    drawn_lines: usize,
    drawn_at: Option<Instant>,
    failures: FailurePrinter,
}

impl LiveRunObserver {
    fn print_above(&mut self, lines: &[String]) {
        let block = std::mem::take(&mut self.drawn_lines);
        write_stderr(&replace_block(block, lines));
        // The block is redrawn with the next progress, immediately.
        self.drawn_at = None;
    }
}

impl RunObserver for LiveRunObserver {
    fn on_progress(&mut self, progress: &RunProgress) {
        let over = progress.counts.settled() == progress.counts.total();
        if !over && self.drawn_at.is_some_and(|at| at.elapsed() < REDRAW_INTERVAL) {
            return;
        }
        let Some(size) = terminal::terminal_size(io::stderr()) else { return };
        let names = MAX_NAMES.min(size.rows.saturating_sub(4));
        // One column is left free: a full line would wrap on some terminals.
        let block = progress::render_block(progress, size.columns.saturating_sub(1), names, self.paint);
        write_stderr(&repaint(self.drawn_lines, &block));
        self.drawn_lines = block.len();
        self.drawn_at = Some(Instant::now());
    }

    fn on_attempt_ended(&mut self, end: &AttemptEndNotice<'_>) {
        let lines = self.failures.render_lines(end, self.paint);
        if !lines.is_empty() {
            self.print_above(&lines);
        }
    }

    fn on_notice(&mut self, text: &str) {
        self.print_above(&[text.to_owned()]);
    }
}

impl Drop for LiveRunObserver {
    fn drop(&mut self) {
        write_stderr(&repaint(self.drawn_lines, &[]));
    }
}

/// Moves up over the old block, writes the new one, and clears the rest. Lines of a block fit the terminal.
pub(super) fn repaint(old: usize, block: &[String]) -> String {
    let new = block
        .iter()
        .flat_map(|line| ["\x1b[2K".into(), text::escape_control(line), "\n".into()])
        .collect::<String>();
    if old == 0 && block.is_empty() { String::new() } else { format!("{}{new}\x1b[J", cursor_up(old)) }
}

/// Clears the block and writes lines in its place. It is cleared first, because a line wider than the terminal
/// wraps onto the next row, which must be empty.
pub(super) fn replace_block(old: usize, lines: &[String]) -> String {
    let new = lines.iter().flat_map(|line| [text::escape_control(line), "\n".into()]).collect::<String>();
    format!("{}\x1b[J{new}", cursor_up(old))
}

fn cursor_up(rows: usize) -> String {
    if rows > 0 { format!("\r\x1b[{rows}A") } else { "\r".to_owned() }
}

/// Lines for a log file or a pipe.
struct PlainRunObserver {
    paint: TextPainter,
    lists_every_end: bool,
    failures: FailurePrinter,
    last_reported: Option<ReportedProgress>,
}

/// The last summary line, and its time.
#[derive(Clone, Copy)]
struct ReportedProgress {
    at: Instant,
    tenths: u64,
    settled: u64,
}

impl PlainRunObserver {
    fn new(jobs: u64, paint: TextPainter) -> Self {
        Self {
            paint,
            lists_every_end: jobs <= SMALL_RUN,
            failures: FailurePrinter::default(),
            last_reported: None,
        }
    }

    /// About every 10 % of the jobs, and every ten seconds if anything changed.
    fn is_worth_reporting(&self, reported: ReportedProgress, now: Instant, progress: &RunProgress) -> bool {
        let (tenths, settled) = (progress_tenths(progress), progress.counts.settled());
        let late = now.duration_since(reported.at) >= LINE_INTERVAL;
        !self.lists_every_end && (tenths > reported.tenths || (late && settled > reported.settled))
    }
}

impl RunObserver for PlainRunObserver {
    fn on_progress(&mut self, progress: &RunProgress) {
        let now = Instant::now();
        let reported = *self.last_reported.get_or_insert(ReportedProgress {
            at: now,
            tenths: progress_tenths(progress),
            settled: progress.counts.settled(),
        });
        if self.is_worth_reporting(reported, now, progress) {
            super::write_stderr_line(&io::stderr(), &progress::render_line(progress));
            self.last_reported = Some(ReportedProgress {
                at: now,
                tenths: progress_tenths(progress),
                settled: progress.counts.settled(),
            });
        }
    }

    fn on_attempt_ended(&mut self, end: &AttemptEndNotice<'_>) {
        let lines = if self.lists_every_end {
            vec![render_end(end, self.paint)]
        } else {
            self.failures.render_lines(end, self.paint)
        };
        for line in lines {
            super::write_stderr_line(&io::stderr(), &line);
        }
    }

    fn on_notice(&mut self, text: &str) {
        super::write_stderr_line(&io::stderr(), text);
    }
}

fn progress_tenths(progress: &RunProgress) -> u64 {
    progress::completed_percent(&progress.counts) / 10
}

/// Lists the first failures, and notes once that the rest is only counted.
#[derive(Default)]
struct FailurePrinter {
    failures_seen: u32,
}

impl FailurePrinter {
    fn render_lines(&mut self, end: &AttemptEndNotice<'_>, paint: TextPainter) -> Vec<String> {
        if end.attempt_status == JobStatus::Completed {
            return Vec::new();
        }
        self.failures_seen += 1;
        match self.failures_seen {
            n if n <= MAX_FAILURES_LISTED => vec![render_end(end, paint)],
            n if n == MAX_FAILURES_LISTED + 1 => {
                vec![
                    "further failures are counted, not listed; see `windlass jobs results --failed`"
                        .to_owned(),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// `failed      align_7  after 2.5s, exit code 1: input.txt does not exist`.
fn render_end(end: &AttemptEndNotice<'_>, paint: TextPainter) -> String {
    let status =
        paint.apply(TextTone::for_status(end.attempt_status), &format!("{:<10}", end.attempt_status));
    let name = text::one_line(end.name);
    let wall = format_duration(end.wall_time);
    if end.attempt_status == JobStatus::Completed {
        return format!("{status}  {name}  {wall}");
    }
    let outcome = AttemptEndSummary {
        status: end.attempt_status,
        return_code: end.return_code,
        signal: None,
        out_of_memory: false,
    };
    let what = text::one_line(&outcome.describe_with(end.reason));
    // The reason may contain it already.
    let again =
        if end.job_status == JobStatus::Ready && !what.contains("runs again") { " (runs again)" } else { "" };
    format!("{status}  {name}  after {wall}, {what}{again}")
}

pub(super) fn write_stderr(text: &str) {
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::worker_messages::AttemptKey;
    use windlass_types::{Attempt, JobId, RunId, StatusCounts, WorkflowId};

    fn end(
        attempt_status: JobStatus,
        job_status: JobStatus,
        return_code: i32,
        reason: Option<&str>,
    ) -> AttemptEndNotice<'_> {
        let key =
            AttemptKey { workflow: WorkflowId(1), job: JobId(7), run: RunId(1), attempt: Attempt::FIRST };
        AttemptEndNotice {
            key,
            name: "align_7",
            attempt_status,
            job_status,
            return_code,
            wall_time: Duration::from_millis(2500),
            reason,
        }
    }

    #[test]
    fn job_end_lines_are_readable() {
        use JobStatus::{Completed, Failed, Ready, Terminated};
        for (end, line) in [
            (end(Completed, Completed, 0, None), "completed   align_7  2.5s"),
            (end(Failed, Failed, 1, None), "failed      align_7  after 2.5s, exit code 1"),
            (
                end(Terminated, Terminated, 152, Some("ran longer than 2s")),
                "terminated  align_7  after 2.5s, time limit (152): ran longer than 2s",
            ),
            (
                end(Terminated, Ready, 143, Some("interrupted")),
                "terminated  align_7  after 2.5s, exit code 143 (128 + SIGTERM): interrupted (runs again)",
            ),
            (
                end(Terminated, Ready, 143, Some("interrupted; it runs again on resume")),
                "terminated  align_7  after 2.5s, exit code 143 (128 + SIGTERM): interrupted; it runs again on resume",
            ),
        ] {
            assert_eq!(render_end(&end, TextPainter::PLAIN), line);
        }
    }

    #[test]
    fn failure_lines_are_limited() {
        let mut failures = FailurePrinter::default();
        let failed = end(JobStatus::Failed, JobStatus::Failed, 1, None);
        let completed = end(JobStatus::Completed, JobStatus::Completed, 0, None);
        assert!(failures.render_lines(&completed, TextPainter::PLAIN).is_empty());
        let printed: Vec<String> =
            (0..200).flat_map(|_| failures.render_lines(&failed, TextPainter::PLAIN)).collect();
        assert_eq!(printed.len(), MAX_FAILURES_LISTED as usize + 1);
        assert!(printed.last().unwrap().contains("windlass jobs results --failed"));
    }

    #[test]
    fn new_progress_block_overwrites_old() {
        assert_eq!(repaint(0, &[]), "");
        assert_eq!(repaint(0, &["a".into()]), "\r\x1b[2Ka\n\x1b[J");
        assert_eq!(repaint(2, &["b".into()]), "\r\x1b[2A\x1b[2Kb\n\x1b[J");
        assert_eq!(repaint(3, &[]), "\r\x1b[3A\x1b[J");
    }

    #[test]
    fn message_of_any_width_erases_progress_block() {
        let message = "failed      a  after 1s, exit code 1: ".to_owned() + &"why ".repeat(10);
        let mut screen = EmulatedScreen::new(20);
        screen.write(&repaint(0, &["#".repeat(19), "#".repeat(19), "#".repeat(19)]));
        screen.write(&replace_block(3, std::slice::from_ref(&message)));
        assert_eq!(screen.text(), message);
        screen.write(&repaint(0, &["block".into()]));
        assert_eq!(screen.text(), message + "block");
    }

    /// A minimal terminal emulation for the block.
    struct EmulatedScreen {
        columns: usize,
        rows: Vec<String>,
        row: usize,
    }

    impl EmulatedScreen {
        fn new(columns: usize) -> Self {
            Self { columns, rows: vec![String::new()], row: 0 }
        }

        fn write(&mut self, text: &str) {
            let mut rest = text;
            let mut column = 0;
            while let Some(c) = rest.chars().next() {
                rest = &rest[c.len_utf8()..];
                match c {
                    '\r' => column = 0,
                    '\n' => {
                        self.down();
                        column = 0;
                    }
                    '\x1b' => {
                        let (number, verb, after) = escape(rest);
                        rest = after;
                        match verb {
                            'A' => self.row -= number,
                            'K' => self.rows[self.row].clear(),
                            'J' => {
                                self.rows.truncate(self.row + 1);
                                self.rows[self.row].truncate(column);
                            }
                            other => panic!("unexpected escape sequence {other}"),
                        }
                    }
                    c => {
                        if column == self.columns {
                            self.down();
                            column = 0;
                        }
                        let row = &mut self.rows[self.row];
                        row.replace_range(column..row.len().min(column + 1), &c.to_string());
                        column += 1;
                    }
                }
            }
        }

        fn down(&mut self) {
            self.row += 1;
            if self.row == self.rows.len() {
                self.rows.push(String::new());
            }
        }

        fn text(&self) -> String {
            self.rows.concat()
        }
    }

    /// `[3A…`: 3, A, and the rest.
    fn escape(text: &str) -> (usize, char, &str) {
        let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        let number = text[1..end].parse().unwrap_or(0);
        (number, text[end..].chars().next().unwrap(), &text[end + 1..])
    }

    #[test]
    fn large_run_logs_progress_in_tenths_and_after_interval() {
        let at = Instant::now();
        let progress = |done: u64| {
            let mut counts = StatusCounts::default();
            counts.add(JobStatus::Completed, done);
            counts.add(JobStatus::Ready, 1000 - done);
            RunProgress { counts, ..RunProgress::default() }
        };
        let reported = ReportedProgress { at, tenths: 1, settled: 150 };
        let large = PlainRunObserver::new(1000, TextPainter::PLAIN);
        let (soon, late) = (at + Duration::from_secs(1), at + Duration::from_secs(10));
        assert!(!large.is_worth_reporting(reported, soon, &progress(199)));
        assert!(large.is_worth_reporting(reported, soon, &progress(200)));
        assert!(large.is_worth_reporting(reported, late, &progress(151)));
        assert!(!large.is_worth_reporting(reported, late, &progress(150)));
        assert!(!PlainRunObserver::new(100, TextPainter::PLAIN).is_worth_reporting(
            reported,
            late,
            &progress(900)
        ));
    }
}
