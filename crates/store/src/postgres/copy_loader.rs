//! Bulk loading of rows with `COPY` in text format.

use super::connect::block_on;
use super::connection::PgConnection;
use crate::StoreError;
use crate::db::{BulkLoader, JobChunk, JobValues, SqlValue, replace_nul};
use crate::error::SqlError;
use futures_util::SinkExt as _;
use std::fmt::Write as _;
use std::io::Cursor;

/// Buffer size from which text is sent.
const FLUSH_BYTES: usize = 256 * 1024;

/// Loads rows into a table.
pub(crate) struct CopyLoader<'d> {
    connection: &'d PgConnection,
    statement: String,
    text: String,
}

impl<'d> CopyLoader<'d> {
    pub(super) fn new(connection: &'d PgConnection, table: &str, columns: &[&str]) -> Self {
        let statement = format!("COPY {table} ({}) FROM STDIN", columns.join(", "));
        Self { connection, statement, text: String::new() }
    }

    fn flush(&mut self) -> Result<(), SqlError> {
        if self.text.is_empty() {
            return Ok(());
        }
        let client = self.connection.client()?;
        let text = Cursor::new(std::mem::take(&mut self.text).into_bytes());
        block_on(async {
            let mut sink = Box::pin(client.copy_in(&self.statement).await?);
            sink.send(text).await?;
            sink.close().await
        })??;
        Ok(())
    }
}

impl BulkLoader for CopyLoader<'_> {
    fn push(&mut self, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                self.text.push('\t');
            }
            write_value(&mut self.text, *value);
        }
        self.text.push('\n');
        if self.text.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    fn finish(mut self) -> Result<(), SqlError> {
        self.flush()
    }
}

fn write_value(text: &mut String, value: SqlValue<'_>) {
    // Writing to a string cannot fail.
    let _infallible = match value {
        SqlValue::Null => text.write_str("\\N"),
        SqlValue::Int(n) => write!(text, "{n}"),
        SqlValue::Real(x) => write!(text, "{x}"),
        SqlValue::Text(value) => {
            write_text(text, &replace_nul(value));
            Ok(())
        }
    };
}

/// Escapes characters that would end a value, a row or the data.
fn write_text(text: &mut String, mut value: &str) {
    while let Some(at) = value.find(['\\', '\t', '\n', '\r']) {
        text.push_str(&value[..at]);
        text.push_str(match value.as_bytes()[at] {
            b'\t' => "\\t",
            b'\n' => "\\n",
            b'\r' => "\\r",
            _ => "\\\\",
        });
        value = &value[at + 1..];
    }
    text.push_str(value);
}

pub(super) fn insert_jobs(link: &PgConnection, chunk: &JobChunk<'_>) -> Result<(), SqlError> {
    let columns = [&["id", "workflow_id"][..], &JobValues::PLAIN_COLUMNS, &JobValues::EXTRA_COLUMNS].concat();
    let mut rows = CopyLoader::new(link, "job", &columns);
    let mut copy = || -> Result<(), SqlError> {
        for (id, job) in (chunk.first_id..).zip(chunk.jobs) {
            let ids = [SqlValue::Int(id), SqlValue::Int(chunk.workflow.0)];
            rows.push(&[&ids[..], &job.plain_values(chunk.texts), &job.extra_values(chunk.texts)].concat())?;
        }
        rows.flush()
    };
    copy().map_err(|fault| match fault.duplicate_name() {
        Some(name) => StoreError::DuplicateJobName { name }.into(),
        None => fault,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut text = String::new();
        for value in
            [SqlValue::Text("a\tb\\N\r\nc\0"), SqlValue::Null, SqlValue::Int(-3), SqlValue::Real(0.5)]
        {
            write_value(&mut text, value);
            text.push('|');
        }
        assert_eq!(text, "a\\tb\\\\N\\r\\nc␀|\\N|-3|0.5|");
    }
}
