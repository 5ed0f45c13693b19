//! From columns to our types. A value that no version of windlass writes is a conversion error, which the store reports
//! as damage.

use crate::Error;
use crate::db::Row;
use crate::error::Fault;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use windlass_types::work::{Stdio, StdioMode};
use windlass_types::{Bytes, JobStatus, Timestamp};

pub(crate) fn status(row: &Row<'_>, index: usize) -> Result<JobStatus, Fault> {
    let code: u8 = row.get(index)?;
    JobStatus::from_code(code).ok_or_else(|| row.wrong(index, format!("{code}, which is no state")))
}

pub(crate) fn flag(row: &Row<'_>, index: usize) -> Result<bool, Fault> {
    Ok(row.get::<i64>(index)? != 0)
}

pub(crate) fn time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, Fault> {
    Ok(row.get::<Option<i64>>(index)?.map(Timestamp))
}

pub(crate) fn size(row: &Row<'_>, index: usize) -> Result<Option<Bytes>, Fault> {
    Ok(row.get::<Option<i64>>(index)?.map(|n| Bytes(n.unsigned_abs())))
}

pub(crate) fn duration(row: &Row<'_>, index: usize) -> Result<Option<Duration>, Fault> {
    Ok(row.get::<Option<i64>>(index)?.map(|n| Duration::from_micros(n.unsigned_abs())))
}

/// NULL is no variables at all.
pub(crate) fn env(row: &Row<'_>, index: usize) -> Result<Vec<(String, String)>, Fault> {
    match row.text(index)? {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|e| row.wrong(index, e)),
    }
}

/// JSON; NULL is `None`.
pub(crate) fn json<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> Result<Option<T>, Fault> {
    let text = row.text(index)?;
    text.map(|text| serde_json::from_str(text)).transpose().map_err(|e| row.wrong(index, e))
}

/// JSON that every version of windlass writes.
pub(crate) fn required_json<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> Result<T, Fault> {
    serde_json::from_str(row.text(index)?.unwrap_or_default()).map_err(|e| row.wrong(index, e))
}

/// The way in. Fails for what JSON cannot say, such as a map whose keys are no strings.
pub(crate) fn json_text<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::OutOfRange { what: format!("a value ({e})") })
}

/// Two columns; NULL in both is `None`.
pub(crate) fn stdio(row: &Row<'_>, index: usize) -> Result<Option<Stdio>, Fault> {
    if row.text(index)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Stdio { mode: stdio_mode(row, index)?, delete_on_success: flag(row, index + 1)? }))
}

pub(crate) fn stdio_mode(row: &Row<'_>, index: usize) -> Result<StdioMode, Fault> {
    let name = row.text(index)?.unwrap_or_default();
    let known = STDIO_MODES.into_iter().find(|mode| stdio_name(*mode) == name);
    known.ok_or_else(|| row.wrong(index, format!("`{name}`, which is no stdio mode")))
}

pub(crate) fn stdio_name(mode: StdioMode) -> &'static str {
    match mode {
        StdioMode::Separate => "separate",
        StdioMode::Combined => "combined",
        StdioMode::None => "none",
        StdioMode::NoStdout => "no_stdout",
        StdioMode::NoStderr => "no_stderr",
    }
}

/// NULL for no variables at all.
pub(crate) fn env_text(env: &[(String, String)]) -> Option<String> {
    // Pairs of strings always have a JSON form.
    (!env.is_empty()).then(|| serde_json::to_string(env).unwrap_or_default())
}

const STDIO_MODES: [StdioMode; 5] =
    [StdioMode::Separate, StdioMode::Combined, StdioMode::None, StdioMode::NoStdout, StdioMode::NoStderr];
