//! Comma-separated values as RFC 4180 has them, with plain newlines.

use std::io::{self, Write};

pub(super) fn write_row(out: &mut impl Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        if cell.contains([',', '"', '\n', '\r']) {
            write!(out, "\"{}\"", cell.replace('"', "\"\""))?;
        } else {
            out.write_all(cell.as_bytes())?;
        }
    }
    out.write_all(b"\n")
}
