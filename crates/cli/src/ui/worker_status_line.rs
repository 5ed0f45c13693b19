//! The progress display of a worker: one line at the bottom of the terminal, and lines that scroll above it.
//!
//! The line is drawn by its own thread, because elapsed time changes without events, and because running jobs
//! must not wait for a terminal.

use super::run_observers::{repaint, replace_block, write_stderr};
use super::style::{TextPainter, TextTone};
use super::{TerminalUi, progress, terminal, text};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_agent::RemoteWorkerProgress;

/// Minimum redraw interval.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Interval for the elapsed time.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// The line. Dropping it clears it.
pub(crate) struct WorkerStatusLine {
    shared: Arc<WorkerStatusLineShared>,
    thread: Option<JoinHandle<()>>,
}

struct WorkerStatusLineShared {
    state: Mutex<WorkerStatusLineState>,
    changed: Condvar,
    url: String,
    paint: TextPainter,
    started_at: Instant,
}

#[derive(Default)]
struct WorkerStatusLineState {
    /// `None`: the server has not accepted the worker yet.
    progress: Option<RemoteWorkerProgress>,
    /// Number of its lines on the screen.
    drawn_lines: usize,
    is_stale: bool,
    is_finished: bool,
}

impl TerminalUi {
    /// For a terminal that supports it, unless output is quiet.
    pub(crate) fn worker_status_line(&self, url: &str) -> Option<WorkerStatusLine> {
        terminal::terminal_size(io::stderr()).filter(|_| !terminal::is_dumb() && !self.quiet)?;
        let shared = Arc::new(WorkerStatusLineShared {
            state: Mutex::default(),
            changed: Condvar::new(),
            url: url.to_owned(),
            paint: self.stderr_painter(),
            started_at: Instant::now(),
        });
        let own = Arc::clone(&shared);
        // Without a thread, lines are printed as without a terminal.
        let thread = thread::Builder::new().name("line".to_owned()).spawn(move || own.draw()).ok()?;
        Some(WorkerStatusLine { shared, thread: Some(thread) })
    }
}

impl WorkerStatusLine {
    pub(crate) fn show_progress(&self, progress: &RemoteWorkerProgress) {
        self.shared.update_state(|state| state.progress = Some(progress.clone()));
    }

    /// Prints a permanent line above.
    pub(crate) fn print_above(&self, line: &str) {
        self.shared.update_state(|state| {
            let drawn = std::mem::take(&mut state.drawn_lines);
            write_stderr(&replace_block(drawn, &[line.to_owned()]));
        });
    }
}

impl Drop for WorkerStatusLine {
    fn drop(&mut self) {
        self.shared.update_state(|state| state.is_finished = true);
        drop(self.thread.take().map(JoinHandle::join));
        write_stderr(&repaint(self.shared.lock().drawn_lines, &[]));
    }
}

impl WorkerStatusLineShared {
    fn lock(&self) -> MutexGuard<'_, WorkerStatusLineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update_state(&self, change: impl FnOnce(&mut WorkerStatusLineState)) {
        let mut state = self.lock();
        change(&mut state);
        state.is_stale = true;
        self.changed.notify_all();
    }

    fn draw(&self) {
        let mut state = self.lock();
        while !state.is_finished {
            if let (Some(progress), Some(size)) = (&state.progress, terminal::terminal_size(io::stderr())) {
                // One column is left free: a full line would wrap on some terminals.
                let columns = size.columns.saturating_sub(1);
                let line = render_line(progress, &self.url, self.started_at.elapsed(), columns, self.paint);
                write_stderr(&repaint(state.drawn_lines, &[line]));
                state.drawn_lines = 1;
            }
            state.is_stale = false;
            state = self.wait(state, MIN_REDRAW_INTERVAL, |state| !state.is_finished);
            state = self.wait(state, REDRAW_INTERVAL, |state| !state.is_finished && !state.is_stale);
        }
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, WorkerStatusLineState>,
        time: Duration,
        go_on: impl FnMut(&mut WorkerStatusLineState) -> bool,
    ) -> MutexGuard<'a, WorkerStatusLineState> {
        self.changed.wait_timeout_while(state, time, go_on).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The most important first; what does not fit is left out.
fn render_line(
    now: &RemoteWorkerProgress,
    url: &str,
    time: Duration,
    columns: usize,
    paint: TextPainter,
) -> String {
    let mut facts = progress_facts(now);
    if let Some(worker) = now.worker {
        facts.push((format!("worker {worker} of {url}"), Some(TextTone::Dim)));
    }
    facts.push((format!("for {}", progress::render_seconds(time)), Some(TextTone::Dim)));
    let width = |facts: &[(String, _)]| {
        facts.iter().map(|(fact, _)| text::display_width(fact) + 2).sum::<usize>() - 2
    };
    while facts.len() > 1 && width(&facts) > columns {
        facts.pop();
    }
    if width(&facts) > columns {
        return text::truncate(&facts[0].0, columns);
    }
    facts.iter().map(|(fact, tone)| paint.apply(*tone, fact)).collect::<Vec<_>>().join("  ")
}

fn progress_facts(progress: &RemoteWorkerProgress) -> Vec<(String, Option<TextTone>)> {
    let mut facts = vec![
        (
            format!("{} running", text::render_count(progress.held_attempts as u64, "job")),
            Some(TextTone::Busy),
        ),
        (format!("{} completed", progress.succeeded), None),
    ];
    if progress.failed > 0 {
        facts.push((format!("{} failed", progress.failed), Some(TextTone::Bad)));
    }
    if progress.is_server_away {
        let kept = match progress.undelivered {
            0 => String::new(),
            n => format!(", {} kept", text::render_count(n as u64, "result")),
        };
        facts.push((format!("server unreachable{kept}"), Some(TextTone::Warn)));
    }
    if progress.is_frozen {
        facts.push(("jobs suspended".to_owned(), Some(TextTone::Warn)));
    }
    if progress.is_leaving {
        facts.push(("leaving".to_owned(), Some(TextTone::Warn)));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(progress: &RemoteWorkerProgress, columns: usize) -> String {
        render_line(progress, "http://here:8080", Duration::from_millis(72_900), columns, TextPainter::PLAIN)
    }

    #[test]
    fn worker_line_shows_as_much_as_fits() {
        let idle_progress = RemoteWorkerProgress {
            worker: Some(3),
            held_attempts: 2,
            succeeded: 15,
            ..RemoteWorkerProgress::default()
        };
        let whole = "2 jobs running  15 completed  worker 3 of http://here:8080  for 1m 12s";
        assert_eq!(drawn(&idle_progress, 100), whole);
        assert_eq!(drawn(&idle_progress, whole.len()), whole);
        assert_eq!(
            drawn(&idle_progress, whole.len() - 1),
            "2 jobs running  15 completed  worker 3 of http://here:8080"
        );
        assert_eq!(drawn(&idle_progress, 35), "2 jobs running  15 completed");
        assert!(text::display_width(&drawn(&idle_progress, 7)) <= 7);
    }

    #[test]
    fn worker_line_shows_problems_before_identity() {
        let held = RemoteWorkerProgress { held_attempts: 1, failed: 4, ..RemoteWorkerProgress::default() };
        let away = RemoteWorkerProgress {
            is_server_away: true,
            undelivered: 1,
            is_frozen: true,
            is_leaving: true,
            ..held
        };
        assert_eq!(
            drawn(&away, 100),
            "1 job running  0 completed  4 failed  server unreachable, 1 result kept  jobs suspended  leaving"
        );
    }
}
