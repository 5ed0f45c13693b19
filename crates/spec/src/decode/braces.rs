//! `{i}` without quotes, which is a map in YAML where a text with a value in it was meant.

use super::{Decoder, Spanned, Subject, not};
use crate::event::{Event, Events, Kind, Stop};
use crate::source::Span;
use std::borrow::Cow;

impl<'s, E: Events<'s>> Decoder<'s, E> {
    /// Reports a map where a string should be. One that reads like `{i}` is taken for that text all the same, so that
    /// nothing else is missed because of it.
    pub(super) fn map_for_string(
        &mut self,
        event: &Event<'s>,
        subject: Subject<'_>,
        expected: &str,
    ) -> Result<Option<Spanned<'s>>, Stop> {
        let diagnostic = not(subject, expected, "a map", event.span);
        let read = self.name_in_braces(event.span);
        let Ok(Some(name)) = read else {
            self.sink.push(diagnostic);
            return read.map(|_| None);
        };
        let text = format!("{{{name}}}");
        let span = Span::new(event.span.start as usize, event.span.start as usize + text.len());
        self.sink.push(diagnostic.at(span).help(format!("quote it: \"{text}\"")));
        Ok(Some((Cow::Owned(text), span)))
    }

    /// Reads the rest of a map; what stands in it if that is one bare word right behind the brace.
    fn name_in_braces(&mut self, brace: Span) -> Result<Option<Cow<'s, str>>, Stop> {
        let first = self.next()?;
        let Kind::Key { text, .. } = first.kind else { return Ok(None) };
        let value = self.next()?;
        self.skip(&value)?;
        if matches!(self.next()?.kind, Kind::Key { .. }) {
            let value = self.next()?;
            self.skip(&value)?;
            self.events.leave(&mut self.sink)?;
            return Ok(None);
        }
        let is_alone = matches!(&value.kind, Kind::Scalar(scalar) if scalar.plain && scalar.text.is_empty());
        let Span { start, end } = first.span;
        let is_bare = start == brace.start + 1 && (end - start) as usize == text.len();
        Ok((is_alone && is_bare).then_some(text))
    }
}
