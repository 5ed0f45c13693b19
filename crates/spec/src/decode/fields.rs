//! Decodes maps with known fields; reports unknown, repeated and missing fields.

use super::field_tables::{FieldId, FieldTable, SpecField};
use super::{SpecDecoder, ValueSubject, indefinite_article};
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, DocumentNodeId, StopReading};
use crate::source::SourceSpan;

const MAX_FIELDS: usize = 40;

/// A map being decoded.
pub(super) struct MapDecoder {
    pub(super) id: Option<DocumentNodeId>,
    /// The location to report for a missing field.
    pub(super) span: SourceSpan,
    has_keys: bool,
    /// The first location of each known field.
    seen: [Option<SourceSpan>; MAX_FIELDS],
}

impl MapDecoder {
    pub(super) fn new(span: SourceSpan, id: Option<DocumentNodeId>) -> Self {
        Self { id, span, has_keys: false, seen: [None; MAX_FIELDS] }
    }

    /// The location of a field's name.
    pub(super) fn key_span(&self, map: &FieldTable, name: &str) -> Option<SourceSpan> {
        map.find_field(name).and_then(|(index, _)| self.seen[index])
    }
}

/// A field and the event that begins its value.
pub(super) struct FieldEntry<'s, F> {
    pub(super) id: F,
    pub(super) field: &'static SpecField,
    /// The field's name as used in messages.
    pub(super) subject: ValueSubject<'static>,
    pub(super) value: DocumentEvent<'s>,
}

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    /// Returns the next known field of the map; at the end, reports missing fields and returns `None`.
    pub(super) fn next_field<F: FieldId>(
        &mut self,
        map: &mut MapDecoder,
    ) -> Result<Option<FieldEntry<'s, F>>, StopReading> {
        let found = self.next_table_field(map, F::MAP)?;
        Ok(found.map(|FieldEntry { id: is, field, subject, value }| FieldEntry {
            id: F::ALL[is],
            field,
            subject,
            value,
        }))
    }

    /// Like [`Self::next_field`], with the index of the field in the table.
    pub(super) fn next_table_field(
        &mut self,
        map: &mut MapDecoder,
        table: &'static FieldTable,
    ) -> Result<Option<FieldEntry<'s, usize>>, StopReading> {
        loop {
            let event = self.next_event()?;
            let DocumentEventKind::Key { text, merged } = event.kind else { break };
            if !map.has_keys && !merged {
                map.has_keys = true;
                map.span = event.span;
            }
            let value = self.next_event()?;
            let Some((index, word)) = table.find_field(&text) else {
                self.report_unknown_field(&text, event.span, map, table);
                self.skip_value(&value)?;
                continue;
            };
            let field = &table.fields[index];
            match map.seen[index] {
                None => {
                    map.seen[index] = Some(event.span);
                    if field.required || !is_null(&value) {
                        return Ok(Some(FieldEntry {
                            id: index,
                            field,
                            subject: ValueSubject::Field(word),
                            value,
                        }));
                    }
                }
                Some(_) if merged => {}
                Some(first) => self.sink.push(
                    SpecDiagnostic::new("duplicate-field", format!("field `{text}` is given twice"))
                        .with_span(event.span)
                        .with_label(first, "first here"),
                ),
            }
            self.skip_value(&value)?;
        }
        self.report_missing_fields(map, table);
        Ok(None)
    }

    fn report_unknown_field(
        &mut self,
        name: &str,
        span: SourceSpan,
        map: &mut MapDecoder,
        table: &'static FieldTable,
    ) {
        let diagnostic =
            SpecDiagnostic::new("unknown-field", format!("unknown field `{name}`")).with_span(span);
        if let Some((_, instead)) = table.removed_fields.iter().find(|(gone, _)| *gone == name) {
            self.sink.push(diagnostic.with_help(*instead));
            return;
        }
        if self.sink.is_full() {
            self.sink.push(diagnostic);
            return;
        }
        let Some(suggestion) = self.suggest_field(name, table) else {
            let known: Vec<_> = table.fields.iter().map(|field| format!("`{}`", field.name)).collect();
            let what = format!("{} {}", indefinite_article(table.noun), table.noun);
            self.sink.push(diagnostic.with_help(format!("the fields of {what} are {}", known.join(", "))));
            return;
        };
        if let Some((index, _)) = table.find_field(suggestion) {
            // One error, one message: the intended field is not reported as missing too.
            map.seen[index].get_or_insert(span);
        }
        self.sink.push(diagnostic.with_suggestion(Some(suggestion)));
    }

    /// Returns the field that `name` most likely stands for.
    fn suggest_field(&mut self, name: &str, table: &'static FieldTable) -> Option<&'static str> {
        let is_known_elsewhere = |field: &&SpecField| field.foreign_names.contains(&name);
        if let Some(field) = table.fields.iter().find(is_known_elsewhere) {
            return Some(field.name);
        }
        self.suggester.nearest_name(name, table.fields.iter().flat_map(SpecField::names))
    }

    fn report_missing_fields(&mut self, map: &MapDecoder, table: &'static FieldTable) {
        for (field, seen) in table.fields.iter().zip(&map.seen) {
            if field.required && seen.is_none() {
                self.sink.push(
                    SpecDiagnostic::new("missing-field", format!("missing field `{}`", field.name))
                        .with_span(map.span)
                        .with_label(map.span, format!("this {} needs a `{}`", table.noun, field.name)),
                );
            }
        }
    }
}

/// Handles a key without a value. Optional fields may also be left empty.
fn is_null(value: &DocumentEvent<'_>) -> bool {
    matches!(&value.kind, DocumentEventKind::Scalar(scalar) if scalar.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::tables::WORKFLOW;

    /// Lists all maps of a spec.
    fn all_maps() -> Vec<&'static FieldTable> {
        let mut maps: Vec<&'static FieldTable> = vec![&WORKFLOW];
        let mut next = 0;
        while let Some(map) = maps.get(next) {
            let inner: Vec<_> =
                map.fields.iter().filter_map(|field| field.field_type.inner_table()).collect();
            maps.extend(inner.into_iter().filter(|inner| inner.noun != "workflow"));
            next += 1;
        }
        maps
    }

    #[test]
    fn field_tables_fit_the_limit_and_have_unique_names() {
        for map in all_maps() {
            assert!(map.fields.len() <= MAX_FIELDS, "{}", map.noun);
            let mut words: Vec<_> = map
                .fields
                .iter()
                .flat_map(|field| field.names().chain(field.foreign_names.iter().copied()))
                .collect();
            words.extend(map.removed_fields.iter().map(|(name, _)| *name));
            let count = words.len();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), count, "{}", map.noun);
        }
    }

    #[test]
    fn every_field_has_a_description() {
        for field in all_maps().iter().flat_map(|map| map.fields) {
            assert!(field.description.ends_with('.') && !field.description.contains('\n'), "{}", field.name);
        }
    }
}
