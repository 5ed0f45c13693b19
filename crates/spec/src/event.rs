//! What every file format is turned into before it is decoded: a stream of maps, lists and scalars with their places.
//!
//! A front end (today [`crate::yaml`]) yields well-formed nesting whatever its input: within a map, `Key` and then
//! exactly one value, again and again. What it cannot turn into that it reports itself.

use crate::diagnostic::Sink;
use crate::source::Span;
use std::borrow::Cow;

/// The document cannot be read further; why has been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop;

/// Identity of a map or list that may come again (through an alias).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

#[derive(Clone, Debug)]
pub(crate) struct Event<'s> {
    pub(crate) kind: Kind<'s>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind<'s> {
    MapStart(Option<NodeId>),
    MapEnd,
    SeqStart(Option<NodeId>),
    SeqEnd,
    Key {
        text: Cow<'s, str>,
        /// Comes from elsewhere (a YAML merge key): gives way to a key of the same name that came before.
        merged: bool,
    },
    Scalar(Scalar<'s>),
    /// A value that was reported already.
    Bad,
    /// Nothing follows.
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct Scalar<'s> {
    /// As written, after the escapes of the format.
    pub(crate) text: Cow<'s, str>,
    /// Written without quotes, so it may mean a number, a truth value or nothing.
    pub(crate) plain: bool,
}

impl Scalar<'_> {
    /// Stands for "no value".
    pub(crate) fn is_null(&self) -> bool {
        self.plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

/// A pull stream of events.
pub(crate) trait Events<'s> {
    fn next(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop>;

    /// Goes past the end of the innermost open map or list.
    fn leave(&mut self, sink: &mut Sink) -> Result<(), Stop>;
}
