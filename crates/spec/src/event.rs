//! The event stream that every file format is parsed into before it is decoded: maps, lists and scalars with
//! their locations.
//!
//! A front end ([`crate::format::FormatReader`] is any of them) yields well-formed nesting for every input:
//! within a map, `Key` and then exactly one value, repeatedly. It reports everything that it cannot express this
//! way.

use crate::diagnostic::DiagnosticSink;
use crate::source::SourceSpan;
use std::borrow::Cow;

/// The document cannot be parsed further; the cause has been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopReading;

/// Identity of a map or list that may be repeated (through an alias).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DocumentNodeId(pub(crate) u32);

#[derive(Clone, Debug)]
pub(crate) struct DocumentEvent<'s> {
    pub(crate) kind: DocumentEventKind<'s>,
    pub(crate) span: SourceSpan,
}

#[derive(Clone, Debug)]
pub(crate) enum DocumentEventKind<'s> {
    MapStart(Option<DocumentNodeId>),
    MapEnd,
    SeqStart(Option<DocumentNodeId>),
    SeqEnd,
    Key {
        text: Cow<'s, str>,
        /// Merged in (YAML merge key): an earlier key of the same name wins.
        merged: bool,
    },
    Scalar(ScalarText<'s>),
    /// A value that has already been reported.
    Bad,
    /// End of the document.
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct ScalarText<'s> {
    /// As written, with the escapes of the format resolved.
    pub(crate) text: Cow<'s, str>,
    /// Written without quotes, so it may be a number, a boolean or null.
    pub(crate) is_plain: bool,
}

/// The value of a scalar where any value is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarMeaning {
    Null,
    Boolean(bool),
    /// A number in JSON syntax. Other forms that look like one (`0755`, `1_000`, `.5`) are texts, because parsers
    /// disagree about them.
    Number,
    Text,
}

impl ScalarText<'_> {
    /// No value.
    pub(crate) fn is_null(&self) -> bool {
        self.is_plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }

    pub(crate) fn meaning(&self) -> ScalarMeaning {
        match &*self.text {
            _ if !self.is_plain => ScalarMeaning::Text,
            _ if self.is_null() => ScalarMeaning::Null,
            "true" => ScalarMeaning::Boolean(true),
            "false" => ScalarMeaning::Boolean(false),
            text if is_json_number(text) => ScalarMeaning::Number,
            _ => ScalarMeaning::Text,
        }
    }

    /// Whether any reader interprets both in the same way.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        match (self.meaning(), other.meaning()) {
            (ScalarMeaning::Null, ScalarMeaning::Null) => true,
            (ours, theirs) => ours == theirs && self.text == other.text,
        }
    }
}

/// Whether the text is a number by the grammar of JSON.
pub(crate) fn is_json_number(text: &str) -> bool {
    fn digits(text: &str) -> Option<&str> {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        (rest.len() < text.len()).then_some(rest)
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let Some(mut rest) = unsigned.strip_prefix('0').or_else(|| digits(unsigned)) else { return false };
    if let Some(fraction) = rest.strip_prefix('.') {
        let Some(after) = digits(fraction) else { return false };
        rest = after;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let Some(after) = digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)) else { return false };
        rest = after;
    }
    rest.is_empty()
}

/// A pull stream of events.
pub(crate) trait DocumentEventStream<'s> {
    fn next_event(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading>;

    /// Skips to the end of the innermost open map or list.
    fn leave_collection(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_numbers_are_recognized() {
        for text in ["0", "-0", "7", "120", "0.5", "-1.25e-7", "1e3", "1E+30", "18446744073709551616"] {
            assert!(is_json_number(text), "{text}");
        }
        for text in
            ["", "-", "+5", "00", "0755", ".5", "5.", "1e", "1e+", "0x1F", "1_000", "inf", "1 ", "--1"]
        {
            assert!(!is_json_number(text), "{text}");
        }
    }
}
