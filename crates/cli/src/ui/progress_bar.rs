//! A progress bar for work that is counted elsewhere: shown on a terminal while the work runs.

use super::run_observers::{repaint, write_stderr};
use super::{TerminalUi, terminal, text};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Shorter work gets no bar.
const SHOW_DELAY: Duration = Duration::from_millis(300);
const BAR_WIDTH: usize = 30;

pub(crate) struct ProgressBar {
    label: String,
    total: u64,
    is_shown: bool,
}

impl ProgressBar {
    pub(crate) fn new(ui: &TerminalUi, label: String, total: u64) -> Self {
        let can_draw = terminal::terminal_size(io::stderr()).is_some() && !terminal::is_dumb();
        Self { label, total, is_shown: can_draw && !ui.is_quiet() && total > 0 }
    }

    /// Runs `work`; the bar follows the count.
    pub(crate) fn run_while_counting<T>(&self, count: &AtomicU64, work: impl FnOnce() -> T) -> T {
        if !self.is_shown {
            return work();
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let draw = scope.spawn(|| self.draw(count, &is_over));
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            draw.thread().unpark();
            done
        })
    }

    fn draw(&self, count: &AtomicU64, is_over: &AtomicBool) {
        let begun = Instant::now();
        let mut drawn = 0;
        while !is_over.load(Ordering::Relaxed) {
            if begun.elapsed() > SHOW_DELAY {
                let columns = terminal::terminal_size(io::stderr()).map_or(80, |size| size.columns);
                let line = render_line(
                    &self.label,
                    count.load(Ordering::Relaxed),
                    self.total,
                    columns.saturating_sub(1),
                );
                write_stderr(&repaint(drawn, &[line]));
                drawn = 1;
            }
            thread::park_timeout(REDRAW_INTERVAL);
        }
        write_stderr(&repaint(drawn, &[]));
    }
}

fn render_line(what: &str, count: u64, total: u64, columns: usize) -> String {
    let share = count.min(total) as f64 / total.max(1) as f64;
    let full = (share * BAR_WIDTH as f64) as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR_WIDTH - full));
    text::truncate(&format!("{bar} {:>3}%  {what}", (share * 100.0) as u64), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_bar_fills_and_fits_width() {
        assert!(render_line("x", 0, 10, 80).starts_with(&"░".repeat(BAR_WIDTH)));
        assert!(render_line("x", 10, 10, 80).starts_with(&"█".repeat(BAR_WIDTH)));
        assert!(render_line("reading 7 files", 5, 10, 80).contains(" 50%  reading 7 files"));
        assert!(text::display_width(&render_line("x", 99, 10, 20)) <= 20);
    }
}
