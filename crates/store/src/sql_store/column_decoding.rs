//! Decoding of columns. A value that no version of Windlass writes is a conversion error, which the store
//! reports as damage.

use crate::StoreError;
use crate::db::SqlRow;
use crate::error::SqlError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use windlass_types::worker_messages::{StdioMode, StdioSettings};
use windlass_types::{Bytes, JobOptions, JobStatus, Timestamp};

pub(crate) fn read_status(row: &SqlRow<'_>, index: usize) -> Result<JobStatus, SqlError> {
    let code: u8 = row.get(index)?;
    JobStatus::from_code(code).ok_or_else(|| row.conversion_error(index, format!("unknown job state {code}")))
}

pub(crate) fn read_flag(row: &SqlRow<'_>, index: usize) -> Result<bool, SqlError> {
    Ok(row.get::<i64>(index)? != 0)
}

pub(crate) fn read_time(row: &SqlRow<'_>, index: usize) -> Result<Option<Timestamp>, SqlError> {
    Ok(row.get::<Option<i64>>(index)?.map(Timestamp))
}

pub(crate) fn read_size(row: &SqlRow<'_>, index: usize) -> Result<Option<Bytes>, SqlError> {
    Ok(row.get::<Option<i64>>(index)?.map(|n| Bytes(n.unsigned_abs())))
}

pub(crate) fn read_duration(row: &SqlRow<'_>, index: usize) -> Result<Option<Duration>, SqlError> {
    Ok(row.get::<Option<i64>>(index)?.map(|n| Duration::from_micros(n.unsigned_abs())))
}

/// NULL is an empty list.
pub(crate) fn read_env(row: &SqlRow<'_>, index: usize) -> Result<Vec<(String, String)>, SqlError> {
    match row.get_text(index)? {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|e| row.conversion_error(index, e)),
    }
}

/// JSON; NULL is `None`.
pub(crate) fn read_json<T: DeserializeOwned>(row: &SqlRow<'_>, index: usize) -> Result<Option<T>, SqlError> {
    let text = row.get_text(index)?;
    text.map(|text| serde_json::from_str(text)).transpose().map_err(|e| row.conversion_error(index, e))
}

/// Required JSON.
pub(crate) fn read_required_json<T: DeserializeOwned>(row: &SqlRow<'_>, index: usize) -> Result<T, SqlError> {
    serde_json::from_str(row.get_text(index)?.unwrap_or_default()).map_err(|e| row.conversion_error(index, e))
}

/// Encodes a value. Fails for values without a JSON form, such as maps with keys that are not strings.
pub(crate) fn render_json<T: Serialize + ?Sized>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::OutOfRange { what: format!("a value ({e})") })
}

/// `None` if the job has none.
pub(crate) fn render_options(options: &JobOptions) -> Result<Option<String>, StoreError> {
    (*options != JobOptions::default()).then(|| render_json(options)).transpose()
}

/// Two columns; NULL in both is `None`.
pub(crate) fn read_stdio(row: &SqlRow<'_>, index: usize) -> Result<Option<StdioSettings>, SqlError> {
    if row.get_text(index)?.is_none() {
        return Ok(None);
    }
    Ok(Some(StdioSettings {
        mode: read_stdio_mode(row, index)?,
        delete_on_success: read_flag(row, index + 1)?,
    }))
}

pub(crate) fn read_stdio_mode(row: &SqlRow<'_>, index: usize) -> Result<StdioMode, SqlError> {
    let name = row.get_text(index)?.unwrap_or_default();
    let known = STDIO_MODES.into_iter().find(|mode| stdio_name(*mode) == name);
    known.ok_or_else(|| row.conversion_error(index, format!("unknown stdio mode `{name}`")))
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

/// NULL for an empty list.
pub(crate) fn render_env(env: &[(String, String)]) -> Option<String> {
    // Pairs of strings always have a JSON form.
    (!env.is_empty()).then(|| serde_json::to_string(env).unwrap_or_default())
}

const STDIO_MODES: [StdioMode; 5] =
    [StdioMode::Separate, StdioMode::Combined, StdioMode::None, StdioMode::NoStdout, StdioMode::NoStderr];
