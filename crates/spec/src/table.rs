//! Tables of parameters beside a spec: CSV with a header, a JSON array of objects, or one JSON object a line.

use crate::params::{Value, Values};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use std::fmt;
use std::sync::Arc;

/// Columns of equal length, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) columns: Vec<(Box<str>, Arc<Values>)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BadTable {
    #[error("it is not UTF-8")]
    NotText,
    #[error("its name ends neither in .csv nor in .json or .jsonl")]
    UnknownKind,
    #[error("columns are separated by commas, and its header has only one: `{0}`")]
    Separator(String),
    #[error("it has no rows")]
    Empty,
    #[error("column {0} has no name")]
    UnnamedColumn(usize),
    #[error("two columns are named `{0}`")]
    SameColumn(String),
    #[error("line {line} has {found} fields, but the header has {wanted}")]
    FieldCount { line: usize, found: usize, wanted: usize },
    #[error("line {line}: a quoted field does not end")]
    OpenQuote { line: usize },
    #[error("line {line}: text follows a closing quote")]
    AfterQuote { line: usize },
    #[error("row {row} has no `{column}`")]
    Missing { row: usize, column: String },
    #[error("row {row} has a `{column}` that the first row has not")]
    Additional { row: usize, column: String },
    #[error("row {row}: `{column}` is {found}, not a number or a string")]
    NotScalar { row: usize, column: String, found: &'static str },
    #[error("{0}")]
    Json(serde_json::Error),
    #[error("line {line}: {error}")]
    JsonLine { line: usize, error: serde_json::Error },
}

/// Reads a table; the end of `path` says which kind it is.
pub(crate) fn parse(path: &str, bytes: &[u8]) -> Result<Table, BadTable> {
    let text = std::str::from_utf8(bytes).map_err(|_| BadTable::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match extension.as_deref() {
        Some("csv") => csv(text),
        Some("json") => rows(&serde_json::from_str::<Vec<Row>>(text).map_err(BadTable::Json)?),
        Some("jsonl" | "ndjson") => rows(&json_lines(text)?),
        _ => Err(BadTable::UnknownKind),
    }
}

fn table(names: Vec<Box<str>>, columns: Vec<Vec<Value>>) -> Result<Table, BadTable> {
    for (number, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err(BadTable::UnnamedColumn(number + 1));
        }
        if names[..number].contains(name) {
            return Err(BadTable::SameColumn(name.to_string()));
        }
    }
    if columns.first().is_none_or(Vec::is_empty) {
        return Err(BadTable::Empty);
    }
    let values = columns.into_iter().map(|column| Arc::new(Values::List(column)));
    Ok(Table { columns: names.into_iter().zip(values).collect() })
}

/// Quoting as in RFC 4180. Blank lines count as nothing.
fn csv(text: &str) -> Result<Table, BadTable> {
    let mut reader = Csv { rest: text, line: 1 };
    let Some((_, header)) = reader.record()? else { return Err(BadTable::Empty) };
    let names: Vec<Box<str>> = header.iter().map(|name| name.trim().into()).collect();
    if let [name] = &names[..]
        && name.contains([';', '\t'])
    {
        return Err(BadTable::Separator(name.replace('\t', " ")));
    }
    let mut columns = vec![Vec::new(); names.len()];
    while let Some((line, fields)) = reader.record()? {
        if fields.len() != names.len() {
            return Err(BadTable::FieldCount { line, found: fields.len(), wanted: names.len() });
        }
        for (column, field) in columns.iter_mut().zip(&fields) {
            column.push(Value::infer(field));
        }
    }
    table(names, columns)
}

struct Csv<'t> {
    rest: &'t str,
    line: usize,
}

impl Csv<'_> {
    /// The fields of the next line with something on it, and its number.
    fn record(&mut self) -> Result<Option<(usize, Vec<String>)>, BadTable> {
        while let Some(rest) = self.rest.strip_prefix('\n').or_else(|| self.rest.strip_prefix("\r\n")) {
            self.rest = rest;
            self.line += 1;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            fields.push(self.field()?);
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => return Ok(Some((line, fields))),
            }
        }
    }

    fn field(&mut self) -> Result<String, BadTable> {
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
            let (field, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Ok(field.trim().to_owned());
        };
        self.rest = quoted;
        let mut field = String::new();
        loop {
            let Some((text, rest)) = self.rest.split_once('"') else {
                return Err(BadTable::OpenQuote { line: self.line });
            };
            field.push_str(text);
            self.line += text.matches('\n').count();
            let Some(rest) = rest.strip_prefix('"') else {
                self.rest = rest.trim_start_matches([' ', '\t', '\r']);
                break;
            };
            self.rest = rest;
            field.push('"');
        }
        if self.rest.is_empty() || self.rest.starts_with([',', '\n']) {
            Ok(field)
        } else {
            Err(BadTable::AfterQuote { line: self.line })
        }
    }
}

fn json_lines(text: &str) -> Result<Vec<Row>, BadTable> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let row = |(number, line)| {
        serde_json::from_str(line).map_err(|error| BadTable::JsonLine { line: number + 1, error })
    };
    lines.map(row).collect()
}

fn rows(rows: &[Row]) -> Result<Table, BadTable> {
    let names: Vec<Box<str>> = match rows.first() {
        Some(Row(first)) => first.iter().map(|(name, _)| name.as_str().into()).collect(),
        None => return Err(BadTable::Empty),
    };
    let mut columns = vec![Vec::new(); names.len()];
    for (number, Row(row)) in (1..).zip(rows) {
        if let Some((column, _)) = row.iter().find(|(name, _)| !names.iter().any(|known| **known == **name)) {
            return Err(BadTable::Additional { row: number, column: column.clone() });
        }
        for (column, name) in columns.iter_mut().zip(&names) {
            let cell = row.iter().find(|(known, _)| **known == **name).map(|(_, cell)| cell);
            let cell = cell.ok_or_else(|| BadTable::Missing { row: number, column: name.to_string() })?;
            column.push(scalar(cell, number, name)?);
        }
    }
    table(names, columns)
}

fn scalar(cell: &Json, row: usize, column: &str) -> Result<Value, BadTable> {
    let not = |found| BadTable::NotScalar { row, column: column.to_owned(), found };
    match cell {
        Json::String(text) => Ok(Value::Text(text.as_str().into())),
        Json::Bool(truth) => Ok(Value::Text(truth.to_string().into())),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Ok(Value::Integer(integer)),
            (None, Some(float)) => Ok(Value::Float(float)),
            (None, None) => Err(not("a number out of range")),
        },
        Json::Null => Err(not("null")),
        Json::Array(_) => Err(not("a list")),
        Json::Object(_) => Err(not("an object")),
    }
}

/// An object with its keys in the order written.
struct Row(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cells;

        impl<'de> Visitor<'de> for Cells {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object: {\"column\": value, …}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut cells = Vec::new();
                while let Some(cell) = map.next_entry()? {
                    cells.push(cell);
                }
                Ok(Row(cells))
            }
        }

        deserializer.deserialize_map(Cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str, text: &str) -> String {
        match parse(path, text.as_bytes()) {
            Err(problem) => format!("error: {problem}"),
            Ok(table) => {
                let column = |(name, values): &(Box<str>, Arc<Values>)| {
                    let values: Vec<String> = (0..values.len()).map(|i| values.get(i).to_string()).collect();
                    format!("{name}={}", values.join("|"))
                };
                table.columns.iter().map(column).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn csv_as_in_the_rfc() {
        for (text, expected) in [
            ("a,b\n1,x\n2,y\n", "a=1|2 b=x|y"),
            ("\u{feff}b , a\r\n\"x, \"\"y\"\"\",2\r\n\r\n\"two\nlines\" ,3", "b=x, \"y\"|two\nlines a=2|3"),
            ("a\n\"\"\n", "a="),
            ("a,b\n1\n", "error: line 2 has 1 fields, but the header has 2"),
            ("a,a\n1,2\n", "error: two columns are named `a`"),
            ("a,\n1,2\n", "error: column 2 has no name"),
            ("a\n\"x\n", "error: line 2: a quoted field does not end"),
            ("a\n\"x\"y\n", "error: line 2: text follows a closing quote"),
            ("a;b\n1;2\n", "error: columns are separated by commas, and its header has only one: `a;b`"),
            ("a\tb\n1\t2\n", "error: columns are separated by commas, and its header has only one: `a b`"),
            ("a\n", "error: it has no rows"),
            ("", "error: it has no rows"),
        ] {
            assert_eq!(shown("t.csv", text), expected, "{text:?}");
        }
    }

    #[test]
    fn json_and_json_lines() {
        for (path, text, expected) in [
            ("t.json", r#"[{"z": 1, "a": "x"}, {"a": 2.5, "z": true}]"#, "z=1|true a=x|2.5"),
            ("t.jsonl", "{\"a\": 1}\n\n{\"a\": \"1\"}\n", "a=1|1"),
            ("t.json", "[]", "error: it has no rows"),
            ("t.json", r#"[{"a": 1}, {}]"#, "error: row 2 has no `a`"),
            (
                "t.json",
                r#"[{"a": 1}, {"a": 1, "b": 2}]"#,
                "error: row 2 has a `b` that the first row has not",
            ),
            ("t.json", r#"[{"a": null}]"#, "error: row 1: `a` is null, not a number or a string"),
            ("t.json", r#"[{"a": 1, "a": 2}]"#, "error: two columns are named `a`"),
            ("t.txt", "a", "error: its name ends neither in .csv nor in .json or .jsonl"),
        ] {
            assert_eq!(shown(path, text), expected, "{text}");
        }
        assert!(shown("t.json", "{").starts_with("error: "));
        assert!(shown("t.jsonl", "{\"a\":1}\n[]").starts_with("error: line 2: "));
        assert!(parse("t.csv", b"a\n\xff").is_err());
    }
}
