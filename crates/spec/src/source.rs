//! The text of a spec file: locations in it, and checks before parsing.

use crate::diagnostic::{DiagnosticSink, SpecDiagnostic, SpecDiagnostics};

/// Larger files are rejected, so that every offset fits in a `u32`.
const MAX_BYTES: usize = 1 << 30;

/// A range of the source text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceSpan {
    pub start: u32,
    pub end: u32,
}

impl SourceSpan {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    pub(crate) fn from_offset(offset: usize) -> Self {
        Self::new(offset, offset)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Computes lines and columns. Built only when there is something to report.
#[derive(Debug)]
pub(crate) struct LineIndex<'s> {
    text: &'s str,
    /// Offset of the first byte of each line.
    starts: Vec<u32>,
}

impl<'s> LineIndex<'s> {
    pub(crate) fn new(text: &'s str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at as u32 + 1)).collect();
        Self { text, starts }
    }

    /// Returns the index of the line that contains the offset, from 0.
    pub(crate) fn line_of(&self, offset: u32) -> usize {
        self.starts.partition_point(|start| *start <= offset) - 1
    }

    /// Returns the start and end of a line without its line break.
    pub(crate) fn bounds(&self, line: usize) -> (usize, usize) {
        let start = self.starts[line] as usize;
        let end = self.starts.get(line + 1).map_or(self.text.len(), |next| *next as usize);
        let content = self.text[start..end].trim_end_matches(['\n', '\r']);
        (start, start + content.len())
    }

    /// Returns line and column from 1; columns count characters.
    pub(crate) fn line_column(&self, offset: u32) -> (usize, usize) {
        let line = self.line_of(offset);
        let start = self.starts[line] as usize;
        let end = floor_char_boundary(self.text, offset as usize);
        (line + 1, self.text[start..end.max(start)].chars().count() + 1)
    }

    pub(crate) fn text(&self) -> &'s str {
        self.text
    }
}

/// Returns the largest character boundary at or before `offset`.
pub(crate) fn floor_char_boundary(text: &str, offset: usize) -> usize {
    let offset = offset.min(text.len());
    (0..=offset).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns the file as text: UTF-8 without its byte order mark.
pub(crate) fn read_text<'s>(name: &str, bytes: &'s [u8]) -> Result<&'s str, SpecDiagnostics> {
    let refuse = |text: &str, diagnostic: SpecDiagnostic| {
        let mut sink = DiagnosticSink::default();
        sink.push(diagnostic);
        Err(sink.into_diagnostics(name, text))
    };
    if bytes.len() > MAX_BYTES {
        let diagnostic = SpecDiagnostic::new("file-too-large", format!("the file has {} bytes", bytes.len()))
            .with_help(format!("the maximum is {MAX_BYTES} bytes"));
        return refuse("", diagnostic);
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let diagnostic = SpecDiagnostic::new("not-utf8", "the file is UTF-16").with_help("save it as UTF-8");
        return refuse("", diagnostic);
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let diagnostic =
                SpecDiagnostic::new("not-utf8", format!("byte 0x{:02x} is not UTF-8", bytes[at]))
                    .with_span(SourceSpan::from_offset(at))
                    .with_help("save the file as UTF-8");
            return refuse(&String::from_utf8_lossy(prefix_through_line_end(bytes, at)), diagnostic);
        }
    };
    // YAML does not allow it, and parsers take it for the end of the file.
    if let Some(at) = text.find('\0') {
        let diagnostic = SpecDiagnostic::new("nul-byte", "the file contains a NUL byte")
            .with_span(SourceSpan::new(at, at + 1))
            .with_help("is it really a text file?");
        return refuse(text, diagnostic);
    }
    Ok(text)
}

/// Returns the text up to the end of the line that contains `at`, for an excerpt. Text before `at` keeps its
/// offsets.
fn prefix_through_line_end(bytes: &[u8], at: usize) -> &[u8] {
    let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length);
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let lines = LineIndex::new("ab\r\nü: x\n");
        for (offset, place) in [(0, (1, 1)), (1, (1, 2)), (4, (2, 1)), (6, (2, 2)), (5, (2, 1)), (10, (3, 1))]
        {
            assert_eq!(lines.line_column(offset), place, "{offset}");
        }
        assert_eq!(lines.bounds(0), (0, 2));
        assert_eq!(lines.bounds(1), (4, 9));
        assert_eq!(lines.bounds(2), (10, 10));
    }
}
