//! Decodes maps by their table alone: each value is checked against its field type and kept as JSON, and the
//! whole is deserialized into the type with the same fields.

use super::field_tables::{FieldTable, FieldType, GrowthUnit};
use super::fields::MapDecoder;
use super::{SpecDecoder, ValueSubject};
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventStream, StopReading};
use crate::source::SourceSpan;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use windlass_types::{Bytes, format_exact_size, format_iso_duration};

/// A decoded map.
pub(super) struct DecodedObject {
    table: &'static FieldTable,
    map: MapDecoder,
    values: serde_json::Map<String, Value>,
    /// The location of the value of `name`.
    pub(super) name_span: Option<SourceSpan>,
    /// All values are valid, and no required field is missing.
    is_complete: bool,
}

impl DecodedObject {
    /// The location of a field's name, if the field is present.
    pub(super) fn key_span(&self, field: &str) -> Option<SourceSpan> {
        self.map.key_span(self.table, field)
    }

    /// The location of the map, for problems that concern all of it.
    pub(super) fn span(&self) -> SourceSpan {
        self.map.span
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.values.get(field).and_then(Value::as_str)
    }

    pub(super) fn is_true(&self, field: &str) -> bool {
        self.values.get(field) == Some(&Value::Bool(true))
    }

    /// The table used to decode it.
    pub(super) fn has_table(&self, table: &'static FieldTable) -> bool {
        std::ptr::eq(self.table, table)
    }

    /// Returns the deserialized map; `None` if problems were reported.
    pub(super) fn deserialize_values<T: DeserializeOwned>(&self) -> Option<T> {
        let values = self.is_complete.then(|| self.values.clone())?;
        serde_json::from_value(Value::Object(values)).ok()
    }
}

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    pub(super) fn decode_object(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        table: &'static FieldTable,
    ) -> Result<Option<DecodedObject>, StopReading> {
        let Some(mut map) = self.open_map(event, subject)? else { return Ok(None) };
        let problems = self.sink.pushes();
        let mut values = serde_json::Map::new();
        let mut name_span = None;
        while let Some(found) = self.next_table_field(&mut map, table)? {
            let span = found.value.span;
            if let Some(value) = self.decode_value(found.value, found.subject, &found.field.field_type)? {
                values.insert(found.field.name.to_owned(), value);
                if found.field.name == "name" {
                    name_span = Some(span);
                }
            }
        }
        let is_whole = self.sink.pushes() == problems;
        Ok(Some(DecodedObject { table, map, values, name_span, is_complete: is_whole }))
    }

    /// Deserializes the object; `None` if problems were reported.
    pub(super) fn decode_typed<T: DeserializeOwned>(&mut self, object: DecodedObject) -> Option<T> {
        if !object.is_complete {
            return None;
        }
        let (what, span) = (object.table.noun, object.span());
        match serde_json::from_value(Value::Object(object.values)) {
            Ok(value) => Some(value),
            // Happens only if table and type disagree; must not be ignored.
            Err(error) => {
                let message = format!("this {what} cannot be used: {error}");
                self.sink.push(SpecDiagnostic::new("bad-value", message).with_span(span));
                None
            }
        }
    }

    fn decode_value(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        is: &'static FieldType,
    ) -> Result<Option<Value>, StopReading> {
        Ok(match is {
            FieldType::Text => self.read_string(event, subject)?.map(|(text, _)| text.into()),
            FieldType::NonBlank | FieldType::Regex => {
                self.read_non_empty(event, subject)?.map(|(text, _)| text.into())
            }
            FieldType::Name => self.read_name(event, subject)?.map(|(text, _)| text.into()),
            FieldType::Integer(least, most) => {
                self.read_integer(event, subject, (*least, *most))?.map(Value::from)
            }
            FieldType::Number(least, most) => {
                self.read_number(event, subject, (*least, *most))?.map(Value::from)
            }
            FieldType::Boolean => self.read_boolean(event, subject)?.map(Value::from),
            FieldType::Choice(words) => self.read_keyword(event, subject, words)?.map(Value::from),
            FieldType::Size => self.read_size(event, subject)?.map(|bytes| format_exact_size(bytes).into()),
            FieldType::Duration => {
                self.read_duration(event, subject)?.map(|duration| format_iso_duration(duration).into())
            }
            FieldType::Walltime => self.read_walltime(event, subject)?.map(Value::from),
            FieldType::SlurmSize => self.read_slurm_size(event, subject)?.map(Value::from),
            FieldType::Signal => self.read_signal(event, subject, false)?.map(Value::from),
            FieldType::SrunSignal => self.read_signal(event, subject, true)?.map(Value::from),
            FieldType::Growth(GrowthUnit::Size) => {
                self.read_growth::<Bytes>(event, subject)?.map(Value::from)
            }
            FieldType::Growth(GrowthUnit::Duration) => {
                self.read_growth::<Duration>(event, subject)?.map(Value::from)
            }
            FieldType::Growth(GrowthUnit::Count) => self.read_growth::<u32>(event, subject)?.map(Value::from),
            FieldType::StderrPattern => self.read_stderr_pattern(event, subject)?.map(Value::from),
            FieldType::RetryBudget => {
                self.read_retry_budget(event, subject)?.map(|budget| budget.to_string().into())
            }
            FieldType::List(item) => self.decode_list_values(&event, subject, item)?,
            FieldType::Map(map) => self.decode_object(&event, subject, map)?.map(|object| {
                self.check_object(&object);
                Value::Object(object.values)
            }),
            FieldType::SlurmOptions => Some(Value::Object(self.decode_slurm_options(&event, subject)?)),
            FieldType::Json => self.decode_json(event)?,
            FieldType::JsonMap => self.decode_json_map(event, subject)?.map(Value::Object),
            FieldType::Env | FieldType::Constants | FieldType::Parameters | FieldType::Limits(..) => {
                unreachable!("allowed only in maps that are decoded field by field")
            }
        })
    }

    fn decode_list_values(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        item: &'static FieldType,
    ) -> Result<Option<Value>, StopReading> {
        if self.open_list(event, subject)?.is_none() {
            return Ok(None);
        }
        let of_item = match (subject, item) {
            (_, FieldType::Map(map)) => ValueSubject::Object(map.noun),
            (ValueSubject::Field(name), _) => ValueSubject::ItemOf(name),
            (other, _) => other,
        };
        let mut values = Vec::new();
        while let Some(event) = self.next_item()? {
            values.extend(self.decode_value(event, of_item, item)?);
        }
        Ok(Some(Value::Array(values)))
    }
}
