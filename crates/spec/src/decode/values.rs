//! Decodes texts with a syntax: sizes, durations, signals, choices, numbers.

use super::field_tables::SpecField;
use super::{
    SpannedText, SpecDecoder, ValueSubject, describe_scalar, out_of_range_error, quote_excerpt,
    type_mismatch_error,
};
use crate::diagnostic::SpecDiagnostic;
use crate::event::{DocumentEvent, DocumentEventStream, StopReading};
use crate::parameters::ParameterValue;
use crate::resolve::check_regex;
use crate::source::SourceSpan;
use crate::template::{self, PlaceholderFormat};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use windlass_types::settings::{RetryBudget, StderrPattern, parse_slurm_size, parse_walltime};
use windlass_types::{Bytes, GrowableQuantity, ResourceGrowth, SIGNAL_NAMES, parse_duration, signal_number};

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    pub(super) fn read_size(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<Bytes>, StopReading> {
        let amount = self.read_amount(event, subject, str::parse::<Bytes>)?;
        Ok(amount.and_then(|(bytes, text, span)| {
            self.warn_tiny_size(bytes, text.trim(), subject, span);
            self.require_non_zero(bytes, subject, span)
        }))
    }

    /// No job runs in less than a MiB: the unit is missing or wrong.
    fn warn_tiny_size(&mut self, bytes: Bytes, text: &str, subject: ValueSubject<'_>, span: SourceSpan) {
        if !(1..1 << 20).contains(&bytes.0) {
            return;
        }
        let message = format!("{subject} is only {bytes}");
        let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        self.warnings.push(
            SpecDiagnostic::new("tiny-size", message)
                .with_span(span)
                .with_help(format!("did you mean `{number}m`?")),
        );
    }

    pub(super) fn read_duration(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<Duration>, StopReading> {
        let amount = self.read_amount(event, subject, parse_duration)?;
        Ok(amount.and_then(|(duration, _, span)| self.require_non_zero(duration, subject, span)))
    }

    /// A Slurm duration as written.
    pub(super) fn read_walltime(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<String>, StopReading> {
        let Some((duration, text, span)) = self.read_amount(event, subject, parse_walltime)? else {
            return Ok(None);
        };
        Ok(self.require_non_zero(duration, subject, span).map(|_| text))
    }

    /// A Slurm size as written. `0` means all memory.
    pub(super) fn read_slurm_size(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<String>, StopReading> {
        let amount = self.read_amount(event, subject, parse_slurm_size)?;
        Ok(amount.map(|(_, text, _)| text))
    }

    /// `SIGTERM`, `TERM`, `15`; for srun also `B:TERM@120`.
    pub(super) fn read_signal(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        of_srun: bool,
    ) -> Result<Option<String>, StopReading> {
        let Some((text, span)) = self.read_with_constants(event, subject)? else { return Ok(None) };
        let signal = if of_srun { strip_srun_syntax(&text) } else { Ok(&*text) };
        let help = match signal {
            Ok(signal) if signal_number(signal).is_some() => return Ok(Some(text.into_owned())),
            Ok(signal) => self.suggest_signal(signal),
            Err(help) => help.to_owned(),
        };
        let message = format!("{subject}: {} is not a signal", quote_excerpt(&text));
        self.sink.push(SpecDiagnostic::new("bad-signal", message).with_span(span).with_help(help));
        Ok(None)
    }

    /// `x1.5`, `+30%` or `+2g`, parsed.
    pub(super) fn read_growth<Q: GrowableQuantity>(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<String>, StopReading> {
        let growth = self.read_amount(event, subject, str::parse::<ResourceGrowth<Q>>)?;
        Ok(growth.map(|(growth, _, _)| growth.to_string()))
    }

    pub(super) fn read_retry_budget(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<RetryBudget>, StopReading> {
        let budget = self.read_amount(event, subject, str::parse::<RetryBudget>)?;
        Ok(budget.map(|(budget, _, _)| budget))
    }

    /// Texts or a regular expression, as written. Braces are not placeholders here, because program output
    /// contains many.
    pub(super) fn read_stderr_pattern(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<String>, StopReading> {
        let Some((text, span)) = self.read_non_empty(event, subject)? else { return Ok(None) };
        let (why, help) = match StderrPattern::parse(&text) {
            StderrPattern::Words(_) => return Ok(Some(text.into_owned())),
            StderrPattern::Regex(regex) if regex.trim().is_empty() => {
                ("it is empty".to_owned(), "write the expression after `re:`")
            }
            StderrPattern::Regex(regex) => match check_regex(regex) {
                Ok(()) => return Ok(Some(text.into_owned())),
                Err(why) => (why, "remove the `re:` if this is plain text to look for"),
            },
        };
        let message = format!("{subject}: {} is not a regular expression: {why}", quote_excerpt(&text));
        self.sink.push(SpecDiagnostic::new("bad-regex", message).with_span(span).with_help(help));
        Ok(None)
    }

    /// Reads one of the choices of the field as its type.
    pub(super) fn read_choice<T>(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        words: &'static [&'static str],
    ) -> Result<Option<T>, StopReading>
    where
        T: for<'de> Deserialize<'de>,
    {
        let word = self.read_keyword(event, subject, words)?;
        Ok(word.and_then(|word| {
            let text: StrDeserializer<'_, WordError> = word.into_deserializer();
            let value = T::deserialize(text).ok();
            debug_assert!(value.is_some(), "the table has a choice that the type does not have: {word}");
            value
        }))
    }

    pub(super) fn read_keyword(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        words: &'static [&'static str],
    ) -> Result<Option<&'static str>, StopReading> {
        let Some((text, span)) = self.read_string(event, subject)? else { return Ok(None) };
        if let Some(word) = words.iter().find(|word| **word == text) {
            return Ok(Some(word));
        }
        let diagnostic =
            SpecDiagnostic::new("unknown-value", format!("{subject} cannot be {}", quote_excerpt(&text)))
                .with_span(span);
        let suggestion = self.suggester.nearest_name(&text, words.iter().copied());
        self.sink.push(match suggestion {
            Some(_) => diagnostic.with_suggestion(suggestion),
            None => diagnostic.with_help(format!("it must be one of {}", join_words(words))),
        });
        Ok(None)
    }

    pub(super) fn read_number(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        (least, most): (f64, f64),
    ) -> Result<Option<f64>, StopReading> {
        const EXPECTED: &str = "a number";
        let Some((scalar, span)) = self.read_scalar(event, subject, EXPECTED)? else { return Ok(None) };
        let looks_right = scalar.text.starts_with(|c: char| c.is_ascii_digit() || ".+-".contains(c));
        let number = scalar.text.parse::<f64>().ok().filter(|_| looks_right);
        match number {
            Some(number) if scalar.is_plain && (least..=most).contains(&number) => return Ok(Some(number)),
            Some(_) if scalar.is_plain => {
                let help = format!("it must be from {least} to {most}");
                self.sink.push(out_of_range_error(subject, &scalar.text, span).with_help(help));
            }
            Some(_) => {
                let diagnostic = type_mismatch_error(subject, EXPECTED, &describe_scalar(&scalar), span);
                self.sink.push(diagnostic.with_help("remove the quotes"));
            }
            None => self.sink.push(type_mismatch_error(subject, EXPECTED, &describe_scalar(&scalar), span)),
        }
        Ok(None)
    }

    /// Reads an integer in the range of its field as its type.
    pub(super) fn read_integer_as<T: TryFrom<i64>>(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        field: &SpecField,
    ) -> Result<Option<T>, StopReading> {
        let number = self.read_integer(event, subject, field.field_type.integer_range())?;
        Ok(number.and_then(|number| {
            let value = T::try_from(number).ok();
            debug_assert!(value.is_some(), "the table allows more than the type: {}", field.name);
            value
        }))
    }

    fn read_amount<T, P: fmt::Display>(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        parse: impl Fn(&str) -> Result<T, P>,
    ) -> Result<Option<(T, String, SourceSpan)>, StopReading> {
        let Some((text, span)) = self.read_with_constants(event, subject)? else { return Ok(None) };
        match parse(&text) {
            Ok(amount) => Ok(Some((amount, text.into_owned(), span))),
            Err(error) => {
                self.sink
                    .push(SpecDiagnostic::new("bad-amount", format!("{subject}: {error}")).with_span(span));
                Ok(None)
            }
        }
    }

    fn require_non_zero<T: PartialEq + Default>(
        &mut self,
        amount: T,
        subject: ValueSubject<'_>,
        span: SourceSpan,
    ) -> Option<T> {
        if amount == T::default() {
            let message = format!("{subject} must be greater than 0");
            self.sink.push(SpecDiagnostic::new("bad-amount", message).with_span(span));
            return None;
        }
        Some(amount)
    }

    /// Returns a text with the workflow's constants filled in.
    fn read_with_constants(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<SpannedText<'s>>, StopReading> {
        let Some((text, span)) = self.read_string(event, subject)? else { return Ok(None) };
        let mut filled = String::new();
        let mut from = 0;
        for placeholder in template::find_placeholders(&text) {
            let Some(value) = self.constants.get(placeholder.name) else {
                if self.constants.is_complete() {
                    self.report_undefined_name(placeholder.name, span);
                }
                return Ok(None);
            };
            filled.push_str(&text[from..placeholder.range.start]);
            let format = placeholder.format.and_then(PlaceholderFormat::parse).unwrap_or_default();
            format.write_value(ParameterValue::Text(value), &mut filled);
            from = placeholder.range.end;
        }
        if from == 0 {
            return Ok(Some((text, span)));
        }
        filled.push_str(&text[from..]);
        Ok(Some((Cow::Owned(filled), span)))
    }

    fn report_undefined_name(&mut self, name: &str, span: SourceSpan) {
        let suggestion = self.suggester.nearest_name(name, self.constants.names());
        let message = format!("`{{{name}}}` is not a variable of the workflow");
        let diagnostic = SpecDiagnostic::new("undefined-name", message).with_span(span);
        self.sink.push(match suggestion {
            Some(_) => diagnostic.with_suggestion(suggestion),
            None => diagnostic.with_help("define it in `variables` of the workflow"),
        });
    }

    fn suggest_signal(&mut self, text: &str) -> String {
        let bare =
            text.get(..3).filter(|start| start.eq_ignore_ascii_case("SIG")).map_or(text, |_| &text[3..]);
        match self.suggester.nearest_name(bare, SIGNAL_NAMES) {
            Some(signal) => format!("did you mean `SIG{signal}`?"),
            None => "write for example SIGTERM, INT or USR1".to_owned(),
        }
    }
}

/// Returns the signal in a value of `srun --signal`: `[R:|B:]SIGNAL[@SECONDS]`.
fn strip_srun_syntax(text: &str) -> Result<&str, &'static str> {
    let text = text.strip_prefix("R:").or_else(|| text.strip_prefix("B:")).unwrap_or(text);
    match text.split_once('@') {
        // Slurm stores the seconds in 16 bits.
        Some((_, seconds)) if seconds.parse::<u16>().is_err() => {
            Err("write seconds from 0 to 65535 after the `@`: `TERM@120`")
        }
        Some((signal, _)) => Ok(signal),
        None => Ok(text),
    }
}

pub(super) fn join_words(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srun_signal_syntax_is_parsed() {
        for (text, signal) in
            [("TERM@120", "TERM"), ("B:USR1@60", "USR1"), ("R:SIGINT", "SIGINT"), ("10@0", "10")]
        {
            assert_eq!(strip_srun_syntax(text), Ok(signal), "{text}");
        }
        for text in ["TERM@", "TERM@soon", "TERM@-1", "TERM@70000", "TERM@1@2"] {
            assert!(strip_srun_syntax(text).is_err(), "{text}");
        }
    }
}
