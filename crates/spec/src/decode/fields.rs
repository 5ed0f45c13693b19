//! Maps with known fields: unknown, repeated and missing ones are reported in one place.

use super::shape::{Field, FieldId, Map};
use super::{Decoder, Subject, article};
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Kind, NodeId, Stop};
use crate::source::Span;

const MAX_FIELDS: usize = 40;

/// A map being decoded.
pub(super) struct OpenMap {
    pub(super) id: Option<NodeId>,
    /// Where to point when something is missing.
    pub(super) span: Span,
    has_keys: bool,
    /// Where each known field was first seen.
    seen: [Option<Span>; MAX_FIELDS],
}

impl OpenMap {
    pub(super) fn new(span: Span, id: Option<NodeId>) -> Self {
        Self { id, span, has_keys: false, seen: [None; MAX_FIELDS] }
    }

    /// Where the name of a field stands.
    pub(super) fn place_of(&self, map: &Map, name: &str) -> Option<Span> {
        map.find(name).and_then(|(index, _)| self.seen[index])
    }
}

/// A field that was met, and the event that begins its value.
pub(super) struct Found<'s, F> {
    pub(super) is: F,
    pub(super) field: &'static Field,
    /// The field as it is called here.
    pub(super) subject: Subject<'static>,
    pub(super) value: Event<'s>,
}

impl<'s, E: Events<'s>> Decoder<'s, E> {
    /// The next known field of the map; at the end, after missing fields were reported, `None`.
    pub(super) fn next_field<F: FieldId>(&mut self, map: &mut OpenMap) -> Result<Option<Found<'s, F>>, Stop> {
        let found = self.next_of(map, F::MAP)?;
        Ok(found.map(|Found { is, field, subject, value }| Found { is: F::ALL[is], field, subject, value }))
    }

    /// As [`Self::next_field`], with the place of the field in the table.
    pub(super) fn next_of(
        &mut self,
        map: &mut OpenMap,
        table: &'static Map,
    ) -> Result<Option<Found<'s, usize>>, Stop> {
        loop {
            let event = self.next()?;
            let Kind::Key { text, merged } = event.kind else { break };
            if !map.has_keys && !merged {
                map.has_keys = true;
                map.span = event.span;
            }
            let value = self.next()?;
            let Some((index, word)) = table.find(&text) else {
                self.unknown_field(&text, event.span, map, table);
                self.skip(&value)?;
                continue;
            };
            let field = &table.fields[index];
            match map.seen[index] {
                None => {
                    map.seen[index] = Some(event.span);
                    if field.required || !is_null(&value) {
                        return Ok(Some(Found { is: index, field, subject: Subject::Field(word), value }));
                    }
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
        self.missing_fields(map, table);
        Ok(None)
    }

    fn unknown_field(&mut self, name: &str, span: Span, map: &mut OpenMap, table: &'static Map) {
        let diagnostic = Diagnostic::new("unknown-field", format!("unknown field `{name}`")).at(span);
        if let Some((_, instead)) = table.gone.iter().find(|(gone, _)| *gone == name) {
            self.sink.push(diagnostic.help(*instead));
            return;
        }
        if self.sink.is_full() {
            self.sink.push(diagnostic);
            return;
        }
        let Some(suggestion) = self.meant(name, table) else {
            let known: Vec<_> = table.fields.iter().map(|field| format!("`{}`", field.name)).collect();
            let what = format!("{} {}", article(table.what), table.what);
            self.sink.push(diagnostic.help(format!("the fields of {what} are {}", known.join(", "))));
            return;
        };
        if let Some((index, _)) = table.find(suggestion) {
            // One mistake, one message: what was meant is not missing as well.
            map.seen[index].get_or_insert(span);
        }
        self.sink.push(diagnostic.suggest(Some(suggestion)));
    }

    /// The field that somebody who writes `name` has in mind.
    fn meant(&mut self, name: &str, table: &'static Map) -> Option<&'static str> {
        let is_known_elsewhere = |field: &&Field| field.elsewhere.contains(&name);
        if let Some(field) = table.fields.iter().find(is_known_elsewhere) {
            return Some(field.name);
        }
        self.suggester.nearest(name, table.fields.iter().flat_map(Field::names))
    }

    fn missing_fields(&mut self, map: &OpenMap, table: &'static Map) {
        for (field, seen) in table.fields.iter().zip(&map.seen) {
            if field.required && seen.is_none() {
                self.sink.push(
                    Diagnostic::new("missing-field", format!("missing field `{}`", field.name))
                        .at(map.span)
                        .label(map.span, format!("this {} needs a `{}`", table.what, field.name)),
                );
            }
        }
    }
}

/// Nothing stands behind the key. A field that may be left out may also be left empty.
fn is_null(value: &Event<'_>) -> bool {
    matches!(&value.kind, Kind::Scalar(scalar) if scalar.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::tables::WORKFLOW;

    /// Every map that can stand in a spec.
    fn all_maps() -> Vec<&'static Map> {
        let mut maps: Vec<&'static Map> = vec![&WORKFLOW];
        let mut next = 0;
        while let Some(map) = maps.get(next) {
            let inner: Vec<_> = map.fields.iter().filter_map(|field| field.is.map()).collect();
            maps.extend(inner.into_iter().filter(|inner| inner.what != "workflow"));
            next += 1;
        }
        maps
    }

    #[test]
    fn there_is_room_for_every_field_and_no_word_means_two() {
        for map in all_maps() {
            assert!(map.fields.len() <= MAX_FIELDS, "{}", map.what);
            let mut words: Vec<_> = map
                .fields
                .iter()
                .flat_map(|field| field.names().chain(field.elsewhere.iter().copied()))
                .collect();
            words.extend(map.gone.iter().map(|(name, _)| *name));
            let count = words.len();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), count, "{}", map.what);
        }
    }

    #[test]
    fn every_field_says_what_it_is_for() {
        for field in all_maps().iter().flat_map(|map| map.fields) {
            assert!(field.about.ends_with('.') && !field.about.contains('\n'), "{}", field.name);
        }
    }
}
