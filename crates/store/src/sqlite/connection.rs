//! Implements the database interface of the store for SQLite.

use crate::StoreError;
use crate::db::{
    BulkLoader, BulkTable, JobChunk, SqlConnection, SqlRow, SqlValue, StatementPipeline, ToSqlValue,
    replace_nul, values,
};
use crate::error::SqlError;
use crate::sql::common::{self as sql, RowLookup};
use crate::sql::sqlite::insert_jobs;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, ToSql};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Number of jobs inserted by one statement: many at once are faster, because the cursors keep their position.
const ROWS_PER_STATEMENT: usize = 64;

static INSERT_ONE: LazyLock<String> = LazyLock::new(|| insert_jobs(1, false));
static INSERT_MANY: LazyLock<String> = LazyLock::new(|| insert_jobs(ROWS_PER_STATEMENT, false));
static INSERT_MANY_PLAIN: LazyLock<String> = LazyLock::new(|| insert_jobs(ROWS_PER_STATEMENT, true));

impl SqlConnection for Connection {
    type Loader<'d> = StatementLoader<'d>;

    const JOBS_PER_INSERT: usize = ROWS_PER_STATEMENT;
    const ORDERED_SCAN: RowLookup = RowLookup::Blocks;

    fn execute_values(&self, sql: &str, values: &[SqlValue<'_>]) -> Result<usize, SqlError> {
        execute(&mut *self.prepare_cached(sql)?, values)
    }

    fn query_each_value(
        &self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        for_each(&mut *self.prepare_cached(sql)?, values, each)
    }

    fn for_each_unprepared(
        &self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        for_each(&mut self.prepare(sql)?, values, each)
    }

    fn for_each_key(
        &self,
        sql: &'static str,
        keys: &[i64],
        each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        for_each_separately(self, sql, keys, each)
    }

    fn for_each_text_key(
        &self,
        sql: &'static str,
        keys: &[&str],
        each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        for_each_separately(self, sql, keys, each)
    }

    /// There are no round trips: each statement is executed immediately.
    fn pipeline(
        &self,
        fill: impl FnOnce(&mut dyn StatementPipeline) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        fill(&mut ImmediatePipeline(self))
    }

    fn open_loader(&self, table: &'static BulkTable) -> Result<StatementLoader<'_>, SqlError> {
        Ok(StatementLoader(self.prepare(&table.render_insert())?))
    }

    fn insert_jobs(&self, chunk: &JobChunk<'_>) -> Result<(), SqlError> {
        insert_job_chunk(self, chunk).or_else(|fault| Err(find_duplicate_name(self, chunk, fault)?))
    }
}

struct ImmediatePipeline<'c>(&'c Connection);

impl StatementPipeline for ImmediatePipeline<'_> {
    fn send(&mut self, number: usize, sql: &'static str, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
        match self.0.execute_values(sql, values)? {
            0 => Err(SqlError::NoRowAffected(number)),
            _ => Ok(()),
        }
    }

    fn send_row(
        &mut self,
        number: usize,
        _row: Option<i64>,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<(), SqlError> {
        self.send(number, sql, values)
    }

    fn require(&mut self, number: usize, sql: &'static str, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
        let mut is_found = false;
        self.0.query_each_value(sql, values, |_| {
            is_found = true;
            Ok(())
        })?;
        if is_found { Ok(()) } else { Err(SqlError::NoRowAffected(number)) }
    }

    fn batches_rows(&self) -> bool {
        false
    }
}

/// Inserts rows one by one.
pub(crate) struct StatementLoader<'d>(Statement<'d>);

impl BulkLoader for StatementLoader<'_> {
    fn push(&mut self, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
        execute(&mut self.0, values).map(|_| ())
    }

    fn finish(self) -> Result<(), SqlError> {
        Ok(())
    }
}

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Null => ValueRef::Null,
            Self::Int(n) => ValueRef::Integer(n),
            Self::Real(x) => ValueRef::Real(x),
            Self::Text(text) => match replace_nul(text) {
                Cow::Borrowed(text) => ValueRef::Text(text.as_bytes()),
                Cow::Owned(text) => return Ok(ToSqlOutput::from(text)),
            },
        }))
    }
}

fn bind(statement: &mut Statement<'_>, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
    let wanted = statement.parameter_count();
    if wanted != values.len() {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), wanted).into());
    }
    for (index, value) in (1..).zip(values) {
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

/// Also for statements that return rows, which are ignored.
fn execute(statement: &mut Statement<'_>, values: &[SqlValue<'_>]) -> Result<usize, SqlError> {
    bind(statement, values)?;
    Ok(statement.raw_execute()?)
}

fn for_each_separately(
    conn: &Connection,
    sql: &str,
    keys: &[impl ToSqlValue],
    mut each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let mut statement = conn.prepare_cached(sql)?;
    for (place, key) in keys.iter().enumerate() {
        for_each(&mut statement, &[key.to_value()], |row| each(place, row))?;
    }
    Ok(())
}

fn for_each(
    statement: &mut Statement<'_>,
    values: &[SqlValue<'_>],
    mut each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    bind(statement, values)?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        each(&SqlRow::Sqlite(row))?;
    }
    Ok(())
}

pub(crate) fn column_value<'r>(row: &'r rusqlite::Row<'_>, index: usize) -> Result<SqlValue<'r>, SqlError> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(n) => SqlValue::Int(n),
        ValueRef::Real(x) => SqlValue::Real(x),
        text @ ValueRef::Text(_) => SqlValue::Text(text.as_str().map_err(rusqlite::Error::from)?),
        ValueRef::Blob(_) => return Err(SqlError::damage("the column contains a blob")),
    })
}

/// Sets the id of the first job; SQLite assigns the following ones, because no other writer is active.
fn insert_job_chunk(conn: &Connection, chunk: &JobChunk<'_>) -> Result<(), SqlError> {
    let (first, others) = match chunk.jobs {
        [first, others @ ..] if chunk.is_first => (Some(first), others),
        jobs => (None, jobs),
    };
    if let Some(first) = first {
        let id = [SqlValue::Int(chunk.first_id)];
        let values = [
            &[SqlValue::Int(chunk.workflow.0)][..],
            &first.plain_values(chunk.texts),
            &first.extra_values(chunk.texts),
            &id,
        ];
        conn.execute_values(sql::INSERT_FIRST_JOB, &values.concat())?;
    }
    let are_plain = others.iter().all(crate::db::JobValues::is_plain);
    if others.len() < ROWS_PER_STATEMENT {
        let mut insert = conn.prepare_cached(&INSERT_ONE)?;
        others.chunks(1).try_for_each(|job| insert_rows(&mut insert, chunk, job, false))?;
    } else {
        let text = if are_plain { &*INSERT_MANY_PLAIN } else { &*INSERT_MANY };
        insert_rows(&mut *conn.prepare_cached(text)?, chunk, others, are_plain)?;
    }
    let (last, expected) = (conn.last_insert_rowid(), chunk.first_id + chunk.jobs.len() as i64 - 1);
    if last == expected {
        Ok(())
    } else {
        Err(StoreError::OutOfRange { what: format!("job id {last}") }.into())
    }
}

fn insert_rows(
    statement: &mut Statement<'_>,
    chunk: &JobChunk<'_>,
    jobs: &[crate::db::JobValues],
    are_plain: bool,
) -> Result<(), SqlError> {
    let mut parameters = 1..;
    let mut bind = |values: &[SqlValue<'_>]| {
        let mut pairs = values.iter().zip(&mut parameters);
        pairs.try_for_each(|(value, index)| statement.raw_bind_parameter(index, value))
    };
    bind(&[SqlValue::Int(chunk.workflow.0)])?;
    for job in jobs {
        bind(&job.plain_values(chunk.texts))?;
        if !are_plain {
            bind(&job.extra_values(chunk.texts))?;
        }
    }
    statement.raw_execute()?;
    Ok(())
}

/// Finds the duplicate job name. SQLite does not report it, but inserted all earlier rows: it is the first row
/// that does not exist under its own id.
fn find_duplicate_name(
    conn: &Connection,
    chunk: &JobChunk<'_>,
    fault: SqlError,
) -> Result<SqlError, SqlError> {
    if !fault.is_duplicate() {
        return Ok(fault);
    }
    for (id, job) in (chunk.first_id..).zip(chunk.jobs) {
        let name = &chunk.texts[job.name.clone()];
        let found: Option<i64> =
            conn.query_optional(sql::JOB_NAMED, values![chunk.workflow.0, name], |row| row.get(0))?;
        if found != Some(id) {
            return Ok(StoreError::DuplicateJobName { name: name.to_owned() }.into());
        }
    }
    Ok(fault)
}
