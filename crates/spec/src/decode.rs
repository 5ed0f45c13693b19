//! Decodes events into a [`WorkflowSpec`], field by field with its type.
//!
//! A string keeps its spelling (`0755`, `yes` and `1.10` stay as they are); integers and booleans are read from
//! unquoted scalars only where the field expects one. A bad value is reported and skipped, so that one pass finds
//! all errors.

mod deferred_sections;
mod failure_rules;
mod field_rules;
pub(crate) mod field_tables;
mod fields;
mod jobs;
mod json;
mod limits;
mod object;
mod recording;
pub(crate) mod tables;
mod unquoted_braces;
mod values;
mod workflow;

#[cfg(test)]
mod tests;

pub(crate) use json::MANAGED_SBATCH_OPTIONS;

use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{
    DocumentEvent, DocumentEventKind, DocumentEventStream, DocumentNodeId, ScalarText, StopReading,
};
use crate::expand::WorkflowConstants;
use crate::model::WorkflowSpec;
use crate::source::SourceSpan;
use crate::suggest::NameSuggester;
use fields::MapDecoder;
pub(crate) use json::to_json_literal;
use std::borrow::Cow;
use std::fmt;

/// The decoded spec and its problems.
pub(crate) struct DecodedSpec<'s> {
    pub(crate) spec: WorkflowSpec<'s>,
    pub(crate) sink: DiagnosticSink,
    /// Warnings: valid, but probably unintended.
    pub(crate) warnings: DiagnosticSink,
    /// `None` if the file could not be parsed to its end.
    pub(crate) names: Option<NameCompleteness>,
}

/// Whether the spec has the name of every definition in the file, even where the rest of the definition is bad.
/// If not, an unknown name may belong to a definition that could not be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameCompleteness {
    pub(crate) all_jobs: bool,
    pub(crate) all_requirements: bool,
    pub(crate) all_files: bool,
    pub(crate) all_user_data: bool,
    pub(crate) all_failure_handlers: bool,
    pub(crate) all_schedulers: bool,
    pub(crate) all_limits: bool,
    /// Names of the constants and of the shared parameters.
    pub(crate) all_variables: bool,
    pub(crate) all_parameters: bool,
}

impl NameCompleteness {
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
pub(crate) fn decode_spec<'s>(source: &'s str, events: impl DocumentEventStream<'s>) -> DecodedSpec<'s> {
    workflow::build_spec(source, events)
}

/// Decodes a whole document as JSON, without checking its fields.
#[cfg(test)]
pub(crate) fn decode_json_document<'s>(events: impl DocumentEventStream<'s>) -> Option<serde_json::Value> {
    let mut decoder = SpecDecoder::new(events);
    let root = decoder.next_event().ok()?;
    decoder.decode_json(root).ok()?
}

/// Reads values from events.
struct SpecDecoder<'s, E> {
    events: E,
    sink: DiagnosticSink,
    warnings: DiagnosticSink,
    suggester: NameSuggester,
    /// Values of `{name}` in sizes, durations and similar values, which are parsed during decoding; all other
    /// texts keep the placeholder.
    constants: WorkflowConstants,
    /// Strings of free values that contain a brace, kept so that errors in them can be located.
    braced: Vec<SpannedText<'s>>,
    source: std::marker::PhantomData<&'s str>,
}

/// A list being decoded.
struct OpenList {
    id: Option<DocumentNodeId>,
}

/// The subject of a value in messages.
#[derive(Clone, Copy)]
enum ValueSubject<'a> {
    /// A value of a known field.
    Field(&'static str),
    /// An item of the list in a known field.
    ItemOf(&'static str),
    /// A map: "job".
    Object(&'static str),
    /// An environment variable, or a constant.
    Variable(&'a str),
    Parameter(&'a str),
    /// An sbatch option.
    Option(&'a str),
    Limit(&'a str),
}

impl fmt::Display for ValueSubject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, "`{name}`"),
            Self::ItemOf(name) => write!(f, "an item of `{name}`"),
            Self::Object(what) => write!(f, "{} {what}", indefinite_article(what)),
            Self::Variable(name) => write!(f, "variable `{name}`"),
            Self::Parameter(name) => write!(f, "parameter `{name}`"),
            Self::Option(name) => write!(f, "option `{name}`"),
            Self::Limit(name) => write!(f, "limit `{name}`"),
        }
    }
}

/// Chooses the article for the words used here; none that begins with `u` needs "an".
pub(crate) fn indefinite_article(what: &str) -> &'static str {
    if what.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" }
}

/// A string and its location.
type SpannedText<'s> = (Cow<'s, str>, SourceSpan);

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    fn new(events: E) -> Self {
        Self {
            events,
            sink: DiagnosticSink::default(),
            warnings: DiagnosticSink::for_warnings(),
            suggester: NameSuggester::default(),
            constants: WorkflowConstants::default(),
            braced: Vec::new(),
            source: std::marker::PhantomData,
        }
    }

    /// Continues with other events.
    fn with_events<F>(self, events: F) -> SpecDecoder<'s, F> {
        let Self { sink, warnings, suggester, constants, braced, source, .. } = self;
        SpecDecoder { events, sink, warnings, suggester, constants, braced, source }
    }

    fn next_event(&mut self) -> Result<DocumentEvent<'s>, StopReading> {
        if self.sink.should_stop() {
            return Err(StopReading);
        }
        self.events.next_event(&mut self.sink)
    }

    /// Skips the rest of a value that begins with `event`.
    fn skip_value(&mut self, event: &DocumentEvent<'s>) -> Result<(), StopReading> {
        match event.kind {
            DocumentEventKind::MapStart(_) | DocumentEventKind::SeqStart(_) => {
                self.events.leave_collection(&mut self.sink)
            }
            _ => Ok(()),
        }
    }

    fn open_map(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<MapDecoder>, StopReading> {
        match event.kind {
            DocumentEventKind::MapStart(id) => Ok(Some(MapDecoder::new(event.span, id))),
            _ => self.report_wrong_type(event, subject, "a map").map(|()| None),
        }
    }

    fn open_list(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<OpenList>, StopReading> {
        match event.kind {
            DocumentEventKind::SeqStart(id) => Ok(Some(OpenList { id })),
            _ => self.report_wrong_type(event, subject, "a list").map(|()| None),
        }
    }

    /// Returns the event that begins the next item of the innermost list.
    fn next_item(&mut self) -> Result<Option<DocumentEvent<'s>>, StopReading> {
        let event = self.next_event()?;
        Ok((!matches!(event.kind, DocumentEventKind::SeqEnd | DocumentEventKind::End)).then_some(event))
    }

    fn read_scalar(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        expected: &str,
    ) -> Result<Option<(ScalarText<'s>, SourceSpan)>, StopReading> {
        match event.kind {
            DocumentEventKind::Scalar(scalar) if !scalar.is_null() => Ok(Some((scalar, event.span))),
            _ => self.report_wrong_type(&event, subject, expected).map(|()| None),
        }
    }

    /// Reads a string as written.
    fn read_string(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<SpannedText<'s>>, StopReading> {
        self.read_string_as(event, subject, "a string")
    }

    fn read_string_as(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        expected: &str,
    ) -> Result<Option<SpannedText<'s>>, StopReading> {
        if matches!(event.kind, DocumentEventKind::MapStart(_)) {
            return self.report_map_for_string(&event, subject, expected);
        }
        let Some((scalar, span)) = self.read_scalar(event, subject, expected)? else { return Ok(None) };
        if scalar.text.contains('\0') {
            self.sink.push(
                SpecDiagnostic::new("nul-byte", format!("{subject} contains a NUL byte"))
                    .with_span(span)
                    .with_help("commands and names cannot contain one"),
            );
            return Ok(None);
        }
        Ok(Some((scalar.text, span)))
    }

    /// Reads a non-empty string.
    fn read_non_empty(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<SpannedText<'s>>, StopReading> {
        let Some((text, span)) = self.read_string(event, subject)? else { return Ok(None) };
        if text.trim().is_empty() {
            self.sink.push(SpecDiagnostic::new("empty", format!("{subject} is empty")).with_span(span));
            return Ok(None);
        }
        Ok(Some((text, span)))
    }

    /// Reads a string that appears in listings.
    fn read_name(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<SpannedText<'s>>, StopReading> {
        let name = self.read_non_empty(event, subject)?;
        if let Some((text, span)) = &name
            && text.contains(char::is_control)
        {
            self.sink.push(
                SpecDiagnostic::new("control-character", format!("{subject} contains a control character"))
                    .with_span(*span)
                    .with_help("it would garble listings; use printable characters only"),
            );
        }
        Ok(name)
    }

    fn read_integer(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        (least, most): (i64, i64),
    ) -> Result<Option<i64>, StopReading> {
        let Some((scalar, span)) = self.read_scalar(event, subject, "an integer")? else { return Ok(None) };
        match parse_integer(&scalar, least, most) {
            Ok(number) => Ok(Some(number)),
            Err(IntegerError::OutOfRange) => {
                let help = if least == most {
                    format!("it must be {least}")
                } else {
                    format!("it must be from {least} to {most}")
                };
                self.sink.push(out_of_range_error(subject, &scalar.text, span).with_help(help));
                Ok(None)
            }
            Err(IntegerError::Other { help }) => {
                let diagnostic = type_mismatch_error(subject, "an integer", &describe_scalar(&scalar), span);
                self.sink.push(if help.is_empty() { diagnostic } else { diagnostic.with_help(help) });
                Ok(None)
            }
        }
    }

    fn read_boolean(
        &mut self,
        event: DocumentEvent<'s>,
        subject: ValueSubject<'_>,
    ) -> Result<Option<bool>, StopReading> {
        const EXPECTED: &str = "`true` or `false`";
        let Some((scalar, span)) = self.read_scalar(event, subject, EXPECTED)? else { return Ok(None) };
        let meant = match &*scalar.text {
            "true" if scalar.is_plain => return Ok(Some(true)),
            "false" if scalar.is_plain => return Ok(Some(false)),
            text => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "y" | "1" => Some("true"),
                "false" | "no" | "off" | "n" | "0" => Some("false"),
                _ => None,
            },
        };
        let diagnostic = type_mismatch_error(subject, EXPECTED, &describe_scalar(&scalar), span);
        self.sink.push(match meant {
            Some(meant) if scalar.is_plain => diagnostic.with_help(format!("write `{meant}`")),
            Some(meant) => diagnostic.with_help(format!("write `{meant}` without quotes")),
            None => diagnostic,
        });
        Ok(None)
    }

    /// Reports that `event` does not begin the expected value, and skips it.
    fn report_wrong_type(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        expected: &str,
    ) -> Result<(), StopReading> {
        let diagnostic = match &event.kind {
            DocumentEventKind::Scalar(scalar) if scalar.is_null() => {
                let help = match subject {
                    ValueSubject::Variable(_) => "write \"\" for an empty string",
                    ValueSubject::Object(_) | ValueSubject::ItemOf(_) => "fill it in, or remove the `-`",
                    ValueSubject::Parameter(_) | ValueSubject::Option(_) | ValueSubject::Limit(_) => {
                        "give it a value, or leave it out"
                    }
                    // Optional fields may also be left empty.
                    ValueSubject::Field(_) => "it is required",
                };
                SpecDiagnostic::new("no-value", format!("{subject} has no value"))
                    .with_span(event.span)
                    .with_help(help)
            }
            DocumentEventKind::Scalar(scalar) => {
                let diagnostic = type_mismatch_error(subject, expected, &describe_scalar(scalar), event.span);
                if expected == "a list" {
                    diagnostic.with_help(format!("write `[{}]`", excerpt_line(&scalar.text)))
                } else {
                    diagnostic
                }
            }
            DocumentEventKind::MapStart(_) => type_mismatch_error(subject, expected, "a map", event.span),
            DocumentEventKind::SeqStart(_) => type_mismatch_error(subject, expected, "a list", event.span),
            // A bad value was reported; the remaining events do not begin a value.
            DocumentEventKind::Bad
            | DocumentEventKind::MapEnd
            | DocumentEventKind::SeqEnd
            | DocumentEventKind::Key { .. }
            | DocumentEventKind::End => return Ok(()),
        };
        self.sink.push(diagnostic);
        self.skip_value(event)
    }
}

fn type_mismatch_error(
    subject: ValueSubject<'_>,
    expected: &str,
    found: &str,
    span: SourceSpan,
) -> SpecDiagnostic {
    SpecDiagnostic::new("wrong-type", format!("{subject} must be {expected}, not {found}")).with_span(span)
}

fn out_of_range_error(subject: ValueSubject<'_>, text: &str, span: SourceSpan) -> SpecDiagnostic {
    SpecDiagnostic::new("out-of-range", format!("{subject} is {}", quote_excerpt(text))).with_span(span)
}

fn describe_scalar(scalar: &ScalarText<'_>) -> String {
    if scalar.is_plain {
        quote_excerpt(&scalar.text)
    } else {
        format!("the string {}", quote_excerpt(&scalar.text))
    }
}

fn quote_excerpt(text: &str) -> String {
    format!("`{}`", excerpt_line(text))
}

/// Returns the beginning of a text on one line.
fn excerpt_line(text: &str) -> String {
    const MOST: usize = 40;
    let cut: String = text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MOST).is_some() { cut + "…" } else { cut }
}

enum IntegerError {
    OutOfRange,
    Other { help: &'static str },
}

fn parse_integer(scalar: &ScalarText<'_>, least: i64, most: i64) -> Result<i64, IntegerError> {
    let text = &*scalar.text;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(IntegerError::Other { help: "" });
    }
    if !scalar.is_plain {
        return Err(IntegerError::Other { help: "remove the quotes" });
    }
    if digits.len() > 1 && digits.starts_with('0') {
        // Octal for some YAML parsers, decimal for others.
        return Err(IntegerError::Other { help: "remove the leading zeros" });
    }
    text.parse().ok().filter(|number| (least..=most).contains(number)).ok_or(IntegerError::OutOfRange)
}
