//! Texts that mean something: sizes, durations, signals, words out of a few, numbers.

use super::shape::Field;
use super::{Decoder, Spanned, Subject, found_scalar, not, out_of_range, shown};
use crate::diagnostic::Diagnostic;
use crate::event::{Event, Events, Stop};
use crate::params::ParameterValue;
use crate::resolve::check_regex;
use crate::source::Span;
use crate::template::{self, Format};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use windlass_types::settings::{RetryBudget, StderrPattern, parse_slurm_size, parse_walltime};
use windlass_types::{Bytes, Growth, Quantity, SIGNAL_NAMES, parse_duration, signal_number};

impl<'s, E: Events<'s>> Decoder<'s, E> {
    pub(super) fn size(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Bytes>, Stop> {
        let amount = self.amount(event, subject, str::parse::<Bytes>)?;
        Ok(amount.and_then(|(bytes, text, span)| {
            self.look_over_size(bytes, text.trim(), subject, span);
            self.more_than_nothing(bytes, subject, span)
        }))
    }

    /// Nothing runs in less than a MiB: the unit was forgotten, or is a wrong one.
    fn look_over_size(&mut self, bytes: Bytes, text: &str, subject: Subject<'_>, span: Span) {
        if !(1..1 << 20).contains(&bytes.0) {
            return;
        }
        let message = format!("{subject} is only {bytes}");
        let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        self.warnings
            .push(Diagnostic::new("tiny-size", message).at(span).help(format!("did you mean `{number}m`?")));
    }

    pub(super) fn duration(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<Duration>, Stop> {
        let amount = self.amount(event, subject, parse_duration)?;
        Ok(amount.and_then(|(duration, _, span)| self.more_than_nothing(duration, subject, span)))
    }

    /// A duration for Slurm, as it is written.
    pub(super) fn walltime(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<String>, Stop> {
        let Some((duration, text, span)) = self.amount(event, subject, parse_walltime)? else {
            return Ok(None);
        };
        Ok(self.more_than_nothing(duration, subject, span).map(|_| text))
    }

    /// A size for Slurm, as it is written. `0` is all that there is.
    pub(super) fn slurm_size(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<String>, Stop> {
        let amount = self.amount(event, subject, parse_slurm_size)?;
        Ok(amount.map(|(_, text, _)| text))
    }

    /// `SIGTERM`, `TERM`, `15`; for srun also `B:TERM@120`.
    pub(super) fn signal(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        of_srun: bool,
    ) -> Result<Option<String>, Stop> {
        let Some((text, span)) = self.filled_in(event, subject)? else { return Ok(None) };
        let signal = if of_srun { without_srun(&text) } else { Ok(&*text) };
        let help = match signal {
            Ok(signal) if signal_number(signal).is_some() => return Ok(Some(text.into_owned())),
            Ok(signal) => self.nearest_signal(signal),
            Err(help) => help.to_owned(),
        };
        let message = format!("{subject}: {} is no signal", shown(&text));
        self.sink.push(Diagnostic::new("bad-signal", message).at(span).help(help));
        Ok(None)
    }

    /// `x1.5`, `+30%` or `+2g`, as it is understood.
    pub(super) fn growth<Q: Quantity>(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<String>, Stop> {
        let growth = self.amount(event, subject, str::parse::<Growth<Q>>)?;
        Ok(growth.map(|(growth, _, _)| growth.to_string()))
    }

    pub(super) fn retry_budget(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<RetryBudget>, Stop> {
        let budget = self.amount(event, subject, str::parse::<RetryBudget>)?;
        Ok(budget.map(|(budget, _, _)| budget))
    }

    /// Words or a regular expression, as written. Braces are braces here: what programs print is full of them.
    pub(super) fn stderr_pattern(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
    ) -> Result<Option<String>, Stop> {
        let Some((text, span)) = self.non_empty(event, subject)? else { return Ok(None) };
        let (why, help) = match StderrPattern::of(&text) {
            StderrPattern::Words(_) => return Ok(Some(text.into_owned())),
            StderrPattern::Regex(regex) if regex.trim().is_empty() => {
                ("it is empty".to_owned(), "write the expression behind `re:`")
            }
            StderrPattern::Regex(regex) => match check_regex(regex) {
                Ok(()) => return Ok(Some(text.into_owned())),
                Err(why) => (why, "leave out the `re:` if these are words to look for"),
            },
        };
        let message = format!("{subject}: {} is not a regular expression: {why}", shown(&text));
        self.sink.push(Diagnostic::new("bad-regex", message).at(span).help(help));
        Ok(None)
    }

    /// One of the words of the field, as the type that they stand for.
    pub(super) fn choice<T>(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        words: &'static [&'static str],
    ) -> Result<Option<T>, Stop>
    where
        T: for<'de> Deserialize<'de>,
    {
        let word = self.word(event, subject, words)?;
        Ok(word.and_then(|word| {
            let text: StrDeserializer<'_, WordError> = word.into_deserializer();
            let value = T::deserialize(text).ok();
            debug_assert!(value.is_some(), "the table knows a word that the type does not: {word}");
            value
        }))
    }

    pub(super) fn word(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        words: &'static [&'static str],
    ) -> Result<Option<&'static str>, Stop> {
        let Some((text, span)) = self.string(event, subject)? else { return Ok(None) };
        if let Some(word) = words.iter().find(|word| **word == text) {
            return Ok(Some(word));
        }
        let diagnostic =
            Diagnostic::new("unknown-value", format!("{subject} cannot be {}", shown(&text))).at(span);
        let suggestion = self.suggester.nearest(&text, words.iter().copied());
        self.sink.push(match suggestion {
            Some(_) => diagnostic.suggest(suggestion),
            None => diagnostic.help(format!("it is one of {}", listed(words))),
        });
        Ok(None)
    }

    pub(super) fn number(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        (least, most): (f64, f64),
    ) -> Result<Option<f64>, Stop> {
        const EXPECTED: &str = "a number";
        let Some((scalar, span)) = self.scalar(event, subject, EXPECTED)? else { return Ok(None) };
        let looks_right = scalar.text.starts_with(|c: char| c.is_ascii_digit() || ".+-".contains(c));
        let number = scalar.text.parse::<f64>().ok().filter(|_| looks_right);
        match number {
            Some(number) if scalar.plain && (least..=most).contains(&number) => return Ok(Some(number)),
            Some(_) if scalar.plain => {
                let help = format!("it must be from {least} to {most}");
                self.sink.push(out_of_range(subject, &scalar.text, span).help(help));
            }
            Some(_) => {
                let diagnostic = not(subject, EXPECTED, &found_scalar(&scalar), span);
                self.sink.push(diagnostic.help("remove the quotes"));
            }
            None => self.sink.push(not(subject, EXPECTED, &found_scalar(&scalar), span)),
        }
        Ok(None)
    }

    /// An integer within the range of its field, as the type that holds it.
    pub(super) fn whole<T: TryFrom<i64>>(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        field: &Field,
    ) -> Result<Option<T>, Stop> {
        let number = self.integer(event, subject, field.is.range())?;
        Ok(number.and_then(|number| {
            let value = T::try_from(number).ok();
            debug_assert!(value.is_some(), "the table allows more than the type: {}", field.name);
            value
        }))
    }

    fn amount<T, P: fmt::Display>(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        parse: impl Fn(&str) -> Result<T, P>,
    ) -> Result<Option<(T, String, Span)>, Stop> {
        let Some((text, span)) = self.filled_in(event, subject)? else { return Ok(None) };
        match parse(&text) {
            Ok(amount) => Ok(Some((amount, text.into_owned(), span))),
            Err(error) => {
                self.sink.push(Diagnostic::new("bad-amount", format!("{subject}: {error}")).at(span));
                Ok(None)
            }
        }
    }

    fn more_than_nothing<T: PartialEq + Default>(
        &mut self,
        amount: T,
        subject: Subject<'_>,
        span: Span,
    ) -> Option<T> {
        if amount == T::default() {
            let message = format!("{subject} must be more than nothing");
            self.sink.push(Diagnostic::new("bad-amount", message).at(span));
            return None;
        }
        Some(amount)
    }

    /// A text with the workflow's constants put in.
    fn filled_in(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Spanned<'s>>, Stop> {
        let Some((text, span)) = self.string(event, subject)? else { return Ok(None) };
        let mut filled = String::new();
        let mut from = 0;
        for hole in template::holes(&text) {
            let Some(value) = self.constants.get(hole.name) else {
                if self.constants.is_complete() {
                    self.undefined(hole.name, span);
                }
                return Ok(None);
            };
            filled.push_str(&text[from..hole.range.start]);
            let format = hole.format.and_then(Format::parse).unwrap_or_default();
            format.put(ParameterValue::Text(value), &mut filled);
            from = hole.range.end;
        }
        if from == 0 {
            return Ok(Some((text, span)));
        }
        filled.push_str(&text[from..]);
        Ok(Some((Cow::Owned(filled), span)))
    }

    fn undefined(&mut self, name: &str, span: Span) {
        let suggestion = self.suggester.nearest(name, self.constants.names());
        let message = format!("`{{{name}}}` is no variable of the workflow");
        let diagnostic = Diagnostic::new("undefined-name", message).at(span);
        self.sink.push(match suggestion {
            Some(_) => diagnostic.suggest(suggestion),
            None => diagnostic.help("define it in `variables` of the workflow"),
        });
    }

    fn nearest_signal(&mut self, text: &str) -> String {
        let bare =
            text.get(..3).filter(|start| start.eq_ignore_ascii_case("SIG")).map_or(text, |_| &text[3..]);
        match self.suggester.nearest(bare, SIGNAL_NAMES) {
            Some(signal) => format!("did you mean `SIG{signal}`?"),
            None => "write for example SIGTERM, INT or USR1".to_owned(),
        }
    }
}

/// The signal itself in what `srun --signal` takes: `[R:|B:]SIGNAL[@SECONDS]`.
fn without_srun(text: &str) -> Result<&str, &'static str> {
    let text = text.strip_prefix("R:").or_else(|| text.strip_prefix("B:")).unwrap_or(text);
    match text.split_once('@') {
        // Slurm keeps the seconds in 16 bits.
        Some((_, seconds)) if seconds.parse::<u16>().is_err() => {
            Err("behind the `@` belong seconds, from 0 to 65535: `TERM@120`")
        }
        Some((signal, _)) => Ok(signal),
        None => Ok(text),
    }
}

pub(super) fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_as_srun_takes_them() {
        for (text, signal) in
            [("TERM@120", "TERM"), ("B:USR1@60", "USR1"), ("R:SIGINT", "SIGINT"), ("10@0", "10")]
        {
            assert_eq!(without_srun(text), Ok(signal), "{text}");
        }
        for text in ["TERM@", "TERM@soon", "TERM@-1", "TERM@70000", "TERM@1@2"] {
            assert!(without_srun(text).is_err(), "{text}");
        }
    }
}
