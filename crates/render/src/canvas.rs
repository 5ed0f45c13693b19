//! A grid of character cells with boxes and lines.

use unicode_width::UnicodeWidthChar as _;

/// One cell: a character, or the lines that meet in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CanvasCell {
    Empty,
    Text(char),
    /// The second half of a wide character.
    WideTail,
    /// Lines of one net; lines of other nets only cross here.
    Line {
        net: usize,
        arms: u8,
    },
}

pub(crate) const UP: u8 = 1;
pub(crate) const RIGHT: u8 = 2;
pub(crate) const DOWN: u8 = 4;
pub(crate) const LEFT: u8 = 8;

#[derive(Clone, Debug)]
pub(crate) struct TextCanvas {
    width: usize,
    rows: Vec<Vec<CanvasCell>>,
}

impl TextCanvas {
    pub(crate) fn new(width: usize) -> Self {
        Self { width, rows: Vec::new() }
    }

    pub(crate) fn add_rows(&mut self, count: usize) {
        self.rows.resize(self.rows.len() + count, vec![CanvasCell::Empty; self.width]);
    }

    pub(crate) fn height(&self) -> usize {
        self.rows.len()
    }

    /// Writes text starting at a cell, at most `room` cells.
    pub(crate) fn write_text(&mut self, x: usize, y: usize, text: &str, room: usize) {
        let mut at = x;
        for c in text.chars() {
            let width = c.width().unwrap_or(0);
            if width == 0 || at + width > (x + room).min(self.width) {
                continue;
            }
            self.rows[y][at] = CanvasCell::Text(c);
            (1..width).for_each(|i| self.rows[y][at + i] = CanvasCell::WideTail);
            at += width;
        }
    }

    /// Adds lines of `net` to a cell. Where lines of two nets cross, the vertical one is drawn.
    pub(crate) fn add_line(&mut self, x: usize, y: usize, net: usize, arms: u8) {
        let cell = &mut self.rows[y][x];
        *cell = match *cell {
            CanvasCell::Line { net: other, arms: others } if other == net => {
                CanvasCell::Line { net, arms: arms | others }
            }
            CanvasCell::Line { arms: others, .. } if others & (UP | DOWN) != 0 => *cell,
            _ => CanvasCell::Line { net, arms },
        };
    }

    pub(crate) fn add_vertical(&mut self, x: usize, rows: std::ops::RangeInclusive<usize>, net: usize) {
        let (first, last) = (*rows.start(), *rows.end());
        for y in rows {
            let up = if y > first { UP } else { 0 };
            let down = if y < last { DOWN } else { 0 };
            self.add_line(x, y, net, up | down);
        }
    }

    pub(crate) fn add_horizontal(&mut self, y: usize, columns: std::ops::RangeInclusive<usize>, net: usize) {
        let (first, last) = (*columns.start(), *columns.end());
        for x in columns {
            let left = if x > first { LEFT } else { 0 };
            let right = if x < last { RIGHT } else { 0 };
            self.add_line(x, y, net, left | right);
        }
    }

    /// Returns the grid as lines without trailing blanks.
    pub(crate) fn render_text(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let line: String = row.iter().filter_map(|cell| cell.to_char()).collect();
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

impl CanvasCell {
    fn to_char(self) -> Option<char> {
        match self {
            Self::Empty => Some(' '),
            Self::Text(c) => Some(c),
            Self::WideTail => None,
            Self::Line { arms, .. } => Some(box_character(arms)),
        }
    }
}

fn box_character(arms: u8) -> char {
    const JOINTS: [char; 16] =
        [' ', '│', '─', '╰', '│', '│', '╭', '├', '─', '╯', '─', '┴', '╮', '┤', '┬', '┼'];
    JOINTS[usize::from(arms & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_join_within_one_net_and_cross_between_nets() {
        let mut canvas = TextCanvas::new(7);
        canvas.add_rows(3);
        canvas.add_horizontal(1, 0..=6, 1);
        canvas.add_vertical(3, 0..=1, 1);
        canvas.add_vertical(5, 0..=2, 2);
        assert_eq!(canvas.render_text(), "   │ │\n───┴─│─\n     │\n");
    }

    #[test]
    fn wide_characters_take_two_cells() {
        let mut canvas = TextCanvas::new(6);
        canvas.add_rows(1);
        canvas.write_text(0, 0, "日本語x", 5);
        canvas.write_text(5, 0, "|", 1);
        assert_eq!(canvas.render_text(), "日本x|\n");
    }
}
