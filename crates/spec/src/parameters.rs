//! The values of parameters: syntax, meaning and number.
//!
//! Ranges are counted in decimal digits as written, so that `0.1:0.3:0.1` is exactly 0.1, 0.2, 0.3.
//! Used by spec files and by `exec --param`.

use serde_json::Value as Json;
use std::fmt;

/// Maximum number of values of one parameter; more is certainly a mistake.
pub const MAX_VALUES: u64 = 50_000_000;

/// Maximum number of digits in a range, after applying the exponent. Sums of such numbers fit in an `i128`.
const MAX_DIGITS: usize = 18;

/// One value of a parameter for a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterValue<'a> {
    Integer(i64),
    /// Finite. Displayed with as few digits as identify it.
    Float(f64),
    Text(&'a str),
}

impl ParameterValue<'_> {
    /// Numbers are serialized as numbers.
    pub fn to_json(self) -> Json {
        match self {
            Self::Integer(number) => number.into(),
            Self::Float(number) => number.into(),
            Self::Text(text) => text.into(),
        }
    }
}

impl fmt::Display for ParameterValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Text(text) => f.pad(text),
        }
    }
}

/// An owned value.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredParameterValue {
    Integer(i64),
    Float(f64),
    Text(Box<str>),
}

impl StoredParameterValue {
    /// Parses an integer, else a number, else text. `007` and `+1` are text, because a number would lose their
    /// notation; `1.10` is the number 1.1.
    pub fn infer(text: &str) -> Self {
        parse_number(text).unwrap_or_else(|| Self::Text(text.into()))
    }

    /// Like [`Self::infer`] for quoted text: a number only if it is displayed as written (`"1.10"` is text).
    fn infer_quoted(text: &str) -> Self {
        let value = Self::infer(text);
        if value.get().to_string() == text { value } else { Self::Text(text.into()) }
    }

    pub fn get(&self) -> ParameterValue<'_> {
        match self {
            Self::Integer(number) => ParameterValue::Integer(*number),
            Self::Float(number) => ParameterValue::Float(*number),
            Self::Text(text) => ParameterValue::Text(text),
        }
    }
}

/// Parses a number in list notation: no leading zeros, no words (`nan`, `inf`).
pub(crate) fn parse_number(text: &str) -> Option<StoredParameterValue> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, rest) = digits.split_at(digits.bytes().take_while(u8::is_ascii_digit).count());
    if whole.len() > 1 && whole.starts_with('0') || text == "-0" {
        return None;
    }
    if rest.is_empty() {
        return text.parse().ok().map(StoredParameterValue::Integer);
    }
    let looks_right = rest.starts_with(['.', 'e', 'E']) && digits.bytes().any(|byte| byte.is_ascii_digit());
    let float = text.parse::<f64>().ok().filter(|number| looks_right && number.is_finite());
    float.map(StoredParameterValue::Float)
}

/// All values of one parameter. A range stores only its bounds and step.
#[derive(Clone, Debug, PartialEq)]
pub enum ParameterSequence {
    Range(ParameterRange),
    List(Vec<StoredParameterValue>),
}

impl ParameterSequence {
    pub fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.count,
            Self::List(list) => list.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// # Panics
    /// If there is no such value.
    pub fn get(&self, index: u64) -> ParameterValue<'_> {
        match self {
            Self::Range(range) => range.get(index),
            Self::List(list) => list[index as usize].get(),
        }
    }
}

/// Computes strides for all combinations of parameters with these numbers of values, the last parameter changing
/// fastest: for each parameter the number of consecutive combinations with the same value, and the total number.
/// `None` if there are too many.
pub fn compute_strides(lengths: impl DoubleEndedIterator<Item = u64>) -> Option<(Vec<u64>, u64)> {
    let mut strides = Vec::new();
    let mut count = 1u64;
    for length in lengths.rev() {
        strides.push(count);
        count = count.checked_mul(length)?;
    }
    strides.reverse();
    Some((strides, count))
}

/// The parsed notation of parameter values.
#[derive(Clone, Debug, PartialEq)]
pub enum ParsedParameter<'t> {
    Values(ParameterSequence),
    /// `@PATH`: one value per line of a file.
    File(&'t str),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("the step of a range must not be 0")]
    ZeroStep,
    #[error("the range {0} is empty: its step has the wrong sign")]
    EmptyRange(String),
    #[error("the range {0} has more than {MAX_VALUES} values")]
    TooMany(String),
    #[error("a number in the range {0} has too many digits")]
    TooLong(String),
    #[error("there are no values")]
    Empty,
    #[error("the list has no `]` at its end")]
    OpenList,
}

/// Parses the values of a parameter: `1:10`, `0:1:0.25`, `[a, 'b c']`, `@FILE`, `{1:10}`, or one value.
pub fn parse_parameter(text: &str, in_quotes: bool) -> Result<ParsedParameter<'_>, ParameterError> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix('@') {
        return Ok(ParsedParameter::File(path.trim()));
    }
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).map_or(text, str::trim);
    if let Some(items) = inner.strip_prefix('[') {
        let items = items.strip_suffix(']').ok_or(ParameterError::OpenList)?;
        return non_empty_list(split_list(items).into_iter().map(ParameterListItem::to_value).collect());
    }
    if let Some(range) = ParameterRange::parse(inner) {
        return Ok(ParsedParameter::Values(ParameterSequence::Range(range?)));
    }
    if text.is_empty() {
        return Err(ParameterError::Empty);
    }
    non_empty_list(vec![if in_quotes {
        StoredParameterValue::infer_quoted(text)
    } else {
        StoredParameterValue::infer(text)
    }])
}

/// Whether a text that is not a range was probably meant as one: `1:`, `1:2:3:4`, `1..10`.
pub(crate) fn resembles_range(text: &str) -> bool {
    let parts: Vec<&str> = text.trim().split(':').flat_map(|part| part.split("..")).map(str::trim).collect();
    let is_blank_or_number = |part: &&str| part.is_empty() || DecimalNumber::parse(part).is_some();
    parts.len() > 1 && parts.iter().all(is_blank_or_number) && parts.iter().any(|part| !part.is_empty())
}

fn non_empty_list<'t>(list: Vec<StoredParameterValue>) -> Result<ParsedParameter<'t>, ParameterError> {
    if list.is_empty() {
        Err(ParameterError::Empty)
    } else {
        Ok(ParsedParameter::Values(ParameterSequence::List(list)))
    }
}

/// Returns the values in an `@FILE` file: one per line; blank lines and lines that begin with `#` are ignored.
pub fn parse_value_lines(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// An item of a list in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterListItem<'t> {
    pub text: &'t str,
    /// Was quoted; `text` is without the quotes.
    pub is_quoted: bool,
}

impl ParameterListItem<'_> {
    fn to_value(self) -> StoredParameterValue {
        if self.is_quoted {
            StoredParameterValue::Text(self.text.into())
        } else {
            StoredParameterValue::infer(self.text)
        }
    }
}

/// Returns the items between the brackets of a list. A comma in quotes is part of its item.
pub fn split_list(items: &str) -> Vec<ParameterListItem<'_>> {
    let mut list = Vec::new();
    let mut rest = items.trim();
    while !rest.is_empty() {
        let (item, after) = split_item(rest);
        list.push(item);
        rest = after.trim_start();
    }
    list
}

/// Returns the first item and the text after its comma.
fn split_item(text: &str) -> (ParameterListItem<'_>, &str) {
    let quoted = ['"', '\''].into_iter().find_map(|quote| {
        let (inside, after) = text.strip_prefix(quote)?.split_once(quote)?;
        let after = after.trim_start();
        let after = if after.is_empty() { Some("") } else { after.strip_prefix(',') };
        after.map(|after| (ParameterListItem { text: inside, is_quoted: true }, after))
    });
    quoted.unwrap_or_else(|| {
        let (item, after) = text.split_once(',').unwrap_or((text, ""));
        (ParameterListItem { text: item.trim(), is_quoted: false }, after)
    })
}

/// `FIRST:LAST` or `FIRST:LAST:STEP`, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterRange {
    /// In units of `10^-scale`, like `step`.
    first: i128,
    step: i128,
    scale: u32,
    count: u64,
    is_float: bool,
}

impl ParameterRange {
    /// Returns `None` if it does not look like a range (`host:80` is a value).
    pub fn parse(text: &str) -> Option<Result<Self, ParameterError>> {
        let mut parts = text.split(':').map(str::trim);
        let (first, last) = (DecimalNumber::parse(parts.next()?)?, DecimalNumber::parse(parts.next()?)?);
        let step = match parts.next() {
            Some(step) => DecimalNumber::parse(step)?,
            None => DecimalNumber::ONE,
        };
        parts.next().is_none().then(|| Self::new(first, last, step, text))
    }

    fn new(
        first: DecimalNumber,
        last: DecimalNumber,
        step: DecimalNumber,
        text: &str,
    ) -> Result<Self, ParameterError> {
        let all = [first, last, step];
        let scale = all.map(|number| number.scale).into_iter().max().unwrap_or(0).max(0);
        let aligned = |number: DecimalNumber| {
            number.to_scale(scale).ok_or_else(|| ParameterError::TooLong(text.to_owned()))
        };
        let (low, high, stride) = (aligned(first)?, aligned(last)?, aligned(step)?);
        if stride == 0 {
            return Err(ParameterError::ZeroStep);
        }
        let steps = (high - low) / stride;
        if (high - low).signum() * stride.signum() < 0 {
            return Err(ParameterError::EmptyRange(text.to_owned()));
        }
        let count = u64::try_from(steps).ok().filter(|steps| *steps < MAX_VALUES);
        let count = count.ok_or_else(|| ParameterError::TooMany(text.to_owned()))? + 1;
        let is_float = all.iter().any(|number| number.is_float);
        Ok(Self { first: low, step: stride, scale: scale.unsigned_abs(), count, is_float })
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn get(&self, index: u64) -> ParameterValue<'static> {
        let units = self.unit_value(index);
        if self.is_float {
            ParameterValue::Float(to_f64(units, self.scale))
        } else {
            ParameterValue::Integer(units as i64)
        }
    }

    /// Formats the value with the largest number of decimal places in the range, and at least `places` digits
    /// before the point.
    pub fn format_fixed(&self, index: u64, places: usize) -> String {
        let units = self.unit_value(index);
        let (sign, scale) = (if units < 0 { "-" } else { "" }, self.scale as usize);
        let digits = format!("{:0width$}", units.unsigned_abs(), width = scale + places.max(1));
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }

    fn unit_value(&self, index: u64) -> i128 {
        self.first + i128::from(index) * self.step
    }
}

/// Returns the `f64` nearest to `units / 10^scale`.
fn to_f64(units: i128, scale: u32) -> f64 {
    const EXACT_POWERS: u32 = 22;
    let is_exact = units.unsigned_abs() < 1 << f64::MANTISSA_DIGITS && scale <= EXACT_POWERS;
    if is_exact {
        // Both sides are exact, so the division rounds only once.
        return units as f64 / 10f64.powi(scale as i32);
    }
    format!("{units}e-{scale}").parse().unwrap_or(f64::NAN)
}

/// A decimal number as written: `units * 10^-scale`.
#[derive(Clone, Copy, Debug)]
struct DecimalNumber {
    units: i128,
    scale: i32,
    is_float: bool,
}

impl DecimalNumber {
    const ONE: Self = Self { units: 1, scale: 0, is_float: false };

    fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = || whole.bytes().chain(fraction.bytes());
        if digits().next().is_none()
            || !digits().all(|byte| byte.is_ascii_digit())
            || digits().count() > 2 * MAX_DIGITS
        {
            return None;
        }
        let units = digits().fold(0i128, |sum, byte| sum * 10 + i128::from(byte - b'0'));
        let units = if text.starts_with('-') { -units } else { units };
        let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        Some(Self { units, scale, is_float: unsigned.contains(['.', 'e', 'E']) })
    }

    /// Returns the number in units of `10^-scale`, if it does not become too long.
    fn to_scale(self, scale: i32) -> Option<i128> {
        let shift = u32::try_from(scale.checked_sub(self.scale)?).ok()?;
        let units = self.units.checked_mul(10i128.checked_pow(shift)?)?;
        (units.unsigned_abs() < 10u128.pow(MAX_DIGITS as u32)).then_some(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        match parse_parameter(text, false) {
            Ok(ParsedParameter::Values(values)) => {
                (0..values.len()).map(|i| values.get(i).to_string()).collect()
            }
            other => vec![format!("{other:?}")],
        }
    }

    #[test]
    fn ranges_include_both_ends_without_rounding_errors() {
        for (text, expected) in [
            ("1:4", "1 2 3 4"),
            ("1:10:3", "1 4 7 10"),
            ("1:9:3", "1 4 7"),
            ("5:1:-2", "5 3 1"),
            ("-2:1", "-2 -1 0 1"),
            ("3:3", "3"),
            ("{1:3}", "1 2 3"),
            ("0.1:0.3:0.1", "0.1 0.2 0.3"),
            ("0.10:0.30:0.10", "0.1 0.2 0.3"),
            ("0:1:0.25", "0 0.25 0.5 0.75 1"),
            ("1.5:3", "1.5 2.5"),
            ("0.3:0.1:-0.1", "0.3 0.2 0.1"),
            ("1e-3:3e-3:1e-3", "0.001 0.002 0.003"),
            ("0:2e2:1e2", "0 100 200"),
            ("-0.1:0.1:0.1", "-0.1 0 0.1"),
        ] {
            assert_eq!(shown(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn long_range_of_tenths_is_exact() {
        let Ok(ParsedParameter::Values(values)) = parse_parameter("0:1000:0.1", false) else {
            panic!("a range")
        };
        for index in 0..values.len() {
            let exact: f64 = format!("{}.{}", index / 10, index % 10).parse().unwrap();
            assert_eq!(values.get(index), ParameterValue::Float(exact));
        }
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for (text, problem) in [
            ("1:2:0", ParameterError::ZeroStep),
            ("1:2:0.0", ParameterError::ZeroStep),
            ("3:1", ParameterError::EmptyRange("3:1".into())),
            ("1:3:-1", ParameterError::EmptyRange("1:3:-1".into())),
            ("1:900000000", ParameterError::TooMany("1:900000000".into())),
            ("0:1:1e-17", ParameterError::TooMany("0:1:1e-17".into())),
            ("1:1e300", ParameterError::TooLong("1:1e300".into())),
            ("1:2:1e-99", ParameterError::TooLong("1:2:1e-99".into())),
            ("", ParameterError::Empty),
            ("[]", ParameterError::Empty),
            ("[1,2", ParameterError::OpenList),
        ] {
            assert_eq!(parse_parameter(text, false), Err(problem), "{text}");
        }
    }

    #[test]
    fn lists_and_single_values_are_parsed() {
        let list = |text: &str| match parse_parameter(text, false) {
            Ok(ParsedParameter::Values(ParameterSequence::List(list))) => list,
            other => panic!("{text}: {other:?}"),
        };
        let text = |text: &str| StoredParameterValue::Text(text.into());
        assert_eq!(
            list("[1, 2.5, x, '3', \"a, b\", 'it',]"),
            [
                StoredParameterValue::Integer(1),
                StoredParameterValue::Float(2.5),
                text("x"),
                text("3"),
                text("a, b"),
                text("it")
            ]
        );
        assert_eq!(list("[it's, b]"), [text("it's"), text("b")]);
        for (written, value) in [
            ("7", StoredParameterValue::Integer(7)),
            ("-7", StoredParameterValue::Integer(-7)),
            ("0", StoredParameterValue::Integer(0)),
            ("1e3", StoredParameterValue::Float(1000.0)),
            (".5", StoredParameterValue::Float(0.5)),
            ("007", text("007")),
            ("nan", text("nan")),
            ("inf", text("inf")),
            ("1e999", text("1e999")),
            ("host:80", text("host:80")),
            ("10:20:30:40", text("10:20:30:40")),
            ("99999999999999999999", text("99999999999999999999")),
            ("e5", text("e5")),
            ("-", text("-")),
            ("red green", text("red green")),
        ] {
            assert_eq!(list(written), [value], "{written}");
        }
        assert_eq!(parse_parameter("@cases.txt", false), Ok(ParsedParameter::File("cases.txt")));
    }

    #[test]
    fn quoted_number_stays_text_if_digits_would_be_lost() {
        let quoted = |text| match parse_parameter(text, true) {
            Ok(ParsedParameter::Values(ParameterSequence::List(list))) => list[0].clone(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(quoted("5"), StoredParameterValue::Integer(5));
        assert_eq!(quoted("0.5"), StoredParameterValue::Float(0.5));
        assert_eq!(quoted("1.10"), StoredParameterValue::Text("1.10".into()));
    }

    #[test]
    fn value_lines_skip_comments_and_blank_lines() {
        assert_eq!(parse_value_lines("\u{feff}a\n# b\n\n  c d \r\n").collect::<Vec<_>>(), ["a", "c d"]);
    }
}
