//! Tables that fit the terminal.

use super::style::{Paint, Tone};
use super::text;

const GAP: &str = "  ";
/// A column is never cut to less than this.
const NARROWEST: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    heading: &'static str,
    align: Align,
    /// May be cut to make the table fit.
    elastic: bool,
    /// What is cut goes at the start.
    keeps_end: bool,
}

impl Column {
    pub(crate) const fn text(heading: &'static str) -> Self {
        Self { heading, align: Align::Left, elastic: false, keeps_end: false }
    }

    pub(crate) const fn number(heading: &'static str) -> Self {
        Self { heading, align: Align::Right, elastic: false, keeps_end: false }
    }

    pub(crate) const fn heading(&self) -> &'static str {
        self.heading
    }

    /// Text of any length: cut when the terminal is too narrow.
    pub(crate) const fn elastic(heading: &'static str) -> Self {
        Self { heading, align: Align::Left, elastic: true, keeps_end: false }
    }

    /// The path of a file, of which the end says most.
    pub(crate) const fn path(heading: &'static str) -> Self {
        Self { heading, align: Align::Left, elastic: true, keeps_end: true }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: text::one_line(text.as_ref()), tone: None }
    }

    pub(crate) fn toned(text: impl AsRef<str>, tone: impl Into<Option<Tone>>) -> Self {
        Self { tone: tone.into(), ..Self::new(text) }
    }

    /// `-` where there is nothing, so that a column can be cut with `awk`.
    pub(crate) fn maybe(value: Option<impl ToString>) -> Self {
        Self::new(value.map_or_else(|| "-".to_owned(), |v| v.to_string()))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// Of the columns on the pages before, once there was one.
    printed: Option<Vec<usize>>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new(), printed: None }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Lines without trailing blanks; `terminal` is its width, `None` cuts nothing.
    pub(crate) fn render(&self, terminal: Option<usize>, paint: Paint) -> Vec<String> {
        self.render_with(&self.widths(terminal), paint)
    }

    fn render_with(&self, widths: &[usize], paint: Paint) -> Vec<String> {
        let headings = self.columns.iter().map(|c| Cell::toned(c.heading, Tone::Bold)).collect();
        std::iter::once(&headings).chain(&self.rows).map(|row| self.render_row(row, widths, paint)).collect()
    }

    /// The rows since the last page, below what was printed before.
    pub(crate) fn render_page(&mut self, terminal: Option<usize>, paint: Paint) -> Vec<String> {
        let widths = self.widths(terminal);
        let mut lines = self.render_with(&widths, paint);
        if self.printed.is_some() {
            // The heading stands above the first page.
            lines.remove(0);
        }
        self.rows.clear();
        self.printed = Some(widths);
        lines
    }

    fn render_row(&self, row: &[Cell], widths: &[usize], paint: Paint) -> String {
        let mut line = String::new();
        let mut owed = 0;
        for ((cell, column), &width) in row.iter().zip(&self.columns).zip(widths) {
            let cut = if column.keeps_end { text::truncate_start } else { text::truncate };
            let shown = cut(&cell.text, width);
            let blanks = width - text::width(&shown);
            let (before, after) = match column.align {
                Align::Left => (0, blanks),
                Align::Right => (blanks, 0),
            };
            line.push_str(&" ".repeat(owed + before));
            line.push_str(&paint.apply(cell.tone, &shown));
            // Blanks are written when something follows them.
            owed = after + GAP.len();
        }
        line
    }

    fn widths(&self, terminal: Option<usize>) -> Vec<usize> {
        let natural = |i: usize, column: &Column| {
            let cells = self.rows.iter().map(|row| text::width(&row[i].text));
            let before = self.printed.as_ref().map_or(0, |widths| widths[i]);
            cells.chain([text::width(column.heading), before]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = self.columns.iter().enumerate().map(|(i, c)| natural(i, c)).collect();
        if let Some(terminal) = terminal {
            self.squeeze(&mut widths, terminal);
        }
        widths
    }

    /// Takes from the widest elastic column until the table fits or nothing is left to take.
    fn squeeze(&self, widths: &mut [usize], terminal: usize) {
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            if column.elastic {
                *width = (*width).min(terminal);
            }
        }
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > terminal {
            let elastic = widths.iter_mut().zip(&self.columns).filter(|(w, c)| c.elastic && **w > NARROWEST);
            match elastic.map(|(width, _)| width).max() {
                Some(widest) => *widest -= 1,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_path_the_end_is_kept() {
        let mut table = Table::new(vec![Column::number("ID"), Column::path("PATH")]);
        table.row(vec![Cell::new("1"), Cell::new("windlass_output/job_stdio/job_1.e")]);
        assert_eq!(table.render(Some(20), Paint::PLAIN), ["ID  PATH", " 1  …b_stdio/job_1.e"]);
    }

    fn sample() -> Table {
        let mut table = Table::new(vec![
            Column::number("ID"),
            Column::elastic("NAME"),
            Column::text("STATUS"),
            Column::elastic("COMMAND"),
        ]);
        table.row(vec![
            Cell::new("1"),
            Cell::new("first"),
            Cell::toned("failed", Tone::Bad),
            Cell::new("python train.py\n--epochs 10"),
        ]);
        table.row(vec![Cell::new("1000"), Cell::new("second"), Cell::maybe(None::<u32>), Cell::new("true")]);
        table
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        assert_eq!(
            sample().render(None, Paint::PLAIN),
            [
                "  ID  NAME    STATUS  COMMAND",
                "   1  first   failed  python train.py --epochs 10",
                "1000  second  -       true",
            ]
        );
    }

    #[test]
    fn the_widest_elastic_column_gives_way() {
        assert_eq!(
            sample().render(Some(36), Paint::PLAIN),
            [
                "  ID  NAME    STATUS  COMMAND",
                "   1  first   failed  python train.…",
                "1000  second  -       true"
            ]
        );
    }

    #[test]
    fn a_terminal_too_narrow_still_shows_every_column() {
        for line in sample().render(Some(10), Paint::PLAIN) {
            assert!(text::width(&line) <= 28, "{line}");
        }
    }

    #[test]
    fn colour_does_not_count_as_width() {
        let painted = sample().render(None, Paint { enabled: true });
        assert_eq!(painted[1], "   1  first   \x1b[31mfailed\x1b[0m  python train.py --epochs 10");
    }
}
