//! Values of a JSON object by key, each with its path, each of the type that is wanted; what is not is a fault.

use super::Faults;
use serde_json::{Map, Value};

/// A value and where it was found.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) path: String,
    pub(super) value: T,
}

impl<T> At<T> {
    pub(super) fn new(path: impl Into<String>, value: T) -> Self {
        Self { path: path.into(), value }
    }
}

/// `null` is the same as absent throughout.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    pub(super) map: &'a Map<String, Value>,
    /// With its dot, or empty.
    pub(super) prefix: String,
}

impl<'a> Reader<'a> {
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A fault if it is there and something else.
    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        faults: &mut Faults,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<At<T>> {
        let value = self.get(key)?;
        let read = read(value);
        if read.is_none() {
            faults.push(self.path(key), format!("must be {wanted}, not {}", what(value)), None);
        }
        read.map(|value| At::new(self.path(key), value))
    }

    pub(super) fn text(&self, key: &str, faults: &mut Faults) -> Option<At<String>> {
        let text = self.typed(key, "a text", faults, Value::as_str)?;
        real_text(&text.path, text.value, faults).map(|value| At::new(text.path, value))
    }

    /// A list of texts, or one text.
    pub(super) fn texts(&self, key: &str, faults: &mut Faults) -> Option<At<Vec<String>>> {
        let list = self.typed(key, "a list of texts", faults, |value| match value {
            Value::String(one) => Some(vec![one.as_str()]),
            Value::Array(many) => many.iter().map(Value::as_str).collect(),
            _ => None,
        })?;
        let texts =
            list.value.into_iter().map(|text| real_text(&list.path, text, faults)).collect::<Option<_>>()?;
        Some(At::new(list.path, texts))
    }

    pub(super) fn flag(&self, key: &str, faults: &mut Faults) -> Option<At<bool>> {
        self.typed(key, "true or false", faults, Value::as_bool)
    }

    /// A whole number from 0. A float without a fraction is one too: some writers know no other numbers.
    pub(super) fn count(&self, key: &str, faults: &mut Faults) -> Option<At<u64>> {
        self.typed(key, "a whole number, not negative and below 2^64", faults, whole)
    }

    pub(super) fn count32(&self, key: &str, faults: &mut Faults) -> Option<At<u32>> {
        let wanted = "a whole number, not negative and below 2^32";
        self.typed(key, wanted, faults, |value| whole(value).and_then(|n| u32::try_from(n).ok()))
    }

    pub(super) fn integer(&self, key: &str, faults: &mut Faults) -> Option<At<i64>> {
        self.typed(key, "a whole number of 64 bits", faults, |value| {
            value.as_i64().or_else(|| whole(value).and_then(|n| i64::try_from(n).ok()))
        })
    }

    /// JSON has no infinities, but a number that is too large becomes one.
    pub(super) fn number(&self, key: &str, faults: &mut Faults) -> Option<At<f64>> {
        self.typed(key, "a finite number", faults, |value| value.as_f64().filter(|n| n.is_finite()))
    }

    pub(super) fn runs(&self, key: &str, faults: &mut Faults) -> Option<At<Vec<u32>>> {
        self.typed(key, "a list of run numbers", faults, |value| {
            let run = |value| whole(value).and_then(|n| u32::try_from(n).ok()).filter(|run| *run > 0);
            value.as_array()?.iter().map(run).collect()
        })
    }

    pub(super) fn object(&self, key: &str, faults: &mut Faults) -> Option<Reader<'a>> {
        let map = self.typed(key, "an object", faults, Value::as_object)?;
        Some(Reader { map: map.value, prefix: format!("{}.", map.path) })
    }
}

/// What templates leave for people to fill in is no value.
fn real_text(path: &str, text: &str, faults: &mut Faults) -> Option<String> {
    if text.contains("OVERRIDE-ME") {
        let remedy = Some("put the real value there".to_owned());
        faults.push(path, format!("is still the placeholder `{text}` of its template"), remedy);
        return None;
    }
    Some(text.to_owned())
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9.0e15).contains(float))?;
        Some(float as u64)
    })
}

/// What a value is, for people.
pub(super) fn what(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{}`", text.chars().take(40).collect::<String>()),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The word that was probably meant: few letters away, and nearer than all others.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let limit = (word.chars().count() / 3).clamp(1, 4);
    let distance = |name: &str| distance(&word.to_lowercase(), &name.to_lowercase());
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Letters to change, add or leave out.
fn distance(a: &str, b: &str) -> usize {
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
