//! Lists of any length: one description of the fields is used for the table, JSON and CSV, page by page.

use super::style::{TextPainter, TextTone};
use super::table::{TableCell, TableColumn, TextTable};
use super::{TerminalUi, csv, output_error, text};
use crate::args::OutputFormat;
use crate::args::list_options::ListPageArgs;
use crate::error::CliError;
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::io::{self, Write};
use std::time::Duration;
use windlass_types::{Bytes, JobStatus, Timestamp, format_duration};

/// Maximum number of rows in memory.
pub(crate) const PAGE_SIZE: u64 = 2000;

/// One value of a row, with a form for people and one for programs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldValue {
    Empty,
    Bool(bool),
    Number(i64),
    Real(f64),
    Text(String),
    /// One of a few words, optionally colored.
    Word(&'static str, Option<TextTone>),
    Time(Timestamp),
    Duration(Duration),
    Size(Bytes),
    Json(serde_json::Value),
}

impl FieldValue {
    fn to_cell(&self) -> TableCell {
        match self {
            Self::Empty => TableCell::optional(None::<&str>),
            Self::Bool(flag) => TableCell::new(if *flag { "yes" } else { "no" }),
            Self::Number(number) => TableCell::new(number.to_string()),
            Self::Real(number) => TableCell::new(format!("{number:.1}")),
            Self::Text(text) => TableCell::new(text),
            Self::Word(word, tone) => TableCell::with_tone(word, *tone),
            Self::Time(at) => TableCell::new(text::render_time(*at)),
            Self::Duration(span) => TableCell::new(format_duration(*span)),
            Self::Size(size) => TableCell::new(size.to_string()),
            Self::Json(value) => TableCell::new(value.to_string()),
        }
    }

    /// For programs: plain numbers, seconds, bytes, RFC 3339; empty for missing values.
    fn to_plain_text(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Bool(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Word(word, _) => (*word).to_owned(),
            Self::Time(at) => at.to_string(),
            Self::Duration(span) => span.as_secs_f64().to_string(),
            Self::Size(size) => size.0.to_string(),
            Self::Json(value) => value.to_string(),
        }
    }

    /// Missing values are sorted last.
    fn compare_values(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Empty, Self::Empty) => Ordering::Equal,
            (Self::Empty, _) => Ordering::Greater,
            (_, Self::Empty) => Ordering::Less,
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Real(a), Self::Real(b)) => a.total_cmp(b),
            (Self::Time(a), Self::Time(b)) => a.cmp(b),
            (Self::Duration(a), Self::Duration(b)) => a.cmp(b),
            (Self::Size(a), Self::Size(b)) => a.cmp(b),
            (a, b) => a.to_plain_text().cmp(&b.to_plain_text()),
        }
    }
}

impl Serialize for FieldValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Empty => serializer.serialize_none(),
            Self::Bool(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Real(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Word(word, _) => serializer.serialize_str(word),
            Self::Time(at) => at.serialize(serializer),
            Self::Duration(span) => serializer.serialize_f64(span.as_secs_f64()),
            Self::Size(size) => serializer.serialize_u64(size.0),
            Self::Json(value) => value.serialize(serializer),
        }
    }
}

macro_rules! datum_from {
    ($($from:ty => |$value:ident| $datum:expr;)*) => {$(
        impl From<$from> for FieldValue {
            fn from($value: $from) -> Self {
                $datum
            }
        }
    )*};
}

datum_from! {
    bool => |flag| Self::Bool(flag);
    i64 => |number| Self::Number(number);
    i32 => |number| Self::Number(number.into());
    u32 => |number| Self::Number(number.into());
    u64 => |number| Self::Number(number as i64);
    f64 => |number| Self::Real(number);
    &str => |text| Self::Text(text.to_owned());
    &String => |text| Self::Text(text.clone());
    String => |text| Self::Text(text);
    JobStatus => |status| Self::Word(status.name(), TextTone::for_status(status));
    Timestamp => |at| Self::Time(at);
    Duration => |span| Self::Duration(span);
    Bytes => |size| Self::Size(size);
    serde_json::Value => |value| Self::Json(value);
}

impl FieldValue {
    /// A time as text from a server.
    pub(crate) fn parse_time(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.to_owned()), Self::Time)
    }
}

impl<T: Into<Self>> From<Option<T>> for FieldValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

/// One field of the rows of a list.
pub(crate) struct ListField<T: 'static> {
    /// Name in JSON and CSV; `None`: only in the table.
    name: Option<&'static str>,
    get: fn(&T) -> FieldValue,
    /// Column in the table; `None`: only in JSON and CSV.
    column: Option<TableColumn>,
}

impl<T> ListField<T> {
    pub(crate) const fn new(name: &'static str, get: fn(&T) -> FieldValue) -> Self {
        Self { name: Some(name), get, column: None }
    }

    /// Only in the table.
    pub(crate) const fn table_only(column: TableColumn, get: fn(&T) -> FieldValue) -> Self {
        Self { name: None, get, column: Some(column) }
    }

    pub(crate) const fn column(mut self, column: TableColumn) -> Self {
        self.column = Some(column);
        self
    }

    /// Finds a field by its name or column heading.
    fn is_named(&self, name: &str) -> bool {
        self.name == Some(name)
            || self.column.as_ref().is_some_and(|c| c.heading().eq_ignore_ascii_case(name))
    }
}

/// The fields of a list, without excluded ones.
pub(crate) struct ListFields<T: 'static> {
    fields: Vec<&'static ListField<T>>,
}

impl<T> ListFields<T> {
    pub(crate) fn new(fields: &'static [ListField<T>]) -> Self {
        Self { fields: fields.iter().collect() }
    }

    pub(crate) fn with_fields(mut self, fields: &'static [ListField<T>]) -> Self {
        self.fields.extend(fields);
        self
    }

    /// Excludes the named fields.
    pub(crate) fn without_fields(mut self, names: &[String]) -> Result<Self, CliError> {
        for name in names {
            self.find_field(name)?;
            self.fields.retain(|field| !field.is_named(name));
        }
        Ok(self)
    }

    fn find_field(&self, name: &str) -> Result<&'static ListField<T>, CliError> {
        let found = self.fields.iter().copied().find(|field| field.is_named(name));
        found.ok_or_else(|| {
            let names = self.fields.iter().filter_map(|field| field.name);
            let error = CliError::user(format!("there is no field `{name}`"));
            match windlass_spec::nearest_name(name, names.clone()) {
                Some(near) => error.with_hint(format!("did you mean `{near}`?")),
                None => error.with_hint(format!("available: {}", names.collect::<Vec<_>>().join(", "))),
            }
        })
    }

    /// Prints the list as JSON, page by page until one is empty; returns the number of rows.
    pub(crate) fn write_json(
        &self,
        out: &mut impl Write,
        pages: impl FnMut() -> Result<Vec<T>, CliError>,
    ) -> Result<u64, CliError> {
        write_json_list(out, self, pages)
    }

    /// Applies sort order, offset and limit.
    pub(crate) fn sort_and_limit(&self, mut rows: Vec<T>, page: &ListPageArgs) -> Result<Vec<T>, CliError> {
        if let Some(name) = &page.sort_by {
            let field = self.find_field(name)?;
            rows.sort_by(|a, b| (field.get)(a).compare_values(&(field.get)(b)));
        }
        if page.reverse_sort {
            rows.reverse();
        }
        let at_most = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let rest = rows.into_iter().skip(at_most(page.offset));
        Ok(rest.take(page.limit.map_or(usize::MAX, at_most)).collect())
    }
}

impl TerminalUi {
    /// Prints a list that is in memory.
    pub(crate) fn print_list<T>(&self, listing: &ListFields<T>, rows: Vec<T>) -> Result<u64, CliError> {
        let mut rows = Some(rows);
        self.print_pages(listing, || Ok(rows.take().unwrap_or_default()))
    }

    /// Prints a list page by page until one is empty; returns the number of rows. An empty table is not
    /// printed.
    pub(crate) fn print_pages<T>(
        &self,
        listing: &ListFields<T>,
        pages: impl FnMut() -> Result<Vec<T>, CliError>,
    ) -> Result<u64, CliError> {
        let mut out = io::BufWriter::new(self.stdout.lock());
        let printed = match self.format {
            OutputFormat::Json => write_json_list(&mut out, listing, pages)?,
            OutputFormat::Csv => write_csv_list(&mut out, listing, pages)?,
            _ => write_table_list(&mut out, listing, pages, self.stdout_width(), self.stdout_painter())?,
        };
        out.flush().map_err(|e| output_error(&e))?;
        Ok(printed)
    }

    /// One row in full: a table of two columns, an object, or CSV with one row.
    pub(crate) fn print_record<T>(&self, listing: &ListFields<T>, row: T) -> Result<(), CliError> {
        match self.format {
            OutputFormat::Json => {
                self.print_json(&RecordView { fields: listing.fields.iter().copied(), row: &row })
            }
            OutputFormat::Csv => self.print_list(listing, vec![row]).map(|_| ()),
            _ => {
                let mut table =
                    TextTable::new(vec![TableColumn::text("FIELD"), TableColumn::flexible("VALUE")]);
                for field in listing.fields.iter().filter(|field| field.name.is_some()) {
                    table.add_row(vec![
                        TableCell::new(field.name.unwrap_or_default()),
                        (field.get)(&row).to_cell(),
                    ]);
                }
                self.print_table(&table)
            }
        }
    }
}

/// A row as an object.
pub(crate) struct RecordView<'a, T: 'static, F> {
    fields: F,
    row: &'a T,
}

impl<'a, T> RecordView<'a, T, std::slice::Iter<'static, ListField<T>>> {
    pub(crate) fn new(fields: &'static [ListField<T>], row: &'a T) -> Self {
        Self { fields: fields.iter(), row }
    }
}

impl<T, F: Iterator<Item = &'static ListField<T>> + Clone> Serialize for RecordView<'_, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in self.fields.clone() {
            if let Some(name) = field.name {
                map.serialize_entry(name, &(field.get)(self.row))?;
            }
        }
        map.end()
    }
}

fn write_json_list<T>(
    out: &mut impl Write,
    listing: &ListFields<T>,
    mut pages: impl FnMut() -> Result<Vec<T>, CliError>,
) -> Result<u64, CliError> {
    let failed = |e: serde_json::Error| output_error(&e.into());
    let mut printed = 0;
    {
        let mut serializer = serde_json::Serializer::pretty(text::JsonEscaper(&mut *out));
        let mut list = serializer.serialize_seq(None).map_err(failed)?;
        loop {
            let rows = pages()?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                list.serialize_element(&RecordView { fields: listing.fields.iter().copied(), row })
                    .map_err(failed)?;
            }
            printed += rows.len() as u64;
        }
        serde::ser::SerializeSeq::end(list).map_err(failed)?;
    }
    out.write_all(b"\n").map_err(|e| output_error(&e))?;
    Ok(printed)
}

fn write_csv_list<T>(
    out: &mut impl Write,
    listing: &ListFields<T>,
    mut pages: impl FnMut() -> Result<Vec<T>, CliError>,
) -> Result<u64, CliError> {
    let fields: Vec<&ListField<T>> =
        listing.fields.iter().copied().filter(|field| field.name.is_some()).collect();
    let names = fields.iter().map(|field| field.name.unwrap_or_default().to_owned());
    csv::write_row(out, names).map_err(|e| output_error(&e))?;
    let mut printed = 0;
    loop {
        let rows = pages()?;
        if rows.is_empty() {
            return Ok(printed);
        }
        for row in &rows {
            csv::write_row(out, fields.iter().map(|field| (field.get)(row).to_plain_text()))
                .map_err(|e| output_error(&e))?;
        }
        printed += rows.len() as u64;
    }
}

/// Columns are as wide as the first page needs, and grow later if needed; the heading is printed once.
fn write_table_list<T>(
    out: &mut impl Write,
    listing: &ListFields<T>,
    mut pages: impl FnMut() -> Result<Vec<T>, CliError>,
    width: Option<usize>,
    paint: TextPainter,
) -> Result<u64, CliError> {
    let fields: Vec<&ListField<T>> = listing.fields.iter().copied().filter(|f| f.column.is_some()).collect();
    let mut table = TextTable::new(fields.iter().filter_map(|field| field.column.clone()).collect());
    let mut printed = 0;
    loop {
        let rows = pages()?;
        if rows.is_empty() {
            return Ok(printed);
        }
        for row in &rows {
            table.add_row(fields.iter().map(|field| (field.get)(row).to_cell()).collect());
        }
        printed += rows.len() as u64;
        for line in table.render_page(width, paint) {
            writeln!(out, "{}", text::escape_control(&line)).map_err(|e| output_error(&e))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Row {
        id: i64,
        name: &'static str,
        memory: Option<Bytes>,
    }

    const FIELDS: &[ListField<Row>] = &[
        ListField::new("id", |row: &Row| row.id.into()).column(TableColumn::number("ID")),
        ListField::new("name", |row: &Row| row.name.into()).column(TableColumn::flexible("NAME")),
        ListField::new("memory_bytes", |row: &Row| row.memory.into()).column(TableColumn::number("MEMORY")),
        ListField::new("took_seconds", |_: &Row| Duration::from_millis(1500).into()),
        ListField::table_only(TableColumn::text("REMARK"), |_: &Row| "fine".into()),
    ];

    fn pages() -> impl FnMut() -> Result<Vec<Row>, CliError> {
        let mut pages = vec![
            vec![Row { id: 1000, name: "a much longer name", memory: None }],
            vec![Row { id: 1, name: "x, \"y\"", memory: Some(Bytes(3 << 20)) }],
        ];
        move || Ok(pages.pop().unwrap_or_default())
    }

    #[test]
    fn table_list_prints_heading_once() {
        let mut out = Vec::new();
        let printed =
            write_table_list(&mut out, &ListFields::new(FIELDS), pages(), None, TextPainter::PLAIN).unwrap();
        assert_eq!(printed, 2);
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "ID  NAME    MEMORY  REMARK",
                " 1  x, \"y\"   3 MiB  fine",
                "1000  a much longer name       -  fine",
            ]
        );
    }

    #[test]
    fn json_list_has_raw_values() {
        let mut out = Vec::new();
        write_json_list(&mut out, &ListFields::new(FIELDS), pages()).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            value[0],
            serde_json::json!({"id": 1, "name": "x, \"y\"", "memory_bytes": 3_145_728, "took_seconds": 1.5})
        );
        assert_eq!(value[1]["memory_bytes"], serde_json::Value::Null);
        assert_eq!(value.as_array().unwrap().len(), 2);
    }

    #[test]
    fn csv_quotes_special_characters() {
        let mut out = Vec::new();
        write_csv_list(&mut out, &ListFields::new(FIELDS), pages()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "id,name,memory_bytes,took_seconds\n1,\"x, \"\"y\"\"\",3145728,1.5\n1000,a much longer name,,1.5\n"
        );
    }

    #[test]
    fn list_rows_are_sorted_limited_and_columns_selected() {
        let rows =
            || vec![Row { id: 1, name: "b", memory: None }, Row { id: 2, name: "a", memory: Some(Bytes(1)) }];
        let listing = ListFields::new(FIELDS);
        let ids = |page: ListPageArgs| -> Vec<i64> {
            listing.sort_and_limit(rows(), &page).unwrap().iter().map(|row| row.id).collect()
        };
        assert_eq!(ids(ListPageArgs::default()), [1, 2]);
        assert_eq!(ids(ListPageArgs { sort_by: Some("name".into()), ..ListPageArgs::default() }), [2, 1]);
        assert_eq!(ids(ListPageArgs { sort_by: Some("MEMORY".into()), ..ListPageArgs::default() }), [2, 1]);
        assert_eq!(ids(ListPageArgs { reverse_sort: true, limit: Some(1), ..ListPageArgs::default() }), [2]);
        assert_eq!(ids(ListPageArgs { offset: 1, ..ListPageArgs::default() }), [2]);
        let wrong = ListPageArgs { sort_by: Some("nmae".into()), ..ListPageArgs::default() };
        assert_eq!(
            listing.sort_and_limit(rows(), &wrong).err().unwrap().hint.unwrap(),
            "did you mean `name`?"
        );
        let less = ListFields::new(FIELDS).without_fields(&["name".into(), "remark".into()]).unwrap();
        assert_eq!(less.fields.len(), 3);
        assert!(ListFields::new(FIELDS).without_fields(&["nothing".into()]).is_err());
    }
}
