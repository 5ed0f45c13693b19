//! The database interface of the store: execute a statement, read rows, pipeline statements, load many rows.
//! Implemented for SQLite and PostgreSQL; everything in `sql_store` is written once, on top of it.
//!
//! Values are numbers and texts: a flag is 0 or 1, a time a number, JSON is text. Statements number their
//! parameters `$1..$n`.

use crate::error::SqlError;
use crate::sql::common::RowLookup;
use std::borrow::Cow;
use windlass_types::WorkflowId;

/// A connection in a transaction.
///
/// Statements are prepared once per connection and cached, except by [`Self::for_each_unprepared`].
pub(crate) trait SqlConnection {
    /// Loads rows into one table; see [`Self::open_loader`].
    type Loader<'d>: BulkLoader
    where
        Self: 'd;

    /// Preferred batch size of [`SqlConnection::insert_jobs`].
    const JOBS_PER_INSERT: usize;
    /// The best way to page through the jobs of a workflow by id, so that the cost depends on the page only.
    const ORDERED_SCAN: RowLookup;

    /// Returns the number of affected rows.
    fn execute_values(&self, sql: &str, values: &[SqlValue<'_>]) -> Result<usize, SqlError>;

    fn query_each_value(
        &self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError>;

    /// For generated statements that are unlikely to be used again.
    fn for_each_unprepared(
        &self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError>;

    /// Executes the same query for each of these values of `$1`; `each` gets the index of the value that a row
    /// belongs to. In the order of the values.
    fn for_each_key(
        &self,
        sql: &'static str,
        keys: &[i64],
        each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError>;

    /// The same for text values of `$1`.
    fn for_each_text_key(
        &self,
        sql: &'static str,
        keys: &[&str],
        each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError>;

    /// Executes all statements that `fill` adds, pipelined where that saves time. Each statement must affect a
    /// row: the first that does not, or that fails, rolls back all of them and is reported
    /// ([`SqlError::NoRowAffected`]).
    fn pipeline(
        &self,
        fill: impl FnOnce(&mut dyn StatementPipeline) -> Result<(), SqlError>,
    ) -> Result<(), SqlError>;

    /// Loads many rows into one table, which must not be read before [`BulkLoader::finish`].
    fn open_loader(&self, table: &'static BulkTable) -> Result<Self::Loader<'_>, SqlError>;

    /// Inserts jobs with consecutive ids. Reports the name of a job whose name is taken.
    fn insert_jobs(&self, jobs: &JobChunk<'_>) -> Result<(), SqlError>;

    fn execute<V: ToSqlValue, const N: usize>(&self, sql: &str, values: [V; N]) -> Result<usize, SqlError> {
        self.execute_values(sql, &values.each_ref().map(ToSqlValue::to_value))
    }

    fn query_each<V: ToSqlValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.query_each_value(sql, &values.each_ref().map(ToSqlValue::to_value), each)
    }

    fn query_all<T, V: ToSqlValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        mut read: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let mut rows = Vec::new();
        self.query_each(sql, values, |row| {
            rows.push(read(row)?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Returns the first row, if there is one.
    fn query_optional<T, V: ToSqlValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        mut read: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<Option<T>, SqlError> {
        let mut found = None;
        self.query_each(sql, values, |row| {
            if found.is_none() {
                found = Some(read(row)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the first row of a query that always has one.
    fn query_one<T, V: ToSqlValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        read: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        self.query_optional(sql, values, read)?.ok_or_else(|| SqlError::damage("a required row is missing"))
    }

    fn exists<V: ToSqlValue, const N: usize>(&self, sql: &str, values: [V; N]) -> Result<bool, SqlError> {
        Ok(self.query_optional(sql, values, |_| Ok(()))?.is_some())
    }
}

/// Statements in a pipeline.
pub(crate) trait StatementPipeline {
    /// `number` identifies the statement to the caller if it affects no row.
    fn send(&mut self, number: usize, sql: &'static str, values: &[SqlValue<'_>]) -> Result<(), SqlError>;

    /// Adds a statement that writes one row of its own and reads no other. Statements for the same `row` are
    /// executed in the order in which they are added; `None` is a row that no other statement uses.
    fn send_row(
        &mut self,
        number: usize,
        row: Option<i64>,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<(), SqlError>;

    /// Adds a query that has to return a row. It has no other effect.
    fn require(&mut self, number: usize, sql: &'static str, values: &[SqlValue<'_>]) -> Result<(), SqlError>;

    /// Whether single rows are combined into larger statements here.
    fn batches_rows(&self) -> bool;
}

/// Loads rows into a table. An error of a row may be reported at a later row, or at the end.
pub(crate) trait BulkLoader {
    fn push(&mut self, values: &[SqlValue<'_>]) -> Result<(), SqlError>;
    fn finish(self) -> Result<(), SqlError>;
}

/// The table and columns that are loaded.
#[derive(Debug)]
pub(crate) struct BulkTable {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
}

impl BulkTable {
    /// Returns the statement that inserts one row.
    pub(crate) fn render_insert(&self) -> String {
        let places: Vec<String> = (1..=self.columns.len()).map(|n| format!("${n}")).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, self.columns.join(", "), places.join(", "))
    }
}

/// Jobs to insert together.
pub(crate) struct JobChunk<'t> {
    pub(crate) workflow: WorkflowId,
    /// Id of the first job.
    pub(crate) first_id: i64,
    /// Whether this is the first chunk of this load.
    pub(crate) is_first: bool,
    pub(crate) jobs: &'t [JobValues],
    /// The buffer that all texts are ranges of.
    pub(crate) texts: &'t str,
}

/// A job to insert.
pub(crate) struct JobValues {
    pub(crate) status: u8,
    pub(crate) priority: i32,
    pub(crate) cancel_on_blocking_job_failure: bool,
    pub(crate) requirements: Option<i64>,
    pub(crate) job_group: Option<i64>,
    pub(crate) has_files: bool,
    pub(crate) reused_from: Option<i64>,
    pub(crate) name: TextRange,
    pub(crate) command: TextRange,
    pub(crate) invocation_script: Option<TextRange>,
    pub(crate) env: Option<TextRange>,
    pub(crate) params: Option<TextRange>,
    pub(crate) reused_work: Option<TextRange>,
    pub(crate) options: Option<TextRange>,
}

pub(crate) type TextRange = std::ops::Range<usize>;

impl JobValues {
    pub(crate) const PLAIN_COLUMNS: [&'static str; 6] =
        ["status", "priority", "cancel_on_blocking_job_failure", "requirements_id", "name", "command"];
    pub(crate) const EXTRA_COLUMNS: [&'static str; 8] = [
        "job_group_id",
        "has_files",
        "reused_from",
        "invocation_script",
        "env",
        "params",
        "reused_work",
        "options",
    ];

    /// Whether the job has only the columns that most jobs of a large workflow have; a shorter statement saves
    /// time.
    pub(crate) fn is_plain(&self) -> bool {
        let Self {
            job_group,
            has_files,
            reused_from,
            invocation_script,
            env,
            params,
            reused_work,
            options,
            ..
        } = self;
        job_group.is_none()
            && !has_files
            && reused_from.is_none()
            && [invocation_script, env, params, reused_work, options].into_iter().all(Option::is_none)
    }

    /// In the order of [`Self::PLAIN_COLUMNS`].
    pub(crate) fn plain_values<'t>(&self, texts: &'t str) -> [SqlValue<'t>; 6] {
        [
            SqlValue::Int(self.status.into()),
            SqlValue::Int(self.priority.into()),
            SqlValue::Int(self.cancel_on_blocking_job_failure.into()),
            self.requirements.map_or(SqlValue::Null, SqlValue::Int),
            SqlValue::Text(&texts[self.name.clone()]),
            SqlValue::Text(&texts[self.command.clone()]),
        ]
    }

    /// In the order of [`Self::EXTRA_COLUMNS`].
    pub(crate) fn extra_values<'t>(&self, texts: &'t str) -> [SqlValue<'t>; 8] {
        let text = |stretch: &Option<TextRange>| {
            stretch.clone().map_or(SqlValue::Null, |stretch| SqlValue::Text(&texts[stretch]))
        };
        [
            self.job_group.map_or(SqlValue::Null, SqlValue::Int),
            SqlValue::Int(self.has_files.into()),
            self.reused_from.map_or(SqlValue::Null, SqlValue::Int),
            text(&self.invocation_script),
            text(&self.env),
            text(&self.params),
            text(&self.reused_work),
            text(&self.options),
        ]
    }
}

/// A parameter of a statement or a value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SqlValue<'v> {
    Null,
    Int(i64),
    Real(f64),
    Text(&'v str),
}

/// PostgreSQL cannot store NUL in a text, but program output may contain it. In both databases `␀` replaces it.
pub(crate) fn replace_nul(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&0) { text.replace('\0', "␀").into() } else { text.into() }
}

/// Makes an array of [`SqlValue`]s from a list. Texts are borrowed, numbers are copied.
macro_rules! values {
    () => { [] as [$crate::db::SqlValue<'static>; 0] };
    ($($value:expr),+ $(,)?) => {{
        use $crate::db::IntoSqlValue as _;
        [$(($value).into_value()),+]
    }};
}
pub(crate) use values;

/// For [`values!`]: converts copyable values by value and others by reference.
pub(crate) trait IntoSqlValue<'v> {
    fn into_value(self) -> SqlValue<'v>;
}

macro_rules! copied {
    ($($copied:ty),*) => { $(
        impl<'v> IntoSqlValue<'v> for $copied {
            fn into_value(self) -> SqlValue<'v> {
                SqlValue::Int(self.into())
            }
        }
    )* };
}
copied!(i64, i32, u32, u16, u8);

impl<'v> IntoSqlValue<'v> for f64 {
    fn into_value(self) -> SqlValue<'v> {
        SqlValue::Real(self)
    }
}

impl<'v, T: ToSqlValue + ?Sized> IntoSqlValue<'v> for &'v T {
    fn into_value(self) -> SqlValue<'v> {
        self.to_value()
    }
}

impl<'v, T: IntoSqlValue<'v>> IntoSqlValue<'v> for Option<T> {
    fn into_value(self) -> SqlValue<'v> {
        self.map_or(SqlValue::Null, T::into_value)
    }
}

pub(crate) trait ToSqlValue {
    fn to_value(&self) -> SqlValue<'_>;
}

impl ToSqlValue for SqlValue<'_> {
    fn to_value(&self) -> SqlValue<'_> {
        *self
    }
}

macro_rules! whole_numbers {
    ($($number:ty),*) => { $(
        impl ToSqlValue for $number {
            fn to_value(&self) -> SqlValue<'_> {
                SqlValue::Int((*self).into())
            }
        }

        impl FromSqlValue for $number {
            fn from_value(value: SqlValue<'_>) -> Option<Self> {
                match value {
                    SqlValue::Int(n) => n.try_into().ok(),
                    _ => None,
                }
            }
        }
    )* };
}
whole_numbers!(i64, i32, u32, u16, u8);

impl ToSqlValue for f64 {
    fn to_value(&self) -> SqlValue<'_> {
        SqlValue::Real(*self)
    }
}

impl ToSqlValue for str {
    fn to_value(&self) -> SqlValue<'_> {
        SqlValue::Text(self)
    }
}

impl ToSqlValue for String {
    fn to_value(&self) -> SqlValue<'_> {
        SqlValue::Text(self)
    }
}

impl<T: ToSqlValue + ?Sized> ToSqlValue for &T {
    fn to_value(&self) -> SqlValue<'_> {
        (**self).to_value()
    }
}

impl<T: ToSqlValue> ToSqlValue for Option<T> {
    fn to_value(&self) -> SqlValue<'_> {
        self.as_ref().map_or(SqlValue::Null, ToSqlValue::to_value)
    }
}

/// A type that a column can be decoded to.
pub(crate) trait FromSqlValue: Sized {
    /// `None` if the value has another type.
    fn from_value(value: SqlValue<'_>) -> Option<Self>;
}

impl FromSqlValue for bool {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        i64::from_value(value).map(|n| n != 0)
    }
}

impl FromSqlValue for f64 {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        match value {
            SqlValue::Real(x) => Some(x),
            SqlValue::Int(n) => Some(n as Self),
            _ => None,
        }
    }
}

impl FromSqlValue for String {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        match value {
            SqlValue::Text(text) => Some(text.to_owned()),
            _ => None,
        }
    }
}

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_value(value: SqlValue<'_>) -> Option<Self> {
        match value {
            SqlValue::Null => Some(None),
            some => T::from_value(some).map(Some),
        }
    }
}

/// One row of a result.
pub(crate) enum SqlRow<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r tokio_postgres::Row),
}

impl SqlRow<'_> {
    pub(crate) fn value(&self, index: usize) -> Result<SqlValue<'_>, SqlError> {
        match self {
            Self::Sqlite(row) => crate::sqlite::connection::column_value(row, index),
            Self::Postgres(row) => crate::postgres::column_value(row, index),
        }
    }

    pub(crate) fn column_count(&self) -> usize {
        match self {
            Self::Sqlite(row) => row.as_ref().column_count(),
            Self::Postgres(row) => row.len(),
        }
    }

    pub(crate) fn get<T: FromSqlValue>(&self, index: usize) -> Result<T, SqlError> {
        let value = self.value(index)?;
        T::from_value(value).ok_or_else(|| self.conversion_error(index, format!("{value:?}")))
    }

    /// `None` is NULL.
    pub(crate) fn get_text(&self, index: usize) -> Result<Option<&str>, SqlError> {
        match self.value(index)? {
            SqlValue::Null => Ok(None),
            SqlValue::Text(text) => Ok(Some(text)),
            other => Err(self.conversion_error(index, format!("{other:?}"))),
        }
    }

    /// An error for a value that no version of Windlass writes.
    pub(crate) fn conversion_error(&self, index: usize, what: impl std::fmt::Display) -> SqlError {
        let column = match self {
            Self::Sqlite(row) => row.as_ref().column_name(index).unwrap_or("?").to_owned(),
            Self::Postgres(row) => row.columns().get(index).map_or("?", |column| column.name()).to_owned(),
        };
        SqlError::damage(format!("column `{column}` holds {what}"))
    }
}
