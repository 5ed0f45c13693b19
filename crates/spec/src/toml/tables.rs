//! The tables of a TOML document during parsing: headers and dotted keys may return to an earlier table.

use crate::event::StopReading;
use crate::source::SourceSpan;
use crate::tree::{DocumentTree, MAX_DEPTH, TreeEntry, TreeValue};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TomlNodeId(u32);

#[derive(Debug)]
pub(super) struct TomlTables<'s> {
    nodes: Vec<TomlNode<'s>>,
    /// Tables and arrays of tables that later lines can extend, which excludes values and inline tables.
    growing: FxHashMap<(TomlNodeId, Cow<'s, str>), TomlNodeId>,
}

#[derive(Debug)]
struct TomlNode<'s> {
    kind: TomlNodeKind<'s>,
    span: SourceSpan,
    close: SourceSpan,
}

#[derive(Debug)]
enum TomlNodeKind<'s> {
    Table { entries: Vec<(Cow<'s, str>, SourceSpan, TomlNodeId)>, begun_by: TableOrigin },
    Array(Vec<TomlNodeId>),
    Leaf(DocumentTree<'s>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableOrigin {
    /// The header of an inner table: its own header may still follow.
    Inner,
    /// Its own header, or braces.
    Itself,
    /// A dotted key.
    DottedKey,
}

type TomlKeyPath<'s> = [(Cow<'s, str>, SourceSpan)];

impl Default for TomlTables<'_> {
    fn default() -> Self {
        let mut tables = Self { nodes: Vec::new(), growing: FxHashMap::default() };
        tables.add_table(SourceSpan::default());
        tables
    }
}

impl<'s> TomlTables<'s> {
    #[expect(clippy::unused_self, reason = "the root is one of its tables")]
    pub(super) fn root(&self) -> TomlNodeId {
        TomlNodeId(0)
    }

    /// Not defined.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    pub(super) fn add_table(&mut self, span: SourceSpan) -> TomlNodeId {
        self.add_node(TomlNodeKind::Table { entries: Vec::new(), begun_by: TableOrigin::Itself }, span)
    }

    pub(super) fn add_array(&mut self, span: SourceSpan) -> TomlNodeId {
        self.add_node(TomlNodeKind::Array(Vec::new()), span)
    }

    pub(super) fn add_leaf(&mut self, leaf: DocumentTree<'s>) -> TomlNodeId {
        let span = leaf.span;
        self.add_node(TomlNodeKind::Leaf(leaf), span)
    }

    fn add_node(&mut self, kind: TomlNodeKind<'s>, span: SourceSpan) -> TomlNodeId {
        self.nodes.push(TomlNode { kind, span, close: span });
        TomlNodeId(self.nodes.len() as u32 - 1)
    }

    pub(super) fn is_array(&self, id: TomlNodeId) -> bool {
        matches!(self.nodes[id.0 as usize].kind, TomlNodeKind::Array(_))
    }

    pub(super) fn close(&mut self, id: TomlNodeId, span: SourceSpan) {
        self.nodes[id.0 as usize].close = span;
    }

    pub(super) fn push_item(&mut self, array: TomlNodeId, item: TomlNodeId) {
        if let TomlNodeKind::Array(items) = &mut self.nodes[array.0 as usize].kind {
            items.push(item);
        }
    }

    /// Inserts a value under a key, which may be dotted.
    pub(super) fn insert(
        &mut self,
        table: TomlNodeId,
        path: &TomlKeyPath<'s>,
        value: TomlNodeId,
    ) -> Result<(), StopReading> {
        let Some(((key, span), outer)) = path.split_last() else { return Ok(()) };
        let table = self.descend_path(table, outer, TableOrigin::DottedKey)?;
        self.push_entry(table, key.clone(), *span, value);
        Ok(())
    }

    /// Returns the table that a header opens.
    pub(super) fn open_header(
        &mut self,
        path: &TomlKeyPath<'s>,
        is_array: bool,
        span: SourceSpan,
    ) -> Result<TomlNodeId, StopReading> {
        let Some(((key, key_span), outer)) = path.split_last() else { return Err(StopReading) };
        let outer = self.descend_path(self.root(), outer, TableOrigin::Inner)?;
        let known = self.growing.get(&(outer, key.clone())).copied();
        if is_array {
            let array = known.filter(|known| self.is_array(*known)).unwrap_or_else(|| {
                let array = self.add_array(span);
                self.push_growing(outer, key.clone(), *key_span, array);
                array
            });
            let table = self.add_table(span);
            self.push_item(array, table);
            return Ok(table);
        }
        if let Some(known) = known
            && let TomlNodeKind::Table { begun_by: begun_by @ TableOrigin::Inner, .. } =
                &mut self.nodes[known.0 as usize].kind
        {
            *begun_by = TableOrigin::Itself;
            return Ok(known);
        }
        // A second header of the same name is kept as a second table.
        let table = self.add_table(span);
        self.push_growing(outer, key.clone(), *key_span, table);
        Ok(table)
    }

    /// Follows a path and creates missing tables.
    fn descend_path(
        &mut self,
        from: TomlNodeId,
        path: &TomlKeyPath<'s>,
        begun_by: TableOrigin,
    ) -> Result<TomlNodeId, StopReading> {
        if path.len() >= MAX_DEPTH {
            return Err(StopReading);
        }
        let mut table = from;
        for (key, span) in path {
            let known = self.growing.get(&(table, key.clone())).copied();
            if let Some(known) = known {
                table = self.last_table(known);
                continue;
            }
            let new = self.add_node(TomlNodeKind::Table { entries: Vec::new(), begun_by }, *span);
            self.push_growing(table, key.clone(), *span, new);
            table = new;
        }
        Ok(table)
    }

    /// Returns the table itself, or the last one of an array of tables.
    fn last_table(&self, id: TomlNodeId) -> TomlNodeId {
        match &self.nodes[id.0 as usize].kind {
            TomlNodeKind::Array(items) => items.last().copied().unwrap_or(id),
            _ => id,
        }
    }

    fn push_growing(&mut self, table: TomlNodeId, key: Cow<'s, str>, span: SourceSpan, value: TomlNodeId) {
        self.growing.insert((table, key.clone()), value);
        self.push_entry(table, key, span, value);
    }

    fn push_entry(&mut self, table: TomlNodeId, key: Cow<'s, str>, span: SourceSpan, value: TomlNodeId) {
        if let TomlNodeKind::Table { entries, .. } = &mut self.nodes[table.0 as usize].kind {
            entries.push((key, span, value));
        }
    }

    /// Returns `Err` with the location that is nested too deeply.
    pub(super) fn into_tree(self) -> Result<DocumentTree<'s>, SourceSpan> {
        let root = self.root();
        let mut nodes: Vec<Option<TomlNode<'s>>> = self.nodes.into_iter().map(Some).collect();
        take_node(root, &mut nodes, 0)
    }
}

/// Removes a node with its content.
fn take_node<'s>(
    id: TomlNodeId,
    nodes: &mut [Option<TomlNode<'s>>],
    depth: usize,
) -> Result<DocumentTree<'s>, SourceSpan> {
    let Some(TomlNode { kind, span, close }) = nodes[id.0 as usize].take() else {
        return Ok(DocumentTree::new(TreeValue::Bad, SourceSpan::default()));
    };
    if depth > MAX_DEPTH {
        return Err(span);
    }
    let value = match kind {
        TomlNodeKind::Leaf(tree) => return Ok(tree),
        TomlNodeKind::Array(items) => {
            let items = items.into_iter().map(|item| take_node(item, nodes, depth + 1));
            TreeValue::List(items.collect::<Result<_, _>>()?)
        }
        TomlNodeKind::Table { entries, .. } => {
            let entry = |(key, key_span, value)| {
                Ok(TreeEntry { key, key_span, value: take_node(value, nodes, depth + 1)? })
            };
            TreeValue::Map(entries.into_iter().map(entry).collect::<Result<_, _>>()?)
        }
    };
    Ok(DocumentTree { value, span, close })
}
