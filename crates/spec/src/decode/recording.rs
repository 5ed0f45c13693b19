//! Records parts of a document that are decoded later, when the rest is known.

use super::SpecDecoder;
use crate::diagnostic::DiagnosticSink;
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, StopReading};

/// The recorded events of one value, for replay. The recording ends where the file ends early.
#[derive(Debug, Default)]
pub(super) struct EventRecording<'s> {
    events: std::vec::IntoIter<DocumentEvent<'s>>,
}

impl<'s> DocumentEventStream<'s> for EventRecording<'s> {
    fn next_event(&mut self, _: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        self.events.next().ok_or(StopReading)
    }

    fn leave_collection(&mut self, _: &mut DiagnosticSink) -> Result<(), StopReading> {
        let mut depth = 1;
        for event in self.events.by_ref() {
            depth = depth_after(depth, &event.kind);
            if depth == 0 {
                return Ok(());
            }
        }
        Err(StopReading)
    }
}

impl<'s, E: DocumentEventStream<'s>> SpecDecoder<'s, E> {
    /// Records the whole value that `event` begins, or as much of it as there is.
    pub(super) fn record_value(
        &mut self,
        event: DocumentEvent<'s>,
    ) -> (EventRecording<'s>, Result<(), StopReading>) {
        let mut depth = depth_after(0, &event.kind);
        let mut events = vec![event];
        let mut is_read = Ok(());
        while depth > 0 && is_read.is_ok() {
            is_read = self.next_event().map(|event| {
                depth = depth_after(depth, &event.kind);
                events.push(event);
            });
        }
        (EventRecording { events: events.into_iter() }, is_read)
    }
}

fn depth_after(depth: usize, kind: &DocumentEventKind<'_>) -> usize {
    match kind {
        DocumentEventKind::MapStart(_) | DocumentEventKind::SeqStart(_) => depth + 1,
        DocumentEventKind::MapEnd | DocumentEventKind::SeqEnd => depth.saturating_sub(1),
        DocumentEventKind::Key { .. }
        | DocumentEventKind::Scalar(_)
        | DocumentEventKind::Bad
        | DocumentEventKind::End => depth,
    }
}
