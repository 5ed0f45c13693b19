//! Parsing and formatting of sizes and durations.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A size in bytes. Parsed with 1024-based units: `512`, `200m`, `4G`, `4GiB`, `1.5g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseAmountError {
    #[error("`{0}` is not a size; write for example 512, 200m, 4g or 1.5GiB (1024-based)")]
    Size(String),
    #[error("size `{0}` is too large")]
    SizeTooLarge(String),
    #[error("`{0}` is not a duration; write for example 90m, 1h30m, PT1H, 02:00:00 or 1-02:00:00")]
    Duration(String),
    #[error("duration `{0}` is too long")]
    DurationTooLong(String),
}

impl std::str::FromStr for Bytes {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseAmountError::Size(text.to_owned());
        let trimmed = text.trim();
        let digits_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits_end);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        let too_large = || ParseAmountError::SizeTooLarge(text.to_owned());
        if let Ok(whole) = number.parse::<u64>() {
            return whole
                .checked_mul(1 << shift)
                .filter(|n| i64::try_from(*n).is_ok())
                .map(Self)
                .ok_or_else(too_large);
        }
        let fraction: f64 = number.parse().map_err(|_| bad())?;
        if shift == 0 || !fraction.is_finite() {
            return Err(bad());
        }
        let bytes = fraction * (1u64 << shift) as f64;
        if bytes >= i64::MAX as f64 { Err(too_large()) } else { Ok(Self(bytes.round() as u64)) }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let text = match UNITS.into_iter().find(|(_, unit)| self.0 >= *unit) {
            None => format!("{} B", self.0),
            Some((name, unit)) if self.0.is_multiple_of(unit) => format!("{} {name}", self.0 / unit),
            Some((name, unit)) => format!("{:.1} {name}", self.0 as f64 / unit as f64),
        };
        f.pad(&text)
    }
}

/// Longer durations are mistakes: about 3,000 years.
const MAX_DURATION_SECONDS: f64 = 1e11;

/// Parses `PT1H30M`, `P1DT2H`, `90m`, `1h 30m`, `2.5h`, `90` (seconds), `MM:SS`, `HH:MM:SS` and Slurm's
/// `D-HH[:MM[:SS]]`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseAmountError> {
    let bad = || ParseAmountError::Duration(text.to_owned());
    let trimmed = text.trim();
    let seconds = match trimmed.strip_prefix(['P', 'p']) {
        Some(iso) => parse_iso_seconds(iso),
        None if trimmed.contains(':') || (trimmed.contains('-') && !trimmed.starts_with('-')) => {
            parse_slurm_seconds(trimmed)
        }
        None => trimmed.parse::<f64>().ok().or_else(|| parse_friendly_seconds(trimmed)),
    };
    let seconds = seconds.filter(|s| !s.is_nan() && *s >= 0.0).ok_or_else(bad)?;
    if seconds >= MAX_DURATION_SECONDS {
        return Err(ParseAmountError::DurationTooLong(text.to_owned()));
    }
    Ok(Duration::from_micros((seconds * 1e6).round() as u64))
}

/// Formats a duration with its two largest units: `1d 2h`, `1h 30m`, `45s`, `2.5s`, `120ms`.
pub fn format_duration(duration: Duration) -> String {
    let total = duration.as_secs();
    let (days, hours, minutes, seconds) = (total / 86400, total / 3600 % 24, total / 60 % 60, total % 60);
    let two = |a: u64, a_unit: &str, b: u64, b_unit: &str| match b {
        0 => format!("{a}{a_unit}"),
        _ => format!("{a}{a_unit} {b}{b_unit}"),
    };
    match () {
        () if days > 0 => two(days, "d", hours, "h"),
        () if hours > 0 => two(hours, "h", minutes, "m"),
        () if minutes > 0 => two(minutes, "m", seconds, "s"),
        () if total >= 10 => format!("{total}s"),
        () if total >= 1 => format!("{:.1}s", duration.as_secs_f64()),
        () => format!("{}ms", duration.as_millis()),
    }
}

/// Returns the shortest text that [`Bytes`] parses back to exactly this size: `3g`, `1152m`, `512k`, `77`.
pub fn format_exact_size(bytes: Bytes) -> String {
    let units = [("t", 40), ("g", 30), ("m", 20), ("k", 10)];
    match units.into_iter().find(|(_, shift)| bytes.0 > 0 && bytes.0.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes.0 >> shift),
        None => bytes.0.to_string(),
    }
}

/// Formats a duration as ISO 8601 with microsecond precision, which Torc reads too: `PT1H30M`, `PT0.5S`.
pub fn format_iso_duration(duration: Duration) -> String {
    let (total, micros) = (duration.as_secs(), duration.subsec_micros());
    let mut written = String::from("PT");
    for (count, unit) in [(total / 3600, "H"), (total / 60 % 60, "M")] {
        if count > 0 {
            written = written + &count.to_string() + unit;
        }
    }
    let seconds = total % 60;
    if micros > 0 {
        let fraction = format!("{micros:06}");
        return format!("{written}{seconds}.{}S", fraction.trim_end_matches('0'));
    }
    if seconds > 0 || total == 0 { format!("{written}{seconds}S") } else { written }
}

/// Sizes and durations in JSON as text: `"8g"`, `"PT10M"`. Plain numbers (bytes, seconds) are accepted too.
pub(crate) mod written {
    use serde::{Deserialize, Deserializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum WrittenAmount {
        Number(f64),
        Text(String),
    }

    fn read<'de, T, E, D>(
        deserializer: D,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, D::Error>
    where
        E: std::fmt::Display,
        D: Deserializer<'de>,
    {
        let text = match Option::<WrittenAmount>::deserialize(deserializer)? {
            None => return Ok(None),
            Some(WrittenAmount::Number(number)) => number.to_string(),
            Some(WrittenAmount::Text(text)) => text,
        };
        parse(&text).map(Some).map_err(D::Error::custom)
    }

    /// For fields with `#[serde(with = …)]`.
    macro_rules! written {
        ($name:ident: $is:ty, $parse:expr, $write:expr) => {
            pub(crate) mod $name {
                use serde::{Deserializer, Serialize, Serializer};

                #[expect(clippy::ref_option, reason = "serde passes a reference")]
                pub(crate) fn serialize<S: Serializer>(
                    amount: &Option<$is>,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    amount.map($write).serialize(serializer)
                }

                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Option<$is>, D::Error> {
                    super::read(deserializer, $parse)
                }
            }
        };
    }

    written!(size: crate::Bytes, str::parse::<crate::Bytes>, crate::format_exact_size);
    written!(duration: std::time::Duration, crate::parse_duration, crate::format_iso_duration);
}

fn parse_iso_seconds(after_p: &str) -> Option<f64> {
    let (date, time) = match after_p.split_once(['T', 't']) {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (after_p, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let days = parse_unit_sum(date, |unit| match unit {
        "w" => Some(7.0 * 86400.0),
        "d" => Some(86400.0),
        _ => None,
    })?;
    let rest = parse_unit_sum(time, |unit| match unit {
        "h" => Some(3600.0),
        "m" => Some(60.0),
        "s" => Some(1.0),
        _ => None,
    })?;
    Some(days + rest)
}

fn parse_friendly_seconds(text: &str) -> Option<f64> {
    if text.is_empty() {
        return None;
    }
    parse_unit_sum(text, |unit| match unit {
        "ms" => Some(0.001),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1.0),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60.0),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some(3600.0),
        "d" | "day" | "days" => Some(86400.0),
        "w" | "week" | "weeks" => Some(7.0 * 86400.0),
        _ => None,
    })
}

/// Sums `number unit` pairs; an empty text is zero, a number without a unit is an error.
fn parse_unit_sum(text: &str, scale: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let mut rest = text.trim();
    let mut sum = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let after = after.trim_start();
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, remaining) = after.split_at(unit_end);
        sum += number.parse::<f64>().ok()? * scale(&unit.to_ascii_lowercase())?;
        rest = remaining.trim_start();
    }
    Some(sum)
}

fn parse_slurm_seconds(text: &str) -> Option<f64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u32>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<u32> = clock.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let with_days = text.contains('-');
    let (h, m, s) = match (parts.as_slice(), with_days) {
        (&[h], true) => (h, 0, 0),
        (&[h, m], true) => (h, m, 0),
        (&[m, s], false) => (0, m, s),
        (&[h, m, s], _) => (h, m, s),
        _ => return None,
    };
    let seconds = u64::from(h) * 3600 + u64::from(m) * 60 + u64::from(s);
    Some((u64::from(days) * 86400 + seconds) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_units() {
        for (text, bytes) in [
            ("512", 512),
            ("1k", 1024),
            ("200m", 200 << 20),
            ("4G", 4 << 30),
            ("4GiB", 4 << 30),
            ("1.5g", 3 << 29),
            (" 2 TB ", 2 << 40),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "g", "-1g", "4x", "1.5", "1..5g", "four"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!(
            parse_duration("9999999999h"),
            Err(ParseAmountError::DurationTooLong("9999999999h".into()))
        );
        assert_eq!("9999999t".parse::<Bytes>(), Err(ParseAmountError::SizeTooLarge("9999999t".into())));
        assert_eq!(Bytes(200 << 20).to_string(), "200 MiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
    }

    #[test]
    fn durations_are_parsed_with_units() {
        for (text, seconds) in [
            ("PT1H", 3600.0),
            ("P0DT1M", 60.0),
            ("P1DT2H3M4S", 93784.0),
            ("pt0.5s", 0.5),
            ("90m", 5400.0),
            ("1h30m", 5400.0),
            ("1h 30m", 5400.0),
            ("2.5h", 9000.0),
            ("90", 90.0),
            ("120ms", 0.12),
            ("02:00:00", 7200.0),
            ("10:30", 630.0),
            ("1-02:00:00", 93600.0),
            ("2-12", 216_000.0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "P", "PT", "1x", "h", "-5m", "1-", "1:2:3:4", "inf", "1e300"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formatted_amounts_are_parsed_back() {
        for (bytes, text) in [(3 << 30, "3g"), (1152 << 20, "1152m"), (1 << 9, "512"), (77, "77"), (0, "0")] {
            assert_eq!(format_exact_size(Bytes(bytes)), text);
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for (micros, text) in [
            (5_400_000_000, "PT1H30M"),
            (10_000_000, "PT10S"),
            (93_600_000_000, "PT26H"),
            (60_500_000, "PT1M0.5S"),
            (1, "PT0.000001S"),
            (0, "PT0S"),
        ] {
            let duration = Duration::from_micros(micros);
            assert_eq!(format_iso_duration(duration), text);
            assert_eq!(parse_duration(text), Ok(duration));
        }
    }

    #[test]
    fn durations_are_formatted_for_people() {
        for (ms, text) in [
            (120, "120ms"),
            (2500, "2.5s"),
            (45_000, "45s"),
            (60_000, "1m"),
            (150_000, "2m 30s"),
            (5_400_000, "1h 30m"),
            (93_600_000, "1d 2h"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(ms)), text);
        }
    }
}
