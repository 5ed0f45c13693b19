//! Many rows at once, by `COPY` in its text form.

use super::connect::wait;
use super::link::Link;
use crate::Error;
use crate::db::{JobChunk, JobValues, Loader, Value, without_nul};
use crate::error::Fault;
use futures_util::SinkExt as _;
use std::fmt::Write as _;
use std::io::Cursor;

/// Text that is worth sending.
const ENOUGH: usize = 256 * 1024;

/// Rows on their way into a table.
pub(crate) struct Copying<'d> {
    link: &'d Link,
    statement: String,
    text: String,
}

impl<'d> Copying<'d> {
    pub(super) fn new(link: &'d Link, table: &str, columns: &[&str]) -> Self {
        let statement = format!("COPY {table} ({}) FROM STDIN", columns.join(", "));
        Self { link, statement, text: String::new() }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.text.is_empty() {
            return Ok(());
        }
        let client = self.link.client()?;
        let text = Cursor::new(std::mem::take(&mut self.text).into_bytes());
        wait(async {
            let mut sink = Box::pin(client.copy_in(&self.statement).await?);
            sink.send(text).await?;
            sink.close().await
        })??;
        Ok(())
    }
}

impl Loader for Copying<'_> {
    fn push(&mut self, values: &[Value<'_>]) -> Result<(), Fault> {
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                self.text.push('\t');
            }
            write_value(&mut self.text, *value);
        }
        self.text.push('\n');
        if self.text.len() >= ENOUGH { self.flush() } else { Ok(()) }
    }

    fn finish(mut self) -> Result<(), Fault> {
        self.flush()
    }
}

fn write_value(text: &mut String, value: Value<'_>) {
    // Writing to a string cannot fail.
    let _infallible = match value {
        Value::Null => text.write_str("\\N"),
        Value::Int(n) => write!(text, "{n}"),
        Value::Real(x) => write!(text, "{x}"),
        Value::Text(value) => {
            write_text(text, &without_nul(value));
            Ok(())
        }
    };
}

/// What would end a value, a row or the data is escaped.
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

pub(super) fn insert_jobs(link: &Link, chunk: &JobChunk<'_>) -> Result<(), Fault> {
    let columns = [&["id", "workflow_id"][..], &JobValues::PLAIN_COLUMNS, &JobValues::MORE_COLUMNS].concat();
    let mut rows = Copying::new(link, "job", &columns);
    let mut copy = || -> Result<(), Fault> {
        for (id, job) in (chunk.first_id..).zip(chunk.jobs) {
            let ids = [Value::Int(id), Value::Int(chunk.workflow.0)];
            rows.push(&[&ids[..], &job.plain(chunk.texts), &job.more(chunk.texts)].concat())?;
        }
        rows.flush()
    };
    copy().map_err(|fault| match fault.taken_name() {
        Some(name) => Error::DuplicateJobName { name }.into(),
        None => fault,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut text = String::new();
        for value in [Value::Text("a\tb\\N\r\nc\0"), Value::Null, Value::Int(-3), Value::Real(0.5)] {
            write_value(&mut text, value);
            text.push('|');
        }
        assert_eq!(text, "a\\tb\\\\N\\r\\nc␀|\\N|-3|0.5|");
    }
}
