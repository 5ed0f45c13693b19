//! How SQLite does what the books ask of a database.

use crate::Error;
use crate::db::{Db, JobChunk, Loader, Pipeline, Row, Table, ToValue, Value, values, without_nul};
use crate::error::Fault;
use crate::sql::common::{self as sql, From};
use crate::sql::sqlite::insert_jobs;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, ToSql};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Jobs that one statement inserts: many at once are faster, because the cursors stay where they are.
const ROWS_A_STATEMENT: usize = 64;

static INSERT_ONE: LazyLock<String> = LazyLock::new(|| insert_jobs(1, false));
static INSERT_MANY: LazyLock<String> = LazyLock::new(|| insert_jobs(ROWS_A_STATEMENT, false));
static INSERT_MANY_PLAIN: LazyLock<String> = LazyLock::new(|| insert_jobs(ROWS_A_STATEMENT, true));

impl Db for Connection {
    type Loader<'d> = Rows<'d>;

    const JOBS_AT_ONCE: usize = ROWS_A_STATEMENT;
    const IN_ORDER: From = From::Blocks;

    fn execute_values(&self, sql: &str, values: &[Value<'_>]) -> Result<usize, Fault> {
        execute(&mut *self.prepare_cached(sql)?, values)
    }

    fn for_each_value(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for_each(&mut *self.prepare_cached(sql)?, values, each)
    }

    fn for_each_once(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for_each(&mut self.prepare(sql)?, values, each)
    }

    fn for_each_of(
        &self,
        sql: &'static str,
        keys: &[i64],
        each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        one_by_one(self, sql, keys, each)
    }

    fn for_each_named(
        &self,
        sql: &'static str,
        keys: &[&str],
        each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        one_by_one(self, sql, keys, each)
    }

    /// Nobody is far away: each statement is run as it comes.
    fn pipeline(&self, fill: impl FnOnce(&mut dyn Pipeline) -> Result<(), Fault>) -> Result<(), Fault> {
        fill(&mut AtOnce(self))
    }

    fn load_into(&self, table: &'static Table) -> Result<Rows<'_>, Fault> {
        Ok(Rows(self.prepare(&table.insert())?))
    }

    fn insert_jobs(&self, chunk: &JobChunk<'_>) -> Result<(), Fault> {
        insert_chunk(self, chunk).or_else(|fault| Err(name_the_taken(self, chunk, fault)?))
    }
}

struct AtOnce<'c>(&'c Connection);

impl Pipeline for AtOnce<'_> {
    fn send(&mut self, number: usize, sql: &'static str, values: &[Value<'_>]) -> Result<(), Fault> {
        match self.0.execute_values(sql, values)? {
            0 => Err(Fault::Untouched(number)),
            _ => Ok(()),
        }
    }

    fn send_row(
        &mut self,
        number: usize,
        _row: Option<i64>,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<(), Fault> {
        self.send(number, sql, values)
    }

    fn require(&mut self, number: usize, sql: &'static str, values: &[Value<'_>]) -> Result<(), Fault> {
        let mut is_found = false;
        self.0.for_each_value(sql, values, |_| {
            is_found = true;
            Ok(())
        })?;
        if is_found { Ok(()) } else { Err(Fault::Untouched(number)) }
    }

    fn gathers(&self) -> bool {
        false
    }
}

/// Rows that go into a table one by one.
pub(crate) struct Rows<'d>(Statement<'d>);

impl Loader for Rows<'_> {
    fn push(&mut self, values: &[Value<'_>]) -> Result<(), Fault> {
        execute(&mut self.0, values).map(|_| ())
    }

    fn finish(self) -> Result<(), Fault> {
        Ok(())
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Null => ValueRef::Null,
            Self::Int(n) => ValueRef::Integer(n),
            Self::Real(x) => ValueRef::Real(x),
            Self::Text(text) => match without_nul(text) {
                Cow::Borrowed(text) => ValueRef::Text(text.as_bytes()),
                Cow::Owned(text) => return Ok(ToSqlOutput::from(text)),
            },
        }))
    }
}

fn bind(statement: &mut Statement<'_>, values: &[Value<'_>]) -> Result<(), Fault> {
    let wanted = statement.parameter_count();
    if wanted != values.len() {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), wanted).into());
    }
    for (index, value) in (1..).zip(values) {
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

/// Also of a statement that returns rows, which are then not looked at.
fn execute(statement: &mut Statement<'_>, values: &[Value<'_>]) -> Result<usize, Fault> {
    bind(statement, values)?;
    Ok(statement.raw_execute()?)
}

fn one_by_one(
    conn: &Connection,
    sql: &str,
    keys: &[impl ToValue],
    mut each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    for (place, key) in keys.iter().enumerate() {
        for_each(&mut statement, &[key.to_value()], |row| each(place, row))?;
    }
    Ok(())
}

fn for_each(
    statement: &mut Statement<'_>,
    values: &[Value<'_>],
    mut each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    bind(statement, values)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        each(&Row::Sqlite(row))?;
    }
    Ok(())
}

pub(crate) fn column_value<'r>(row: &'r rusqlite::Row<'_>, index: usize) -> Result<Value<'r>, Fault> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => Value::Int(n),
        ValueRef::Real(x) => Value::Real(x),
        text @ ValueRef::Text(_) => Value::Text(text.as_str().map_err(rusqlite::Error::from)?),
        ValueRef::Blob(_) => return Err(Fault::damage("a column holds bytes")),
    })
}

/// Gives the first job its id; SQLite then counts on, because nobody else can write meanwhile.
fn insert_chunk(conn: &Connection, chunk: &JobChunk<'_>) -> Result<(), Fault> {
    let (first, others) = match chunk.jobs {
        [first, others @ ..] if chunk.is_first => (Some(first), others),
        jobs => (None, jobs),
    };
    if let Some(first) = first {
        let id = [Value::Int(chunk.first_id)];
        let values =
            [&[Value::Int(chunk.workflow.0)][..], &first.plain(chunk.texts), &first.more(chunk.texts), &id];
        conn.execute_values(sql::INSERT_FIRST_JOB, &values.concat())?;
    }
    let are_plain = others.iter().all(crate::db::JobValues::is_plain);
    if others.len() < ROWS_A_STATEMENT {
        let mut insert = conn.prepare_cached(&INSERT_ONE)?;
        others.chunks(1).try_for_each(|job| insert_rows(&mut insert, chunk, job, false))?;
    } else {
        let text = if are_plain { &*INSERT_MANY_PLAIN } else { &*INSERT_MANY };
        insert_rows(&mut *conn.prepare_cached(text)?, chunk, others, are_plain)?;
    }
    let (last, expected) = (conn.last_insert_rowid(), chunk.first_id + chunk.jobs.len() as i64 - 1);
    if last == expected { Ok(()) } else { Err(Error::OutOfRange { what: format!("job id {last}") }.into()) }
}

fn insert_rows(
    statement: &mut Statement<'_>,
    chunk: &JobChunk<'_>,
    jobs: &[crate::db::JobValues],
    are_plain: bool,
) -> Result<(), Fault> {
    let mut parameters = 1..;
    let mut bind = |values: &[Value<'_>]| {
        let mut pairs = values.iter().zip(&mut parameters);
        pairs.try_for_each(|(value, index)| statement.raw_bind_parameter(index, value))
    };
    bind(&[Value::Int(chunk.workflow.0)])?;
    for job in jobs {
        bind(&job.plain(chunk.texts))?;
        if !are_plain {
            bind(&job.more(chunk.texts))?;
        }
    }
    statement.raw_execute()?;
    Ok(())
}

/// Finds the name that was refused because another job of the workflow has it. SQLite does not say which one it was,
/// but it went no further: it is the first row that is not there under its own id.
fn name_the_taken(conn: &Connection, chunk: &JobChunk<'_>, fault: Fault) -> Result<Fault, Fault> {
    if !fault.is_taken() {
        return Ok(fault);
    }
    for (id, job) in (chunk.first_id..).zip(chunk.jobs) {
        let name = &chunk.texts[job.name.clone()];
        let found: Option<i64> =
            conn.optional(sql::JOB_NAMED, values![chunk.workflow.0, name], |row| row.get(0))?;
        if found != Some(id) {
            return Ok(Error::DuplicateJobName { name: name.to_owned() }.into());
        }
    }
    Ok(fault)
}
