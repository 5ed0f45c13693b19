//! KDL as a tree: nodes become the fields, lists and entries of a spec.
//!
//! `job "a" { … }` is an entry of `jobs` with its name; nodes that come again (`depends_on "x"`) make one list;
//! properties (`path="…"`) are fields too. Where any value may stand (`data`, `metadata`, `parameters`, `env` …):
//! `key 1` is a value, `key 1 2` a list, `key { a 1; b 2 }` a map, `key { - 1; - 2 }` a list again, `key #null` null;
//! `(array)key 1` is a list of one and `(array)key` the empty list, and `(object)key { - 1 }` a map whose key is `-`.

mod lexer;
mod reader;
pub(crate) mod shape;

use crate::decode::article;
use crate::decode::shape::{Field, Map};
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::{Diagnostic, Sink};
use crate::event::{Scalar, Stop};
use crate::source::Span;
use crate::suggest::Suggester;
use crate::tree::{Entry, Tree, Value};
use shape::Form;
use std::borrow::Cow;

pub(crate) use lexer::is_bare_word;
pub(crate) use reader::{Argument, Node, read_nodes};

/// The annotations that say what a node is where it could be either.
pub(crate) const LIST: &str = "array";
pub(crate) const MAP: &str = "object";
/// The name of a node that is an item of a list.
pub(crate) const ITEM: &str = "-";

/// Reads a whole document; what is wrong with it goes to the sink. `None`: there is nothing in it.
pub(crate) fn read<'s>(text: &'s str, sink: &mut Sink) -> Result<Option<Tree<'s>>, Stop> {
    let nodes = reader::read(text, sink)?;
    if nodes.is_empty() {
        return Ok(None);
    }
    let mut mapper = Mapper { sink, suggester: Suggester::default() };
    let entries = mapper.fields(&WORKFLOW, Vec::new(), nodes);
    Ok(Some(Tree::new(Value::Map(entries), Span::default())))
}

/// Turns nodes into fields.
struct Mapper<'k> {
    sink: &'k mut Sink,
    suggester: Suggester,
}

/// The fields of one map while they are gathered.
struct Gathered<'s> {
    entries: Vec<Entry<'s>>,
    /// Lists that may grow: their key, and which entry they are.
    lists: Vec<(&'static str, usize)>,
}

impl<'s> Gathered<'s> {
    fn push(&mut self, key: &'static str, key_span: Span, value: Tree<'s>) {
        self.entries.push(Entry { key: Cow::Borrowed(key), key_span, value });
    }

    /// Adds to the list of that name.
    fn extend(&mut self, key: &'static str, span: Span, items: Vec<Tree<'s>>) {
        let known = self.lists.iter().find(|(list, _)| *list == key).map(|(_, index)| *index);
        let index = known.unwrap_or_else(|| {
            self.lists.push((key, self.entries.len()));
            self.push(key, span, Tree::new(Value::List(Vec::new()), span));
            self.entries.len() - 1
        });
        if let Value::List(list) = &mut self.entries[index].value.value {
            list.extend(items);
        }
    }
}

impl Mapper<'_> {
    /// The fields that properties and child nodes give.
    fn fields<'s>(
        &mut self,
        map: &'static Map,
        properties: Vec<(Cow<'s, str>, Span, Tree<'s>)>,
        children: Vec<Node<'s>>,
    ) -> Vec<Entry<'s>> {
        let mut gathered = Gathered { entries: Vec::new(), lists: Vec::new() };
        let mut meant: Vec<(&Field, Span)> = Vec::new();
        let properties = properties.into_iter().map(|(name, span, value)| Node::of_value(name, span, value));
        for node in properties.chain(children) {
            let span = node.name_span;
            if let Some((field, key)) = shape::find(map, &node.name) {
                self.field(field, key, node, &mut gathered);
                continue;
            }
            let field = self.unknown(map, &node.name, span);
            let is_new = |field: &&Field| meant.iter().all(|(known, _)| known.name != field.name);
            meant.extend(field.filter(is_new).map(|field| (field, span)));
            if self.sink.is_enough() {
                break;
            }
        }
        // One mistake, one message: what was meant is not missing as well.
        for (field, span) in meant {
            let bad = Tree::new(Value::Bad, span);
            match Form::of(&field.is) {
                Form::Entries(_) => gathered.extend(field.name, span, vec![bad]),
                _ if gathered.entries.iter().any(|entry| entry.key == field.name) => {}
                _ => gathered.push(field.name, span, bad),
            }
        }
        gathered.entries
    }

    fn field<'s>(
        &mut self,
        field: &'static Field,
        key: &'static str,
        node: Node<'s>,
        gathered: &mut Gathered<'s>,
    ) {
        let span = node.name_span;
        match Form::of(&field.is) {
            // What else stands there is passed on, to be refused as in every format.
            Form::Text | Form::Number | Form::Any => {
                let tree = self.any(node);
                gathered.push(key, span, tree);
            }
            Form::Texts | Form::Numbers => {
                let items = self.list(node);
                gathered.extend(key, span, items);
            }
            Form::Parameters | Form::TextMap | Form::AnyMap => {
                let tree = self.any_map(node);
                gathered.push(key, span, tree);
            }
            Form::Map(map) => {
                let tree = self.entry(map, node);
                gathered.push(key, span, tree);
            }
            Form::Entries(map) => {
                let entry = self.entry(map, node);
                gathered.extend(key, span, vec![entry]);
            }
        }
    }

    /// Reports a node that means nothing here; returns the field that was probably meant.
    fn unknown(&mut self, map: &'static Map, name: &str, span: Span) -> Option<&'static Field> {
        let diagnostic = Diagnostic::new("unknown-field", format!("unknown node `{name}`")).at(span);
        if let Some((_, instead)) = map.gone.iter().find(|(gone, _)| *gone == name) {
            self.sink.push(diagnostic.help(*instead));
            return None;
        }
        if self.sink.is_full() {
            self.sink.push(diagnostic);
            return None;
        }
        let known_elsewhere = map.fields.iter().find(|field| field.elsewhere.contains(&name));
        let suggestion = match known_elsewhere {
            Some(field) => Some(field.kdl_node()),
            None => self.suggester.nearest(name, map.fields.iter().flat_map(shape::nodes)),
        };
        self.sink.push(if suggestion.is_some() {
            diagnostic.suggest(suggestion)
        } else {
            let known = map.fields.iter().map(|field| format!("`{}`", field.kdl_node()));
            let known = known.collect::<Vec<_>>().join(", ");
            diagnostic.help(format!("the nodes of {} {} are {known}", article(map.what), map.what))
        });
        suggestion.and_then(|name| shape::find(map, name)).map(|(field, _)| field)
    }

    /// A map with fields: its name comes first, if it has one.
    fn entry<'s>(&mut self, map: &'static Map, node: Node<'s>) -> Tree<'s> {
        let mut name = None;
        let mut properties = Vec::new();
        for argument in node.arguments {
            match argument {
                Argument::Property(key, span, value) => properties.push((key, span, value)),
                Argument::Value(value) if map.is_named && name.is_none() => name = Some(value),
                Argument::Value(value) => self.stray_value(map, value.span),
            }
        }
        let mut entries = self.fields(map, properties, node.children.unwrap_or_default());
        if let Some(value) = name {
            let key_span = value.span;
            entries.insert(0, Entry { key: Cow::Borrowed("name"), key_span, value });
        }
        Tree { value: Value::Map(entries), span: node.name_span, close: node.end }
    }

    fn stray_value(&mut self, map: &Map, span: Span) {
        let (article, what) = (article(map.what), map.what);
        let help = if map.is_named {
            format!("{article} {what} has one name; its fields stand in braces, or as `field=value`")
        } else {
            format!("the fields of {article} {what} stand in braces, or as `field=value`")
        };
        self.sink
            .push(Diagnostic::new("stray-value", "a value that belongs to no field").at(span).help(help));
    }

    /// The items of a field that is a list: any number of values, or nodes named `-`.
    fn list<'s>(&mut self, node: Node<'s>) -> Vec<Tree<'s>> {
        let is_simple = node.children.is_none() && node.is_values();
        if is_simple {
            return node.arguments.into_iter().filter_map(Argument::into_value).collect();
        }
        let tree = self.any(node);
        match tree.value {
            Value::List(items) => items,
            _ => vec![tree],
        }
    }

    /// A node where any value may stand; see the head of this file.
    fn any<'s>(&mut self, node: Node<'s>) -> Tree<'s> {
        let (span, close) = (node.name_span, node.end);
        let whole = |value| Tree { value, span, close };
        let annotation = node.annotation.as_deref();
        if annotation == Some(MAP) {
            return self.any_map(node);
        }
        let children = node.children.as_deref().unwrap_or_default();
        let is_items = !children.is_empty() && children.iter().all(|child| child.name == ITEM);
        let is_list = annotation == Some(LIST) || (is_items && node.is_values());
        if !is_list && (node.children.is_some() || !node.is_values()) {
            return self.any_map(node);
        }
        let mut values: Vec<Tree<'s>> = node.arguments.into_iter().filter_map(Argument::into_value).collect();
        if is_list {
            values.extend(node.children.unwrap_or_default().into_iter().map(|child| self.any(child)));
            return whole(Value::List(values));
        }
        match values.len() {
            0 => whole(Value::Scalar(Scalar { text: Cow::Borrowed(""), plain: true })),
            1 => values.swap_remove(0),
            _ => whole(Value::List(values)),
        }
    }

    /// A node whose properties and children are keys of a map.
    fn any_map<'s>(&mut self, node: Node<'s>) -> Tree<'s> {
        let mut entries = Vec::new();
        for argument in node.arguments {
            match argument {
                Argument::Property(key, key_span, value) => entries.push(Entry { key, key_span, value }),
                Argument::Value(value) => self.sink.push(
                    Diagnostic::new("stray-value", "a value that belongs to no key")
                        .at(value.span)
                        .help(format!("write `{} {{ key value }}`", node.name)),
                ),
            }
        }
        for mut child in node.children.unwrap_or_default() {
            let key = std::mem::take(&mut child.name);
            entries.push(Entry { key, key_span: child.name_span, value: self.any(child) });
        }
        Tree { value: Value::Map(entries), span: node.name_span, close: node.end }
    }
}

/// Where the comments of a document stand, if it can be read.
pub(crate) fn comments(text: &str) -> Option<Vec<Span>> {
    read_nodes(text).map(|(_, comments)| comments)
}
