//! Formats KDL: one node per line, children indented by four blanks.

use super::UnsupportedLayout;
use super::layout_blocks::{CommentCursor, LayoutBlock, LayoutItem};
use crate::kdl::{KdlArgument, KdlNode, read_nodes};
use crate::source::SourceSpan;

pub(super) fn render_layout(text: &str) -> Result<String, UnsupportedLayout> {
    let Some((nodes, comments)) = read_nodes(text) else {
        return Err(UnsupportedLayout { reason: "the file cannot be parsed", span: None });
    };
    let mut layout = KdlLayout { text, comments: CommentCursor::new(text, comments) };
    let items = layout.layout_nodes(&nodes)?;
    let below = layout.comments.take_rest();
    let mut out = String::new();
    LayoutBlock { items, comments_below: below, closing_line: String::new() }.write_to("    ", 0, &mut out);
    Ok(out)
}

struct KdlLayout<'s> {
    text: &'s str,
    comments: CommentCursor<'s>,
}

impl KdlLayout<'_> {
    fn source(&self, span: SourceSpan) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    fn layout_nodes(&mut self, nodes: &[KdlNode<'_>]) -> Result<Vec<LayoutItem>, UnsupportedLayout> {
        nodes.iter().map(|node| self.layout_node(node)).collect()
    }

    fn layout_node(&mut self, node: &KdlNode<'_>) -> Result<LayoutItem, UnsupportedLayout> {
        let start = node.whole.start;
        let is_apart = self.comments.has_blank_line_above(start);
        let above = self.comments.take_above(start);
        let mut text = String::new();
        if let Some(annotation) = &node.annotation {
            text = format!("({})", crate::writer::render_key(annotation, crate::SpecFormat::Kdl));
        }
        text.push_str(self.source(node.name_span));
        for argument in &node.arguments {
            text.push(' ');
            let value = match argument {
                KdlArgument::Value(value) => value,
                KdlArgument::Property(_, key, value) => {
                    text.extend([self.source(*key), "="]);
                    value
                }
            };
            if self.text[..value.span.start as usize].trim_end().ends_with(')') {
                let why = "a value has a type annotation, which the formatter does not support";
                return Err(UnsupportedLayout { reason: why, span: Some(value.span) });
            }
            text.push_str(self.source(value.span));
        }
        let head_end = node.open.map_or(node.end.end, |open| open.start);
        if self.comments.has_within(start, head_end) {
            let why = "a comment is inside a node, which the formatter does not support";
            return Err(UnsupportedLayout { reason: why, span: Some(node.name_span) });
        }
        let mut item = LayoutItem {
            has_blank_line_above: is_apart,
            comments_above: above,
            text,
            ..LayoutItem::default()
        };
        match (&node.children, node.open) {
            (Some(children), Some(open))
                if !children.is_empty() || self.comments.has_within(open.end, node.end.start) =>
            {
                item.text.push_str(" {");
                item.trailing_comment = self.comments.take_trailing(open.end);
                let items = self.layout_nodes(children)?;
                let below = self.comments.take_below(node.end.start);
                item.block = Some(LayoutBlock { items, comments_below: below, closing_line: "}".to_owned() });
            }
            (children, _) => {
                if children.is_some() {
                    item.text.push_str(" {}");
                }
                item.trailing_comment = self.comments.take_trailing(node.end.end);
            }
        }
        Ok(item)
    }
}
