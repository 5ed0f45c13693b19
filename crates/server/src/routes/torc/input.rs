//! Validation and conversion of client input, and formatting of amounts as in the contract.

use crate::error::{ApiError, ApiResult};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::worker_bounds::check_labels;
use windlass_types::{Bytes, Capacity, Resources, Timestamp, parse_duration};

/// Checks a name: not empty, and not too long.
pub(super) fn check_name(what: &str, name: &str) -> ApiResult<String> {
    const LONGEST: usize = 1024;
    match name {
        _ if name.trim().is_empty() => Err(ApiError::invalid(format!("{what} requires a name"))),
        _ if name.len() > LONGEST => {
            Err(ApiError::invalid(format!("the name of {what} exceeds {LONGEST} bytes")))
        }
        _ if name.contains('\0') => Err(ApiError::invalid(format!("the name of {what} contains a NUL"))),
        _ => Ok(name.to_owned()),
    }
}

/// Checks a text for a shell or a file system, which do not support NUL.
pub(super) fn check_text(what: &str, text: &str) -> ApiResult<String> {
    if text.contains('\0') {
        return Err(ApiError::invalid(format!("{what} contains a NUL")));
    }
    Ok(text.to_owned())
}

/// Converts a number to a smaller type.
pub(super) fn convert_number<T: TryFrom<i64>>(field: &str, value: i64) -> ApiResult<T> {
    T::try_from(value).map_err(|_| ApiError::invalid(format!("{field}: {value} is out of range")))
}

/// Checks the resources of a compute node against plausible limits.
pub(super) fn check_capacity(capacity: Capacity) -> ApiResult<Capacity> {
    capacity.check(&"compute node").map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(capacity)
}

pub(super) fn parse_memory(text: &str) -> ApiResult<Bytes> {
    text.parse().map_err(|error| ApiError::invalid(format!("memory: {error}")))
}

pub(super) fn parse_duration_field(field: &str, text: &str) -> ApiResult<Duration> {
    parse_duration(text).map_err(|error| ApiError::invalid(format!("{field}: {error}")))
}

pub(super) fn parse_time(field: &str, text: &str) -> ApiResult<Timestamp> {
    text.parse().map_err(|_| {
        ApiError::invalid(format!("{field}: `{text}` is not a time; example: 2026-01-31T12:00:00Z"))
    })
}

pub(super) fn parse_environment(env: Option<&BTreeMap<String, String>>) -> ApiResult<Vec<(String, String)>> {
    let mut checked = Vec::new();
    for (name, value) in env.into_iter().flatten() {
        if !is_variable_name(name) {
            return Err(ApiError::invalid(format!("env: `{name}` is not a valid variable name"))
                .with_hint("use letters, digits and underscores; not a digit first"));
        }
        checked.push((name.clone(), check_text("env", value)?));
    }
    Ok(checked)
}

fn is_variable_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Checks labels: without commas, because lists of them are comma-separated.
pub(super) fn parse_labels(labels: Option<&[String]>) -> ApiResult<Vec<String>> {
    let mut checked = Vec::new();
    for label in labels.into_iter().flatten() {
        let label = label.trim();
        if label.is_empty() || label.contains(|c: char| c == ',' || c.is_control()) {
            return Err(ApiError::invalid(format!(
                "labels: `{}` is not a valid label",
                label.escape_debug()
            )));
        }
        checked.push(label.to_owned());
    }
    checked.sort_unstable();
    checked.dedup();
    check_labels(&checked).map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(checked)
}

/// Splits a comma-separated list.
pub(super) fn parse_label_list(text: Option<&str>) -> ApiResult<Vec<String>> {
    let words: Vec<String> = text
        .unwrap_or("")
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    parse_labels(Some(&words))
}

/// Formats bytes with the largest unit that needs no fraction: `1m`, `4g`.
pub(super) fn render_memory(bytes: Bytes) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "t"), (30, "g"), (20, "m"), (10, "k")];
    let unit = UNITS.into_iter().find(|(shift, _)| bytes.0 > 0 && bytes.0.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.0.to_string(), |(shift, unit)| format!("{}{unit}", bytes.0 >> shift))
}

/// Formats a duration: `PT1H30M`.
pub(super) fn render_duration(duration: Duration) -> String {
    let total = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3600 % 24, total / 60 % 60, total % 60);
    let part = |n: u64, unit: &str| if n == 0 { String::new() } else { format!("{n}{unit}") };
    let time = [part(hours, "H"), part(minutes, "M"), part(seconds, "S")].concat();
    match (days, time.as_str()) {
        (0, "") => "PT0S".to_owned(),
        (days, "") => format!("P{days}D"),
        (days, time) => format!("P{}T{time}", part(days, "D")),
    }
}

/// Name of the default requirements that every workflow has in the contract.
pub(super) const DEFAULT_REQUIREMENTS: &str = "default";

pub(super) const DEFAULT_RESOURCES: Resources =
    Resources { cpus: 1, memory: Bytes(1 << 20), gpus: 0, nodes: 1, runtime: Some(Duration::from_mins(1)) };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_durations_round_trip() {
        for text in ["0", "1", "1023", "1k", "1m", "3m", "4g", "2t", "1025"] {
            assert_eq!(render_memory(parse_memory(text).unwrap()), text);
        }
        for text in ["PT0S", "PT1M", "PT1H30M", "P1D", "P1DT2H", "PT59S"] {
            assert_eq!(render_duration(parse_duration_field("runtime", text).unwrap()), text);
        }
        assert_eq!(render_duration(parse_duration_field("runtime", "P0DT1M").unwrap()), "PT1M");
    }

    #[test]
    fn labels_are_sorted_unique_and_bounded() {
        assert_eq!(parse_label_list(Some(" b, a,b,, ")).unwrap(), ["a", "b"]);
        assert_eq!(parse_label_list(None).unwrap(), [""; 0]);
        assert!(parse_labels(Some(&["a,b".to_owned()])).is_err());
        assert!(parse_labels(Some(&[" ".to_owned()])).is_err());
        assert!(parse_labels(Some(&["l".repeat(256)])).is_err());
        let many = |n: usize| (0..n).map(|label| label.to_string()).collect::<Vec<_>>();
        assert!(parse_labels(Some(&many(64))).is_ok() && parse_labels(Some(&many(65))).is_err());
    }

    #[test]
    fn variable_names_are_valid_in_shells() {
        for (name, is_good) in [("A", true), ("_a1", true), ("1A", false), ("A-B", false), ("", false)] {
            assert_eq!(is_variable_name(name), is_good, "{name}");
        }
    }
}
