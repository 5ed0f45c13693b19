//! Turns events into a [`Spec`], typed field by typed field.
//!
//! A string is what is written (`0755`, `yes` and `1.10` stay what they are); integers and truth values are read from
//! unquoted scalars only where one is wanted. A bad value is reported and skipped, so that one reading finds all mistakes.

mod braces;
mod failure;
mod fields;
mod jobs;
mod json;
mod limits;
mod object;
mod parts;
mod recording;
mod rules;
pub(crate) mod shape;
pub(crate) mod tables;
mod values;
mod workflow;

#[cfg(test)]
mod tests;

pub(crate) use json::MANAGED_OPTIONS;

use crate::diagnostic::{Diagnostic, Sink};
use crate::event::{Event, Events, Kind, NodeId, Scalar, Stop};
use crate::expand::Constants;
use crate::model::Spec;
use crate::source::Span;
use crate::suggest::Suggester;
use fields::OpenMap;
pub(crate) use json::json_literal;
use std::borrow::Cow;
use std::fmt;

/// What could be decoded, and what was wrong with the rest.
pub(crate) struct Decoded<'s> {
    pub(crate) spec: Spec<'s>,
    pub(crate) sink: Sink,
    /// What is no mistake, but hardly meant.
    pub(crate) warnings: Sink,
    /// `None`: the file could not be read to its end.
    pub(crate) names: Option<NamesRead>,
}

/// Whether every definition that stands in the file is in the spec with its name, bad as the rest of it may be.
/// If not, a name that is not found may well be the one that could not be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamesRead {
    pub(crate) all_jobs: bool,
    pub(crate) all_requirements: bool,
    pub(crate) all_files: bool,
    pub(crate) all_user_data: bool,
    pub(crate) all_failure_handlers: bool,
    pub(crate) all_schedulers: bool,
    pub(crate) all_limits: bool,
    /// Of the constants and of the shared parameters.
    pub(crate) all_variables: bool,
    pub(crate) all_parameters: bool,
}

impl NamesRead {
    pub(crate) const ALL: Self = Self {
        all_jobs: true,
        all_requirements: true,
        all_files: true,
        all_user_data: true,
        all_failure_handlers: true,
        all_schedulers: true,
        all_limits: true,
        all_variables: true,
        all_parameters: true,
    };
}

/// Decodes a whole document.
pub(crate) fn decode<'s>(source: &'s str, events: impl Events<'s>) -> Decoded<'s> {
    workflow::decode(source, events)
}

/// A whole document as JSON, whatever stands in it.
#[cfg(test)]
pub(crate) fn value<'s>(events: impl Events<'s>) -> Option<serde_json::Value> {
    let mut decoder = Decoder::new(events);
    let root = decoder.next().ok()?;
    decoder.json(root).ok()?
}

/// Reads values from events.
struct Decoder<'s, E> {
    events: E,
    sink: Sink,
    warnings: Sink,
    suggester: Suggester,
    /// What `{name}` stands for in sizes, durations and the like, which are understood right here; all other texts keep
    /// it as it is written.
    constants: Constants,
    /// Strings of free values that hold a brace, so that what is wrong with it can be pointed at.
    braced: Vec<Spanned<'s>>,
    source: std::marker::PhantomData<&'s str>,
}

/// A list being decoded.
struct OpenList {
    id: Option<NodeId>,
}

/// What a value is of, for messages.
#[derive(Clone, Copy)]
enum Subject<'a> {
    /// A value of a known field.
    Field(&'static str),
    /// An item of the list in a known field.
    ItemOf(&'static str),
    /// A map of its own: "job".
    Thing(&'static str),
    /// An environment variable, or a constant.
    Variable(&'a str),
    Parameter(&'a str),
    /// An option of sbatch.
    Option(&'a str),
    Limit(&'a str),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, "`{name}`"),
            Self::ItemOf(name) => write!(f, "an item of `{name}`"),
            Self::Thing(what) => write!(f, "{} {what}", article(what)),
            Self::Variable(name) => write!(f, "variable `{name}`"),
            Self::Parameter(name) => write!(f, "parameter `{name}`"),
            Self::Option(name) => write!(f, "option `{name}`"),
            Self::Limit(name) => write!(f, "limit `{name}`"),
        }
    }
}

/// For the words that we use; `u` begins none that would want an "an".
pub(crate) fn article(what: &str) -> &'static str {
    if what.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" }
}

/// A string and where it is written.
type Spanned<'s> = (Cow<'s, str>, Span);

impl<'s, E: Events<'s>> Decoder<'s, E> {
    fn new(events: E) -> Self {
        Self {
            events,
            sink: Sink::default(),
            warnings: Sink::of_warnings(),
            suggester: Suggester::default(),
            constants: Constants::default(),
            braced: Vec::new(),
            source: std::marker::PhantomData,
        }
    }

    /// Goes on with other events.
    fn over<F>(self, events: F) -> Decoder<'s, F> {
        let Self { sink, warnings, suggester, constants, braced, source, .. } = self;
        Decoder { events, sink, warnings, suggester, constants, braced, source }
    }

    fn next(&mut self) -> Result<Event<'s>, Stop> {
        if self.sink.is_enough() {
            return Err(Stop);
        }
        self.events.next(&mut self.sink)
    }

    /// Reads past the rest of a value that begins with `event`.
    fn skip(&mut self, event: &Event<'s>) -> Result<(), Stop> {
        match event.kind {
            Kind::MapStart(_) | Kind::SeqStart(_) => self.events.leave(&mut self.sink),
            _ => Ok(()),
        }
    }

    fn map(&mut self, event: &Event<'s>, subject: Subject<'_>) -> Result<Option<OpenMap>, Stop> {
        match event.kind {
            Kind::MapStart(id) => Ok(Some(OpenMap::new(event.span, id))),
            _ => self.wrong_type(event, subject, "a map").map(|()| None),
        }
    }

    fn list(&mut self, event: &Event<'s>, subject: Subject<'_>) -> Result<Option<OpenList>, Stop> {
        match event.kind {
            Kind::SeqStart(id) => Ok(Some(OpenList { id })),
            _ => self.wrong_type(event, subject, "a list").map(|()| None),
        }
    }

    /// The event that begins the next item of the innermost list.
    fn next_item(&mut self) -> Result<Option<Event<'s>>, Stop> {
        let event = self.next()?;
        Ok((!matches!(event.kind, Kind::SeqEnd | Kind::End)).then_some(event))
    }

    fn scalar(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        expected: &str,
    ) -> Result<Option<(Scalar<'s>, Span)>, Stop> {
        match event.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => Ok(Some((scalar, event.span))),
            _ => self.wrong_type(&event, subject, expected).map(|()| None),
        }
    }

    /// A string as written.
    fn string(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Spanned<'s>>, Stop> {
        self.string_as(event, subject, "a string")
    }

    fn string_as(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        expected: &str,
    ) -> Result<Option<Spanned<'s>>, Stop> {
        if matches!(event.kind, Kind::MapStart(_)) {
            return self.map_for_string(&event, subject, expected);
        }
        let Some((scalar, span)) = self.scalar(event, subject, expected)? else { return Ok(None) };
        if scalar.text.contains('\0') {
            self.sink.push(
                Diagnostic::new("nul-byte", format!("{subject} contains a NUL byte"))
                    .at(span)
                    .help("neither commands nor names can hold one"),
            );
            return Ok(None);
        }
        Ok(Some((scalar.text, span)))
    }

    /// A string with something in it.
    fn non_empty(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Spanned<'s>>, Stop> {
        let Some((text, span)) = self.string(event, subject)? else { return Ok(None) };
        if text.trim().is_empty() {
            self.sink.push(Diagnostic::new("empty", format!("{subject} is empty")).at(span));
            return Ok(None);
        }
        Ok(Some((text, span)))
    }

    /// A string that is shown in lists.
    fn name(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<Spanned<'s>>, Stop> {
        let name = self.non_empty(event, subject)?;
        if let Some((text, span)) = &name
            && text.contains(char::is_control)
        {
            self.sink.push(
                Diagnostic::new("control-character", format!("{subject} contains a control character"))
                    .at(*span)
                    .help("it would garble every list that shows it; use printable characters only"),
            );
        }
        Ok(name)
    }

    fn integer(
        &mut self,
        event: Event<'s>,
        subject: Subject<'_>,
        (least, most): (i64, i64),
    ) -> Result<Option<i64>, Stop> {
        let Some((scalar, span)) = self.scalar(event, subject, "an integer")? else { return Ok(None) };
        match parse_integer(&scalar, least, most) {
            Ok(number) => Ok(Some(number)),
            Err(NotInteger::OutOfRange) => {
                let help = if least == most {
                    format!("it can only be {least}")
                } else {
                    format!("it must be from {least} to {most}")
                };
                self.sink.push(out_of_range(subject, &scalar.text, span).help(help));
                Ok(None)
            }
            Err(NotInteger::Other { help }) => {
                let diagnostic = not(subject, "an integer", &found_scalar(&scalar), span);
                self.sink.push(if help.is_empty() { diagnostic } else { diagnostic.help(help) });
                Ok(None)
            }
        }
    }

    fn boolean(&mut self, event: Event<'s>, subject: Subject<'_>) -> Result<Option<bool>, Stop> {
        const EXPECTED: &str = "`true` or `false`";
        let Some((scalar, span)) = self.scalar(event, subject, EXPECTED)? else { return Ok(None) };
        let meant = match &*scalar.text {
            "true" if scalar.plain => return Ok(Some(true)),
            "false" if scalar.plain => return Ok(Some(false)),
            text => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "y" | "1" => Some("true"),
                "false" | "no" | "off" | "n" | "0" => Some("false"),
                _ => None,
            },
        };
        let diagnostic = not(subject, EXPECTED, &found_scalar(&scalar), span);
        self.sink.push(match meant {
            Some(meant) if scalar.plain => diagnostic.help(format!("write `{meant}`")),
            Some(meant) => diagnostic.help(format!("write `{meant}` without quotes")),
            None => diagnostic,
        });
        Ok(None)
    }

    /// Reports that `event` does not begin what is wanted, and goes past it.
    fn wrong_type(&mut self, event: &Event<'s>, subject: Subject<'_>, expected: &str) -> Result<(), Stop> {
        let diagnostic = match &event.kind {
            Kind::Scalar(scalar) if scalar.is_null() => {
                let help = match subject {
                    Subject::Variable(_) => "write \"\" for an empty string",
                    Subject::Thing(_) | Subject::ItemOf(_) => "fill it in, or remove the `-`",
                    Subject::Parameter(_) | Subject::Option(_) | Subject::Limit(_) => {
                        "give it a value, or leave it out"
                    }
                    // Where a field may be left out, it may also be left empty.
                    Subject::Field(_) => "it cannot be left out",
                };
                Diagnostic::new("no-value", format!("{subject} has no value")).at(event.span).help(help)
            }
            Kind::Scalar(scalar) => {
                let diagnostic = not(subject, expected, &found_scalar(scalar), event.span);
                if expected == "a list" {
                    diagnostic.help(format!("write `[{}]`", shown_bare(&scalar.text)))
                } else {
                    diagnostic
                }
            }
            Kind::MapStart(_) => not(subject, expected, "a map", event.span),
            Kind::SeqStart(_) => not(subject, expected, "a list", event.span),
            // A bad value was reported; the rest begins no value.
            Kind::Bad | Kind::MapEnd | Kind::SeqEnd | Kind::Key { .. } | Kind::End => return Ok(()),
        };
        self.sink.push(diagnostic);
        self.skip(event)
    }
}

fn not(subject: Subject<'_>, expected: &str, found: &str, span: Span) -> Diagnostic {
    Diagnostic::new("wrong-type", format!("{subject} must be {expected}, not {found}")).at(span)
}

fn out_of_range(subject: Subject<'_>, text: &str, span: Span) -> Diagnostic {
    Diagnostic::new("out-of-range", format!("{subject} is {}", shown(text))).at(span)
}

fn found_scalar(scalar: &Scalar<'_>) -> String {
    if scalar.plain { shown(&scalar.text) } else { format!("the string {}", shown(&scalar.text)) }
}

fn shown(text: &str) -> String {
    format!("`{}`", shown_bare(text))
}

/// The beginning of a text, on one line.
fn shown_bare(text: &str) -> String {
    const MOST: usize = 40;
    let cut: String = text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MOST).is_some() { cut + "…" } else { cut }
}

enum NotInteger {
    OutOfRange,
    Other { help: &'static str },
}

fn parse_integer(scalar: &Scalar<'_>, least: i64, most: i64) -> Result<i64, NotInteger> {
    let text = &*scalar.text;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotInteger::Other { help: "" });
    }
    if !scalar.plain {
        return Err(NotInteger::Other { help: "remove the quotes" });
    }
    if digits.len() > 1 && digits.starts_with('0') {
        // Octal for some readers of YAML, decimal for others.
        return Err(NotInteger::Other { help: "remove the leading zeros" });
    }
    text.parse().ok().filter(|number| (least..=most).contains(number)).ok_or(NotInteger::OutOfRange)
}
