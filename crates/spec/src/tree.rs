//! A document as a tree, in the order written. Most specs are decoded while they stream by; a tree is built where that
//! cannot be: formats that scatter one list over the file (TOML, KDL), conversions, and edits.

use crate::diagnostic::{Diagnostic, Sink};
use crate::event::{Event, Events, Kind, Scalar, Stop};
use crate::source::Span;
use rustc_hash::FxHashSet;
use std::borrow::Cow;

/// So deep may a document nest, in every format. A spec needs four levels, its user data seldom many more.
pub(crate) const MAX_DEPTH: usize = 64;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Tree<'s> {
    pub(crate) value: Value<'s>,
    /// Of a scalar: all of it. Of a map or list: what opens it.
    pub(crate) span: Span,
    /// What closes a map or list.
    pub(crate) close: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Value<'s> {
    /// Keys may come twice: whether that is a mistake is for the reader of the tree to say.
    Map(Vec<Entry<'s>>),
    List(Vec<Tree<'s>>),
    Scalar(Scalar<'s>),
    /// Was reported.
    Bad,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<'s> {
    pub(crate) key: Cow<'s, str>,
    pub(crate) key_span: Span,
    pub(crate) value: Tree<'s>,
}

impl<'s> Tree<'s> {
    pub(crate) fn new(value: Value<'s>, span: Span) -> Self {
        Self { value, span, close: span }
    }

    pub(crate) fn scalar(text: impl Into<Cow<'s, str>>, plain: bool, span: Span) -> Self {
        Self::new(Value::Scalar(Scalar { text: text.into(), plain }), span)
    }

    /// Reads a whole document. `None`: there is nothing in it.
    pub(crate) fn read(events: &mut impl Events<'s>, sink: &mut Sink) -> Result<Option<Self>, Stop> {
        let first = events.next(sink)?;
        if matches!(first.kind, Kind::End) {
            return Ok(None);
        }
        let tree = Self::read_value(first, events, sink)?;
        // Whatever follows reports itself.
        events.next(sink)?;
        Ok(Some(tree))
    }

    fn read_value(event: Event<'s>, events: &mut impl Events<'s>, sink: &mut Sink) -> Result<Self, Stop> {
        let mut tree = Self::new(Value::Bad, event.span);
        tree.value = match event.kind {
            Kind::Scalar(scalar) => Value::Scalar(scalar),
            Kind::MapStart(_) => {
                let mut entries: Vec<Entry<'s>> = Vec::new();
                // Only a map with merged keys has to know all that came before.
                let mut known: Option<FxHashSet<Cow<'s, str>>> = None;
                loop {
                    let event = events.next(sink)?;
                    let Kind::Key { text, merged } = event.kind else {
                        tree.close = event.span;
                        break Value::Map(entries);
                    };
                    let value = events.next(sink)?;
                    let value = Self::read_value(value, events, sink)?;
                    if merged {
                        let known = known
                            .get_or_insert_with(|| entries.iter().map(|entry| entry.key.clone()).collect());
                        if !known.insert(text.clone()) {
                            continue;
                        }
                    }
                    entries.push(Entry { key: text, key_span: event.span, value });
                }
            }
            Kind::SeqStart(_) => {
                let mut items = Vec::new();
                loop {
                    let event = events.next(sink)?;
                    if matches!(event.kind, Kind::SeqEnd | Kind::End) {
                        tree.close = event.span;
                        break Value::List(items);
                    }
                    items.push(Self::read_value(event, events, sink)?);
                }
            }
            Kind::Bad | Kind::MapEnd | Kind::SeqEnd | Kind::Key { .. } | Kind::End => Value::Bad,
        };
        Ok(tree)
    }

    pub(crate) fn entries(&self) -> &[Entry<'s>] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The same document, wherever its parts stand and in whatever order its maps are.
    pub(crate) fn means_the_same(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Map(ours), Value::Map(theirs)) => {
                let in_order = |entries: &[Entry<'s>]| {
                    let mut places: Vec<usize> = (0..entries.len()).collect();
                    places.sort_by(|a, b| entries[*a].key.cmp(&entries[*b].key));
                    places
                };
                let same = |(a, b): (usize, usize)| {
                    ours[a].key == theirs[b].key && ours[a].value.means_the_same(&theirs[b].value)
                };
                ours.len() == theirs.len() && in_order(ours).into_iter().zip(in_order(theirs)).all(same)
            }
            (Value::List(ours), Value::List(theirs)) => {
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a.means_the_same(b))
            }
            (Value::Scalar(ours), Value::Scalar(theirs)) => ours.means_the_same(theirs),
            (Value::Bad, Value::Bad) => true,
            _ => false,
        }
    }
}

/// The events of a tree that was built by a front end.
pub(crate) struct Replay<'s> {
    root: Option<Tree<'s>>,
    /// The open maps and lists, from the outside in.
    levels: Vec<Level<'s>>,
}

struct Level<'s> {
    rest: Rest<'s>,
    close: Span,
}

enum Rest<'s> {
    /// The value whose key was told, then the entries behind it.
    Map(Option<Tree<'s>>, std::vec::IntoIter<Entry<'s>>),
    List(std::vec::IntoIter<Tree<'s>>),
}

impl<'s> Replay<'s> {
    /// `None` is an empty document.
    pub(crate) fn new(root: Option<Tree<'s>>) -> Self {
        Self { root, levels: Vec::new() }
    }

    fn value(&mut self, tree: Tree<'s>) -> Event<'s> {
        let Tree { value, span, close } = tree;
        let kind = match value {
            Value::Map(entries) => {
                self.levels.push(Level { rest: Rest::Map(None, entries.into_iter()), close });
                Kind::MapStart(None)
            }
            Value::List(items) => {
                self.levels.push(Level { rest: Rest::List(items.into_iter()), close });
                Kind::SeqStart(None)
            }
            Value::Scalar(scalar) => Kind::Scalar(scalar),
            Value::Bad => Kind::Bad,
        };
        Event { kind, span }
    }
}

impl<'s> Events<'s> for Replay<'s> {
    fn next(&mut self, _: &mut Sink) -> Result<Event<'s>, Stop> {
        let Some(level) = self.levels.last_mut() else {
            let end = Event { kind: Kind::End, span: Span::default() };
            return Ok(self.root.take().map_or(end, |root| self.value(root)));
        };
        let close = level.close;
        let (value, end) = match &mut level.rest {
            Rest::Map(value @ None, entries) => {
                if let Some(Entry { key, key_span, value: told }) = entries.next() {
                    *value = Some(told);
                    return Ok(Event { kind: Kind::Key { text: key, merged: false }, span: key_span });
                }
                (None, Kind::MapEnd)
            }
            Rest::Map(value, _) => (value.take(), Kind::MapEnd),
            Rest::List(items) => (items.next(), Kind::SeqEnd),
        };
        if let Some(value) = value {
            return Ok(self.value(value));
        }
        self.levels.pop();
        Ok(Event { kind: end, span: close })
    }

    fn leave(&mut self, _: &mut Sink) -> Result<(), Stop> {
        self.levels.pop();
        Ok(())
    }
}

pub(crate) fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::new("too-deep", format!("nested more than {MAX_DEPTH} deep")).at(span)
}
