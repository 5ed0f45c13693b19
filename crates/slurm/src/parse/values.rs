//! Values that all commands write alike.

use windlass_types::Timestamp;

/// The forms of an absent value.
const EMPTY_VALUES: &[&str] = &["", "N/A", "(null)", "None", "Unknown", "NONE", "None assigned", "INVALID"];

/// A value, if there is one.
pub(super) fn parse_value(text: &str) -> Option<String> {
    let text = text.trim();
    (!EMPTY_VALUES.contains(&text)).then(|| text.to_owned())
}

/// A time like `2026-11-15T06:31:13`, in the time zone of the command's environment: UTC.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let text = parse_value(text)?;
    format!("{text}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_values_of_slurm_are_none() {
        for text in ["", " ", "N/A", "(null)", "None", "Unknown", "None assigned"] {
            assert_eq!((parse_value(text), parse_time(text)), (None, None), "{text:?}");
        }
        assert_eq!(parse_value(" n[1-2] ").as_deref(), Some("n[1-2]"));
        let midnight = "1970-01-02T00:00:00";
        assert_eq!(parse_time(midnight), Some(Timestamp(86_400_000_000)));
        assert_eq!(parse_time("tomorrow"), None);
    }
}
