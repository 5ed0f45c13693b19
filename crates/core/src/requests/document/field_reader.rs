//! Typed values of a JSON object by key, with paths; values of another type are reported as problems.

use super::DocumentProblems;
use serde_json::{Map, Value};

/// A value and its path in the document.
#[derive(Clone, Debug)]
pub(super) struct LocatedValue<T> {
    pub(super) path: String,
    pub(super) value: T,
}

impl<T> LocatedValue<T> {
    pub(super) fn new(path: impl Into<String>, value: T) -> Self {
        Self { path: path.into(), value }
    }
}

/// `null` means absent.
#[derive(Clone, Debug)]
pub(super) struct FieldReader<'a> {
    pub(super) map: &'a Map<String, Value>,
    /// With its trailing dot, or empty.
    pub(super) prefix: String,
}

impl<'a> FieldReader<'a> {
    pub(super) fn field_path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Reports a problem if the value has another type.
    fn read_typed<T>(
        &self,
        key: &str,
        wanted: &str,
        faults: &mut DocumentProblems,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<LocatedValue<T>> {
        let value = self.get(key)?;
        let read = read(value);
        if read.is_none() {
            faults.push(
                self.field_path(key),
                format!("must be {wanted}, not {}", describe_value(value)),
                None,
            );
        }
        read.map(|value| LocatedValue::new(self.field_path(key), value))
    }

    pub(super) fn read_text(&self, key: &str, faults: &mut DocumentProblems) -> Option<LocatedValue<String>> {
        let text = self.read_typed(key, "a text", faults, Value::as_str)?;
        parse_text(&text.path, text.value, faults).map(|value| LocatedValue::new(text.path, value))
    }

    /// Reads a list of texts, or one text.
    pub(super) fn read_texts(
        &self,
        key: &str,
        faults: &mut DocumentProblems,
    ) -> Option<LocatedValue<Vec<String>>> {
        let list = self.read_typed(key, "a list of texts", faults, |value| match value {
            Value::String(one) => Some(vec![one.as_str()]),
            Value::Array(many) => many.iter().map(Value::as_str).collect(),
            _ => None,
        })?;
        let texts =
            list.value.into_iter().map(|text| parse_text(&list.path, text, faults)).collect::<Option<_>>()?;
        Some(LocatedValue::new(list.path, texts))
    }

    pub(super) fn read_flag(&self, key: &str, faults: &mut DocumentProblems) -> Option<LocatedValue<bool>> {
        self.read_typed(key, "true or false", faults, Value::as_bool)
    }

    /// Reads a non-negative integer. Accepts a float without a fraction: some writers have no integers.
    pub(super) fn read_u64(&self, key: &str, faults: &mut DocumentProblems) -> Option<LocatedValue<u64>> {
        self.read_typed(key, "a whole number, not negative and below 2^64", faults, parse_whole_number)
    }

    pub(super) fn read_u32(&self, key: &str, faults: &mut DocumentProblems) -> Option<LocatedValue<u32>> {
        let wanted = "a whole number, not negative and below 2^32";
        self.read_typed(key, wanted, faults, |value| {
            parse_whole_number(value).and_then(|n| u32::try_from(n).ok())
        })
    }

    pub(super) fn read_i64(&self, key: &str, faults: &mut DocumentProblems) -> Option<LocatedValue<i64>> {
        self.read_typed(key, "a whole number of 64 bits", faults, |value| {
            value.as_i64().or_else(|| parse_whole_number(value).and_then(|n| i64::try_from(n).ok()))
        })
    }

    /// JSON has no infinities, but numbers that are too large become infinite.
    pub(super) fn read_f64(&self, key: &str, faults: &mut DocumentProblems) -> Option<LocatedValue<f64>> {
        self.read_typed(key, "a finite number", faults, |value| value.as_f64().filter(|n| n.is_finite()))
    }

    pub(super) fn read_runs(
        &self,
        key: &str,
        faults: &mut DocumentProblems,
    ) -> Option<LocatedValue<Vec<u32>>> {
        self.read_typed(key, "a list of run numbers", faults, |value| {
            let run =
                |value| parse_whole_number(value).and_then(|n| u32::try_from(n).ok()).filter(|run| *run > 0);
            value.as_array()?.iter().map(run).collect()
        })
    }

    pub(super) fn read_object(&self, key: &str, faults: &mut DocumentProblems) -> Option<FieldReader<'a>> {
        let map = self.read_typed(key, "an object", faults, Value::as_object)?;
        Some(FieldReader { map: map.value, prefix: format!("{}.", map.path) })
    }
}

/// Placeholders of templates are not accepted as values.
fn parse_text(path: &str, text: &str, faults: &mut DocumentProblems) -> Option<String> {
    if text.contains("OVERRIDE-ME") {
        let remedy = Some("replace it with the real value".to_owned());
        faults.push(path, format!("is still the placeholder `{text}` of its template"), remedy);
        return None;
    }
    Some(text.to_owned())
}

fn parse_whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9.0e15).contains(float))?;
        Some(float as u64)
    })
}

/// Describes a value for people.
pub(super) fn describe_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{}`", text.chars().take(40).collect::<String>()),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Returns the word that was probably meant: few letters away, and closer than all others.
pub(crate) fn nearest_word<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let limit = (word.chars().count() / 3).clamp(1, 4);
    let distance = |name: &str| edit_distance(&word.to_lowercase(), &name.to_lowercase());
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Number of letters to change, add or remove.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
