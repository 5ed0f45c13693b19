//! What happens when: the one order of everything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use windlass_types::Timestamp;

/// Events by time; those of one time in the order in which they were noted.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    order: BinaryHeap<Reverse<(Timestamp, u64)>>,
    events: BTreeMap<u64, E>,
    noted: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), events: BTreeMap::new(), noted: 0 }
    }
}

impl<E> Agenda<E> {
    pub(crate) fn note(&mut self, at: Timestamp, event: E) {
        self.noted += 1;
        self.order.push(Reverse((at, self.noted)));
        self.events.insert(self.noted, event);
    }

    pub(crate) fn next(&mut self) -> Option<(Timestamp, E)> {
        let Reverse((at, number)) = self.order.pop()?;
        self.events.remove(&number).map(|event| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_and_then_in_order() {
        let mut agenda = Agenda::default();
        for (at, event) in [(5, "late"), (1, "first"), (5, "later"), (2, "second")] {
            agenda.note(Timestamp(at), event);
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.next()).map(|(_, event)| event).collect();
        assert_eq!(order, ["first", "second", "late", "later"]);
    }
}
