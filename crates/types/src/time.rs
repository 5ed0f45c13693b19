//! Wall-clock timestamps, and the clock held by the outermost layers.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970 in UTC. Shown as RFC 3339 with `Z` and milliseconds; programs get the microseconds
/// too.
///
/// For records only: durations and deadlines are measured with `std::time::Instant`, which no clock change
/// affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Returns the time after the duration.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Whether a delay that began at `start` is over. It is also over if the clock was set back to before its
    /// start: the time that is left is unknown then, and must not exceed the delay.
    pub fn is_delay_over(self, start: Self, delay: Duration) -> bool {
        self < start || self >= start.plus(delay)
    }

    /// Returns the time since `earlier`; zero if the clock went backwards in between.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "{} µs since 1970", self.0),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse::<jiff::Timestamp>()?.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(t) if self.0 % 1000 != 0 => serializer.collect_str(&format_args!("{t:.6}")),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The source of timestamps. Held by the outermost layers; all other code is passed a [`Timestamp`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    pub fn now(self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_prints_utc_and_parses_it() {
        let t = Timestamp(1_700_000_000_123_000);
        assert_eq!(t.to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(t.to_string().parse::<Timestamp>().unwrap(), t);
    }

    #[test]
    fn json_timestamps_keep_microseconds() {
        for (micros, text) in
            [(1_700_000_000_123_456, "2023-11-14T22:13:20.123456Z"), (0, "1970-01-01T00:00:00.000Z")]
        {
            let json = serde_json::to_string(&Timestamp(micros)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), Timestamp(micros));
        }
    }

    #[test]
    fn a_clock_set_back_gives_zero_not_a_panic() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(9).since(Timestamp(5)), Duration::from_micros(4));
    }

    #[test]
    fn a_clock_set_back_ends_delays() {
        let is_over = |now| Timestamp(now).is_delay_over(Timestamp(5), Duration::from_micros(3));
        assert_eq!([4, 5, 7, 8].map(is_over), [true, false, false, true]);
    }
}
