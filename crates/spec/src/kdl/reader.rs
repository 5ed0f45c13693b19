//! The grammar of KDL: nodes with values, properties and children. Reads version 2 and what version 1 wrote otherwise
//! (`true` for `#true`, `r"…"` for `#"…"#`).

use super::lexer::{Lexer, is_newline};
use crate::diagnostic::{Diagnostic, Sink};
use crate::event::Stop;
use crate::source::Span;
use crate::tree::{MAX_DEPTH, Tree, too_deep};
use std::borrow::Cow;

#[derive(Debug)]
pub(super) struct Node<'s> {
    pub(super) name: Cow<'s, str>,
    pub(super) name_span: Span,
    /// `(this)name`.
    pub(super) annotation: Option<Cow<'s, str>>,
    pub(super) arguments: Vec<Argument<'s>>,
    /// `None`: no braces.
    pub(super) children: Option<Vec<Self>>,
    /// What ends it: the closing brace, or its last word.
    pub(super) end: Span,
}

#[derive(Debug)]
pub(super) enum Argument<'s> {
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
        Self { name, name_span, annotation: None, arguments, children: None, end }
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

/// Where the comments of a document stand, if it can be read. What `/-` takes away is none of them.
pub(crate) fn comments(text: &str) -> Option<Vec<Span>> {
    let mut sink = Sink::default();
    let mut reader = Reader { lexer: Lexer::new(text), sink: &mut sink };
    reader.nodes(None, 0).ok()?;
    Some(reader.lexer.comments)
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
                (Some('/'), _) if self.lexer.eat("/-") => {
                    self.lexer.skip_lines(self.sink)?;
                    self.node(depth)?;
                }
                (Some(_), _) => nodes.push(self.node(depth)?),
            }
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node<'s>, Stop> {
        let annotation = self.annotation()?;
        let start = self.lexer.at;
        let Some(name) = self.lexer.string(self.sink)? else {
            let span = self.lexer.next_span();
            return self.fail("expected the name of a node", span);
        };
        let name_span = Span::new(start, self.lexer.at);
        let mut node =
            Node { name, name_span, annotation, arguments: Vec::new(), children: None, end: name_span };
        while self.part(&mut node, depth)? {}
        Ok(node)
    }

    /// The next value, property or block of children. False: the node is at its end.
    fn part(&mut self, node: &mut Node<'s>, depth: usize) -> Result<bool, Stop> {
        let has_space = self.lexer.skip_space(self.sink)?;
        let is_dropped = self.lexer.eat("/-");
        if is_dropped {
            self.lexer.skip_lines(self.sink)?;
        }
        let has_space = has_space || is_dropped;
        match self.lexer.peek() {
            None | Some(';' | '}') => return Ok(false),
            Some(c) if is_newline(c) => return Ok(false),
            Some('/') if self.lexer.rest().starts_with("//") => return Ok(false),
            Some('{') => {
                let open = self.lexer.next_span();
                self.lexer.at += 1;
                let children = self.nodes(Some(open), depth + 1)?;
                node.end = if is_dropped { node.end } else { self.lexer.next_span() };
                self.lexer.at += 1;
                match node.children {
                    _ if is_dropped => {}
                    None => node.children = Some(children),
                    Some(_) => return self.fail("a node has only one block of children", open),
                }
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
                let argument = self.argument()?;
                if !is_dropped {
                    node.end = Span::new(self.lexer.at - 1, self.lexer.at);
                    node.arguments.push(argument);
                }
            }
        }
        Ok(true)
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
        let behind = self.lexer.at;
        self.lexer.skip_space(self.sink)?;
        if !self.lexer.eat("=") {
            self.lexer.at = behind;
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
