//! Growth of resources after a failure: `x1.5`, `+30%`, `+2g`. Computed in integers and rounded up, so that the
//! same rule gives the same amount on every machine.

use crate::{Bytes, format_exact_size, format_iso_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A non-negative decimal number with up to six fractional digits, stored exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio {
    millionths: u64,
}

impl Ratio {
    pub const ZERO: Self = Self { millionths: 0 };
    pub const ONE: Self = Self { millionths: MILLION };
    /// The largest accepted value.
    const MAX: u64 = 1_000_000 * MILLION;

    pub const fn from_millionths(millionths: u64) -> Self {
        Self { millionths }
    }

    pub const fn millionths(self) -> u64 {
        self.millionths
    }

    /// Parses a percentage: `12.5%` is 0.125, rounded up to a millionth.
    pub fn from_percent(text: &str) -> Result<Self, ParseRatioError> {
        let number = text.trim().strip_suffix('%').ok_or_else(|| ParseRatioError(text.to_owned()))?;
        let percent: Self = number.trim_end().parse()?;
        Ok(Self { millionths: percent.millionths.div_ceil(100) })
    }

    /// Formats the number as a percentage: `12.5%` for 0.125.
    pub fn to_percent(self) -> String {
        format!("{}%", Self { millionths: self.millionths.saturating_mul(100) })
    }

    /// Returns the product with `amount`, rounded up.
    pub fn scale(self, amount: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.millionths);
        u64::try_from(product.div_ceil(u128::from(MILLION))).unwrap_or(u64::MAX)
    }
}

const MILLION: u64 = 1_000_000;

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a number from 0 to 1000000 with at most six digits after the point")]
pub struct ParseRatioError(pub String);

impl FromStr for Ratio {
    type Err = ParseRatioError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseRatioError(text.to_owned());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || fraction.len() > 6 || !is_number(whole) || !is_number(fraction) {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let fraction: u64 = format!("{fraction:0<6}").parse().map_err(|_| bad())?;
        let millionths = whole.checked_mul(MILLION).and_then(|whole| whole.checked_add(fraction));
        let millionths = millionths.filter(|all| *all <= Self::MAX).ok_or_else(bad)?;
        Ok(Self { millionths })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.millionths / MILLION, self.millionths % MILLION);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{fraction:06}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

/// A number in JSON.
impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.millionths as f64 / MILLION as f64)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        let millionths = (number * MILLION as f64).round();
        if !(0.0..=Self::MAX as f64).contains(&millionths) {
            return Err(serde::de::Error::custom(ParseRatioError(number.to_string())));
        }
        Ok(Self { millionths: millionths as u64 })
    }
}

/// A quantity that can grow: counted in integer units, parsed and formatted for people.
pub trait GrowableQuantity: Copy + Ord {
    /// An example of an amount after the `+`.
    const EXAMPLE: &'static str;
    /// The largest amount, in units.
    const MAX: u64;

    fn units(self) -> u64;
    fn from_units(units: u64) -> Self;
    fn parse(text: &str) -> Option<Self>;
    fn format(self) -> String;
}

impl GrowableQuantity for Bytes {
    const EXAMPLE: &'static str = "+2g";
    const MAX: u64 = i64::MAX as u64;

    fn units(self) -> u64 {
        self.0
    }

    fn from_units(units: u64) -> Self {
        Self(units)
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn format(self) -> String {
        format_exact_size(self)
    }
}

impl GrowableQuantity for Duration {
    const EXAMPLE: &'static str = "+PT10M";
    /// A duration in the format of [`parse_duration`], in microseconds.
    const MAX: u64 = 99_999_999_999 * MILLION;

    fn units(self) -> u64 {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX)
    }

    fn from_units(units: u64) -> Self {
        Self::from_micros(units)
    }

    fn parse(text: &str) -> Option<Self> {
        parse_duration(text).ok()
    }

    fn format(self) -> String {
        format_iso_duration(self)
    }
}

impl GrowableQuantity for u32 {
    const EXAMPLE: &'static str = "+1";
    const MAX: u64 = i32::MAX as u64;

    fn units(self) -> u64 {
        u64::from(self)
    }

    fn from_units(units: u64) -> Self {
        Self::try_from(units).unwrap_or(Self::MAX)
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn format(self) -> String {
        self.to_string()
    }
}

/// A change that increases an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceGrowth<Q> {
    /// `x1.5`: multiplies by a factor larger than 1.
    Times(Ratio),
    /// `+30%`: adds a percentage.
    Percent(Ratio),
    /// `+2g`: adds a fixed amount.
    Plus(Q),
}

impl<Q: GrowableQuantity> ResourceGrowth<Q> {
    /// Returns the next amount; never less than `amount`.
    pub fn grow(self, amount: Q) -> Q {
        let units = amount.units();
        let grown = match self {
            Self::Times(factor) => factor.scale(units),
            Self::Percent(share) => units.saturating_add(share.scale(units)),
            Self::Plus(more) => units.saturating_add(more.units()),
        };
        // An amount that already exceeds the maximum is left unchanged.
        Q::from_units(grown.clamp(units, Q::MAX.max(units)))
    }
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseGrowthError {
    #[error("invalid growth `{text}`; write for example x1.5, +30% or {example}")]
    NoGrowth { text: String, example: &'static str },
    #[error("`{0}` does not increase the amount; a factor must be larger than 1, as in x1.5")]
    FactorTooSmall(String),
    #[error("`{0}` does not increase the amount")]
    AddsNothing(String),
}

impl<Q: GrowableQuantity> FromStr for ResourceGrowth<Q> {
    type Err = ParseGrowthError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let none = || ParseGrowthError::NoGrowth { text: text.to_owned(), example: Q::EXAMPLE };
        let trimmed = text.trim();
        if let Some(factor) = trimmed.strip_prefix(['x', 'X', '×']) {
            let factor: Ratio = factor.trim().parse().map_err(|_| none())?;
            return match factor {
                factor if factor > Ratio::ONE => Ok(Self::Times(factor)),
                _ => Err(ParseGrowthError::FactorTooSmall(text.to_owned())),
            };
        }
        let more = trimmed.strip_prefix('+').ok_or_else(none)?.trim();
        let (growth, adds) = if more.ends_with('%') {
            let share = Ratio::from_percent(more).map_err(|_| none())?;
            (Self::Percent(share), share > Ratio::ZERO)
        } else {
            let more = Q::parse(more).ok_or_else(none)?;
            (Self::Plus(more), more.units() > 0)
        };
        if adds { Ok(growth) } else { Err(ParseGrowthError::AddsNothing(text.to_owned())) }
    }
}

impl<Q: GrowableQuantity> fmt::Display for ResourceGrowth<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(factor) => write!(f, "x{factor}"),
            Self::Percent(share) => write!(f, "+{}", share.to_percent()),
            Self::Plus(more) => write!(f, "+{}", more.format()),
        }
    }
}

impl<Q: GrowableQuantity> Serialize for ResourceGrowth<Q> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, Q: GrowableQuantity> Deserialize<'de> for ResourceGrowth<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_applied_and_saturates() {
        let memory =
            |growth: &str, from: u64| growth.parse::<ResourceGrowth<Bytes>>().unwrap().grow(Bytes(from)).0;
        for (growth, from, to) in [
            ("x1.5", 1 << 30, 3 << 29),
            ("x1.5", 3, 5),
            ("X2", 7, 14),
            ("×1.000001", 1, 2),
            ("+30%", 1000, 1300),
            ("+30%", 1, 2),
            ("+12.5%", 800, 900),
            ("+2g", 1 << 30, 3 << 30),
            (" + 512 ", 1, 513),
            ("+1.5g", 0, 3 << 29),
            ("x1000000", 1 << 60, i64::MAX as u64),
            ("+8000000t", u64::MAX, u64::MAX),
        ] {
            assert_eq!(memory(growth, from), to, "{growth} of {from}");
        }
        let runtime =
            |growth: &str| growth.parse::<ResourceGrowth<Duration>>().unwrap().grow(Duration::from_mins(10));
        for (growth, seconds) in
            [("x2", 1200), ("+30%", 780), ("+PT10M", 1200), ("+1h30m", 6000), ("+90", 690)]
        {
            assert_eq!(runtime(growth), Duration::from_secs(seconds), "{growth}");
        }
        let cpus = |growth: &str, from| growth.parse::<ResourceGrowth<u32>>().unwrap().grow(from);
        assert_eq!((cpus("x1.5", 1), cpus("+1", 4), cpus("+50%", 3)), (2, 5, 5));
        assert_eq!(cpus("x2", 2_000_000_000), i32::MAX as u32);
    }

    #[test]
    fn non_growing_amounts_are_rejected() {
        for text in
            ["", "2g", "1.5", "x", "x-2", "x1e3", "x1.1234567", "+", "+%", "+lots", "-2g", "+-1", "x2g"]
        {
            let error = text.parse::<ResourceGrowth<Bytes>>().unwrap_err();
            assert!(matches!(error, ParseGrowthError::NoGrowth { .. }), "{text}: {error}");
        }
        for text in ["x1", "x0.5", "x0"] {
            let error = text.parse::<ResourceGrowth<Bytes>>().unwrap_err();
            assert_eq!(error, ParseGrowthError::FactorTooSmall(text.to_owned()));
        }
        for text in ["+0", "+0%", "+0g"] {
            assert_eq!(
                text.parse::<ResourceGrowth<Bytes>>(),
                Err(ParseGrowthError::AddsNothing(text.to_owned()))
            );
        }
        assert!("+1.5".parse::<ResourceGrowth<u32>>().is_err(), "CPUs are whole numbers");
        let error = "2".parse::<ResourceGrowth<u32>>().unwrap_err().to_string();
        assert_eq!(error, "invalid growth `2`; write for example x1.5, +30% or +1");
    }

    #[test]
    fn growth_round_trips() {
        for text in ["x1.5", "x2", "+30%", "+12.5%", "+2g", "+1536m", "+77"] {
            let growth: ResourceGrowth<Bytes> = text.parse().unwrap();
            assert_eq!(growth.to_string(), text);
            let json = serde_json::to_string(&growth).unwrap();
            assert_eq!(serde_json::from_str::<ResourceGrowth<Bytes>>(&json).unwrap(), growth, "{json}");
        }
        assert_eq!("+90m".parse::<ResourceGrowth<Duration>>().unwrap().to_string(), "+PT1H30M");
    }

    #[test]
    fn ratios_are_json_numbers() {
        for (json, millionths) in [("2", 2_000_000), ("2.0", 2_000_000), ("0.2", 200_000), ("0", 0)] {
            let ratio: Ratio = serde_json::from_str(json).unwrap();
            assert_eq!(ratio.millionths(), millionths);
            assert_eq!(
                serde_json::from_str::<Ratio>(&serde_json::to_string(&ratio).unwrap()).unwrap(),
                ratio
            );
        }
        assert_eq!(serde_json::to_string(&Ratio::from_millionths(200_000)).unwrap(), "0.2");
        for json in ["-0.1", "1e30", "\"2\""] {
            assert!(serde_json::from_str::<Ratio>(json).is_err(), "{json}");
        }
        for text in ["", ".5", "1.2.3", "-1", "1,5", "1000001"] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
    }
}
