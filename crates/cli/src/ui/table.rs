//! Tables that fit the terminal.

use super::style::{Paint, Tone};
use super::text;

const GAP: &str = "  ";
/// A column is never cut to less than this: before that, others give way.
const NARROWEST: usize = 8;

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

/// Of a column; `None` if it gave way to the others.
type Width = Option<usize>;

#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// Of the columns on the pages before, once there was one.
    printed: Option<Vec<Width>>,
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

    fn render_with(&self, widths: &[Width], paint: Paint) -> Vec<String> {
        let headings = self.columns.iter().map(|c| Cell::toned(c.heading, Tone::Bold)).collect();
        std::iter::once(&headings).chain(&self.rows).map(|row| self.render_row(row, widths, paint)).collect()
    }

    /// The rows since the last page, below what was printed before.
    pub(crate) fn render_page(&mut self, terminal: Option<usize>, paint: Paint) -> Vec<String> {
        let widths = self.widths(terminal);
        let mut lines = self.render_with(&widths, paint);
        let columns = |widths: &[Width]| widths.iter().map(Option::is_some).collect::<Vec<_>>();
        if self.printed.as_deref().is_some_and(|printed| columns(printed) == columns(&widths)) {
            // The heading stands above the first page.
            lines.remove(0);
        }
        self.rows.clear();
        self.printed = Some(widths);
        lines
    }

    fn render_row(&self, row: &[Cell], widths: &[Width], paint: Paint) -> String {
        let mut line = String::new();
        let mut owed = 0;
        for ((cell, column), width) in row.iter().zip(&self.columns).zip(widths) {
            let Some(width) = *width else { continue };
            let cut = if column.keeps_end { text::truncate_start } else { text::truncate_middle };
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

    fn widths(&self, terminal: Option<usize>) -> Vec<Width> {
        let natural = |(i, column): (usize, &Column)| {
            let before = match &self.printed {
                Some(printed) => printed[i]?,
                None => 0,
            };
            let cells = self.rows.iter().map(|row| text::width(&row[i].text));
            cells.chain([text::width(column.heading), before]).max()
        };
        let mut widths: Vec<Width> = self.columns.iter().enumerate().map(natural).collect();
        if let Some(terminal) = terminal {
            while self.least(&widths) > terminal && self.drop_one(&mut widths) {}
            self.squeeze(&mut widths, terminal);
        }
        widths
    }

    /// What the table needs with everything cut that may be cut.
    fn least(&self, widths: &[Width]) -> usize {
        let cut = |(width, column): (&Width, &Column)| {
            width.map(|width| if column.elastic { width.min(NARROWEST) } else { width })
        };
        total(&widths.iter().zip(&self.columns).map(cut).collect::<Vec<_>>())
    }

    /// Leaves out one column: the last that is not elastic (those say what a row is about), never the first.
    fn drop_one(&self, widths: &mut [Width]) -> bool {
        let left = |i: &usize| widths[*i].is_some();
        let rigid = (1..widths.len()).rev().filter(left).find(|&i| !self.columns[i].elastic);
        let Some(i) = rigid.or_else(|| (1..widths.len()).rev().find(left)) else { return false };
        widths[i] = None;
        true
    }

    /// Takes from the widest elastic column until the table fits or nothing is left to take.
    fn squeeze(&self, widths: &mut [Width], terminal: usize) {
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            if column.elastic {
                *width = width.map(|width| width.min(terminal));
            }
        }
        while total(widths) > terminal {
            let columns = widths.iter_mut().zip(&self.columns).filter(|(_, column)| column.elastic);
            let elastic = columns.filter_map(|(width, _)| width.as_mut());
            match elastic.filter(|width| **width > NARROWEST).max() {
                Some(widest) => *widest -= 1,
                None => return,
            }
        }
    }
}

/// Of a row, with the gaps.
fn total(widths: &[Width]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP.len() * shown.count().saturating_sub(1)
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
                "   1  first   failed  python …chs 10",
                "1000  second  -       true"
            ]
        );
    }

    #[test]
    fn where_cutting_is_not_enough_columns_give_way() {
        assert_eq!(
            sample().render(Some(24), Paint::PLAIN),
            ["  ID  NAME    COMMAND", "   1  first   pytho…s 10", "1000  second  true"]
        );
        for terminal in 4..40 {
            for line in sample().render(Some(terminal), Paint::PLAIN) {
                assert!(text::width(&line) <= terminal, "{terminal}: {line}");
            }
        }
    }

    #[test]
    fn a_page_with_fewer_columns_says_which() {
        let mut table = Table::new(vec![Column::number("ID"), Column::text("STATE"), Column::text("WHEN")]);
        let row = |id: &str| vec![Cell::new(id), Cell::new("ready"), Cell::new("now")];
        table.row(row("1"));
        assert_eq!(table.render_page(Some(16), Paint::PLAIN), ["ID  STATE  WHEN", " 1  ready  now"]);
        table.row(row("2"));
        assert_eq!(table.render_page(Some(16), Paint::PLAIN), [" 2  ready  now"]);
        table.row(row("30000"));
        assert_eq!(table.render_page(Some(16), Paint::PLAIN), ["   ID  STATE", "30000  ready"]);
    }

    #[test]
    fn colour_does_not_count_as_width() {
        let painted = sample().render(None, Paint { enabled: true });
        assert_eq!(painted[1], "   1  first   \x1b[31mfailed\x1b[0m  python train.py --epochs 10");
    }
}
