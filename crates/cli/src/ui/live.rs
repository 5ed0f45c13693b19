//! Lines at the bottom of a terminal that are drawn over and over, while others scroll away above them.

use super::watch::{repaint, replace, write_err};
use super::{Ui, terminal};
use std::io;

/// Dropping it leaves the terminal clean.
#[derive(Debug)]
pub(crate) struct Block {
    /// Lines of it on the screen.
    drawn: usize,
}

impl Ui {
    /// For a terminal that can draw it, unless nothing is to be said.
    pub(crate) fn live_block(&self) -> Option<Block> {
        terminal::size(io::stderr()).filter(|_| !terminal::is_dumb() && !self.quiet)?;
        Some(Block { drawn: 0 })
    }
}

impl Block {
    /// What is drawn is told how wide it may be. As many lines as there is room for are shown.
    pub(crate) fn draw(&mut self, lines: impl FnOnce(usize) -> Vec<String>) {
        let Some(size) = terminal::size(io::stderr()) else { return };
        // One column is left free: a full line would wrap on some terminals.
        let mut lines = lines(size.columns.saturating_sub(1));
        lines.truncate(size.rows.saturating_sub(2).max(1));
        write_err(&repaint(self.drawn, &lines));
        self.drawn = lines.len();
    }

    /// A line that stays, above.
    pub(crate) fn above(&mut self, line: &str) {
        write_err(&replace(std::mem::take(&mut self.drawn), &[line.to_owned()]));
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        write_err(&repaint(self.drawn, &[]));
    }
}
