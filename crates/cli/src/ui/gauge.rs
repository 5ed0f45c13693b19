//! A bar for work that is counted elsewhere: shown on a terminal while it lasts, and gone afterwards.

use super::watch::{repaint, write_err};
use super::{Ui, terminal, text};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const REDRAW_EVERY: Duration = Duration::from_millis(100);
/// What is over so soon needs no bar.
const PATIENCE: Duration = Duration::from_millis(300);
const BAR: usize = 30;

pub(crate) struct Gauge {
    what: String,
    total: u64,
    is_shown: bool,
}

impl Gauge {
    pub(crate) fn new(ui: &Ui, what: String, total: u64) -> Self {
        let can_draw = terminal::size(io::stderr()).is_some() && !terminal::is_dumb();
        Self { what, total, is_shown: can_draw && !ui.is_quiet() && total > 0 }
    }

    /// Does the work; meanwhile the bar follows the count.
    pub(crate) fn while_counting<T>(&self, count: &AtomicU64, work: impl FnOnce() -> T) -> T {
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
            if begun.elapsed() > PATIENCE {
                let columns = terminal::size(io::stderr()).map_or(80, |size| size.columns);
                let line =
                    line(&self.what, count.load(Ordering::Relaxed), self.total, columns.saturating_sub(1));
                write_err(&repaint(drawn, &[line]));
                drawn = 1;
            }
            thread::park_timeout(REDRAW_EVERY);
        }
        write_err(&repaint(drawn, &[]));
    }
}

fn line(what: &str, count: u64, total: u64, columns: usize) -> String {
    let share = count.min(total) as f64 / total.max(1) as f64;
    let full = (share * BAR as f64) as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR - full));
    text::truncate(&format!("{bar} {:>3}%  {what}", (share * 100.0) as u64), columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_fits() {
        assert!(line("x", 0, 10, 80).starts_with(&"░".repeat(BAR)));
        assert!(line("x", 10, 10, 80).starts_with(&"█".repeat(BAR)));
        assert!(line("reading 7 files", 5, 10, 80).contains(" 50%  reading 7 files"));
        assert!(text::width(&line("x", 99, 10, 20)) <= 20);
    }
}
