//! The layout of KDL: a node per line, children four blanks in.

use super::Unusual;
use super::outline::{Block, Comments, Item};
use crate::kdl::{Argument, Node, read_nodes};
use crate::source::Span;

pub(super) fn lay_out(text: &str) -> Result<String, Unusual> {
    let Some((nodes, comments)) = read_nodes(text) else {
        return Err(Unusual { why: "the file cannot be read", at: None });
    };
    let mut layout = Layout { text, comments: Comments::new(text, comments) };
    let items = layout.items(&nodes)?;
    let below = layout.comments.rest();
    let mut out = String::new();
    Block { items, below, close: String::new() }.print("    ", 0, &mut out);
    Ok(out)
}

struct Layout<'s> {
    text: &'s str,
    comments: Comments<'s>,
}

impl Layout<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    fn items(&mut self, nodes: &[Node<'_>]) -> Result<Vec<Item>, Unusual> {
        nodes.iter().map(|node| self.item(node)).collect()
    }

    fn item(&mut self, node: &Node<'_>) -> Result<Item, Unusual> {
        let start = node.whole.start;
        let is_apart = self.comments.is_apart(start);
        let above = self.comments.above(start);
        let mut text = String::new();
        if let Some(annotation) = &node.annotation {
            text = format!("({})", crate::write::key(annotation, crate::Format::Kdl));
        }
        text.push_str(self.source(node.name_span));
        for argument in &node.arguments {
            text.push(' ');
            let value = match argument {
                Argument::Value(value) => value,
                Argument::Property(_, key, value) => {
                    text.extend([self.source(*key), "="]);
                    value
                }
            };
            if self.text[..value.span.start as usize].trim_end().ends_with(')') {
                let why = "a value has a type, which the layout has no place for";
                return Err(Unusual { why, at: Some(value.span) });
            }
            text.push_str(self.source(value.span));
        }
        let head_end = node.open.map_or(node.end.end, |open| open.start);
        if self.comments.has_within(start, head_end) {
            let why = "a comment stands within a node, where the layout has no place for it";
            return Err(Unusual { why, at: Some(node.name_span) });
        }
        let mut item = Item { is_apart, above, text, ..Item::default() };
        match (&node.children, node.open) {
            (Some(children), Some(open))
                if !children.is_empty() || self.comments.has_within(open.end, node.end.start) =>
            {
                item.text.push_str(" {");
                item.beside = self.comments.beside(open.end);
                let items = self.items(children)?;
                let below = self.comments.below(node.end.start);
                item.block = Some(Block { items, below, close: "}".to_owned() });
            }
            (children, _) => {
                if children.is_some() {
                    item.text.push_str(" {}");
                }
                item.beside = self.comments.beside(node.end.end);
            }
        }
        Ok(item)
    }
}
