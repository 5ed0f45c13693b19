//! Parts of a document that are decoded later, when the rest is known.

use super::Decoder;
use crate::diagnostic::Sink;
use crate::event::{Event, Events, Kind, Stop};

/// The events of one value, kept and then told again. It stops where the file itself broke off.
#[derive(Debug, Default)]
pub(super) struct Recording<'s> {
    events: std::vec::IntoIter<Event<'s>>,
}

impl<'s> Events<'s> for Recording<'s> {
    fn next(&mut self, _: &mut Sink) -> Result<Event<'s>, Stop> {
        self.events.next().ok_or(Stop)
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
    /// Keeps the whole value that `event` begins, or as much of it as there is.
    pub(super) fn record(&mut self, event: Event<'s>) -> (Recording<'s>, Result<(), Stop>) {
        let mut depth = depth_after(0, &event.kind);
        let mut events = vec![event];
        let mut is_read = Ok(());
        while depth > 0 && is_read.is_ok() {
            is_read = self.next().map(|event| {
                depth = depth_after(depth, &event.kind);
                events.push(event);
            });
        }
        (Recording { events: events.into_iter() }, is_read)
    }
}

fn depth_after(depth: usize, kind: &Kind<'_>) -> usize {
    match kind {
        Kind::MapStart(_) | Kind::SeqStart(_) => depth + 1,
        Kind::MapEnd | Kind::SeqEnd => depth.saturating_sub(1),
        Kind::Key { .. } | Kind::Scalar(_) | Kind::Bad | Kind::End => depth,
    }
}
