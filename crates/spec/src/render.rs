//! Draws diagnostics in the manner of rustc: the line, an underline, a word beside it. Pure text in, text out.

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::source::{Lines, Span, floor_char_boundary};
use std::ops::Range;
use unicode_width::UnicodeWidthChar;

/// Longer lines are cut to about this many characters around the place.
const WINDOW: usize = 100;
/// So many of them before the place, at most.
const BEFORE: usize = 50;
/// A help that fits stands beside the underline, a longer one in a line of its own.
const SHORT_HELP: usize = 48;
const TAB: &str = "    ";

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// With ANSI colours.
    Ansi,
}

#[derive(Clone, Copy)]
enum Paint {
    Error,
    Warning,
    Frame,
    Note,
    Strong,
}

impl Severity {
    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }

    const fn paint(self) -> Paint {
        match self {
            Self::Error => Paint::Error,
            Self::Warning => Paint::Warning,
        }
    }
}

impl Style {
    fn paint(self, paint: Paint, text: &str) -> String {
        if self == Self::Plain || text.is_empty() {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Error => "1;31",
            Paint::Warning => "1;33",
            Paint::Frame => "1;34",
            Paint::Note => "34",
            Paint::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

pub(crate) fn diagnostics(diagnostics: &Diagnostics, style: Style) -> String {
    let lines = Lines::new(&diagnostics.source_text);
    let mut out = String::new();
    for diagnostic in &diagnostics.list {
        Picture { lines: &lines, style, severity: diagnostic.severity, out: &mut out }
            .draw(&diagnostics.source_name, diagnostic);
        out.push('\n');
    }
    if diagnostics.more > 0 {
        out.extend(["… and ", &diagnostics.more.to_string(), " more\n\n"]);
    }
    out
}

struct Picture<'a> {
    lines: &'a Lines<'a>,
    style: Style,
    severity: Severity,
    out: &'a mut String,
}

/// A place to underline.
struct Mark {
    line: usize,
    span: Span,
    primary: bool,
    text: String,
}

impl Picture<'_> {
    fn draw(&mut self, source_name: &str, diagnostic: &Diagnostic) {
        let title = format!("{}[{}]", self.severity.word(), diagnostic.code);
        let title = self.style.paint(self.severity.paint(), &title);
        let message = self.style.paint(Paint::Strong, &format!(": {}", printable(&diagnostic.message)));
        self.line(&format!("{title}{message}"));
        let Some(primary) = diagnostic.span else {
            self.line(&format!(" {} {source_name}", self.style.paint(Paint::Frame, "-->")));
            self.help(1, diagnostic.help.as_deref());
            return;
        };
        let (marks, help) = self.marks(primary, diagnostic);
        let last_line = marks.iter().map(|mark| mark.line + 1).max().unwrap_or(1);
        let gutter = last_line.to_string().len();
        let (line, column) = self.lines.line_column(primary.start);
        let arrow = self.style.paint(Paint::Frame, &format!("{:gutter$}-->", ""));
        self.line(&format!("{arrow} {source_name}:{line}:{column}"));
        self.frame(gutter, "", "");
        self.snippets(gutter, &marks);
        self.help(gutter, help);
    }

    /// All places in order, and the help that found no place beside one.
    fn marks<'d>(&self, primary: Span, diagnostic: &'d Diagnostic) -> (Vec<Mark>, Option<&'d str>) {
        let own_label = diagnostic.labels.iter().find(|(span, _)| *span == primary);
        let short_help = diagnostic.help.as_deref().filter(|help| help.chars().count() <= SHORT_HELP);
        let (text, help) = match (own_label, short_help) {
            (Some((_, text)), _) => (text.as_str(), diagnostic.help.as_deref()),
            (None, Some(help)) => (help, None),
            (None, None) => ("", diagnostic.help.as_deref()),
        };
        let mark = |span: Span, primary, text: &str| Mark {
            line: self.lines.line_of(span.start),
            span,
            primary,
            text: printable(text),
        };
        let mut marks = vec![mark(primary, true, text)];
        let others = diagnostic.labels.iter().filter(|(span, _)| *span != primary);
        marks.extend(others.map(|(span, text)| mark(*span, false, text)));
        marks.sort_by_key(|mark| (mark.line, mark.span));
        (marks, help)
    }

    fn snippets(&mut self, gutter: usize, marks: &[Mark]) {
        let mut shown: Option<(usize, Range<usize>)> = None;
        for mark in marks {
            let start = mark.span.start as usize;
            let reuse = shown
                .as_ref()
                .filter(|(line, window)| *line == mark.line && (window.start..=window.end).contains(&start));
            let window = reuse.map_or_else(|| self.window(mark), |(_, window)| window.clone());
            if reuse.is_none() {
                if shown.as_ref().is_some_and(|(line, _)| mark.line > line + 1) {
                    let dots = self.style.paint(Paint::Frame, "...");
                    self.line(&dots);
                }
                let text = self.cut(mark.line, &window);
                self.frame(gutter, &(mark.line + 1).to_string(), &text);
            }
            self.underline(gutter, mark, &window);
            shown = Some((mark.line, window));
        }
    }

    fn underline(&mut self, gutter: usize, mark: &Mark, window: &Range<usize>) {
        let (line_start, _) = self.lines.bounds(mark.line);
        let text = self.lines.text();
        let start = floor_char_boundary(text, (mark.span.start as usize).clamp(window.start, window.end));
        let end = floor_char_boundary(text, (mark.span.end as usize).min(window.end)).max(start);
        let cut_mark = usize::from(window.start > line_start);
        let indent = cut_mark + width(&text[window.start..start]);
        let length = width(&text[start..end]).max(1);
        let (sign, paint) = if mark.primary { ("^", self.severity.paint()) } else { ("-", Paint::Note) };
        let words = if mark.text.is_empty() { String::new() } else { format!(" {}", mark.text) };
        let drawn = self.style.paint(paint, &format!("{}{words}", sign.repeat(length)));
        self.frame(gutter, "", &format!("{:indent$}{drawn}", ""));
    }

    /// The part of the line to show: all of it, or what is near the mark.
    fn window(&self, mark: &Mark) -> Range<usize> {
        let (start, end) = self.lines.bounds(mark.line);
        let text = self.lines.text();
        if text[start..end].chars().nth(WINDOW).is_none() {
            return start..end;
        }
        let at = floor_char_boundary(text, (mark.span.start as usize).clamp(start, end));
        let back = text[start..at].char_indices().rev().take(BEFORE).last();
        let from = back.map_or(at, |(offset, _)| start + offset);
        let forward = text[from..end].char_indices().nth(WINDOW);
        from..forward.map_or(end, |(offset, _)| from + offset)
    }

    fn cut(&self, line: usize, window: &Range<usize>) -> String {
        let (start, end) = self.lines.bounds(line);
        let before = if window.start > start { "…" } else { "" };
        let after = if window.end < end { "…" } else { "" };
        let shown = &self.lines.text()[window.clone()];
        format!("{before}{}{after}", printable(shown))
    }

    fn help(&mut self, gutter: usize, help: Option<&str>) {
        let Some(help) = help else { return };
        self.frame(gutter, "", "");
        let sign = self.style.paint(Paint::Frame, &format!("{:gutter$} =", ""));
        self.line(&format!("{sign} {} {}", self.style.paint(Paint::Strong, "help:"), printable(help)));
    }

    /// One line of the picture behind its margin.
    fn frame(&mut self, gutter: usize, number: &str, text: &str) {
        let margin = self.style.paint(Paint::Frame, &format!("{number:>gutter$} |"));
        self.line(&format!("{margin} {text}"));
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }
}

/// Text that takes the room it seems to take: tabs as spaces, nothing that moves the cursor or turns the line around.
fn printable(text: &str) -> String {
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

fn width(text: &str) -> usize {
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
