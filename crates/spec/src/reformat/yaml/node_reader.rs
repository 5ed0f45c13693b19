//! A YAML document in its source form, including styles, anchors, tags and comments.

use super::UnsupportedLayout;
use crate::reformat::layout_blocks::BLANKS;
use crate::source::SourceSpan;
use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};
use std::borrow::Cow;

pub(super) struct YamlSourceNode<'s> {
    pub(super) kind: YamlSourceKind<'s>,
    /// `&anchor !tag`, if present.
    pub(super) properties: String,
    /// 0 if there is none.
    pub(super) properties_end: u32,
    /// Including its properties.
    pub(super) start: u32,
    content: u32,
    pub(super) end: u32,
}

pub(super) enum YamlSourceKind<'s> {
    Scalar { text: Cow<'s, str>, style: YamlScalarStyle },
    Alias,
    Map { entries: Vec<(YamlSourceNode<'s>, YamlSourceNode<'s>)>, is_flow: bool },
    List { items: Vec<YamlSourceNode<'s>>, is_flow: bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum YamlScalarStyle {
    Plain,
    Quoted,
    /// `|` or `>`.
    Block,
}

impl YamlSourceNode<'_> {
    pub(super) fn content_start(&self) -> usize {
        self.content as usize
    }

    /// Whether this is a map or list that can have one line per item.
    pub(super) fn is_collection(&self) -> bool {
        match &self.kind {
            YamlSourceKind::Map { entries, .. } => !entries.is_empty(),
            YamlSourceKind::List { items, .. } => !items.is_empty(),
            YamlSourceKind::Scalar { .. } | YamlSourceKind::Alias => false,
        }
    }
}

/// The locations of the comments.
pub(in crate::reformat) fn find_comments(text: &str) -> Vec<SourceSpan> {
    let is_comment = |event: &Event<'_>| matches!(event, Event::Comment(..));
    let events = parse_events(text).filter(|(event, _)| is_comment(event));
    events.map(|(_, span)| span).collect()
}

/// Reads the root of the document.
pub(super) fn parse_document(text: &str) -> Result<YamlSourceNode<'_>, UnsupportedLayout> {
    if text.starts_with('%') || text.contains("\n%YAML") || text.contains("\n%TAG") {
        return Err(UnsupportedLayout {
            reason: "the file has directives, which the formatter does not support",
            span: None,
        });
    }
    let is_content = |event: &Event<'_>| {
        !matches!(
            event,
            Event::Comment(..)
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(..)
                | Event::DocumentEnd
        )
    };
    let events = parse_events(text).filter(|(event, _)| is_content(event)).peekable();
    let mut reader = YamlNodeReader { text, events, last_end: 0 };
    reader.read_node()?.ok_or(UnsupportedLayout { reason: "the file is empty", span: None })
}

fn parse_events(text: &str) -> impl Iterator<Item = (Event<'_>, SourceSpan)> {
    let options = granit_parser::options! { emit_comments: true, emit_anchor_events: true };
    let parser = Parser::new_from_str_with_options(text, options);
    parser.map_while(Result::ok).map(|(event, span)| {
        let range = span.byte_range().unwrap_or_default();
        let tag = span.tag_span().and_then(|tag| tag.byte_range());
        // The parser reports the tag with the node but it precedes it: remembered as the start of the span.
        let start = tag.map_or(range.start, |tag| tag.start.min(range.start));
        let start = if matches!(event, Event::Comment(..)) { range.start } else { start };
        (event, SourceSpan::new(start, range.end))
    })
}

struct YamlNodeReader<'s, I: Iterator<Item = (Event<'s>, SourceSpan)>> {
    text: &'s str,
    events: std::iter::Peekable<I>,
    /// The end of the previous scalar.
    last_end: u32,
}

impl<'s, I: Iterator<Item = (Event<'s>, SourceSpan)>> YamlNodeReader<'s, I> {
    /// Returns the next node; `None` at the end of the enclosing one.
    fn read_node(&mut self) -> Result<Option<YamlSourceNode<'s>>, UnsupportedLayout> {
        let Some((event, span)) = self.events.next() else { return Ok(None) };
        let mut start = span.start;
        let mut properties = String::new();
        let mut content = span.start;
        if let Some((_, anchor)) = self.events.next_if(|(event, _)| matches!(event, Event::Anchor(..))) {
            self.source(anchor).clone_into(&mut properties);
            start = start.min(anchor.start);
            content = content.max(anchor.end);
        }
        let tag = match &event {
            Event::Scalar(.., tag) | Event::SequenceStart(.., tag) | Event::MappingStart(.., tag) => {
                tag.is_some()
            }
            _ => false,
        };
        if tag {
            let why = "a value has a tag, which the formatter does not support";
            return Err(UnsupportedLayout { reason: why, span: Some(span) });
        }
        let properties_end = if properties.is_empty() { 0 } else { content };
        content += self.text[content as usize..span.end.max(content) as usize]
            .find(|c: char| !matches!(c, ' ' | '\t' | '\r' | '\n'))
            .unwrap_or(0) as u32;
        let mut end = span.end;
        let before = self.last_end.max(properties_end);
        if matches!(event, Event::Scalar(..) | Event::Alias(_)) {
            self.last_end = span.end;
        }
        let kind = match event {
            Event::Scalar(text, style, ..) => {
                let style = match style {
                    ScalarStyle::Plain => YamlScalarStyle::Plain,
                    ScalarStyle::Literal | ScalarStyle::Folded => YamlScalarStyle::Block,
                    _ => YamlScalarStyle::Quoted,
                };
                if style == YamlScalarStyle::Block {
                    content = self.find_indicator(before, span.start);
                    start = start.min(content);
                }
                YamlSourceKind::Scalar { text, style }
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => YamlSourceKind::Alias,
            Event::SequenceStart(style, ..) => {
                let mut items = Vec::new();
                while let Some(item) = self.read_node()? {
                    end = item.end;
                    items.push(item);
                }
                let is_flow = style == StructureStyle::Flow;
                if is_flow {
                    end = self.closing_bracket_end(end, ']');
                }
                YamlSourceKind::List { items, is_flow }
            }
            Event::MappingStart(style, ..) => {
                let mut entries = Vec::new();
                while let Some(key) = self.read_node()? {
                    if !matches!(key.kind, YamlSourceKind::Scalar { .. } | YamlSourceKind::Alias) {
                        let why = "a key that is a map or a list";
                        return Err(UnsupportedLayout {
                            reason: why,
                            span: Some(SourceSpan { start: key.start, end: key.start }),
                        });
                    }
                    let Some(value) = self.read_node()? else { break };
                    end = value.end.max(key.end);
                    entries.push((key, value));
                }
                let is_flow = style == StructureStyle::Flow;
                if is_flow {
                    end = self.closing_bracket_end(end, '}');
                }
                YamlSourceKind::Map { entries, is_flow }
            }
            _ => return Ok(None),
        };
        Ok(Some(YamlSourceNode { kind, properties, properties_end, start, content, end }))
    }

    /// Returns the position of the `|` or `>` whose text begins at `start`: in the last non-blank line before
    /// it.
    fn find_indicator(&self, before: u32, start: u32) -> u32 {
        let between = &self.text[before as usize..start.max(before) as usize];
        let line = between.trim_end_matches(BLANKS).rfind('\n').map_or(0, |at| at + 1);
        before + (line + between[line..].find(['|', '>']).unwrap_or(0)) as u32
    }

    fn source(&self, span: SourceSpan) -> &'s str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// The position after the closing bracket.
    fn closing_bracket_end(&self, end: u32, bracket: char) -> u32 {
        let rest = &self.text[end as usize..];
        let mut is_comment = false;
        for (at, c) in rest.char_indices() {
            match c {
                '\n' => is_comment = false,
                '#' if rest[..at].ends_with([' ', '\t', '\n']) => is_comment = true,
                c if c == bracket && !is_comment => return end + at as u32 + 1,
                _ => {}
            }
        }
        end
    }
}
