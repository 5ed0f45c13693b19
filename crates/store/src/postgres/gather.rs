//! Statements that are sent together. Rows of one kind become one statement over arrays: PostgreSQL spends more time on
//! taking a statement than on changing a row.
//!
//! Only rows that have nothing to do with each other change their order. If anything is not as it should be, all of it is
//! undone and sent again row by row, so that what is told is about the first row that does not fit.

use super::connect::wait;
use super::link::{Link, finish, start};
use super::value::{Kept, Parameter};
use crate::db::{Pipeline, Value};
use crate::error::Fault;
use crate::sql::postgres as sql;
use std::collections::HashMap;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

pub(super) struct Gathered<'l> {
    link: &'l Link,
    groups: Vec<Group>,
    /// The groups that rows may still join.
    open: HashMap<&'static str, usize>,
    /// The last group in which something was done to a row.
    touched: HashMap<i64, usize>,
    arrived: usize,
}

/// What one statement is to do.
struct Group {
    sql: &'static str,
    rows: Vec<Waiting>,
}

struct Waiting {
    arrived: usize,
    number: usize,
    values: Vec<Kept>,
}

/// A statement with all that belongs to it, ready to be sent.
struct Letter<'g> {
    statement: Statement,
    rows: &'g [Waiting],
    is_many: bool,
}

impl<'l> Gathered<'l> {
    pub(super) fn new(link: &'l Link) -> Self {
        Self { link, groups: Vec::new(), open: HashMap::new(), touched: HashMap::new(), arrived: 0 }
    }

    fn push(&mut self, group: usize, number: usize, values: &[Value<'_>]) {
        let values = values.iter().map(|value| Kept::from(*value)).collect();
        self.groups[group].rows.push(Waiting { arrived: self.arrived, number, values });
        self.arrived += 1;
    }

    fn begin(&mut self, sql: &'static str) -> usize {
        self.groups.push(Group { sql, rows: Vec::new() });
        self.groups.len() - 1
    }

    pub(super) fn deliver(self) -> Result<(), Fault> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let client = self.link.client()?;
        let letters = self.groups.iter().map(|group| group.letter(self.link, &client));
        let outcome = self.post(&client, &letters.collect::<Result<Vec<_>, _>>()?);
        let had_many = self.groups.iter().any(|group| group.rows.len() > 1);
        if outcome.is_ok() || self.link.is_lost() || !had_many {
            return outcome;
        }
        let mut single = Vec::new();
        for group in &self.groups {
            let statement = self.link.prepared(&client, group.sql)?;
            single.extend(group.rows.chunks(1).map(|rows| Letter {
                statement: statement.clone(),
                rows,
                is_many: false,
            }));
        }
        single.sort_by_key(|letter| letter.rows[0].arrived);
        self.post(&client, &single)
    }

    /// All of it, or nothing.
    fn post(&self, client: &Client, letters: &[Letter<'_>]) -> Result<(), Fault> {
        let outcome = wait(send(client, letters))?;
        if outcome.is_err() && !self.link.is_lost() {
            // After this the transaction can be asked what it found instead.
            self.link.run(sql::UNDO_PIPELINE)?;
        }
        outcome
    }
}

impl Pipeline for Gathered<'_> {
    fn gathers(&self) -> bool {
        true
    }

    /// Comes after everything that was sent before.
    fn send(&mut self, number: usize, sql: &'static str, values: &[Value<'_>]) -> Result<(), Fault> {
        self.open.clear();
        let group = self.begin(sql);
        self.push(group, number, values);
        Ok(())
    }

    fn send_row(
        &mut self,
        number: usize,
        row: Option<i64>,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<(), Fault> {
        let not_before = row.and_then(|row| self.touched.get(&row)).map_or(0, |last| last + 1);
        let group = match self.open.get(sql) {
            Some(&group) if group >= not_before => group,
            _ => self.begin(sql),
        };
        self.open.insert(sql, group);
        if let Some(row) = row {
            self.touched.insert(row, group);
        }
        self.push(group, number, values);
        Ok(())
    }

    fn require(&mut self, number: usize, sql: &'static str, values: &[Value<'_>]) -> Result<(), Fault> {
        self.send(number, sql, values)
    }
}

impl Group {
    fn letter(&self, link: &Link, client: &Client) -> Result<Letter<'_>, Fault> {
        let many = if self.rows.len() > 1 { link.prepared_for_many(client, self.sql)? } else { None };
        let is_many = many.is_some();
        let statement = many.map_or_else(|| link.prepared(client, self.sql), Ok)?;
        Ok(Letter { statement, rows: &self.rows, is_many })
    }
}

impl Letter<'_> {
    /// What is sent at once: each value of all rows as an array, or the rows one after the other.
    fn parts(&self) -> Vec<Part<'_>> {
        if self.is_many {
            let column = |n: usize| self.rows.iter().map(|row| row.values[n].value()).collect();
            let parameters = (0..self.statement.params().len()).map(column).map(Parameter::Many).collect();
            return vec![Part { number: self.rows[0].number, rows: self.rows.len(), parameters }];
        }
        let parts = self.rows.iter().map(|row| {
            let parameters = row.values.iter().map(|value| Parameter::One(value.value())).collect();
            Part { number: row.number, rows: 1, parameters }
        });
        parts.collect()
    }
}

struct Part<'r> {
    number: usize,
    /// So many have to be touched.
    rows: usize,
    parameters: Vec<Parameter<'r>>,
}

/// Sends all, then reads the answers in their order: the first that is not as it should be counts.
async fn send(client: &Client, letters: &[Letter<'_>]) -> Result<(), Fault> {
    let mut begin = Box::pin(client.batch_execute(sql::BEGIN_PIPELINE));
    let begun = start(begin.as_mut()).await;
    let mut sent = Vec::with_capacity(letters.len());
    for letter in letters {
        for Part { number, rows, parameters } in letter.parts() {
            let mut future = Box::pin(client.execute_raw(&letter.statement, parameters));
            let answer = start(future.as_mut()).await;
            sent.push((number, rows, future, answer));
        }
    }
    finish(begin, begun).await?;
    let mut first = Ok(());
    for (number, rows, future, answer) in sent {
        let outcome = match finish(future, answer).await {
            Ok(touched) if touched < rows as u64 => Err(Fault::Untouched(number)),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        first = first.and(outcome);
    }
    first
}

/// The statement that does for rows, given as arrays, what this one does for a row. `None` if it is neither a plain
/// `UPDATE` with a condition nor an `INSERT` of one row.
pub(super) fn for_many(sql: &str, types: &[Type]) -> Option<String> {
    let arrays: Option<Vec<String>> =
        (1..).zip(types).map(|(n, ty)| Some(format!("${n}::{}[]", type_name(ty)?))).collect();
    let names: Vec<String> = (1..=types.len()).map(|n| format!("c{n}")).collect();
    let rows = format!("FROM unnest({}) AS v({})", arrays?.join(", "), names.join(", "));
    let sql = sql.trim();
    if sql.starts_with("UPDATE ") {
        let (change, condition) = sql.split_once("WHERE ")?;
        return Some(format!("{}{rows} WHERE {}", of_rows(change), of_rows(condition)));
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
    Some(format!("INSERT {head}SELECT {} {rows}{conflict}", of_rows(values)))
}

/// `$3` becomes `v.c3`.
fn of_rows(sql: &str) -> String {
    sql.replace('$', "v.c")
}

fn type_name(ty: &Type) -> Option<&'static str> {
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
    fn a_statement_for_a_row_becomes_one_for_many() {
        let update = "\n  UPDATE job SET status = $1 WHERE id = $2 AND name = $3";
        assert_eq!(
            for_many(update, &[Type::INT8, Type::INT8, Type::TEXT]).unwrap(),
            "UPDATE job SET status = v.c1 FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS v(c1, c2, c3) \
             WHERE id = v.c2 AND name = v.c3"
        );
        let insert = "INSERT INTO event (a, b, c) VALUES ($2, '', $1)";
        assert_eq!(
            for_many(insert, &[Type::FLOAT8, Type::INT8]).unwrap(),
            "INSERT INTO event (a, b, c) SELECT v.c2, '', v.c1 \
             FROM unnest($1::double precision[], $2::bigint[]) AS v(c1, c2)"
        );
    }

    #[test]
    fn others_are_left_as_they_are() {
        assert_eq!(for_many("SELECT 1 FROM run WHERE id = $1", &[Type::INT8]), None);
        assert_eq!(
            for_many("INSERT INTO a (b) VALUES ($1) ON CONFLICT (b) DO UPDATE SET b = $1", &[Type::INT8]),
            None
        );
        assert_eq!(for_many("INSERT INTO a (b) VALUES ($1), ($2)", &[Type::INT8, Type::INT8]), None);
        assert_eq!(for_many("UPDATE a SET b = $1 WHERE c = 1", &[Type::BYTEA]), None);
    }
}
