//! Parts of a document that are decoded later, when the rest is known.

use super::Decoder;
use crate::diagnostic::Sink;
use crate::event::{Event, Events, Kind, Stop};
use crate::source::Span;

/// The events of one value, kept and then told again.
#[derive(Debug, Default)]
pub(super) struct Recording<'s> {
    events: std::vec::IntoIter<Event<'s>>,
}

impl<'s> Events<'s> for Recording<'s> {
    fn next(&mut self, _: &mut Sink) -> Result<Event<'s>, Stop> {
        Ok(self.events.next().unwrap_or(Event { kind: Kind::End, span: Span::default() }))
    }

    fn leave(&mut self, _: &mut Sink) -> Result<(), Stop> {
        let mut depth = 1;
        for event in self.events.by_ref() {
            depth = depth_after(depth, &event.kind);
            if depth == 0 {
                return Ok(());
            }
        }
        Err(Stop)
    }
}

impl<'s, E: Events<'s>> Decoder<'s, E> {
    /// Keeps the whole value that `event` begins.
    pub(super) fn record(&mut self, event: Event<'s>) -> Result<Recording<'s>, Stop> {
        let mut depth = depth_after(0, &event.kind);
        let mut events = vec![event];
        while depth > 0 {
            let event = self.next()?;
            if matches!(event.kind, Kind::End) {
                return Err(Stop);
            }
            depth = depth_after(depth, &event.kind);
            events.push(event);
        }
        Ok(Recording { events: events.into_iter() })
    }
}

fn depth_after(depth: usize, kind: &Kind<'_>) -> usize {
    match kind {
        Kind::MapStart(_) | Kind::SeqStart(_) => depth + 1,
        Kind::MapEnd | Kind::SeqEnd => depth.saturating_sub(1),
        Kind::Key { .. } | Kind::Scalar(_) | Kind::Bad | Kind::End => depth,
    }
}
