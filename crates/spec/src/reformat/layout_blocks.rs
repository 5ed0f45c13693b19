//! Shared code of the JSON, TOML and KDL formatters: lines with comments, and nested blocks of lines.

use crate::source::SourceSpan;

/// White space between tokens. Other Unicode blanks are content.
pub(super) const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Maximum line length where lines can be broken.
pub(super) const MAX_WIDTH: usize = 100;

/// One line, optionally followed by a block.
#[derive(Debug, Default)]
pub(super) struct LayoutItem {
    /// Whether a blank line precedes it.
    pub(super) has_blank_line_above: bool,
    /// Comments on separate lines above it.
    pub(super) comments_above: Vec<String>,
    pub(super) text: String,
    pub(super) block: Option<LayoutBlock>,
    /// A comment at the end of the line.
    pub(super) trailing_comment: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct LayoutBlock {
    pub(super) items: Vec<LayoutItem>,
    /// Comments after the last item.
    pub(super) comments_below: Vec<String>,
    /// Its closing line.
    pub(super) closing_line: String,
}

impl LayoutBlock {
    pub(super) fn write_to(&self, indent: &str, depth: usize, out: &mut String) {
        let margin = indent.repeat(depth);
        for (index, item) in self.items.iter().enumerate() {
            if item.has_blank_line_above && index > 0 {
                out.push('\n');
            }
            print_comments(&item.comments_above, &margin, out);
            out.extend([&margin, item.text.as_str()]);
            if let Some(comment) = &item.trailing_comment {
                out.extend([" ", comment]);
            }
            out.push('\n');
            if let Some(block) = &item.block {
                block.write_to(indent, depth + 1, out);
                out.extend([&margin, block.closing_line.as_str(), "\n"]);
            }
        }
        print_comments(&self.comments_below, &margin, out);
    }
}

fn print_comments(comments: &[String], margin: &str, out: &mut String) {
    for comment in comments {
        if !comment.is_empty() {
            out.extend([margin, comment]);
        }
        out.push('\n');
    }
}

/// Hands out the comments of a text in order.
pub(super) struct CommentCursor<'s> {
    text: &'s str,
    rest: std::iter::Peekable<std::vec::IntoIter<SourceSpan>>,
}

impl<'s> CommentCursor<'s> {
    pub(super) fn new(text: &'s str, spans: Vec<SourceSpan>) -> Self {
        Self { text, rest: spans.into_iter().peekable() }
    }

    /// Returns the remaining comments before a position. A blank line after one is an empty text.
    pub(super) fn take_above(&mut self, place: u32) -> Vec<String> {
        let mut comments = Vec::new();
        while let Some(span) = self.rest.next_if(|span| span.start < place) {
            comments.push(self.comment_text(span));
            let behind = &self.text[span.end as usize..];
            let blanks = &behind[..behind.len() - behind.trim_start_matches(BLANKS).len()];
            if blanks.matches('\n').count() > 1 {
                comments.push(String::new());
            }
        }
        comments
    }

    /// Like [`Self::above`], before the end of a block.
    pub(super) fn take_below(&mut self, place: u32) -> Vec<String> {
        let mut comments = self.take_above(place);
        comments.pop_if(|last| last.is_empty());
        comments
    }

    pub(super) fn take_rest(&mut self) -> Vec<String> {
        self.take_below(u32::MAX)
    }

    /// Returns the next comment, if it is on the line where an element ends.
    pub(super) fn take_trailing(&mut self, end: u32) -> Option<String> {
        let text = self.text;
        let is_beside = |span: &SourceSpan| {
            let between = text.get(end as usize..span.start as usize);
            // A disabled KDL node stays on a separate line.
            let is_node = text[span.start as usize..].starts_with("/-");
            !is_node
                && between
                    .is_some_and(|between| between.chars().all(|c| matches!(c, ' ' | '\t' | ',' | ';' | ':')))
        };
        let span = self.rest.next_if(is_beside)?;
        Some(self.comment_text(span))
    }

    /// Whether there is a comment between two positions.
    pub(super) fn has_within(&mut self, start: u32, end: u32) -> bool {
        self.rest.peek().is_some_and(|span| start <= span.start && span.start < end)
    }

    /// Whether the line above this position is blank.
    pub(super) fn has_blank_line_above(&mut self, start: u32) -> bool {
        let first = self.rest.peek().map_or(start, |span| span.start.min(start));
        let before = &self.text[..first as usize];
        let blanks = &before[before.trim_end_matches(BLANKS).len()..];
        blanks.matches('\n').count() > 1
    }

    fn comment_text(&self, span: SourceSpan) -> String {
        self.text[span.start as usize..span.end as usize].trim_end_matches(BLANKS).to_owned()
    }
}
