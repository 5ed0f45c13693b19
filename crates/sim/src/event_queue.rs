//! The queue of all future events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use windlass_types::Timestamp;

/// Events by time; events at the same time in order of insertion.
#[derive(Debug)]
pub(crate) struct SimulationEventQueue<E> {
    order: BinaryHeap<Reverse<(Timestamp, u64)>>,
    events: BTreeMap<u64, E>,
    next_number: u64,
}

impl<E> Default for SimulationEventQueue<E> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), events: BTreeMap::new(), next_number: 0 }
    }
}

impl<E> SimulationEventQueue<E> {
    pub(crate) fn schedule(&mut self, at: Timestamp, event: E) {
        self.next_number += 1;
        self.order.push(Reverse((at, self.next_number)));
        self.events.insert(self.next_number, event);
    }

    pub(crate) fn next_event(&mut self) -> Option<(Timestamp, E)> {
        let Reverse((at, number)) = self.order.pop()?;
        self.events.remove(&number).map(|event| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_insertion() {
        let mut agenda = SimulationEventQueue::default();
        for (at, event) in [(5, "late"), (1, "first"), (5, "later"), (2, "second")] {
            agenda.schedule(Timestamp(at), event);
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.next_event()).map(|(_, event)| event).collect();
        assert_eq!(order, ["first", "second", "late", "later"]);
    }
}
