//! A document as a tree, in file order. Most specs are decoded from the event stream; a tree is built only where
//! that is not possible: formats that scatter one list over the file (TOML, KDL), conversions, and edits.

use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, ScalarText, StopReading};
use crate::source::SourceSpan;
use rustc_hash::FxHashSet;
use std::borrow::Cow;

/// Maximum nesting depth, in every format. A spec needs four levels, its user data rarely many more.
pub(crate) const MAX_DEPTH: usize = 64;

/// A value and its location.
#[derive(Clone, Debug)]
pub(crate) struct DocumentTree<'s> {
    pub(crate) value: TreeValue<'s>,
    /// For a scalar: all of it. For a map or list: its opening token.
    pub(crate) span: SourceSpan,
    /// The closing token of a map or list.
    pub(crate) close: SourceSpan,
}

#[derive(Clone, Debug)]
pub(crate) enum TreeValue<'s> {
    /// Keys may be repeated; the consumer of the tree decides whether this is an error.
    Map(Vec<TreeEntry<'s>>),
    List(Vec<DocumentTree<'s>>),
    Scalar(ScalarText<'s>),
    /// Already reported.
    Bad,
}

#[derive(Clone, Debug)]
pub(crate) struct TreeEntry<'s> {
    pub(crate) key: Cow<'s, str>,
    pub(crate) key_span: SourceSpan,
    pub(crate) value: DocumentTree<'s>,
}

impl<'s> DocumentTree<'s> {
    pub(crate) fn new(value: TreeValue<'s>, span: SourceSpan) -> Self {
        Self { value, span, close: span }
    }

    pub(crate) fn scalar(text: impl Into<Cow<'s, str>>, plain: bool, span: SourceSpan) -> Self {
        Self::new(TreeValue::Scalar(ScalarText { text: text.into(), is_plain: plain }), span)
    }

    /// Reads a whole document. Returns `None` if it is empty.
    pub(crate) fn from_events(
        events: &mut impl DocumentEventStream<'s>,
        sink: &mut DiagnosticSink,
    ) -> Result<Option<Self>, StopReading> {
        let first = events.next_event(sink)?;
        if matches!(first.kind, DocumentEventKind::End) {
            return Ok(None);
        }
        let tree = Self::read_value(first, events, sink)?;
        // Anything that follows is reported by the parser.
        events.next_event(sink)?;
        Ok(Some(tree))
    }

    fn read_value(
        event: DocumentEvent<'s>,
        events: &mut impl DocumentEventStream<'s>,
        sink: &mut DiagnosticSink,
    ) -> Result<Self, StopReading> {
        let mut tree = Self::new(TreeValue::Bad, event.span);
        tree.value = match event.kind {
            DocumentEventKind::Scalar(scalar) => TreeValue::Scalar(scalar),
            DocumentEventKind::MapStart(_) => {
                let mut entries: Vec<TreeEntry<'s>> = Vec::new();
                // Only a map with merged keys needs to know all earlier keys.
                let mut known: Option<FxHashSet<Cow<'s, str>>> = None;
                loop {
                    let event = events.next_event(sink)?;
                    let DocumentEventKind::Key { text, merged } = event.kind else {
                        tree.close = event.span;
                        break TreeValue::Map(entries);
                    };
                    let value = events.next_event(sink)?;
                    let value = Self::read_value(value, events, sink)?;
                    if merged {
                        let known = known
                            .get_or_insert_with(|| entries.iter().map(|entry| entry.key.clone()).collect());
                        if !known.insert(text.clone()) {
                            continue;
                        }
                    }
                    entries.push(TreeEntry { key: text, key_span: event.span, value });
                }
            }
            DocumentEventKind::SeqStart(_) => {
                let mut items = Vec::new();
                loop {
                    let event = events.next_event(sink)?;
                    if matches!(event.kind, DocumentEventKind::SeqEnd | DocumentEventKind::End) {
                        tree.close = event.span;
                        break TreeValue::List(items);
                    }
                    items.push(Self::read_value(event, events, sink)?);
                }
            }
            DocumentEventKind::Bad
            | DocumentEventKind::MapEnd
            | DocumentEventKind::SeqEnd
            | DocumentEventKind::Key { .. }
            | DocumentEventKind::End => TreeValue::Bad,
        };
        Ok(tree)
    }

    pub(crate) fn entries(&self) -> &[TreeEntry<'s>] {
        match &self.value {
            TreeValue::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            TreeValue::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            TreeValue::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// Whether both are the same document, ignoring locations and the order of maps.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (TreeValue::Map(ours), TreeValue::Map(theirs)) => {
                let in_order = |entries: &[TreeEntry<'s>]| {
                    let mut places: Vec<usize> = (0..entries.len()).collect();
                    places.sort_by(|a, b| entries[*a].key.cmp(&entries[*b].key));
                    places
                };
                let same = |(a, b): (usize, usize)| {
                    ours[a].key == theirs[b].key && ours[a].value.is_equivalent(&theirs[b].value)
                };
                ours.len() == theirs.len() && in_order(ours).into_iter().zip(in_order(theirs)).all(same)
            }
            (TreeValue::List(ours), TreeValue::List(theirs)) => {
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.is_equivalent(b))
            }
            (TreeValue::Scalar(ours), TreeValue::Scalar(theirs)) => ours.is_equivalent(theirs),
            (TreeValue::Bad, TreeValue::Bad) => true,
            _ => false,
        }
    }
}

/// Replays the events of a tree that a front end built.
pub(crate) struct TreeReplay<'s> {
    root: Option<DocumentTree<'s>>,
    /// The open maps and lists, outermost first.
    levels: Vec<ReplayLevel<'s>>,
}

struct ReplayLevel<'s> {
    rest: ReplayRest<'s>,
    close: SourceSpan,
}

enum ReplayRest<'s> {
    /// The value of the current key, then the entries after it.
    Map(Option<DocumentTree<'s>>, std::vec::IntoIter<TreeEntry<'s>>),
    List(std::vec::IntoIter<DocumentTree<'s>>),
}

impl<'s> TreeReplay<'s> {
    /// `None` is an empty document.
    pub(crate) fn new(root: Option<DocumentTree<'s>>) -> Self {
        Self { root, levels: Vec::new() }
    }

    fn enter_value(&mut self, tree: DocumentTree<'s>) -> DocumentEvent<'s> {
        let DocumentTree { value, span, close } = tree;
        let kind = match value {
            TreeValue::Map(entries) => {
                self.levels.push(ReplayLevel { rest: ReplayRest::Map(None, entries.into_iter()), close });
                DocumentEventKind::MapStart(None)
            }
            TreeValue::List(items) => {
                self.levels.push(ReplayLevel { rest: ReplayRest::List(items.into_iter()), close });
                DocumentEventKind::SeqStart(None)
            }
            TreeValue::Scalar(scalar) => DocumentEventKind::Scalar(scalar),
            TreeValue::Bad => DocumentEventKind::Bad,
        };
        DocumentEvent { kind, span }
    }
}

impl<'s> DocumentEventStream<'s> for TreeReplay<'s> {
    fn next_event(&mut self, _: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        let Some(level) = self.levels.last_mut() else {
            let end = DocumentEvent { kind: DocumentEventKind::End, span: SourceSpan::default() };
            return Ok(self.root.take().map_or(end, |root| self.enter_value(root)));
        };
        let close = level.close;
        let (value, end) = match &mut level.rest {
            ReplayRest::Map(value @ None, entries) => {
                if let Some(TreeEntry { key, key_span, value: told }) = entries.next() {
                    *value = Some(told);
                    return Ok(DocumentEvent {
                        kind: DocumentEventKind::Key { text: key, merged: false },
                        span: key_span,
                    });
                }
                (None, DocumentEventKind::MapEnd)
            }
            ReplayRest::Map(value, _) => (value.take(), DocumentEventKind::MapEnd),
            ReplayRest::List(items) => (items.next(), DocumentEventKind::SeqEnd),
        };
        if let Some(value) = value {
            return Ok(self.enter_value(value));
        }
        self.levels.pop();
        Ok(DocumentEvent { kind: end, span: close })
    }

    fn leave_collection(&mut self, _: &mut DiagnosticSink) -> Result<(), StopReading> {
        self.levels.pop();
        Ok(())
    }
}

pub(crate) fn too_deep_error(span: SourceSpan) -> SpecDiagnostic {
    SpecDiagnostic::new("too-deep", format!("nested more than {MAX_DEPTH} deep")).with_span(span)
}
