//! The tables of a TOML document while it is read: headers and dotted keys may come back to one that was begun.

use crate::event::Stop;
use crate::source::Span;
use crate::tree::{Entry, MAX_DEPTH, Tree, Value};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId(u32);

#[derive(Debug)]
pub(super) struct Tables<'s> {
    nodes: Vec<Node<'s>>,
    /// Tables and arrays of tables that later lines can still add to. Values and inline tables are not among them.
    growing: FxHashMap<(NodeId, Cow<'s, str>), NodeId>,
}

#[derive(Debug)]
struct Node<'s> {
    kind: NodeKind<'s>,
    span: Span,
    close: Span,
}

#[derive(Debug)]
enum NodeKind<'s> {
    Table { entries: Vec<(Cow<'s, str>, Span, NodeId)>, begun_by: BegunBy },
    Array(Vec<NodeId>),
    Leaf(Tree<'s>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BegunBy {
    /// The header of a table inside of it: its own may still come.
    Inner,
    /// Its own header, or braces.
    Itself,
    /// A dotted key.
    DottedKey,
}

type Path<'s> = [(Cow<'s, str>, Span)];

impl Default for Tables<'_> {
    fn default() -> Self {
        let mut tables = Self { nodes: Vec::new(), growing: FxHashMap::default() };
        tables.add_table(Span::default());
        tables
    }
}

impl<'s> Tables<'s> {
    #[expect(clippy::unused_self, reason = "the root is one of its tables")]
    pub(super) fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// Nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    pub(super) fn add_table(&mut self, span: Span) -> NodeId {
        self.add(NodeKind::Table { entries: Vec::new(), begun_by: BegunBy::Itself }, span)
    }

    pub(super) fn add_array(&mut self, span: Span) -> NodeId {
        self.add(NodeKind::Array(Vec::new()), span)
    }

    pub(super) fn add_leaf(&mut self, leaf: Tree<'s>) -> NodeId {
        let span = leaf.span;
        self.add(NodeKind::Leaf(leaf), span)
    }

    fn add(&mut self, kind: NodeKind<'s>, span: Span) -> NodeId {
        self.nodes.push(Node { kind, span, close: span });
        NodeId(self.nodes.len() as u32 - 1)
    }

    pub(super) fn is_array(&self, id: NodeId) -> bool {
        matches!(self.nodes[id.0 as usize].kind, NodeKind::Array(_))
    }

    pub(super) fn close(&mut self, id: NodeId, span: Span) {
        self.nodes[id.0 as usize].close = span;
    }

    pub(super) fn push_item(&mut self, array: NodeId, item: NodeId) {
        if let NodeKind::Array(items) = &mut self.nodes[array.0 as usize].kind {
            items.push(item);
        }
    }

    /// Puts a value under a key, which may be dotted.
    pub(super) fn insert(&mut self, table: NodeId, path: &Path<'s>, value: NodeId) -> Result<(), Stop> {
        let Some(((key, span), outer)) = path.split_last() else { return Ok(()) };
        let table = self.walk(table, outer, BegunBy::DottedKey)?;
        self.push_entry(table, key.clone(), *span, value);
        Ok(())
    }

    /// The table that a header opens.
    pub(super) fn header(&mut self, path: &Path<'s>, is_array: bool, span: Span) -> Result<NodeId, Stop> {
        let Some(((key, key_span), outer)) = path.split_last() else { return Err(Stop) };
        let outer = self.walk(self.root(), outer, BegunBy::Inner)?;
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
            && let NodeKind::Table { begun_by: begun_by @ BegunBy::Inner, .. } =
                &mut self.nodes[known.0 as usize].kind
        {
            *begun_by = BegunBy::Itself;
            return Ok(known);
        }
        // A second header of the same name is kept as a second table.
        let table = self.add_table(span);
        self.push_growing(outer, key.clone(), *key_span, table);
        Ok(table)
    }

    /// Goes down a path, making the tables that are not there.
    fn walk(&mut self, from: NodeId, path: &Path<'s>, begun_by: BegunBy) -> Result<NodeId, Stop> {
        if path.len() >= MAX_DEPTH {
            return Err(Stop);
        }
        let mut table = from;
        for (key, span) in path {
            let known = self.growing.get(&(table, key.clone())).copied();
            if let Some(known) = known {
                table = self.last_table(known);
                continue;
            }
            let new = self.add(NodeKind::Table { entries: Vec::new(), begun_by }, *span);
            self.push_growing(table, key.clone(), *span, new);
            table = new;
        }
        Ok(table)
    }

    /// The table itself, or the last one of an array of tables.
    fn last_table(&self, id: NodeId) -> NodeId {
        match &self.nodes[id.0 as usize].kind {
            NodeKind::Array(items) => items.last().copied().unwrap_or(id),
            _ => id,
        }
    }

    fn push_growing(&mut self, table: NodeId, key: Cow<'s, str>, span: Span, value: NodeId) {
        self.growing.insert((table, key.clone()), value);
        self.push_entry(table, key, span, value);
    }

    fn push_entry(&mut self, table: NodeId, key: Cow<'s, str>, span: Span, value: NodeId) {
        if let NodeKind::Table { entries, .. } = &mut self.nodes[table.0 as usize].kind {
            entries.push((key, span, value));
        }
    }

    /// An `Err` is the place of what nests too deeply.
    pub(super) fn into_tree(self) -> Result<Tree<'s>, Span> {
        let root = self.root();
        let mut nodes: Vec<Option<Node<'s>>> = self.nodes.into_iter().map(Some).collect();
        take(root, &mut nodes, 0)
    }
}

/// Takes a node with all that is in it.
fn take<'s>(id: NodeId, nodes: &mut [Option<Node<'s>>], depth: usize) -> Result<Tree<'s>, Span> {
    let Some(Node { kind, span, close }) = nodes[id.0 as usize].take() else {
        return Ok(Tree::new(Value::Bad, Span::default()));
    };
    if depth > MAX_DEPTH {
        return Err(span);
    }
    let value = match kind {
        NodeKind::Leaf(tree) => return Ok(tree),
        NodeKind::Array(items) => {
            let items = items.into_iter().map(|item| take(item, nodes, depth + 1));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        NodeKind::Table { entries, .. } => {
            let entry =
                |(key, key_span, value)| Ok(Entry { key, key_span, value: take(value, nodes, depth + 1)? });
            Value::Map(entries.into_iter().map(entry).collect::<Result<_, _>>()?)
        }
    };
    Ok(Tree { value, span, close })
}
