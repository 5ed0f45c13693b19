//! The grammar of KDL: nodes with values, properties and children. Accepts version 2 and the different forms of
//! version 1 (`true` for `#true`, `r"…"` for `#"…"#`).

use super::lexer::{KdlLexer, is_newline};
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::StopReading;
use crate::source::SourceSpan;
use crate::tree::{DocumentTree, MAX_DEPTH, too_deep_error};
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) struct KdlNode<'s> {
    pub(crate) name: Cow<'s, str>,
    pub(crate) name_span: SourceSpan,
    /// The annotation in `(annotation)name`.
    pub(crate) annotation: Option<Cow<'s, str>>,
    pub(crate) arguments: Vec<KdlArgument<'s>>,
    /// `None`: no braces.
    pub(crate) children: Option<Vec<Self>>,
    /// The opening brace of its children.
    pub(crate) open: Option<SourceSpan>,
    /// The end: the closing brace, or its last word.
    pub(crate) end: SourceSpan,
    /// From its annotation to its end.
    pub(crate) whole: SourceSpan,
}

#[derive(Debug)]
pub(crate) enum KdlArgument<'s> {
    Value(DocumentTree<'s>),
    Property(Cow<'s, str>, SourceSpan, DocumentTree<'s>),
}

impl<'s> KdlArgument<'s> {
    pub(super) fn into_value(self) -> Option<DocumentTree<'s>> {
        match self {
            Self::Value(value) => Some(value),
            Self::Property(..) => None,
        }
    }
}

impl<'s> KdlNode<'s> {
    /// Creates a node `name value`, which is equivalent to a property.
    pub(super) fn from_value(name: Cow<'s, str>, name_span: SourceSpan, value: DocumentTree<'s>) -> Self {
        let end = value.span;
        let arguments = vec![KdlArgument::Value(value)];
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

    /// Whether it has no properties.
    pub(super) fn has_only_values(&self) -> bool {
        self.arguments.iter().all(|argument| matches!(argument, KdlArgument::Value(_)))
    }
}

/// Parses the nodes of a document.
pub(super) fn read_document<'s>(
    text: &'s str,
    sink: &mut DiagnosticSink,
) -> Result<Vec<KdlNode<'s>>, StopReading> {
    KdlReader { lexer: KdlLexer::new(text), sink }.read_nodes(None, 0)
}

/// Parses the nodes of a document and the locations of its comments, if possible. Nodes disabled by `/-` count
/// as comments.
pub(crate) fn read_nodes(text: &str) -> Option<(Vec<KdlNode<'_>>, Vec<SourceSpan>)> {
    let mut sink = DiagnosticSink::default();
    let mut reader = KdlReader { lexer: KdlLexer::new(text), sink: &mut sink };
    let nodes = reader.read_nodes(None, 0).ok()?;
    Some((nodes, reader.lexer.comments))
}

struct KdlReader<'s, 'k> {
    lexer: KdlLexer<'s>,
    sink: &'k mut DiagnosticSink,
}

impl<'s> KdlReader<'s, '_> {
    fn fail<T>(&mut self, message: impl Into<String>, span: SourceSpan) -> Result<T, StopReading> {
        self.sink.push(SpecDiagnostic::new("syntax", message).with_span(span));
        Err(StopReading)
    }

    /// Parses nodes up to the end, or up to the brace that closes the one at `open`.
    fn read_nodes(
        &mut self,
        open: Option<SourceSpan>,
        depth: usize,
    ) -> Result<Vec<KdlNode<'s>>, StopReading> {
        if let Some(open) = open.filter(|_| depth >= MAX_DEPTH) {
            self.sink.push(too_deep_error(open));
            return Err(StopReading);
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
                (Some(';'), _) => self.lexer.position += 1,
                (Some('/'), _) if self.lexer.rest().starts_with("/-") => self.skip_dropped(|reader| {
                    reader.lexer.skip_lines(reader.sink)?;
                    reader.read_node(depth).map(|_| ())
                })?,
                (Some(_), _) => nodes.push(self.read_node(depth)?),
            }
        }
    }

    /// Skips an element disabled by `/-`, and records it as one comment.
    fn skip_dropped(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<(), StopReading>,
    ) -> Result<(), StopReading> {
        let (start, comments) = (self.lexer.position, self.lexer.comments.len());
        self.lexer.position += 2;
        read(self)?;
        self.lexer.comments.truncate(comments);
        self.lexer.comments.push(SourceSpan::new(start, self.lexer.position));
        Ok(())
    }

    fn read_node(&mut self, depth: usize) -> Result<KdlNode<'s>, StopReading> {
        let whole = self.lexer.position;
        let annotation = self.read_annotation()?;
        let start = self.lexer.position;
        let Some(name) = self.lexer.read_string(self.sink)? else {
            let span = self.lexer.next_span();
            return self.fail("expected a node name", span);
        };
        let name_span = SourceSpan::new(start, self.lexer.position);
        let mut node = KdlNode {
            name,
            name_span,
            annotation,
            arguments: Vec::new(),
            children: None,
            open: None,
            end: name_span,
            whole: name_span,
        };
        while self.read_part(&mut node, depth)? {}
        node.whole = SourceSpan::new(whole, node.end.end as usize);
        Ok(node)
    }

    /// Parses the next value, property or block of children. Returns `false` at the end of the node.
    fn read_part(&mut self, node: &mut KdlNode<'s>, depth: usize) -> Result<bool, StopReading> {
        let has_space = self.lexer.skip_space(self.sink)?;
        if self.lexer.rest().starts_with("/-") {
            self.skip_dropped(|reader| reader.skip_dropped_part(depth))?;
            return Ok(true);
        }
        match self.lexer.peek() {
            None | Some(';' | '}') => return Ok(false),
            Some(c) if is_newline(c) => return Ok(false),
            Some('/') if self.lexer.rest().starts_with("//") => return Ok(false),
            Some('{') => {
                let open = self.lexer.next_span();
                if node.children.is_some() {
                    return self.fail("a node may have only one block of children", open);
                }
                node.children = Some(self.read_children(depth)?);
                node.open = Some(open);
                node.end = SourceSpan::new(self.lexer.position - 1, self.lexer.position);
            }
            Some(_) if node.children.is_some() => {
                let span = self.lexer.next_span();
                return self.fail("expected the end of the node after its children", span);
            }
            Some(c) if !has_space => {
                let span = self.lexer.next_span();
                return self.fail(format!("expected a space before `{}`", c.escape_default()), span);
            }
            Some(_) => {
                let start = self.lexer.position;
                node.arguments.push(self.read_argument()?);
                node.end = SourceSpan::new(start, self.lexer.position);
            }
        }
        Ok(true)
    }

    /// Parses the children in braces that begin here.
    fn read_children(&mut self, depth: usize) -> Result<Vec<KdlNode<'s>>, StopReading> {
        let open = self.lexer.next_span();
        self.lexer.position += 1;
        let children = self.read_nodes(Some(open), depth + 1)?;
        self.lexer.position += 1;
        Ok(children)
    }

    fn skip_dropped_part(&mut self, depth: usize) -> Result<(), StopReading> {
        self.lexer.skip_lines(self.sink)?;
        if self.lexer.peek() == Some('{') {
            return self.read_children(depth).map(|_| ());
        }
        self.read_argument().map(|_| ())
    }

    fn read_argument(&mut self) -> Result<KdlArgument<'s>, StopReading> {
        self.read_annotation()?;
        let start = self.lexer.position;
        if let Some(literal) = self.lexer.read_literal(self.sink)? {
            let span = SourceSpan::new(start, self.lexer.position);
            return Ok(KdlArgument::Value(DocumentTree::scalar(literal, true, span)));
        }
        let Some(text) = self.lexer.read_string(self.sink)? else {
            let span = self.lexer.next_span();
            return self.fail("expected a value", span);
        };
        let span = SourceSpan::new(start, self.lexer.position);
        let (behind, comments) = (self.lexer.position, self.lexer.comments.len());
        self.lexer.skip_space(self.sink)?;
        if !self.lexer.take_if("=") {
            self.lexer.position = behind;
            self.lexer.comments.truncate(comments);
            return Ok(KdlArgument::Value(DocumentTree::scalar(text, false, span)));
        }
        self.lexer.skip_space(self.sink)?;
        Ok(KdlArgument::Property(text, span, self.read_property_value()?))
    }

    fn read_property_value(&mut self) -> Result<DocumentTree<'s>, StopReading> {
        self.read_annotation()?;
        let start = self.lexer.position;
        let (text, plain) = match self.lexer.read_literal(self.sink)? {
            Some(literal) => (Some(literal), true),
            None => (self.lexer.read_string(self.sink)?, false),
        };
        let Some(text) = text else {
            let span = self.lexer.next_span();
            return self.fail("expected a value after `=`", span);
        };
        Ok(DocumentTree::scalar(text, plain, SourceSpan::new(start, self.lexer.position)))
    }

    fn read_annotation(&mut self) -> Result<Option<Cow<'s, str>>, StopReading> {
        let open = self.lexer.next_span();
        if !self.lexer.take_if("(") {
            return Ok(None);
        }
        self.lexer.skip_space(self.sink)?;
        let name = self.lexer.read_string(self.sink)?;
        self.lexer.skip_space(self.sink)?;
        if name.is_none() || !self.lexer.take_if(")") {
            return self.fail("write a type as `(name)`", open);
        }
        self.lexer.skip_space(self.sink)?;
        Ok(name)
    }
}
