//! Renders diagnostics in the style of rustc: the line, an underline, a text next to it. It has no side
//! effects.

use crate::diagnostic::{DiagnosticSeverity, SpecDiagnostic, SpecDiagnostics};
use crate::source::{LineIndex, SourceSpan, floor_char_boundary};
use std::ops::Range;
use unicode_width::UnicodeWidthChar;

/// Longer lines are shortened to about this many characters around the location.
const MAX_SHOWN_WIDTH: usize = 100;
/// Maximum number of these characters before the location.
const MAX_CONTEXT_BEFORE: usize = 50;
/// Longest help that is shown next to the underline; a longer one gets its own line.
const MAX_INLINE_HELP: usize = 48;
const TAB: &str = "    ";

/// The output style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagnosticStyle {
    Plain,
    /// With ANSI colors.
    Ansi,
}

#[derive(Clone, Copy)]
enum PaintColor {
    Error,
    Warning,
    Frame,
    Note,
    Strong,
}

impl DiagnosticSeverity {
    const fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }

    const fn paint(self) -> PaintColor {
        match self {
            Self::Error => PaintColor::Error,
            Self::Warning => PaintColor::Warning,
        }
    }
}

impl DiagnosticStyle {
    fn paint(self, paint: PaintColor, text: &str) -> String {
        if self == Self::Plain || text.is_empty() {
            return text.to_owned();
        }
        let code = match paint {
            PaintColor::Error => "1;31",
            PaintColor::Warning => "1;33",
            PaintColor::Frame => "1;34",
            PaintColor::Note => "34",
            PaintColor::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

pub(crate) fn render_diagnostics(diagnostics: &SpecDiagnostics, style: DiagnosticStyle) -> String {
    let lines = LineIndex::new(&diagnostics.source_text);
    let mut out = String::new();
    for diagnostic in &diagnostics.list {
        DiagnosticRenderer { lines: &lines, style, severity: diagnostic.severity, out: &mut out }
            .render_diagnostic(&diagnostics.source_name, diagnostic);
        out.push('\n');
    }
    if diagnostics.omitted > 0 {
        out.extend(["… and ", &diagnostics.omitted.to_string(), " more\n\n"]);
    }
    out
}

struct DiagnosticRenderer<'a> {
    lines: &'a LineIndex<'a>,
    style: DiagnosticStyle,
    severity: DiagnosticSeverity,
    out: &'a mut String,
}

/// A location to underline.
struct UnderlineMark {
    line: usize,
    span: SourceSpan,
    is_primary: bool,
    text: String,
}

impl DiagnosticRenderer<'_> {
    fn render_diagnostic(&mut self, source_name: &str, diagnostic: &SpecDiagnostic) {
        let source_name = to_printable(source_name);
        let title = format!("{}[{}]", self.severity.label(), diagnostic.code);
        let title = self.style.paint(self.severity.paint(), &title);
        let message =
            self.style.paint(PaintColor::Strong, &format!(": {}", to_printable(&diagnostic.message)));
        self.push_line(&format!("{title}{message}"));
        let Some(primary) = diagnostic.span else {
            self.push_line(&format!(" {} {source_name}", self.style.paint(PaintColor::Frame, "-->")));
            self.render_help(1, diagnostic.help.as_deref());
            return;
        };
        let (marks, help) = self.collect_marks(primary, diagnostic);
        let last_line = marks.iter().map(|mark| mark.line + 1).max().unwrap_or(1);
        let gutter = last_line.to_string().len();
        let (line, column) = self.lines.line_column(primary.start);
        let arrow = self.style.paint(PaintColor::Frame, &format!("{:gutter$}-->", ""));
        self.push_line(&format!("{arrow} {source_name}:{line}:{column}"));
        self.render_framed_line(gutter, "", "");
        self.render_snippets(gutter, &marks);
        self.render_help(gutter, help);
    }

    /// Returns all locations in order, and the help if it has no location.
    fn collect_marks<'d>(
        &self,
        primary: SourceSpan,
        diagnostic: &'d SpecDiagnostic,
    ) -> (Vec<UnderlineMark>, Option<&'d str>) {
        let own_label = diagnostic.labels.iter().find(|(span, _)| *span == primary);
        let short_help = diagnostic.help.as_deref().filter(|help| help.chars().count() <= MAX_INLINE_HELP);
        let (text, help) = match (own_label, short_help) {
            (Some((_, text)), _) => (text.as_str(), diagnostic.help.as_deref()),
            (None, Some(help)) => (help, None),
            (None, None) => ("", diagnostic.help.as_deref()),
        };
        let mark = |span: SourceSpan, primary, text: &str| UnderlineMark {
            line: self.lines.line_of(span.start),
            span,
            is_primary: primary,
            text: to_printable(text),
        };
        let mut marks = vec![mark(primary, true, text)];
        let others = diagnostic.labels.iter().filter(|(span, _)| *span != primary);
        marks.extend(others.map(|(span, text)| mark(*span, false, text)));
        marks.sort_by_key(|mark| (mark.line, mark.span));
        (marks, help)
    }

    fn render_snippets(&mut self, gutter: usize, marks: &[UnderlineMark]) {
        let mut shown: Option<(usize, Range<usize>)> = None;
        for mark in marks {
            let start = mark.span.start as usize;
            let reuse = shown
                .as_ref()
                .filter(|(line, window)| *line == mark.line && (window.start..=window.end).contains(&start));
            let window = reuse.map_or_else(|| self.visible_window(mark), |(_, window)| window.clone());
            if reuse.is_none() {
                if shown.as_ref().is_some_and(|(line, _)| mark.line > line + 1) {
                    let dots = self.style.paint(PaintColor::Frame, "...");
                    self.push_line(&dots);
                }
                let text = self.cut_line(mark.line, &window);
                self.render_framed_line(gutter, &(mark.line + 1).to_string(), &text);
            }
            self.render_underline(gutter, mark, &window);
            shown = Some((mark.line, window));
        }
    }

    fn render_underline(&mut self, gutter: usize, mark: &UnderlineMark, window: &Range<usize>) {
        let (line_start, _) = self.lines.bounds(mark.line);
        let text = self.lines.text();
        let start = floor_char_boundary(text, (mark.span.start as usize).clamp(window.start, window.end));
        let end = floor_char_boundary(text, (mark.span.end as usize).min(window.end)).max(start);
        let cut_mark = usize::from(window.start > line_start);
        let indent = cut_mark + display_width(&text[window.start..start]);
        let length = display_width(&text[start..end]).max(1);
        let (sign, paint) =
            if mark.is_primary { ("^", self.severity.paint()) } else { ("-", PaintColor::Note) };
        let words = if mark.text.is_empty() { String::new() } else { format!(" {}", mark.text) };
        let drawn = self.style.paint(paint, &format!("{}{words}", sign.repeat(length)));
        self.render_framed_line(gutter, "", &format!("{:indent$}{drawn}", ""));
    }

    /// Returns the part of the line to show: all of it, or the part around the mark.
    fn visible_window(&self, mark: &UnderlineMark) -> Range<usize> {
        let (start, end) = self.lines.bounds(mark.line);
        let text = self.lines.text();
        if text[start..end].chars().nth(MAX_SHOWN_WIDTH).is_none() {
            return start..end;
        }
        let at = floor_char_boundary(text, (mark.span.start as usize).clamp(start, end));
        let back = text[start..at].char_indices().rev().take(MAX_CONTEXT_BEFORE).last();
        let from = back.map_or(at, |(offset, _)| start + offset);
        let forward = text[from..end].char_indices().nth(MAX_SHOWN_WIDTH);
        from..forward.map_or(end, |(offset, _)| from + offset)
    }

    fn cut_line(&self, line: usize, window: &Range<usize>) -> String {
        let (start, end) = self.lines.bounds(line);
        let before = if window.start > start { "…" } else { "" };
        let after = if window.end < end { "…" } else { "" };
        let shown = &self.lines.text()[window.clone()];
        format!("{before}{}{after}", to_printable(shown))
    }

    fn render_help(&mut self, gutter: usize, help: Option<&str>) {
        let Some(help) = help else { return };
        self.render_framed_line(gutter, "", "");
        let sign = self.style.paint(PaintColor::Frame, &format!("{:gutter$} =", ""));
        self.push_line(&format!(
            "{sign} {} {}",
            self.style.paint(PaintColor::Strong, "help:"),
            to_printable(help)
        ));
    }

    /// Writes one line of the excerpt after its margin.
    fn render_framed_line(&mut self, gutter: usize, number: &str, text: &str) {
        let margin = self.style.paint(PaintColor::Frame, &format!("{number:>gutter$} |"));
        self.push_line(&format!("{margin} {text}"));
    }

    fn push_line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }
}

/// Makes text as wide as it looks: tabs become spaces, and characters that move the cursor or reverse the line
/// are replaced.
fn to_printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\t' => shown.push_str(TAB),
            _ if is_unprintable(char) => shown.push('\u{fffd}'),
            _ => shown.push(char),
        }
    }
    shown
}

fn display_width(text: &str) -> usize {
    let width = |char: char| match char {
        '\t' => TAB.len(),
        _ if is_unprintable(char) => 1,
        _ => char.width().unwrap_or(1),
    };
    text.chars().map(width).sum()
}

fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}
