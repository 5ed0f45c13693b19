//! The log on standard error: as text, or as JSON, one object per line.

use std::str::FromStr as _;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerLogFormat {
    #[default]
    Text,
    Json,
}

/// An invalid log level.
#[derive(Debug, thiserror::Error)]
#[error("invalid log level `{level}`: {detail}")]
pub struct LogLevelError {
    level: String,
    detail: String,
}

/// Checks a level. A single word must be a level: the filter would take it for the name of a module, and log
/// nothing from all others.
pub fn check(level: &str) -> Result<(), LogLevelError> {
    parse_log_filter(level).map(drop)
}

fn parse_log_filter(level: &str) -> Result<EnvFilter, LogLevelError> {
    let wrong = |detail: String| LogLevelError { level: level.to_owned(), detail };
    let words = level.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    if let Some(word) = words.into_iter().find(|word| LevelFilter::from_str(word).is_err() || word.is_empty())
    {
        return Err(wrong(format!(
            "unknown level `{word}`; expected error, warn, info, debug, trace or off"
        )));
    }
    EnvFilter::try_new(level).map_err(|e| wrong(e.to_string()))
}

static LEVEL: OnceLock<String> = OnceLock::new();

/// The level with which logging was started.
pub fn level() -> Option<&'static str> {
    LEVEL.get().map(String::as_str)
}

/// Starts logging for the whole process. `level` is `info`, or a filter: `info,windlass_server=debug`.
pub fn start_logging(format: ServerLogFormat, level: &str) -> Result<(), LogLevelError> {
    let wrong = |detail: String| LogLevelError { level: level.to_owned(), detail };
    let filter = parse_log_filter(level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        ServerLogFormat::Text => builder.with_ansi(false).with_target(false).try_init(),
        ServerLogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| wrong(e.to_string()))?;
    LEVEL.get_or_init(|| level.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_log_levels_are_rejected() {
        for good in ["info", "INFO", "off", "info,windlass_server=debug", "windlass_server=trace"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["verbose", "", "info,loud", "info,windlass_server=loud"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
