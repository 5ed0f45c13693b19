//! Parses KDL into a tree: nodes become the fields, lists and entries of a spec.
//!
//! `job "a" { … }` is an entry of `jobs` with its name; repeated nodes (`depends_on "x"`) form one list;
//! properties (`path="…"`) are fields too. Where any value is allowed (`data`, `metadata`, `parameters`, `env`
//! …): `key 1` is a value, `key 1 2` a list, `key { a 1; b 2 }` a map, `key { - 1; - 2 }` also a list, `key
//! #null` null; `(array)key 1` is a list with one item, `(array)key` the empty list, and `(object)key { - 1 }` a
//! map with the key `-`.

pub(crate) mod field_forms;
mod lexer;
mod reader;

use crate::decode::field_tables::{FieldTable, SpecField};
use crate::decode::indefinite_article;
use crate::decode::tables::WORKFLOW;
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{ScalarText, StopReading};
use crate::source::SourceSpan;
use crate::suggest::NameSuggester;
use crate::tree::{DocumentTree, TreeEntry, TreeValue};
use field_forms::FieldForm;
use std::borrow::Cow;

pub(crate) use lexer::is_bare_word;
pub(crate) use reader::{KdlArgument, KdlNode, read_nodes};

/// Annotations that select the type of an ambiguous node.
pub(crate) const LIST_ANNOTATION: &str = "array";
pub(crate) const MAP_ANNOTATION: &str = "object";
/// The name of nodes that are list items.
pub(crate) const ITEM_NODE: &str = "-";

/// Parses a whole document; problems go to the sink. Returns `None` if it is empty.
pub(crate) fn parse_kdl<'s>(
    text: &'s str,
    sink: &mut DiagnosticSink,
) -> Result<Option<DocumentTree<'s>>, StopReading> {
    let nodes = reader::read_document(text, sink)?;
    if nodes.is_empty() {
        return Ok(None);
    }
    let mut mapper = KdlMapper { sink, suggester: NameSuggester::default() };
    let entries = mapper.map_fields(&WORKFLOW, Vec::new(), nodes);
    Ok(Some(DocumentTree::new(TreeValue::Map(entries), SourceSpan::default())))
}

/// Converts nodes to fields.
struct KdlMapper<'k> {
    sink: &'k mut DiagnosticSink,
    suggester: NameSuggester,
}

/// The fields of one map during conversion.
struct GatheredFields<'s> {
    entries: Vec<TreeEntry<'s>>,
    /// Lists that may grow: their key and the index of their entry.
    lists: Vec<(&'static str, usize)>,
}

impl<'s> GatheredFields<'s> {
    fn push(&mut self, key: &'static str, key_span: SourceSpan, value: DocumentTree<'s>) {
        self.entries.push(TreeEntry { key: Cow::Borrowed(key), key_span, value });
    }

    /// Adds to the list with that name.
    fn extend(&mut self, key: &'static str, span: SourceSpan, items: Vec<DocumentTree<'s>>) {
        let known = self.lists.iter().find(|(list, _)| *list == key).map(|(_, index)| *index);
        let index = known.unwrap_or_else(|| {
            self.lists.push((key, self.entries.len()));
            self.push(key, span, DocumentTree::new(TreeValue::List(Vec::new()), span));
            self.entries.len() - 1
        });
        if let TreeValue::List(list) = &mut self.entries[index].value.value {
            list.extend(items);
        }
    }
}

impl KdlMapper<'_> {
    /// Returns the fields of properties and child nodes.
    fn map_fields<'s>(
        &mut self,
        map: &'static FieldTable,
        properties: Vec<(Cow<'s, str>, SourceSpan, DocumentTree<'s>)>,
        children: Vec<KdlNode<'s>>,
    ) -> Vec<TreeEntry<'s>> {
        let mut gathered = GatheredFields { entries: Vec::new(), lists: Vec::new() };
        let mut meant: Vec<(&SpecField, SourceSpan)> = Vec::new();
        let properties =
            properties.into_iter().map(|(name, span, value)| KdlNode::from_value(name, span, value));
        for node in properties.chain(children) {
            let span = node.name_span;
            if let Some((field, key)) = field_forms::find_field_by_node(map, &node.name) {
                self.map_field(field, key, node, &mut gathered);
                continue;
            }
            let field = self.report_unknown_node(map, &node.name, span);
            let is_new = |field: &&SpecField| meant.iter().all(|(known, _)| known.name != field.name);
            meant.extend(field.filter(is_new).map(|field| (field, span)));
            if self.sink.should_stop() {
                break;
            }
        }
        // One error, one message: the intended field is not reported as missing too.
        for (field, span) in meant {
            let bad = DocumentTree::new(TreeValue::Bad, span);
            match FieldForm::from_type(&field.field_type) {
                FieldForm::Entries(_) => gathered.extend(field.name, span, vec![bad]),
                _ if gathered.entries.iter().any(|entry| entry.key == field.name) => {}
                _ => gathered.push(field.name, span, bad),
            }
        }
        gathered.entries
    }

    fn map_field<'s>(
        &mut self,
        field: &'static SpecField,
        key: &'static str,
        node: KdlNode<'s>,
        gathered: &mut GatheredFields<'s>,
    ) {
        let span = node.name_span;
        match FieldForm::from_type(&field.field_type) {
            // Other content is passed on and rejected by the decoder, as in every format.
            FieldForm::Text | FieldForm::Number | FieldForm::Any => {
                let tree = self.map_any(node);
                gathered.push(key, span, tree);
            }
            FieldForm::Texts | FieldForm::Numbers => {
                let items = self.map_list(node);
                gathered.extend(key, span, items);
            }
            FieldForm::Parameters | FieldForm::TextMap | FieldForm::AnyMap => {
                let tree = self.map_any_map(node);
                gathered.push(key, span, tree);
            }
            FieldForm::Map(map) => {
                let tree = self.map_entry(map, node);
                gathered.push(key, span, tree);
            }
            FieldForm::Entries(map) => {
                let entry = self.map_entry(map, node);
                gathered.extend(key, span, vec![entry]);
            }
        }
    }

    /// Reports an unknown node; returns the field that was probably meant.
    fn report_unknown_node(
        &mut self,
        map: &'static FieldTable,
        name: &str,
        span: SourceSpan,
    ) -> Option<&'static SpecField> {
        let diagnostic =
            SpecDiagnostic::new("unknown-field", format!("unknown node `{name}`")).with_span(span);
        if let Some((_, instead)) = map.removed_fields.iter().find(|(gone, _)| *gone == name) {
            self.sink.push(diagnostic.with_help(*instead));
            return None;
        }
        if self.sink.is_full() {
            self.sink.push(diagnostic);
            return None;
        }
        let known_elsewhere = map.fields.iter().find(|field| field.foreign_names.contains(&name));
        let suggestion = match known_elsewhere {
            Some(field) => Some(field.kdl_node()),
            None => self.suggester.nearest_name(name, map.fields.iter().flat_map(field_forms::node_names)),
        };
        self.sink.push(if suggestion.is_some() {
            diagnostic.with_suggestion(suggestion)
        } else {
            let known = map.fields.iter().map(|field| format!("`{}`", field.kdl_node()));
            let known = known.collect::<Vec<_>>().join(", ");
            diagnostic.with_help(format!(
                "the nodes of {} {} are {known}",
                indefinite_article(map.noun),
                map.noun
            ))
        });
        suggestion.and_then(|name| field_forms::find_field_by_node(map, name)).map(|(field, _)| field)
    }

    /// Converts a map with fields: its name comes first, if it has one.
    fn map_entry<'s>(&mut self, map: &'static FieldTable, node: KdlNode<'s>) -> DocumentTree<'s> {
        let mut name = None;
        let mut properties = Vec::new();
        for argument in node.arguments {
            match argument {
                KdlArgument::Property(key, span, value) => properties.push((key, span, value)),
                KdlArgument::Value(value) if map.is_named && name.is_none() => name = Some(value),
                KdlArgument::Value(value) => self.report_stray_value(map, value.span),
            }
        }
        let mut entries = self.map_fields(map, properties, node.children.unwrap_or_default());
        if let Some(value) = name {
            let key_span = value.span;
            entries.insert(0, TreeEntry { key: Cow::Borrowed("name"), key_span, value });
        }
        DocumentTree { value: TreeValue::Map(entries), span: node.name_span, close: node.end }
    }

    fn report_stray_value(&mut self, map: &FieldTable, span: SourceSpan) {
        let (article, what) = (indefinite_article(map.noun), map.noun);
        let help = if map.is_named {
            format!("{article} {what} has one name; write its fields in braces, or as `field=value`")
        } else {
            format!("write the fields of {article} {what} in braces, or as `field=value`")
        };
        self.sink.push(
            SpecDiagnostic::new("stray-value", "a value without a field").with_span(span).with_help(help),
        );
    }

    /// Returns the items of a list field: any number of values, or nodes named `-`.
    fn map_list<'s>(&mut self, node: KdlNode<'s>) -> Vec<DocumentTree<'s>> {
        let is_simple = node.children.is_none() && node.has_only_values();
        if is_simple {
            return node.arguments.into_iter().filter_map(KdlArgument::into_value).collect();
        }
        let tree = self.map_any(node);
        match tree.value {
            TreeValue::List(items) => items,
            _ => vec![tree],
        }
    }

    /// Converts a node where any value is allowed; see the module documentation.
    fn map_any<'s>(&mut self, node: KdlNode<'s>) -> DocumentTree<'s> {
        let (span, close) = (node.name_span, node.end);
        let whole = |value| DocumentTree { value, span, close };
        let annotation = node.annotation.as_deref();
        if annotation == Some(MAP_ANNOTATION) {
            return self.map_any_map(node);
        }
        let children = node.children.as_deref().unwrap_or_default();
        let is_items = !children.is_empty() && children.iter().all(|child| child.name == ITEM_NODE);
        let is_list = annotation == Some(LIST_ANNOTATION) || (is_items && node.has_only_values());
        if !is_list && (node.children.is_some() || !node.has_only_values()) {
            return self.map_any_map(node);
        }
        let mut values: Vec<DocumentTree<'s>> =
            node.arguments.into_iter().filter_map(KdlArgument::into_value).collect();
        if is_list {
            values.extend(node.children.unwrap_or_default().into_iter().map(|child| self.map_any(child)));
            return whole(TreeValue::List(values));
        }
        match values.len() {
            0 => whole(TreeValue::Scalar(ScalarText { text: Cow::Borrowed(""), is_plain: true })),
            1 => values.swap_remove(0),
            _ => whole(TreeValue::List(values)),
        }
    }

    /// Converts a node whose properties and children are keys of a map.
    fn map_any_map<'s>(&mut self, node: KdlNode<'s>) -> DocumentTree<'s> {
        let mut entries = Vec::new();
        for argument in node.arguments {
            match argument {
                KdlArgument::Property(key, key_span, value) => {
                    entries.push(TreeEntry { key, key_span, value });
                }
                KdlArgument::Value(value) => self.sink.push(
                    SpecDiagnostic::new("stray-value", "a value without a key")
                        .with_span(value.span)
                        .with_help(format!("write `{} {{ key value }}`", node.name)),
                ),
            }
        }
        for mut child in node.children.unwrap_or_default() {
            let key = std::mem::take(&mut child.name);
            entries.push(TreeEntry { key, key_span: child.name_span, value: self.map_any(child) });
        }
        DocumentTree { value: TreeValue::Map(entries), span: node.name_span, close: node.end }
    }
}

/// Returns the locations of the comments of a document, if it can be parsed.
pub(crate) fn find_comments(text: &str) -> Option<Vec<SourceSpan>> {
    read_nodes(text).map(|(_, comments)| comments)
}
