//! Tables of parameters beside a spec: CSV with a header, a JSON array of objects, or one JSON object per line.

use crate::parameters::{ParameterSequence, StoredParameterValue};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;
use std::fmt;
use std::sync::Arc;

/// Columns of equal length, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ParameterTable {
    pub(crate) columns: Vec<(Box<str>, Arc<ParameterSequence>)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ParameterTableError {
    #[error("it is not UTF-8")]
    NotText,
    #[error("its extension is not .csv, .json or .jsonl")]
    UnknownKind,
    #[error("columns are separated by commas, but its header has only one: `{0}`")]
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
    #[error("row {row} has a `{column}` that the first row does not have")]
    Additional { row: usize, column: String },
    #[error("row {row}: `{column}` is {found}, not a number or a string")]
    NotScalar { row: usize, column: String, found: &'static str },
    #[error("{0}")]
    Json(serde_json::Error),
    #[error("line {line}: {error}")]
    JsonLine { line: usize, error: serde_json::Error },
}

/// Parses a table; the extension of `path` selects the format.
pub(crate) fn parse_table(path: &str, bytes: &[u8]) -> Result<ParameterTable, ParameterTableError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ParameterTableError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match extension.as_deref() {
        Some("csv") => parse_csv(text),
        Some("json") => table_from_rows(
            &serde_json::from_str::<Vec<JsonTableRow>>(text).map_err(ParameterTableError::Json)?,
        ),
        Some("jsonl" | "ndjson") => table_from_rows(&parse_json_lines(text)?),
        _ => Err(ParameterTableError::UnknownKind),
    }
}

fn build_table(
    names: Vec<Box<str>>,
    columns: Vec<Vec<StoredParameterValue>>,
) -> Result<ParameterTable, ParameterTableError> {
    for (number, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err(ParameterTableError::UnnamedColumn(number + 1));
        }
        if names[..number].contains(name) {
            return Err(ParameterTableError::SameColumn(name.to_string()));
        }
    }
    if columns.first().is_none_or(Vec::is_empty) {
        return Err(ParameterTableError::Empty);
    }
    let values = columns.into_iter().map(|column| Arc::new(ParameterSequence::List(column)));
    Ok(ParameterTable { columns: names.into_iter().zip(values).collect() })
}

/// Quoting follows RFC 4180. Blank lines are skipped.
fn parse_csv(text: &str) -> Result<ParameterTable, ParameterTableError> {
    let mut reader = CsvReader { rest: text, line: 1 };
    let Some((_, header)) = reader.next_record()? else { return Err(ParameterTableError::Empty) };
    let names: Vec<Box<str>> = header.iter().map(|name| name.trim().into()).collect();
    if let [name] = &names[..]
        && name.contains([';', '\t'])
    {
        return Err(ParameterTableError::Separator(name.replace('\t', " ")));
    }
    let mut columns = vec![Vec::new(); names.len()];
    while let Some((line, fields)) = reader.next_record()? {
        if fields.len() != names.len() {
            return Err(ParameterTableError::FieldCount { line, found: fields.len(), wanted: names.len() });
        }
        for (column, field) in columns.iter_mut().zip(&fields) {
            column.push(StoredParameterValue::infer(field));
        }
    }
    build_table(names, columns)
}

struct CsvReader<'t> {
    rest: &'t str,
    line: usize,
}

impl CsvReader<'_> {
    /// Returns the fields of the next non-blank line, and its number.
    fn next_record(&mut self) -> Result<Option<(usize, Vec<String>)>, ParameterTableError> {
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
            fields.push(self.read_field()?);
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => return Ok(Some((line, fields))),
            }
        }
    }

    fn read_field(&mut self) -> Result<String, ParameterTableError> {
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
                return Err(ParameterTableError::OpenQuote { line: self.line });
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
            Err(ParameterTableError::AfterQuote { line: self.line })
        }
    }
}

fn parse_json_lines(text: &str) -> Result<Vec<JsonTableRow>, ParameterTableError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let row = |(number, line)| {
        serde_json::from_str(line).map_err(|error| ParameterTableError::JsonLine { line: number + 1, error })
    };
    lines.map(row).collect()
}

fn table_from_rows(rows: &[JsonTableRow]) -> Result<ParameterTable, ParameterTableError> {
    let names: Vec<Box<str>> = match rows.first() {
        Some(JsonTableRow(first)) => first.iter().map(|(name, _)| name.as_str().into()).collect(),
        None => return Err(ParameterTableError::Empty),
    };
    let mut columns = vec![Vec::new(); names.len()];
    for (number, JsonTableRow(row)) in (1..).zip(rows) {
        if let Some((column, _)) = row.iter().find(|(name, _)| !names.iter().any(|known| **known == **name)) {
            return Err(ParameterTableError::Additional { row: number, column: column.clone() });
        }
        for (column, name) in columns.iter_mut().zip(&names) {
            let cell = row.iter().find(|(known, _)| **known == **name).map(|(_, cell)| cell);
            let cell =
                cell.ok_or_else(|| ParameterTableError::Missing { row: number, column: name.to_string() })?;
            column.push(cell_value(cell, number, name)?);
        }
    }
    build_table(names, columns)
}

fn cell_value(cell: &Json, row: usize, column: &str) -> Result<StoredParameterValue, ParameterTableError> {
    let not = |found| ParameterTableError::NotScalar { row, column: column.to_owned(), found };
    match cell {
        Json::String(text) => Ok(StoredParameterValue::Text(text.as_str().into())),
        Json::Bool(truth) => Ok(StoredParameterValue::Text(truth.to_string().into())),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Ok(StoredParameterValue::Integer(integer)),
            (None, Some(float)) => Ok(StoredParameterValue::Float(float)),
            (None, None) => Err(not("a number out of range")),
        },
        Json::Null => Err(not("null")),
        Json::Array(_) => Err(not("a list")),
        Json::Object(_) => Err(not("an object")),
    }
}

/// An object with its keys in file order.
struct JsonTableRow(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for JsonTableRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cells;

        impl<'de> Visitor<'de> for Cells {
            type Value = JsonTableRow;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object: {\"column\": value, …}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonTableRow, A::Error> {
                let mut cells = Vec::new();
                while let Some(cell) = map.next_entry()? {
                    cells.push(cell);
                }
                Ok(JsonTableRow(cells))
            }
        }

        deserializer.deserialize_map(Cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str, text: &str) -> String {
        match parse_table(path, text.as_bytes()) {
            Err(problem) => format!("error: {problem}"),
            Ok(table) => {
                let column = |(name, values): &(Box<str>, Arc<ParameterSequence>)| {
                    let values: Vec<String> = (0..values.len()).map(|i| values.get(i).to_string()).collect();
                    format!("{name}={}", values.join("|"))
                };
                table.columns.iter().map(column).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn csv_is_parsed_as_in_the_rfc() {
        for (text, expected) in [
            ("a,b\n1,x\n2,y\n", "a=1|2 b=x|y"),
            ("\u{feff}b , a\r\n\"x, \"\"y\"\"\",2\r\n\r\n\"two\nlines\" ,3", "b=x, \"y\"|two\nlines a=2|3"),
            ("a\n\"\"\n", "a="),
            ("a,b\n1\n", "error: line 2 has 1 fields, but the header has 2"),
            ("a,a\n1,2\n", "error: two columns are named `a`"),
            ("a,\n1,2\n", "error: column 2 has no name"),
            ("a\n\"x\n", "error: line 2: a quoted field does not end"),
            ("a\n\"x\"y\n", "error: line 2: text follows a closing quote"),
            ("a;b\n1;2\n", "error: columns are separated by commas, but its header has only one: `a;b`"),
            ("a\tb\n1\t2\n", "error: columns are separated by commas, but its header has only one: `a b`"),
            ("a\n", "error: it has no rows"),
            ("", "error: it has no rows"),
        ] {
            assert_eq!(shown("t.csv", text), expected, "{text:?}");
        }
    }

    #[test]
    fn json_and_json_lines_are_parsed() {
        for (path, text, expected) in [
            ("t.json", r#"[{"z": 1, "a": "x"}, {"a": 2.5, "z": true}]"#, "z=1|true a=x|2.5"),
            ("t.jsonl", "{\"a\": 1}\n\n{\"a\": \"1\"}\n", "a=1|1"),
            ("t.json", "[]", "error: it has no rows"),
            ("t.json", r#"[{"a": 1}, {}]"#, "error: row 2 has no `a`"),
            (
                "t.json",
                r#"[{"a": 1}, {"a": 1, "b": 2}]"#,
                "error: row 2 has a `b` that the first row does not have",
            ),
            ("t.json", r#"[{"a": null}]"#, "error: row 1: `a` is null, not a number or a string"),
            ("t.json", r#"[{"a": 1, "a": 2}]"#, "error: two columns are named `a`"),
            ("t.txt", "a", "error: its extension is not .csv, .json or .jsonl"),
        ] {
            assert_eq!(shown(path, text), expected, "{text}");
        }
        assert!(shown("t.json", "{").starts_with("error: "));
        assert!(shown("t.jsonl", "{\"a\":1}\n[]").starts_with("error: line 2: "));
        assert!(parse_table("t.csv", b"a\n\xff").is_err());
    }
}
