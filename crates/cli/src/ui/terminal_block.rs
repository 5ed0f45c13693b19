//! Lines at the bottom of a terminal that are redrawn in place, while other lines scroll above.

use super::run_observers::{repaint, replace_block, write_stderr};
use super::{TerminalUi, terminal};
use std::io;

/// Dropping it clears the block.
#[derive(Debug)]
pub(crate) struct TerminalBlock {
    /// Number of its lines on the screen.
    drawn_lines: usize,
}

impl TerminalUi {
    /// For a terminal that supports it, unless output is quiet.
    pub(crate) fn terminal_block(&self) -> Option<TerminalBlock> {
        terminal::terminal_size(io::stderr()).filter(|_| !terminal::is_dumb() && !self.quiet)?;
        Some(TerminalBlock { drawn_lines: 0 })
    }
}

impl TerminalBlock {
    /// The callback gets the available width. Only as many lines as fit are shown.
    pub(crate) fn draw(&mut self, lines: impl FnOnce(usize) -> Vec<String>) {
        let Some(size) = terminal::terminal_size(io::stderr()) else { return };
        // One column is left free: a full line would wrap on some terminals.
        let mut lines = lines(size.columns.saturating_sub(1));
        lines.truncate(size.rows.saturating_sub(2).max(1));
        write_stderr(&repaint(self.drawn_lines, &lines));
        self.drawn_lines = lines.len();
    }

    /// Prints a permanent line above.
    pub(crate) fn print_above(&mut self, line: &str) {
        write_stderr(&replace_block(std::mem::take(&mut self.drawn_lines), &[line.to_owned()]));
    }
}

impl Drop for TerminalBlock {
    fn drop(&mut self) {
        write_stderr(&repaint(self.drawn_lines, &[]));
    }
}
