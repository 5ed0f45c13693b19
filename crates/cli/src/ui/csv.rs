//! Comma-separated values as in RFC 4180, with plain newlines.
//!
//! Text may come from other users: control characters are escaped, and text that a spreadsheet would evaluate
//! as a formula gets an apostrophe in front, as spreadsheets do.

use super::text;
use std::io::{self, Write};

pub(super) fn write_row(out: &mut impl Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        let cell = text::escape_control(&cell);
        let formula = if is_formula(&cell) { "'" } else { "" };
        if cell.contains([',', '"', '\n']) {
            write!(out, "\"{formula}{}\"", cell.replace('"', "\"\""))?;
        } else {
            write!(out, "{formula}{cell}")?;
        }
    }
    out.write_all(b"\n")
}

/// Whether a spreadsheet would evaluate it. Numbers are not formulas.
fn is_formula(cell: &str) -> bool {
    cell.starts_with(['=', '+', '-', '@', '\t']) && cell != "-" && cell.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_escapes_formulas_and_control_characters() {
        let mut out = Vec::new();
        let cells = ["=1+2", "-5", "-", "@SUM(A1)", "a\x1b[2Jb", "x,\"y\"", "+cmd|' /C calc'!A0,b"];
        write_row(&mut out, cells.into_iter().map(str::to_owned)).unwrap();
        let expected = "'=1+2,-5,-,'@SUM(A1),a\\u{1b}[2Jb,\"x,\"\"y\"\"\",\"'+cmd|' /C calc'!A0,b\"\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
