//! Builds statements from conditions.

use crate::StoreError;
use crate::db::{SqlConnection, SqlRow, SqlValue, ToSqlValue};
use crate::error::SqlError;
use crate::model::SortBy;
use std::fmt::Write as _;

/// A statement to which conditions are added, with its values in the order of their placeholders.
pub(crate) struct SqlQuery {
    pub(crate) sql: String,
    values: Vec<Box<dyn ToSqlValue>>,
}

impl SqlQuery {
    pub(crate) fn new(base: &str, values: Vec<Box<dyn ToSqlValue>>) -> Self {
        Self { sql: base.to_owned(), values }
    }

    /// Appends `text`, in which each `?` stands for the next value.
    pub(crate) fn push(&mut self, text: &str, values: Vec<Box<dyn ToSqlValue>>) {
        let mut values = values.into_iter();
        for (i, part) in text.split('?').enumerate() {
            if i > 0 {
                self.values.extend(values.next());
                // Writing to a string cannot fail.
                let _infallible = write!(self.sql, "${}", self.values.len());
            }
            self.sql.push_str(part);
        }
    }

    pub(crate) fn push_page(&mut self, offset: u64, limit: Option<u64>) {
        let at_most = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let limit = limit.map_or(i64::MAX, at_most);
        self.push(" LIMIT ? OFFSET ?", vec![Box::new(limit), Box::new(at_most(offset))]);
    }

    /// Matches values that contain `part`, ignoring case. `and` is put before the condition.
    pub(crate) fn push_contains(&mut self, and: &str, column: &str, part: &str) {
        self.push_like(and, column, format!("%{}%", escape_like_pattern(part)));
    }

    /// Matches values against `pattern`, where `*` matches anything, ignoring case.
    pub(crate) fn push_pattern(&mut self, and: &str, column: &str, pattern: &str) {
        self.push_like(and, column, escape_like_pattern(pattern).replace('*', "%"));
    }

    fn push_like(&mut self, and: &str, column: &str, pattern: String) {
        self.push(&format!("{and}LOWER({column}) LIKE ? ESCAPE '\\'"), vec![Box::new(pattern)]);
    }

    /// Appends the requested order, one of `known` (name, expression); ties, and the default, are in the order
    /// of `id`.
    pub(crate) fn push_order(
        &mut self,
        sort: Option<&SortBy>,
        known: &[(&str, &str)],
        id: &str,
    ) -> Result<(), StoreError> {
        let Some(SortBy { field, descending }) = sort else {
            self.push(&format!(" ORDER BY {id}"), vec![]);
            return Ok(());
        };
        let found = known.iter().find(|(name, _)| name == field);
        let missing = || {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            StoreError::OutOfRange { what: format!("order by `{field}` (known: {})", names.join(", ")) }
        };
        let (_, expression) = found.ok_or_else(missing)?;
        let direction = if *descending { "DESC" } else { "ASC" };
        let by = match (*expression == id, descending) {
            // Never null, and found in this order.
            (true, _) => String::new(),
            // Null sorts first, which is not the default of all databases.
            (false, false) => format!("{expression} ASC NULLS FIRST, "),
            (false, true) => format!("{expression} DESC NULLS LAST, "),
        };
        self.push(&format!(" ORDER BY {by}{id} {direction}"), vec![]);
        Ok(())
    }

    /// Returns the number in the only row.
    pub(crate) fn read_count(&self, db: &impl SqlConnection) -> Result<u64, SqlError> {
        let counted = self.read_rows(db, |row| row.get::<i64>(0))?;
        Ok(counted.first().copied().unwrap_or_default().unsigned_abs())
    }

    pub(crate) fn read_rows<T>(
        &self,
        db: &impl SqlConnection,
        mut read: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let values: Vec<SqlValue<'_>> = self.values.iter().map(|value| value.to_value()).collect();
        let mut rows = Vec::new();
        db.for_each_unprepared(&self.sql, &values, |row| {
            rows.push(read(row)?);
            Ok(())
        })?;
        Ok(rows)
    }
}

/// Converts to lowercase and escapes the special characters of patterns.
fn escape_like_pattern(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for c in text.to_lowercase().chars() {
        if matches!(c, '%' | '_' | '\\') {
            literal.push('\\');
        }
        literal.push(c);
    }
    literal
}

/// Numbers are written literally: there may be more than the maximum number of placeholders.
pub(crate) fn render_id_list(numbers: impl Iterator<Item = i64>) -> String {
    numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
}
