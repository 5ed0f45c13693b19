//! Decodes free values, which are kept as JSON.

use super::values::join_words;
use super::{SpecDecoder, ValueSubject, quote_excerpt};
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, ScalarText, StopReading};
use crate::source::SourceSpan;
use serde_json::{Map, Number, Value};

/// sbatch options that are set elsewhere, and where.
pub(crate) const MANAGED_SBATCH_OPTIONS: [(&str, &str); 8] = [
    ("partition", "`partition` of a scheduler in `slurm_schedulers`"),
    ("nodes", "`nodes` of a scheduler in `slurm_schedulers`"),
    ("walltime", "`walltime` of a scheduler in `slurm_schedulers`"),
    ("time", "`walltime` of a scheduler in `slurm_schedulers`"),
    ("mem", "`mem` of a scheduler in `slurm_schedulers`"),
    ("gres", "`gres` of a scheduler in `slurm_schedulers`"),
    ("name", "windlass, which names its allocations"),
    ("job-name", "windlass, which names its allocations"),
];

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    /// Decodes any value. Unquoted scalars become numbers, booleans or null if they look like one.
    pub(super) fn decode_json(&mut self, event: DocumentEvent<'s>) -> Result<Option<Value>, StopReading> {
        match event.kind {
            DocumentEventKind::Scalar(scalar) => {
                let value = self.parse_json_scalar(&scalar, event.span);
                if scalar.text.contains('{') {
                    self.braced.push((scalar.text, event.span));
                }
                Ok(value)
            }
            DocumentEventKind::SeqStart(_) => {
                let mut items = Vec::new();
                while let Some(item) = self.next_item()? {
                    items.extend(self.decode_json(item)?);
                }
                Ok(Some(Value::Array(items)))
            }
            DocumentEventKind::MapStart(_) => {
                let mut map = Map::new();
                while let Some((name, value, _)) = self.next_entry(|name| map.contains_key(name))? {
                    if let Some(value) = self.decode_json(value)? {
                        map.insert(name, value);
                    }
                }
                Ok(Some(Value::Object(map)))
            }
            // A bad value was reported; the remaining events do not begin a value.
            DocumentEventKind::Bad
            | DocumentEventKind::MapEnd
            | DocumentEventKind::SeqEnd
            | DocumentEventKind::Key { .. }
            | DocumentEventKind::End => Ok(None),
        }
    }

    pub(super) fn decode_json_map(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<Map<String, Value>>, StopReading> {
        if self.open_map(&event, subject)?.is_none() {
            return Ok(None);
        }
        Ok(match self.decode_json(event)? {
            Some(Value::Object(map)) => Some(map),
            _ => None,
        })
    }

    /// Decodes sbatch options: a name and one scalar each.
    pub(super) fn decode_slurm_options(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Map<String, Value>, StopReading> {
        let mut options = Map::new();
        if self.open_map(event, subject)?.is_none() {
            return Ok(options);
        }
        while let Some((name, value, span)) = self.next_entry(|name| options.contains_key(name))? {
            self.check_slurm_option(&name, span);
            match value.kind {
                DocumentEventKind::MapStart(_) | DocumentEventKind::SeqStart(_) => {
                    self.report_wrong_type(&value, ValueSubject::Option(&name), "a plain value")?;
                }
                _ => {
                    if let Some(value) = self.decode_json(value)? {
                        options.insert(name, value);
                    }
                }
            }
        }
        Ok(options)
    }

    /// Returns the next entry of a map with free keys that is not in `known`, with the location of its key.
    pub(super) fn next_entry(
        &mut self,
        known: impl Fn(&str) -> bool,
    ) -> Result<Option<(String, DocumentEvent<'s>, SourceSpan)>, StopReading> {
        loop {
            let key = self.next_event()?;
            let DocumentEventKind::Key { text, merged } = key.kind else { return Ok(None) };
            let value = self.next_event()?;
            if !known(&text) {
                return Ok(Some((text.into_owned(), value, key.span)));
            }
            if !merged {
                let message = format!("{} is given twice", quote_excerpt(&text));
                self.sink.push(SpecDiagnostic::new("duplicate-field", message).with_span(key.span));
            }
            self.skip_value(&value)?;
        }
    }

    fn check_slurm_option(&mut self, name: &str, span: SourceSpan) {
        let option = name.trim_start_matches('-').to_ascii_lowercase().replace('_', "-");
        if let Some((_, source)) = MANAGED_SBATCH_OPTIONS.iter().find(|(managed, _)| *managed == option) {
            self.sink.push(
                SpecDiagnostic::new(
                    "managed-option",
                    format!("{} is not allowed in `slurm_defaults`", quote_excerpt(name)),
                )
                .with_span(span)
                .with_help(format!("it is set by {source}")),
            );
            return;
        }
        let is_option = option.starts_with(|c: char| c.is_ascii_alphabetic())
            && option.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if name.starts_with('-') || !is_option {
            let long_names = join_words(&["qos", "constraint", "mail-type"]);
            self.sink.push(
                SpecDiagnostic::new(
                    "bad-option",
                    format!("{} is not a long option of sbatch", quote_excerpt(name)),
                )
                .with_span(span)
                .with_help(format!("write it in full, without leading dashes: {long_names}")),
            );
        }
    }

    fn parse_json_scalar(&mut self, scalar: &ScalarText<'_>, span: SourceSpan) -> Option<Value> {
        let text = &*scalar.text;
        if scalar.is_null() {
            return Some(Value::Null);
        }
        if !scalar.is_plain {
            return Some(text.into());
        }
        match text {
            "true" | "True" | "TRUE" => return Some(true.into()),
            "false" | "False" | "FALSE" => return Some(false.into()),
            _ => {}
        }
        if !looks_like_number(text) {
            return Some(text.into());
        }
        let number = parse_json_number(text);
        if number.is_none() {
            let message = format!("{} is not a number that JSON can represent", quote_excerpt(text));
            self.sink.push(
                SpecDiagnostic::new("bad-number", message).with_span(span).with_help("put it in quotes"),
            );
        }
        number.map(Value::Number)
    }
}

/// Returns the JSON form of an unquoted scalar, if it is a number or a boolean.
pub(crate) fn to_json_literal(text: &str) -> Option<String> {
    match text {
        "true" | "True" | "TRUE" => Some("true".to_owned()),
        "false" | "False" | "FALSE" => Some("false".to_owned()),
        _ if looks_like_number(text) => parse_json_number(text).map(|number| number.to_string()),
        _ => None,
    }
}

fn parse_json_number(text: &str) -> Option<Number> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let in_base = |digits: &str, base| i64::from_str_radix(digits, base).ok().map(Number::from);
    if let Some(digits) = text.strip_prefix("0x") {
        return in_base(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return in_base(digits, 8);
    }
    let whole = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}

/// A number of YAML 1.2. A leading zero usually means a code, and infinity a word, so neither counts as a
/// number.
fn looks_like_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all = |digits: &str, is: fn(&char) -> bool| !digits.is_empty() && digits.chars().all(|c| is(&c));
    if let Some(digits) = text.strip_prefix("0x") {
        return all(digits, char::is_ascii_hexdigit);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return all(digits, |c| ('0'..='7').contains(c));
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits_or_nothing = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits_or_nothing(whole)
        && digits_or_nothing(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && !(whole.len() > 1 && whole.starts_with('0'))
        && all(exponent.strip_prefix(['-', '+']).unwrap_or(exponent), char::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_and_lookalikes_rejected() {
        for (text, number) in [
            ("0", "0"),
            ("-7", "-7"),
            ("+7", "7"),
            ("1.50", "1.5"),
            (".5", "0.5"),
            ("5.", "5.0"),
            ("1e3", "1000.0"),
            ("-2.5E-1", "-0.25"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert!(looks_like_number(text), "{text}");
            assert_eq!(
                parse_json_number(text).map(|number| number.to_string()).as_deref(),
                Some(number),
                "{text}"
            );
        }
        for text in
            ["", ".", "-", "007", "1_000", "0x", "0o8", "1e", "e5", ".inf", "nan", "1.2.3", "12:30", "-0x1"]
        {
            assert!(!looks_like_number(text), "{text}");
        }
        assert_eq!(parse_json_number("1e999"), None);
    }
}
