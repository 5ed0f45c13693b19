//! Formats YAML: blocks indented by two blanks; lists and maps in brackets stay in brackets if they fit on a
//! line.
//!
//! Works on the events of the parser, so anchors, aliases, tags and merge keys are kept.

mod node_reader;

use super::UnsupportedLayout;
use super::layout_blocks::{BLANKS, CommentCursor, MAX_WIDTH};
use crate::source::SourceSpan;
use node_reader::{YamlScalarStyle, YamlSourceKind, YamlSourceNode};

pub(super) use node_reader::find_comments;

pub(super) fn render_layout(text: &str) -> Result<String, UnsupportedLayout> {
    let root = node_reader::parse_document(text)?;
    let mut layout = YamlLayout {
        text,
        comments: CommentCursor::new(text, find_comments(text)),
        out: String::new(),
        ends_with_blanks: false,
    };
    match &root.kind {
        // Nothing to format, and the parser does not always report the beginning of such a text correctly.
        YamlSourceKind::Scalar { text, style }
            if !text.is_empty() || matches!(style, YamlScalarStyle::Block) =>
        {
            return Err(UnsupportedLayout { reason: "the file is a single text, not a map", span: None });
        }
        YamlSourceKind::Map { .. } | YamlSourceKind::List { .. }
            if root.properties.is_empty() && !layout.fits_on_line(&root, 0) =>
        {
            layout.write_block(&root, 0, false)?;
        }
        _ => {
            let above = layout.comments.take_above(root.start);
            layout.write_comment_lines(&above, 0);
            layout.write_after_key(&root, 0, root.start)?;
        }
    }
    let below = layout.comments.take_rest();
    layout.write_comment_lines(&below, 0);
    Ok(layout.out.trim_start_matches(' ').to_owned())
}

struct YamlLayout<'s> {
    text: &'s str,
    comments: CommentCursor<'s>,
    out: String,
    /// The last written value is a text whose trailing blank lines belong to it.
    ends_with_blanks: bool,
}

impl YamlLayout<'_> {
    fn write_margin(&mut self, depth: usize) {
        self.out.push_str(&"  ".repeat(depth));
    }

    fn write_comment_lines(&mut self, lines: &[String], depth: usize) {
        for line in lines {
            if !line.is_empty() {
                self.write_margin(depth);
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
    }

    /// Writes a map or list with one line per item. `is_begun`: the first line is already indented.
    fn write_block(
        &mut self,
        node: &YamlSourceNode<'_>,
        depth: usize,
        is_begun: bool,
    ) -> Result<(), UnsupportedLayout> {
        match &node.kind {
            YamlSourceKind::Map { entries, .. } => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.write_comments_above(key.start, key.start, depth, index > 0, is_begun && index == 0);
                    let key_text = self.render_line(key)?;
                    self.out.push_str(&key_text);
                    self.out.push(':');
                    self.write_after_key(value, depth, key.end)?;
                }
            }
            YamlSourceKind::List { items, is_flow } => {
                for (index, item) in items.iter().enumerate() {
                    let dash = if *is_flow { None } else { self.text[..item.start as usize].rfind('-') };
                    let start = dash.map_or(item.start, |dash| dash as u32);
                    self.write_comments_above(start, item.start, depth, index > 0, is_begun && index == 0);
                    self.out.push('-');
                    let is_compact = item.properties.is_empty()
                        && item.is_collection()
                        && !self.fits_on_line(item, 2 * depth + 2);
                    if is_compact {
                        self.out.push(' ');
                        self.write_block(item, depth + 1, true)?;
                    } else {
                        self.write_after_key(item, depth, start + 1)?;
                    }
                }
            }
            YamlSourceKind::Scalar { .. } | YamlSourceKind::Alias => {}
        }
        Ok(())
    }

    /// Writes the comments above an item, and its indentation.
    fn write_comments_above(
        &mut self,
        start: u32,
        content: u32,
        depth: usize,
        may_be_apart: bool,
        is_begun: bool,
    ) {
        let may_be_apart = may_be_apart && !std::mem::take(&mut self.ends_with_blanks);
        if self.comments.has_blank_line_above(start) && may_be_apart {
            self.out.push('\n');
        }
        let above = self.comments.take_above(content);
        if is_begun && !above.is_empty() {
            // The `-` of this line is already written: the comments go on the line above it.
            let line = self.out.rfind('\n').map_or(0, |at| at + 1);
            let begun = self.out.split_off(line);
            self.write_comment_lines(&above, begun.len() / 2 - 1);
            self.out.push_str(&begun);
        } else {
            self.write_comment_lines(&above, depth);
        }
        if !is_begun {
            self.write_margin(depth);
        }
    }

    /// Writes the value after a `key:` or `-` that ends at `end`, up to the end of its last line.
    fn write_after_key(
        &mut self,
        node: &YamlSourceNode<'_>,
        depth: usize,
        end: u32,
    ) -> Result<(), UnsupportedLayout> {
        if !node.properties.is_empty() {
            self.out.push(' ');
            self.out.push_str(&node.properties);
        }
        let used = self.out.len() - self.out.rfind('\n').map_or(0, |at| at + 1);
        match &node.kind {
            YamlSourceKind::Scalar { style: YamlScalarStyle::Block, .. } => {
                return self.write_block_scalar(node, depth);
            }
            YamlSourceKind::Map { .. } | YamlSourceKind::List { .. } if !self.fits_on_line(node, used) => {
                let end = end.max(node.properties_end);
                self.write_trailing_comment(end);
                self.out.push('\n');
                return self.write_block(node, depth + 1, false);
            }
            _ => {}
        }
        let line = self.render_content(node)?;
        if !line.is_empty() {
            self.out.push(' ');
            self.out.push_str(&line);
        }
        self.write_trailing_comment(node.end.max(end));
        self.out.push('\n');
        Ok(())
    }

    fn write_trailing_comment(&mut self, end: u32) {
        if let Some(comment) = self.comments.take_trailing(end) {
            self.out.push(' ');
            self.out.push_str(&comment);
        }
    }

    /// Writes a block text (`|` or `>`), indented as a whole.
    fn write_block_scalar(
        &mut self,
        node: &YamlSourceNode<'_>,
        depth: usize,
    ) -> Result<(), UnsupportedLayout> {
        let start = node.content_start();
        let source = &self.text[start..node.end as usize];
        let (header, body) = source.split_once('\n').unwrap_or((source, ""));
        let (indicator, comment) = match header.split_once(" #") {
            Some((indicator, _)) => (indicator.trim_end(), true),
            None => (header.trim_end(), false),
        };
        let unusual = |why| {
            Err(UnsupportedLayout {
                reason: why,
                span: Some(SourceSpan { start: node.start, end: node.start }),
            })
        };
        if indicator.contains(|c: char| c.is_ascii_digit()) {
            return unusual("a text has an explicit indentation, which the formatter would change");
        }
        self.out.push(' ');
        self.out.push_str(indicator);
        if comment {
            self.write_trailing_comment((start + indicator.len()) as u32);
        }
        self.out.push('\n');
        let indent = body
            .lines()
            .find(|line| !line.trim_matches(BLANKS).is_empty())
            .map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
        self.ends_with_blanks = indicator.ends_with('+');
        // The indentation of the next element is not a line of the text.
        let body = Some(body.trim_end_matches(' ')).filter(|body| body.ends_with('\n')).unwrap_or(body);
        let mut lines: Vec<&str> = body.lines().collect();
        let is_empty = |line: &mut &str| line.trim_matches(BLANKS).is_empty() && line.len() <= indent;
        while !self.ends_with_blanks && lines.pop_if(is_empty).is_some() {}
        for line in lines {
            if line.len() > indent {
                self.write_margin(depth + 1);
                self.out.push_str(line[indent..].trim_end_matches('\r'));
            }
            self.out.push('\n');
        }
        Ok(())
    }

    /// Whether a node stays on one line.
    fn fits_on_line(&mut self, node: &YamlSourceNode<'_>, used: usize) -> bool {
        let (is_flow, is_empty) = match &node.kind {
            YamlSourceKind::Map { entries, is_flow } => (*is_flow, entries.is_empty()),
            YamlSourceKind::List { items, is_flow } => (*is_flow, items.is_empty()),
            YamlSourceKind::Scalar { .. } | YamlSourceKind::Alias => return true,
        };
        is_flow
            && !self.comments.has_within(node.start, node.end)
            && (is_empty || self.render_line(node).is_ok_and(|line| used + 1 + line.len() <= MAX_WIDTH))
    }

    /// Writes a node on one line with its properties.
    fn render_line(&self, node: &YamlSourceNode<'_>) -> Result<String, UnsupportedLayout> {
        let content = self.render_content(node)?;
        Ok(match (node.properties.is_empty(), content.is_empty()) {
            (true, _) => content,
            (false, true) => node.properties.clone(),
            (false, false) => format!("{} {content}", node.properties),
        })
    }

    fn render_content(&self, node: &YamlSourceNode<'_>) -> Result<String, UnsupportedLayout> {
        let source = &self.text[node.content_start()..node.end as usize];
        Ok(match &node.kind {
            YamlSourceKind::Scalar { style: YamlScalarStyle::Block, .. } => {
                let at = Some(SourceSpan { start: node.start, end: node.start });
                return Err(UnsupportedLayout {
                    reason: "a text of several lines where a single line is required",
                    span: at,
                });
            }
            YamlSourceKind::Scalar { text, style } if source.contains('\n') => match style {
                YamlScalarStyle::Plain if !text.contains('\n') => text.clone().into_owned(),
                _ => crate::writer::yaml_quoted(text),
            },
            YamlSourceKind::Scalar { .. } | YamlSourceKind::Alias => source.trim_matches(BLANKS).to_owned(),
            YamlSourceKind::List { items, .. } => {
                let items: Vec<String> =
                    items.iter().map(|item| self.render_line(item)).collect::<Result<_, _>>()?;
                format!("[{}]", items.join(", "))
            }
            YamlSourceKind::Map { entries, .. } => {
                let entry = |(key, value): &(YamlSourceNode<'_>, YamlSourceNode<'_>)| {
                    let value = self.render_line(value)?;
                    let space = if value.is_empty() { "" } else { " " };
                    Ok(format!("{}:{space}{value}", self.render_line(key)?))
                };
                let entries: Vec<String> = entries.iter().map(entry).collect::<Result<_, _>>()?;
                format!("{{{}}}", entries.join(", "))
            }
        })
    }
}
