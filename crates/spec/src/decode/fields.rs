//! Maps with known fields: unknown, repeated and missing ones are reported in one place.

use super::Decoder;
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Kind, NodeId, Stop};
use crate::source::Span;

/// The fields that a kind of map may have.
pub(super) struct Fields<F: 'static> {
    /// What such a map is: "job".
    pub(super) what: &'static str,
    pub(super) known: &'static [Field<F>],
}

pub(super) struct Field<F> {
    name: &'static str,
    is: F,
    required: bool,
}

impl<F> Field<F> {
    pub(super) const fn required(name: &'static str, is: F) -> Self {
        Self { name, is, required: true }
    }

    pub(super) const fn optional(name: &'static str, is: F) -> Self {
        Self { name, is, required: false }
    }
}

const MAX_FIELDS: usize = 12;

/// A map being decoded.
pub(super) struct OpenMap {
    pub(super) id: Option<NodeId>,
    /// Where to point when something is missing.
    span: Span,
    has_keys: bool,
    /// Where each known field was first seen.
    seen: [Option<Span>; MAX_FIELDS],
}

impl OpenMap {
    pub(super) fn new(span: Span, id: Option<NodeId>) -> Self {
        Self { id, span, has_keys: false, seen: [None; MAX_FIELDS] }
    }
}

impl<'s, E: Events<'s>> Decoder<'s, E> {
    /// The next known field of the map with the event that begins its value; at the end, after missing fields were
    /// reported, `None`.
    pub(super) fn next_field<F: Copy>(
        &mut self,
        map: &mut OpenMap,
        fields: &Fields<F>,
    ) -> Result<Option<(F, Event<'s>)>, Stop> {
        loop {
            let event = self.next()?;
            let Kind::Key { text, merged } = event.kind else { break };
            if !map.has_keys && !merged {
                map.has_keys = true;
                map.span = event.span;
            }
            let value = self.next()?;
            let Some(index) = fields.known.iter().position(|field| field.name == text) else {
                self.unknown_field(&text, event.span, map, fields);
                self.skip(&value)?;
                continue;
            };
            match map.seen[index] {
                None => {
                    map.seen[index] = Some(event.span);
                    return Ok(Some((fields.known[index].is, value)));
                }
                Some(_) if merged => {}
                Some(first) => self.sink.push(
                    Diagnostic::new("duplicate-field", format!("field `{text}` is given twice"))
                        .at(event.span)
                        .label(first, "first here"),
                ),
            }
            self.skip(&value)?;
        }
        self.missing_fields(map, fields);
        Ok(None)
    }

    fn unknown_field<F>(&mut self, name: &str, span: Span, map: &mut OpenMap, fields: &Fields<F>) {
        let suggestion = self.suggester.nearest(name, fields.known.iter().map(|field| field.name));
        let meant = fields.known.iter().position(|field| Some(field.name) == suggestion);
        if let Some(index) = meant {
            // One mistake, one message: what was meant is not missing as well.
            map.seen[index].get_or_insert(span);
        }
        let diagnostic = Diagnostic::new("unknown-field", format!("unknown field `{name}`")).at(span);
        self.sink.push(if suggestion.is_some() {
            diagnostic.suggest(suggestion)
        } else {
            let known: Vec<_> = fields.known.iter().map(|field| format!("`{}`", field.name)).collect();
            diagnostic.help(format!("the fields of a {} are {}", fields.what, known.join(", ")))
        });
    }

    fn missing_fields<F>(&mut self, map: &OpenMap, fields: &Fields<F>) {
        for (field, seen) in fields.known.iter().zip(&map.seen) {
            if field.required && seen.is_none() {
                self.sink.push(
                    Diagnostic::new("missing-field", format!("missing field `{}`", field.name))
                        .at(map.span)
                        .label(map.span, format!("this {} needs a `{}`", fields.what, field.name)),
                );
            }
        }
    }
}
