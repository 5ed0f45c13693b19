//! Prints a run while it runs: a live block on a terminal, plain lines elsewhere, nothing when quiet.

use super::outcome::Outcome;
use super::style::{Paint, Tone};
use super::{Ui, progress, terminal, text};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};
use windlass_engine::observe::{AttemptEnd, Observer, Progress};
use windlass_types::{JobStatus, format_duration};

/// Up to so many jobs, each end gets a line; beyond, only failures and a summary now and then.
const SMALL: u64 = 100;
/// More failures than this are counted, not listed.
const FAILURES_LISTED: u32 = 50;
const NAMES: usize = 5;
const REDRAW_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Ui {
    /// Whoever watches a run of so many jobs. Dropping it leaves the terminal clean.
    pub(crate) fn observer(&self, jobs: u64) -> Box<dyn Observer> {
        let paint = self.paint_err();
        match terminal::size(&self.stderr).filter(|_| !terminal::is_dumb()) {
            _ if self.quiet => Self::silent_observer(),
            Some(_) => Box::new(Live { paint, drawn: 0, drawn_at: None, failures: Failures::default() }),
            None => Box::new(Plain::new(jobs, paint)),
        }
    }

    /// For runs that somebody else tells about.
    pub(crate) fn silent_observer() -> Box<dyn Observer> {
        Box::new(Silent { troubled: false })
    }
}

/// Says nothing, except once that nothing goes on.
struct Silent {
    troubled: bool,
}

impl Observer for Silent {
    fn progress(&mut self, progress: &Progress) {
        if let (Some(trouble), false) = (&progress.trouble, self.troubled) {
            super::say(&io::stderr(), &format!("waiting: {trouble}"));
        }
        self.troubled = progress.trouble.is_some();
    }

    fn attempt_ended(&mut self, _end: &AttemptEnd<'_>) {}
    fn notice(&mut self, _text: &str) {}
}

/// A block at the bottom of the terminal that is drawn over and over; failures and notices scroll away above it.
struct Live {
    paint: Paint,
    /// Lines of the block on the screen.
    drawn: usize,
    drawn_at: Option<Instant>,
    failures: Failures,
}

impl Live {
    fn above(&mut self, lines: &[String]) {
        let block = std::mem::take(&mut self.drawn);
        write_err(&replace(block, lines));
        // The block is drawn again with the next progress, at once.
        self.drawn_at = None;
    }
}

impl Observer for Live {
    fn progress(&mut self, progress: &Progress) {
        let over = progress.counts.settled() == progress.counts.total();
        if !over && self.drawn_at.is_some_and(|at| at.elapsed() < REDRAW_EVERY) {
            return;
        }
        let Some(size) = terminal::size(io::stderr()) else { return };
        let names = NAMES.min(size.rows.saturating_sub(4));
        // One column is left free: a full line would wrap on some terminals.
        let block = progress::block(progress, size.columns.saturating_sub(1), names, self.paint);
        write_err(&repaint(self.drawn, &block));
        self.drawn = block.len();
        self.drawn_at = Some(Instant::now());
    }

    fn attempt_ended(&mut self, end: &AttemptEnd<'_>) {
        let lines = self.failures.lines(end, self.paint);
        if !lines.is_empty() {
            self.above(&lines);
        }
    }

    fn notice(&mut self, text: &str) {
        self.above(&[text.to_owned()]);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        write_err(&repaint(self.drawn, &[]));
    }
}

/// Goes up over the old block, writes the new one, clears what is left of the old. Lines of a block fit the terminal.
pub(super) fn repaint(old: usize, block: &[String]) -> String {
    let new = block.iter().flat_map(|line| ["\x1b[2K", line, "\n"]).collect::<String>();
    if old == 0 && block.is_empty() { String::new() } else { format!("{}{new}\x1b[J", up(old)) }
}

/// Takes the old block away and writes lines where it was. It is cleared first: a line that is wider than the terminal
/// wraps onto the next row, which must have nothing on it any more.
pub(super) fn replace(old: usize, lines: &[String]) -> String {
    let new = lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
    format!("{}\x1b[J{new}", up(old))
}

fn up(rows: usize) -> String {
    if rows > 0 { format!("\r\x1b[{rows}A") } else { "\r".to_owned() }
}

/// Lines for a log file or a pipe.
struct Plain {
    paint: Paint,
    every_end: bool,
    failures: Failures,
    told: Option<Told>,
}

/// What the last summary line said, and when.
#[derive(Clone, Copy)]
struct Told {
    at: Instant,
    tenths: u64,
    settled: u64,
}

impl Plain {
    fn new(jobs: u64, paint: Paint) -> Self {
        Self { paint, every_end: jobs <= SMALL, failures: Failures::default(), told: None }
    }

    /// About each tenth of the way, and each ten seconds if anything happened.
    fn worth_telling(&self, told: Told, now: Instant, progress: &Progress) -> bool {
        let (tenths, settled) = (tenths(progress), progress.counts.settled());
        let late = now.duration_since(told.at) >= LINE_EVERY;
        !self.every_end && (tenths > told.tenths || (late && settled > told.settled))
    }
}

impl Observer for Plain {
    fn progress(&mut self, progress: &Progress) {
        let now = Instant::now();
        let told = *self.told.get_or_insert(Told {
            at: now,
            tenths: tenths(progress),
            settled: progress.counts.settled(),
        });
        if self.worth_telling(told, now, progress) {
            super::say(&io::stderr(), &progress::line(progress));
            self.told = Some(Told { at: now, tenths: tenths(progress), settled: progress.counts.settled() });
        }
    }

    fn attempt_ended(&mut self, end: &AttemptEnd<'_>) {
        let lines = if self.every_end {
            vec![end_line(end, self.paint)]
        } else {
            self.failures.lines(end, self.paint)
        };
        for line in lines {
            super::say(&io::stderr(), &line);
        }
    }

    fn notice(&mut self, text: &str) {
        super::say(&io::stderr(), text);
    }
}

fn tenths(progress: &Progress) -> u64 {
    progress::percent(&progress.counts) / 10
}

/// Lists the first failures, and says once that there are too many.
#[derive(Default)]
struct Failures {
    seen: u32,
}

impl Failures {
    fn lines(&mut self, end: &AttemptEnd<'_>, paint: Paint) -> Vec<String> {
        if end.attempt_status == JobStatus::Completed {
            return Vec::new();
        }
        self.seen += 1;
        match self.seen {
            n if n <= FAILURES_LISTED => vec![end_line(end, paint)],
            n if n == FAILURES_LISTED + 1 => {
                vec!["more failures are counted, not listed; see `windlass results --failed`".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}

/// `failed      align_7  after 2.5s, exit code 1: input.txt is not there`.
fn end_line(end: &AttemptEnd<'_>, paint: Paint) -> String {
    let status = paint.apply(Tone::of(end.attempt_status), &format!("{:<10}", end.attempt_status));
    let name = text::one_line(end.name);
    let wall = format_duration(end.wall);
    if end.attempt_status == JobStatus::Completed {
        return format!("{status}  {name}  {wall}");
    }
    let outcome = Outcome {
        status: end.attempt_status,
        return_code: end.return_code,
        signal: None,
        out_of_memory: false,
    };
    let what = text::one_line(&outcome.describe_with(end.reason));
    // The reason may say so itself.
    let again =
        if end.job_status == JobStatus::Ready && !what.contains("runs again") { " (runs again)" } else { "" };
    format!("{status}  {name}  after {wall}, {what}{again}")
}

pub(super) fn write_err(text: &str) {
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::work::AttemptKey;
    use windlass_types::{Attempt, JobId, RunId, StatusCounts, WorkflowId};

    fn end(
        attempt_status: JobStatus,
        job_status: JobStatus,
        return_code: i32,
        reason: Option<&str>,
    ) -> AttemptEnd<'_> {
        let key =
            AttemptKey { workflow: WorkflowId(1), job: JobId(7), run: RunId(1), attempt: Attempt::FIRST };
        AttemptEnd {
            key,
            name: "align_7",
            attempt_status,
            job_status,
            return_code,
            wall: Duration::from_millis(2500),
            reason,
        }
    }

    #[test]
    fn ends_read_well() {
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
            assert_eq!(end_line(&end, Paint::PLAIN), line);
        }
    }

    #[test]
    fn failures_are_listed_up_to_a_number() {
        let mut failures = Failures::default();
        let failed = end(JobStatus::Failed, JobStatus::Failed, 1, None);
        let completed = end(JobStatus::Completed, JobStatus::Completed, 0, None);
        assert!(failures.lines(&completed, Paint::PLAIN).is_empty());
        let printed: Vec<String> = (0..200).flat_map(|_| failures.lines(&failed, Paint::PLAIN)).collect();
        assert_eq!(printed.len(), FAILURES_LISTED as usize + 1);
        assert!(printed.last().unwrap().contains("windlass results --failed"));
    }

    #[test]
    fn a_new_block_covers_the_old_one() {
        assert_eq!(repaint(0, &[]), "");
        assert_eq!(repaint(0, &["a".into()]), "\r\x1b[2Ka\n\x1b[J");
        assert_eq!(repaint(2, &["b".into()]), "\r\x1b[2A\x1b[2Kb\n\x1b[J");
        assert_eq!(repaint(3, &[]), "\r\x1b[3A\x1b[J");
    }

    #[test]
    fn a_message_of_any_width_leaves_nothing_of_the_block_behind() {
        let message = "failed      a  after 1s, exit code 1: ".to_owned() + &"why ".repeat(10);
        let mut screen = Screen::new(20);
        screen.write(&repaint(0, &["#".repeat(19), "#".repeat(19), "#".repeat(19)]));
        screen.write(&replace(3, std::slice::from_ref(&message)));
        assert_eq!(screen.text(), message);
        screen.write(&repaint(0, &["block".into()]));
        assert_eq!(screen.text(), message + "block");
    }

    /// As much of a terminal as the block needs.
    struct Screen {
        columns: usize,
        rows: Vec<String>,
        row: usize,
    }

    impl Screen {
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
                            other => panic!("a terminal is not asked for {other}"),
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

    /// `[3A…`: 3, A, and what follows.
    fn escape(text: &str) -> (usize, char, &str) {
        let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        let number = text[1..end].parse().unwrap_or(0);
        (number, text[end..].chars().next().unwrap(), &text[end + 1..])
    }

    #[test]
    fn a_large_run_is_told_in_tenths_and_after_a_while() {
        let at = Instant::now();
        let progress = |done: u64| {
            let mut counts = StatusCounts::default();
            counts.add(JobStatus::Completed, done);
            counts.add(JobStatus::Ready, 1000 - done);
            Progress { counts, ..Progress::default() }
        };
        let told = Told { at, tenths: 1, settled: 150 };
        let large = Plain::new(1000, Paint::PLAIN);
        let (soon, late) = (at + Duration::from_secs(1), at + Duration::from_secs(10));
        assert!(!large.worth_telling(told, soon, &progress(199)));
        assert!(large.worth_telling(told, soon, &progress(200)));
        assert!(large.worth_telling(told, late, &progress(151)));
        assert!(!large.worth_telling(told, late, &progress(150)));
        assert!(!Plain::new(100, Paint::PLAIN).worth_telling(told, late, &progress(900)));
    }
}
