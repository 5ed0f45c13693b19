//! What a worker shows while it works: one line at the bottom of the terminal, and lines that scroll away above it.
//!
//! The line is drawn by a thread of its own, since its time goes on also when nothing happens, and since whoever runs jobs
//! must not wait for a terminal.

use super::style::{Paint, Tone};
use super::watch::{repaint, replace, write_err};
use super::{Ui, progress, terminal, text};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_agent::Progress;

/// No oftener than this.
const REDRAW_AFTER: Duration = Duration::from_millis(100);
/// The time goes on.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

/// The line. Dropping it leaves the terminal clean.
pub(crate) struct WorkerLine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    url: String,
    paint: Paint,
    begun: Instant,
}

#[derive(Default)]
struct State {
    /// `None`: the server has not taken it yet.
    progress: Option<Progress>,
    /// Lines of it on the screen.
    drawn: usize,
    is_stale: bool,
    is_over: bool,
}

impl Ui {
    /// For a terminal that can draw it, unless nothing is to be said.
    pub(crate) fn worker_line(&self, url: &str) -> Option<WorkerLine> {
        terminal::size(io::stderr()).filter(|_| !terminal::is_dumb() && !self.quiet)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            url: url.to_owned(),
            paint: self.paint_err(),
            begun: Instant::now(),
        });
        let own = Arc::clone(&shared);
        // Without a thread lines are told as elsewhere.
        let thread = thread::Builder::new().name("line".to_owned()).spawn(move || own.draw()).ok()?;
        Some(WorkerLine { shared, thread: Some(thread) })
    }
}

impl WorkerLine {
    pub(crate) fn show(&self, progress: &Progress) {
        self.shared.change(|state| state.progress = Some(progress.clone()));
    }

    /// A line of its own, above.
    pub(crate) fn above(&self, line: &str) {
        self.shared.change(|state| {
            let drawn = std::mem::take(&mut state.drawn);
            write_err(&replace(drawn, &[line.to_owned()]));
        });
    }
}

impl Drop for WorkerLine {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_over = true);
        drop(self.thread.take().map(JoinHandle::join));
        write_err(&repaint(self.shared.lock().drawn, &[]));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.is_stale = true;
        self.changed.notify_all();
    }

    fn draw(&self) {
        let mut state = self.lock();
        while !state.is_over {
            if let (Some(progress), Some(size)) = (&state.progress, terminal::size(io::stderr())) {
                // One column is left free: a full line would wrap on some terminals.
                let columns = size.columns.saturating_sub(1);
                let line = line(progress, &self.url, self.begun.elapsed(), columns, self.paint);
                write_err(&repaint(state.drawn, &[line]));
                state.drawn = 1;
            }
            state.is_stale = false;
            state = self.wait(state, REDRAW_AFTER, |state| !state.is_over);
            state = self.wait(state, REDRAW_EVERY, |state| !state.is_over && !state.is_stale);
        }
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        time: Duration,
        go_on: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed.wait_timeout_while(state, time, go_on).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The most important first; what does not fit is left out.
fn line(now: &Progress, url: &str, time: Duration, columns: usize, paint: Paint) -> String {
    let mut facts = facts(now);
    if let Some(worker) = now.worker {
        facts.push((format!("worker {worker} of {url}"), Some(Tone::Dim)));
    }
    facts.push((format!("for {}", progress::seconds(time)), Some(Tone::Dim)));
    let width =
        |facts: &[(String, _)]| facts.iter().map(|(fact, _)| text::width(fact) + 2).sum::<usize>() - 2;
    while facts.len() > 1 && width(&facts) > columns {
        facts.pop();
    }
    if width(&facts) > columns {
        return text::truncate(&facts[0].0, columns);
    }
    facts.iter().map(|(fact, tone)| paint.apply(*tone, fact)).collect::<Vec<_>>().join("  ")
}

fn facts(progress: &Progress) -> Vec<(String, Option<Tone>)> {
    let mut facts = vec![
        (format!("{} under way", text::count(progress.held as u64, "job")), Some(Tone::Busy)),
        (format!("{} completed", progress.succeeded), None),
    ];
    if progress.failed > 0 {
        facts.push((format!("{} failed", progress.failed), Some(Tone::Bad)));
    }
    if progress.is_away {
        let kept = match progress.undelivered {
            0 => String::new(),
            n => format!(", {} kept", text::count(n as u64, "result")),
        };
        facts.push((format!("the server is away{kept}"), Some(Tone::Warn)));
    }
    if progress.is_frozen {
        facts.push(("jobs stand still".to_owned(), Some(Tone::Warn)));
    }
    if progress.is_leaving {
        facts.push(("leaving".to_owned(), Some(Tone::Warn)));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(progress: &Progress, columns: usize) -> String {
        line(progress, "http://here:8080", Duration::from_millis(72_900), columns, Paint::PLAIN)
    }

    #[test]
    fn it_says_how_things_stand_as_far_as_there_is_room() {
        let calm = Progress { worker: Some(3), held: 2, succeeded: 15, ..Progress::default() };
        let whole = "2 jobs under way  15 completed  worker 3 of http://here:8080  for 1m 12s";
        assert_eq!(drawn(&calm, 100), whole);
        assert_eq!(drawn(&calm, whole.len()), whole);
        assert_eq!(
            drawn(&calm, whole.len() - 1),
            "2 jobs under way  15 completed  worker 3 of http://here:8080"
        );
        assert_eq!(drawn(&calm, 35), "2 jobs under way  15 completed");
        assert!(text::width(&drawn(&calm, 7)) <= 7);
    }

    #[test]
    fn trouble_comes_before_who_one_is() {
        let held = Progress { held: 1, failed: 4, ..Progress::default() };
        let away = Progress { is_away: true, undelivered: 1, is_frozen: true, is_leaving: true, ..held };
        assert_eq!(
            drawn(&away, 100),
            "1 job under way  0 completed  4 failed  the server is away, 1 result kept  jobs stand still  leaving"
        );
    }
}
