//! What the server says while it runs, on standard error: for people, or as JSON, one object per line.

use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What is wrong with a log level.
#[derive(Debug, thiserror::Error)]
#[error("`{level}` is no log level: {detail}")]
pub struct LogLevelError {
    level: String,
    detail: String,
}

/// Begins to log, for the whole process. `level` is `info`, or more: `info,windlass_server=debug`.
pub fn start(format: LogFormat, level: &str) -> Result<(), LogLevelError> {
    let wrong = |detail: String| LogLevelError { level: level.to_owned(), detail };
    let filter = EnvFilter::try_new(level).map_err(|e| wrong(e.to_string()))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(false).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| wrong(e.to_string()))
}
