//! Maps that are decoded by their table alone: each value is checked as its field says and kept as JSON, and the
//! whole becomes the type that has the same fields.

use super::fields::OpenMap;
use super::shape::{Grows, Map, Type};
use super::{Decoder, Subject};
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Stop};
use crate::source::Span;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use windlass_types::{Bytes, write_duration, write_size};

/// A map that was read.
pub(super) struct Object {
    table: &'static Map,
    map: OpenMap,
    values: serde_json::Map<String, Value>,
    /// Where the value of `name` stands.
    pub(super) name_span: Option<Span>,
    /// Every value was as it should be, and nothing is missing.
    is_whole: bool,
}

impl Object {
    /// Where the name of a field stands, if the field is there.
    pub(super) fn place_of(&self, field: &str) -> Option<Span> {
        self.map.place_of(self.table, field)
    }

    /// Where the map begins, for problems of the whole.
    pub(super) fn span(&self) -> Span {
        self.map.span
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.values.get(field).and_then(Value::as_str)
    }

    pub(super) fn is_true(&self, field: &str) -> bool {
        self.values.get(field) == Some(&Value::Bool(true))
    }

    /// It is decoded by this table.
    pub(super) fn is(&self, table: &'static Map) -> bool {
        std::ptr::eq(self.table, table)
    }

    /// What it says, as the type that it stands for; `None` if something about it was reported.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let values = self.is_whole.then(|| self.values.clone())?;
        serde_json::from_value(Value::Object(values)).ok()
    }
}

impl<'s, E: Events<'s>> Decoder<'s, E> {
    pub(super) fn object(
        &mut self,
        event: &Event<'s>,
        subject: Subject<'_>,
        table: &'static Map,
    ) -> Result<Option<Object>, Stop> {
        let Some(mut map) = self.map(event, subject)? else { return Ok(None) };
        let problems = self.sink.pushes();
        let mut values = serde_json::Map::new();
        let mut name_span = None;
        while let Some(found) = self.next_of(&mut map, table)? {
            let span = found.value.span;
            if let Some(value) = self.value(found.value, found.subject, &found.field.is)? {
                values.insert(found.field.name.to_owned(), value);
                if found.field.name == "name" {
                    name_span = Some(span);
                }
            }
        }
        let is_whole = self.sink.pushes() == problems;
        Ok(Some(Object { table, map, values, name_span, is_whole }))
    }

    /// The object as the type that it stands for; `None` if something about it was reported.
    pub(super) fn typed<T: DeserializeOwned>(&mut self, object: Object) -> Option<T> {
        if !object.is_whole {
            return None;
        }
        let (what, span) = (object.table.what, object.span());
        match serde_json::from_value(Value::Object(object.values)) {
            Ok(value) => Some(value),
            // Only if table and type disagree; never pass over it in silence.
            Err(error) => {
                let message = format!("this {what} cannot be used: {error}");
                self.sink.push(Diagnostic::new("bad-value", message).at(span));
                None
            }
        }
    }

    fn value(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        is: &'static Type,
    ) -> Result<Option<Value>, Stop> {
        Ok(match is {
            Type::Text => self.string(event, subject)?.map(|(text, _)| text.into()),
            Type::Filled | Type::Regex => self.non_empty(event, subject)?.map(|(text, _)| text.into()),
            Type::Name => self.name(event, subject)?.map(|(text, _)| text.into()),
            Type::Integer(least, most) => self.integer(event, subject, (*least, *most))?.map(Value::from),
            Type::Number(least, most) => self.number(event, subject, (*least, *most))?.map(Value::from),
            Type::Boolean => self.boolean(event, subject)?.map(Value::from),
            Type::Choice(words) => self.word(event, subject, words)?.map(Value::from),
            Type::Size => self.size(event, subject)?.map(|bytes| write_size(bytes).into()),
            Type::Duration => self.duration(event, subject)?.map(|duration| write_duration(duration).into()),
            Type::Walltime => self.walltime(event, subject)?.map(Value::from),
            Type::SlurmSize => self.slurm_size(event, subject)?.map(Value::from),
            Type::Signal => self.signal(event, subject, false)?.map(Value::from),
            Type::SrunSignal => self.signal(event, subject, true)?.map(Value::from),
            Type::Growth(Grows::Size) => self.growth::<Bytes>(event, subject)?.map(Value::from),
            Type::Growth(Grows::Duration) => self.growth::<Duration>(event, subject)?.map(Value::from),
            Type::Growth(Grows::Count) => self.growth::<u32>(event, subject)?.map(Value::from),
            Type::StderrPattern => self.stderr_pattern(event, subject)?.map(Value::from),
            Type::RetryBudget => self.retry_budget(event, subject)?.map(|budget| budget.to_string().into()),
            Type::List(item) => self.values(&event, subject, item)?,
            Type::Map(map) => self.object(&event, subject, map)?.map(|object| {
                self.check_object(&object);
                Value::Object(object.values)
            }),
            Type::SlurmOptions => Some(Value::Object(self.slurm_options(&event, subject)?)),
            Type::Json => self.json(event)?,
            Type::JsonMap => self.json_map(event, subject)?.map(Value::Object),
            Type::Env | Type::Constants | Type::Parameters | Type::Limits(..) => {
                unreachable!("stands only in maps that are decoded field by field")
            }
        })
    }

    fn values(
        &mut self,
        event: &Event<'s>,
        subject: Subject<'_>,
        item: &'static Type,
    ) -> Result<Option<Value>, Stop> {
        if self.list(event, subject)?.is_none() {
            return Ok(None);
        }
        let of_item = match (subject, item) {
            (_, Type::Map(map)) => Subject::Thing(map.what),
            (Subject::Field(name), _) => Subject::ItemOf(name),
            (other, _) => other,
        };
        let mut values = Vec::new();
        while let Some(event) = self.next_item()? {
            values.extend(self.value(event, of_item, item)?);
        }
        Ok(Some(Value::Array(values)))
    }
}
