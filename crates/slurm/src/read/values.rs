//! What is written alike by all of them.

use windlass_types::Timestamp;

/// What stands where there is nothing.
const NOTHING: &[&str] = &["", "N/A", "(null)", "None", "Unknown", "NONE", "None assigned", "INVALID"];

/// A value, if there is one.
pub(super) fn value(text: &str) -> Option<String> {
    let text = text.trim();
    (!NOTHING.contains(&text)).then(|| text.to_owned())
}

/// A time of `2026-11-15T06:31:13`, which is in the time zone that the command was called with: [`crate::calls`] says UTC.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    let text = value(text)?;
    format!("{text}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_many_names() {
        for text in ["", " ", "N/A", "(null)", "None", "Unknown", "None assigned"] {
            assert_eq!((value(text), time(text)), (None, None), "{text:?}");
        }
        assert_eq!(value(" n[1-2] ").as_deref(), Some("n[1-2]"));
        let midnight = "1970-01-02T00:00:00";
        assert_eq!(time(midnight), Some(Timestamp(86_400_000_000)));
        assert_eq!(time("tomorrow"), None);
    }
}
