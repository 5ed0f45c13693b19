//! The little that the books ask of a database: run a statement, read rows, send many statements at once, insert many
//! rows. SQLite and PostgreSQL implement it; everything in `books` is written once, over it.
//!
//! Values are numbers and texts: a flag is 0 or 1, a time a number, JSON is text. Statements number their values `$1..$n`.

use crate::error::Fault;
use crate::sql::common::From;
use std::borrow::Cow;
use windlass_types::WorkflowId;

/// A connection in a transaction.
///
/// Statements are prepared once per connection and kept, except by the methods that say `once`.
pub(crate) trait Db {
    /// Takes rows for one table; see [`Db::load_into`].
    type Loader<'d>: Loader
    where
        Self: 'd;

    /// How many jobs [`Db::insert_jobs`] likes to get at once.
    const JOBS_AT_ONCE: usize;
    /// How it best goes through the jobs of a workflow in the order of their ids, so that a page costs no more than a page.
    const IN_ORDER: From;

    /// How many rows it touched.
    fn execute_values(&self, sql: &str, values: &[Value<'_>]) -> Result<usize, Fault>;

    fn for_each_value(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault>;

    /// For a text that was put together and will hardly come again.
    fn for_each_once(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault>;

    /// The same question about each of these, whose number is its `$1`; `each` is told the place of the one that a row is
    /// about. In their order.
    fn for_each_of(
        &self,
        sql: &'static str,
        keys: &[i64],
        each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault>;

    /// The same where `$1` is a text.
    fn for_each_named(
        &self,
        sql: &'static str,
        keys: &[&str],
        each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault>;

    /// Sends all that `fill` gives without waiting for the answers in between, where that saves time. Each statement must
    /// touch a row: the first that does not, or that fails, undoes all of them and is told ([`Fault::Untouched`]).
    fn pipeline(&self, fill: impl FnOnce(&mut dyn Pipeline) -> Result<(), Fault>) -> Result<(), Fault>;

    /// For many rows of one table, which must not be read before [`Loader::finish`].
    fn load_into(&self, table: &'static Table) -> Result<Self::Loader<'_>, Fault>;

    /// Inserts jobs with ids one after the other. Says by name which one has a name that is taken.
    fn insert_jobs(&self, jobs: &JobChunk<'_>) -> Result<(), Fault>;

    fn execute<V: ToValue, const N: usize>(&self, sql: &str, values: [V; N]) -> Result<usize, Fault> {
        self.execute_values(sql, &values.each_ref().map(ToValue::to_value))
    }

    fn for_each<V: ToValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.for_each_value(sql, &values.each_ref().map(ToValue::to_value), each)
    }

    fn all<T, V: ToValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut rows = Vec::new();
        self.for_each(sql, values, |row| {
            rows.push(read(row)?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// The first row, if there is one.
    fn optional<T, V: ToValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut found = None;
        self.for_each(sql, values, |row| {
            if found.is_none() {
                found = Some(read(row)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The first row of a statement that always has one.
    fn one<T, V: ToValue, const N: usize>(
        &self,
        sql: &str,
        values: [V; N],
        read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.optional(sql, values, read)?
            .ok_or_else(|| Fault::damage("a row that is always there is missing"))
    }

    fn exists<V: ToValue, const N: usize>(&self, sql: &str, values: [V; N]) -> Result<bool, Fault> {
        Ok(self.optional(sql, values, |_| Ok(()))?.is_some())
    }
}

/// Statements on their way.
pub(crate) trait Pipeline {
    /// `number` is how the caller calls it, should it touch nothing.
    fn send(&mut self, number: usize, sql: &'static str, values: &[Value<'_>]) -> Result<(), Fault>;

    /// One of many that each do something to one row of their own and look at no other. What is done to the same `row` is
    /// done in the order in which it comes; `None` is a row that nobody else has to do with.
    fn send_row(
        &mut self,
        number: usize,
        row: Option<i64>,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<(), Fault>;

    /// Something has to be found. It is only looked for.
    fn require(&mut self, number: usize, sql: &'static str, values: &[Value<'_>]) -> Result<(), Fault>;

    /// Whether rows that come one by one are put together here.
    fn gathers(&self) -> bool;
}

/// Rows on their way into a table. What is wrong with one may be told at a later one, or at the end.
pub(crate) trait Loader {
    fn push(&mut self, values: &[Value<'_>]) -> Result<(), Fault>;
    fn finish(self) -> Result<(), Fault>;
}

/// Where rows go, and which of its columns they have.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
}

impl Table {
    /// The statement that inserts one row.
    pub(crate) fn insert(&self) -> String {
        let places: Vec<String> = (1..=self.columns.len()).map(|n| format!("${n}")).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, self.columns.join(", "), places.join(", "))
    }
}

/// Jobs that go into the table together.
pub(crate) struct JobChunk<'t> {
    pub(crate) workflow: WorkflowId,
    /// The id of the first of them.
    pub(crate) first_id: i64,
    /// Nobody came before them in this round.
    pub(crate) is_first: bool,
    pub(crate) jobs: &'t [JobValues],
    /// What their texts are stretches of.
    pub(crate) texts: &'t str,
}

/// A job on its way into the table.
pub(crate) struct JobValues {
    pub(crate) status: u8,
    pub(crate) priority: i32,
    pub(crate) cancel_on_blocking_job_failure: bool,
    pub(crate) requirements: Option<i64>,
    pub(crate) kind: Option<i64>,
    pub(crate) has_files: bool,
    pub(crate) reused_from: Option<i64>,
    pub(crate) name: Stretch,
    pub(crate) command: Stretch,
    pub(crate) invocation_script: Option<Stretch>,
    pub(crate) env: Option<Stretch>,
    pub(crate) params: Option<Stretch>,
    pub(crate) reused_work: Option<Stretch>,
}

pub(crate) type Stretch = std::ops::Range<usize>;

impl JobValues {
    pub(crate) const PLAIN_COLUMNS: [&'static str; 6] =
        ["status", "priority", "cancel_on_blocking_job_failure", "requirements_id", "name", "command"];
    pub(crate) const MORE_COLUMNS: [&'static str; 7] =
        ["kind_id", "has_files", "reused_from", "invocation_script", "env", "params", "reused_work"];

    /// Has nothing that most jobs of a large workflow lack. Saying so a million times would take time.
    pub(crate) fn is_plain(&self) -> bool {
        let Self { kind, has_files, reused_from, invocation_script, env, params, reused_work, .. } = self;
        kind.is_none()
            && !has_files
            && reused_from.is_none()
            && [invocation_script, env, params, reused_work].into_iter().all(Option::is_none)
    }

    /// In the order of [`Self::PLAIN_COLUMNS`].
    pub(crate) fn plain<'t>(&self, texts: &'t str) -> [Value<'t>; 6] {
        [
            Value::Int(self.status.into()),
            Value::Int(self.priority.into()),
            Value::Int(self.cancel_on_blocking_job_failure.into()),
            self.requirements.map_or(Value::Null, Value::Int),
            Value::Text(&texts[self.name.clone()]),
            Value::Text(&texts[self.command.clone()]),
        ]
    }

    /// In the order of [`Self::MORE_COLUMNS`].
    pub(crate) fn more<'t>(&self, texts: &'t str) -> [Value<'t>; 7] {
        let text = |stretch: &Option<Stretch>| {
            stretch.clone().map_or(Value::Null, |stretch| Value::Text(&texts[stretch]))
        };
        [
            self.kind.map_or(Value::Null, Value::Int),
            Value::Int(self.has_files.into()),
            self.reused_from.map_or(Value::Null, Value::Int),
            text(&self.invocation_script),
            text(&self.env),
            text(&self.params),
            text(&self.reused_work),
        ]
    }
}

/// What goes into a statement and what comes out of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'v> {
    Null,
    Int(i64),
    Real(f64),
    Text(&'v str),
}

/// PostgreSQL stores no NUL in a text, and a program may print one anywhere. In both databases its picture takes its place.
pub(crate) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&0) { text.replace('\0', "␀").into() } else { text.into() }
}

/// An array of [`Value`]s of what stands in the list. Texts are borrowed, numbers are not.
macro_rules! values {
    () => { [] as [$crate::db::Value<'static>; 0] };
    ($($value:expr),+ $(,)?) => {{
        use $crate::db::IntoValue as _;
        [$(($value).into_value()),+]
    }};
}
pub(crate) use values;

/// For [`values!`]: what is copied is taken, and of what is not a reference is.
pub(crate) trait IntoValue<'v> {
    fn into_value(self) -> Value<'v>;
}

macro_rules! copied {
    ($($copied:ty),*) => { $(
        impl<'v> IntoValue<'v> for $copied {
            fn into_value(self) -> Value<'v> {
                Value::Int(self.into())
            }
        }
    )* };
}
copied!(i64, i32, u32, u16, u8);

impl<'v> IntoValue<'v> for f64 {
    fn into_value(self) -> Value<'v> {
        Value::Real(self)
    }
}

impl<'v, T: ToValue + ?Sized> IntoValue<'v> for &'v T {
    fn into_value(self) -> Value<'v> {
        self.to_value()
    }
}

impl<'v, T: IntoValue<'v>> IntoValue<'v> for Option<T> {
    fn into_value(self) -> Value<'v> {
        self.map_or(Value::Null, T::into_value)
    }
}

pub(crate) trait ToValue {
    fn to_value(&self) -> Value<'_>;
}

impl ToValue for Value<'_> {
    fn to_value(&self) -> Value<'_> {
        *self
    }
}

macro_rules! whole_numbers {
    ($($number:ty),*) => { $(
        impl ToValue for $number {
            fn to_value(&self) -> Value<'_> {
                Value::Int((*self).into())
            }
        }

        impl Column for $number {
            fn from_value(value: Value<'_>) -> Option<Self> {
                match value {
                    Value::Int(n) => n.try_into().ok(),
                    _ => None,
                }
            }
        }
    )* };
}
whole_numbers!(i64, i32, u32, u16, u8);

impl ToValue for f64 {
    fn to_value(&self) -> Value<'_> {
        Value::Real(*self)
    }
}

impl ToValue for str {
    fn to_value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl ToValue for String {
    fn to_value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value<'_> {
        (**self).to_value()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

/// A type that a column can be read as.
pub(crate) trait Column: Sized {
    /// `None` if the value is not one of this type.
    fn from_value(value: Value<'_>) -> Option<Self>;
}

impl Column for bool {
    fn from_value(value: Value<'_>) -> Option<Self> {
        i64::from_value(value).map(|n| n != 0)
    }
}

impl Column for f64 {
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Real(x) => Some(x),
            Value::Int(n) => Some(n as Self),
            _ => None,
        }
    }
}

impl Column for String {
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.to_owned()),
            _ => None,
        }
    }
}

impl<T: Column> Column for Option<T> {
    fn from_value(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            some => T::from_value(some).map(Some),
        }
    }
}

/// One row of an answer.
pub(crate) enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r tokio_postgres::Row),
}

impl Row<'_> {
    pub(crate) fn value(&self, index: usize) -> Result<Value<'_>, Fault> {
        match self {
            Self::Sqlite(row) => crate::sqlite::session::column_value(row, index),
            Self::Postgres(row) => crate::postgres::column_value(row, index),
        }
    }

    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Sqlite(row) => row.as_ref().column_count(),
            Self::Postgres(row) => row.len(),
        }
    }

    pub(crate) fn get<T: Column>(&self, index: usize) -> Result<T, Fault> {
        let value = self.value(index)?;
        T::from_value(value).ok_or_else(|| self.wrong(index, format!("{value:?}")))
    }

    /// `None` is NULL.
    pub(crate) fn text(&self, index: usize) -> Result<Option<&str>, Fault> {
        match self.value(index)? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            other => Err(self.wrong(index, format!("{other:?}"))),
        }
    }

    /// A value that no version of windlass writes.
    pub(crate) fn wrong(&self, index: usize, what: impl std::fmt::Display) -> Fault {
        let column = match self {
            Self::Sqlite(row) => row.as_ref().column_name(index).unwrap_or("?").to_owned(),
            Self::Postgres(row) => row.columns().get(index).map_or("?", |column| column.name()).to_owned(),
        };
        Fault::damage(format!("column `{column}` holds {what}"))
    }
}
