//! The grammar of KDL: nodes with values, properties and children. Reads version 2 and what version 1 wrote otherwise
//! (`true` for `#true`, `r"…"` for `#"…"#`).

use super::lexer::{Lexer, is_newline};
use crate::diagnostic::{Diagnostic, Sink};
use crate::event::Stop;
use crate::source::Span;
use crate::tree::{MAX_DEPTH, Tree, too_deep};
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) struct Node<'s> {
    pub(crate) name: Cow<'s, str>,
    pub(crate) name_span: Span,
    /// `(this)name`.
    pub(crate) annotation: Option<Cow<'s, str>>,
    pub(crate) arguments: Vec<Argument<'s>>,
    /// `None`: no braces.
    pub(crate) children: Option<Vec<Self>>,
    /// The brace that opens its children.
    pub(crate) open: Option<Span>,
    /// What ends it: the closing brace, or its last word.
    pub(crate) end: Span,
    /// From its annotation to its end.
    pub(crate) whole: Span,
}

#[derive(Debug)]
pub(crate) enum Argument<'s> {
    Value(Tree<'s>),
    Property(Cow<'s, str>, Span, Tree<'s>),
}

impl<'s> Argument<'s> {
    pub(super) fn into_value(self) -> Option<Tree<'s>> {
        match self {
            Self::Value(value) => Some(value),
            Self::Property(..) => None,
        }
    }
}

impl<'s> Node<'s> {
    /// A node `name value`, which is what a property says too.
    pub(super) fn of_value(name: Cow<'s, str>, name_span: Span, value: Tree<'s>) -> Self {
        let end = value.span;
        let arguments = vec![Argument::Value(value)];
        Self {
            name,
            name_span,
            annotation: None,
            arguments,
            children: None,
            open: None,
            end,
            whole: name_span,
        }
    }

    /// Has no properties.
    pub(super) fn is_values(&self) -> bool {
        self.arguments.iter().all(|argument| matches!(argument, Argument::Value(_)))
    }
}

/// The nodes of a document.
pub(super) fn read<'s>(text: &'s str, sink: &mut Sink) -> Result<Vec<Node<'s>>, Stop> {
    Reader { lexer: Lexer::new(text), sink }.nodes(None, 0)
}

/// The nodes of a document and where its comments stand, if it can be read. What `/-` takes away is a comment too.
pub(crate) fn read_nodes(text: &str) -> Option<(Vec<Node<'_>>, Vec<Span>)> {
    let mut sink = Sink::default();
    let mut reader = Reader { lexer: Lexer::new(text), sink: &mut sink };
    let nodes = reader.nodes(None, 0).ok()?;
    Some((nodes, reader.lexer.comments))
}

struct Reader<'s, 'k> {
    lexer: Lexer<'s>,
    sink: &'k mut Sink,
}

impl<'s> Reader<'s, '_> {
    fn fail<T>(&mut self, message: impl Into<String>, span: Span) -> Result<T, Stop> {
        self.sink.push(Diagnostic::new("syntax", message).at(span));
        Err(Stop)
    }

    /// Nodes up to the end, or up to the brace that closes the one at `open`.
    fn nodes(&mut self, open: Option<Span>, depth: usize) -> Result<Vec<Node<'s>>, Stop> {
        if let Some(open) = open.filter(|_| depth >= MAX_DEPTH) {
            self.sink.push(too_deep(open));
            return Err(Stop);
        }
        let mut nodes = Vec::new();
        loop {
            self.lexer.skip_lines(self.sink)?;
            match (self.lexer.peek(), open) {
                (None, None) | (Some('}'), Some(_)) => return Ok(nodes),
                (None, Some(open)) => return self.fail("`{` is never closed", open),
                (Some('}'), None) => {
                    let span = self.lexer.next_span();
                    return self.fail("a closing brace without an opening one", span);
                }
                (Some(';'), _) => self.lexer.at += 1,
                (Some('/'), _) if self.lexer.rest().starts_with("/-") => self.dropped(|reader| {
                    reader.lexer.skip_lines(reader.sink)?;
                    reader.node(depth).map(|_| ())
                })?,
                (Some(_), _) => nodes.push(self.node(depth)?),
            }
        }
    }

    /// Reads past something that begins with `/-`, and notes all of it as one comment.
    fn dropped(&mut self, read: impl FnOnce(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        let (start, comments) = (self.lexer.at, self.lexer.comments.len());
        self.lexer.at += 2;
        read(self)?;
        self.lexer.comments.truncate(comments);
        self.lexer.comments.push(Span::new(start, self.lexer.at));
        Ok(())
    }

    fn node(&mut self, depth: usize) -> Result<Node<'s>, Stop> {
        let whole = self.lexer.at;
        let annotation = self.annotation()?;
        let start = self.lexer.at;
        let Some(name) = self.lexer.string(self.sink)? else {
            let span = self.lexer.next_span();
            return self.fail("expected the name of a node", span);
        };
        let name_span = Span::new(start, self.lexer.at);
        let mut node = Node {
            name,
            name_span,
            annotation,
            arguments: Vec::new(),
            children: None,
            open: None,
            end: name_span,
            whole: name_span,
        };
        while self.part(&mut node, depth)? {}
        node.whole = Span::new(whole, node.end.end as usize);
        Ok(node)
    }

    /// The next value, property or block of children. False: the node is at its end.
    fn part(&mut self, node: &mut Node<'s>, depth: usize) -> Result<bool, Stop> {
        let has_space = self.lexer.skip_space(self.sink)?;
        if self.lexer.rest().starts_with("/-") {
            self.dropped(|reader| reader.dropped_part(depth))?;
            return Ok(true);
        }
        match self.lexer.peek() {
            None | Some(';' | '}') => return Ok(false),
            Some(c) if is_newline(c) => return Ok(false),
            Some('/') if self.lexer.rest().starts_with("//") => return Ok(false),
            Some('{') => {
                let open = self.lexer.next_span();
                if node.children.is_some() {
                    return self.fail("a node has only one block of children", open);
                }
                node.children = Some(self.children(depth)?);
                node.open = Some(open);
                node.end = Span::new(self.lexer.at - 1, self.lexer.at);
            }
            Some(_) if node.children.is_some() => {
                let span = self.lexer.next_span();
                return self.fail("expected the end of the node behind its children", span);
            }
            Some(c) if !has_space => {
                let span = self.lexer.next_span();
                return self.fail(format!("expected a space before `{}`", c.escape_default()), span);
            }
            Some(_) => {
                let start = self.lexer.at;
                node.arguments.push(self.argument()?);
                node.end = Span::new(start, self.lexer.at);
            }
        }
        Ok(true)
    }

    /// Children in braces, which begin here.
    fn children(&mut self, depth: usize) -> Result<Vec<Node<'s>>, Stop> {
        let open = self.lexer.next_span();
        self.lexer.at += 1;
        let children = self.nodes(Some(open), depth + 1)?;
        self.lexer.at += 1;
        Ok(children)
    }

    fn dropped_part(&mut self, depth: usize) -> Result<(), Stop> {
        self.lexer.skip_lines(self.sink)?;
        if self.lexer.peek() == Some('{') {
            return self.children(depth).map(|_| ());
        }
        self.argument().map(|_| ())
    }

    fn argument(&mut self) -> Result<Argument<'s>, Stop> {
        self.annotation()?;
        let start = self.lexer.at;
        if let Some(literal) = self.lexer.literal(self.sink)? {
            let span = Span::new(start, self.lexer.at);
            return Ok(Argument::Value(Tree::scalar(literal, true, span)));
        }
        let Some(text) = self.lexer.string(self.sink)? else {
            let span = self.lexer.next_span();
            return self.fail("expected a value", span);
        };
        let span = Span::new(start, self.lexer.at);
        let (behind, comments) = (self.lexer.at, self.lexer.comments.len());
        self.lexer.skip_space(self.sink)?;
        if !self.lexer.eat("=") {
            self.lexer.at = behind;
            self.lexer.comments.truncate(comments);
            return Ok(Argument::Value(Tree::scalar(text, false, span)));
        }
        self.lexer.skip_space(self.sink)?;
        Ok(Argument::Property(text, span, self.property_value()?))
    }

    fn property_value(&mut self) -> Result<Tree<'s>, Stop> {
        self.annotation()?;
        let start = self.lexer.at;
        let (text, plain) = match self.lexer.literal(self.sink)? {
            Some(literal) => (Some(literal), true),
            None => (self.lexer.string(self.sink)?, false),
        };
        let Some(text) = text else {
            let span = self.lexer.next_span();
            return self.fail("expected a value behind `=`", span);
        };
        Ok(Tree::scalar(text, plain, Span::new(start, self.lexer.at)))
    }

    fn annotation(&mut self) -> Result<Option<Cow<'s, str>>, Stop> {
        let open = self.lexer.next_span();
        if !self.lexer.eat("(") {
            return Ok(None);
        }
        self.lexer.skip_space(self.sink)?;
        let name = self.lexer.string(self.sink)?;
        self.lexer.skip_space(self.sink)?;
        if name.is_none() || !self.lexer.eat(")") {
            return self.fail("a type is written `(name)`", open);
        }
        self.lexer.skip_space(self.sink)?;
        Ok(name)
    }
}
