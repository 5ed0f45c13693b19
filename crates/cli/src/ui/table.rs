//! Tables that fit the terminal.

use super::style::{TextPainter, TextTone};
use super::text;

const COLUMN_GAP: &str = "  ";
/// Minimum width of a column before other columns are dropped.
const MIN_COLUMN_WIDTH: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnAlign {
    Left,
    Right,
}

#[derive(Clone, Debug)]
pub(crate) struct TableColumn {
    heading: &'static str,
    align: ColumnAlign,
    /// May be truncated to make the table fit.
    is_flexible: bool,
    /// Truncated at the start.
    keeps_end: bool,
    /// Continued on the next line instead of truncated.
    is_wrapped: bool,
}

impl TableColumn {
    pub(crate) const fn text(heading: &'static str) -> Self {
        Self { heading, align: ColumnAlign::Left, is_flexible: false, keeps_end: false, is_wrapped: false }
    }

    pub(crate) const fn number(heading: &'static str) -> Self {
        Self { heading, align: ColumnAlign::Right, is_flexible: false, keeps_end: false, is_wrapped: false }
    }

    pub(crate) const fn heading(&self) -> &'static str {
        self.heading
    }

    /// Text of any length: truncated when the terminal is too narrow.
    pub(crate) const fn flexible(heading: &'static str) -> Self {
        Self { heading, align: ColumnAlign::Left, is_flexible: true, keeps_end: false, is_wrapped: false }
    }

    /// Text that matters as a whole: wrapped when the terminal is too narrow.
    pub(crate) const fn wrapped(heading: &'static str) -> Self {
        Self { is_wrapped: true, ..Self::flexible(heading) }
    }

    /// A file path, whose end matters most.
    pub(crate) const fn path(heading: &'static str) -> Self {
        Self { heading, align: ColumnAlign::Left, is_flexible: true, keeps_end: true, is_wrapped: false }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TableCell {
    text: String,
    tone: Option<TextTone>,
}

impl TableCell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: text::one_line(text.as_ref()), tone: None }
    }

    pub(crate) fn with_tone(text: impl AsRef<str>, tone: impl Into<Option<TextTone>>) -> Self {
        Self { tone: tone.into(), ..Self::new(text) }
    }

    /// `-` for missing values, so that columns can be cut with `awk`.
    pub(crate) fn optional(value: Option<impl ToString>) -> Self {
        Self::new(value.map_or_else(|| "-".to_owned(), |v| v.to_string()))
    }
}

/// Width of a column; `None` if it was dropped.
type ColumnWidth = Option<usize>;

#[derive(Clone, Debug)]
pub(crate) struct TextTable {
    columns: Vec<TableColumn>,
    rows: Vec<Vec<TableCell>>,
    /// Column widths of earlier pages, if any.
    printed_widths: Option<Vec<ColumnWidth>>,
}

impl TextTable {
    pub(crate) fn new(columns: Vec<TableColumn>) -> Self {
        Self { columns, rows: Vec::new(), printed_widths: None }
    }

    pub(crate) fn add_row(&mut self, cells: Vec<TableCell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Lines without trailing blanks; `terminal` is its width, `None` truncates nothing.
    pub(crate) fn render(&self, terminal: Option<usize>, paint: TextPainter) -> Vec<String> {
        self.render_with(&self.column_widths(terminal), paint)
    }

    fn render_with(&self, widths: &[ColumnWidth], paint: TextPainter) -> Vec<String> {
        let headings = self.columns.iter().map(|c| TableCell::with_tone(c.heading, TextTone::Bold)).collect();
        let rows = std::iter::once(&headings).chain(&self.rows);
        rows.flat_map(|row| self.wrap_row(row, widths))
            .map(|row| self.render_row(&row, widths, paint))
            .collect()
    }

    /// The rows since the last page, aligned with what was printed before.
    pub(crate) fn render_page(&mut self, terminal: Option<usize>, paint: TextPainter) -> Vec<String> {
        let widths = self.column_widths(terminal);
        let mut lines = self.render_with(&widths, paint);
        let columns = |widths: &[ColumnWidth]| widths.iter().map(Option::is_some).collect::<Vec<_>>();
        if self.printed_widths.as_deref().is_some_and(|printed| columns(printed) == columns(&widths)) {
            // The heading is printed above the first page.
            lines.remove(0);
        }
        self.rows.clear();
        self.printed_widths = Some(widths);
        lines
    }

    /// The lines of a row: more than one if a cell is wrapped.
    fn wrap_row(&self, row: &[TableCell], widths: &[ColumnWidth]) -> Vec<Vec<TableCell>> {
        let cells = row.iter().zip(&self.columns).zip(widths);
        let columns: Vec<Vec<String>> = cells
            .map(|((cell, column), width)| match width {
                Some(width) if column.is_wrapped => text::wrap(&cell.text, *width),
                _ => vec![cell.text.clone()],
            })
            .collect();
        let height = columns.iter().map(Vec::len).max().unwrap_or(1);
        let line = |n: usize| {
            let cells = row.iter().zip(&columns);
            let part = |(cell, lines): (&TableCell, &Vec<String>)| TableCell {
                text: lines.get(n).cloned().unwrap_or_default(),
                tone: cell.tone,
            };
            cells.map(part).collect()
        };
        (0..height).map(line).collect()
    }

    fn render_row(&self, row: &[TableCell], widths: &[ColumnWidth], paint: TextPainter) -> String {
        let mut line = String::new();
        let mut owed = 0;
        for ((cell, column), width) in row.iter().zip(&self.columns).zip(widths) {
            let Some(width) = *width else { continue };
            let cut = if column.keeps_end { text::truncate_start } else { text::truncate_middle };
            let shown = cut(&cell.text, width);
            if shown.is_empty() {
                owed += width + COLUMN_GAP.len();
                continue;
            }
            let blanks = width - text::display_width(&shown);
            let (before, after) = match column.align {
                ColumnAlign::Left => (0, blanks),
                ColumnAlign::Right => (blanks, 0),
            };
            line.push_str(&" ".repeat(owed + before));
            line.push_str(&paint.apply(cell.tone, &shown));
            // Padding is written only if something follows.
            owed = after + COLUMN_GAP.len();
        }
        line
    }

    fn column_widths(&self, terminal: Option<usize>) -> Vec<ColumnWidth> {
        let natural = |(i, column): (usize, &TableColumn)| {
            let before = match &self.printed_widths {
                Some(printed) => printed[i]?,
                None => 0,
            };
            let cells = self.rows.iter().map(|row| text::display_width(&row[i].text));
            cells.chain([text::display_width(column.heading), before]).max()
        };
        let mut widths: Vec<ColumnWidth> = self.columns.iter().enumerate().map(natural).collect();
        if let Some(terminal) = terminal {
            while self.minimum_width(&widths) > terminal && self.drop_column(&mut widths) {}
            self.shrink_columns(&mut widths, terminal);
        }
        widths
    }

    /// The minimum width of the table.
    fn minimum_width(&self, widths: &[ColumnWidth]) -> usize {
        let cut = |(width, column): (&ColumnWidth, &TableColumn)| {
            width.map(|width| if column.is_flexible { width.min(MIN_COLUMN_WIDTH) } else { width })
        };
        total_width(&widths.iter().zip(&self.columns).map(cut).collect::<Vec<_>>())
    }

    /// Drops one column: the last that is not flexible (those identify the row), never the first.
    fn drop_column(&self, widths: &mut [ColumnWidth]) -> bool {
        let left = |i: &usize| widths[*i].is_some();
        let rigid = (1..widths.len()).rev().filter(left).find(|&i| !self.columns[i].is_flexible);
        let Some(i) = rigid.or_else(|| (1..widths.len()).rev().find(left)) else { return false };
        widths[i] = None;
        true
    }

    /// Shrinks the widest flexible column until the table fits or cannot shrink further.
    fn shrink_columns(&self, widths: &mut [ColumnWidth], terminal: usize) {
        for (width, column) in widths.iter_mut().zip(&self.columns) {
            if column.is_flexible {
                *width = width.map(|width| width.min(terminal));
            }
        }
        while total_width(widths) > terminal {
            let columns = widths.iter_mut().zip(&self.columns).filter(|(_, column)| column.is_flexible);
            let elastic = columns.filter_map(|(width, _)| width.as_mut());
            match elastic.filter(|width| **width > MIN_COLUMN_WIDTH).max() {
                Some(widest) => *widest -= 1,
                None => return,
            }
        }
    }
}

/// Width of a row, with the gaps.
fn total_width(widths: &[ColumnWidth]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + COLUMN_GAP.len() * shown.count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_path_keeps_end() {
        let mut table = TextTable::new(vec![TableColumn::number("ID"), TableColumn::path("PATH")]);
        table.add_row(vec![TableCell::new("1"), TableCell::new("windlass_output/job_stdio/job_1.e")]);
        assert_eq!(table.render(Some(20), TextPainter::PLAIN), ["ID  PATH", " 1  …b_stdio/job_1.e"]);
    }

    fn sample() -> TextTable {
        let mut table = TextTable::new(vec![
            TableColumn::number("ID"),
            TableColumn::flexible("NAME"),
            TableColumn::text("STATUS"),
            TableColumn::flexible("COMMAND"),
        ]);
        table.add_row(vec![
            TableCell::new("1"),
            TableCell::new("first"),
            TableCell::with_tone("failed", TextTone::Bad),
            TableCell::new("python train.py\n--epochs 10"),
        ]);
        table.add_row(vec![
            TableCell::new("1000"),
            TableCell::new("second"),
            TableCell::optional(None::<u32>),
            TableCell::new("true"),
        ]);
        table
    }

    #[test]
    fn table_without_terminal_is_not_shortened() {
        assert_eq!(
            sample().render(None, TextPainter::PLAIN),
            [
                "  ID  NAME    STATUS  COMMAND",
                "   1  first   failed  python train.py --epochs 10",
                "1000  second  -       true",
            ]
        );
    }

    #[test]
    fn widest_elastic_column_is_shortened() {
        assert_eq!(
            sample().render(Some(36), TextPainter::PLAIN),
            [
                "  ID  NAME    STATUS  COMMAND",
                "   1  first   failed  python …chs 10",
                "1000  second  -       true"
            ]
        );
    }

    #[test]
    fn wrapped_column_shows_the_whole_text() {
        let mut table = TextTable::new(vec![
            TableColumn::text("KEY"),
            TableColumn::wrapped("MESSAGE"),
            TableColumn::number("JOBS"),
        ]);
        let row = |text: &str| vec![TableCell::new("ab"), TableCell::new(text), TableCell::new("3")];
        table.add_row(row("cannot open /data/x.root"));
        assert_eq!(
            table.render(Some(24), TextPainter::PLAIN),
            ["KEY  MESSAGE        JOBS", "ab   cannot open       3", "     /data/x.root"]
        );
        assert_eq!(table.render(None, TextPainter::PLAIN)[1], "ab   cannot open /data/x.root     3");
    }

    #[test]
    fn columns_are_dropped_when_shortening_is_not_enough() {
        assert_eq!(
            sample().render(Some(24), TextPainter::PLAIN),
            ["  ID  NAME    COMMAND", "   1  first   pytho…s 10", "1000  second  true"]
        );
        for terminal in 4..40 {
            for line in sample().render(Some(terminal), TextPainter::PLAIN) {
                assert!(text::display_width(&line) <= terminal, "{terminal}: {line}");
            }
        }
    }

    #[test]
    fn table_names_dropped_columns() {
        let mut table = TextTable::new(vec![
            TableColumn::number("ID"),
            TableColumn::text("STATE"),
            TableColumn::text("WHEN"),
        ]);
        let row = |id: &str| vec![TableCell::new(id), TableCell::new("ready"), TableCell::new("now")];
        table.add_row(row("1"));
        assert_eq!(table.render_page(Some(16), TextPainter::PLAIN), ["ID  STATE  WHEN", " 1  ready  now"]);
        table.add_row(row("2"));
        assert_eq!(table.render_page(Some(16), TextPainter::PLAIN), [" 2  ready  now"]);
        table.add_row(row("30000"));
        assert_eq!(table.render_page(Some(16), TextPainter::PLAIN), ["   ID  STATE", "30000  ready"]);
    }

    #[test]
    fn color_does_not_count_as_width() {
        let painted = sample().render(None, TextPainter { enabled: true });
        assert_eq!(
            text::escape_control(&painted[1]),
            "   1  first   \x1b[31mfailed\x1b[0m  python train.py --epochs 10"
        );
    }
}
