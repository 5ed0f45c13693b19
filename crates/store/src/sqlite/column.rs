//! From columns to our types. A value that no version of windlass writes is a conversion error, which the store reports
//! as damage.

use rusqlite::Row;
use rusqlite::types::Type;
use std::time::Duration;
use windlass_types::work::StdioMode;
use windlass_types::{Bytes, JobStatus, Timestamp};

pub(crate) fn status(row: &Row<'_>, index: usize) -> rusqlite::Result<JobStatus> {
    let code: u8 = row.get(index)?;
    JobStatus::from_code(code).ok_or(rusqlite::Error::IntegralValueOutOfRange(index, i64::from(code)))
}

pub(crate) fn flag(row: &Row<'_>, index: usize) -> rusqlite::Result<bool> {
    Ok(row.get::<_, i64>(index)? != 0)
}

pub(crate) fn time(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp))
}

pub(crate) fn size(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Bytes>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(|n| Bytes(n.unsigned_abs())))
}

pub(crate) fn duration(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Duration>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(|n| Duration::from_micros(n.unsigned_abs())))
}

/// NULL is no variables at all.
pub(crate) fn env(row: &Row<'_>, index: usize) -> rusqlite::Result<Vec<(String, String)>> {
    match row.get_ref(index)?.as_str_or_null()? {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|e| wrong(index, e)),
    }
}

pub(crate) fn stdio_mode(row: &Row<'_>, index: usize) -> rusqlite::Result<StdioMode> {
    let name = row.get_ref(index)?.as_str()?;
    let known = STDIO_MODES.into_iter().find(|mode| stdio_name(*mode) == name);
    known.ok_or_else(|| wrong(index, format!("`{name}` is no stdio mode")))
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

fn wrong(index: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, error.into())
}
