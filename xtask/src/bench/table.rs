//! A table for the terminal that omits columns rather than wrapping lines.

/// A column and its priority when space is short: the column with the smallest number is omitted first.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableColumn {
    pub(super) title: &'static str,
    pub(super) keep: u8,
}

/// The width of the terminal, or a default for files.
pub(super) fn terminal_width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    // `stty` asks the terminal on its stdin, which is ours.
    let asked = || {
        let answer =
            std::process::Command::new("stty").arg("size").stderr(std::process::Stdio::null()).output();
        let text = String::from_utf8(answer.ok()?.stdout).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    };
    told.or_else(asked).filter(|width| *width > 0).unwrap_or(120)
}

/// The first column is aligned left, all others right, with two spaces between.
pub(super) fn render(columns: &[TableColumn], rows: &[Vec<String>], width: usize) -> String {
    let widths: Vec<usize> = (0..columns.len()).map(|index| column_width(columns, rows, index)).collect();
    let shown = choose(columns, &widths, width);
    let titles: Vec<String> = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for &index in &shown {
            let (cell, room) = (&row[index], widths[index]);
            let padded = if index == 0 { format!("{cell:<room$}") } else { format!("  {cell:>room$}") };
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn column_width(columns: &[TableColumn], rows: &[Vec<String>], index: usize) -> usize {
    let cells = rows.iter().map(|row| row[index].as_str());
    cells.chain([columns[index].title]).map(|cell| cell.chars().count()).max().unwrap_or(0)
}

/// The indices of the columns that fit; the first always does.
fn choose(columns: &[TableColumn], widths: &[usize], width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let total =
        |shown: &[usize]| shown.iter().map(|index| widths[*index] + 2).sum::<usize>().saturating_sub(2);
    while total(&shown) > width {
        let dearest =
            shown.iter().copied().filter(|index| *index > 0).min_by_key(|index| columns[*index].keep);
        let Some(dropped) = dearest else { break };
        shown.retain(|index| *index != dropped);
    }
    shown
}

/// A paragraph wrapped at spaces; lines after the first are indented.
pub(super) fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used == 0 {
            used = length;
        } else if used + 1 + length <= width {
            wrapped.push(' ');
            used += 1 + length;
        } else {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            used = indent + length;
        }
        wrapped.push_str(word);
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[TableColumn] = &[
        TableColumn { title: "who", keep: 9 },
        TableColumn { title: "wall", keep: 5 },
        TableColumn { title: "files", keep: 1 },
        TableColumn { title: "ratio", keep: 8 },
    ];

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        vec![row(["xargs", "7.41", "0", "1.00"]), row(["snakemake", "9.1", "1200", "60"])]
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "\
who        wall  files  ratio
xargs      7.41      0   1.00
snakemake   9.1   1200     60
";
        assert_eq!(render(COLUMNS, &rows(), 80), expected);
    }

    #[test]
    fn narrow_terminal_drops_least_important_columns_first() {
        assert_eq!(render(COLUMNS, &rows(), 22).lines().next(), Some("who        wall  ratio"));
        assert_eq!(render(COLUMNS, &rows(), 21).lines().next(), Some("who        ratio"));
        assert_eq!(render(COLUMNS, &rows(), 3).lines().next(), Some("who"));
    }

    #[test]
    fn lines_fit_terminal_width() {
        for width in 10..40 {
            assert!(render(COLUMNS, &rows(), width).lines().all(|line| line.chars().count() <= width));
        }
    }

    #[test]
    fn paragraphs_wrap_at_spaces() {
        assert_eq!(wrap("make: not found; install it", 14, 2), "make: not\n  found;\n  install it");
        assert_eq!(wrap("short", 80, 2), "short");
    }
}
