//! Handles unquoted `{i}`, which is a map in YAML although a text with a placeholder is meant.

use super::{SpannedText, SpecDecoder, ValueSubject, type_mismatch_error};
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, StopReading};
use crate::source::SourceSpan;
use std::borrow::Cow;

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    /// Reports a map where a string is expected. A map such as `{i}` is still used as that text, so that no
    /// follow-up errors are reported.
    pub(super) fn report_map_for_string(
        &mut self,
        event: &DocumentEvent<'s>,
        subject: ValueSubject<'_>,
        expected: &str,
    ) -> Result<Option<SpannedText<'s>>, StopReading> {
        let diagnostic = type_mismatch_error(subject, expected, "a map", event.span);
        let read = self.read_name_in_braces(event.span);
        let Ok(Some(name)) = read else {
            self.sink.push(diagnostic);
            return read.map(|_| None);
        };
        let text = format!("{{{name}}}");
        let span = SourceSpan::new(event.span.start as usize, event.span.start as usize + text.len());
        self.sink.push(diagnostic.with_span(span).with_help(format!("quote it: \"{text}\"")));
        Ok(Some((Cow::Owned(text), span)))
    }

    /// Reads the rest of a map; returns its content if that is one bare word directly after the brace.
    fn read_name_in_braces(&mut self, brace: SourceSpan) -> Result<Option<Cow<'s, str>>, StopReading> {
        let first = self.next_event()?;
        let DocumentEventKind::Key { text, .. } = first.kind else { return Ok(None) };
        let value = self.next_event()?;
        self.skip_value(&value)?;
        if matches!(self.next_event()?.kind, DocumentEventKind::Key { .. }) {
            let value = self.next_event()?;
            self.skip_value(&value)?;
            self.events.leave_collection(&mut self.sink)?;
            return Ok(None);
        }
        let is_alone = matches!(&value.kind, DocumentEventKind::Scalar(scalar) if scalar.is_plain && scalar.text.is_empty());
        let SourceSpan { start, end } = first.span;
        let is_bare = start == brace.start + 1 && (end - start) as usize == text.len();
        Ok((is_alone && is_bare).then_some(text))
    }
}
