//! The layout of YAML: blocks two blanks in, lists and maps in brackets where they were in brackets and fit on a line.
//!
//! Works on the parser's own events, so anchors, aliases, tags and merge keys stay what they are.

mod read;

use super::Unusual;
use super::outline::{BLANKS, Comments, WIDTH};
use crate::source::Span;
use read::{Kind, Node, Style};

pub(super) use read::comments;

pub(super) fn lay_out(text: &str) -> Result<String, Unusual> {
    let root = read::document(text)?;
    let mut layout = Layout {
        text,
        comments: Comments::new(text, comments(text)),
        out: String::new(),
        ends_with_blanks: false,
    };
    match &root.kind {
        // Nothing that anybody wants laid out, and the parser does not always say rightly where such a text begins.
        Kind::Scalar { text, style } if !text.is_empty() || matches!(style, Style::Block) => {
            return Err(Unusual { why: "the file is one text, and no map", at: None });
        }
        Kind::Map { .. } | Kind::List { .. } if root.properties.is_empty() && !layout.fits(&root, 0) => {
            layout.block(&root, 0, false)?;
        }
        _ => {
            let above = layout.comments.above(root.start);
            layout.lines(&above, 0);
            layout.behind(&root, 0, root.start)?;
        }
    }
    let below = layout.comments.rest();
    layout.lines(&below, 0);
    Ok(layout.out.trim_start_matches(' ').to_owned())
}

struct Layout<'s> {
    text: &'s str,
    comments: Comments<'s>,
    out: String,
    /// What was written last is a text whose blank lines at the end are part of it.
    ends_with_blanks: bool,
}

impl Layout<'_> {
    fn margin(&mut self, depth: usize) {
        self.out.push_str(&"  ".repeat(depth));
    }

    fn lines(&mut self, lines: &[String], depth: usize) {
        for line in lines {
            if !line.is_empty() {
                self.margin(depth);
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
    }

    /// A map or list with a line for each of its parts. `is_begun`: the first line has its margin already.
    fn block(&mut self, node: &Node<'_>, depth: usize, is_begun: bool) -> Result<(), Unusual> {
        match &node.kind {
            Kind::Map { entries, .. } => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.above(key.start, key.start, depth, index > 0, is_begun && index == 0);
                    let key_text = self.line(key)?;
                    self.out.push_str(&key_text);
                    self.out.push(':');
                    self.behind(value, depth, key.end)?;
                }
            }
            Kind::List { items, is_flow } => {
                for (index, item) in items.iter().enumerate() {
                    let dash = if *is_flow { None } else { self.text[..item.start as usize].rfind('-') };
                    let start = dash.map_or(item.start, |dash| dash as u32);
                    self.above(start, item.start, depth, index > 0, is_begun && index == 0);
                    self.out.push('-');
                    let is_compact =
                        item.properties.is_empty() && item.is_collection() && !self.fits(item, 2 * depth + 2);
                    if is_compact {
                        self.out.push(' ');
                        self.block(item, depth + 1, true)?;
                    } else {
                        self.behind(item, depth, start + 1)?;
                    }
                }
            }
            Kind::Scalar { .. } | Kind::Alias => {}
        }
        Ok(())
    }

    /// Comments above a part, and its margin.
    fn above(&mut self, start: u32, content: u32, depth: usize, may_be_apart: bool, is_begun: bool) {
        let may_be_apart = may_be_apart && !std::mem::take(&mut self.ends_with_blanks);
        if self.comments.is_apart(start) && may_be_apart {
            self.out.push('\n');
        }
        let above = self.comments.above(content);
        if is_begun && !above.is_empty() {
            // The `-` of this line has been written: the comments go on the line above it.
            let line = self.out.rfind('\n').map_or(0, |at| at + 1);
            let begun = self.out.split_off(line);
            self.lines(&above, begun.len() / 2 - 1);
            self.out.push_str(&begun);
        } else {
            self.lines(&above, depth);
        }
        if !is_begun {
            self.margin(depth);
        }
    }

    /// What follows a `key:` or `-` that ends at `end`, to the end of its last line.
    fn behind(&mut self, node: &Node<'_>, depth: usize, end: u32) -> Result<(), Unusual> {
        if !node.properties.is_empty() {
            self.out.push(' ');
            self.out.push_str(&node.properties);
        }
        let used = self.out.len() - self.out.rfind('\n').map_or(0, |at| at + 1);
        match &node.kind {
            Kind::Scalar { style: Style::Block, .. } => return self.block_scalar(node, depth),
            Kind::Map { .. } | Kind::List { .. } if !self.fits(node, used) => {
                let end = end.max(node.properties_end);
                self.beside(end);
                self.out.push('\n');
                return self.block(node, depth + 1, false);
            }
            _ => {}
        }
        let line = self.content(node)?;
        if !line.is_empty() {
            self.out.push(' ');
            self.out.push_str(&line);
        }
        self.beside(node.end.max(end));
        self.out.push('\n');
        Ok(())
    }

    fn beside(&mut self, end: u32) {
        if let Some(comment) = self.comments.beside(end) {
            self.out.push(' ');
            self.out.push_str(&comment);
        }
    }

    /// A text of several lines behind `|` or `>`, moved as a whole.
    fn block_scalar(&mut self, node: &Node<'_>, depth: usize) -> Result<(), Unusual> {
        let start = node.start_of_content();
        let source = &self.text[start..node.end as usize];
        let (header, body) = source.split_once('\n').unwrap_or((source, ""));
        let (indicator, comment) = match header.split_once(" #") {
            Some((indicator, _)) => (indicator.trim_end(), true),
            None => (header.trim_end(), false),
        };
        let unusual = |why| Err(Unusual { why, at: Some(Span { start: node.start, end: node.start }) });
        if indicator.contains(|c: char| c.is_ascii_digit()) {
            return unusual("a text says how far it is indented, which the layout would change");
        }
        self.out.push(' ');
        self.out.push_str(indicator);
        if comment {
            self.beside((start + indicator.len()) as u32);
        }
        self.out.push('\n');
        let indent = body
            .lines()
            .find(|line| !line.trim_matches(BLANKS).is_empty())
            .map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
        self.ends_with_blanks = indicator.ends_with('+');
        // The margin of what comes next is no line of the text.
        let body = Some(body.trim_end_matches(' ')).filter(|body| body.ends_with('\n')).unwrap_or(body);
        let mut lines: Vec<&str> = body.lines().collect();
        let is_empty = |line: &mut &str| line.trim_matches(BLANKS).is_empty() && line.len() <= indent;
        while !self.ends_with_blanks && lines.pop_if(is_empty).is_some() {}
        for line in lines {
            if line.len() > indent {
                self.margin(depth + 1);
                self.out.push_str(line[indent..].trim_end_matches('\r'));
            }
            self.out.push('\n');
        }
        Ok(())
    }

    /// Whether a node stays on one line.
    fn fits(&mut self, node: &Node<'_>, used: usize) -> bool {
        let (is_flow, is_empty) = match &node.kind {
            Kind::Map { entries, is_flow } => (*is_flow, entries.is_empty()),
            Kind::List { items, is_flow } => (*is_flow, items.is_empty()),
            Kind::Scalar { .. } | Kind::Alias => return true,
        };
        is_flow
            && !self.comments.has_within(node.start, node.end)
            && (is_empty || self.line(node).is_ok_and(|line| used + 1 + line.len() <= WIDTH))
    }

    /// A node on one line with its properties.
    fn line(&self, node: &Node<'_>) -> Result<String, Unusual> {
        let content = self.content(node)?;
        Ok(match (node.properties.is_empty(), content.is_empty()) {
            (true, _) => content,
            (false, true) => node.properties.clone(),
            (false, false) => format!("{} {content}", node.properties),
        })
    }

    fn content(&self, node: &Node<'_>) -> Result<String, Unusual> {
        let source = &self.text[node.start_of_content()..node.end as usize];
        Ok(match &node.kind {
            Kind::Scalar { style: Style::Block, .. } => {
                let at = Some(Span { start: node.start, end: node.start });
                return Err(Unusual { why: "a text of several lines where one line is wanted", at });
            }
            Kind::Scalar { text, style } if source.contains('\n') => match style {
                Style::Plain if !text.contains('\n') => text.clone().into_owned(),
                _ => crate::write::yaml_quoted(text),
            },
            Kind::Scalar { .. } | Kind::Alias => source.trim_matches(BLANKS).to_owned(),
            Kind::List { items, .. } => {
                let items: Vec<String> =
                    items.iter().map(|item| self.line(item)).collect::<Result<_, _>>()?;
                format!("[{}]", items.join(", "))
            }
            Kind::Map { entries, .. } => {
                let entry = |(key, value): &(Node<'_>, Node<'_>)| {
                    let value = self.line(value)?;
                    let space = if value.is_empty() { "" } else { " " };
                    Ok(format!("{}:{space}{value}", self.line(key)?))
                };
                let entries: Vec<String> = entries.iter().map(entry).collect::<Result<_, _>>()?;
                format!("{{{}}}", entries.join(", "))
            }
        })
    }
}
