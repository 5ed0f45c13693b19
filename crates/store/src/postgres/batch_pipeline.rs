//! Pipelined batches. Rows of the same statement are combined into one statement over arrays, because
//! PostgreSQL spends more time on receiving a statement than on changing a row.
//!
//! Only independent rows change their order. If a batch fails, it is rolled back and sent again row by row, so
//! that the error is about the first row that does not match.

use super::connect::block_on;
use super::connection::{PgConnection, await_result, poll_once};
use super::value::{OwnedSqlValue, SqlParameter};
use crate::db::{SqlValue, StatementPipeline};
use crate::error::SqlError;
use crate::sql::postgres as sql;
use std::collections::HashMap;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

pub(super) struct BatchPipeline<'l> {
    link: &'l PgConnection,
    groups: Vec<StatementGroup>,
    /// The groups that still accept rows.
    open_groups: HashMap<&'static str, usize>,
    /// The last group that changes a row.
    last_group_of_row: HashMap<i64, usize>,
    row_count: usize,
}

/// The rows of one statement.
struct StatementGroup {
    sql: &'static str,
    rows: Vec<QueuedRow>,
}

struct QueuedRow {
    sequence: usize,
    number: usize,
    values: Vec<OwnedSqlValue>,
}

/// A statement with its parameters, ready to be sent.
struct PreparedGroup<'g> {
    statement: Statement,
    rows: &'g [QueuedRow],
    is_many: bool,
}

impl<'l> BatchPipeline<'l> {
    pub(super) fn new(link: &'l PgConnection) -> Self {
        Self {
            link,
            groups: Vec::new(),
            open_groups: HashMap::new(),
            last_group_of_row: HashMap::new(),
            row_count: 0,
        }
    }

    fn push(&mut self, group: usize, number: usize, values: &[SqlValue<'_>]) {
        let values = values.iter().map(|value| OwnedSqlValue::from(*value)).collect();
        self.groups[group].rows.push(QueuedRow { sequence: self.row_count, number, values });
        self.row_count += 1;
    }

    fn start_group(&mut self, sql: &'static str) -> usize {
        self.groups.push(StatementGroup { sql, rows: Vec::new() });
        self.groups.len() - 1
    }

    pub(super) fn send_all(self) -> Result<(), SqlError> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let client = self.link.client()?;
        let letters = self.groups.iter().map(|group| group.prepare(self.link, &client));
        let outcome = self.send_groups(&client, &letters.collect::<Result<Vec<_>, _>>()?);
        let had_many = self.groups.iter().any(|group| group.rows.len() > 1);
        if outcome.is_ok() || self.link.is_connection_lost() || !had_many {
            return outcome;
        }
        let mut single = Vec::new();
        for group in &self.groups {
            let statement = self.link.prepare_cached(&client, group.sql)?;
            single.extend(group.rows.chunks(1).map(|rows| PreparedGroup {
                statement: statement.clone(),
                rows,
                is_many: false,
            }));
        }
        single.sort_by_key(|letter| letter.rows[0].sequence);
        self.send_groups(&client, &single)
    }

    /// Executes all of it, or nothing.
    fn send_groups(&self, client: &Client, letters: &[PreparedGroup<'_>]) -> Result<(), SqlError> {
        let outcome = block_on(send_prepared(client, letters))?;
        if outcome.is_err() && !self.link.is_connection_lost() {
            // Afterwards the transaction can be queried for the actual state.
            self.link.run_statement(sql::ROLLBACK_PIPELINE)?;
        }
        outcome
    }
}

impl StatementPipeline for BatchPipeline<'_> {
    fn batches_rows(&self) -> bool {
        true
    }

    /// Executed after everything sent before.
    fn send(&mut self, number: usize, sql: &'static str, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
        self.open_groups.clear();
        let group = self.start_group(sql);
        self.push(group, number, values);
        Ok(())
    }

    fn send_row(
        &mut self,
        number: usize,
        row: Option<i64>,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<(), SqlError> {
        let not_before = row.and_then(|row| self.last_group_of_row.get(&row)).map_or(0, |last| last + 1);
        let group = match self.open_groups.get(sql) {
            Some(&group) if group >= not_before => group,
            _ => self.start_group(sql),
        };
        self.open_groups.insert(sql, group);
        if let Some(row) = row {
            self.last_group_of_row.insert(row, group);
        }
        self.push(group, number, values);
        Ok(())
    }

    fn require(&mut self, number: usize, sql: &'static str, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
        self.send(number, sql, values)
    }
}

impl StatementGroup {
    fn prepare(&self, link: &PgConnection, client: &Client) -> Result<PreparedGroup<'_>, SqlError> {
        let many = if self.rows.len() > 1 { link.prepare_cached_for_many(client, self.sql)? } else { None };
        let is_many = many.is_some();
        let statement = many.map_or_else(|| link.prepare_cached(client, self.sql), Ok)?;
        Ok(PreparedGroup { statement, rows: &self.rows, is_many })
    }
}

impl PreparedGroup<'_> {
    /// Parameters to send: each column of all rows as an array, or the rows one after the other.
    fn statement_calls(&self) -> Vec<StatementCall<'_>> {
        if self.is_many {
            let column = |n: usize| self.rows.iter().map(|row| row.values[n].value()).collect();
            let parameters = (0..self.statement.params().len()).map(column).map(SqlParameter::Many).collect();
            return vec![StatementCall { number: self.rows[0].number, rows: self.rows.len(), parameters }];
        }
        let parts = self.rows.iter().map(|row| {
            let parameters = row.values.iter().map(|value| SqlParameter::One(value.value())).collect();
            StatementCall { number: row.number, rows: 1, parameters }
        });
        parts.collect()
    }
}

struct StatementCall<'r> {
    number: usize,
    /// Expected number of affected rows.
    rows: usize,
    parameters: Vec<SqlParameter<'r>>,
}

/// Sends everything, then reads the results in order and returns the first error.
async fn send_prepared(client: &Client, letters: &[PreparedGroup<'_>]) -> Result<(), SqlError> {
    let mut begin = Box::pin(client.batch_execute(sql::BEGIN_PIPELINE));
    let begun = poll_once(begin.as_mut()).await;
    let mut sent = Vec::with_capacity(letters.len());
    for letter in letters {
        for StatementCall { number, rows, parameters } in letter.statement_calls() {
            let mut future = Box::pin(client.execute_raw(&letter.statement, parameters));
            let answer = poll_once(future.as_mut()).await;
            sent.push((number, rows, future, answer));
        }
    }
    await_result(begin, begun).await?;
    let mut first = Ok(());
    for (number, rows, future, answer) in sent {
        let outcome = match await_result(future, answer).await {
            Ok(touched) if touched < rows as u64 => Err(SqlError::NoRowAffected(number)),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        first = first.and(outcome);
    }
    first
}

/// Rewrites a statement for one row to one for many rows, passed as arrays. `None` if it is neither a plain
/// `UPDATE` with a condition nor an `INSERT` of one row.
pub(super) fn rewrite_for_many_rows(sql: &str, types: &[Type]) -> Option<String> {
    let arrays: Option<Vec<String>> =
        (1..).zip(types).map(|(n, ty)| Some(format!("${n}::{}[]", array_type_name(ty)?))).collect();
    let names: Vec<String> = (1..=types.len()).map(|n| format!("c{n}")).collect();
    let rows = format!("FROM unnest({}) AS v({})", arrays?.join(", "), names.join(", "));
    let sql = sql.trim();
    if sql.starts_with("UPDATE ") {
        let (change, condition) = sql.split_once("WHERE ")?;
        return Some(format!(
            "{}{rows} WHERE {}",
            rewrite_placeholders(change),
            rewrite_placeholders(condition)
        ));
    }
    let (head, values) = sql.strip_prefix("INSERT ")?.split_once("VALUES (")?;
    let (values, conflict) = values.split_once(')')?;
    let is_plain = conflict.is_empty() || conflict.trim_start().starts_with("ON CONFLICT ");
    if values.contains('(') || !is_plain || conflict.contains('$') {
        return None;
    }
    // Without a condition, `ON` would be taken for that of a join.
    let conflict =
        if conflict.is_empty() { String::new() } else { format!(" WHERE true {}", conflict.trim()) };
    Some(format!("INSERT {head}SELECT {} {rows}{conflict}", rewrite_placeholders(values)))
}

/// Rewrites `$3` to `v.c3`.
fn rewrite_placeholders(sql: &str) -> String {
    sql.replace('$', "v.c")
}

fn array_type_name(ty: &Type) -> Option<&'static str> {
    match *ty {
        Type::INT8 => Some("bigint"),
        Type::FLOAT8 => Some("double precision"),
        Type::TEXT => Some("text"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_statement_is_rewritten_for_many_rows() {
        let update = "\n  UPDATE job SET status = $1 WHERE id = $2 AND name = $3";
        assert_eq!(
            rewrite_for_many_rows(update, &[Type::INT8, Type::INT8, Type::TEXT]).unwrap(),
            "UPDATE job SET status = v.c1 FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS v(c1, c2, c3) \
             WHERE id = v.c2 AND name = v.c3"
        );
        let insert = "INSERT INTO event (a, b, c) VALUES ($2, '', $1)";
        assert_eq!(
            rewrite_for_many_rows(insert, &[Type::FLOAT8, Type::INT8]).unwrap(),
            "INSERT INTO event (a, b, c) SELECT v.c2, '', v.c1 \
             FROM unnest($1::double precision[], $2::bigint[]) AS v(c1, c2)"
        );
    }

    #[test]
    fn other_statements_are_not_rewritten() {
        assert_eq!(rewrite_for_many_rows("SELECT 1 FROM run WHERE id = $1", &[Type::INT8]), None);
        assert_eq!(
            rewrite_for_many_rows(
                "INSERT INTO a (b) VALUES ($1) ON CONFLICT (b) DO UPDATE SET b = $1",
                &[Type::INT8]
            ),
            None
        );
        assert_eq!(
            rewrite_for_many_rows("INSERT INTO a (b) VALUES ($1), ($2)", &[Type::INT8, Type::INT8]),
            None
        );
        assert_eq!(rewrite_for_many_rows("UPDATE a SET b = $1 WHERE c = 1", &[Type::BYTEA]), None);
    }
}
